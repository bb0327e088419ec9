//! The status of a daemon.

use csa_tests::Daemon;
use serde_json::Value;

/// The status of the first channel, from `/status`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Absent while the daemon does not know it.
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) backlog_transactions: u64,
    pub(crate) applied_transactions: u64,
    /// Commits on the target.
    pub(crate) applied_groups: u64,
}

impl Sample {
    /// Returns `None` when the daemon does not answer.
    pub(crate) fn take(daemon: &Daemon) -> Option<Self> {
        Self::of(&daemon.try_status()?)
    }

    /// Returns `None` when nothing is known of the channel yet.
    pub(crate) fn of(status: &Value) -> Option<Self> {
        let channel = &status["channels"][0];
        let number = |key: &str| channel[key].as_u64();
        Some(Self {
            lag_seconds: channel["lag_seconds"].as_f64(),
            backlog_transactions: number("backlog_transactions").unwrap_or(0),
            applied_transactions: number("applied_transactions_total")?,
            applied_groups: number("applied_groups_total").unwrap_or(0),
        })
    }
}
