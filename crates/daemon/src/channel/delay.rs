//! `source_delay`: transactions are held back until they are due.

use std::time::Duration;

use csa_provider::TransactionHeader;
use csa_scheduler::UntilGate;
use tokio::runtime::Handle;
use tokio::sync::watch as value;
use tokio_util::sync::CancellationToken;

use super::watch::Watch;
use crate::clock::now_micros;

/// The clock may be set while a transaction is held back.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Holds one transaction at a time; whatever comes behind it stays in the relay store.
pub(super) struct Delay {
    pub(super) runtime: Handle,
    /// Can change while a transaction is held back.
    pub(super) by: value::Receiver<Duration>,
    /// What lies behind the end need not be due; whoever moves it wakes `by`.
    pub(super) until: UntilGate,
    pub(super) watch: Watch,
    pub(super) end: CancellationToken,
}

impl Delay {
    /// Blocks until the transaction was committed on the source as long ago as the delay says, or lies
    /// behind `until`; `false` when the channel ends first, or nobody is left to take it.
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
        while let Some(left) = self.left(header) {
            self.watch.held_back(Some((header.original_commit_timestamp, now_micros() + left)));
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
        let delay = u64::try_from(self.by.borrow_and_update().as_micros()).unwrap_or(u64::MAX);
        let due = header.immediate_commit_timestamp.saturating_add(delay);
        due.checked_sub(now_micros()).filter(|left| *left > 0)
    }
}
