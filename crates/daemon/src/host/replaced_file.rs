//! Files that are replaced as a whole: a process that is killed leaves the old one or the new one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use csa_relaystore::disk::create_private_file;

/// Replaces a file. It is not synced: a power loss may cost it.
///
/// # Errors
/// The file system's.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = fresh(path);
    create_private_file(&fresh)?.write_all(contents)?;
    fs::rename(&fresh, path)
}

/// Replaces a file that is on disk before this returns.
///
/// # Errors
/// The file system's.
pub(crate) fn replace_synced(path: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = fresh(path);
    let mut file = create_private_file(&fresh)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Returns the name that a file has until it is complete.
fn fresh(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whatever_an_earlier_attempt_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify.json");
        for (write, text) in [
            (replace as fn(&Path, &[u8]) -> io::Result<()>, "first"),
            (replace_synced, "second, longer"),
            (replace, "third"),
        ] {
            fs::write(folder.path().join("notify.json.new"), "cut off, and longer").expect("left");
            write(&path, text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("readable"), text);
            assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
        }
    }
}
