//! The channel's rows on the target, which show its daemon and whether transactions are applied.

use std::time::{Duration, Instant};

use csa_tests::Server;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

/// Time between looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// The rows of `csa.checkpoint` at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) epoch: u64,
    /// Worker, sequence and GTID set.
    rows: Vec<(u16, u64, String)>,
}

/// Looks at the rows.
pub(crate) struct Looks<'a> {
    target: &'a Server,
    conn: Option<Conn>,
}

impl<'a> Looks<'a> {
    pub(crate) const fn new(target: &'a Server) -> Self {
        Self { target, conn: None }
    }

    /// Returns `None` while the target does not answer.
    pub(crate) async fn look(&mut self) -> Option<Mark> {
        let look = async {
            let mut conn = match self.conn.take() {
                Some(conn) => conn,
                None => Conn::new(self.target.opts()).await?,
            };
            let rows: Vec<(u16, u64, String, u64)> = conn
                .query(
                    "SELECT worker, sequence, gtid_executed, epoch FROM csa.checkpoint \
                     WHERE channel='test' ORDER BY worker",
                )
                .await?;
            self.conn = Some(conn);
            Ok::<_, mysql_async::Error>(rows)
        };
        let rows = tokio::time::timeout(Duration::from_secs(2), look).await.ok()?.ok()?;
        let epoch = rows.iter().map(|row| row.3).max()?;
        let rows = rows.into_iter().map(|(worker, sequence, set, _)| (worker, sequence, set));
        Some(Mark { epoch, rows: rows.collect() })
    }

    /// Waits until the target answers.
    pub(crate) async fn first(&mut self, patience: Duration) -> Result<Mark, String> {
        let started = Instant::now();
        loop {
            if let Some(mark) = self.look().await {
                return Ok(mark);
            }
            if started.elapsed() > patience {
                return Err(format!("the target did not answer within {patience:?}"));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Waits until a transaction is applied: under another epoch than `before`, or under any.
    pub(crate) async fn applied(
        &mut self,
        before: Option<u64>,
        patience: Duration,
    ) -> Result<(Instant, u64), String> {
        let started = Instant::now();
        let mut first: Option<Mark> = None;
        loop {
            match (self.look().await, &first) {
                (Some(mark), _) if before == Some(mark.epoch) => {}
                (Some(mark), Some(first)) if mark.epoch == first.epoch && mark != *first => {
                    return Ok((Instant::now(), mark.epoch));
                }
                (Some(mark), Some(first)) if mark == *first => {}
                // Its epoch is there before anything is applied under it.
                (Some(mark), _) => first = Some(mark),
                (None, _) => {}
            }
            if started.elapsed() > patience {
                return Err(format!("nothing was applied within {patience:?}; it was {first:?}"));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
