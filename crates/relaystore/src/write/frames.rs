//! Frames on their way to the file: whole ones are collected in a batch, the last is unfinished.

use bytes::Bytes;
use csa_provider::binlog::TransactionHeader;

use crate::disk::options::RelayStoreOptions;
use crate::disk::segment::{
    FRAME_HEADER_LEN, FrameKind, begin_frame, encode_metadata, finish_frame,
};
use crate::state::buffers::Buffers;

/// Frames are written together up to this size.
pub(super) const BATCH_BYTES: usize = RelayStoreOptions::WAKE_BYTES;

#[derive(Debug)]
pub(super) struct Frames {
    /// Whole frames that are written next, and the unfinished one after them.
    batch: Vec<u8>,
    /// The end of the whole frames.
    whole: usize,
    buffers: Buffers,
    metadata_len: usize,
    /// The unfinished frame is the first of its transaction.
    is_first: bool,
    /// A frame of several events is not longer.
    frame_bytes: usize,
}

impl Frames {
    pub(super) fn new(options: &RelayStoreOptions) -> Self {
        // A buffer is written once it holds a batch, so it grows by less than two frames beyond.
        let (tail, frame_bytes) = (options.tail_bytes, options.frame_bytes);
        Self {
            batch: Vec::new(),
            whole: 0,
            buffers: Buffers::new(tail / BATCH_BYTES + 1, BATCH_BYTES + 2 * frame_bytes),
            metadata_len: 0,
            is_first: false,
            frame_bytes,
        }
    }

    /// Returns the bytes of the whole frames.
    pub(super) fn len(&self) -> usize {
        self.whole
    }

    /// Begins the first frame of a transaction.
    pub(super) fn begin(&mut self, header: &TransactionHeader) {
        self.batch.truncate(self.whole);
        begin_frame(&mut self.batch);
        self.metadata_len = encode_metadata(header, &mut self.batch);
        self.is_first = true;
    }

    /// Continues a transaction in another frame once the current one is large.
    pub(super) fn make_room(&mut self, event_len: usize) {
        let frame_len = self.batch.len() - self.whole;
        let fits = frame_len + event_len <= self.frame_bytes;
        // An event that does not fit into an empty frame gets a frame of its own size.
        if fits || frame_len == FRAME_HEADER_LEN {
            return;
        }
        self.finish(false);
        begin_frame(&mut self.batch);
    }

    /// Returns true if the event is written as a frame of its own, from where it is.
    pub(super) fn is_apart(&self, event_len: usize) -> bool {
        // `frame_bytes` is below BATCH_BYTES, so `make_room` has ended the frame, and
        // nothing of this transaction is left in it that belongs before this event.
        event_len > BATCH_BYTES && !self.is_first
    }

    /// Adds an event to the unfinished frame.
    pub(super) fn add(&mut self, event: &[u8]) {
        self.batch.extend_from_slice(event);
    }

    /// Ends the unfinished frame.
    pub(super) fn finish(&mut self, last: bool) {
        let kind = FrameKind::Transaction { first: self.is_first, last };
        finish_frame(&mut self.batch, self.whole, kind, self.metadata_len);
        self.whole = self.batch.len();
        self.drop_unfinished();
    }

    pub(super) fn drop_unfinished(&mut self) {
        self.batch.truncate(self.whole);
        self.metadata_len = 0;
        self.is_first = false;
    }

    /// Adds a frame that belongs to no transaction.
    pub(super) fn add_format_description(&mut self, event: &[u8]) {
        let unfinished = self.batch.split_off(self.whole);
        begin_frame(&mut self.batch);
        self.batch.extend_from_slice(event);
        finish_frame(&mut self.batch, self.whole, FrameKind::FormatDescription, 0);
        self.whole = self.batch.len();
        self.batch.extend_from_slice(&unfinished);
    }

    /// Takes the last bytes out of the whole frames again. There is no unfinished one.
    pub(super) fn truncate(&mut self, len: usize) {
        self.batch.truncate(len);
        self.whole = self.batch.len();
    }

    /// Takes the whole frames, to write them.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut next = self.buffers.take();
        next.extend_from_slice(self.batch.get(self.whole..).unwrap_or_default());
        self.batch.truncate(self.whole);
        self.whole = 0;
        std::mem::replace(&mut self.batch, next)
    }

    /// Returns frames that found no room.
    pub(super) fn put_back(&mut self, frames: Vec<u8>) {
        let unfinished = std::mem::replace(&mut self.batch, frames);
        self.whole = self.batch.len();
        self.batch.extend_from_slice(&unfinished);
    }

    /// Returns written frames for the memory tail.
    pub(super) fn share(&self, frames: Vec<u8>) -> Bytes {
        self.buffers.share(frames)
    }
}
