use bytes::Bytes;

use super::{ChecksumAlgorithm, EventError, EventHeader, RawEvent};
use crate::binlog::bytes_reader::Reader;
use crate::binlog::version::version_numbers;

/// The version (2) and the server's version as text (50) come before it.
const CREATED_OFFSET: usize = EventHeader::LEN + 52;
const VERSION: u16 = 4;

/// The layout of the events after it. Kept whole, because the target receives it too.
#[derive(Debug, Clone)]
pub struct FormatDescription {
    raw: RawEvent,
    checksum: ChecksumAlgorithm,
    server_version: String,
}

impl FormatDescription {
    /// Reads one and verifies its checksum, if its algorithm is not off.
    ///
    /// # Errors
    /// Malformed bytes, a wrong checksum, a binary log version other than 4, an unknown algorithm.
    pub fn parse(bytes: Bytes) -> Result<Self, EventError> {
        // A format description ends with the algorithm and four bytes
        // for a checksum, whatever the algorithm.
        let raw = RawEvent::trusted(bytes, ChecksumAlgorithm::Crc32)?;
        let malformed = |source| EventError::Malformed { event: "Format_desc", source };
        let mut reader = Reader::new(raw.body());
        let version = reader.u16("binary log version").map_err(malformed)?;
        if version != VERSION {
            return Err(malformed(reader.malformed("binary log version other than 4")));
        }
        let text = reader.take(50, "server version").map_err(malformed)?;
        reader.u32("creation time").map_err(malformed)?;
        let header_len = reader.u8("header length").map_err(malformed)?;
        if usize::from(header_len) != EventHeader::LEN {
            return Err(malformed(reader.malformed("event header length other than 19")));
        }
        let Some((&code, _)) = reader.rest().split_last() else {
            return Err(malformed(reader.malformed("checksum algorithm")));
        };
        let checksum = ChecksumAlgorithm::from_code(code)?;
        if checksum == ChecksumAlgorithm::Crc32 {
            RawEvent::parse(raw.bytes().clone(), checksum)?;
        }
        let text = text.split(|&b| b == 0).next().unwrap_or_default();
        let server_version = String::from_utf8_lossy(text).into_owned();
        Ok(Self { raw, checksum, server_version })
    }

    /// Returns the checksum algorithm of the events after it.
    #[must_use]
    pub const fn checksum(&self) -> ChecksumAlgorithm {
        self.checksum
    }

    /// Returns true if the source executes definitions whole or not at all (MySQL 8.0, "Atomic Data Definition
    /// Statement Support"). An older one drops what it can of several tables, and logs the statement with its
    /// error.
    #[must_use]
    pub fn has_atomic_definitions(&self) -> bool {
        version_numbers(&self.server_version) >= [8, 0, 0]
    }

    /// The source's version, as `SELECT @@version` shows it.
    #[must_use]
    pub fn server_version(&self) -> &str {
        &self.server_version
    }

    /// Returns true if table maps surely have a sign for YEAR columns too. 8.0.31 and later log one, 8.0.15
    /// does not (tried); the versions between them were not tried. 5.7 logs no signs at all.
    #[must_use]
    pub fn years_have_signs(&self) -> bool {
        version_numbers(&self.server_version) >= [8, 0, 31]
    }

    /// Returns the event as the source sent it.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        self.raw.bytes()
    }

    /// The same description for events without checksums, as the BINLOG statement needs it.
    ///
    /// The creation time is cleared: otherwise the target would
    /// assume that the source has restarted.
    #[must_use]
    pub fn for_binlog_statement(&self) -> Vec<u8> {
        let mut bytes = self.raw.bytes().to_vec();
        if let Some(created) = bytes.get_mut(CREATED_OFFSET..CREATED_OFFSET + 4) {
            created.fill(0);
        }
        // The server verifies the event without its in-use flag, as `RawEvent` does, so the
        // checksum below must not cover it.
        let flags = EventHeader::FLAGS_OFFSET..EventHeader::LEN;
        if let Some(flags) = bytes.get_mut(flags) {
            flags.fill(0);
        }
        let end = bytes.len().saturating_sub(4);
        if let Some(algorithm) = end.checked_sub(1).and_then(|at| bytes.get_mut(at)) {
            *algorithm = 0;
        }
        let checksum = crc32fast::hash(bytes.get(..end).unwrap_or_default());
        bytes.truncate(end);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl PartialEq for FormatDescription {
    fn eq(&self, other: &Self) -> bool {
        self.raw.bytes() == other.raw.bytes()
    }
}

impl Eq for FormatDescription {}
