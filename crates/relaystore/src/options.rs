use std::path::PathBuf;
use std::time::Duration;

/// When received transactions are forced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before a transaction becomes visible.
    Transaction,
    /// At most this much later.
    Interval(Duration),
    /// When the operating system likes.
    Os,
}

/// Where and how transactions are spooled.
#[derive(Debug, Clone)]
pub struct RelayStoreOptions {
    /// The channel's own directory; created if missing.
    pub directory: PathBuf,
    /// Bytes after which a new segment begins, at the next transaction.
    pub segment_size: u64,
    /// Bytes of all segments at which reception waits; 0 for none.
    pub space_limit: u64,
    /// Free bytes of the file system under which reception waits.
    pub min_free_disk: u64,
    pub sync: SyncPolicy,
    /// Bytes of the newest frames that stay in memory.
    pub tail_bytes: usize,
    /// Event bytes after which a transaction goes on in another frame.
    pub frame_bytes: usize,
}

impl RelayStoreOptions {
    /// Large enough for a reader that is a few groups behind.
    pub const TAIL_BYTES: usize = 16 << 20;
    /// Small enough to stream, large enough that framing costs nothing.
    pub const FRAME_BYTES: usize = 256 << 10;

    /// Segments must be small against the limit, or purging one frees everything or nothing.
    pub(crate) fn effective_segment_size(&self) -> u64 {
        match self.space_limit {
            0 => self.segment_size,
            limit => self.segment_size.min(limit / 4).max(1),
        }
    }
}
