//! Makes a binary log file that servers and mysqlbinlog read.

use super::MAGIC;
use crate::binlog::event::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, RawEvent,
};
use crate::binlog::gtid::GtidSet;

/// Offset of the position in an event's header.
const LOG_POS: std::ops::Range<usize> = 13..17;

/// Appends the bytes of one file to buffers that its caller takes away as it likes.
#[derive(Debug)]
pub struct BinlogFileWriter {
    checksum: ChecksumAlgorithm,
    position: u64,
}

impl BinlogFileWriter {
    /// Begins a file: the magic bytes, `format` and the set of transactions before the file.
    ///
    /// # Panics
    /// Never: a format description that was parsed has all bytes that are written to.
    #[must_use]
    pub fn begin(format: &FormatDescription, before: &GtidSet, out: &mut Vec<u8>) -> Self {
        let mut writer = Self { checksum: format.checksum(), position: 0 };
        out.extend_from_slice(&MAGIC);
        writer.position = MAGIC.len() as u64;
        writer.format_description(format, out);
        writer.previous_gtids(format, before, out);
        writer
    }

    /// Returns the bytes of the file so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Appends an event that has the checksum of the file's format description. Its position becomes that in this
    /// file, as it does when a server writes a relay log.
    pub fn push(&mut self, event: &RawEvent, out: &mut Vec<u8>) {
        let bytes = event.bytes();
        let data = bytes.get(..bytes.len() - self.checksum.len()).unwrap_or_default();
        self.append(data, out);
    }

    /// Always has a checksum, whatever the other events have, and none of the flags of a file in use.
    fn format_description(&mut self, format: &FormatDescription, out: &mut Vec<u8>) {
        let raw = format.raw();
        let mut data = raw.get(..raw.len() - CHECKSUM_LEN).unwrap_or_default().to_vec();
        if let Some(flags) = data.get_mut(EventHeader::FLAGS_OFFSET..EventHeader::LEN) {
            flags.fill(0);
        }
        let others = std::mem::replace(&mut self.checksum, ChecksumAlgorithm::Crc32);
        self.append(&data, out);
        self.checksum = others;
    }

    fn previous_gtids(&mut self, format: &FormatDescription, before: &GtidSet, out: &mut Vec<u8>) {
        let set = before.encode();
        let size = EventHeader::LEN + set.len() + self.checksum.len();
        let mut data = Vec::with_capacity(size);
        let raw = format.raw();
        // Time and server are those of the format description.
        data.extend_from_slice(raw.get(..EventHeader::EVENT_TYPE_OFFSET).unwrap_or_default());
        data.push(EventType::PREVIOUS_GTIDS.0);
        data.extend_from_slice(raw.get(5..EventHeader::EVENT_SIZE_OFFSET).unwrap_or_default());
        data.extend_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
        data.extend_from_slice(&[0; 4]);
        data.extend_from_slice(&EventHeader::FLAG_IGNORABLE.to_le_bytes());
        data.extend_from_slice(&set);
        self.append(&data, out);
    }

    /// Appends header and body, with the position and the checksum of this file.
    fn append(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.position += (data.len() + self.checksum.len()) as u64;
        let start = out.len();
        out.extend_from_slice(data);
        let written = out.get_mut(start..).unwrap_or_default();
        // Modulo 2^32, as the server has it in a file with a giant transaction.
        if let Some(position) = written.get_mut(LOG_POS) {
            position.copy_from_slice(&(self.position as u32).to_le_bytes());
        }
        if self.checksum == ChecksumAlgorithm::Crc32 {
            let checksum = crc32fast::hash(written);
            out.extend_from_slice(&checksum.to_le_bytes());
        }
    }
}

const CHECKSUM_LEN: usize = ChecksumAlgorithm::Crc32.len();
