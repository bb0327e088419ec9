//! The figures of a channel in one second.

use serde::{Deserialize, Serialize};

use crate::observe::view::ChannelState;

/// A channel in one second, or the worst of several.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct HistorySample {
    pub(super) second: u64,
    pub(super) state: ChannelState,
    pub(super) lag_seconds: Option<f64>,
    pub(super) backlog_transactions: Option<u64>,
    pub(super) backlog_bytes: Option<u64>,
    pub(super) received_transactions: u64,
    pub(super) received_bytes: u64,
    pub(super) applied_transactions: u64,
}

impl HistorySample {
    /// Returns the worst of this sample and a later one, with the totals of the later one.
    pub(super) fn and_then(&self, later: &Self) -> Self {
        let lag = [self.lag_seconds, later.lag_seconds].into_iter().flatten().reduce(f64::max);
        Self {
            state: [self.state, later.state].into_iter().max_by_key(attention).unwrap_or_default(),
            lag_seconds: lag,
            backlog_transactions: self.backlog_transactions.max(later.backlog_transactions),
            backlog_bytes: self.backlog_bytes.max(later.backlog_bytes),
            ..*later
        }
    }
}

/// The rank of a state by the attention it needs.
pub(super) fn attention(state: &ChannelState) -> u8 {
    match state {
        state if state.is_well() => 0,
        ChannelState::Starting => 1,
        ChannelState::Failed => 3,
        _ => 2,
    }
}
