//! Recording a transaction as executed without executing it, and who asked for that.

use csa_provider::Gtid;
use tracing::warn;

use crate::checkpoint;
use crate::control::{ControlSession, fenced};
use crate::options::{TargetGtids, TargetOptions};
use crate::sql::quote;
use crate::statement::consume;
use crate::{Error, Result};

/// What operators did to a channel's data. The table is only added to.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.audit (\
     id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     at TIMESTAMP(6) NOT NULL, \
     action VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     gtid VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     `by` VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL) ENGINE=InnoDB";

/// Characters of `by` that are kept.
const BY_LEN_MAX: usize = 255;

/// The checkpoint row that is written; no worker runs.
const WORKER: u16 = 0;

impl ControlSession {
    /// Commits `gtid` as executed into the checkpoint, together with a row of `csa.audit`. Nothing of
    /// the transaction is applied. `false` when it is executed already. `target` is the one it was
    /// opened on.
    ///
    /// # Errors
    /// The target refuses, or another daemon took the channel over; nothing is then skipped.
    pub async fn skip(&mut self, target: &TargetOptions, gtid: &Gtid, by: &str) -> Result<bool> {
        let Self { session, channel, checkpoint, .. } = self;
        let mut executed = checkpoint.executed.clone();
        if !executed.add(gtid) {
            return Ok(false);
        }
        session.run(CREATE).await?;
        let sequence = checkpoint.sequence.next();
        let update = checkpoint::update(channel, WORKER, checkpoint.epoch, sequence, &executed);
        let by: String = by.chars().take(BY_LEN_MAX).collect();
        let insert = format!(
            "INSERT INTO csa.audit (channel, at, action, gtid, `by`) \
             VALUES ({}, NOW(6), 'skip', '{gtid}', {})",
            quote(channel),
            quote(&by)
        );
        if target.gtids == TargetGtids::Source {
            // The target's `gtid_executed` is the checkpoint: an empty transaction fills the place. The
            // row is not part of it, or it would go to the target's replicas.
            session.run(insert).await?;
            session.run("SET SESSION sql_log_bin=1").await?;
            consume(session, &gtid.to_string()).await?;
            session.run("SET SESSION sql_log_bin=0").await?;
        } else {
            let written = session.run(format!("BEGIN;{update};{insert}")).await;
            if !matches!(&written, Ok(matched) if matched.get(1) == Some(&1)) {
                session.run("ROLLBACK").await?;
                return Err(written.err().unwrap_or_else(|| taken_over(channel)));
            }
            session.run("COMMIT").await?;
        }
        warn!(channel, %gtid, by, "transaction skipped: recorded as executed, nothing of it applied");
        checkpoint.executed = executed;
        checkpoint.sequence = sequence;
        Ok(true)
    }
}

fn taken_over(channel: &str) -> Error {
    fenced(channel, "another daemon took it over; nothing was skipped".to_owned())
}
