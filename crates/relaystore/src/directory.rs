//! A channel's directory: its lock, and its segment files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result, io};
use crate::fs::{FileSystem, SegmentFile};
use crate::private::{create_private_folder, make_private, private};

/// The directory, locked by this process.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fs: Arc<dyn FileSystem>,
    _lock: File,
}

impl Directory {
    /// Creates it if missing and takes its lock.
    pub(crate) fn open(path: &Path, fs: Arc<dyn FileSystem>) -> Result<Self> {
        create_private_folder(path).map_err(io("creating relay directory", path))?;
        let lock_path = path.join("lock");
        let lock = private().open(&lock_path).map_err(io("opening", &lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::Locked { path: path.to_owned() })?;
        // Only now, under the lock. Files of an earlier version may be readable by others.
        make_private(path);
        make_private(&lock_path);
        for number in segments(path)? {
            make_private(&segment_path(path, number));
        }
        Ok(Self { path: path.to_owned(), fs, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        segment_path(&self.path, number)
    }

    /// Numbers of all segments, ascending.
    pub(crate) fn segments(&self) -> Result<Vec<u64>> {
        segments(&self.path)
    }

    pub(crate) fn remove(&self, number: u64) -> Result<()> {
        let path = self.segment_path(number);
        self.fs.remove(&path).map_err(io("deleting", path))
    }

    pub(crate) fn open_segment(&self, number: u64) -> Result<Box<dyn SegmentFile>> {
        let path = self.segment_path(number);
        self.fs.open(&path).map_err(io("opening", path))
    }

    /// Creates a segment that begins with `header`, or no file at all: a half-written header must
    /// not be left over.
    pub(crate) fn create_segment(
        &self,
        number: u64,
        header: &[u8],
    ) -> std::io::Result<Box<dyn SegmentFile>> {
        let path = self.segment_path(number);
        let file = self.fs.create(&path)?;
        match file.write_all_at(header, 0).and_then(|()| file.sync_data()) {
            Ok(()) => Ok(file),
            Err(error) => {
                self.fs.remove(&path)?;
                Err(error)
            }
        }
    }

    /// Cuts a segment and makes the cut durable.
    pub(crate) fn truncate(&self, number: u64, len: u64) -> Result<()> {
        let file = self.open_segment(number)?;
        let path = self.segment_path(number);
        file.set_len(len).and_then(|()| file.sync_data()).map_err(io("truncating", path))
    }

    /// Makes created and deleted names durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.fs.sync_directory(&self.path).map_err(io("syncing", &self.path))
    }

    /// Free bytes of the file system for this user.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.fs.free_bytes(&self.path)
    }
}

pub(crate) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("segment-{number:016x}.relay"))
}

/// Numbers of all segments in a directory, ascending.
pub(crate) fn segments(directory: &Path) -> Result<Vec<u64>> {
    let list = || io("listing", directory);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(list())? {
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
