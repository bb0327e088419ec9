//! The parts of `csa-daemon` that are useful without the daemon: the checks before a channel is
//! started, the comparison of its two servers, a channel's progress, and the claims of a fleet.

pub mod check;
pub mod claims;
pub mod gtid_lag;
pub mod progress;
pub mod state_dir;
pub mod verify;
