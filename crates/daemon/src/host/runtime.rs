//! The threads that run everything asynchronous.

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tracing::Span;

use super::failure::Failure;

/// The most threads for work that blocks; they are started as they are needed. A transaction that is applied while it
/// arrives holds one for as long as it takes, so there are more than channels on any host.
const BLOCKING_THREADS: usize = 4096;

/// Starts them.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("csa-worker")
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|error| Failure::Runtime(format!("starting the runtime: {error}")))
}

/// Runs what waits for a disk on a thread for that; its lines in the log name the channel that asks.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let span = Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work))
}
