//! A check that a channel can keep its state, made before any server is contacted. It leaves
//! nothing in the folder.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::Errno;

/// Checks existing folders and files; `directory` is the channel's relay directory.
///
/// # Errors
/// One line that names what can't be used, and the key.
pub(crate) fn check(directory: &Path) -> Result<(), String> {
    let found = existing(directory);
    let wrong = |path: &Path, error: &dyn std::fmt::Display| {
        format!(
            "daemon.state_dir: {} is not writable for this user ({error}); give it to the user that \
             csa-daemon runs as, or name another folder",
            path.display()
        )
    };
    probe(&found).map_err(|error| wrong(&found, &error))?;
    // The daemon may have run as another user before.
    let channel =
        directory.parent().filter(|parent| parent.starts_with(&found) && **parent != found);
    let folders = [Some(directory), channel].into_iter().flatten();
    for folder in folders.filter(|folder| folder.exists()) {
        probe(folder).map_err(|error| wrong(folder, &error))?;
    }
    for file in files(directory).chain(directory.parent().into_iter().flat_map(files)) {
        access(&file, Access::READ_OK | Access::WRITE_OK).map_err(|error| wrong(&file, &error))?;
    }
    Ok(())
}

/// Returns the folder, or its nearest existing parent.
pub(crate) fn existing(path: &Path) -> PathBuf {
    let found = path.ancestors().find(|path| path.exists());
    let found = found.filter(|path| !path.as_os_str().is_empty());
    found.unwrap_or_else(|| Path::new(".")).to_owned()
}

/// Our files only: others may lie in the folder.
fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name == "lock" || name == "replica_uuid" || name.ends_with(".relay")
    })
}

/// Permissions don't tell everything: the file system may be read-only, or accept no files.
fn probe(folder: &Path) -> io::Result<()> {
    access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
    if !folder.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    // An unnamed file, where the file system supports it.
    match open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR) {
        Ok(_) => return Ok(()),
        // The file system or the kernel has no such files (open(2), O_TMPFILE).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let path = folder.join(format!(".csa-daemon-{}", std::process::id()));
    let made: io::Result<File> =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    drop(made?);
    fs::remove_file(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_to_be_made_is_looked_for_above() {
        let directory = tempfile::tempdir().expect("a folder");
        assert_eq!(existing(&directory.path().join("a/b")), directory.path());
        assert_eq!(existing(Path::new("surely-not-there/relay")), Path::new("."));
    }

    #[test]
    fn what_can_be_written_is_left_as_it_was() {
        let directory = tempfile::tempdir().expect("a folder");
        assert_eq!(check(&directory.path().join("shop/relay")), Ok(()));
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
        fs::create_dir_all(directory.path().join("shop/relay")).expect("created");
        assert_eq!(check(&directory.path().join("shop/relay")), Ok(()));
    }

    #[test]
    fn what_takes_no_files_is_named() {
        let directory = tempfile::tempdir().expect("a folder");
        let file = directory.path().join("file");
        fs::write(&file, "").expect("written");
        for path in [Path::new("/proc/csa-daemon"), &file] {
            let said = check(&path.join("shop/relay")).expect_err("can't be written");
            assert!(said.contains("daemon.state_dir") && said.contains("not writable"), "{said}");
        }
    }
}
