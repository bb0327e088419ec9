//! Segments of an open store that the disk has lost. Readers learn it only from an error, and would learn the same for as
//! long as the store is open, because its segments are known from memory.

use std::io::{self, ErrorKind};

use csa_provider::binlog::GtidSet;
use rustix::io::Errno;

use super::store::RelayStore;
use crate::disk::error::{Error, Result, io};
use crate::disk::segment::RelayPosition;
use crate::state::segments::released;

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
        let Error::Io { path, .. } = error else { return };
        let state = self.shared.state.lock();
        let number =
            state.segments.keys().find(|&&number| self.shared.directory.path(number) == *path);
        self.doubtful.lock().extend(number);
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
            let end = state.end;
            // Beyond the visible end more is being written.
            let len = |number, len| if number == end.segment { end.offset } else { len };
            files.map(|(&number, segment)| (number, len(number, segment.len))).collect()
        };
        for (number, len) in needed {
            let is_doubtful = doubtful.contains(&number);
            let Err(error) = self.look(number, if is_doubtful { len } else { 0 }) else { continue };
            let is_lost = matches!(&error, Error::Io { source, .. } if is_of_the_disk(source));
            let state = self.shared.state.lock();
            // It may have been purged meanwhile.
            if let Some(segment) = state.segments.get(&number).filter(|_| is_lost) {
                let before = segment.header.previous.clone();
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
fn is_of_the_disk(error: &io::Error) -> bool {
    let lasting = [Errno::IO, Errno::BADMSG, Errno::NODATA, Errno::UCLEAN];
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
        || lasting.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
