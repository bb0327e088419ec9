//! Ends a query that nobody waits for any more. A server does not notice that its client is gone before it sends
//! something, so the query that reads a whole table would run for hours after a comparison was interrupted.

use std::sync::LazyLock;
use std::time::Duration;

use csa_applier::{Target, TargetLink};
use csa_provider::server::link::{Limits, Row, rows_as};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// The time to end one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters of a query that are compared with what the server shows, which is 64 KiB at most.
const SHOWN: usize = 16_000;

/// Queries that are being ended.
static ENDING: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// A query that runs. Dropped before [`Self::answered`] was called, it ends the query on the server.
#[derive(Debug)]
pub(crate) struct RunningQuery<'a> {
    server: &'a Target,
    connection: u32,
    query: &'a str,
    is_answered: bool,
}

impl<'a> RunningQuery<'a> {
    pub(crate) fn new(server: &'a Target, connection: u32, query: &'a str) -> Self {
        Self { server, connection, query, is_answered: false }
    }

    /// The server has answered, or the link is lost.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for RunningQuery<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (server, connection) = (self.server.clone(), self.connection);
        let query: String = self.query.chars().take(SHOWN).collect();
        let ending = async move {
            // A server that can't be reached has ended the query, or is left to notice.
            let _ = tokio::time::timeout(PATIENCE, end(&server, connection, &query)).await;
        };
        ENDING.spawn_on(ending, &runtime);
    }
}

/// Waits until abandoned queries of this process are ended, at most for a moment.
pub(crate) async fn ended() {
    // A wait for an open tracker would never end.
    ENDING.close();
    let _ = tokio::time::timeout(PATIENCE, ENDING.wait()).await;
}

/// Ends the connection if it runs this query: the server may have given its number to another client.
async fn end(server: &Target, connection: u32, query: &str) {
    let Ok(mut link) = server.connect().await else { return };
    if shown(&mut *link, connection).await.as_deref() == Some(query) {
        // Every account may end its own connections.
        let _ = link.query(&format!("KILL {connection}"), Limits::SETTING).await;
    }
    link.quit().await;
}

/// Returns the beginning of the query that a connection runs.
async fn shown(link: &mut dyn TargetLink, connection: u32) -> Option<String> {
    let asked = format!(
        "SELECT LEFT(INFO,{SHOWN}) FROM information_schema.PROCESSLIST WHERE ID={connection}"
    );
    // The text arrives in the character set of the query.
    link.query("SET NAMES utf8mb4", Limits::SETTING).await.ok()?;
    let rows: Vec<Row> = link.query(&asked, Limits::LIST).await.ok()?;
    let rows: Vec<Option<String>> = rows_as(&asked, rows).ok()?;
    rows.into_iter().next()?
}
