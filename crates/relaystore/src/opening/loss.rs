//! Segments of an open store that the disk has lost. Readers learn it only from an error, and would learn the same for as
//! long as the store is open, because its segments are known from memory.

use std::io::ErrorKind;

use csa_provider::binlog::GtidSet;
use rustix::io::Errno;
use tracing::warn;

use super::store::RelayStore;
use crate::disk::error::{Error, Result, io};
use crate::disk::segment::RelayPosition;
use crate::state::segments::{received_before, released};

/// Bytes of a doubtful segment that are read at a time.
const READ: usize = 1 << 20;

/// The first segment that can't be read any more. It and all later ones have to be fetched again.
#[derive(Debug)]
pub struct Loss {
    /// The place from which on [`RelayStore::discard_from`] cuts the closed store.
    pub position: RelayPosition,
    /// Everything received before it.
    pub before: GtidSet,
    pub error: Error,
}

impl RelayStore {
    /// Notes the segment at which a reader met an error: [`Self::loss`] reads all of it.
    pub fn doubt(&self, error: &Error) {
        let number = self.segment_of(error).map(|(number, _)| number);
        self.doubtful.lock().extend(number);
    }

    /// Returns the error of a reader as damage of the whole segment, if that can't be read again. An archive needs segments
    /// that the target has passed, among which [`Self::loss`] does not look.
    ///
    /// Blocks on the disk.
    #[must_use]
    pub fn as_damage(&self, error: Error) -> Error {
        let Some((number, len)) = self.segment_of(&error) else { return error };
        let again = self.look(number, len);
        let is_lost = again.is_err_and(|again| is_of_the_disk(&again));
        // It may have been purged meanwhile.
        if !is_lost || !self.shared.state.lock().segments.contains_key(&number) {
            return error;
        }
        warn!(%error, "a segment of the relay store is lost");
        Error::Damaged {
            path: self.shared.directory.path(number),
            offset: 0,
            what: "it is gone, or the disk can't read it",
            transaction: RelayPosition { segment: number, offset: 0 },
        }
    }

    /// Returns the segment at which a reader met an error, and its bytes that are written.
    fn segment_of(&self, error: &Error) -> Option<(u64, u64)> {
        let Error::Io { path, .. } = error else { return None };
        let state = self.shared.state.lock();
        let is_it = |number: u64| self.shared.directory.path(number) == *path;
        let (&number, segment) = state.segments.iter().find(|&(&number, _)| is_it(number))?;
        Some((number, state.written_len(number, segment)))
    }

    /// Looks for a lost segment among those after `executed`: one without its file, or a doubtful one that can't be read
    /// again. An error that says nothing about the disk, such as a lack of descriptors, is no loss.
    ///
    /// Blocks on the disk.
    pub fn loss(&self, executed: &GtidSet) -> Option<Loss> {
        let doubtful = std::mem::take(&mut *self.doubtful.lock());
        let needed: Vec<(u64, u64)> = {
            let state = self.shared.state.lock();
            let first = released(&state.segments, state.end, &state.received, executed).segment;
            let files = state.segments.range(first..).filter(|(_, it)| it.unwritten.is_none());
            files.map(|(&number, segment)| (number, state.written_len(number, segment))).collect()
        };
        for (number, len) in needed {
            let is_doubtful = doubtful.contains(&number);
            let Err(error) = self.look(number, if is_doubtful { len } else { 0 }) else { continue };
            let is_lost = is_of_the_disk(&error);
            let state = self.shared.state.lock();
            // It may have been purged meanwhile.
            if is_lost && state.segments.contains_key(&number) {
                let before = received_before(&state.segments, number);
                drop(state);
                // Until the store is closed, whoever asks gets the same answer.
                self.doubtful.lock().extend(doubtful);
                let position = RelayPosition { segment: number, offset: 0 };
                return Some(Loss { position, before, error });
            }
            drop(state);
            if is_doubtful {
                self.doubtful.lock().insert(number);
            }
        }
        None
    }

    /// Opens a segment and reads its first `len` bytes.
    fn look(&self, number: u64, len: u64) -> Result<()> {
        let directory = &self.shared.directory;
        let file = directory.open(number)?;
        let mut bytes = vec![0; READ];
        let mut at = 0;
        while at < len {
            let part = usize::try_from(len - at).unwrap_or(READ).min(READ);
            let read = file.read_exact_at(&mut bytes[..part], at);
            read.map_err(io("reading", directory.path(number)))?;
            at += part as u64;
        }
        Ok(())
    }
}

/// Returns true for an error that another attempt meets as well: the file is gone or too short, or the disk can't read it.
fn is_of_the_disk(error: &Error) -> bool {
    let Error::Io { source: error, .. } = error else { return false };
    let lasting = [Errno::IO, Errno::BADMSG, Errno::NODATA, Errno::UCLEAN];
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
        || lasting.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
