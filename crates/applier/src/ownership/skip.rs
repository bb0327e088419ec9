//! Records a transaction as executed without executing it.

use csa_provider::binlog::Gtid;
use tracing::warn;

use crate::error::{Error, Fence, Result};
use crate::options::TargetGtids;
use crate::ownership::audit::AuditEntry;
use crate::ownership::checkpoint;
use crate::ownership::control::ControlSession;
use crate::server::target::Target;

/// The checkpoint row that is written; no worker runs meanwhile.
const WORKER: u16 = 0;

impl ControlSession {
    /// Commits `gtid` as executed into the checkpoint, together with a row of `csa.audit` that names who
    /// asked for it. Nothing of the transaction is applied. Returns `false` if it was executed already.
    /// `target` is the one that this session was opened on.
    ///
    /// # Errors
    /// The target refuses, or another daemon took the channel over; nothing is skipped then. If the answer
    /// to the COMMIT was lost, it may be skipped: asked again, it returns `false`.
    pub async fn skip(&mut self, target: &Target, gtid: &Gtid, entry: &AuditEntry) -> Result<bool> {
        self.follow(gtid.uuid).await?;
        let Self { session, channel, checkpoint, .. } = self;
        let mut executed = checkpoint.executed.clone();
        if !executed.add(gtid) {
            return Ok(false);
        }
        let sequence = checkpoint.sequence.next();
        let update = checkpoint::update(channel, WORKER, checkpoint.epoch, sequence, &executed);
        let insert = entry.insert();
        if target.gtids == TargetGtids::Source {
            // The target's `gtid_executed` is the checkpoint: an empty transaction fills the gap. The
            // audit row is not part of it, or it would go to the target's replicas. A crash in between
            // leaves an audit row for a command that did nothing; the command can be given again.
            session.run(insert).await?;
            session.consume_logged(&gtid.to_string()).await?;
        } else {
            let written = session.run(format!("BEGIN;{update};{insert}")).await;
            if !matches!(&written, Ok(matched) if matched.get(1) == Some(&1)) {
                session.run("ROLLBACK").await?;
                return Err(written
                    .err()
                    .unwrap_or_else(|| Error::fenced(channel, Fence::NothingSkipped)));
            }
            session.run("COMMIT").await?;
        }
        let AuditEntry { by, peer, .. } = entry;
        warn!(channel, %gtid, by, peer, "transaction skipped: recorded as executed, nothing of it applied");
        checkpoint.executed = executed;
        checkpoint.sequence = sequence;
        Ok(true)
    }
}
