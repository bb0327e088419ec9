//! What of `csa-daemon` is of use without the daemon: the comparison of a channel's two servers.

pub mod verify;
