//! Claims of channels by the daemons of a fleet. A claim decides which daemon tries to run a channel; the
//! channel's lock and epoch on the target decide which one may apply, so a wrong claim costs time, never
//! a transaction.
//!
//! [`engine`] is the seam to the service that keeps the claims, `desired` says whose channel it should be,
//! `plan` what to do next, and [`keeper`] does it.

pub mod claimed_channels;
mod desired;
pub mod engine;
pub mod etcd;
pub mod fleet_view;
pub mod http;
pub mod keeper;
#[cfg(test)]
mod keeper_tests;
pub mod kubernetes;
#[cfg(test)]
mod memory;
mod plan;
#[cfg(any(test, feature = "test-util"))]
pub mod promises;
