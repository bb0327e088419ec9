//! Reads a store from outside, while a daemon writes it or while none has it open.

use std::io::{BufReader, ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

use csa_provider::binlog::{FormatDescription, GtidSet};

use crate::disk::directory::SegmentFiles;
use crate::disk::error::{Error, Result, io};
use crate::disk::fs::{FileSystem, Stream};
use crate::disk::options::RelayStoreOptions;
use crate::disk::segment::RelayPosition;
use crate::disk::segment::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, HeaderError, SegmentHeader, decode_metadata,
    verify_frame,
};
use crate::read::recovery::read_header;
use crate::read::transaction::{RelayRange, RelayedTransaction, TransactionBody};

const READ_AHEAD: usize = 256 << 10;
const SHORT: &str = "frame ends beyond its segment";

/// Facts about one segment.
#[derive(Debug, Clone)]
pub struct SegmentFacts {
    pub number: u64,
    pub path: PathBuf,
    /// Bytes of the file.
    pub bytes: u64,
    /// Whole transactions in it, and bytes of their events.
    pub transactions: u64,
    pub event_bytes: u64,
    pub gtid_set: GtidSet,
}

/// Reads whole transactions in the order in which they were received, without locks and without
/// changing anything. Segments purged meanwhile are skipped; a transaction still being written at
/// the end is left out. Blocks on the disk.
#[derive(Debug)]
pub struct RelayInspector {
    files: SegmentFiles,
    numbers: std::vec::IntoIter<u64>,
    open: Option<OpenSegment>,
}

#[derive(Debug)]
struct OpenSegment {
    number: u64,
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    file: BufReader<Stream>,
    header: SegmentHeader,
    /// Everything received before it.
    previous: GtidSet,
    offset: u64,
    len: u64,
    format: Option<Arc<FormatDescription>>,
    ordinal: u64,
    cumulative_bytes: u64,
    /// Other segments follow, so this one is complete.
    closed: bool,
}

/// A frame without its body.
struct Frame {
    header: FrameHeader,
    /// Metadata of a first frame, or a format description.
    head: Vec<u8>,
}

impl RelayInspector {
    /// Returns a directory that is missing holds nothing.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn open(options: &RelayStoreOptions) -> Result<Self> {
        let files = SegmentFiles::of(options);
        let numbers = match files.numbers() {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        Ok(Self { files, numbers: numbers.into_iter(), open: None })
    }

