//! Locks that keys don't explain.
//!
//! InnoDB locks more than the keys a row touches: gaps, unique checks, secondary index entries. So an
//! earlier group can wait for a later one, which itself waits for its turn to commit. The server sees
//! no deadlock there, only a long wait; the later group has to let go.

use std::time::Duration;

use tracing::info;

use crate::Result;
use crate::session::Session;
use crate::sessions::Sessions;

/// How long the group whose turn it is may apply before its blockers are looked up. A statement of a
/// large group takes longer than that; then the look finds nothing.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often the applier looks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Finds out whether the group whose turn it is waits for later ones of ours, be it through others,
/// and makes those let go.
/// Returns how many were asked to.
pub(crate) async fn resolve(session: &mut Session, sessions: &Sessions) -> Result<usize> {
    let Some((sequence, connection)) = sessions.stalled(PATIENCE) else { return Ok(0) };
    let waits: Vec<(u32, u32)> = session
        .rows(
            "SELECT DISTINCT r.PROCESSLIST_ID, b.PROCESSLIST_ID \
             FROM performance_schema.data_lock_waits w \
             JOIN performance_schema.threads b ON b.THREAD_ID=w.BLOCKING_THREAD_ID \
             JOIN performance_schema.threads r ON r.THREAD_ID=w.REQUESTING_THREAD_ID \
             WHERE r.PROCESSLIST_ID IS NOT NULL AND b.PROCESSLIST_ID IS NOT NULL",
        )
        .await?;
    let blockers = blockers(connection, &waits);
    let asked = sessions.yield_to(sequence, &blockers);
    if asked > 0 {
        info!(
            sequence = sequence.get(),
            groups = asked,
            "later groups hold its locks, they let go"
        );
    }
    Ok(asked)
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
