//! The target server: sessions on it, the locks that name them, the locks of others, and its definitions.

pub(crate) mod answer;
pub(crate) mod as_source;
pub(crate) mod connect;
pub(crate) mod definitions;
pub(crate) mod facts;
pub(crate) mod generation;
pub(crate) mod group;
pub(crate) mod liveness;
pub(crate) mod lock_names;
pub(crate) mod lock_wait;
pub(crate) mod port;
pub(crate) mod prelude;
pub(crate) mod processes;
pub(crate) mod reachability;
pub(crate) mod reached;
pub(crate) mod refusals;
pub(crate) mod retry_pause;
pub(crate) mod room;
pub(crate) mod row_session;
pub(crate) mod row_settings;
#[cfg(test)]
pub(crate) mod scripted;
pub(crate) mod search;
pub(crate) mod session;
pub(crate) mod target;
