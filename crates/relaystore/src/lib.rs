#![doc = include_str!("../README.md")]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

#[cfg(test)]
mod crash_tests;
pub mod disk;
#[cfg(test)]
mod fault_tests;
pub mod opening;
pub mod read;
#[cfg(test)]
mod restart_tests;
pub mod state;
#[cfg(feature = "test-util")]
pub mod test_util;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unwritten_tests;
pub mod write;
