//! Help for tests, also those of other crates.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use csa_relaystore::read::RelayedTransaction;

use crate::admission::{AdmittedTransaction, Verdict};
use crate::changes::RowChanges;

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
