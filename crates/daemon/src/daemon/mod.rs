//! The running process: its channels and their reload, its place in a fleet, and what systemd learns of it.

pub(crate) mod fleet;
mod live_settings;
mod process;
mod reload;
pub(crate) mod rounds;
pub(crate) mod systemd;

pub(crate) use live_settings::DAEMON_SETTINGS;
pub(crate) use process::{AUDIT_ROWS_MAX, Daemon};
pub(crate) use reload::Reload;
pub(crate) use systemd::{ManagedChannel, Milestones};
