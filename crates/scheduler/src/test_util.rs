//! Help for tests, also those of other crates.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use csa_relaystore::read::RelayedTransaction;

use crate::admission::{Admission, AdmittedTransaction, Verdict};
use crate::changes::RowChanges;
use crate::error::Result;
use crate::key_source::KeySource;
use crate::memory::EventPermit;

/// Returns a transaction of rows, as if admission had read these changes from it.
#[must_use]
pub fn admitted(relayed: RelayedTransaction, changes: Option<RowChanges>) -> AdmittedTransaction {
    AdmittedTransaction {
        bytes: relayed.event_bytes,
        relayed,
        verdict: Verdict::Rows,
        changes,
        session: None,
        without_accounts: false,
        filters: Arc::default(),
        permit: None,
        arrived: None,
    }
}

impl<K: KeySource> Admission<K> {
    /// Does what [`Self::admit`] does, with a source that never waits.
    ///
    /// # Errors
    /// Returns those of [`Self::admit`].
    ///
    /// # Panics
    /// The source waits.
    pub fn admit_now(
        &mut self,
        relayed: RelayedTransaction,
        permit: Option<EventPermit>,
        whole: bool,
    ) -> Result<AdmittedTransaction> {
        now(self.admit(relayed, permit, whole))
    }
}

/// Returns the result of a future that never waits.
///
/// # Panics
/// It waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the future waits"),
    }
}
