//! Reading the configuration file again: settings that can change at once change; all others are
//! named with what they need. A file with an error changes nothing.

use csa_scheduler::EventMemory;
use secrecy::ExposeSecret as _;
use tracing::{info, warn};

use crate::channel::Supervisor;
use crate::config::{
    Applies, ChannelSettings, Config, ConfigError, DaemonConfig, applies, channel_changes,
    daemon_changes,
};
use crate::daemon::Daemon;
use crate::logging;
use crate::view::{ChangedView, PendingView, ReloadView};

impl Daemon {
    /// Adopts the file's current contents.
    ///
    /// # Errors
    /// The file has an error; nothing was changed.
    pub(crate) fn reload(&self) -> Result<ReloadView, ConfigError> {
        let _one_at_a_time = self.reloading.lock();
        let config = Config::load(&self.config_path)?;
        let named =
            |why: String| ConfigError(format!("{}: daemon.{why}", self.config_path.display()));
        logging::parse(&config.daemon.log_filter).map_err(named)?;
        // Nothing fails after this point: a file with an error has changed nothing.
        config.warnings.iter().for_each(|warning| warn!("{warning}"));
        let mut outcome = ReloadView::default();
        self.reload_daemon(&config, &mut outcome);
        for settings in &config.channels {
            match self.channel(&settings.name) {
                Some(channel) => reload_channel(channel, settings, &mut outcome),
                None => outcome.pending.push(pending(Some(&settings.name), "new", Applies::Daemon)),
            }
        }
        for channel in &self.channels {
            if !config.channels.iter().any(|settings| settings.name == channel.name()) {
                outcome.pending.push(pending(Some(channel.name()), "removed", Applies::Daemon));
            }
        }
        report(&outcome);
        Ok(outcome)
    }

    fn reload_daemon(&self, config: &Config, outcome: &mut ReloadView) {
        let mut change = |setting: &str, from: String, to: String| {
            outcome.changed.extend(changed(None, setting, from, to));
        };
        let DaemonConfig { log_filter, stop_timeout, .. } = &config.daemon;
        if let Ok(before) = self.log.set(log_filter) {
            change("log_filter", before, log_filter.clone());
        }
        let before = self.set_stop_timeout(stop_timeout.0);
        change("stop_timeout", format!("{before:?}"), format!("{:?}", stop_timeout.0));
        // Access was checked against the address in the file; the port in use may be another one.
        let moved = config.daemon.admin_listen != self.admin_listen;
        let differs = *self.access() != config.access;
        if differs && !moved {
            self.set_access(config.access.clone());
            change("admin access", "as before".to_owned(), "as the file says".to_owned());
        }
        for key in daemon_changes(&self.written.0, &config.written.0) {
            match applies(&key) {
                Applies::AtOnce => {}
                Applies::Access if !moved => {}
                _ => outcome.pending.push(pending(None, &key, Applies::Daemon)),
            }
        }
    }
}

fn reload_channel(channel: &Supervisor, settings: &ChannelSettings, outcome: &mut ReloadView) {
    let name = channel.name();
    let controls = channel.controls();
    let tuning = controls.tuning();
    let mut change = |setting: &str, from: String, to: String| {
        outcome.changed.extend(changed(Some(name), setting, from, to));
    };
    controls.set_worker_count(settings.worker_count);
    let (from, to) = (tuning.worker_count.to_string(), settings.worker_count.to_string());
    change("applier.worker_count", from, to);
    let memory: &EventMemory = controls.memory();
    let from = memory.limit().to_string();
    memory.set_limit(settings.event_memory_limit);
    change("applier.event_memory_limit", from, settings.event_memory_limit.to_string());
    controls.set_throttle(settings.throttle);
    let rate = |rate: Option<std::num::NonZeroU32>| rate.map_or(0, |rate| rate.get()).to_string();
    change("applier.throttle", rate(tuning.throttle), rate(settings.throttle));
    let delay = controls.source_delay();
    controls.set_source_delay(settings.source_delay);
    change("applier.source_delay", format!("{delay:?}"), format!("{:?}", settings.source_delay));

    // Compared with the settings in use, not those of the last reload: a change that was taken back
    // is no longer pending.
    let running = channel.started_with();
    let mut next = settings.clone();
    // The place of the state can change only for the whole daemon.
    next.relay.directory.clone_from(&running.relay.directory);
    channel.set_settings(next);
    let mut keys = channel_changes(&running.written.0, &settings.written.0);
    for (side, before, after) in [
        ("source", &running.source.password, &settings.source.password),
        ("target", &running.target.password, &settings.target.password),
    ] {
        let named = keys.iter().any(|key| key.starts_with(&format!("{side}.password")));
        if before.expose_secret() != after.expose_secret() && !named {
            keys.push(format!("{side}.password"));
        }
    }
    for key in keys {
        outcome.pending.extend(match applies(&key) {
            Applies::AtOnce => None,
            needs => Some(pending(Some(name), &key, needs)),
        });
    }
}

fn pending(channel: Option<&str>, setting: &str, needs: Applies) -> PendingView {
    PendingView {
        channel_name: channel.map(str::to_owned),
        setting: setting.to_owned(),
        needs: match needs {
            Applies::Channel | Applies::AtOnce | Applies::Access => "restart of the channel",
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

fn report(outcome: &ReloadView) {
    for ChangedView { channel_name, setting, from, to } in &outcome.changed {
        let channel = channel_name.as_deref();
        info!(channel, setting, from, to, "reloaded");
    }
    for PendingView { channel_name, setting, needs } in &outcome.pending {
        warn!(channel = channel_name.as_deref(), setting, needs, "differs in the file");
    }
    if outcome.changed.is_empty() && outcome.pending.is_empty() {
        info!("configuration read again, nothing in it has changed");
    }
}
