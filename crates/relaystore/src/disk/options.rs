use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::fs::FileSystem;

/// The time at which received transactions are forced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before a transaction becomes visible.
    Transaction,
    /// Syncs at most this much later.
    Interval(Duration),
    /// Whenever the operating system decides.
    Os,
}

/// The place and the limits of a channel's store.
#[derive(Debug, Clone)]
pub struct RelayStoreOptions {
    /// The channel's own directory; created if missing.
    pub directory: PathBuf,
    /// Bytes after which a new segment begins, at the next transaction.
    pub segment_size: u64,
    /// Bytes of all segments at which reception waits; 0 for none.
    pub space_limit: u64,
    /// Free bytes of the file system below which reception waits.
    pub min_free_disk: u64,
    pub sync: SyncPolicy,
    /// Keep segments until [`RelayStore::note_archived`](crate::opening::RelayStore::note_archived) has passed them,
    /// too.
    pub archived: bool,
    /// Bytes of the newest frames that stay in memory.
    pub tail_bytes: usize,
    /// Event bytes after which a transaction continues in another frame.
    pub frame_bytes: usize,
    /// Queued bytes for which the writer is woken before the transaction they belong to is whole.
    pub wake_bytes: usize,
    /// The disk; [`RealFs`](crate::disk::RealFs) but in tests.
    pub files: Arc<dyn FileSystem>,
}

impl RelayStoreOptions {
    /// Large enough for a reader that lags by a few groups.
    pub const TAIL_BYTES: usize = 16 << 20;
    /// Small enough for streaming, large enough that framing costs next to nothing.
    pub const FRAME_BYTES: usize = 256 << 10;
    /// As much as is written at once.
    pub const WAKE_BYTES: usize = 1 << 20;

    /// Segments must be small compared to the limit, or purging
    /// one would free everything or nothing.
    pub(crate) fn effective_segment_size(&self) -> u64 {
        match self.space_limit {
            0 => self.segment_size,
            limit => self.segment_size.min(limit / 4).max(1),
        }
    }
}
