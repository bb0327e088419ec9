//! Remembers on this host which history the channel writes. Without its mount, a directory looks like a new archive. To begin
//! there would split the archive, and nobody would notice.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use csa_relaystore::disk::in_place;
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::archive::store::{Archive, ArchiveError, Result};

/// The file in the channel's part of the state directory.
const FILE: &str = "archive.json";

/// The history that was written last, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    url: String,
    history: String,
}

/// The file of a marker.
#[derive(Debug, Clone)]
pub(super) struct MarkerFile(PathBuf);

impl MarkerFile {
    pub(super) fn in_directory(directory: &Path) -> Self {
        Self(directory.join(FILE))
    }

    /// Returns `None` only where there is no file: one that can't be read may name a history whose mount is missing.
    fn read(&self, archive: &Archive) -> Result<Option<Marker>> {
        let found = match std::fs::read(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error.to_string()),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        };
        found.map(Some).map_err(|error| {
            let what = "looking for its last history".to_owned();
            let why = format!(
                "{}: {error}; give it back to the daemon's user, or remove it if the archive is the right one: the \
                 directory is mounted, or the bucket has the last files",
                self.0.display()
            );
            ArchiveError::Away { url: archive.url().to_owned(), what, why }
        })
    }

    /// Returns the names of all histories of the archive. The one that was written from here may have been deleted for its
    /// age, by another daemon that writes a later one. Blocks on the disk.
    ///
    /// # Errors
    /// The archive does not answer, or is not the one that was written from here.
    pub(super) async fn histories(&self, archive: &Archive) -> Result<Vec<String>> {
        let histories = archive.histories().await?;
        let marker = self.read(archive)?.filter(|marker| marker.url == archive.url());
        let missing = marker.map(|marker| marker.history).filter(|name| !histories.contains(name));
        if let Some(history) = missing {
            if !archive.has_outlived(&history).await? {
                return Err(self.away(archive, &history));
            }
            info!(
                history,
                "the archive has a later history than the last one from here, which was too old"
            );
        }
        Ok(histories)
    }

    /// Checks that the archive has these histories, to which this daemon has just written: its mount may have gone and
    /// come back between any two requests. Here one that is deleted is missing too, or a file in it would count.
    ///
    /// # Errors
    /// The archive does not answer, or lacks one of them.
    pub(super) async fn check(&self, archive: &Archive, written: &[&str]) -> Result<()> {
        let histories = archive.histories().await?;
        let is_there = |name: &str| histories.iter().any(|history| history == name);
        match written.iter().find(|name| !is_there(name)) {
            Some(missing) => Err(self.away(archive, missing)),
            None => Ok(()),
        }
    }

    fn away(&self, archive: &Archive, missing: &str) -> ArchiveError {
        let (url, what) = (archive.url().to_owned(), "looking for its last history".to_owned());
        let why = format!(
            "history {missing} is not there, which this daemon wrote: is the directory mounted, and the bucket the right \
             one? To begin another history there, remove {}",
            self.0.display()
        );
        ArchiveError::Away { url, what, why }
    }

    /// Returns true if a history of the archive was written from here. Blocks on the disk.
    ///
    /// # Errors
    /// The file can't be read.
    pub(super) fn is_of(&self, archive: &Archive) -> Result<bool> {
        Ok(self.read(archive)?.is_some_and(|marker| marker.url == archive.url()))
    }

    /// Remembers the history. Blocks on the disk.
    ///
    /// # Errors
    /// The disk fails.
    pub(super) fn remember(&self, url: &str, history: &str) -> std::io::Result<()> {
        let marker = Marker { url: url.to_owned(), history: history.to_owned() };
        let bytes = serde_json::to_vec_pretty(&marker)?;
        if std::fs::read(&self.0).is_ok_and(|found| found == bytes) {
            return Ok(());
        }
        let new = self.0.with_extension("new");
        in_place(|| {
            std::fs::write(&new, bytes)?;
            std::fs::File::open(&new)?.sync_all()?;
            std::fs::rename(&new, &self.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use object_store::memory::InMemory;

    use super::super::retention;
    use super::*;
    use crate::archive::index::tests::{index, mark};
    use crate::archive::store::ArchivedHistory;
    use crate::host::micros_of;

    fn archive(channel: &str) -> Archive {
        Archive::over(Arc::new(InMemory::new()), channel)
    }

    async fn begin(archive: &Archive, history: &str) -> ArchivedHistory {
        archive.begin(&mark(history)).await.expect("begun")
    }

    /// Returns the histories that a daemon finds which wrote `written` last; `None` if it waits for a mount.
    async fn found(archive: &Archive, written: &str) -> Option<Vec<String>> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = MarkerFile::in_directory(directory.path());
        file.remember(archive.url(), written).expect("written");
        assert!(file.is_of(archive).expect("readable"));
        match file.histories(archive).await {
            Ok(histories) => Some(histories),
            Err(error) => {
                assert!(error.to_string().contains("mounted"), "{error}");
                None
            }
        }
    }

    #[tokio::test]
    async fn an_archive_without_its_history_is_noticed() {
        let archive = archive("shop");
        let directory = tempfile::tempdir().expect("a directory");
        let file = MarkerFile::in_directory(directory.path());
        assert!(file.histories(&archive).await.is_ok_and(|found| found.is_empty()), "a new one");
        file.remember("file:///another/shop", "b").expect("written");
        assert!(file.histories(&archive).await.is_ok(), "another place");
        assert_eq!(found(&archive, "b").await, None);
        // One that was begun in the place of the mount, or is another channel's.
        begin(&archive, "a").await.publish(&index(1, "", "")).await.expect("published");
        assert_eq!(found(&archive, "b").await, None);
        begin(&archive, "c").await.publish(&index(1, "", "")).await.expect("published");
        assert_eq!(found(&archive, "b").await, None);
        assert_eq!(found(&archive, "a").await, Some(vec!["a".to_owned(), "c".to_owned()]));
    }

    #[tokio::test]
    async fn a_file_that_can_not_be_read_is_not_taken_for_none() {
        let archive = archive("shop");
        let directory = tempfile::tempdir().expect("a directory");
        let file = MarkerFile::in_directory(directory.path());
        let path = directory.path().join(FILE);
        for damaged in [&b""[..], b"{", b"7", b"\xff"] {
            std::fs::write(&path, damaged).expect("written");
            let why = file.histories(&archive).await.expect_err("it is damaged").to_string();
            assert!(why.contains("archive.json") && why.contains("or remove it"), "{why}");
            assert!(file.is_of(&archive).is_err());
        }
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder in its place");
        assert!(file.histories(&archive).await.is_err());
        std::fs::remove_dir(&path).expect("removed");
        assert!(file.histories(&archive).await.is_ok_and(|found| found.is_empty()));
    }

    #[tokio::test]
    async fn a_history_that_retention_has_deleted_is_not_missing() {
        let archive = archive("shop");
        let first = begin(&archive, "a").await;
        first.publish(&index(1, "", "")).await.expect("published");
        let second = begin(&archive, "b").await;
        // Only its mark is there: the mount went before its first file.
        first.forget().await.expect("forgotten");
        assert_eq!(found(&archive, "a").await, None);
        second.publish(&index(20, "", "")).await.expect("published");
        assert_eq!(found(&archive, "a").await, Some(vec!["b".to_owned()]));
        // A third one outlives both.
        begin(&archive, "c").await.publish(&index(59, "", "")).await.expect("published");
        second.forget().await.expect("forgotten");
        for written in ["a", "b", "c"] {
            assert_eq!(found(&archive, written).await, Some(vec!["c".to_owned()]), "{written}");
        }
        assert_eq!(found(&archive, "d").await, None, "nobody has seen it there");
    }

    #[tokio::test]
    async fn another_daemon_deletes_the_history_of_this_one() {
        let archive = archive("shop");
        begin(&archive, "a").await.publish(&index(1, "", "")).await.expect("published");
        let second = begin(&archive, "b").await;
        let now = micros_of("2026-11-26T09:00:00Z").expect("a time");
        let keep = Some(Duration::from_secs(60));
        let sweep = async || retention::sweep(&second, keep, retention::MOST, now, &|| {}).await;
        assert_eq!(sweep().await.expect("it answers"), 0);
        second.publish(&index(20, "", "")).await.expect("published");
        assert_eq!(sweep().await.expect("it answers"), 1);
        assert_eq!(found(&archive, "a").await, Some(vec!["b".to_owned()]));
    }

    #[tokio::test]
    async fn what_was_just_written_has_to_be_there() {
        let archive = archive("shop");
        let directory = tempfile::tempdir().expect("a directory");
        let file = MarkerFile::in_directory(directory.path());
        let first = begin(&archive, "a").await;
        begin(&archive, "b").await.publish(&index(1, "", "")).await.expect("published");
        assert!(file.check(&archive, &["a", "b"]).await.is_ok());
        first.forget().await.expect("forgotten");
        assert!(file.check(&archive, &["b"]).await.is_ok());
        let why = file.check(&archive, &["a", "b"]).await.expect_err("it is deleted").to_string();
        assert!(why.contains("history a is not there"), "{why}");
    }
}
