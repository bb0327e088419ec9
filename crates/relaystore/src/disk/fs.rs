//! The disk as the store sees it. All that the store does with its directory passes through
//! [`FileSystem`], so a test can run it on a disk that tears, loses and refuses.

#![expect(clippy::disallowed_methods, reason = "the real disk")]

use std::any::Any;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::disk::private::{create_private_folder, make_private, private};

/// The operations on a store's directory. Errors are those of the system calls, by kind.
pub trait FileSystem: Debug + Send + Sync {
    /// Creates a directory and its missing parents for their owner only, durably.
    ///
    /// # Errors
    /// The disk's.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, in any order.
    ///
    /// # Errors
    /// The disk's.
    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Makes created and removed names durable.
    ///
    /// # Errors
    /// The disk's.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Free bytes for this user; `u64::MAX` if unknown.
    fn free_bytes(&self, directory: &Path) -> u64;

    /// Takes the exclusive lock of a file, which is created if missing. Dropping the value, or the
    /// end of the process, releases the lock.
    ///
    /// # Errors
    /// `WouldBlock` if another holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;

    /// Creates or empties a file for its owner only.
    ///
    /// # Errors
    /// The disk's.
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound` if it is missing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn StoredFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if it is missing.
    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn StoredFile>>;

    /// Removes a name; those who have the file open keep it.
    ///
    /// # Errors
    /// The disk's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes access for anyone but the owner, which an earlier version or a copy left.
    fn make_private(&self, path: &Path);
}

/// An open file, without a position of its own.
pub trait StoredFile: Debug + Send + Sync {
    /// May read fewer bytes, as `pread` may; 0 at the end of the file.
    ///
    /// # Errors
    /// The disk's.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// May write fewer bytes, as `pwrite` may.
    ///
    /// # Errors
    /// `StorageFull` or `QuotaExceeded` if there is no space.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// # Errors
    /// The disk's.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes contents and length durable. After an error nothing is known of the bytes written since
    /// the last success, and the next success says nothing of them either.
    ///
    /// # Errors
    /// The disk's.
    fn sync_data(&self) -> io::Result<()>;

    /// # Errors
    /// The disk's.
    fn size(&self) -> io::Result<u64>;
}

impl dyn StoredFile + '_ {
    /// Writes all bytes, in as many calls as it takes.
    pub(crate) fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Syncs a file. After a failure the kernel counts as written what it could not write, so a
    /// later sync would succeed without it. The part from `from` on, which may not be durable, is
    /// therefore written again by the next sync.
    pub(crate) fn sync_from(&self, from: u64) -> Result<(), SyncError> {
        self.sync_data()
            .map_err(|error| SyncError { error, is_written_again: self.write_again(from).is_ok() })
    }

    fn write_again(&self, mut from: u64) -> io::Result<()> {
        let mut bytes = vec![0; 1 << 20];
        loop {
            let read = self.read_at(&mut bytes, from)?;
            if read == 0 {
                return Ok(());
            }
            self.write_all_at(bytes.get(..read).unwrap_or_default(), from)?;
            from += read as u64;
        }
    }

    /// Returns the first `len` bytes, or fewer if the file is shorter.
    pub(crate) fn read_start(&self, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        let filled = self.fill_at(&mut bytes, 0)?;
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Fills `into`.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match self.fill_at(into, offset)? == into.len() {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Fills `into` as far as the file reaches, in as many calls as it takes; returns the bytes read.
    fn fill_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// A sync that failed.
#[derive(Debug)]
pub(crate) struct SyncError {
    pub(crate) error: io::Error,
    /// A later sync tells the truth.
    pub(crate) is_written_again: bool,
}

/// A file read from a position of its own, for buffered passes.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) file: Box<dyn StoredFile>,
    position: u64,
}

impl Stream {
    pub(crate) fn new(file: Box<dyn StoredFile>, position: u64) -> Self {
        Self { file, position }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for Stream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.file.size()?.checked_add_signed(by),
        };
        self.position = position.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// Returns true if there is no space for this user: a full disk or an exhausted quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Runs what may wait for the disk, or compute for long. On a thread of a runtime that has several, another one
/// takes over its tasks meanwhile.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}

/// The operating system's.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl RealFs {
    /// Returns the file system for [`RelayStoreOptions::files`](crate::disk::RelayStoreOptions::files).
    #[must_use]
    pub fn shared() -> Arc<dyn FileSystem> {
        Arc::new(Self)
    }
}

impl FileSystem for RealFs {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        create_private_folder(path)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn free_bytes(&self, directory: &Path) -> u64 {
        rustix::fs::statvfs(directory)
            .map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = private().open(path)?;
        // A lock of the open file, not of the process (as fcntl's is): a store that some reader
        // still holds keeps out the next one in this process too.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(private().read(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(in_place(|| File::open(path))?))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn make_private(&self, path: &Path) {
        make_private(path);
    }
}

impl StoredFile for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        in_place(|| FileExt::read_at(self, into, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::set_len(self, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
