//! A compressed transaction: its events as one zstd stream
//! (<https://dev.mysql.com/doc/refman/en/binary-log-transaction-compression.html>).

use std::fmt;
use std::io::Read;

use bytes::{Buf, Bytes};

use super::{ChecksumAlgorithm, EventError, EventHeader, EventType, RawEvent};
use crate::binlog::bytes_reader::{Malformed, Reader};

const FIELD_END: u64 = 0;
const FIELD_SIZE: u64 = 1;
const FIELD_COMPRESSION: u64 = 2;
const FIELD_UNCOMPRESSED_SIZE: u64 = 3;
/// The protocol's limit for an event.
const EVENT_BYTES_MAX: u64 = 1 << 30;
/// Memory allocated for an event before any of it is decompressed.
const BYTES_AT_ONCE: usize = 1 << 20;
const ZSTD: u64 = 0;
const NONE: u64 = 255;

/// A payload event's parts; the events inside stay compressed until they are read.
#[derive(Debug, Clone)]
pub struct TransactionPayload {
    compressed: bool,
    uncompressed_size: u64,
    payload: Bytes,
}

impl TransactionPayload {
    /// Reads a transaction payload event.
    ///
    /// # Errors
    /// Malformed bytes, an unknown field or compression.
    pub fn parse(event: &RawEvent) -> Result<Self, EventError> {
        let malformed = |source| EventError::Malformed { event: "Transaction_payload", source };
        if event.event_type() != EventType::TRANSACTION_PAYLOAD {
            return Err(malformed(Malformed { what: "not a payload event", offset: 0 }));
        }
        let mut reader = Reader::new(event.body());
        let mut size = None;
        let mut compression = None;
        let mut uncompressed_size = None;
        loop {
            let field = reader.length_encoded("payload field").map_err(malformed)?;
            if field == FIELD_END {
                break;
            }
            let len = reader.length_encoded("payload field length").map_err(malformed)?;
            let value = reader
                .take(usize::try_from(len).unwrap_or(usize::MAX), "payload field")
                .map_err(malformed)?;
            let value = Reader::new(value).length_encoded("payload field").map_err(malformed)?;
            match field {
                FIELD_SIZE => size = Some(value),
                FIELD_COMPRESSION => compression = Some(value),
                FIELD_UNCOMPRESSED_SIZE => uncompressed_size = Some(value),
                unknown => return Err(EventError::UnknownPayloadField(unknown)),
            }
        }
        let start = EventHeader::LEN + reader.offset();
        let rest = reader.remaining() as u64;
        if size != Some(rest) {
            return Err(malformed(reader.malformed("payload size")));
        }
        let compressed = match compression {
            Some(ZSTD) => true,
            Some(NONE) => false,
            other => return Err(EventError::UnknownCompression(other.unwrap_or(u64::MAX))),
        };
        let uncompressed_size = match (compressed, uncompressed_size) {
            (_, Some(size)) => size,
            (false, None) => rest,
            (true, None) => return Err(malformed(reader.malformed("uncompressed size"))),
        };
        let end = event.len() - event.checksum_len();
        Ok(Self { compressed, uncompressed_size, payload: event.bytes().slice(start..end) })
    }

    /// Returns the bytes of the events inside.
    #[must_use]
    pub const fn uncompressed_size(&self) -> u64 {
        self.uncompressed_size
    }

    /// Returns the bytes of the largest event inside, which is the memory for reading it event by
    /// event. Decompresses everything, and keeps nothing.
    ///
    /// # Errors
    /// Those of reading the events.
    pub fn largest_event(&self) -> Result<u64, EventError> {
        let mut events = self.clone().into_events();
        let mut largest = 0;
        while let Some((_, size)) = events.next_header()? {
            let body = &mut (&mut events.source).take(size - EventHeader::LEN as u64);
            let skipped = std::io::copy(body, &mut std::io::sink());
            if skipped.map_err(EventError::Decompress)? + (EventHeader::LEN as u64) < size {
                return Err(cut_short());
            }
            largest = largest.max(size);
        }
        Ok(largest)
    }

    /// The events inside, decompressed as they are read. They have no checksum: that of the outer
    /// event covers them.
    #[must_use]
    pub fn into_events(self) -> PayloadEvents {
        let source: Box<dyn Read + Send> = if self.compressed {
            match zstd::stream::read::Decoder::with_buffer(self.payload.reader()) {
                Ok(decoder) => Box::new(decoder),
                Err(error) => Box::new(Broken(Some(error))),
            }
        } else {
            Box::new(self.payload.reader())
        };
        PayloadEvents { source, declared: self.uncompressed_size, read: 0, failed: false }
    }
}

/// A decoder that could not be created; the first read returns the error.
struct Broken(Option<std::io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Iterator over the events of a payload; ends at the first error.
pub struct PayloadEvents {
    source: Box<dyn Read + Send>,
    declared: u64,
    read: u64,
    failed: bool,
}

impl fmt::Debug for PayloadEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadEvents")
            .field("declared", &self.declared)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl PayloadEvents {
    /// Returns the next event's header and length, which counts as read.
    fn next_header(&mut self) -> Result<Option<([u8; EventHeader::LEN], u64)>, EventError> {
        // The stream has to end where it declares: more bytes would be events that nobody applies.
        if self.read == self.declared {
            let mut beyond = [0];
            let more = self.source.read(&mut beyond).map_err(EventError::Decompress)?;
            return if more == 0 {
                Ok(None)
            } else {
                Err(EventError::PayloadTooLong(self.declared))
            };
        }
        let mut header = [0; EventHeader::LEN];
        self.source.read_exact(&mut header).map_err(EventError::Decompress)?;
        let parsed = EventHeader::parse(&header)
            .map_err(|source| EventError::Malformed { event: "embedded", source })?;
        let size = u64::from(parsed.event_size);
        // The declared total limits the memory that a damaged length can make us allocate.
        if size < EventHeader::LEN as u64 || self.read + size > self.declared {
            return Err(EventError::PayloadTooLong(self.declared));
        }
        if size > EVENT_BYTES_MAX {
            return Err(EventError::EmbeddedTooLong(size));
        }
        self.read += size;
        Ok(Some((header, size)))
    }

    fn next_event(&mut self) -> Result<Option<RawEvent>, EventError> {
        let Some((header, size)) = self.next_header()? else { return Ok(None) };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // A length is only a claim: beyond a limit memory grows with the bytes that really come.
        let mut bytes = vec![0; size.min(BYTES_AT_ONCE)];
        let (head, body) = bytes.split_at_mut(EventHeader::LEN);
        head.copy_from_slice(&header);
        self.source.read_exact(body).map_err(EventError::Decompress)?;
        if bytes.len() < size {
            let rest = (size - bytes.len()) as u64;
            let read = (&mut self.source).take(rest).read_to_end(&mut bytes);
            if (read.map_err(EventError::Decompress)? as u64) < rest {
                return Err(cut_short());
            }
        }
        RawEvent::trusted(bytes.into(), ChecksumAlgorithm::Off).map(Some)
    }
}

fn cut_short() -> EventError {
    EventError::Decompress(std::io::ErrorKind::UnexpectedEof.into())
}

impl Iterator for PayloadEvents {
    type Item = Result<RawEvent, EventError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_event();
        self.failed = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
