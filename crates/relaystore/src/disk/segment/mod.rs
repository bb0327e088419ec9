//! The bytes of a segment: header and frames, as FORMAT.md specifies them. Pure.

mod frame;
mod header;

pub(crate) use frame::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, begin_frame, decode_metadata, encode_metadata,
    finish_frame, frame_around, verify_frame,
};
pub(crate) use header::{HeaderError, SegmentHeader};

/// A place in the relay store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayPosition {
    /// Number of the segment.
    pub segment: u64,
    /// Bytes from the start of its file.
    pub offset: u64,
}
