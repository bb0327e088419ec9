//! Files and folders that only their owner can access, whatever
//! the umask: segments hold row values.

#![expect(clippy::disallowed_methods, reason = "the real disk")]

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use tracing::warn;

const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;

/// Creates the folder and its missing parents. The new names are durable: all that is synced in the
/// folder later would be lost with them.
///
/// # Errors
/// The file system's.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    let above = path.parent().unwrap_or(path);
    let create = || DirBuilder::new().mode(FOLDER).create(path);
    let created = match create() {
        Err(error) if error.kind() == ErrorKind::NotFound && above != path => {
            create_private_folder(above)?;
            create()
        }
        other => other,
    };
    match created {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        // The parent of a relative path may be the empty one.
        Ok(()) if above.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Ok(()) => File::open(above)?.sync_all(),
    }
}

/// Creates or empties a file, and opens it for writing.
///
/// # Errors
/// The file system's.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    private().truncate(true).open(path)
}

/// Returns the options for writing a file, which is created if it is missing.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).mode(FILE);
    options
}

/// Removes access for group and others that an earlier version, another umask or a copy left. A
/// failure is only logged: another owner may be intended.
pub fn make_private(path: &Path) {
    if let Err(error) = narrow(path) {
        warn!(path = %path.display(), %error, "others may read it, and its mode can't be changed");
    }
}

fn narrow(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let wanted = if metadata.is_dir() { FOLDER } else { FILE };
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_symlink() || mode & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_private_and_what_was_wider_is_narrowed() {
        let directory = tempfile::tempdir().expect("temp dir");
        let folder = directory.path().join("a/b");
        create_private_folder(&folder).expect("created");
        let file = folder.join("file");
        create_private_file(&file).expect("created");
        let above = directory.path().join("a");
        assert_eq!((mode(&above), mode(&folder), mode(&file)), (0o700, 0o700, 0o600));
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("ours");
        fs::set_permissions(&file, Permissions::from_mode(0o444)).expect("ours");
        make_private(&folder);
        make_private(&file);
        // No permission is added.
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o400));
        make_private(&folder.join("missing"));
    }
}
