//! The order of commits: a worker waits here before it sends COMMIT (`WorkerSession::attempt`,
//! attempt.rs), unless its turn has come already or `preserve_commit_order` is off; `Worker::apply`
//! passes the turn on. Statements do not wait here: `Scheduler::next_group` hands them out last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use csa_scheduler::Sequence;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The turn to commit, which passes from worker to worker: each is woken directly by the one before it.
#[derive(Debug, Clone)]
pub(crate) struct CommitTurn {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Everything up to this group is committed.
    low_water: u64,
    /// Committed groups above `low_water`.
    ahead: BTreeSet<u64>,
    waiters: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
}

impl CommitTurn {
    pub(crate) fn new(last: Sequence) -> Self {
        let state =
            State { low_water: last.get(), ahead: BTreeSet::new(), waiters: BTreeMap::new() };
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
            // Under the lock that `committed` takes, so no commit in between is missed.
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

    /// Records a commit and wakes the workers that may continue.
    pub(crate) fn committed(&self, sequence: Sequence) {
        let mut state = self.state.lock();
        state.ahead.insert(sequence.get());
        loop {
            let next = state.low_water + 1;
            if !state.ahead.remove(&next) {
                break;
            }
            state.low_water = next;
        }
        let later = state.low_water + 1;
        let later = state.waiters.split_off(&later);
        let ready = std::mem::replace(&mut state.waiters, later);
        // Woken without the lock, which they may take at once.
        drop(state);
        for waiter in ready.into_values().flatten() {
            // The receiver is gone if its worker was cancelled.
            let _ = waiter.send(());
        }
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
        turn.committed(Sequence::new(6));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "5 is missing");
        turn.committed(Sequence::new(5));
        waiting.await.expect("its turn");
    }
}
