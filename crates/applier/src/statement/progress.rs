//! Progress of a long statement, as the target reports it.

use std::convert::Infallible;
use std::time::Duration;

use tracing::debug;

use crate::error::Result;
use crate::server::session::Session;
use crate::server::target::Target;
use crate::status::ApplierStatus;

/// Shorter statements are over before anybody looks.
const PATIENCE: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads the progress of `connection` over another session until dropped
/// (<https://dev.mysql.com/doc/refman/en/monitor-alter-table-performance-schema.html>). An error ends
/// the reading and nothing else: the progress is only shown.
pub(crate) async fn follow(target: &Target, connection: u32, status: &ApplierStatus) -> Infallible {
    status.statement_begun(connection);
    tokio::time::sleep(PATIENCE).await;
    if let Err(error) = look(target, connection, status).await {
        debug!(%error, "the progress of a statement can't be looked up");
    }
    std::future::pending().await
}

async fn look(target: &Target, connection: u32, status: &ApplierStatus) -> Result<()> {
    let mut session = Session::connect(target).await?;
    let query = format!(
        "SELECT s.WORK_COMPLETED, s.WORK_ESTIMATED FROM performance_schema.events_stages_current s \
         JOIN performance_schema.threads t ON t.THREAD_ID=s.THREAD_ID \
         WHERE t.PROCESSLIST_ID={connection}"
    );
    loop {
        let rows: Vec<(Option<u64>, Option<u64>)> = session.rows(&query).await?;
        let (completed, estimated) = rows.into_iter().next().unwrap_or_default();
        status.statement_progress(completed, estimated);
        tokio::time::sleep(INTERVAL).await;
    }
}
