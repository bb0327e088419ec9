//! The servers whose transactions a source need not have, on disk: the last answer of the target, and the servers of
//! which a source has sent something since. A daemon needs them if it starts while the target is away: they tell a
//! source with another history from one of several sources of the target.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csa_provider::source::{Foreign, SharedForeign};
use csa_relaystore::disk::{create_private_folder, make_private};
use parking_lot::Mutex;
use tracing::warn;

use crate::host::blocking;
use crate::host::replaced_file::replace_synced;

const FILE: &str = "foreign.json";

/// A channel's servers, and the file that has them. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct KeptForeign {
    shared: SharedForeign,
    directory: PathBuf,
    /// Held while the file is written, so that the last write has the newest servers.
    writing: Arc<Mutex<()>>,
}

impl KeptForeign {
    /// Reads the file in the channel's `directory`.
    pub(super) fn read(directory: &Path) -> Self {
        let shared = SharedForeign::new(read(directory));
        Self { shared, directory: directory.to_owned(), writing: Arc::default() }
    }

    pub(super) fn shared(&self) -> &SharedForeign {
        &self.shared
    }

    /// Writes the file, unless it has the same servers.
    pub(super) async fn save(&self) {
        let kept = self.clone();
        // A write that fails has said so.
        drop(
            blocking(move || {
                let _writing = kept.writing.lock();
                write(&kept.directory, &kept.shared.get());
            })
            .await,
        );
    }

    /// Writes the file whenever the servers change, until it is dropped.
    pub(super) async fn save_changes(&self) -> Infallible {
        let mut changes = self.shared.changes();
        loop {
            // Its other end is here.
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
            self.save().await;
        }
    }
}

/// Returns no servers where there is no file, or one that can't be read: then a source must have all that was
/// received.
fn read(directory: &Path) -> Foreign {
    let path = directory.join(FILE);
    let Ok(text) = fs::read(&path) else { return Foreign::default() };
    make_private(&path);
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Replaces the file as a whole, on disk before this returns; a crash leaves the old one or the new one.
fn write(directory: &Path, foreign: &Foreign) {
    if read(directory) == *foreign {
        return;
    }
    let path = directory.join(FILE);
    let written = serde_json::to_vec(foreign).map_err(io::Error::from).and_then(|text| {
        create_private_folder(directory)?;
        replace_synced(&path, &text)
    });
    if let Err(error) = written {
        let path = path.display();
        warn!(%path, %error, "after a restart nothing is received until the target answers");
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::Uuid;

    use super::*;

    #[test]
    fn the_next_start_knows_the_same_servers() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = directory.path().join("orders");
        assert_eq!(read(&folder), Foreign::default());
        for is_undecided in [true, false] {
            let servers = [Uuid::from_u128(7), Uuid::from_u128(9)].into();
            let (own, followed) = ([Uuid::from_u128(1)].into(), [Uuid::from_u128(9)].into());
            let foreign = Foreign { own, servers, followed, is_undecided };
            write(&folder, &foreign);
            assert_eq!(read(&folder), foreign);
        }
        let none = Foreign::default();
        write(&folder, &none);
        assert_eq!(read(&folder), none);
    }

    #[tokio::test]
    async fn a_server_that_sends_something_is_in_the_file_soon() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kept = KeptForeign::read(directory.path());
        let foreign = Foreign { followed: [Uuid::from_u128(7)].into(), ..Foreign::default() };
        let changed = async {
            kept.shared().set(foreign.clone());
            while read(directory.path()) != foreign {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            // First, so that it watches before the change.
            biased;
            never = kept.save_changes() => match never {},
            () = changed => {}
        }
    }

    #[test]
    fn a_file_that_is_no_answer_counts_as_none() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let of_no_server = r#"{"own":[],"servers":["x"],"followed":[],"is_undecided":true}"#;
        for text in ["", "{}", of_no_server] {
            fs::write(directory.path().join(FILE), text).expect("written");
            assert_eq!(read(directory.path()), Foreign::default(), "{text}");
        }
    }
}
