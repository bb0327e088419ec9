//! The seam under the writer: what a disk may refuse, a test can refuse too. Readers use files
//! directly; what they meet is bytes, and bytes can be damaged without a seam.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::private::create_private_file;

/// What writing a store needs of a file system.
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

/// A segment file that is written.
pub(crate) trait SegmentFile: Debug + Send + Sync {
    /// May write less than all, as `pwrite` may.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn sync_data(&self) -> io::Result<()>;
}

impl dyn SegmentFile + '_ {
    /// Writes all, however many calls it takes.
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

/// No space for this user: a full disk, or a quota used up.
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
