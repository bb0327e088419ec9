//! The parts of `csa-daemon` that are useful without the daemon: the checks before a channel is
//! started, the comparison of its two servers, and a channel's progress.

pub mod check;
pub mod progress;
pub mod state_dir;
pub mod verify;
