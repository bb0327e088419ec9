//! `controller`: makes channels of the daemon beside it from `ReplicationChannel` resources of Kubernetes. It writes
//! the daemon's files, tells it to reload them, and reports the status of each channel. It decides nothing about
//! replication, so the channels run on while it or the API server is away.

mod cluster;
mod definition;
mod folder;
mod reconciler;
mod resource;
mod resource_status;

use std::path::Path;

use tokio::task::spawn_blocking;
use tracing::info;

use crate::cli::arguments::{Admin, ControllerArguments};
use crate::config::DaemonConfig;
use crate::host::{Failure, StopSignals, logging, runtime};
use reconciler::Controller;

pub(crate) use definition::definition;

/// Runs until SIGTERM or SIGINT; with `--once` until the files are written.
pub(crate) fn control(
    config: &Path,
    admin: Admin,
    arguments: ControllerArguments,
) -> Result<(), Failure> {
    let daemon = DaemonConfig::load(config)?;
    logging::init(&daemon.log_filter, daemon.log_format)?;
    let is_once = arguments.once;
    let mut controller = Controller::new(config, admin, arguments)?;
    if is_once {
        return controller.write_files();
    }
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let work = spawn_blocking(move || controller.run());
        tokio::select! {
            () = signals.next() => {}
            ended = work => return Err(Failure::Runtime(format!("the controller ended: {ended:?}"))),
        }
        info!("stopped");
        Ok(())
    });
    // The request that it waits for need not end first: files are replaced whole.
    runtime.shutdown_background();
    outcome
}
