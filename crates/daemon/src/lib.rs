//! What of `csa-daemon` is of use without the daemon: what is checked before a channel is
//! started, and the comparison of its two servers.

pub mod check;
pub mod state_dir;
pub mod verify;
