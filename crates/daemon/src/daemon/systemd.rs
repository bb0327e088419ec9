//! Notifications to the service manager
//! (<https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>): ready once no channel
//! is still to be taken, the state in words, signs of life, the stop. Without `NOTIFY_SOCKET` there
//! are none.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::host::counted;
use crate::observe::view::{ChannelState, ChannelView};

/// Time between notifications, unless the watchdog needs them more often.
const TICK: Duration = Duration::from_secs(1);
/// The extension that each tick requests, while channels begin or a stop drains.
const MORE_TIME: Duration = Duration::from_secs(30);
/// A stop that gave up its groups this long ago hangs: the service manager may end the process.
const LAST_STEPS: Duration = Duration::from_secs(60);
/// Channels named individually in the status text.
const NAMED: usize = 4;

/// A channel as the service manager sees it.
#[derive(Debug, Clone)]
pub(crate) struct ManagedChannel {
    pub(crate) view: ChannelView,
    /// Its lock, checkpoint and relay store were ours at least once.
    pub(crate) taken: bool,
}

/// A service manager listens.
pub(crate) fn is_managed() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Points that the process has reached, each cancelled once it has.
#[derive(Debug, Clone)]
pub(crate) struct Milestones {
    /// Its admin port is open, and nothing but its channels can keep it from being ready.
    pub(crate) open: CancellationToken,
    pub(crate) stop: CancellationToken,
    /// The patience with what still runs is over.
    pub(crate) kill: CancellationToken,
    /// The daemon is of a fleet: it runs on where all its channels are refused, for those of others.
    pub(crate) in_fleet: bool,
}

/// Notifies the service manager of the channels' state until the process ends.
pub(crate) async fn keep_told<L>(look: L, reached: Milestones)
where
    L: Fn() -> Vec<ManagedChannel> + Clone + Send + 'static,
{
    let tick = sd_notify::watchdog_enabled().map_or(TICK, |limit| (limit / 3).min(TICK));
    tell(look, send, tick, reached).await;
}

/// The stop has begun.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping: finishing running groups")]);
}

/// The reason why the process ends; `systemctl status` shows it even afterwards.
pub(crate) fn ended(why: &str) {
    send(&[NotifyState::Status(&one_line(why))]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "the service manager could not be notified");
    }
}

/// Sends a sign of life only after looking at every channel from a blocking thread. So it proves
/// three things: timers fire, blocking work (reading, merging) finds a thread, and no channel's state
/// stays locked.
async fn tell<L, S>(look: L, send: S, tick: Duration, reached: Milestones)
where
    L: Fn() -> Vec<ManagedChannel> + Clone + Send + 'static,
    S: Fn(&[NotifyState<'_>]),
{
    let Milestones { open, stop, kill, in_fleet } = reached;
    let mut ready = false;
    let mut killed = None;
    loop {
        let stopping = stop.is_cancelled();
        let Ok(seen) = tokio::task::spawn_blocking(look.clone()).await else { return };
        let text = status(&seen);
        let mut states = vec![NotifyState::Watchdog];
        if stopping {
            if kill.is_cancelled() {
                killed.get_or_insert_with(Instant::now);
            }
            if killed.is_none_or(|since: Instant| since.elapsed() < LAST_STEPS) {
                states.push(more_time());
            }
        } else {
            states.push(NotifyState::Status(&text));
            if !ready && open.is_cancelled() && is_ready(&seen, in_fleet) {
                ready = true;
                states.push(NotifyState::Ready);
                info!("ready: every channel is taken, or was refused");
            }
            if !ready && (!open.is_cancelled() || seen.iter().any(begins)) {
                states.push(more_time());
            }
        }
        send(&states);
        tokio::select! {
            () = tokio::time::sleep(tick) => {}
            // Once cancelled it always is, and the loop would never pause.
            () = stop.cancelled(), if !stopping => {}
        }
    }
}

fn more_time() -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(MORE_TIME.as_micros()).unwrap_or(u32::MAX))
}

/// Every channel is taken or has failed, and at least one is taken. One that has failed is left to the operator and
/// delays no other; if none is left, the start runs into its time-out. A daemon that may have none, for now or because
/// others of its fleet have them, is ready without.
fn is_ready(channels: &[ManagedChannel], in_fleet: bool) -> bool {
    let may_have_none = in_fleet || channels.is_empty();
    (may_have_none || channels.iter().any(is_taken)) && !channels.iter().any(begins)
}

/// The channel is still to be taken: it checks its servers, or waits for one, or for its archive.
fn begins(seen: &ManagedChannel) -> bool {
    !is_taken(seen) && !matches!(seen.view.state, ChannelState::Failed | ChannelState::Stopped)
}

/// The channel is taken, here or by the daemon for which this one stands by. One that still copies its
/// source counts, too: a copy may take days, and nobody waits so long for the end of a start.
fn is_taken(seen: &ManagedChannel) -> bool {
    seen.taken || seen.view.copy.is_some() || seen.view.state == ChannelState::Standby
}

/// Returns one line: first each channel that does not run, by name, then all running ones together.
fn status(channels: &[ManagedChannel]) -> String {
    let (running, others): (Vec<_>, Vec<_>) = channels
        .iter()
        .map(|seen| &seen.view)
        .partition(|view| view.state == ChannelState::Running);
    let mut parts: Vec<String> = others
        .iter()
        .take(NAMED)
        .map(|view| format!("{} {}: {}", view.channel_name, words(view.state), view.state_detail))
        .collect();
    if others.len() > NAMED {
        parts.push(format!("{} more do not run", others.len() - NAMED));
    }
    if !running.is_empty() {
        parts.push(together(&running));
    }
    one_line(&parts.join("; "))
}

fn together(running: &[&ChannelView]) -> String {
    let name = match running {
        [one] => one.channel_name.clone(),
        many => format!("{} channels", many.len()),
    };
    let backlog: u64 = running.iter().filter_map(|view| view.backlog_transactions).sum();
    let lags = running.iter().map(|view| view.lag_seconds);
    // One unknown lag makes the highest unknown.
    let lag = lags.collect::<Option<Vec<f64>>>().map(|lags| lags.into_iter().fold(0.0, f64::max));
    let lag = lag.map_or_else(|| "lag unknown".to_owned(), |lag| format!("lag {lag:.1} s"));
    format!("{name} running, {lag}, backlog {}", counted(backlog, "transaction"))
}

fn words(state: ChannelState) -> String {
    state.name().replace('_', " ")
}

/// A newline would begin another assignment.
fn one_line(text: &str) -> String {
    csa_provider::server::visible::one_line(&text.replace(char::is_control, " ")).into_owned()
}

#[cfg(test)]
mod tests;
