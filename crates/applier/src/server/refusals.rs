//! The pauses of a target that refuses to be asked what its silent sessions do.

use std::time::Duration;

use csa_provider::seams::Backoff;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest pause after a connection that the server refuses, or `net_timeout`: it counts them, and blocks this host
/// after some (`max_connect_errors`).
const REFUSED_MAX: Duration = Duration::from_secs(600);

/// The questions about silent sessions that a target refuses: the pauses after them, and the time of the next one. All
/// sessions share them, since the server counts what it refuses to this host.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Option<(Backoff, Instant)>>);

impl Refusals {
    /// Returns the time during which nobody may ask. None is left to the one who asks next; the others wait for the
    /// pause after that.
    pub(super) fn pause(&self) -> Duration {
        let now = Instant::now();
        let mut refused = self.0.lock();
        let Some((pauses, next)) = refused.as_mut() else { return Duration::ZERO };
        let left = next.saturating_duration_since(now);
        if left.is_zero() {
            *next = now + pauses.pause();
        }
        left
    }

    /// Notes a refusal, with this pause after the first. Returns true for the first.
    pub(super) fn begin(&self, first: Duration) -> bool {
        let mut refused = self.0.lock();
        if refused.is_some() {
            return false;
        }
        let mut pauses = Backoff::new(first, first.max(REFUSED_MAX));
        let next = Instant::now() + pauses.pause();
        *refused = Some((pauses, next));
        true
    }

    /// Notes that a login succeeded.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }
}
