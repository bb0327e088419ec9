//! csa-daemon as an applier under measurement.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mysql_async::prelude::Queryable as _;
use tokio::task::block_in_place;

use super::stage::{PATIENCE, Stage};
use crate::process::{cpu_seconds, page_faults, peak_rss_bytes};
use crate::topology::Sample;

const POLL: Duration = Duration::from_millis(20);
/// Between two looks at a daemon that applies; each costs it processor time.
const SELDOM: Duration = Duration::from_secs(1);

/// A drained backlog.
#[derive(Debug, Clone, Copy)]
pub(super) struct CsaDrain {
    /// The process.
    pub(super) daemon: u32,
    /// From the start of the process: reception, spooling and apply together.
    pub(super) seconds: f64,
    /// Transactions per second since the first showed as applied; absent when all showed at
    /// once.
    pub(super) apply_rate: Option<f64>,
    /// The time from the start of the process until applied transactions first showed.
    pub(super) start_seconds: Option<f64>,
    pub(super) daemon_cpu_seconds: f64,
    pub(super) daemon_page_faults: f64,
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
    let daemon_page_faults = page_faults(daemon)?;
    let daemon_peak_rss_bytes = peak_rss_bytes(daemon)?;
    let last = counted(stage).await?;
    stop(stage)?;
    let apply_rate = first.map(|(at, applied)| {
        (last.applied_transactions - applied) as f64 / (ended - at).as_secs_f64()
    });
    Ok(CsaDrain {
        daemon,
        seconds: (ended - started).as_secs_f64(),
        apply_rate: apply_rate.filter(|rate| *rate > 0.0),
        start_seconds: first.map(|(at, _)| (at - started).as_secs_f64()),
        daemon_cpu_seconds,
        daemon_page_faults,
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

/// Waits until the target has everything that the source has executed at the call.
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
            tokio::time::sleep(if first.is_some() { SELDOM } else { POLL }).await;
        }
    };
    tokio::select! {
        shown = wait_shown(stage) => shown?,
        failure = watch => bail!("csa-daemon's channel failed: {failure}"),
    }
    Ok(first)
}

/// Waits until the target shows everything that the source has executed at the call: in the checkpoint, which
/// is committed with the rows, or under the source's GTIDs, where the checkpoint follows within a second.
async fn wait_shown(stage: &Stage) -> Result<()> {
    let wanted = stage.source.gtid_executed().await;
    let shown = format!(
        "SELECT /*+ SET_VAR(group_concat_max_len=1073741824) */ GTID_SUBSET('{wanted}', \
         CONCAT(@@GLOBAL.gtid_executed, ',', COALESCE(GROUP_CONCAT(gtid_executed), ''))) \
         FROM csa.checkpoint"
    );
    // Made by the daemon when it starts for the first time.
    let is_there = "SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema='csa' AND table_name='checkpoint'";
    let started = Instant::now();
    let mut target = stage.csa.conn().await;
    let mut is_shown = async || -> Result<bool> {
        let there: Option<bool> = target.query_first(is_there).await?;
        Ok(there == Some(true) && target.query_first(&shown).await? == Some(true))
    };
    while !is_shown().await? {
        ensure!(stage.daemon.pid().is_some(), "csa-daemon has ended");
        ensure!(started.elapsed() < PATIENCE, "csa-daemon did not drain the backlog");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
