//! csa-daemon as an applier under measurement.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::task::block_in_place;

use super::stage::{PATIENCE, Stage};
use crate::process::{cpu_seconds, peak_rss_bytes};
use crate::topology::Sample;

const POLL: Duration = Duration::from_millis(20);

/// A drained backlog.
#[derive(Debug, Clone, Copy)]
pub(super) struct CsaDrain {
    /// From the start of the process: reception, spooling and apply together.
    pub(super) seconds: f64,
    /// Transactions per second since the first showed as applied; absent when all showed at
    /// once.
    pub(super) apply_rate: Option<f64>,
    pub(super) daemon_cpu_seconds: f64,
    pub(super) target_cpu_seconds: f64,
    pub(super) daemon_peak_rss_bytes: u64,
    pub(super) transactions: u64,
    /// Commits on the target.
    pub(super) groups: u64,
}

pub(super) fn start(stage: &Stage) {
    block_in_place(|| stage.daemon.start_again());
}

pub(super) fn stop(stage: &Stage) -> Result<()> {
    let status = block_in_place(|| stage.daemon.terminate());
    ensure!(status.success(), "csa-daemon ended with {status}");
    Ok(())
}

/// From the start of the process until everything is committed on the target.
pub(super) async fn drain(stage: &Stage) -> Result<CsaDrain> {
    let target = stage.csa.pid();
    let target_cpu_before = cpu_seconds(target)?;
    let started = Instant::now();
    stage.daemon.spawn();
    let first = wait_and_watch(stage).await?;
    let ended = Instant::now();
    let target_cpu_seconds = cpu_seconds(target)? - target_cpu_before;
    let daemon = stage.daemon.pid().context("csa-daemon is gone")?;
    let daemon_cpu_seconds = cpu_seconds(daemon)?;
    let daemon_peak_rss_bytes = peak_rss_bytes(daemon)?;
    let last = counted(stage).await?;
    stop(stage)?;
    let apply_rate = first.map(|(at, applied)| {
        (last.applied_transactions - applied) as f64 / (ended - at).as_secs_f64()
    });
    Ok(CsaDrain {
        seconds: (ended - started).as_secs_f64(),
        apply_rate: apply_rate.filter(|rate| *rate > 0.0),
        daemon_cpu_seconds,
        target_cpu_seconds,
        daemon_peak_rss_bytes,
        transactions: last.applied_transactions,
        groups: last.applied_groups,
    })
}

/// The daemon's counters, once they include what the target shows: they follow the answer to COMMIT.
async fn counted(stage: &Stage) -> Result<Sample> {
    for _ in 0..100 {
        let sample = Sample::take(&stage.daemon).context("csa-daemon does not answer")?;
        if sample.backlog_transactions == 0 {
            return Ok(sample);
        }
        tokio::time::sleep(POLL).await;
    }
    bail!("csa-daemon counts a backlog, but the target has everything")
}

/// Waits until everything that the source has executed at the call is in the checkpoint.
pub(super) async fn wait_applied(stage: &Stage) -> Result<()> {
    wait_and_watch(stage).await.map(|_| ())
}

/// The time at which applied transactions first showed, and how many; fails when the channel does.
async fn wait_and_watch(stage: &Stage) -> Result<Option<(Instant, u64)>> {
    let mut first = None;
    let watch = async {
        loop {
            if let Some(status) = block_in_place(|| stage.daemon.try_status()) {
                let channel = &status["channels"][0];
                if channel["state"] == "failed" {
                    return channel["state_detail"].to_string();
                }
                let applied = Sample::of(&status).map_or(0, |sample| sample.applied_transactions);
                if applied > 0 && first.is_none() {
                    first = Some((Instant::now(), applied));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::select! {
        () = stage.daemon.wait_drained(&stage.source, &stage.csa, PATIENCE) => {}
        failure = watch => bail!("csa-daemon's channel failed: {failure}"),
    }
    Ok(first)
}
