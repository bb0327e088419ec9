use csa_provider::binlog::{Gtid, Tag, TransactionHeader, Uuid};

/// Bytes before a frame's body.
pub(crate) const FRAME_HEADER_LEN: usize = 12;
/// The longest frame: one event of the protocol's largest size, and metadata.
const BODY_LEN_MAX: usize = (1 << 30) + (1 << 16);
const FIRST: u8 = 1;
const LAST: u8 = 2;
const METADATA_FIXED_LEN: usize = 16 + 6 * 8 + 2 * 4 + 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    FormatDescription,
    Transaction { first: bool, last: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) body_len: usize,
    pub(crate) metadata_len: usize,
    checksum: u32,
}

/// The reason a frame is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameError(pub(crate) &'static str);

impl FrameHeader {
    /// Reads the 12 bytes before a body.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let short = FrameError("frame header is cut short");
        let field = |at: usize| -> Result<u32, FrameError> {
            let bytes = bytes.get(at..at + 4).ok_or(short)?;
            Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| short)?))
        };
        let body_len = field(0)? as usize;
        let checksum = field(4)?;
        let (Some(&kind), Some(&flags)) = (bytes.get(8), bytes.get(9)) else {
            return Err(short);
        };
        let metadata_len = (field(8)? >> 16) as usize;
        let kind = match (kind, flags) {
            (1, 0) => FrameKind::FormatDescription,
            (2, 0..=3) => {
                FrameKind::Transaction { first: flags & FIRST != 0, last: flags & LAST != 0 }
            }
            _ => return Err(FrameError("unknown frame kind or flags")),
        };
        if body_len > BODY_LEN_MAX || metadata_len > body_len {
            return Err(FrameError("impossible frame length"));
        }
        Ok(Self { kind, body_len, metadata_len, checksum })
    }

    /// Returns the bytes of the whole frame.
    pub(crate) fn frame_len(&self) -> usize {
        FRAME_HEADER_LEN + self.body_len
    }
}

/// Checks a whole frame's checksum.
pub(crate) fn verify_frame(header: &FrameHeader, frame: &[u8]) -> Result<(), FrameError> {
    let covered = frame.get(8..).ok_or(FrameError("frame is cut short"))?;
    if crc32c::crc32c(covered) != header.checksum {
        return Err(FrameError("wrong checksum"));
    }
    Ok(())
}

/// Leaves room for a frame header; the caller appends the body. Returns the offset of the frame.
pub(crate) fn begin_frame(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + FRAME_HEADER_LEN, 0);
    start
}

/// Writes the header of the frame that began at `start` and ends with `out`.
pub(crate) fn finish_frame(out: &mut [u8], start: usize, kind: FrameKind, metadata_len: usize) {
    let Some(frame) = out.get_mut(start..) else { return };
    let body_len = (frame.len() - FRAME_HEADER_LEN) as u32;
    let (code, flags) = match kind {
        FrameKind::FormatDescription => (1, 0),
        FrameKind::Transaction { first, last } => {
            (2, if first { FIRST } else { 0 } | if last { LAST } else { 0 })
        }
    };
    // At most METADATA_FIXED_LEN and a tag of 32 characters, so it fits.
    let metadata = (metadata_len as u16).to_le_bytes();
    frame[..4].copy_from_slice(&body_len.to_le_bytes());
    frame[8..FRAME_HEADER_LEN].copy_from_slice(&[code, flags, metadata[0], metadata[1]]);
    let checksum = crc32c::crc32c(&frame[8..]);
    frame[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the header of a frame without metadata, with a body that is kept elsewhere.
pub(crate) fn frame_around(kind: FrameKind, body: &[u8]) -> [u8; FRAME_HEADER_LEN] {
    let mut head = [0; FRAME_HEADER_LEN];
    finish_frame(&mut head, 0, kind, 0);
    head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[8..]), body);
    head[4..8].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// Appends the metadata of a first frame, and returns its length.
pub(crate) fn encode_metadata(header: &TransactionHeader, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(header.gtid.uuid.as_bytes());
    for field in [
        header.gtid.gno,
        header.original_commit_timestamp,
        header.immediate_commit_timestamp,
        header.transaction_length,
        header.last_committed as u64,
        header.sequence_number as u64,
    ] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for field in [header.original_server_version, header.immediate_server_version] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    let tag = header.gtid.tag.as_str().as_bytes();
    out.push(tag.len() as u8);
    out.extend_from_slice(tag);
    out.len() - start
}

/// Reads the metadata of a first frame.
pub(crate) fn decode_metadata(bytes: &[u8]) -> Result<TransactionHeader, FrameError> {
    let malformed = FrameError("malformed transaction metadata");
    let u64_at = |at: usize| -> Result<u64, FrameError> {
        let bytes = bytes.get(at..at + 8).ok_or(malformed)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| malformed)?))
    };
    let uuid = bytes.get(..16).and_then(|b| Uuid::from_slice(b).ok()).ok_or(malformed)?;
    let versions = u64_at(64)?;
    let tag = bytes.get(METADATA_FIXED_LEN..).ok_or(malformed)?;
    if bytes.get(METADATA_FIXED_LEN - 1).map(|&len| usize::from(len)) != Some(tag.len()) {
        return Err(malformed);
    }
    let tag = std::str::from_utf8(tag).map_err(|_| malformed)?;
    let tag = Tag::new(tag).map_err(|_| malformed)?;
    Ok(TransactionHeader {
        gtid: Gtid { uuid, tag, gno: u64_at(16)? },
        original_commit_timestamp: u64_at(24)?,
        immediate_commit_timestamp: u64_at(32)?,
        transaction_length: u64_at(40)?,
        last_committed: u64_at(48)? as i64,
        sequence_number: u64_at(56)? as i64,
        original_server_version: versions as u32,
        immediate_server_version: (versions >> 32) as u32,
    })
}
