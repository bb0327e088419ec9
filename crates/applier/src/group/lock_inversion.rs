//! Locks that keys don't explain.
//!
//! InnoDB locks more than the keys a row touches: gaps, unique checks, secondary index entries. So an
//! earlier group can wait for a later one, which itself waits for its turn to commit. The server sees
//! no deadlock there, only a long wait; the later group has to roll back.

use std::time::Duration;

use csa_provider::seams::Backoff;
use csa_scheduler::sequence::Sequence;
use tokio::time::Instant;
use tracing::{debug, info};

use super::gtid_owner::GtidWatch;
use crate::activity::sessions::{SessionState, Sessions, Stalled};
use crate::error::{Error, Result};
use crate::server::session::Session;
use csa_provider::server::Vendor;

/// Time that the group whose turn it is may apply before its blockers are looked up. A statement of a
/// large group takes longer than that; the lookup then finds nothing.
const PATIENCE: Duration = Duration::from_millis(100);

/// The patience where the account may not see who has a lock: then all later groups roll back.
const BLIND_PATIENCE: Duration = Duration::from_secs(5);

/// How often the applier looks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// A group that no other waits for is checked this rarely, only to explain why it takes so long.
const RARELY: Duration = Duration::from_secs(1);

/// Pauses between two thorough lookups for the same group, which read every lock of the transactions in the way. They
/// begin again once another group of ours is in the way.
const THOROUGH: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(4));

/// Waiting threads and the owners of the lock records in the way. Cheap, but an implicit lock, as of
/// a row just inserted, is shown under the thread that first waited for it
/// (<https://dev.mysql.com/doc/refman/en/performance-schema-data-locks-table.html>).
const WAITS: &str = "SELECT DISTINCT r.PROCESSLIST_ID, b.PROCESSLIST_ID \
     FROM performance_schema.data_lock_waits w \
     JOIN performance_schema.threads b ON b.THREAD_ID=w.BLOCKING_THREAD_ID \
     JOIN performance_schema.threads r ON r.THREAD_ID=w.REQUESTING_THREAD_ID \
     WHERE r.PROCESSLIST_ID IS NOT NULL AND b.PROCESSLIST_ID IS NOT NULL";

/// Waiting threads and the threads they wait for: a transaction's table locks always show its own
/// thread. (`information_schema.innodb_trx` has the thread too, but its contents are not refreshed
/// while it is read more than ten times a second.)
const WAITS_BY_TRANSACTION: &str = "SELECT DISTINCT r.PROCESSLIST_ID, b.PROCESSLIST_ID FROM \
     (SELECT DISTINCT ENGINE, REQUESTING_THREAD_ID requester, BLOCKING_ENGINE_TRANSACTION_ID trx \
     FROM performance_schema.data_lock_waits) w \
     STRAIGHT_JOIN performance_schema.data_locks l \
     ON l.ENGINE_TRANSACTION_ID=w.trx AND l.ENGINE=w.ENGINE AND l.LOCK_TYPE='TABLE' \
     STRAIGHT_JOIN performance_schema.threads b ON b.THREAD_ID=l.THREAD_ID \
     STRAIGHT_JOIN performance_schema.threads r ON r.THREAD_ID=w.requester \
     WHERE r.PROCESSLIST_ID IS NOT NULL AND b.PROCESSLIST_ID IS NOT NULL";

/// The waits on MariaDB and MySQL 5.7, which have only these tables.
const OTHERS_WAITS: &str = "SELECT DISTINCT r.trx_mysql_thread_id, b.trx_mysql_thread_id \
     FROM information_schema.INNODB_LOCK_WAITS w \
     JOIN information_schema.INNODB_TRX r ON r.trx_id=w.requesting_trx_id \
     JOIN information_schema.INNODB_TRX b ON b.trx_id=w.blocking_trx_id";
/// These tables are not refreshed if they are read again within 100 ms.
const OTHERS_PAUSE: Duration = Duration::from_millis(300);

