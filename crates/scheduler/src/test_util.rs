//! Help for tests, also those of other crates.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

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
