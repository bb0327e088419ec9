//! The threads that run everything asynchronous.

use tokio::runtime::Runtime;

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
