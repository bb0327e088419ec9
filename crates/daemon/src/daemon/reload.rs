//! Reading the configuration again: channels come and go, settings that can change at once change, and
//! the rest is named with what it needs. A file with an error changes nothing.

use std::sync::Arc;

use serde::Deserialize;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::live_settings::DAEMON_SETTINGS;
use super::process::Daemon;
use crate::channel::{CHANNEL_SETTINGS, Supervisor};
use crate::config::{
    Access, Applies, ChannelSettings, Config, ConfigError, DaemonConfig, applies, channel_changes,
    claims_changes, daemon_changes,
};
use crate::host::{Sender, caught};
use crate::observe::view::{ChangedView, ChannelState, PendingView, ReloadView, RestartedView};

/// The way in which the configuration is read again.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reload {
    /// Only report what would be done.
    pub(crate) dry_run: bool,
    /// Restart the channels with changes that need it.
    pub(crate) restart: bool,
}

/// The differences between the daemon and its files, and what to do about them.
#[derive(Debug, Default)]
struct ReloadPlan {
    view: ReloadView,
    /// New access rules, if they may change now.
    access: Option<Access>,
    removed: Vec<Arc<Supervisor>>,
    kept: Vec<(Arc<Supervisor>, ChannelSettings)>,
    /// Some of `kept`.
    restarted: Vec<Arc<Supervisor>>,
    added: Vec<ChannelSettings>,
    /// Names of all channels, as in the files.
    order: Vec<String>,
}

impl Daemon {
    /// Adopts the files' current contents.
    ///
    /// # Errors
    /// A file has an error, or the daemon is stopping; nothing was changed.
    pub(crate) async fn reload(
        &self,
        how: Reload,
        sender: &Sender,
    ) -> Result<ReloadView, ConfigError> {
        let outcome = self.read_again(how, sender).await;
        if !how.dry_run {
            self.reloaded(outcome.is_ok());
        }
        outcome
    }

    async fn read_again(&self, how: Reload, sender: &Sender) -> Result<ReloadView, ConfigError> {
        let _one_at_a_time = self.reloading.lock().await;
        let path = self.at_start.config_path.clone();
        let config = tokio::select! {
            biased;
            // Also while a file is read from a mount that hangs: the process waits for its last reload.
            () = self.process.stop.cancelled() => {
                return Err(ConfigError("the daemon is stopping".to_owned()));
            }
            config = spawn_blocking(move || Config::load(&path)) => config,
        };
        let mut config = config.map_err(|panic| ConfigError(panic.to_string()))??;
        // Nothing fails after this point: a file with an error has changed nothing.
        config.warnings.iter().for_each(|warning| warn!("{warning}"));
        let channels = std::mem::take(&mut config.channels);
        let mut plan = ReloadPlan::default();
        plan.view.dry_run = how.dry_run;
        self.plan_daemon(&config, &mut plan);
        self.plan_channels(channels, &config, how, &mut plan);
        if how.dry_run {
            return Ok(plan.view);
        }
        let mut concerned = plan.removed.clone();
        let view = self.carry_out(plan, &config.daemon).await;
        report(&view);
        concerned.retain(|channel| view.removed.iter().any(|name| name == channel.name()));
        concerned.extend(self.channels());
        self.record_for(&concerned, sender, "reload", |channel| view.of_channel(channel)).await;
        Ok(view)
    }

    fn plan_daemon(&self, config: &Config, plan: &mut ReloadPlan) {
        let mut change = |setting: &str, from: String, to: String| {
            plan.view.changed.extend(changed(None, setting, from, to));
        };
        for setting in &DAEMON_SETTINGS {
            for (key, from, to) in setting.compare(self, &config.daemon) {
                change(key, from, to);
            }
        }
        // Access was checked against the address in the file; the port in use may be another one.
        let moved = config.daemon.admin_listen != self.admin.listen;
        if *self.access() != config.access && !moved {
            plan.access = Some(config.access.clone());
            change("admin access", "as before".to_owned(), "as the file says".to_owned());
        }
        for key in daemon_changes(&self.at_start.written.0, &config.written.0) {
            match applies(&key) {
                Applies::AtOnce => {}
                Applies::Access if !moved => {}
                _ => plan.view.pending.push(pending(None, &key, Applies::Daemon)),
            }
        }
        let claims = claims_changes(&self.at_start.written_claims.0, &config.written_claims.0);
        let claims = claims.iter().map(|key| pending(None, key, Applies::Daemon));
        plan.view.pending.extend(claims);
    }