/// Sessions that wait for a metadata lock, and those that have one on the same object or wait for it. A
/// definition of another client that waits for a later group of ours keeps an earlier one from the table.
const METADATA_WAITS: &str = "SELECT DISTINCT r.PROCESSLIST_ID, b.PROCESSLIST_ID \
     FROM performance_schema.metadata_locks p JOIN performance_schema.metadata_locks g \
     ON g.OBJECT_TYPE=p.OBJECT_TYPE AND g.OBJECT_SCHEMA<=>p.OBJECT_SCHEMA \
     AND g.OBJECT_NAME<=>p.OBJECT_NAME AND g.OWNER_THREAD_ID<>p.OWNER_THREAD_ID \
     JOIN performance_schema.threads b ON b.THREAD_ID=g.OWNER_THREAD_ID \
     JOIN performance_schema.threads r ON r.THREAD_ID=p.OWNER_THREAD_ID \
     WHERE p.LOCK_STATUS='PENDING' AND p.OBJECT_TYPE='TABLE' \
     AND r.PROCESSLIST_ID IS NOT NULL AND b.PROCESSLIST_ID IS NOT NULL";

/// The last lookups, to limit their rate.
#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    looked: Option<Instant>,
    /// The last look at metadata locks.
    tables: Option<Instant>,
    thorough: Option<Thorough>,
    gtids: GtidWatch,
}

/// The time of a group's next thorough lookup.
#[derive(Debug, Clone, Copy)]
struct Thorough {
    group: Sequence,
    next: Instant,
    backoff: Backoff,
}

impl LockWatch {
    /// Finds out whether the group whose turn it is waits for later groups of ours, directly or through
    /// others, and makes those roll back. Returns the connections it waits for; `None` if nothing new is
    /// known. `under_gtids`: the channel, where groups are applied under the source's GTIDs; then it is
    /// also found out who owns the group's.
    pub(crate) async fn look(
        &mut self,
        session: &mut Session,
        sessions: &Sessions,
        under_gtids: Option<&str>,
    ) -> Result<Option<Vec<u32>>> {
        let Some(stalled) = sessions.stalled(PATIENCE) else {
            *self = Self::default();
            return Ok(Some(Vec::new()));
        };
        let found = self.look_at_rows(session, sessions, &stalled).await?;
        match (under_gtids, found) {
            // No row is in its way.
            (Some(channel), Some(holders)) if holders.is_empty() => {
                self.gtids.free(session, channel, &stalled.group, stalled.connection).await
            }
            (_, found) => Ok(found),
        }
    }

    async fn look_at_rows(
        &mut self,
        session: &mut Session,
        sessions: &Sessions,
        stalled: &Stalled,
    ) -> Result<Option<Vec<u32>>> {
        let since = self.looked.map_or(stalled.since, |looked| looked.max(stalled.since));
        if !stalled.parked && since.elapsed() < RARELY {
            return Ok(None);
        }
        let by_transaction_only = session.vendor() != Vendor::MySql;
        if by_transaction_only && self.looked.is_some_and(|looked| looked.elapsed() < OTHERS_PAUSE)
        {
            return Ok(None);
        }
        self.looked = Some(Instant::now());
        if by_transaction_only {
            let waits: Vec<(u32, u32)> = session.rows(OTHERS_WAITS).await?;
            if !waits.iter().any(|(waits, _)| *waits == stalled.connection) {
                return self.look_at_stage(session, sessions, stalled).await;
            }
            return Ok(Some(resolve(&waits, sessions, stalled).0));
        }
        let waits: Vec<(u32, u32)> = session.rows(WAITS).await?;
        if !waits.iter().any(|(waits, _)| *waits == stalled.connection) {
            return self.look_at_tables(session, sessions, stalled).await;
        }
        let (holders, asked) = resolve(&waits, sessions, stalled);
        if !asked.is_empty() {
            self.thorough = None;
        }
        if asked.iter().any(|state| state.yields_at_once()) {
            return Ok(Some(holders));
        }
        // A blocker may still be ours, with an implicit lock that shows under another thread. A group that waits for it in a
        // statement is such a thread, and can't yield.
        if !self.is_thorough_due(stalled.group.sequence) {
            return Ok(None);
        }
        let waits: Vec<(u32, u32)> = session.rows(WAITS_BY_TRANSACTION).await?;
        Ok(Some(resolve(&waits, sessions, stalled).0))
    }

