//! The folder that a restore has for itself: its relay store, and its identity on the target. The next attempt needs the
//! identity, with which it ends the sessions that a killed one has left.
//!
//! A mark tells it from the folder of a channel, which has files of the same names and must not be emptied.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use csa_relaystore::disk::{create_private_file, create_private_folder};

/// The first file that is made in the folder, and the last one that is removed.
const MARK: &str = "restore";
const MARK_TEXT: &[u8] =
    b"csa-daemon restore made this folder, and removes it when all is applied.\n";

/// A folder that is missing, empty, or left by an earlier restore.
#[derive(Debug)]
pub(crate) struct RestoreFolder(PathBuf);

impl RestoreFolder {
    /// Looks at the folder; writes nothing.
    ///
    /// # Errors
    /// Something is there that no restore has made.
    pub(super) fn at(path: &Path) -> Result<Self, String> {
        let wrong = |error: io::Error| format!("{}: {error}", path.display());
        let names = names(path).map_err(wrong)?;
        let is_marked = names.iter().any(|name| name == MARK);
        match names.iter().find(|name| !is_marked || !is_made_by_restore(name)) {
            None => Ok(Self(path.to_owned())),
            Some(name) => Err(format!(
                "{} holds {name:?}, so it is not the folder of a restore, which would be emptied; give another \
                 --state-dir",
                path.display()
            )),
        }
    }

    /// Marks the folder before anything else is written there: a killed restore leaves one that the next one takes.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn begin(&self) -> io::Result<()> {
        create_private_folder(&self.0)?;
        let mut mark = create_private_file(&self.0.join(MARK))?;
        mark.write_all(MARK_TEXT)?;
        mark.sync_all()?;
        File::open(&self.0)?.sync_all()
    }

    /// Removes what a restore has made, and the folder if nothing else is there.
    ///
    /// # Errors
    /// The file system's. The mark stays unless all else is removed.
    pub(super) fn remove(&self) -> io::Result<()> {
        for name in names(&self.0)?.iter().filter(|name| *name != MARK && is_made_by_restore(name))
        {
            let path = self.0.join(name);
            match fs::symlink_metadata(&path)?.is_dir() {
                true => fs::remove_dir_all(&path)?,
                false => fs::remove_file(&path)?,
            }
        }
        fs::remove_file(self.0.join(MARK))?;
        fs::remove_dir(&self.0)
    }
}

/// Returns the names in a folder; none if it is missing.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Returns true for the names that a restore and its channel use: also those of unfinished files, and of what a killed
/// look at the disk leaves.
fn is_made_by_restore(name: &str) -> bool {
    let finished = name.strip_suffix(".new").unwrap_or(name);
    matches!(finished, MARK | "relay" | "replica_uuid" | "foreign.json")
        || name.starts_with(".csa-daemon-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(folder: &Path, files: &[&str]) {
        for file in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, "x").expect("written");
        }
    }

    #[test]
    fn a_folder_is_there_from_the_beginning_of_a_restore_to_its_end() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("restore/shop");
        let folder = RestoreFolder::at(&path).expect("missing");
        assert!(!path.exists(), "a look writes nothing");
        folder.begin().expect("made");
        let made = ["relay/lock", "relay/segment-1.relay", "replica_uuid", "foreign.json.new"];
        fill(&path, &made);
        fill(&path, &[".csa-daemon-7-0"]);
        // The restore was killed, and the next one ends.
        let folder = RestoreFolder::at(&path).expect("its own");
        folder.begin().expect("there");
        assert_eq!(fs::read(path.join("replica_uuid")).expect("kept"), b"x");
        folder.remove().expect("removed");
        assert!(!path.exists());
        assert!(directory.path().join("restore").exists());
    }

    #[test]
    fn what_no_restore_has_made_is_refused_and_stays() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("shop");
        fs::create_dir(&path).expect("created");
        RestoreFolder::at(&path).expect("empty");
        // The folder of a channel.
        fill(&path, &["relay/lock", "replica_uuid"]);
        let said = RestoreFolder::at(&path).expect_err("a channel's");
        assert!(said.contains("shop holds") && said.contains("another --state-dir"), "{said}");
        fs::remove_dir_all(&path).expect("removed");
        let folder = RestoreFolder::at(&path).expect("missing");
        folder.begin().expect("made");
        fill(&path, &["relay/lock", "move.json"]);
        let said = RestoreFolder::at(&path).expect_err("another file");
        assert!(said.contains("\"move.json\""), "{said}");
        // It came while the restore ran.
        folder.remove().expect_err("not empty");
        assert_eq!(names(&path).expect("readable"), ["move.json"]);
        let file = path.join("move.json");
        RestoreFolder::at(&file).expect_err("a file");
    }
}
