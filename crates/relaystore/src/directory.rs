//! A channel's directory: its lock, and its segment files.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result, io};

/// The directory, held by this process alone.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates it if missing and takes its lock.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(io("creating relay directory", path))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(io("opening", &lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::Locked { path: path.to_owned() })?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("segment-{number:016x}.relay"))
    }

    /// Numbers of all segments, ascending.
    pub(crate) fn segments(&self) -> Result<Vec<u64>> {
        let list = || io("listing", &self.path);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(list())? {
            let name = entry.map_err(list())?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix("segment-")?.strip_suffix(".relay"))
                .and_then(|digits| u64::from_str_radix(digits, 16).ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(crate) fn remove(&self, number: u64) -> Result<()> {
        let path = self.segment_path(number);
        fs::remove_file(&path).map_err(io("deleting", path))
    }

    /// Makes created and deleted names durable.
    pub(crate) fn sync(&self) -> Result<()> {
        File::open(&self.path)
            .and_then(|directory| directory.sync_all())
            .map_err(io("syncing", &self.path))
    }

    /// Free bytes of the file system for this user.
    pub(crate) fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(&self.path).map_or(u64::MAX, |stat| stat.f_bavail * stat.f_frsize)
    }
}
