//! `source_delay`: transactions are held back until they are due.

use std::time::{Duration, Instant};

use csa_provider::{CommitTimes, TransactionHeader};
use csa_scheduler::UntilGate;
use tokio::runtime::Handle;
use tokio::sync::watch as value;
use tokio_util::sync::CancellationToken;

use super::lag::Pending;
use super::watch::Watch;
use crate::clock::now_micros;

/// The clock may be adjusted while a transaction is held back.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Holds one transaction at a time; everything after it stays in the relay store.
pub(super) struct Delay {
    pub(super) runtime: Handle,
    /// May change while a transaction is held back.
    pub(super) by: value::Receiver<Duration>,
    /// Transactions after the end need not become due; a change of the end wakes `by`.
    pub(super) until: UntilGate,
    pub(super) watch: Watch,
    pub(super) end: CancellationToken,
}

impl Delay {
    /// Blocks until the transaction's commit on the source is as old as the delay, or the
    /// transaction is past `until`; `false` when the channel ends first or nobody is left to take
    /// it.
    pub(super) fn wait(
        &mut self,
        header: &TransactionHeader,
        gone: impl Future<Output = ()>,
    ) -> bool {
        if self.left(header).is_none() {
            return true;
        }
        let passed = self.runtime.clone().block_on(async {
            tokio::select! {
                () = self.wait_until_due(header) => true,
                () = gone => false,
            }
        });
        self.watch.held_back(None);
        passed && !self.end.is_cancelled()
    }

    async fn wait_until_due(&mut self, header: &TransactionHeader) {
        let end = self.end.clone();
        let pending = Pending { committed: header.commit_times(), since: Instant::now() };
        while let Some(left) = self.left(header) {
            self.watch.held_back(Some((pending, now_micros() + left)));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_micros(left).min(LOOK_AGAIN)) => {}
                Ok(()) = self.by.changed() => {}
                () = end.cancelled() => return,
            }
        }
    }

    /// Microseconds until it is due.
    fn left(&mut self, header: &TransactionHeader) -> Option<u64> {
        if self.until.ends_before(header).is_some() {
            return None;
        }
        let delay = i64::try_from(self.by.borrow_and_update().as_micros()).unwrap_or(i64::MAX);
        if delay == 0 {
            return None;
        }
        left(delay, header.commit_times(), now_micros(), self.watch.clock_ahead())
    }
}

/// Microseconds until the commit on the source is as old as `delay`; never more than `delay`, even
/// for a commit time in the future.
fn left(delay: i64, committed: CommitTimes, now: u64, clock_ahead: i64) -> Option<u64> {
    // By the immediate source's commit time, like native replication (`sql_delay_event` in the
    // server's sql/rpl_replica.cc), wherever the transaction was made.
    let age = CommitTimes { original: 0, ..committed }.age(now, clock_ahead)?.max(0);
    u64::try_from(delay.saturating_sub(age)).ok().filter(|left| *left > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_measured_by_our_clock() {
        let left = |delay, immediate, ahead| {
            left(delay, CommitTimes { original: 1, immediate }, 1_000, ahead)
        };
        assert_eq!(left(300, 900, 0), Some(200));
        assert_eq!(left(100, 900, 0), None);
        assert_eq!(left(300, 1_900, 1_000), Some(200), "the source's clock is ahead");
        assert_eq!(left(300, 400, -500), Some(200));
        assert_eq!(left(300, 9_000, 0), Some(300), "not longer than the delay");
        assert_eq!(left(300, 0, 0), None, "no time was logged");
    }
}
