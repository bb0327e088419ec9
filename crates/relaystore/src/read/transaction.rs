use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use csa_provider::binlog::{
    ChecksumAlgorithm, EventHeader, FormatDescription, RawEvent, TransactionHeader,
};
use csa_provider::seams::planted::{Bug, is_planted};

use crate::disk::error::{Error, Result, io};
use crate::disk::fs::{FileSystem, StoredFile};
use crate::disk::segment::RelayPosition;
use crate::disk::segment::{FRAME_HEADER_LEN, FrameHeader, verify_frame};
use crate::state::follow::{Followed, Outcome};

/// A transaction in the relay store: whole, unless its body is [`TransactionBody::Followed`].
#[derive(Debug, Clone)]
pub struct RelayedTransaction {
    pub header: TransactionHeader,
    /// The layout of its events.
    pub format: Arc<FormatDescription>,
    pub start: RelayPosition,
    /// Of one that was not whole when it was read, its beginning; see [`Self::extent`].
    pub end: RelayPosition,
    /// Its number among all transactions that the channel ever received into this store, from 1.
    pub ordinal: u64,
    /// Bytes of its events, as the source sent them.
    pub event_bytes: u64,
    /// Event bytes of everything up to and including it.
    pub cumulative_bytes: u64,
    pub body: TransactionBody,
}

/// The place of a transaction's events.
#[derive(Debug, Clone)]
pub enum TransactionBody {
    /// In memory: runs of whole events.
    Whole(Vec<Bytes>),
    /// The transaction stays in the segment: it is too large to hold.
    Streamed(RelayRange),
    /// In the segment as far as it was received; the end of the range means nothing.
    Followed(RelayRange, Arc<Followed>),
}

/// The place where a whole transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub end: RelayPosition,
    /// Bytes of its events, and of everything up to it.
    pub event_bytes: u64,
    pub cumulative_bytes: u64,
}

/// A transaction's frames in a segment file.
#[derive(Debug, Clone)]
pub struct RelayRange {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) path: PathBuf,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl RelayRange {
    fn open(&self) -> Result<Box<dyn StoredFile>> {
        self.fs.open(&self.path).map_err(io("opening", &self.path))
    }
}

impl RelayedTransaction {
    /// Returns the events in order, from the GTID event to the last one.
    ///
    /// Of a streamed transaction one frame is in memory at a time; reading it blocks on the disk.
    #[must_use]
    pub fn events(&self) -> EventCursor {
        let (runs, range) = match &self.body {
            TransactionBody::Whole(runs) => (runs.clone(), None),
            TransactionBody::Streamed(range) | TransactionBody::Followed(range, _) => {
                (Vec::new(), Some(range.clone()))
            }
        };
        EventCursor {
            runs: runs.into_iter(),
            run: Bytes::new(),
            checksum: self.format.checksum(),
            range,
            followed: self.followed().cloned(),
            file: None,
            transaction: self.start,
        }
    }

    /// Returns its reception, if it was not whole when it was read.
    #[must_use]
    pub fn followed(&self) -> Option<&Arc<Followed>> {
        match &self.body {
            TransactionBody::Followed(_, followed) => Some(followed),
            TransactionBody::Whole(_) | TransactionBody::Streamed(_) => None,
        }
    }

    /// True if it was not whole when it was read, and what was read of it counts for nothing now.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.followed().is_some_and(|followed| followed.is_lost())
    }

    /// Its end, as far as it is known now: of one that is still being received, its beginning.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let Self { end, event_bytes, cumulative_bytes, .. } = *self;
        match self.followed().map(|followed| (followed.seen(), followed.event_bytes())) {
            Some((seen, bytes)) if seen.outcome == Outcome::Whole => Extent {
                end: RelayPosition { offset: seen.end, ..end },
                event_bytes: bytes,
                cumulative_bytes: cumulative_bytes - event_bytes + bytes,
            },
            _ => Extent { end, event_bytes, cumulative_bytes },
        }
    }

    /// Returns the bytes of it that are in memory at a time: all of a transaction held in memory,
    /// the longest frame of a streamed one, found by reading its frame headers.
    ///
    /// # Errors
    /// The segment can't be read, or is damaged.
    pub fn bytes_at_a_time(&self) -> Result<u64> {
        let longest = self.longest_frame();
        if self.is_cut_off() { Err(Error::CutOff) } else { longest }
    }

    fn longest_frame(&self) -> Result<u64> {
        let (range, end) = match &self.body {
            TransactionBody::Whole(_) => return Ok(self.event_bytes),
            TransactionBody::Streamed(range) => (range, range.end),
            // So far.
            TransactionBody::Followed(range, followed) => (range, followed.seen().end),
        };
        let file = range.open()?;
        let (mut at, mut longest) = (range.start, 0);
        while at < end {
            let mut head = [0; FRAME_HEADER_LEN];
            file.read_exact_at(&mut head, at).map_err(io("reading", &range.path))?;
            let header = FrameHeader::parse(&head).map_err(|_| Error::Damaged {
                path: range.path.clone(),
                offset: at,
                what: "frame header",
                transaction: self.start,
            })?;
            longest = longest.max(header.frame_len() as u64);
            at += header.frame_len() as u64;
        }
        Ok(longest)
    }
}

