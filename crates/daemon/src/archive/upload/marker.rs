//! Remembers on this host which history the channel writes. Without its mount, a directory looks like a new archive. To begin
//! there would split the archive, and nobody would notice.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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

    fn read(&self) -> Option<Marker> {
        serde_json::from_slice(&std::fs::read(&self.0).ok()?).ok()
    }

    /// Returns the names of all histories of the archive. Blocks on the disk.
    ///
    /// # Errors
    /// The archive does not answer, or lacks the history that was written there.
    pub(super) async fn histories(&self, archive: &Archive) -> Result<Vec<String>> {
        let histories = archive.histories().await?;
        match self.missing_from(archive.url(), &histories) {
            None => Ok(histories),
            Some(why) => {
                let (url, what) =
                    (archive.url().to_owned(), "looking for its last history".to_owned());
                Err(ArchiveError::Away { url, what, why })
            }
        }
    }

    fn missing_from(&self, url: &str, histories: &[String]) -> Option<String> {
        let marker = self.read()?;
        let is_missing = marker.url == url && !histories.contains(&marker.history);
        is_missing.then(|| {
            format!(
                "history {} is not there, which this daemon wrote: is the directory mounted, and the bucket the \
                 right one? To begin another history there, remove {}",
                marker.history,
                self.0.display()
            )
        })
    }

    /// A history of the archive at `url` was written from here. Blocks on the disk.
    pub(super) fn is_of(&self, url: &str) -> bool {
        self.read().is_some_and(|marker| marker.url == url)
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
        std::fs::write(&new, bytes)?;
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_without_its_history_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = MarkerFile::in_directory(directory.path());
        let all = ["a".to_owned(), "b".to_owned()];
        assert_eq!(file.missing_from("file:///x", &[]), None, "nothing was written yet");
        file.remember("file:///x", "b").expect("written");
        assert_eq!(file.missing_from("file:///x", &all), None);
        assert!(
            file.missing_from("file:///x", &all[..1]).is_some_and(|why| why.contains("mounted"))
        );
        assert_eq!(file.missing_from("file:///y", &[]), None, "another place");
        file.remember("file:///x", "a").expect("written");
        assert_eq!(file.missing_from("file:///x", &all[..1]), None);
    }
}
