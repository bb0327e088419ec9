//! The parts of `csa-daemon` that are useful without the daemon: the checks before a channel is
//! started, and the comparison of its two servers.

pub mod check;
pub mod state_dir;
pub mod verify;