    fn plan_channels(
        &self,
        channels: Vec<ChannelSettings>,
        config: &Config,
        how: Reload,
        plan: &mut ReloadPlan,
    ) {
        plan.order = channels.iter().map(|settings| settings.name.clone()).collect();
        let (known, removed): (Vec<_>, Vec<_>) = self
            .channels()
            .into_iter()
            .partition(|channel| plan.order.iter().any(|name| name == channel.name()));
        plan.view.removed = removed.iter().map(|channel| channel.name().to_owned()).collect();
        plan.removed = removed;
        // All channels keep their state in the same directory, that of the start.
        let moved = daemon_changes(&self.at_start.written.0, &config.written.0);
        let moved = moved.iter().any(|key| key == "state_dir");
        for settings in channels {
            let channel = known.iter().find(|channel| channel.name() == settings.name);
            match channel {
                Some(channel) => {
                    plan_channel(channel, &settings, how, plan);
                    plan.kept.push((Arc::clone(channel), settings));
                }
                None if moved => {
                    let new = pending(Some(&settings.name), "new", Applies::Daemon);
                    plan.view.pending.push(new);
                }
                None => {
                    plan.view.added.push(settings.name.clone());
                    plan.added.push(settings);
                }
            }
        }
    }

    /// Leaves a daemon that matches its files, whatever its channels do meanwhile: none of these steps
    /// can be refused.
    async fn carry_out(&self, plan: ReloadPlan, daemon: &DaemonConfig) -> ReloadView {
        let ReloadPlan { mut view, access, removed, kept, restarted, added, order } = plan;
        DAEMON_SETTINGS.iter().for_each(|setting| (setting.adopt)(self, daemon));
        if let Some(access) = access {
            self.set_access(access);
        }
        let mut all = Vec::new();
        for (channel, settings) in kept {
            adopt(&channel, settings);
            all.push(channel);
        }
        let patience = self.stop_timeout();
        // Before others start, which may have the same target.
        let remove = move |channel: Arc<Supervisor>| async move {
            channel.remove(patience).await;
            true
        };
        for channel in left_behind(removed, remove).await {
            view.removed.retain(|name| name != channel.name());
            view.pending.push(pending(Some(channel.name()), "removed", Applies::Daemon));
            // What is left of it still has somebody who ends it.
            all.push(channel);
        }
        let added: Vec<_> = added.into_iter().map(|settings| self.supervisor(settings)).collect();
        all.extend(added.iter().map(Arc::clone));
        all.sort_by_key(|channel| order.iter().position(|name| name == channel.name()));
        self.set_channels(all);
        for channel in &added {
            channel.start().await;
        }
        if let Some(fleet) = self.fleet() {
            fleet.look_again();
        }
        let restart = move |channel: Arc<Supervisor>| async move {
            channel.restart_unless_stopped(patience).await
        };
        for channel in left_behind(restarted, restart).await {
            not_restarted(&mut view, channel.name());
        }
        view
    }
}

/// Has all channels do something at the same time. Returns those that don't do it, or panic, which ends no other.
async fn left_behind<F>(
    channels: Vec<Arc<Supervisor>>,
    act: impl Fn(Arc<Supervisor>) -> F,
) -> Vec<Arc<Supervisor>>
where
    F: Future<Output = bool> + Send + 'static,
{
    let begin = |channel: Arc<Supervisor>| (Arc::clone(&channel), caught(act(channel)));
    let tasks: Vec<_> = channels.into_iter().map(begin).collect();
    let mut left = Vec::new();
    for (channel, task) in tasks {
        let done = task.await;
        if let Err(panic) = &done {
            error!(channel = channel.name(), %panic, "the reload failed for the channel");
        }
        if !matches!(done, Ok(true)) {
            left.push(channel);
        }
    }
    left
}

/// Notes that a channel keeps its settings until its next start: it was stopped after the plan was made, another command
/// has it, the daemon is stopping, another daemon runs it, or its restart panicked.
fn not_restarted(view: &mut ReloadView, name: &str) {
    let left = view.restarted.extract_if(.., |restarted| restarted.channel_name == name);
    let settings: Vec<String> = left.flat_map(|restarted| restarted.settings).collect();
    view.pending.extend(settings.iter().map(|key| pending(Some(name), key, applies(key))));
}

