//! Notifications to the service manager
//! (<https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>): ready once the
//! channels are taken, the state in words, signs of life, the stop. Without `NOTIFY_SOCKET` there
//! are none.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::host::counted;
use crate::observe::view::{ChannelState, ChannelView};

/// Time between notifications, unless the watchdog needs them more often.
const TICK: Duration = Duration::from_secs(1);
/// The extension that each tick requests, while a start waits for a server or a stop drains.
const MORE_TIME: Duration = Duration::from_secs(30);
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

/// Notifies the service manager of the channels' state until the process ends; `stop` makes it a
/// stop.
pub(crate) async fn keep_told<L>(look: L, stop: CancellationToken)
where
    L: Fn() -> Vec<ManagedChannel> + Clone + Send + 'static,
{
    let tick = sd_notify::watchdog_enabled().map_or(TICK, |limit| (limit / 3).min(TICK));
    tell(look, send, tick, stop).await;
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
async fn tell<L, S>(look: L, send: S, tick: Duration, stop: CancellationToken)
where
    L: Fn() -> Vec<ManagedChannel> + Clone + Send + 'static,
    S: Fn(&[NotifyState<'_>]),
{
    let mut ready = false;
    loop {
        let stopping = stop.is_cancelled();
        let Ok(seen) = tokio::task::spawn_blocking(look.clone()).await else { return };
        let text = status(&seen);
        let mut states = vec![NotifyState::Watchdog];
        if stopping {
            states.push(more_time());
        } else {
            states.push(NotifyState::Status(&text));
            if !ready && is_ready(&seen) {
                ready = true;
                states.push(NotifyState::Ready);
                info!("ready: every channel is taken");
            }
            if !ready && seen.iter().any(waits) {
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

/// At least one channel is taken, here or by the daemon for which this one stands by, and none is still to
/// be taken. A channel that failed before is left to the operator and delays no other; if none is left,
/// the start runs into its time-out.
fn is_ready(channels: &[ManagedChannel]) -> bool {
    let ended = |seen: &ManagedChannel| {
        matches!(seen.view.state, ChannelState::Failed | ChannelState::Stopped)
    };
    let taken = |seen: &ManagedChannel| seen.taken || seen.view.state == ChannelState::Standby;
    channels.iter().any(taken) && channels.iter().all(|seen| taken(seen) || ended(seen))
}

fn waits(seen: &ManagedChannel) -> bool {
    matches!(seen.view.state, ChannelState::WaitingForSource | ChannelState::WaitingForTarget)
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