    /// Returns true if there is no segment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.len() == 0
    }

    /// Returns all segments, oldest first, as their headers tell them. Only the last one is read to its end.
    ///
    /// # Errors
    /// [`Error::Damaged`] if bytes that it reads differ from those written; the disk fails.
    pub fn segments(mut self) -> Result<Vec<SegmentFacts>> {
        let mut facts = Vec::new();
        self.next_segment()?;
        while let Some(segment) = self.open.take() {
            self.next_segment()?;
            facts.push(segment.facts(self.open.as_ref())?);
        }
        Ok(facts)
    }

    fn next_segment(&mut self) -> Result<bool> {
        while let Some(number) = self.numbers.next() {
            // Only the last segment may still grow.
            let closed = self.numbers.len() > 0;
            if let Some(segment) = OpenSegment::open(&self.files, number, closed)? {
                self.open = Some(segment);
                return Ok(true);
            }
        }
        self.open = None;
        Ok(false)
    }

    fn next_transaction(&mut self) -> Result<Option<RelayedTransaction>> {
        loop {
            if let Some(segment) = self.open.as_mut()
                && let Some(transaction) = segment.next()?
            {
                return Ok(Some(transaction));
            }
            if !self.next_segment()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for RelayInspector {
    type Item = Result<RelayedTransaction>;

    /// Bodies are [`TransactionBody::Streamed`]; reading them verifies their checksums.
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_transaction();
        if next.is_err() {
            self.numbers = Vec::new().into_iter();
            self.open = None;
        }
        next.transpose()
    }
}

impl OpenSegment {
    /// `None` if the segment was purged, or its header is not written yet.
    fn open(files: &SegmentFiles, number: u64, closed: bool) -> Result<Option<Self>> {
        let path = files.path(number);
        let is_gone = |error: &Error| matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound);
        let file = match files.open(number) {
            Err(error) if is_gone(&error) => return Ok(None),
            other => other?,
        };
        let segment = match read_header(&*file, &path)? {
            Ok(segment) => segment,
            Err(HeaderError::Version(version)) => return Err(Error::Version { path, version }),
            Err(HeaderError::Damaged(_)) if !closed => return Ok(None),
            Err(HeaderError::Damaged(what)) => {
                let transaction = RelayPosition { segment: number, offset: 0 };
                return Err(Error::Damaged { path, offset: 0, what, transaction });
            }
        };
        let file = Stream::new(file, segment.header_len);
        Ok(Some(Self {
            number,
            fs: Arc::clone(files.fs()),
            file: BufReader::with_capacity(READ_AHEAD, file),
            offset: segment.header_len,
            len: segment.len,
            format: segment.header.format.clone().map(Arc::new),
            ordinal: segment.header.transactions_before,
            cumulative_bytes: segment.header.bytes_before,
            header: segment.header,
            previous: segment.grown,
            closed,
            path,
        }))
    }

    /// Returns the facts about it, as the header of the next segment tells them.
    fn facts(mut self, next: Option<&Self>) -> Result<SegmentFacts> {
        let told = next.filter(|next| next.number == self.number + 1).map(|next| {
            let (own, next, grown) =
                (&self.header, &next.header, next.previous.difference(&self.previous));
            let transactions = next.transactions_before.saturating_sub(own.transactions_before);
            (transactions, next.bytes_before.saturating_sub(own.bytes_before), grown)
        });
        // A set that grew by something else may have what only the target had.
        let told = told.filter(|(transactions, _, grown)| grown.count() == *transactions);
        let (transactions, event_bytes, gtid_set) = match told {
            Some(told) => told,
            None => self.count()?,
        };
        let bytes = self.file.get_ref().file.size().map_err(io("reading", &self.path))?;
        let Self { number, path, .. } = self;
        Ok(SegmentFacts { number, path, bytes, transactions, event_bytes, gtid_set })
    }

    /// Reads all of it, for its transactions, bytes of their events, and their GTIDs.
    fn count(&mut self) -> Result<(u64, u64, GtidSet)> {
        let mut gtid_set = GtidSet::new();
        while let Some(transaction) = self.next()? {
            gtid_set.add(&transaction.header.gtid);
        }
        let transactions = self.ordinal - self.header.transactions_before;
        Ok((transactions, self.cumulative_bytes - self.header.bytes_before, gtid_set))
    }

    fn next(&mut self) -> Result<Option<RelayedTransaction>> {
        loop {
            let start = self.offset;
            let Some(frame) = self.frame()? else { return Ok(None) };
            match frame.header.kind {
                FrameKind::FormatDescription => {
                    let Ok(format) = FormatDescription::parse(frame.head.into()) else {
                        return self.end(start, "format description");
                    };
                    self.format = Some(Arc::new(format));
                }
                FrameKind::Transaction { first: true, last } => {
                    return self.transaction(start, &frame, last);
                }
                FrameKind::Transaction { first: false, .. } => {
                    return self.end(start, "transaction without a beginning");
                }
            }
        }
    }

    fn transaction(
        &mut self,
        start: u64,
        first: &Frame,
        mut last: bool,
    ) -> Result<Option<RelayedTransaction>> {
        let Ok(header) = decode_metadata(&first.head) else {
            return self.end(start, "transaction metadata");
        };
        let mut event_bytes = (first.header.body_len - first.header.metadata_len) as u64;
        while !last {
            let Some(next) = self.frame()? else {
                return self.end(start, "transaction without an end");
            };
            let FrameKind::Transaction { first: false, last: ends } = next.header.kind else {
                return self.end(start, "transaction without an end");
            };
            event_bytes += next.header.body_len as u64;
            last = ends;
        }
        let Some(format) = self.format.clone() else {
            return self.end(start, "transaction without a format description");
        };
        self.ordinal += 1;
        self.cumulative_bytes += event_bytes;
        let position = |offset| RelayPosition { segment: self.number, offset };
        Ok(Some(RelayedTransaction {
            header,
            format,
            start: position(start),
            end: position(self.offset),
            ordinal: self.ordinal,
            event_bytes,
            cumulative_bytes: self.cumulative_bytes,
            body: TransactionBody::Streamed(RelayRange {
                fs: Arc::clone(&self.fs),
                path: self.path.clone(),
                start,
                end: self.offset,
            }),
        }))
    }

    /// Returns the frame at the offset; `None` at the end of the written bytes.
    fn frame(&mut self) -> Result<Option<Frame>> {
        let start = self.offset;
        let mut bytes = vec![0; FRAME_HEADER_LEN];
        if !self.read(&mut bytes)? {
            // No limit for the last segment, which may have grown since it was opened.
            return if start == self.len { Ok(None) } else { self.end(start, SHORT) };
        }
        let header = match FrameHeader::parse(&bytes) {
            Ok(header) => header,
            Err(error) => return self.end(start, error.0),
        };
        let whole = header.kind == FrameKind::FormatDescription;
        let head = if whole { header.body_len } else { header.metadata_len };
        bytes.resize(FRAME_HEADER_LEN + head, 0);
        if !self.read(bytes.get_mut(FRAME_HEADER_LEN..).unwrap_or_default())? {
            return self.end(start, SHORT);
        }
        // The checksum of any other frame covers a body that is passed over here; reading the
        // events checks it.
        if whole && let Err(error) = verify_frame(&header, &bytes) {
            return self.end(start, error.0);
        }
        // The last byte shows that the rest is there.
        if let Some(rest) = (header.body_len - head).checked_sub(1) {
            self.file.seek_relative(rest as i64).map_err(io("reading", &self.path))?;
            if !self.read(&mut [0])? {
                return self.end(start, SHORT);
            }
        }
        self.offset = start + header.frame_len() as u64;
        Ok(Some(Frame { header, head: bytes.split_off(FRAME_HEADER_LEN) }))
    }

    fn read(&mut self, into: &mut [u8]) -> Result<bool> {
        match self.file.read_exact(into) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            other => other.map(|()| true).map_err(io("reading", &self.path)),
        }
    }

    /// Handles bytes that can't be read: in the last segment they are still being written,
    /// elsewhere they are damaged.
    fn end<T>(&self, start: u64, what: &'static str) -> Result<Option<T>> {
        if !self.closed {
            return Ok(None);
        }
        Err(Error::Damaged {
            path: self.path.clone(),
            offset: start,
            what,
            transaction: RelayPosition { segment: self.number, offset: start },
        })
    }
}

#[cfg(test)]
mod tests;
