//! The binary form of `COM_BINLOG_DUMP_GTID` and the previous-GTIDs event.
//!
//! Untagged: count (8 bytes), then per UUID 16 bytes, interval count (8), and start and exclusive
//! end (8 each). The tagged form is used only when a tag is present. The first eight bytes hold the
//! count in bits 8 to 55 and the format number 1 in the highest and the lowest byte. The UUID is
//! followed by the tag's length as a variable-length integer and its characters
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1gtid_1_1Tsid.html>).

use super::set::Collector;
use super::{GtidSet, Interval, Tag, Uuid};
use crate::binlog::bytes_reader::{Malformed, Reader};

const TAGGED: u64 = 1;

impl GtidSet {
    /// Encodes for the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let tagged = self.is_tagged();
        let count = self.sids().len() as u64;
        let mut bytes = Vec::with_capacity(self.encoded_len());
        let head = if tagged { TAGGED << 56 | count << 8 | TAGGED } else { count };
        bytes.extend_from_slice(&head.to_le_bytes());
        for ((uuid, tag), list) in self.sids() {
            bytes.extend_from_slice(uuid.as_bytes());
            if tagged {
                // A tag is at most 32 characters, so its length fits one byte of the encoding.
                bytes.push((tag.as_str().len() as u8) << 1);
                bytes.extend_from_slice(tag.as_str().as_bytes());
            }
            bytes.extend_from_slice(&(list.len() as u64).to_le_bytes());
            for interval in list {
                bytes.extend_from_slice(&interval.start.to_le_bytes());
                bytes.extend_from_slice(&(interval.end + 1).to_le_bytes());
            }
        }
        bytes
    }

    /// Returns the length of [`Self::encode`].
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let tagged = self.is_tagged();
        let tag_len = |tag: &Tag| if tagged { 1 + tag.as_str().len() } else { 0 };
        let lens = self.sids().iter().map(|((_, tag), list)| 24 + tag_len(tag) + 16 * list.len());
        8 + lens.sum::<usize>()
    }

    fn is_tagged(&self) -> bool {
        self.sids().keys().any(|(_, tag)| !tag.is_empty())
    }

    /// Decodes either form.
    ///
    /// # Errors
    /// Bytes that end early, continue too long, or hold an impossible interval or tag.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let head = reader.u64("GTID set header")?;
        let (tagged, count) = match head >> 56 {
            0 => (false, head),
            TAGGED => (true, head << 8 >> 16),
            _ => return Err(reader.malformed("GTID set format")),
        };
        // Nothing is reserved by these counts, which damaged bytes may set to anything.
        let mut set = Collector::default();
        for _ in 0..count {
            let uuid = Uuid::from_slice(reader.take(16, "GTID set UUID")?)
                .map_err(|_| reader.malformed("GTID set UUID"))?;
            let tag = if tagged { read_tag(&mut reader)? } else { Tag::untagged() };
            let intervals = reader.u64("GTID set interval count")?;
            for _ in 0..intervals {
                let start = reader.u64("GTID set interval")?;
                let end = reader.u64("GTID set interval")?;
                if start == 0 || end <= start || end > i64::MAX as u64 {
                    return Err(reader.malformed("GTID set interval"));
                }
                set.add(uuid, &tag, Interval { start, end: end - 1 });
            }
        }
        if !reader.is_empty() {
            return Err(reader.malformed("bytes after a GTID set"));
        }
        Ok(set.into_set())
    }
}

/// Reads a tag, which its length precedes.
pub(crate) fn read_tag(reader: &mut Reader<'_>) -> Result<Tag, Malformed> {
    let len = reader.varint("GTID tag length")?;
    let text = reader.take(usize::try_from(len).unwrap_or(usize::MAX), "GTID tag")?;
    let text = std::str::from_utf8(text).map_err(|_| reader.malformed("GTID tag"))?;
    Tag::new(text).map_err(|_| reader.malformed("GTID tag"))
}
