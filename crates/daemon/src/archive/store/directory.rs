//! An archive in a directory. Its mount may be missing, or may have stopped to answer.
//!
//! A request to a mount that hangs keeps its thread, and only the mount can end that. So a request whose caller gives up is
//! counted, and no other one of the directory begins before it has returned. Otherwise each attempt would cost one more
//! thread, until the daemon has none for anything else.

mod requests;
#[cfg(test)]
mod tests;
mod unfinished;

use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};
use tokio::runtime::Handle;

pub(super) use requests::DIRECTORY;
use requests::{Requests, failed};

/// Objects that one request lists.
const BATCH: usize = 1024;

/// A directory as an object store.
#[derive(Debug, Clone)]
pub(super) struct DirectoryStore {
    path: PathBuf,
    requests: Requests,
}

impl DirectoryStore {
    /// Makes the store of a directory, which need not be there yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let requests = Requests::of(&path);
        Self { path, requests }
    }

    /// Deletes what killed daemons have left of files in a folder, before its `next` one; returns the number of deleted ones.
    pub(super) async fn remove_unfinished(&self, folder: &Path, next: u64) -> Result<usize> {
        let folder = self.path.join(folder.as_ref());
        let remove =
            move |_| on_thread(move || unfinished::remove_left(&folder, next).map_err(failed));
        self.request(remove).await
    }

    /// Makes a request. The directory is opened each time: it may have been mounted since the last one, and nothing may be
    /// created where its mount has gone.
    async fn request<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(LocalFileSystem) -> F + Send + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let path = self.path.clone();
        let request = async move { work(on_thread(move || open(path)).await?).await };
        self.requests.make(request).await
    }
}

/// Blocks.
fn open(path: PathBuf) -> Result<LocalFileSystem> {
    let store = LocalFileSystem::new_with_prefix(&path).map_err(|error| {
        let why = first_cause(&error);
        failed(format!("{} can't be opened ({why}); is the directory mounted?", path.display()))
    })?;
    Ok(store.with_fsync(true))
}

/// Returns what the system said, without the names of the library around it.
fn first_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    crate::host::blocking(work).await.map_err(failed)?
}

/// Reads what was asked for: the library reads it only when somebody asks for the bytes, which would be another request.
async fn read(mut got: GetResult, is_head: bool) -> Result<GetResult> {
    let bytes = match is_head {
        true => Bytes::new(),
        false => {
            let (meta, range) = (got.meta.clone(), got.range.clone());
            let (attributes, extensions) = (got.attributes.clone(), got.extensions.clone());
            let bytes = got.bytes().await?;
            let payload = GetResultPayload::Stream(stream::empty().boxed());
            got = GetResult { payload, meta, range, attributes, extensions };
            bytes
        }
    };
    got.payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
    Ok(got)
}

/// Takes the next objects of a list; `None` at its end.
async fn batch(
    mut listed: BoxStream<'static, Result<ObjectMeta>>,
) -> Result<Option<(Vec<ObjectMeta>, BoxStream<'static, Result<ObjectMeta>>)>> {
    let mut batch = Vec::new();
    while batch.len() < BATCH
        && let Some(object) = listed.next().await
    {
        batch.push(object?);
    }
    Ok((!batch.is_empty()).then_some((batch, listed)))
}

impl std::fmt::Display for DirectoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{DIRECTORY} {}", self.path.display())
    }
}

#[async_trait]
impl ObjectStore for DirectoryStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let path = path.clone();
        let put = move |store: LocalFileSystem| async move {
            store.put_opts(&path, payload, options).await
        };
        self.request(put).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let path = path.clone();
        let destination = self.path.join(path.as_ref());
        // The library creates the file on the thread that asks.
        let begin = move |store: LocalFileSystem| {
            on_thread(move || Handle::current().block_on(store.put_multipart_opts(&path, options)))
        };
        let upload = Some(self.request(begin).await?);
        Ok(Box::new(DirectoryUpload { upload, destination, requests: self.requests.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let (path, is_head) = (path.clone(), options.head);
        self.request(move |store| async move {
            read(store.get_opts(&path, options).await?, is_head).await
        })
        .await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let directory = self.clone();
        let delete = move |path: Path| {
            let directory = directory.clone();
            async move {
                let delete = move |store: LocalFileSystem| async move {
                    store.delete(&path).await?;
                    Ok(path)
                };
                directory.request(delete).await
            }
        };
        paths.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (directory, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let begin =
                move |store: LocalFileSystem| async move { Ok(store.list(prefix.as_ref())) };
            let listed = directory.request(begin).await?;
            let batches = stream::try_unfold(listed, move |listed| {
                let requests = directory.requests.clone();
                async move { requests.make(batch(listed)).await }
            });
            Ok::<_, object_store::Error>(
                batches.map_ok(|batch| stream::iter(batch.into_iter().map(Ok))).try_flatten(),
            )
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned();
        self.request(move |store| async move { store.list_with_delimiter(prefix.as_ref()).await })
            .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        self.request(move |store| async move { store.copy_opts(&from, &to, options).await }).await
    }
}

/// A file that is being written.
#[derive(Debug)]
struct DirectoryUpload {
    /// `None` after its end.
    upload: Option<Box<dyn MultipartUpload>>,
    destination: PathBuf,
    requests: Requests,
}

impl DirectoryUpload {
    fn take(&mut self) -> Result<Box<dyn MultipartUpload>> {
        self.upload.take().ok_or_else(|| failed("the file is ended already"))
    }
}

#[async_trait]
impl MultipartUpload for DirectoryUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let requests = self.requests.clone();
        let part = self.upload.as_mut().map(|upload| upload.put_part(data));
        Box::pin(async move {
            match part {
                Some(part) => requests.make(part).await,
                None => Err(failed("the file is ended already")),
            }
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.requests.returned().await?;
        let mut upload = self.take()?;
        let destination = self.destination.clone();
        let complete = async move {
            let completed = upload.complete().await;
            if completed.is_err() {
                // The library leaves the file of an end that fails. A disk that fails may refuse this as well.
                drop(on_thread(move || unfinished::remove_of(&destination).map_err(failed)).await);
            }
            completed
        };
        self.requests.begin(complete).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.requests.returned().await?;
        let mut upload = self.take()?;
        let abort = async move {
            let aborted = upload.abort().await;
            on_thread(move || {
                drop(upload);
                Ok(())
            })
            .await?;
            aborted
        };
        self.requests.begin(abort).await
    }
}

impl Drop for DirectoryUpload {
    /// Closing a file writes what the system still holds of it, and waits for the mount.
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take()
            && let Ok(runtime) = Handle::try_current()
        {
            self.requests.leave(runtime.spawn_blocking(move || drop(upload)));
        }
    }
}
