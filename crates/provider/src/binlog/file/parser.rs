//! Takes a binary log file apart as its bytes arrive.

use bytes::{Buf as _, Bytes, BytesMut};

use super::{ENCRYPTED_MAGIC, MAGIC};
use crate::binlog::bytes_reader::Malformed;
use crate::binlog::event::{
    ChecksumAlgorithm, EventError, EventHeader, EventType, FormatDescription, RawEvent,
};
use crate::binlog::gtid::GtidSet;

/// An event of a file.
#[derive(Debug)]
pub enum FileEvent {
    /// The layout of the events after it.
    Format(FormatDescription),
    /// The transactions before the file.
    Previous(GtidSet),
    Event(RawEvent),
}

/// The reason bytes are not a binary log file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BinlogFileError {
    #[error("it does not begin as a binary log file does")]
    Magic,
    #[error(
        "it is encrypted (binlog_encryption); fetch it from the server with mysqlbinlog \
         --read-from-remote-server --raw, which writes it as plain bytes"
    )]
    Encrypted,
    #[error("event at {at}: {source}")]
    Event {
        at: u64,
        #[source]
        source: EventError,
    },
    #[error("{event} event at {at} before a format description")]
    NoFormat { event: &'static str, at: u64 },
    #[error("it ends inside an event at {at}")]
    Short { at: u64 },
}

/// Follows one file. Bytes go in as they arrive, and whole events come out.
#[derive(Debug, Default)]
pub struct BinlogFileParser {
    buffer: BytesMut,
    /// The offset of the buffer's first byte in the file.
    position: u64,
    checksum: Option<ChecksumAlgorithm>,
}

impl BinlogFileParser {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next event, with its checksum verified; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are those of no file that this version reads.
    pub fn next_event(&mut self) -> Result<Option<FileEvent>, BinlogFileError> {
        if self.position == 0 && !self.pass_magic()? {
            return Ok(None);
        }
        let at = self.position;
        let Some(bytes) = self.take_event()? else { return Ok(None) };
        let wrong = |source| BinlogFileError::Event { at, source };
        let code = bytes.get(EventHeader::EVENT_TYPE_OFFSET).copied().unwrap_or_default();
        if EventType(code) == EventType::FORMAT_DESCRIPTION {
            let format = FormatDescription::parse(bytes).map_err(wrong)?;
            self.checksum = Some(format.checksum());
            return Ok(Some(FileEvent::Format(format)));
        }
        let Some(checksum) = self.checksum else {
            return Err(BinlogFileError::NoFormat { event: EventType(code).name(), at });
        };
        let event = RawEvent::parse(bytes, checksum).map_err(wrong)?;
        if event.event_type() == EventType::PREVIOUS_GTIDS {
            let set = GtidSet::decode(event.body()).map_err(|source| {
                wrong(EventError::Malformed { event: event.event_type().name(), source })
            })?;
            return Ok(Some(FileEvent::Previous(set)));
        }
        Ok(Some(FileEvent::Event(event)))
    }

    /// Checks that the file ends after a whole event.
    ///
    /// # Errors
    /// [`BinlogFileError::Short`].
    pub fn finish(&self) -> Result<(), BinlogFileError> {
        match self.position > 0 && self.buffer.is_empty() {
            true => Ok(()),
            false => Err(BinlogFileError::Short { at: self.position }),
        }
    }

    fn pass_magic(&mut self) -> Result<bool, BinlogFileError> {
        let Some(magic) = self.buffer.get(..MAGIC.len()) else { return Ok(false) };
        if magic == ENCRYPTED_MAGIC {
            return Err(BinlogFileError::Encrypted);
        }
        if magic != MAGIC {
            return Err(BinlogFileError::Magic);
        }
        self.buffer.advance(MAGIC.len());
        self.position = MAGIC.len() as u64;
        Ok(true)
    }

    fn take_event(&mut self) -> Result<Option<Bytes>, BinlogFileError> {
        if self.buffer.len() < EventHeader::LEN {
            return Ok(None);
        }
        let at = self.position;
        let wrong = |source| BinlogFileError::Event { at, source };
        let header = EventHeader::parse(&self.buffer);
        let header = header
            .map_err(|source| wrong(EventError::Malformed { event: "binary log", source }))?;
        let size = header.event_size as usize;
        if size < EventHeader::LEN {
            let source = Malformed { what: "event size", offset: EventHeader::EVENT_SIZE_OFFSET };
            return Err(wrong(EventError::Malformed { event: "binary log", source }));
        }
        if self.buffer.len() < size {
            return Ok(None);
        }
        self.position += size as u64;
        Ok(Some(self.buffer.split_to(size).freeze()))
    }
}
