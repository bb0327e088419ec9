//! The channel's place on the target: who owns it, how far it is, and who may start it from where.

pub(crate) mod adopt;
pub(crate) mod audit;
pub(crate) mod bookkeeping;
pub(crate) mod channel_record;
pub(crate) mod checkpoint;
pub(crate) mod claim;
mod commit_order;
mod continuity;
pub(crate) mod control;
pub(crate) mod copying;
pub(crate) mod holes;
pub(crate) mod intent;
pub(crate) mod keeper;
pub(crate) mod known;
pub(crate) mod locks;
pub(crate) mod move_journal;
pub(crate) mod preflight;
pub(crate) mod reconnect;
pub(crate) mod requirements;
pub(crate) mod shown_state;
mod skip;
pub(crate) mod standby;
pub(crate) mod start_position;
pub(crate) mod target_servers;
