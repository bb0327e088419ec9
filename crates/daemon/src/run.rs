//! `run` and `check`: preflight, channels side by side, signals, the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::channel::{Channel, Findings};
use crate::config::Config;
use crate::{Failure, admin, logging};

/// Replicates until SIGTERM or SIGINT.
pub(crate) fn run(path: &Path) -> Result<(), Failure> {
    let config = Config::load(path)?;
    logging::init(&config.daemon)?;
    for warning in &config.warnings {
        warn!("{warning}");
    }
    runtime()?.block_on(supervise(config))
}

/// Checks the file and, with `connect`, both servers of every channel.
pub(crate) fn check(path: &Path, connect: bool) -> Result<(), Failure> {
    let config = Config::load(path)?;
    for warning in &config.warnings {
        println!("warning: {warning}");
    }
    println!("{}: {} channel(s), no errors", path.display(), config.channels.len());
    if !connect {
        return Ok(());
    }
    runtime()?.block_on(async {
        for settings in &config.channels {
            let channel = Channel::new(settings.clone());
            match channel.preflight().await {
                Ok(Findings { lines, unreachable: None }) => {
                    lines.iter().for_each(|line| println!("channel {}: {line}", settings.name));
                }
                Ok(Findings { unreachable: Some(why), .. }) | Err(why) => {
                    return Err(Failure::Input(format!("channel {:?}: {why}", settings.name)));
                }
            }
        }
        Ok(())
    })
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("csa-worker")
        .build()
        .map_err(|error| Failure::Runtime(format!("starting the runtime: {error}")))
}

async fn supervise(config: Config) -> Result<(), Failure> {
    let channels: Vec<Arc<Channel>> =
        config.channels.into_iter().map(|settings| Arc::new(Channel::new(settings))).collect();
    // Everything that can be refused is refused before anything is written anywhere.
    for channel in &channels {
        match channel.preflight().await {
            Ok(Findings { lines, unreachable }) => {
                lines.iter().for_each(|line| warn!(channel = channel.name(), "{line}"));
                if let Some(why) = unreachable {
                    warn!(channel = channel.name(), "{why}; waiting for it");
                }
            }
            Err(why) => return Err(Failure::Input(format!("channel {:?}: {why}", channel.name()))),
        }
    }
    let stop = CancellationToken::new();
    let kill = CancellationToken::new();
    admin::start(&config.daemon.admin_listen, channels.clone(), stop.clone()).await?;
    let mut running = JoinSet::new();
    for channel in channels {
        let (stop, kill) = (stop.child_token(), kill.child_token());
        running.spawn(async move {
            let outcome = channel.run(stop, kill).await;
            if let Err(error) = &outcome {
                error!(channel = channel.name(), %error, "channel stopped");
            }
            outcome.map_err(|error| format!("channel {:?}: {error}", channel.name()))
        });
    }
    info!(pid = std::process::id(), version = env!("CARGO_PKG_VERSION"), "started");
    wait_for_signal(&stop, &kill, config.daemon.stop_timeout.0).await?;
    let mut failures = Vec::new();
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(why)) => failures.push(why),
            Err(panic) => failures.push(format!("a channel broke: {panic}")),
        }
    }
    info!("stopped");
    if failures.is_empty() { Ok(()) } else { Err(Failure::Runtime(failures.join("; "))) }
}

/// Returns once `stop` was asked for; `kill` follows after the time-out or a second signal. A channel
/// that has failed does not end the process: its status is what the operator comes for.
async fn wait_for_signal(
    stop: &CancellationToken,
    kill: &CancellationToken,
    timeout: Duration,
) -> Result<(), Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::Runtime(format!("listening for signals: {error}")))
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    info!(timeout = ?timeout, "stopping: finishing what is running");
    stop.cancel();
    let kill = kill.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = tokio::time::sleep(timeout) => {}
        }
        kill.cancel();
    });
    Ok(())
}
