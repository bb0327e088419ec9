//! Records a transaction as executed without executing it.

use csa_provider::binlog::Gtid;
use tracing::warn;

use crate::error::{Error, Fence, Result};
use crate::options::TargetGtids;
use crate::ownership::audit::AuditEntry;
use crate::ownership::checkpoint;
use crate::ownership::control::ControlSession;
use crate::ownership::intent;
use crate::server::session::Session;
use crate::server::target::Target;

/// The checkpoint row that is written; no worker runs meanwhile.
const WORKER: u16 = 0;

impl ControlSession {
    /// Commits `gtid` as executed into the checkpoint, together with a row of `csa.audit` that names who
    /// asked for it. Nothing of the transaction is applied. Returns `false` if it was executed already, as a whole.
    /// `target` is the one that this session was opened on.
    ///
    /// # Errors
    /// The target refuses, or another daemon took the channel over; nothing is skipped then. If an answer was
    /// lost, it may be skipped: asked again, it does what is left, and returns `false` if that is nothing.
    pub async fn skip(&mut self, target: &Target, gtid: &Gtid, entry: &AuditEntry) -> Result<bool> {
        self.follow(gtid.uuid).await?;
        let Self { session, channel, checkpoint, .. } = self;
        let mut executed = checkpoint.executed.clone();
        if !executed.add(gtid) {
            return pass_over_part(session, channel, gtid, entry).await;
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
        // Only now: with neither the GTID nor an entry, what was begun would be done again.
        if intent::is_part(session, channel, &gtid.to_string()).await? {
            session.run(intent::withdraw(channel)).await?;
        }
        let AuditEntry { by, peer, .. } = entry;
        warn!(channel, %gtid, by, peer, "transaction skipped: recorded as executed, nothing of it applied");
        checkpoint.executed = executed;
        checkpoint.sequence = sequence;
        Ok(true)
    }
}

/// Removes the entry of a transaction that counts as executed and may lack a part of it; returns `false` if the
/// transaction has none. The part that is there stays.
async fn pass_over_part(
    session: &mut Session,
    channel: &str,
    gtid: &Gtid,
    entry: &AuditEntry,
) -> Result<bool> {
    if !intent::is_part(session, channel, &gtid.to_string()).await? {
        return Ok(false);
    }
    let (insert, withdraw) = (entry.insert(), intent::withdraw(channel));
    if let Err(error) = session.run(format!("BEGIN;{insert};{withdraw}")).await {
        session.run("ROLLBACK").await?;
        return Err(error);
    }
    session.run("COMMIT").await?;
    let AuditEntry { by, peer, .. } = entry;
    warn!(channel, %gtid, by, peer, "transaction skipped: rows of it that are not there are not applied");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TargetOptions;
    use crate::ownership::keeper::tests::control;
    use crate::server::scripted::{self, Scripted};

    /// The next start would ask about a transaction that was left out.
    #[tokio::test]
    async fn a_skip_removes_the_entry_after_the_transaction_counts_as_executed() {
        const GTID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5";
        let gtid: Gtid = GTID.parse().expect("a GTID");
        let entry = AuditEntry { by: "tester".to_owned(), ..AuditEntry::default() };
        for gtids in [TargetGtids::Own, TargetGtids::Source] {
            for (known, is_removed) in [(GTID, true), ("another", false)] {
                let server = Scripted::default();
                server.state().has_tables = true;
                server.state().entry = Some((known.to_owned(), -1));
                let options = TargetOptions { gtids, ..scripted::options() };
                let target = Target::new(options, server.clone());
                let mut control = control(&server).await;
                let skipped = control.skip(&target, &gtid, &entry).await;
                assert!(skipped.expect("answers"), "{gtids:?}");
                let sent = server.state().sent.clone();
                let is_last = sent.last() == Some(&intent::withdraw("c"));
                assert_eq!(is_last, is_removed, "{gtids:?}: {sent:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_transaction_that_failed_half_way_is_passed_over() {
        const GTID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5";
        let gtid: Gtid = GTID.parse().expect("a GTID");
        let entry = AuditEntry { by: "tester".to_owned(), ..AuditEntry::default() };
        for (state, is_skipped) in [(None, false), (Some(1), false), (Some(-1), true)] {
            let server = Scripted::default();
            server.state().has_tables = true;
            server.state().entry = state.map(|state| (GTID.to_owned(), state));
            let mut session = Session::connect(&server.target()).await.expect("connects");
            let skipped = pass_over_part(&mut session, "c", &gtid, &entry).await;
            assert_eq!(skipped.expect("answers"), is_skipped, "{state:?}");
            let sent = server.state().sent.join(";");
            for part in ["INSERT INTO csa.audit ", "DELETE FROM csa.statement ", ";COMMIT"] {
                assert_eq!(sent.contains(part), is_skipped, "{part}: {sent}");
            }
        }
    }
}
