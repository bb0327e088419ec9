//! Work that would keep a runtime's threads from everything else: computing for long, reading files.
//!
//! A runtime with one thread has no other to give it to, and does it at once: so a simulation, which is
//! one thread, runs the same code in the same order every time.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle, spawn_blocking, spawn_local};
use tracing::{Instrument as _, Span};

fn is_alone() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// Runs the future that `make` makes on a thread of its own, where it may read files; on a runtime with
/// one thread as a task of the present [`tokio::task::LocalSet`].
pub fn on_own_thread<F>(make: impl FnOnce() -> F + Send + 'static) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: Send + 'static,
{
    if is_alone() {
        return spawn_local(make().in_current_span());
    }
    let (runtime, span) = (Handle::current(), Span::current());
    spawn_blocking(move || runtime.block_on(make().instrument(span)))
}

/// As [`on_own_thread`], and needs no [`tokio::task::LocalSet`].
pub(crate) fn apart<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match is_alone() {
        true => tokio::spawn(future.in_current_span()),
        false => on_own_thread(move || future),
    }
}

/// Computes something that may take long.
///
/// # Errors
/// `compute` panicked.
pub(crate) async fn computed<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let span = Span::current();
    match is_alone() {
        true => Ok(compute()),
        false => spawn_blocking(move || span.in_scope(compute)).await,
    }
}
