//! `run`: preflight, channels in parallel, signals, the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::admin::api;
use crate::channel::Supervisor;
use crate::config::Config;
use crate::daemon::{Daemon, ManagedChannel, Milestones, Reload, fleet, rounds, systemd};
use crate::host::{
    Failure, Sender, StopSignals, caught, listen,
    logging::{self, LogFilter},
    raise_limit, runtime,
};
use crate::notify;
use crate::observe::history;
use crate::verify::abandoned_ended;

/// The time limit for the look at a channel's servers before the admin port opens. A probe of Kubernetes waits for the port,
/// and ends a daemon that does not open it.
const FIRST_LOOK: Duration = Duration::from_secs(20);
/// Time between two samples of what keeps the channels busy.
const SAMPLE: Duration = Duration::from_millis(200);
/// Time between two looks at the reception of channels that do not run.
const RECEPTION_LOOKS: Duration = Duration::from_secs(5);

/// The time that threads have to end once no channel runs; nothing that counts is left to them.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// Replicates until SIGTERM or SIGINT.
pub(crate) fn run(path: &Path) -> Result<(), Failure> {
    let outcome = try_run(path);
    if let Err(failure) = &outcome {
        systemd::ended(&failure.to_string());
    }
    outcome
}

fn try_run(path: &Path) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let log = logging::init(&config.daemon.log_filter, config.daemon.log_format)?;
    for warning in &config.warnings {
        warn!("{warning}");
    }
    raise_limit();
    let runtime = runtime()?;
    let outcome = runtime.block_on(supervise(config, path, log));
    // A look-up of a receiver's name that hangs must not hold up the end.
    runtime.shutdown_timeout(LAST_THREADS);
    outcome
}

async fn supervise(config: Config, path: &Path, log: LogFilter) -> Result<(), Failure> {
    // First: a reload must not end a process that still checks its servers.
    let hangup = listen(SignalKind::hangup())?;
    let stop = CancellationToken::new();
    let kill = CancellationToken::new();
    let open = CancellationToken::new();
    let daemon = Arc::new(Daemon::new(config, path.to_owned(), log, &stop, &kill));
    let claims = daemon.take_claims();
    // Before the servers are asked: many of them, or one that does not answer, may take longer than the
    // service manager's time-out for a start.
    if systemd::is_managed() {
        let seen = Arc::clone(&daemon);
        let look = move || seen.channels().iter().map(|channel| see(channel)).collect();
        let (open, stop, kill) = (open.clone(), stop.clone(), kill.clone());
        let reached = Milestones { open, stop, kill, in_fleet: claims.is_some() };
        tokio::spawn(systemd::keep_told(look, reached));
    }
    // The first process of a container gets no signal that it does not listen for.
    let mut signals = StopSignals::listen()?;
    // In a fleet a channel is checked where it is claimed.
    if claims.is_none() && !may_begin(&daemon, &mut signals).await? {
        info!("stopped before any channel was started");
        return Ok(());
    }
    // Before the admin port: it must not say that there is no fleet.
    let entry = claims.map(|claims| fleet::enter(&daemon, claims, &stop)).transpose()?;
    // Before the channels: one that waits for a server can already be watched and commanded.
    api::start(Arc::clone(&daemon), stop.clone()).await?;
    open.cancel();
    let fleet = entry.map(fleet::Entry::join);
    for channel in daemon.channels() {
        channel.start().await;
    }
    let comparisons = watch(&daemon, &stop)?;
    info!(pid = std::process::id(), version = env!("CARGO_PKG_VERSION"), "started");
    wait_for_signal(&daemon, hangup, signals, &stop, &kill).await?;
    let mut failures = Vec::new();
    // A reload that has begun ends first: it may start a channel.
    let _no_reload = daemon.reloading.lock().await;
    // All stop at the same time, so waiting for one after the other costs nothing.
    for channel in daemon.channels() {
        failures.extend(channel.finish().await.err());
    }
    let channels = daemon.channels();
    let ours = channels.iter().filter(|channel| channel.is_taken());
    daemon.history.close(ours.map(|channel| channel.name()));
    if let Some(fleet) = fleet {
        fleet.leave().await;
    }
    // Commands that are answered have their row by now, or a line of the log.
    daemon.finish_audit(&kill).await;
    let _ = comparisons.await;
    // Servers would continue the queries of comparisons that nobody waits for.
    tokio::select! {
        () = abandoned_ended() => {}
        () = kill.cancelled() => {}
    }
    info!("stopped");
    if failures.is_empty() { Ok(()) } else { Err(Failure::Runtime(failures.join("; "))) }
}

