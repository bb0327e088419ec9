//! A transaction that is still being received, for readers that follow it to its end: what the writer
//! tells them, and when. It counts as received only once it is whole, as any other.
//!
//! The bytes of a transaction that is cut off are cut from the segment, and others take their place. The
//! writer says so ([`Followed::give_up`]) before it cuts, and a reader looks after each read
//! ([`Followed::seen`]): bytes read while the transaction was not lost are the transaction's.

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A transaction under reception.
#[derive(Debug)]
pub struct Followed {
    state: Mutex<FollowState>,
    changed: Notify,
}

#[derive(Debug)]
struct FollowState {
    seen: Seen,
    event_bytes: u64,
    /// The last moment at which it grew.
    grown: Instant,
    /// No frame may be longer.
    frame_limit: u64,
}

/// Its reception at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub outcome: Outcome,
    /// Offset in the segment: everything before it is written.
    pub(crate) end: u64,
}

/// The outcome of reception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// More is to come.
    Growing,
    /// All of it is in the store, and synced as far as the policy asks for it.
    Whole,
    /// It was cut off, or those who follow it have given it up. What was read of it counts for nothing.
    Lost,
}

impl Followed {
    pub(crate) fn new(end: u64) -> Self {
        let seen = Seen { outcome: Outcome::Growing, end };
        let (grown, frame_limit) = (Instant::now(), u64::MAX);
        let state = FollowState { seen, event_bytes: 0, grown, frame_limit };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// More of it is written.
    pub(crate) fn grow(&self, end: u64, event_bytes: u64) {
        self.advance(Outcome::Growing, end, event_bytes);
    }

    /// All of it is visible. One that was given up stays so.
    pub(crate) fn complete(&self, end: u64, event_bytes: u64) {
        self.advance(Outcome::Whole, end, event_bytes);
    }

    fn advance(&self, outcome: Outcome, end: u64, event_bytes: u64) {
        let mut state = self.state.lock();
        if state.seen.outcome != Outcome::Growing {
            return;
        }
        state.seen = Seen { outcome, end };
        state.event_bytes = event_bytes;
        state.grown = Instant::now();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Gives it up, unless it is whole: whoever follows it rolls back, and it is read again once it is
    /// whole. Returns false if it is whole.
    pub fn give_up(&self) -> bool {
        let mut state = self.state.lock();
        if state.seen.outcome == Outcome::Whole {
            return false;
        }
        state.seen.outcome = Outcome::Lost;
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// The same even if it is whole, for one that can't be applied as it was read: it is read again.
    pub fn refuse(&self) {
        self.state.lock().seen.outcome = Outcome::Lost;
        self.changed.notify_waiters();
    }

    /// Sets the limit for its frames: a longer one makes the transaction be given up.
    pub fn limit_frames(&self, bytes: u64) {
        self.state.lock().frame_limit = bytes;
    }

    pub(crate) fn frame_limit(&self) -> u64 {
        self.state.lock().frame_limit
    }

    #[must_use]
    pub fn seen(&self) -> Seen {
        self.state.lock().seen
    }

    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.seen().outcome == Outcome::Lost
    }

    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.seen().outcome == Outcome::Growing
    }

    /// Returns the bytes of its events that are written.
    #[must_use]
    pub fn event_bytes(&self) -> u64 {
        self.state.lock().event_bytes
    }

    /// Returns the time for which nothing of it has arrived.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.state.lock().grown.elapsed()
    }

    /// Waits until something has changed since.
    pub async fn changed_since(&self, seen: Seen) {
        loop {
            // Before the look, so that no change in between is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.seen() != seen {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
