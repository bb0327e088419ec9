//! A move must not stand still between the fence and the opening because somebody has killed it, closed a terminal or
//! pressed Ctrl-C. So a second process makes it, and this one starts another where that is killed. Either may die alone.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;

use crate::host::{Failure, StopSignals, listen, runtime};

/// The guard's process number, in the process that makes the move.
const WORKER: &str = "CSA_MOVE_WORKER";
/// The number of the last entry of the journal on this host before the command began, there.
const NUMBER: &str = "CSA_MOVE_NUMBER";
const STARTS: u32 = 5;
/// The exit code of a program that a bug has ended.
const PANICKED: i32 = 101;
const PAUSE: Duration = Duration::from_millis(200);

/// Returns true in the process that makes the move.
pub(super) fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// Returns the number of the last entry of the journal on this host before the command began.
pub(super) fn number() -> u64 {
    let number = std::env::var(NUMBER).ok().and_then(|text| text.parse().ok());
    number.unwrap_or(u64::MAX)
}

/// Runs this command line in another process until it ends, and ends with its code. `number` is that of the last entry
/// of the journal on this host.
pub(super) fn guard(number: u64) -> Result<(), Failure> {
    let status = runtime()?.block_on(watch(number))?;
    match status.code() {
        Some(0) => Ok(()),
        // It has said why.
        Some(code) => std::process::exit(code),
        None => Err(Failure::Runtime(
            "the move was killed again and again; run the same command, which continues".to_owned(),
        )),
    }
}

async fn watch(number: u64) -> Result<ExitStatus, Failure> {
    let wrong = |error: std::io::Error| Failure::Runtime(format!("starting the move: {error}"));
    let mut signals = stop_signals()?;
    for start in 1.. {
        let mut child = spawn(start == 1, number).map_err(wrong)?;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(wrong)?,
                () = signals.next() => stop(&child),
            }
        };
        let has_died = status.signal().is_some() || status.code() == Some(PANICKED);
        if !has_died || start >= STARTS {
            return Ok(status);
        }
        tokio::time::sleep(PAUSE).await;
    }
    unreachable!("the loop has no end")
}

fn spawn(is_first: bool, number: u64) -> std::io::Result<Child> {
    let mut command = std::process::Command::new("/proc/self/exe");
    // A group of its own: Ctrl-C is for this process.
    command
        .args(std::env::args_os().skip(1))
        .env(WORKER, std::process::id().to_string())
        .env(NUMBER, number.to_string())
        .process_group(0);
    if !is_first {
        // A test wants one death.
        command.env_remove("CSA_MOVE_KILL");
    }
    Command::from(command).spawn()
}

fn stop(child: &Child) {
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(id) = id {
        // It may have ended.
        let _ = kill_process(id, Signal::TERM);
    }
}

/// Returns a token that SIGTERM and SIGINT cancel, in the process that makes the move.
pub(super) fn stop_on_signal() -> Result<CancellationToken, Failure> {
    Ok(stop_signals()?.token())
}

/// The move continues when its terminal is gone: SIGHUP does nothing once somebody has listened for it.
fn stop_signals() -> Result<StopSignals, Failure> {
    listen(SignalKind::hangup()).map(drop)?;
    StopSignals::listen()
}
