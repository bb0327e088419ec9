//! Moves the applications from one server of a pair of channels to the other, and back: `csa-daemon move`.
//!
//! [`decide`] says what happens next (pure), from the [`journal`] and from what the servers say; [`mover`] does it. No
//! moment has two servers that take writes: the old one is fenced before the new one is opened, and is opened again only
//! while the new one can't have taken a write.

mod check;
mod decide;
mod ends;
mod fence;
mod journal;
mod mover;
mod pair;
mod plan;
mod planted;
mod record;
mod reopen;
mod server;
mod steps;
mod tail;
mod undo;

pub(crate) use journal::{Direction, number_on_host};
pub(crate) use mover::Mover;
pub(crate) use pair::Pair;

use crate::host::Failure;
use crate::observe::view::{ChannelView, CommandView};

/// The running daemon.
pub(crate) trait DaemonControl {
    /// Returns a channel as `/status` shows it.
    fn view(&self, channel: &str) -> Result<ChannelView, Failure>;

    /// Gives a command to a channel: `restart` or `stop`.
    fn command(&self, channel: &str, command: &str) -> Result<CommandView, Failure>;

    /// Shows a line to the operator.
    fn tell(&self, line: &str);
}
