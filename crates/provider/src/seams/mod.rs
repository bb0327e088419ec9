//! The seams that a simulation replaces (time, chance), pauses, durations, planted bugs.

pub(crate) mod backoff;
pub(crate) mod chance;
pub(crate) mod clock;
pub(crate) mod durations;
pub mod planted;
pub(crate) mod timestamp;

pub use backoff::{Backoff, unhurried};
pub use chance::{Chance, SystemChance};
pub use clock::{Clock, SystemClock};
pub use durations::{BOUNDS_MICROS, Durations, DurationsView};
pub use timestamp::rfc3339;