    /// Looks at the tables for a group that waits for no row.
    async fn look_at_tables(
        &mut self,
        session: &mut Session,
        sessions: &Sessions,
        stalled: &Stalled,
    ) -> Result<Option<Vec<u32>>> {
        if !self.are_tables_due(stalled, RARELY) {
            return Ok(Some(Vec::new()));
        }
        let waits: Vec<(u32, u32)> = session.rows(METADATA_WAITS).await?;
        if waits.iter().any(|(waits, _)| *waits == stalled.connection) {
            resolve(&waits, sessions, stalled);
        }
        Ok(Some(Vec::new()))
    }

    /// Looks at the tables where the server does not show who has them: all later groups yield to one that waits there.
    async fn look_at_stage(
        &mut self,
        session: &mut Session,
        sessions: &Sessions,
        stalled: &Stalled,
    ) -> Result<Option<Vec<u32>>> {
        if self.are_tables_due(stalled, BLIND_PATIENCE)
            && let Some(process) = session.process(stalled.connection.into()).await?
            && process.stage.contains("table metadata lock")
        {
            let asked = sessions.all_yield_to(stalled.group.sequence);
            debug!(asked, "it waits for a table; all later groups yield");
        }
        Ok(Some(Vec::new()))
    }

    /// Returns true once a second for a group that has been applying for `patience`.
    fn are_tables_due(&mut self, stalled: &Stalled, patience: Duration) -> bool {
        let is_new = self.tables.is_none_or(|looked| looked.elapsed() >= RARELY);
        let is_due = stalled.parked && is_new && stalled.since.elapsed() >= patience;
        if is_due {
            self.tables = Some(Instant::now());
        }
        is_due
    }

    fn is_thorough_due(&mut self, group: Sequence) -> bool {
        let now = Instant::now();
        let mut backoff = match self.thorough {
            Some(last) if last.group == group && now < last.next => return false,
            Some(last) if last.group == group => last.backoff,
            _ => THOROUGH,
        };
        self.thorough = Some(Thorough { group, next: now + backoff.pause(), backoff });
        true
    }
}

/// Lock waits can't be looked up, so one of ours may be in the way and nobody can tell.
pub(crate) fn blind(error: &Error, sessions: &Sessions) {
    let asked = sessions.all_yield(BLIND_PATIENCE);
    debug!(%error, asked, "lock waits can't be looked up; all later groups that are ready yield");
}

/// The group whose turn it is has waited for a lock until the server's time limit, and no lookup has shown who has it.
pub(crate) fn unseen(sequence: Sequence, sessions: &Sessions) {
    let asked = sessions.all_yield_to(sequence);
    debug!(
        sequence = sequence.get(),
        asked, "nothing shows who has its lock; all later groups yield"
    );
}

/// Returns the connections that a stalled group waits for, and the states of the groups of ours that are asked only now to
/// roll back.
fn resolve(
    waits: &[(u32, u32)],
    sessions: &Sessions,
    stalled: &Stalled,
) -> (Vec<u32>, Vec<SessionState>) {
    let sequence = stalled.group.sequence;
    let blockers = blockers(stalled.connection, waits);
    let asked = sessions.yield_to(sequence, &blockers);
    if !asked.is_empty() {
        info!(
            sequence = sequence.get(),
            groups = asked.len(),
            "later groups hold its locks and are asked to roll back"
        );
    }
    (blockers, asked)
}

/// Returns every connection that `connection` waits for, directly or through others. `waits`: pairs of a
/// waiting and a blocking connection.
fn blockers(connection: u32, waits: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![connection];
    let mut next = 0;
    while let Some(&waiting) = found.get(next) {
        for (_, blocker) in waits.iter().filter(|(waits, _)| *waits == waiting) {
            if !found.contains(blocker) {
                found.push(*blocker);
            }
        }
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blockers_are_found_through_others() {
        let waits = [(1, 2), (2, 3), (3, 2), (3, 4), (5, 6)];
        assert_eq!(blockers(1, &waits), [2, 3, 4]);
        assert!(blockers(6, &waits).is_empty());
    }
}
