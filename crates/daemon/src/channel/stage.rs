//! The stage that a channel is at, and the error that led there.

use csa_provider::binlog::Gtid;
use tokio::time::Instant;

use super::describe::state::Phase;
use crate::observe::view::ErrorView;

/// The phase of a channel, and why it is in it.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) phase: Phase,
    pub(super) detail: String,
    pub(super) last_error: Option<ErrorView>,
    /// The transaction that the last error is about.
    pub(super) stopped_at: Option<Gtid>,
    /// The time of the next attempt, of a channel that waits for one.
    pub(super) next_attempt: Option<Instant>,
}

impl Stage {
    /// Changes the phase; the last error stays.
    pub(super) fn enter(&mut self, phase: Phase, detail: &str) {
        self.phase = phase;
        self.next_attempt = None;
        detail.clone_into(&mut self.detail);
    }

    /// Forgets the last error, where the channel does something else now.
    pub(super) fn forget_error(&mut self) {
        self.last_error = None;
        self.stopped_at = None;
    }
}
