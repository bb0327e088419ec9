//! Work that would keep a runtime's threads from everything else: computing for long, reading files.
//!
//! A runtime with one thread has no other to give it to, and does it at once: so a simulation, which is
//! one thread, runs the same code in the same order every time.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tracing::{Instrument as _, Span};

fn is_alone() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// Runs a future on a thread of its own, where it may read files; on a runtime with one thread as one of its tasks.
pub(crate) fn apart<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let future = future.in_current_span();
    if is_alone() {
        return tokio::spawn(future);
    }
    let runtime = Handle::current();
    spawn_blocking(move || runtime.block_on(future))
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
