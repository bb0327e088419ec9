//! A channel's directory: its segment files, and its lock.

use std::any::Any;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::error::{Error, Result, io};
use crate::disk::fs::{FileSystem, StoredFile};
use crate::disk::options::RelayStoreOptions;

/// The segment files of a directory, which another process may hold.
#[derive(Debug, Clone)]
pub(crate) struct SegmentFiles {
    directory: PathBuf,
    fs: Arc<dyn FileSystem>,
}

impl SegmentFiles {
    pub(crate) fn of(options: &RelayStoreOptions) -> Self {
        Self { directory: options.directory.clone(), fs: Arc::clone(&options.files) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }

    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("segment-{number:016x}.relay"))
    }

    /// Numbers of all segments, ascending.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>> {
        let names = self.fs.names(&self.directory).map_err(io("listing", &self.directory))?;
        let number = |name: &str| {
            let digits = name.strip_prefix("segment-")?.strip_suffix(".relay")?;
            u64::from_str_radix(digits, 16).ok()
        };
        let mut numbers: Vec<_> = names.iter().filter_map(|name| number(name.to_str()?)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Opens a segment for reading.
    pub(crate) fn open(&self, number: u64) -> Result<Box<dyn StoredFile>> {
        let path = self.path(number);
        self.fs.open(&path).map_err(io("opening", path))
    }
}

/// The directory, locked by this process.
#[derive(Debug)]
pub(crate) struct Directory {
    files: SegmentFiles,
    _lock: Box<dyn Any + Send + Sync>,
}

impl Deref for Directory {
    type Target = SegmentFiles;

    fn deref(&self) -> &SegmentFiles {
        &self.files
    }
}

impl Directory {
    /// Creates it if missing and takes its lock.
    pub(crate) fn open(options: &RelayStoreOptions) -> Result<Self> {
        let files = SegmentFiles::of(options);
        let (path, fs) = (&files.directory, &files.fs);
        fs.create_directory(path).map_err(io("creating relay directory", path))?;
        let lock_path = path.join("lock");
        let lock = fs.lock(&lock_path).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Error::Locked { path: path.clone() },
            _ => io("locking", &lock_path)(error),
        })?;
        // Only now, under the lock. Files of an earlier version may be readable by others.
        fs.make_private(path);
        fs.make_private(&lock_path);
        for number in files.numbers()? {
            fs.make_private(&files.path(number));
        }
        Ok(Self { files, _lock: lock })
    }

    pub(crate) fn remove(&self, number: u64) -> Result<()> {
        let path = self.path(number);
        self.fs.remove(&path).map_err(io("deleting", path))
    }

    pub(crate) fn open_for_writing(&self, number: u64) -> Result<Box<dyn StoredFile>> {
        let path = self.path(number);
        self.fs.open_for_writing(&path).map_err(io("opening", path))
    }

    /// Creates a segment that begins with `header`, or no file at all: a half-written header must
    /// not be left over.
    pub(crate) fn create(&self, number: u64, header: &[u8]) -> io::Result<Box<dyn StoredFile>> {
        let path = self.path(number);
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
        let file = self.open_for_writing(number)?;
        let path = self.path(number);
        let cut = file.set_len(len).and_then(|()| file.sync_from(0).map_err(|failed| failed.error));
        cut.map_err(io("truncating", path))
    }

    /// Makes created and deleted names durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.fs.sync_directory(&self.directory).map_err(io("syncing", &self.directory))
    }

    /// Free bytes of the file system for this user.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.fs.free_bytes(&self.directory)
    }
}
