//! The wall clock, which a simulation replaces by its own.

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock. A simulation has its own.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Returns the microseconds since the epoch.
    fn now_micros(&self) -> u64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "the one place that gives it to channels")]
impl Clock for SystemClock {
    fn now_micros(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}
