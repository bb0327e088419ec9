#![doc = include_str!("../README.md")]
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod binlog;
pub mod recorder;
pub mod seams;
pub mod server;
pub mod source;
pub mod sql_text;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
