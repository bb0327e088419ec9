//! Facts about channels, for readers: the views of `/status`, progress and lag, metrics, history, timelines,
//! advice, and the contents of a relay store.

pub(crate) mod advice;
pub(crate) mod gtid_lag;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod peers;
pub mod progress;
pub(crate) mod relay_dump;
mod row_values;
pub(crate) mod timeline;
pub(crate) mod view;
