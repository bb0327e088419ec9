//! An event as bytes, its checksum verified.

use bytes::Bytes;

use super::{EventError, EventHeader, EventType};
use crate::seams::planted::{Bug, is_planted};

/// The checksum of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumAlgorithm {
    #[default]
    Off,
    /// CRC32 in the last four bytes of every event.
    Crc32,
}

impl ChecksumAlgorithm {
    /// The bytes it takes at the end of an event.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Off => 0,
            Self::Crc32 => 4,
        }
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Reads the code in a format description.
    ///
    /// # Errors
    /// A code this version does not know.
    pub const fn from_code(code: u8) -> Result<Self, EventError> {
        match code {
            0 => Ok(Self::Off),
            1 => Ok(Self::Crc32),
            other => Err(EventError::UnknownChecksum(other)),
        }
    }
}

/// One whole event, exactly as the source sent it, in shared memory.
#[derive(Debug, Clone)]
pub struct RawEvent {
    bytes: Bytes,
    header: EventHeader,
    checksum_len: usize,
}

impl RawEvent {
    /// Takes an event off the wire, and checks its length and checksum.
    ///
    /// # Errors
    /// [`EventError::Length`], [`EventError::Checksum`], or too few bytes for a header.
    pub fn parse(bytes: Bytes, checksum: ChecksumAlgorithm) -> Result<Self, EventError> {
        let event = Self::trusted(bytes, checksum)?;
        if checksum == ChecksumAlgorithm::Crc32 && !is_planted(Bug::DamageAccepted) {
            event.verify()?;
        }
        Ok(event)
    }

    /// Takes an event that was verified before; only lengths are checked.
    ///
    /// # Errors
    /// [`EventError::Length`], or too few bytes for a header.
    pub fn trusted(bytes: Bytes, checksum: ChecksumAlgorithm) -> Result<Self, EventError> {
        let header = EventHeader::parse(&bytes)
            .map_err(|source| EventError::Malformed { event: "binary log", source })?;
        let fits = header.event_size as usize == bytes.len()
            && bytes.len() >= EventHeader::LEN + checksum.len();
        if !fits {
            return Err(EventError::Length { declared: header.event_size, actual: bytes.len() });
        }
        Ok(Self { bytes, header, checksum_len: checksum.len() })
    }

    fn verify(&self) -> Result<(), EventError> {
        let covered = self.bytes.len() - self.checksum_len;
        let (data, stored) = self.bytes.split_at(covered);
        let stored = stored.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
        let mut hasher = crc32fast::Hasher::new();
        if self.header.event_type == EventType::FORMAT_DESCRIPTION {
            // The server clears the flag when it closes the file, but does not change the checksum.
            let mut header = [0; EventHeader::LEN];
            header.copy_from_slice(data.get(..EventHeader::LEN).unwrap_or(&[0; EventHeader::LEN]));
            let flags = self.header.flags & !EventHeader::FLAG_IN_USE;
            header[EventHeader::FLAGS_OFFSET..].copy_from_slice(&flags.to_le_bytes());
            hasher.update(&header);
            hasher.update(data.get(EventHeader::LEN..).unwrap_or_default());
        } else {
            hasher.update(data);
        }
        let computed = hasher.finalize();
        if computed != stored {
            let event = self.header.event_type.name();
            return Err(EventError::Checksum { event, computed, stored });
        }
        Ok(())
    }

    #[must_use]
    pub const fn header(&self) -> &EventHeader {
        &self.header
    }

    #[must_use]
    pub const fn event_type(&self) -> EventType {
        self.header.event_type
    }

    /// Returns true if a replica passes it over: an unknown type that the source marks as
    /// ignorable, or a message of Group Replication to its members
    /// (sql/rpl_trx_boundary_parser.cc). None of these change rows.
    #[must_use]
    pub const fn is_passed_over(&self) -> bool {
        match self.header.event_type {
            EventType::TRANSACTION_CONTEXT | EventType::VIEW_CHANGE => true,
            EventType::IGNORABLE => self.is_ignorable(),
            known if known.is_known() => false,
            _ => self.is_ignorable(),
        }
    }

    const fn is_ignorable(&self) -> bool {
        self.header.flags & EventHeader::FLAG_IGNORABLE != 0
    }

    /// Returns the event without header and checksum.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(EventHeader::LEN..self.bytes.len() - self.checksum_len).unwrap_or_default()
    }

    /// Returns the whole event.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the bytes of the whole event.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an event is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the same event with another body and without a checksum.
    #[must_use]
    pub fn with_body(&self, body: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(EventHeader::LEN + body.len());
        bytes.extend_from_slice(self.bytes.get(..EventHeader::LEN).unwrap_or_default());
        bytes.extend_from_slice(body);
        let event_size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let at = EventHeader::EVENT_SIZE_OFFSET;
        if let Some(field) = bytes.get_mut(at..at + 4) {
            field.copy_from_slice(&event_size.to_le_bytes());
        }
        Self {
            bytes: bytes.into(),
            header: EventHeader { event_size, ..self.header },
            checksum_len: 0,
        }
    }

    pub(super) const fn checksum_len(&self) -> usize {
        self.checksum_len
    }

    /// Appends header and body with the size adjusted, in the form for
    /// a format description without checksums.
    pub fn write_without_checksum(&self, out: &mut Vec<u8>) {
        let end = self.bytes.len() - self.checksum_len;
        let start = out.len();
        out.extend_from_slice(self.bytes.get(..end).unwrap_or_default());
        let size = u32::try_from(end).unwrap_or(u32::MAX).to_le_bytes();
        let at = start + EventHeader::EVENT_SIZE_OFFSET;
        if let Some(field) = out.get_mut(at..at + size.len()) {
            field.copy_from_slice(&size);
        }
    }
}
