//! The objects of an archive, read and written.

mod directory;
mod error;
mod location;
mod parts;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::index::{FORMAT, FileIndex, HistoryMark, Pin};
use super::layout;
use directory::{DIRECTORY, DirectoryStore};
use error::causes;
pub(crate) use error::{ArchiveError, Result};
pub(crate) use location::ArchiveLocation;
pub(crate) use parts::SEVERAL_MAX;
use parts::{PART, part_bytes};

/// The longest that one request for a small object may take. The client tries again within it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests for parts of a file at a time.
const REQUESTS: usize = 2;

/// The archive of one channel.
#[derive(Debug, Clone)]
pub(crate) struct Archive {
    store: Arc<dyn ObjectStore>,
    /// The store once more, if it is a directory.
    directory: Option<DirectoryStore>,
    /// The folder of the channel.
    root: Path,
    /// The URL, without secrets, and the channel.
    url: String,
}

/// One history of an archive: a run of files that follow each other.
#[derive(Debug, Clone)]
pub(crate) struct ArchivedHistory {
    archive: Archive,
    pub(crate) name: String,
}

/// The objects of a history by their numbers, in order.
#[derive(Debug, Default)]
pub(crate) struct HistoryObjects {
    /// Numbers of indexes.
    pub(crate) numbers: Vec<u64>,
    /// Names of files, with or without an index.
    pub(crate) files: Vec<String>,
}

/// The end of a history.
#[derive(Debug, Default)]
pub(crate) struct HistoryEnd {
    /// Numbers of all its files, in order.
    pub(crate) numbers: Vec<u64>,
    /// Everything up to its last file, and everything before that one.
    pub(crate) archived: GtidSet,
    pub(crate) before_last: GtidSet,
    /// The daemon that wrote the last file.
    pub(crate) writer: Option<String>,
    /// An index after the last file whose own file is not there: the directory was mounted between the two writes, and
    /// the daemon did not live to notice. It counts for nothing, and is in the way of the next one.
    pub(crate) without_file: Option<FileIndex>,
}

impl Archive {
    /// Opens the archive of `channel`. Asks nothing yet.
    pub(crate) fn open(location: &ArchiveLocation, channel: &str) -> Result<Self> {
        let (store, prefix, directory) = location.connect()?;
        let root = prefix.join(channel);
        let url = format!("{}/{channel}", location.url.trim_end_matches('/'));
        Ok(Self { store, directory, root, url })
    }

