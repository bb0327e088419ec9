//! The last segment as a file: bytes are appended to it, cut from it, and synced.

use std::path::PathBuf;
use std::time::Duration;

use csa_provider::seams::planted::{Bug, is_planted};
use tokio::time::Instant;

use crate::disk::directory::Directory;
use crate::disk::error::{Error, Result, io};
use crate::disk::fs::{StoredFile, SyncError, is_full};
use crate::disk::segment::RelayPosition;
use crate::state::shared::Shared;

/// The segment to which the writer appends.
#[derive(Debug)]
pub(super) struct SegmentFile {
    /// `None` before the first segment, and while the segment is in memory only.
    file: Option<Box<dyn StoredFile>>,
    path: PathBuf,
    pub(super) number: u64,
    pub(super) header_len: u64,
    /// Bytes in the file.
    pub(super) written: u64,
    /// Bytes that no crash takes, as far as the policy has them synced.
    durable: u64,
    dirty: bool,
    /// Bytes were cut from the file, and a crash may bring them back.
    cut: bool,
    synced: Instant,
}

/// A sync that succeeded.
pub(super) struct Synced {
    pub(super) begun: Instant,
    pub(super) ended: Instant,
    pub(super) bytes: u64,
}

impl SegmentFile {
    /// Opens the last segment of the store, if it has one.
    pub(super) fn open(shared: &Shared) -> Result<Self> {
        let end = shared.state.lock().end;
        let path = shared.directory.path(end.segment);
        let file = match end.segment {
            0 => None,
            number => Some(shared.directory.open_for_writing(number)?),
        };
        // A killed process has left bytes that a crash may still take, and cuts that may
        // be undone. From here on readers see the bytes, this segment counts as whole once the next
        // one begins, and others are written in place of those cut.
        if let Some(file) = &file {
            file.sync_from(0).map_err(|failed| io("syncing", &path)(failed.error))?;
        }
        let state = shared.state.lock();
        Ok(Self {
            file,
            path,
            number: end.segment,
            header_len: state.segments.get(&end.segment).map_or(0, |segment| segment.header_len),
            written: end.offset,
            durable: end.offset,
            dirty: false,
            cut: false,
            synced: Instant::now(),
        })
    }

    /// Begins the segment with this number and header in place of the present one; `false` if the disk is full.
    pub(super) fn begin(
        &mut self,
        directory: &Directory,
        number: u64,
        header: &[u8],
    ) -> Result<bool> {
        let path = directory.path(number);
        let file = match directory.create(number, header) {
            Err(error) if is_full(&error) => return Ok(false),
            other => other.map_err(io("creating", &path))?,
        };
        // A crash from here on finds the segment by its name, with a complete header.
        directory.sync()?;
        let len = header.len() as u64;
        *self = Self {
            file: Some(file),
            path,
            number,
            header_len: len,
            written: len,
            durable: len,
            dirty: false,
            cut: false,
            synced: self.synced,
        };
        Ok(true)
    }

    /// Begins the segment with this number and length of its header without a file.
    pub(super) fn begin_in_memory(&mut self, directory: &Directory, number: u64, header_len: u64) {
        *self = Self {
            file: None,
            path: directory.path(number),
            number,
            header_len,
            written: header_len,
            durable: header_len,
            dirty: false,
            cut: false,
            synced: self.synced,
        };
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.number > 0 && self.file.is_none()
    }

    /// The segment was in memory; `file` has all of it, but for a crash.
    pub(super) fn is_written_to(&mut self, file: Box<dyn StoredFile>) {
        self.file = Some(file);
        self.dirty = self.written > self.durable;
    }

    pub(super) fn position(&self, offset: u64) -> RelayPosition {
        RelayPosition { segment: self.number, offset }
    }

    /// Appends `parts` and returns their offset; `None`, with nothing appended, if the disk is full.
    pub(super) fn append(&mut self, parts: &[&[u8]]) -> Result<Option<u64>> {
        let start = self.written;
        if self.is_in_memory() {
            self.written += parts.iter().map(|part| part.len() as u64).sum::<u64>();
            return Ok(Some(start));
        }
        let mut at = start;
        for part in parts {
            match self.file()?.write_all_at(part, at) {
                Ok(()) => at += part.len() as u64,
                Err(error) if is_full(&error) => {
                    // Gives back the space of the half-written part.
                    // No sync here, unlike where a transaction is abandoned: until then the next bytes
                    // in this place are the same ones.
                    self.cut(start)?;
                    return Ok(None);
                }
                Err(error) => return Err(self.failed("writing", error)),
            }
        }
        self.written = at;
        self.dirty = true;
        Ok(Some(start))
    }

    pub(super) fn cut(&mut self, to: u64) -> Result<()> {
        if self.is_in_memory() {
            self.written = to;
            return Ok(());
        }
        self.file()?.set_len(to).map_err(|error| self.failed("truncating", error))?;
        self.written = to;
        self.durable = self.durable.min(to);
        self.dirty = true;
        self.cut = true;
        Ok(())
    }

    /// Cuts off everything that is not durable.
    pub(super) fn cut_to_durable(&mut self) -> Result<()> {
        self.cut(self.durable)
    }

    /// Returns true if a crash may bring back bytes that were cut off.
    pub(super) fn has_cut(&self) -> bool {
        self.cut
    }

    /// Time until a sync every `interval` is due; `None` if there is nothing to sync.
    pub(super) fn sync_due(&self, interval: Duration) -> Option<Duration> {
        self.dirty.then(|| interval.saturating_sub(self.synced.elapsed()))
    }

    /// Syncs, unless everything is synced.
    pub(super) fn sync(&mut self) -> std::result::Result<Option<Synced>, SyncError> {
        let begun = Instant::now();
        self.synced = begun;
        let Some(file) = self.file.as_deref().filter(|_| self.dirty) else { return Ok(None) };
        if !is_planted(Bug::SyncIgnored) {
            file.sync_from(self.durable)?;
        }
        let bytes = self.written.saturating_sub(self.durable);
        self.durable = self.written;
        self.dirty = false;
        self.cut = false;
        self.synced = Instant::now();
        Ok(Some(Synced { begun, ended: self.synced, bytes }))
    }

    /// Names the file in an I/O error.
    pub(super) fn failed(&self, what: &'static str, error: std::io::Error) -> Error {
        io(what, &self.path)(error)
    }

    fn file(&self) -> Result<&dyn StoredFile> {
        let missing = || self.failed("writing", std::io::ErrorKind::NotFound.into());
        self.file.as_deref().ok_or_else(missing)
    }
}
