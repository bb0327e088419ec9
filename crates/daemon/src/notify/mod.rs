//! Events of channels for a receiver of the operator: a command or a server. Nothing here is in the way of a channel:
//! [`watch`](watcher) looks at the views that `/status` shows, and each channel has a task that delivers.

mod command;
mod event;
mod kept;
mod outbox;
mod receiver;
mod state;
mod tally;
mod tracker;
mod watcher;
mod webhook;

pub(crate) use event::{Event, Origin};
pub(crate) use receiver::{deliver, name_of};
pub(crate) use tally::Tally;
pub(crate) use watcher::{WatchedChannel, host, watch};