    /// Returns the archive of `channel` in a store of a test.
    #[cfg(test)]
    pub(super) fn over(store: Arc<dyn ObjectStore>, channel: &str) -> Self {
        let (root, url) = (Path::from(channel), format!("memory:///{channel}"));
        Self { store, directory: None, root, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn history(&self, name: &str) -> ArchivedHistory {
        ArchivedHistory { archive: self.clone(), name: name.to_owned() }
    }

    /// Returns the names of all histories, the oldest first.
    pub(crate) async fn histories(&self) -> Result<Vec<String>> {
        Ok(self.marks().await?.into_iter().map(|(_, mark)| mark.history).collect())
    }

    /// Returns the marks of all histories by their numbers.
    pub(super) async fn marks(&self) -> Result<Vec<(u64, HistoryMark)>> {
        let marks = self.all_marks().await?.into_iter();
        marks.map(|(number, mark)| mark.map(|mark| (number, mark))).collect()
    }

    /// Returns the mark of the last history whose mark this version can read, and why it can't read another one.
    pub(super) async fn last_readable_mark(
        &self,
    ) -> Result<(Option<HistoryMark>, Option<ArchiveError>)> {
        let (mut last, mut damage) = (None, None);
        for (_, mark) in self.all_marks().await? {
            match mark {
                Ok(mark) => last = Some(mark),
                Err(error) => damage = Some(error),
            }
        }
        Ok((last, damage))
    }

    /// Returns the marks of all histories by their numbers, or why one can't be read.
    async fn all_marks(&self) -> Result<Vec<(u64, Result<HistoryMark>)>> {
        let mut marks = Vec::new();
        for object in self.list(&self.root.clone().join(layout::HISTORIES)).await? {
            let number = object.location.filename().and_then(layout::index_number);
            let Some(number) = number else { continue };
            match self.read::<HistoryMark>(&object.location).await {
                Ok(Some(mark)) => marks.push((number, Ok(mark))),
                Ok(None) => {}
                Err(damage @ ArchiveError::Damaged { .. }) => marks.push((number, Err(damage))),
                Err(error) => return Err(error),
            }
        }
        marks.sort_by_key(|(number, _)| *number);
        Ok(marks)
    }

    /// Begins the history of `mark` after all others, which it then names.
    ///
    /// # Errors
    /// [`ArchiveError::Overtaken`] if another daemon has begun one.
    pub(crate) async fn begin(&self, mark: &HistoryMark) -> Result<ArchivedHistory> {
        let marks = self.marks().await?;
        let number = marks.last().map_or(1, |(number, _)| number + 1);
        let earlier = marks.into_iter().flat_map(|(_, mark)| [mark.earlier, vec![mark.history]]);
        let earlier: BTreeSet<String> = earlier.flatten().collect();
        let mark = HistoryMark { earlier: earlier.into_iter().collect(), ..mark.clone() };
        let path = self.mark_path(number);
        match self.create(&path, &mark).await? {
            true => Ok(self.history(&mark.history)),
            false => Err(ArchiveError::Overtaken { url: self.url.clone(), number }),
        }
    }

    /// Returns true if a history that is not there was deleted for its age: a later one names it and has files. One without
    /// files proves nothing. It may have been begun in the place of a mount, and nothing is deleted before a later history
    /// has a file.
    pub(crate) async fn has_outlived(&self, history: &str) -> Result<bool> {
        for (_, mark) in self.marks().await? {
            if mark.earlier.iter().any(|earlier| earlier == history)
                && !self.history(&mark.history).objects().await?.numbers.is_empty()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn mark_path(&self, number: u64) -> Path {
        self.root.clone().join(layout::HISTORIES).join(layout::index_name(number))
    }

    /// Returns all pins by name.
    pub(crate) async fn pins(&self) -> Result<Vec<(String, Pin)>> {
        let folder = self.root.clone().join(layout::PINS);
        let mut pins = Vec::new();
        for object in self.list(&folder).await? {
            let name = object.location.filename().and_then(|name| name.strip_suffix(".json"));
            if let Some(name) = name.map(str::to_owned)
                && let Some(pin) = self.read::<Pin>(&object.location).await?
            {
                pins.push((name, pin));
            }
        }
        pins.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(pins)
    }

    /// Writes a pin; false if there is one with this name.
    pub(crate) async fn pin(&self, name: &str, pin: &Pin) -> Result<bool> {
        self.create(&self.pin_path(name), pin).await
    }

    /// Removes a pin; false if there is none with this name.
    pub(crate) async fn unpin(&self, name: &str) -> Result<bool> {
        let path = self.pin_path(name);
        if self.read::<Pin>(&path).await?.is_none() {
            return Ok(false);
        }
        self.within("removing a pin", self.store.delete(&path)).await?;
        Ok(true)
    }

    fn pin_path(&self, name: &str) -> Path {
        self.root.clone().join(layout::PINS).join(format!("{name}.json"))
    }

    /// Writes a small object unless it is there, and reads it back: a store that says yes and keeps nothing is found
    /// out. Returns false if another one is there.
    async fn create<T: Serialize>(&self, path: &Path, value: &T) -> Result<bool> {
        let bytes = serde_json::to_vec_pretty(value)
            .map_err(|error| self.damaged(format!("{path}: {error}")))?;
        let mode = match is_planted(Bug::ArchiveOverwritten) {
            true => PutMode::Overwrite,
            false => PutMode::Create,
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = async {
            match self.store.put_opts(path, bytes.clone().into(), options).await {
                // A lost answer, or another writer: what is there decides.
                Err(
                    object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. },
                ) => Ok(()),
                put => put.map(drop),
            }
        };
        self.within(&format!("writing {path}"), put).await?;
        let found = self.within(&format!("reading back {path}"), self.bytes(path)).await?;
        match found {
            Some(found) => Ok(found == bytes),
            None => Err(self.away(
                format!("writing {path}"),
                "the store has said that it is written, and does not have it",
            )),
        }
    }

    /// Reads a small object; `None` if there is none.
    async fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        let bytes = self.within(&format!("reading {path}"), self.bytes(path)).await?;
        let Some(bytes) = bytes else { return Ok(None) };
        let value: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|error| self.damaged(format!("{path}: {error}")))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            format => {
                return Err(self.damaged(format!(
                    "{path} has format {}; this version reads format {FORMAT}",
                    format.map_or_else(|| "none".to_owned(), |format| format.to_string())
                )));
            }
        }
        let value = serde_json::from_value(value);
        value.map(Some).map_err(|error| self.damaged(format!("{path}: {error}")))
    }

    async fn bytes(&self, path: &Path) -> object_store::Result<Option<Bytes>> {
        match self.store.get(path).await {
            Ok(found) => found.bytes().await.map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>> {
        let what = format!("listing {folder}");
        let mut listed = self.store.list(Some(folder));
        let mut objects = Vec::new();
        // A long list comes in many answers.
        while let Some(object) = self.within(&what, listed.try_next()).await? {
            objects.push(object);
        }
        Ok(objects)
    }

    async fn within<T>(
        &self,
        what: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(PATIENCE, request).await {
            Ok(answer) => answer.map_err(|error| self.of(what, &error)),
            Err(_) => Err(self.away(what, format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    fn of(&self, what: &str, error: &object_store::Error) -> ArchiveError {
        match error {
            // Its text is a sentence of this daemon.
            object_store::Error::Generic { store: DIRECTORY, source } => {
                self.away(what, source.to_string())
            }
            error => self.away(what, causes(error)),
        }
    }

    fn away(&self, what: impl Into<String>, why: impl Into<String>) -> ArchiveError {
        ArchiveError::Away { url: self.url.clone(), what: what.into(), why: why.into() }
    }

    pub(crate) fn damaged(&self, what: String) -> ArchiveError {
        ArchiveError::Damaged { url: self.url.clone(), what }
    }
}

impl ArchivedHistory {
    fn folder(&self) -> Path {
        self.archive.root.clone().join(self.name.as_str())
    }

    pub(crate) const fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Returns what lies in the history.
    pub(crate) async fn objects(&self) -> Result<HistoryObjects> {
        let mut objects = HistoryObjects::default();
        for object in self.archive.list(&self.folder()).await? {
            let Some(name) = object.location.filename() else { continue };
            objects.numbers.extend(layout::index_number(name));
            if layout::file_number(name).is_some() {
                objects.files.push(name.to_owned());
            }
        }
        objects.numbers.sort_unstable();
        objects.files.sort_unstable();
        Ok(objects)
    }

    /// Returns the set after which the history begins.
    pub(crate) async fn begins_after(&self) -> Result<GtidSet> {
        let marks = self.archive.marks().await?;
        let mark = marks.into_iter().find(|(_, mark)| mark.history == self.name);
        mark.map(|(_, mark)| mark.begins_after)
            .ok_or_else(|| self.archive.damaged(format!("history {} has vanished", self.name)))
    }

    /// Returns how far the history goes.
    ///
    /// # Errors
    /// The store does not answer, or more than the last file is missing.
    pub(crate) async fn end(&self) -> Result<HistoryEnd> {
        self.end_of(self.objects().await?).await
    }

    /// Returns the same, from what was listed.
    pub(super) async fn end_of(&self, mut objects: HistoryObjects) -> Result<HistoryEnd> {
        let mut last = self.last_index(&objects).await?;
        let mut without_file = None;
        if !last.as_ref().is_none_or(|last| objects.files.contains(&last.file)) {
            // A listing may miss a file that another daemon writes meanwhile, and see its index.
            objects = self.objects().await?;
            last = self.last_index(&objects).await?;
            if let Some(index) = last.take_if(|last| !objects.files.contains(&last.file)) {
                objects.numbers.pop();
                without_file = Some(index);
                last = self.last_index(&objects).await?;
            }
        }
        let numbers = objects.numbers;
        let Some(last) = last else {
            let begin = self.begins_after().await?;
            let (archived, before_last) = (begin.clone(), begin);
            return Ok(HistoryEnd { numbers, archived, before_last, writer: None, without_file });
        };
        if without_file.is_some() && !objects.files.contains(&last.file) {
            return Err(self.archive.damaged(format!("{} of {} is missing", last.file, self.name)));
        }
        let (archived, writer) = (last.end(), Some(last.writer));
        Ok(HistoryEnd { numbers, archived, before_last: last.before, writer, without_file })
    }

    async fn last_index(&self, objects: &HistoryObjects) -> Result<Option<FileIndex>> {
        let Some(&last) = objects.numbers.last() else { return Ok(None) };
        let index = self.index(last).await?.ok_or_else(|| {
            self.archive.damaged(format!("index {last} of {} has vanished", self.name))
        })?;
        Ok(Some(index))
    }

    /// Returns the index of a file; `None` if there is none.
    pub(crate) async fn index(&self, number: u64) -> Result<Option<FileIndex>> {
        self.archive.read(&self.folder().join(layout::index_name(number))).await
    }

    /// Writes the index of a file, which makes it part of the archive.
    ///
    /// # Errors
    /// [`ArchiveError::Overtaken`] if another daemon has published a file with this number. If it was this one, with a
    /// request that the store carried out after its time, the archive continues after that file: [`ArchiveError::Away`].
    pub(crate) async fn publish(&self, index: &FileIndex) -> Result<()> {
        let path = self.folder().join(layout::index_name(index.number));
        match self.archive.create(&path, index).await? {
            true => Ok(()),
            false => {
                let (url, number) = (self.archive.url.clone(), index.number);
                match self.index(number).await? {
                    Some(there) if there.writer == index.writer => Err(self.archive.away(
                        format!("writing {path}"),
                        "the store has carried out an earlier request late; the archive continues after it",
                    )),
                    _ => Err(ArchiveError::Overtaken { url, number }),
                }
            }
        }
    }

    /// Returns a writer of a file whose first transaction has so many bytes. It sends what it gets in parts and holds one
    /// of them.
    pub(crate) fn writer(&self, file: &str, first: u64) -> BufWriter {
        let store = Arc::clone(&self.archive.store);
        let path = self.folder().join(file);
        BufWriter::with_capacity(store, path, part_bytes(first)).with_max_concurrency(REQUESTS)
    }

    /// Returns the bytes of a file as it is stored; `None` if there is none.
    pub(crate) async fn stored_bytes(&self, file: &str) -> Result<Option<u64>> {
        let path = self.folder().join(file);
        let what = format!("looking at {path}");
        let head = async {
            match self.archive.store.head(&path).await {
                Ok(meta) => Ok(Some(meta.size)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.archive.within(&what, head).await
    }

    /// Returns the bytes of a file as they arrive.
    pub(crate) async fn read(&self, file: &str) -> Result<BoxStream<'static, Result<Bytes>>> {
        let path = self.folder().join(file);
        let Some(size) = self.stored_bytes(file).await? else {
            return Err(self.archive.damaged(format!("{path} is missing")));
        };
        let archive = self.archive.clone();
        let part = move |start: u64| {
            let (archive, path) = (archive.clone(), path.clone());
            async move {
                let range = start..size.min(start + PART as u64);
                let got = archive.store.get_range(&path, range).await;
                got.map_err(|error| archive.of(&format!("reading {path}"), &error))
            }
        };
        Ok(stream::iter((0..size).step_by(PART)).map(part).buffered(REQUESTS).boxed())
    }

    /// Deletes a file's index, and then the file.
    pub(crate) async fn delete(&self, index: &FileIndex) -> Result<()> {
        let path = self.folder().join(layout::index_name(index.number));
        self.archive.within("deleting an index", self.archive.store.delete(&path)).await?;
        self.delete_file(&index.file).await
    }

    /// Deletes a file that no index names.
    pub(crate) async fn delete_file(&self, file: &str) -> Result<()> {
        let path = self.folder().join(file);
        match self.archive.store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.archive.of("deleting a file", &error)),
        }
    }

    /// Deletes what killed daemons have left in a directory; in an object store nothing is left.
    pub(crate) async fn remove_unfinished(&self, next: u64) -> Result<usize> {
        let Some(directory) = &self.archive.directory else { return Ok(0) };
        let folder = self.folder();
        let remove = directory.remove_unfinished(&folder, next);
        self.archive.within("deleting files that were not written to their end", remove).await
    }

    /// Deletes the mark of a history without files.
    pub(crate) async fn forget(&self) -> Result<()> {
        let marks = self.archive.marks().await?;
        let Some((number, _)) = marks.iter().find(|(_, mark)| mark.history == self.name) else {
            return Ok(());
        };
        let path = self.archive.mark_path(*number);
        self.archive.within("deleting a mark", self.archive.store.delete(&path)).await
    }
}

#[cfg(test)]
mod tests;
