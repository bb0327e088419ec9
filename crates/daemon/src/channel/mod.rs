//! One channel: its supervision, its runs, what changes while it runs, and its status.

mod archiving;
mod copy_check;
mod copy_watch;
mod describe;
mod error;
mod first_copy;
mod health;
mod holes;
mod identity;
mod kept_foreign;
mod lifetime;
mod live_settings;
mod overlap;
mod pipeline;
mod prepare;
mod reception;
mod refusal;
mod rounds;
mod shown_state;
mod stage;
mod standby;
mod start;
mod start_steps;
mod supervisor;
mod target_watch;
mod traced;
mod watch;

pub(crate) use identity::Identity;
pub(crate) use live_settings::{CHANNEL_SETTINGS, LiveSetting, Paused, SetCommand};
pub(crate) use overlap::overlap;
pub(crate) use refusal::Refusal;
pub(crate) use rounds::forget_comparisons;
pub(crate) use supervisor::{Stopped, Supervisor};
pub(crate) use traced::Traced;
