//! `csa-daemon`: an external replica of MySQL. The README has the rooms and their direction. Public is only
//! `cli::main`, and the parts that the tests use without the daemon: a channel's progress, the comparison of its
//! two servers, the claims of a fleet, and copies that a simulation drives.

mod admin;
mod archive;
mod channel;
pub mod claims;
pub mod cli;
mod config;
mod copy;
mod daemon;
mod host;
mod moving;
mod notify;
pub mod observe;
mod restore;
mod run;
mod servers;
mod throttle;
pub mod verify;

#[cfg(feature = "test-util")]
pub use copy::driven;