fn plan_channel(
    channel: &Arc<Supervisor>,
    settings: &ChannelSettings,
    how: Reload,
    plan: &mut ReloadPlan,
) {
    let name = channel.name();
    // The file has it again, and its removal failed half way.
    if channel.is_removed() {
        plan.view.pending.push(pending(Some(name), "removed", Applies::Daemon));
        return;
    }
    for setting in &CHANNEL_SETTINGS {
        let values = setting.compare(channel.controls(), settings);
        let changes = values.filter_map(|(key, from, to)| changed(Some(name), key, from, to));
        plan.view.changed.extend(changes);
    }
    let view = channel.view();
    let waits = view.next_attempt_seconds.is_some();
    let keys = keys_for_restart(&channel.started_with(), settings, waits);
    // One that an operator has stopped stays stopped.
    let is_stopped = view.state == ChannelState::Stopped;
    // One that waits for its next attempt applies nothing, and the change may be what it waits for.
    let restarts = how.restart || waits;
    if restarts && !keys.is_empty() && !is_stopped {
        let channel_name = name.to_owned();
        plan.view.restarted.push(RestartedView { channel_name, settings: keys });
        plan.restarted.push(Arc::clone(channel));
    } else {
        let pending = |key: &String| pending(Some(name), key, applies(key));
        plan.view.pending.extend(keys.iter().map(pending));
    }
}

/// Compares with the settings in use, not those of the last reload: a change that was taken back is no longer
/// pending. The password in a file counts at the next login, so it is a change only for a channel that waits for one.
fn keys_for_restart(
    running: &ChannelSettings,
    settings: &ChannelSettings,
    waits: bool,
) -> Vec<String> {
    let mut keys = channel_changes(&running.written.0, &settings.written.0);
    for (side, before, after) in [
        ("source", &running.source.password, &settings.source.password),
        ("target", &running.target.password, &settings.target.password),
    ] {
        let named = keys.iter().any(|key| key.starts_with(&format!("{side}.password")));
        let is_same = match waits {
            true => before.has_the_same_text(after),
            false => before.is_from_the_same(after),
        };
        if !is_same && !named {
            keys.push(format!("{side}.password"));
        }
    }
    keys.retain(|key| !matches!(applies(key), Applies::AtOnce | Applies::Command));
    keys
}

/// Adopts settings at once, or for the next start.
fn adopt(channel: &Supervisor, mut settings: ChannelSettings) {
    let controls = channel.controls();
    CHANNEL_SETTINGS.iter().for_each(|setting| (setting.adopt)(controls, &settings));
    // The place of the state can change only for the whole daemon.
    settings.relay.directory.clone_from(&channel.started_with().relay.directory);
    channel.set_settings(settings);
}

fn pending(channel: Option<&str>, setting: &str, needs: Applies) -> PendingView {
    PendingView {
        channel_name: channel.map(str::to_owned),
        setting: setting.to_owned(),
        needs: match needs {
            Applies::Channel | Applies::AtOnce | Applies::Access | Applies::Command => {
                "restart of the channel"
            }
            Applies::Daemon => "restart of the daemon",
        }
        .to_owned(),
    }
}

fn changed(channel: Option<&str>, setting: &str, from: String, to: String) -> Option<ChangedView> {
    (from != to).then(|| ChangedView {
        channel_name: channel.map(str::to_owned),
        setting: setting.to_owned(),
        from,
        to,
    })
}

fn report(view: &ReloadView) {
    for channel in &view.added {
        info!(channel, "added to the configuration; started");
    }
    for channel in &view.removed {
        info!(
            channel,
            "removed from the configuration; stopped, its relay store and the checkpoint on its target remain"
        );
    }
    for RestartedView { channel_name: channel, settings } in &view.restarted {
        info!(channel, settings = settings.join(", "), "changed in the configuration; restarted");
    }
    for ChangedView { channel_name, setting, from, to } in &view.changed {
        let channel = channel_name.as_deref();
        info!(channel, setting, from, to, "reloaded");
    }
    for PendingView { channel_name, setting, needs } in &view.pending {
        warn!(channel = channel_name.as_deref(), setting, needs, "differs in the file");
    }
    if view.is_empty() {
        info!("configuration read again, nothing in it has changed");
    }
}

#[cfg(test)]
mod tests;
