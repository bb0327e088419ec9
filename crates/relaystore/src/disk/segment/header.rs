use bytes::Bytes;
use csa_provider::binlog::{FormatDescription, Gtid, GtidSet, Tag, Uuid};
use csa_provider::source::LastReceived;

const MAGIC: &[u8; 8] = b"CSARELAY";
const VERSION: u16 = 1;
/// Magic, version, length: the bytes that show how long a header is.
const PREFIX_LEN: usize = 14;

/// The header at the start of a segment, but for the GTID set of everything received before it: a store has many segments,
/// and their sets differ by little.
#[derive(Debug, Clone)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// Transactions in the channel before this segment, and bytes of their events.
    pub(crate) transactions_before: u64,
    pub(crate) bytes_before: u64,
    /// Format description in force at the start.
    pub(crate) format: Option<FormatDescription>,
    /// The last transaction before this segment. `None` if that is not known, or the target has others.
    pub(crate) last: Option<LastReceived>,
}

/// The reason bytes are not a segment header.
#[derive(Debug)]
pub(crate) enum HeaderError {
    Damaged(&'static str),
    Version(u16),
}

impl SegmentHeader {
    pub(crate) fn encode(&self, previous: &GtidSet) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for field in [self.number, self.transactions_before, self.bytes_before] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let previous = previous.encode();
        let format = self.format.as_ref().map_or(&[][..], |format| format.raw());
        let last = self.last.as_ref().map_or_else(Vec::new, encode_last);
        for part in [&previous[..], format, &last] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
        let len = (out.len() + 4) as u32;
        out[10..PREFIX_LEN].copy_from_slice(&len.to_le_bytes());
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Returns the length of [`Self::encode`], without encoding the set.
    pub(crate) fn encoded_len(&self, previous: &GtidSet) -> u64 {
        let none = GtidSet::new();
        (self.encode(&none).len() - none.encoded_len() + previous.encoded_len()) as u64
    }

    /// Reads a header from the start of a segment; returns the GTID set in it and its length too.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, GtidSet, usize), HeaderError> {
        let damaged = HeaderError::Damaged;
        if bytes.get(..8) != Some(MAGIC) {
            return Err(damaged("not a relay segment"));
        }
        let short = || damaged("header is cut short");
        let version = bytes.get(8..10).ok_or_else(short)?;
        let version = u16::from_le_bytes([version[0], version[1]]);
        let len = read_u32(bytes, 10).ok_or_else(short)? as usize;
        let header = bytes.get(..len).filter(|h| h.len() > PREFIX_LEN + 4).ok_or_else(short)?;
        let (covered, checksum) = header.split_at(len - 4);
        if read_u32(checksum, 0) != Some(crc32c::crc32c(covered)) {
            return Err(damaged("wrong header checksum"));
        }
        // Only after the checksum, or a flipped bit would count as a newer version. Every version
        // keeps magic, version, length and checksum in the same places.
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let part = |at: usize| -> Option<&[u8]> {
            let len = read_u32(covered, at)? as usize;
            covered.get(at + 4..at.checked_add(4)?.checked_add(len)?)
        };
        let previous = part(PREFIX_LEN + 24).ok_or_else(short)?;
        let format = part(PREFIX_LEN + 28 + previous.len()).ok_or_else(short)?;
        // A header may end before it.
        let last = part(PREFIX_LEN + 32 + previous.len() + format.len()).and_then(decode_last);
        let header = Self {
            number: read_u64(covered, PREFIX_LEN).ok_or_else(short)?,
            transactions_before: read_u64(covered, PREFIX_LEN + 8).ok_or_else(short)?,
            bytes_before: read_u64(covered, PREFIX_LEN + 16).ok_or_else(short)?,
            format: if format.is_empty() {
                None
            } else {
                let format = FormatDescription::parse(Bytes::copy_from_slice(format));
                Some(format.map_err(|_| damaged("format description"))?)
            },
            last,
        };
        let previous = GtidSet::decode(previous).map_err(|_| damaged("GTID set"))?;
        Ok((header, previous, len))
    }
}

fn encode_last(last: &LastReceived) -> Vec<u8> {
    let mut out = last.gtid.uuid.as_bytes().to_vec();
    for field in [last.gtid.gno, last.committed, last.bytes] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(last.gtid.tag.as_str().as_bytes());
    out
}

/// Reads what [`encode_last`] writes; `None` where nothing is known.
fn decode_last(bytes: &[u8]) -> Option<LastReceived> {
    let (fixed, tag) = bytes.split_at_checked(40)?;
    let uuid = Uuid::from_slice(fixed.get(..16)?).ok()?;
    let tag = Tag::new(std::str::from_utf8(tag).ok()?).ok()?;
    Some(LastReceived {
        gtid: Gtid { uuid, tag, gno: read_u64(fixed, 16)? },
        committed: read_u64(fixed, 24)?,
        bytes: read_u64(fixed, 32)?,
    })
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
