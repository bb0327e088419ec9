//! The order of commits: a worker waits here before it sends COMMIT (`WorkerSession::commit_in_turn`,
//! commit.rs), unless its turn has come already or `preserve_commit_order` is off; `Worker::apply`
//! passes the turn on. Statements do not wait here: `Scheduler::next_group` hands them out last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use csa_provider::binlog::Gtid;
use csa_scheduler::sequence::Sequence;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The turn to commit, which passes from worker to worker: each is woken directly by the one before it.
#[derive(Debug, Clone)]
pub(crate) struct CommitTurn {
    state: Arc<Mutex<TurnState>>,
}

#[derive(Debug)]
struct TurnState {
    /// Everything up to this group is committed.
    low_water: u64,
    /// Committed groups above `low_water`.
    ahead: BTreeSet<u64>,
    waiters: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
}

impl CommitTurn {
    pub(crate) fn new(last: Sequence) -> Self {
        let state =
            TurnState { low_water: last.get(), ahead: BTreeSet::new(), waiters: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Everything up to this group is committed.
    pub(crate) fn low_water(&self) -> Sequence {
        Sequence::new(self.state.lock().low_water)
    }

    /// Waits until everything up to `sequence` is committed.
    pub(crate) async fn wait(&self, sequence: Sequence) {
        let waiter = {
            let mut state = self.state.lock();
            if state.low_water >= sequence.get() {
                return;
            }
            let (sender, waiter) = oneshot::channel();
            // Under the lock that `passed` takes, so no turn in between is missed.
            state.waiters.entry(sequence.get()).or_default().push(sender);
            waiter
        };
        // The sender lives in the shared state until it is used.
        let _ = waiter.await;
    }

    /// Waits until everything before `sequence` is committed.
    pub(crate) async fn wait_before(&self, sequence: Sequence) {
        self.wait(sequence.previous()).await;
    }

    /// Passes the turn of `sequence` on, and wakes the workers that may continue. Returns true if it had
    /// come, false if an earlier one has not passed yet.
    pub(crate) fn passed(&self, sequence: Sequence) -> bool {
        let mut state = self.state.lock();
        if sequence.get() <= state.low_water {
            return true;
        }
        state.ahead.insert(sequence.get());
        while state.ahead.first() == Some(&(state.low_water + 1)) {
            state.ahead.pop_first();
            state.low_water += 1;
        }
        let has_come = state.low_water >= sequence.get();
        let later = state.low_water + 1;
        let later = state.waiters.split_off(&later);
        let ready = std::mem::replace(&mut state.waiters, later);
        // Woken without the lock, which they may take at once.
        drop(state);
        for waiter in ready.into_values().flatten() {
            // The receiver is gone if its worker was cancelled.
            let _ = waiter.send(());
        }
        has_come
    }
}

/// COMMITs in the order in which they are sent, which precedes the turn where several may be under way.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    order: CommitTurn,
    /// The group whose COMMIT was sent last, and its GTID.
    last: Arc<Mutex<Option<(Sequence, Gtid)>>>,
}

impl Sending {
    pub(crate) fn new(last: Sequence) -> Self {
        Self { order: CommitTurn::new(last), last: Arc::default() }
    }

    /// Waits until the COMMITs of all groups before `sequence` were sent.
    pub(crate) async fn wait_before(&self, sequence: Sequence) {
        self.order.wait_before(sequence).await;
    }

    /// The COMMIT of `sequence` was sent; the target executes it under this GTID.
    pub(crate) fn sent(&self, sequence: Sequence, gtid: Gtid) {
        // First, so that whoever is woken sees it.
        *self.last.lock() = Some((sequence, gtid));
        self.order.passed(sequence);
    }

    /// `sequence` is committed, in whatever way.
    pub(crate) fn committed(&self, sequence: Sequence) {
        self.order.passed(sequence);
    }

    /// Returns the GTID of `sequence`, if its COMMIT was the last to be sent.
    pub(crate) fn gtid_of(&self, sequence: Sequence) -> Option<Gtid> {
        let last = self.last.lock();
        last.as_ref().filter(|(last, _)| *last == sequence).map(|(_, gtid)| gtid.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_in_sequence() {
        let turn = CommitTurn::new(Sequence::new(4));
        turn.wait(Sequence::new(4)).await;
        let waiting = tokio::spawn({
            let turn = turn.clone();
            async move { turn.wait_before(Sequence::new(7)).await }
        });
        assert!(!turn.passed(Sequence::new(6)));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "5 is missing");
        assert!(turn.passed(Sequence::new(5)));
        waiting.await.expect("its turn");
        // Once more, as for a COMMIT that was noted when it was sent.
        assert!(turn.passed(Sequence::new(5)) && turn.passed(Sequence::new(7)));
    }
}