/// Begins all that looks at channels while they run; returns the task that compares them.
fn watch(daemon: &Arc<Daemon>, stop: &CancellationToken) -> Result<JoinHandle<()>, Failure> {
    tokio::spawn(sample(Arc::clone(daemon), stop.clone()));
    let seen = Arc::clone(daemon);
    let watched = move || seen.channels().iter().filter_map(|one| one.watched()).collect();
    tokio::spawn(notify::watch(watched, stop.clone()));
    let comparisons = tokio::spawn(rounds::keep(Arc::clone(daemon), stop.clone()));
    tokio::spawn(keep_receiving(Arc::clone(daemon), stop.clone()));
    let measured = Arc::clone(daemon);
    let measure = move || {
        measured.channels().iter().for_each(|channel| channel.measure_disk());
        let look = |channel: &Arc<Supervisor>| (channel.view(), channel.is_taken());
        measured.channels().iter().map(look).collect()
    };
    history::start(Arc::clone(&daemon.history), measure, stop.clone())?;
    Ok(comparisons)
}

/// Checks every channel; returns false where a stop comes first.
async fn may_begin(daemon: &Daemon, signals: &mut StopSignals) -> Result<bool, Failure> {
    tokio::select! {
        looked = refuse_if_none_can_run(daemon) => looked.map(|()| true),
        () = signals.next() => Ok(false),
    }
}

/// Checks every channel before anything is written anywhere. A refused channel does not affect the
/// others; it fails and is retried. If all are refused, there is nothing to run.
async fn refuse_if_none_can_run(daemon: &Daemon) -> Result<(), Failure> {
    let channels = daemon.channels();
    let looks: Vec<_> = channels
        .iter()
        .map(|channel| {
            let looked_at = Arc::clone(channel);
            (channel, tokio::spawn(async move { in_time(Box::pin(looked_at.preflight())).await }))
        })
        .collect();
    let mut refused = Vec::new();
    for (channel, look) in looks {
        let name = channel.name();
        match look.await.unwrap_or_else(|panic| Err(panic.to_string())) {
            Ok(None) => {}
            Ok(Some(why)) => debug!(channel = name, "{why}; waiting for the server"),
            Err(why) => refused.push(format!("channel {name:?}: {why}")),
        }
    }
    // `allow_no_channels` permits none.
    if refused.len() == channels.len() && !channels.is_empty() {
        return Err(Failure::Input(refused.join("; ")));
    }
    Ok(())
}

/// Returns the outcome of a look, or that it waits for a server.
async fn in_time(
    look: impl Future<Output = Result<Option<String>, String>>,
) -> Result<Option<String>, String> {
    let late = || Ok(Some(format!("no answer within {} s", FIRST_LOOK.as_secs())));
    tokio::time::timeout(FIRST_LOOK, look).await.unwrap_or_else(|_| late())
}

async fn sample(daemon: Arc<Daemon>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        daemon.channels().iter().for_each(|channel| channel.sample());
        tokio::time::sleep(SAMPLE).await;
    }
}

/// Looks after the reception of channels that do not run. A channel is asked seldom.
async fn keep_receiving(daemon: Arc<Daemon>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RECEPTION_LOOKS) => {}
            () = stop.cancelled() => return,
        }
        for channel in daemon.channels() {
            let looked_at = Arc::clone(&channel);
            // The others are still looked after.
            if let Err(panic) = caught(async move { looked_at.keep_receiving().await }).await {
                error!(channel = channel.name(), %panic, "looking after reception failed");
            }
        }
    }
}

fn see(channel: &Supervisor) -> ManagedChannel {
    ManagedChannel { view: channel.view(), taken: channel.is_taken() }
}

/// Returns once a stop was requested; `kill` follows after the time-out or a second signal. A
/// failed channel does not end the process, because operators need its status. SIGHUP reloads the
/// configuration.
async fn wait_for_signal(
    daemon: &Arc<Daemon>,
    mut hangup: Signal,
    mut signals: StopSignals,
    stop: &CancellationToken,
    kill: &CancellationToken,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            () = signals.next() => break,
            _ = hangup.recv() => {
                let daemon = Arc::clone(daemon);
                // Not here: a channel that stops slowly, or a target that is away, must not delay
                // the next signal.
                tokio::spawn(async move {
                    let sender = Sender { peer: "SIGHUP".to_owned(), claimed: None };
                    if let Err(why) = daemon.reload(Reload::default(), &sender).await {
                        error!(error = %why.0, "configuration not reloaded; nothing was changed");
                    }
                });
            }
        }
    }
    let timeout = daemon.stop_timeout();
    info!(?timeout, "stopping: finishing running groups");
    systemd::stopping();
    stop.cancel();
    signals.then_kill(kill.clone(), timeout);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_does_not_hold_up_the_start() {
        let waits = in_time(pending()).await;
        assert_eq!(waits, Ok(Some("no answer within 20 s".to_owned())));
        let refused: Result<Option<String>, String> = Err("no".to_owned());
        assert_eq!(in_time(ready(refused.clone())).await, refused);
    }
}
