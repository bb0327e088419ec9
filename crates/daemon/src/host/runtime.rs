//! The threads that run everything asynchronous.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span};

use super::failure::Failure;

/// The most threads for work that blocks; they are started as they are needed. A transaction that is applied while it
/// arrives holds one for as long as it takes, so there are more than channels on any host.
const BLOCKING_THREADS: usize = 4096;
/// Time between two uses of a thread for work that blocks; tokio ends one that is idle for 10 s.
const KEPT: Duration = Duration::from_secs(4);

/// Starts them.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("csa-worker")
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|error| Failure::Runtime(format!("starting the runtime: {error}")))?;
    runtime.spawn(keep_a_thread());
    Ok(runtime)
}

/// Keeps at least one thread for work that blocks. Where the system refuses another one, work waits for this one; without
/// any, tokio would panic.
async fn keep_a_thread() {
    loop {
        // Nobody waits for it: the next one tries again to start a thread for all that waits.
        let used = caught(async { drop(spawn_blocking(|| ())) });
        // Not even the first one could be started.
        drop(used.await);
        tokio::time::sleep(KEPT).await;
    }
}

/// Runs a future as a task of its own, so that a panic ends nothing else; it ends with the handle, too.
pub(crate) fn caught<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(future.in_current_span()))
}

/// Runs what waits for a disk on a thread for that; its lines in the log name the channel that asks.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let span = Span::current();
    spawn_blocking(move || span.in_scope(work))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_for_work_that_blocks_is_there_before_the_work() {
        let runtime = runtime().expect("threads");
        let is_ours = |task: std::io::Result<std::fs::DirEntry>| {
            let name = task.and_then(|task| std::fs::read_to_string(task.path().join("comm")));
            name.is_ok_and(|name| name.trim() == "csa-worker")
        };
        let begun = Instant::now();
        loop {
            let tasks = std::fs::read_dir("/proc/self/task").expect("of Linux");
            let threads = tasks.map(is_ours).filter(|is_ours| *is_ours).count();
            if threads > runtime.metrics().num_workers() {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "workers only");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
