//! The options of a channel's archive.

use std::time::Duration;

use crate::archive::index::Compression;
use crate::archive::store::ArchiveLocation;

/// `[channel.archive]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchiveOptions {
    pub(crate) location: ArchiveLocation,
    /// The longest time for which a file collects transactions.
    pub(crate) interval: Duration,
    /// Files with later commits stay; `None` for ever.
    pub(crate) keep: Option<Duration>,
    /// Reception waits for the archive instead of leaving a gap in it.
    pub(crate) is_required: bool,
    /// The channel has no target: nobody but the archive reads the relay store, and nothing but the archive keeps two
    /// daemons apart.
    pub(crate) is_alone: bool,
    pub(crate) compression: Compression,
    /// Bytes after which a file ends.
    pub(crate) file_size: u64,
}
