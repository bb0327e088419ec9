//! Locks that keys don't explain.
//!
//! InnoDB locks more than the keys a row touches: gaps, unique checks, secondary index entries. So an
//! earlier group can wait for a later one, which itself waits for its turn to commit. The server sees
//! no deadlock there, only a long wait; the later group has to let go.

use std::time::{Duration, Instant};

use tracing::{debug, info};

use crate::Result;
use crate::session::Session;
use crate::sessions::{Sessions, Stalled};

/// How long the group whose turn it is may apply before its blockers are looked up. A statement of a
/// large group takes longer than that; then the look finds nothing.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often the applier looks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// With nobody parked behind it a group is looked at this rarely, only to tell why it takes so long.
const RARELY: Duration = Duration::from_secs(1);

/// Which stalled group was last looked at, and what was found.
#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    looked: Option<Instant>,
    /// The account may not read `innodb_trx`.
    by_table_locks: bool,
}

impl LockWatch {
    /// Finds out whether the group whose turn it is waits for later ones of ours, be it through others,
    /// and makes those let go. Returns the connections it waits for; `None` when nobody looked.
    pub(crate) async fn look(
        &mut self,
        session: &mut Session,
        sessions: &Sessions,
    ) -> Result<Option<Vec<u32>>> {
        let Some(stalled) = sessions.stalled(PATIENCE) else {
            self.looked = None;
            return Ok(Some(Vec::new()));
        };
        let since = self.looked.map_or(stalled.since, |looked| looked.max(stalled.since));
        if !stalled.parked && since.elapsed() < RARELY {
            return Ok(None);
        }
        self.looked = Some(Instant::now());
        let waits = self.waits(session).await?;
        Ok(Some(resolve(&waits, sessions, stalled)))
    }

    /// Connections that wait, and those they wait for.
    ///
    /// By transaction, not by the thread of the lock: a lock that nobody had asked about is shown under
    /// the thread that did
    /// (<https://dev.mysql.com/doc/refman/en/performance-schema-data-locks-table.html>, implicit locks).
    async fn waits(&mut self, session: &mut Session) -> Result<Vec<(u32, u32)>> {
        if !self.by_table_locks {
            match session.rows(WAITS).await {
                Err(error) if error.code() == Some(PROCESS_NEEDED) => {
                    debug!(%error, "lock waits are looked up the long way");
                    self.by_table_locks = true;
                }
                other => return other,
            }
        }
        session.rows(WAITS_BY_TABLE_LOCKS).await
    }
}

const WAITS: &str = "SELECT DISTINCT r.trx_mysql_thread_id, b.trx_mysql_thread_id \
     FROM performance_schema.data_lock_waits w \
     JOIN information_schema.innodb_trx r ON r.trx_id=w.REQUESTING_ENGINE_TRANSACTION_ID \
     JOIN information_schema.innodb_trx b ON b.trx_id=w.BLOCKING_ENGINE_TRANSACTION_ID";
/// A transaction's table locks are always its own thread's.
const WAITS_BY_TABLE_LOCKS: &str = "WITH owners AS (\
     SELECT DISTINCT l.ENGINE_TRANSACTION_ID trx, t.PROCESSLIST_ID id \
     FROM performance_schema.data_locks l JOIN performance_schema.threads t USING (THREAD_ID) \
     WHERE l.LOCK_TYPE='TABLE' AND t.PROCESSLIST_ID IS NOT NULL) \
     SELECT DISTINCT r.id, b.id FROM performance_schema.data_lock_waits w \
     JOIN owners r ON r.trx=w.REQUESTING_ENGINE_TRANSACTION_ID \
     JOIN owners b ON b.trx=w.BLOCKING_ENGINE_TRANSACTION_ID";
const PROCESS_NEEDED: u16 = 1227;

fn resolve(
    waits: &[(u32, u32)],
    sessions: &Sessions,
    Stalled { sequence, connection, .. }: Stalled,
) -> Vec<u32> {
    let blockers = blockers(connection, waits);
    let asked = sessions.yield_to(sequence, &blockers);
    if asked > 0 {
        info!(
            sequence = sequence.get(),
            groups = asked,
            "later groups hold its locks, they let go"
        );
    }
    blockers
}

/// Every connection that `connection` waits for, itself or through others. `waits`: who waits, and for
/// whom.
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
