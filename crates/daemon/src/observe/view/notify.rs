//! The delivery of a channel's events.

use serde::{Deserialize, Serialize};

/// Figures since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NotifyView {
    pub(crate) delivered_total: u64,
    pub(crate) failed_attempts_total: u64,
    /// Events that were given up.
    pub(crate) dropped_total: u64,
    /// Events that are still to be delivered.
    pub(crate) waiting: u64,
    /// The reason why the last attempt failed; absent after one that did not.
    pub(crate) error: Option<String>,
}
