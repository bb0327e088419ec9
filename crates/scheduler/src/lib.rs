#![doc = include_str!("../README.md")]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod admission;
pub mod changes;
mod conflicts;
pub mod error;
pub mod events;
pub mod filter;
pub mod group;
pub mod intake;
pub mod key_source;
pub mod keys;
pub mod low_water;
pub mod memory;
mod returned;
mod row_sessions;
pub mod scheduler;
pub mod sequence;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
pub mod until;