/// Iterates over a transaction's events; ends at the first error. Of one that is still being received it
/// ends for now, and continues once more of it is written.
#[derive(Debug)]
pub struct EventCursor {
    runs: std::vec::IntoIter<Bytes>,
    run: Bytes,
    checksum: ChecksumAlgorithm,
    range: Option<RelayRange>,
    followed: Option<Arc<Followed>>,
    file: Option<Box<dyn StoredFile>>,
    transaction: RelayPosition,
}

impl EventCursor {
    fn next_event(&mut self) -> Result<Option<RawEvent>> {
        while self.run.is_empty() {
            match self.runs.next() {
                Some(run) => self.run = run,
                None => match self.read_frame()? {
                    Some(run) => self.run = run,
                    None => return Ok(None),
                },
            }
        }
        // Events do not span frames, so one that is longer than its run is damage.
        let size = EventHeader::parse(&self.run).map_or(0, |header| header.event_size as usize);
        if size < EventHeader::LEN || size > self.run.len() {
            return Err(self.damaged("event length"));
        }
        let event = RawEvent::trusted(self.run.split_to(size), self.checksum);
        event.map(Some).map_err(|_| self.damaged("event header"))
    }

    fn read_frame(&mut self) -> Result<Option<Bytes>> {
        let Some(followed) = self.followed.clone() else { return self.read_next_frame() };
        let seen = followed.seen();
        if seen.outcome == Outcome::Lost {
            return cut_off();
        }
        if let Some(range) = self.range.as_mut() {
            range.end = seen.end;
        }
        let read = self.read_next_frame();
        // Whatever was read, and whatever is wrong with it: others may be in its place by now.
        match followed.is_lost() {
            true => cut_off(),
            false => read,
        }
    }

    fn read_next_frame(&mut self) -> Result<Option<Bytes>> {
        let Some(range) = self.range.as_mut() else { return Ok(None) };
        if range.start >= range.end {
            return Ok(None);
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(range.open()?),
        };
        let read = io("reading", &range.path);
        let mut head = [0; FRAME_HEADER_LEN];
        file.read_exact_at(&mut head, range.start).map_err(read)?;
        let Ok(header) = FrameHeader::parse(&head) else {
            return Err(self.damaged("frame header"));
        };
        // Nothing of this length is read before it is known that there is memory for it.
        if let Some(followed) = &self.followed
            && header.frame_len() as u64 > followed.frame_limit()
        {
            followed.refuse();
            return Err(Error::CutOff);
        }
        let mut frame = BytesMut::zeroed(header.frame_len());
        file.read_exact_at(&mut frame, range.start).map_err(io("reading", &range.path))?;
        range.start += frame.len() as u64;
        if let Err(error) = verify_frame(&header, &frame) {
            return Err(self.damaged(error.0));
        }
        Ok(Some(frame.freeze().slice(FRAME_HEADER_LEN + header.metadata_len..)))
    }

    fn damaged(&self, what: &'static str) -> Error {
        let (path, offset) =
            self.range.as_ref().map_or_else(Default::default, |r| (r.path.clone(), r.start));
        Error::Damaged { path, offset, what, transaction: self.transaction }
    }
}

/// Nothing more will come, and nothing that came counts.
fn cut_off<T>() -> Result<Option<T>> {
    if is_planted(Bug::LostPartCommitted) {
        return Ok(None);
    }
    Err(Error::CutOff)
}

impl Iterator for EventCursor {
    type Item = Result<RawEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_event();
        if next.is_err() {
            self.run = Bytes::new();
            self.runs = Vec::new().into_iter();
            self.range = None;
        }
        next.transpose()
    }
}
