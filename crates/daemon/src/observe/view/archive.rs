//! How far the archive of a channel is.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArchiveView {
    /// The place, without secrets.
    pub(crate) url: String,
    /// The run of files that is written; empty before the archive has answered.
    pub(crate) history: String,
    /// The number of the last file.
    pub(crate) file_number: u64,
    /// Everything up to the end of the last file, shortened.
    pub(crate) archived_transaction_set: String,
    /// The age of the oldest transaction that is received and not archived; absent before the archive has answered.
    pub(crate) lag_seconds: Option<f64>,
    /// `archive.interval`: a transaction may wait for so long without anything being wrong.
    #[serde(default)]
    pub(crate) interval_seconds: f64,
    /// Bytes of events that are received and not archived.
    pub(crate) pending_bytes: u64,
    /// The time of the last file, in RFC 3339.
    pub(crate) last_published: Option<String>,
    /// Counts since the daemon started.
    pub(crate) files_total: u64,
    pub(crate) bytes_total: u64,
    pub(crate) transactions_total: u64,
    pub(crate) failures_total: u64,
    /// Places at which transactions are missing, and how many are.
    pub(crate) gaps_total: u64,
    pub(crate) missing_transactions_total: u64,
    /// The reason nothing is archived at the moment.
    pub(crate) error: Option<String>,
}
