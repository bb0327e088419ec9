//! The server's own multi-threaded applier.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::stage::{PATIENCE, Stage};
use crate::process::cpu_seconds;

/// A drained backlog.
#[derive(Debug, Clone, Copy)]
pub(super) struct MtaDrain {
    pub(super) seconds: f64,
    /// CPU time of the target's mysqld, reception into the relay log included.
    pub(super) target_cpu_seconds: f64,
}

/// Configures the target's source; starts nothing.
pub(super) async fn attach(stage: &Stage) {
    let source = format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, \
         SOURCE_USER='repl', SOURCE_PASSWORD='repl_pw', SOURCE_AUTO_POSITION=1, \
         GET_SOURCE_PUBLIC_KEY=1",
        stage.source.port
    );
    let order = if stage.profile.mta_keeps_commit_order() { "ON" } else { "OFF" };
    stage.mta.exec(&format!("SET GLOBAL replica_preserve_commit_order={order}")).await;
    stage.mta.exec(&source).await;
}

pub(super) async fn start(stage: &Stage, workers: u32) {
    set_workers(stage, workers).await;
    stage.mta.exec("START REPLICA").await;
}

pub(super) async fn stop(stage: &Stage) {
    stage.mta.exec("STOP REPLICA").await;
}

/// Completes the relay log before the clock starts.
pub(super) async fn drain(stage: &Stage, workers: u32) -> Result<MtaDrain> {
    let target = stage.mta.pid();
    let cpu_before = cpu_seconds(target)?;
    set_workers(stage, workers).await;
    stage.mta.exec("START REPLICA IO_THREAD").await;
    wait_received(stage).await?;
    let started = Instant::now();
    stage.mta.exec("START REPLICA SQL_THREAD").await;
    wait_applied(stage).await?;
    let seconds = started.elapsed().as_secs_f64();
    let target_cpu_seconds = cpu_seconds(target)? - cpu_before;
    stop(stage).await;
    Ok(MtaDrain { seconds, target_cpu_seconds })
}

async fn set_workers(stage: &Stage, workers: u32) {
    stage.mta.exec(&format!("SET GLOBAL replica_parallel_workers={workers}")).await;
}

async fn wait_received(stage: &Stage) -> Result<()> {
    let executed = stage.source.gtid_executed().await;
    let received = format!(
        "SELECT GTID_SUBSET('{executed}', CONCAT(received_transaction_set, ',', \
         @@GLOBAL.gtid_executed)) FROM performance_schema.replication_connection_status"
    );
    let started = Instant::now();
    while !stage.mta.value::<bool>(&received).await {
        ensure_healthy(stage).await?;
        ensure!(started.elapsed() < PATIENCE, "the replica did not receive the backlog");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until everything that the source has executed at the call is executed; fails when the
/// applier does.
pub(super) async fn wait_applied(stage: &Stage) -> Result<()> {
    let executed = stage.source.gtid_executed().await;
    // Short waits, so that a stopped applier is noticed.
    let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', 2)");
    let started = Instant::now();
    while stage.mta.value::<u8>(&wait).await != 0 {
        ensure_healthy(stage).await?;
        ensure!(started.elapsed() < PATIENCE, "the server's own applier did not drain the backlog");
    }
    Ok(())
}

/// Fails with the error of the receiver, the coordinator or a worker.
async fn ensure_healthy(stage: &Stage) -> Result<()> {
    let error: String = stage.mta.value(&error_query()).await;
    ensure!(error.is_empty(), "the server's own applier stopped: {error}");
    Ok(())
}

/// Returns a query for the error of the receiver, the coordinator or a worker, or an empty string.
pub(crate) fn error_query() -> String {
    let errors = ["connection_status", "applier_status_by_coordinator", "applier_status_by_worker"]
        .map(|table| {
            format!(
                "SELECT CONCAT(last_error_number, ': ', last_error_message) AS error \
                 FROM performance_schema.replication_{table} WHERE last_error_number > 0"
            )
        })
        .join(" UNION ALL ");
    format!("SELECT COALESCE(MAX(error), '') FROM ({errors}) AS errors")
}
