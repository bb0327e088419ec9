//! The threads that run everything asynchronous.

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tracing::Span;

use super::failure::Failure;

/// Starts them.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("csa-worker")
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
