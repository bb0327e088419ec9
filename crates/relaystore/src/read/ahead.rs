//! The bytes that a reader has before it, from the memory tail or from a file.

use bytes::Bytes;

use crate::disk::directory::Directory;
use crate::disk::error::{Result, io};
use crate::disk::fs::StoredFile;
use crate::disk::segment::RelayPosition;
use crate::state::buffers::Buffers;

/// Bytes read ahead from a segment that is no longer in memory.
pub(super) const MOST_AHEAD: usize = 1 << 20;
/// Buffers of this size that wait for the next read.
const BUFFERS: usize = 4;

/// Bytes at the reader's position.
#[derive(Debug)]
pub(super) struct ReadAhead {
    bytes: Bytes,
    /// The bytes come from the file, so their checksums have to be verified.
    from_file: bool,
    buffers: Buffers,
    /// The file of the segment with this number.
    file: Option<(u64, Box<dyn StoredFile>)>,
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        let buffers = Buffers::new(BUFFERS, MOST_AHEAD);
        Self { bytes: Bytes::new(), from_file: false, buffers, file: None }
    }

    pub(super) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(super) const fn is_from_file(&self) -> bool {
        self.from_file
    }

    /// Returns the first `len` bytes, or fewer if there are not so many, and moves past them.
    pub(super) fn take(&mut self, len: usize) -> Bytes {
        self.bytes.split_to(len.min(self.bytes.len()))
    }

    /// Forgets the bytes: the position has changed.
    pub(super) fn clear(&mut self) {
        self.bytes = Bytes::new();
    }

    /// Forgets the bytes and the file: the position is in another segment.
    pub(super) fn leave_segment(&mut self) {
        self.clear();
        self.file = None;
    }

    /// Takes bytes of the memory tail.
    pub(super) fn set(&mut self, bytes: Bytes) {
        (self.bytes, self.from_file) = (bytes, false);
    }

    /// Reads `len` bytes from the file.
    ///
    /// # Errors
    /// The disk's; the file is shorter.
    pub(super) fn read(
        &mut self,
        directory: &Directory,
        RelayPosition { segment, offset }: RelayPosition,
        len: usize,
    ) -> Result<()> {
        let mut bytes = self.buffers.take_filled(len);
        let file = match &self.file {
            Some((open, file)) if *open == segment => file,
            _ => &self.file.insert((segment, directory.open(segment)?)).1,
        };
        file.read_exact_at(&mut bytes, offset).map_err(io("reading", directory.path(segment)))?;
        (self.bytes, self.from_file) = (self.buffers.share(bytes), true);
        Ok(())
    }
}
