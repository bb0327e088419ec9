//! A compressed transaction: its events as one zstd stream
//! (<https://dev.mysql.com/doc/refman/en/binary-log-transaction-compression.html>).

use std::cell::RefCell;
use std::fmt;
use std::io::Read;

use bytes::{Buf, Bytes};
use zstd::bulk::Decompressor;

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
/// Payloads up to this size are decompressed whole: most transactions are small, and a stream has buffers of its own.
const WHOLE_BYTES: u64 = 64 << 10;
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
    /// event. Decompresses everything, and keeps nothing. It asks before each event whether anybody still
    /// wants to know.
    ///
    /// # Errors
    /// Those of reading the events.
    pub fn largest_event(&self, is_wanted: impl Fn() -> bool) -> Result<u64, EventError> {
        let mut events = self.clone().into_events();
        let mut largest = 0;
        while is_wanted()
            && let Some((_, size)) = events.next_header()?
        {
            events.inside.skip(size - EventHeader::LEN as u64)?;
            largest = largest.max(size);
        }
        Ok(largest)
    }

    /// The events inside, decompressed as they are read, or at once if they are few. They have no checksum: that of the
    /// outer event covers them.
    #[must_use]
    pub fn into_events(self) -> PayloadEvents {
        let inside = match self.compressed {
            false => Inside::Whole(self.payload),
            true => self.decompressed().map_or_else(|| Inside::stream(self.payload), Inside::Whole),
        };
        PayloadEvents { inside, declared: self.uncompressed_size, read: 0, failed: false }
    }

    /// Returns the bytes of a small payload; `None` if it is large, damaged or not as long as it declares, which a
    /// stream finds out where it is wrong.
    fn decompressed(&self) -> Option<Bytes> {
        thread_local! {
            // A context of zstd has 100 KiB, which a thread keeps.
            static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
        }
        if self.uncompressed_size > WHOLE_BYTES {
            return None;
        }
        let size = self.uncompressed_size as usize;
        let bytes = DECOMPRESSOR.with_borrow_mut(|kept| {
            if kept.is_none() {
                *kept = Some(Decompressor::new().ok()?);
            }
            kept.as_mut()?.decompress(&self.payload, size).ok()
        })?;
        (bytes.len() == size).then(|| bytes.into())
    }
}

/// The bytes of events that were not read yet.
enum Inside {
    Whole(Bytes),
    Stream(Box<dyn Read + Send>),
}

impl Inside {
    fn stream(payload: Bytes) -> Self {
        Self::Stream(match zstd::stream::read::Decoder::with_buffer(payload.reader()) {
            Ok(decoder) => Box::new(decoder),
            Err(error) => Box::new(Broken(Some(error))),
        })
    }

    fn has_more(&mut self) -> Result<bool, EventError> {
        match self {
            Self::Whole(rest) => Ok(!rest.is_empty()),
            Self::Stream(source) => {
                let more = source.read(&mut [0]).map_err(EventError::Decompress)?;
                Ok(more > 0)
            }
        }
    }

    /// Returns the header of an event; it has yet to be taken or skipped.
    fn header(&mut self) -> Result<[u8; EventHeader::LEN], EventError> {
        match self {
            Self::Whole(rest) => rest.first_chunk().copied().ok_or_else(cut_short),
            Self::Stream(source) => {
                let mut header = [0; EventHeader::LEN];
                source.read_exact(&mut header).map_err(EventError::Decompress)?;
                Ok(header)
            }
        }
    }

    /// Skips the event whose header was returned, and which has so many bytes after it.
    fn skip(&mut self, body: u64) -> Result<(), EventError> {
        match self {
            Self::Whole(rest) => {
                let size =
                    usize::try_from(body).unwrap_or(usize::MAX).saturating_add(EventHeader::LEN);
                match size <= rest.len() {
                    true => rest.advance(size),
                    false => return Err(cut_short()),
                }
            }
            Self::Stream(source) => {
                let skipped = std::io::copy(&mut source.take(body), &mut std::io::sink());
                if skipped.map_err(EventError::Decompress)? < body {
                    return Err(cut_short());
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of the event whose header was returned, `size` with it.
    fn event(&mut self, header: [u8; EventHeader::LEN], size: u64) -> Result<Bytes, EventError> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        match self {
            Self::Whole(rest) => match size <= rest.len() {
                true => Ok(rest.split_to(size)),
                false => Err(cut_short()),
            },
            Self::Stream(source) => {
                // A length is only a claim: beyond a limit memory grows with the bytes that really come.
                let mut bytes = vec![0; size.min(BYTES_AT_ONCE)];
                let (head, body) = bytes.split_at_mut(EventHeader::LEN);
                head.copy_from_slice(&header);
                source.read_exact(body).map_err(EventError::Decompress)?;
                if bytes.len() < size {
                    let rest = (size - bytes.len()) as u64;
                    let read = source.take(rest).read_to_end(&mut bytes);
                    if (read.map_err(EventError::Decompress)? as u64) < rest {
                        return Err(cut_short());
                    }
                }
                Ok(bytes.into())
            }
        }
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
    inside: Inside,
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
        // The bytes have to end where they declare: more of them would be events that nobody applies.
        if self.read == self.declared {
            return match self.inside.has_more()? {
                false => Ok(None),
                true => Err(EventError::PayloadTooLong(self.declared)),
            };
        }
        let header = self.inside.header()?;
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
        let bytes = self.inside.event(header, size)?;
        RawEvent::trusted(bytes, ChecksumAlgorithm::Off).map(Some)
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
