//! The file system as the writer sees it, replaceable in tests, which can then refuse everything
//! that a disk may refuse. Readers use files directly: tests can damage their bytes without this.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::private::create_private_file;

/// The file system operations for writing a store.
pub(crate) trait FileSystem: Debug + Send + Sync {
    /// Creates or empties a file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>>;
    fn open(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes created and deleted names durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Free bytes for this user.
    fn free_bytes(&self, path: &Path) -> u64;
}

/// A segment file open for writing.
pub(crate) trait SegmentFile: Debug + Send + Sync {
    /// May write fewer bytes, as `pwrite` may.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn sync_data(&self) -> io::Result<()>;
}

impl dyn SegmentFile + '_ {
    /// Writes all bytes, in as many calls as it takes.
    pub(crate) fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// True if there is no space for this user: a full disk or an exhausted quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[derive(Debug)]
pub(crate) struct RealFs;

impl FileSystem for RealFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(create_private_file(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(OpenOptions::new().write(true).open(path)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn free_bytes(&self, path: &Path) -> u64 {
        rustix::fs::statvfs(path).map_or(u64::MAX, |stat| stat.f_bavail * stat.f_frsize)
    }
}

impl SegmentFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::set_len(self, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }
}
