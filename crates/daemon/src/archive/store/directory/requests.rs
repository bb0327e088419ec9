//! The requests to a directory, and those among them that nobody waits for any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use object_store::Result;
use parking_lot::Mutex as SyncMutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// The name of this store in errors of the library.
pub(in crate::archive::store) const DIRECTORY: &str = "directory";
/// Time for requests that nobody waits for to return, before another one gives up. A directory that answers needs
/// milliseconds of it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Every directory of this process: a reload of the configuration must not forget what hangs.
static DIRECTORIES: SyncMutex<BTreeMap<PathBuf, Requests>> = SyncMutex::new(BTreeMap::new());

/// The requests to one directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    /// Those whose caller has given up, and which the system still holds.
    pub(super) abandoned: TaskTracker,
}

impl Requests {
    /// Returns those of a directory.
    pub(super) fn of(directory: &Path) -> Self {
        DIRECTORIES.lock().entry(directory.to_owned()).or_default().clone()
    }

    /// Makes a request, unless an earlier one hangs.
    pub(super) async fn make<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.returned().await?;
        self.begin(work).await
    }

    /// Waits until all have returned that nobody waits for.
    ///
    /// # Errors
    /// They don't in time.
    pub(super) async fn returned(&self) -> Result<()> {
        // A wait for an open tracker would never end.
        self.abandoned.close();
        let all = tokio::time::timeout(PATIENCE, self.abandoned.wait());
        all.await.map_err(|_| failed("an earlier request to the directory is still not answered"))
    }

    /// Begins a request in a task of its own, which continues when the caller gives up.
    pub(super) async fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let mut request = Request { task: Some(tokio::spawn(work)), requests: self.clone() };
        match &mut request.task {
            Some(task) => task.await.map_err(failed)?,
            None => Err(failed("the request has not begun")),
        }
    }

    /// Counts a task that nobody waits for until it has ended.
    pub(super) fn leave<T: Send + 'static>(&self, task: JoinHandle<T>) {
        // Without a runtime the process is at its end.
        let Ok(runtime) = Handle::try_current() else { return };
        self.abandoned.spawn_on(async move { drop(task.await) }, &runtime);
    }
}

/// A request that somebody waits for.
struct Request<T: Send + 'static> {
    /// `None` only while it is dropped.
    task: Option<JoinHandle<Result<T>>>,
    requests: Requests,
}

impl<T: Send + 'static> Drop for Request<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take().filter(|task| !task.is_finished()) {
            self.requests.leave(task);
        }
    }
}

pub(super) fn failed(
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> object_store::Error {
    object_store::Error::Generic { store: DIRECTORY, source: why.into() }
}
