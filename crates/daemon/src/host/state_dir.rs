//! A check that a channel can keep its state, made before any server is contacted. It leaves
//! nothing in the folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use csa_relaystore::disk::in_place;
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::Errno;

/// Checks existing folders and files; `directory` is the channel's relay directory.
///
/// # Errors
/// One line that names what can't be used, and the key.
pub(crate) fn check(directory: &Path) -> Result<(), String> {
    in_place(|| check_in_place(directory))
}

fn check_in_place(directory: &Path) -> Result<(), String> {
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
    let made = match open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR) {
        Ok(_) => Ok(()),
        // The file system or the kernel has no such files (open(2), O_TMPFILE).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => probe_by_name(folder),
        Err(error) => Err(error.into()),
    };
    // The relay store opens on a full disk, too: what it has must be applied before there is room again.
    made.or_else(|error| if is_full(&error) { Ok(()) } else { Err(error) })
}

/// There is no space, or no inode.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes a block to the disk of the folder, and removes it.
///
/// # Errors
/// The disk is full, or fails.
pub(crate) fn takes_writes(directory: &Path) -> io::Result<()> {
    with_file(&existing(directory), |file| {
        file.write_all(&[0; 4096])?;
        file.sync_all()
    })
}

fn probe_by_name(folder: &Path) -> io::Result<()> {
    with_file(folder, |_| Ok(()))
}

/// Makes a file and removes it. Channels look at the same folder at a time, and a killed process may have
/// left a file of the same name: in a container each has the same number.
fn with_file(folder: &Path, work: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    static PROBES: AtomicU64 = AtomicU64::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".csa-daemon-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(no_link());
    let worked = work(&mut options.open(&path)?);
    fs::remove_file(&path).and(worked)
}

/// Somebody else's link in the folder leads nowhere.
fn no_link() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default()
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
    fn many_channels_look_at_one_folder_where_unnamed_files_do_not_exist() {
        let directory = tempfile::tempdir().expect("a folder");
        let folder = directory.path();
        std::thread::scope(|scope| {
            let looks: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| (0..50).try_for_each(|_| probe_by_name(folder))))
                .collect();
            for look in looks {
                look.join().expect("no panic").expect("writable");
            }
        });
        assert_eq!(fs::read_dir(folder).expect("readable").count(), 0);
    }

    #[test]
    fn a_file_that_a_killed_process_left_is_no_obstacle() {
        let directory = tempfile::tempdir().expect("a folder");
        // Other tests count, too.
        for number in 0..2_000 {
            let left = format!(".csa-daemon-{}-{number}", std::process::id());
            fs::write(directory.path().join(left), "").expect("written");
        }
        probe_by_name(directory.path()).expect("writable");
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 1_999);
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
