//! A channel's progress: how much of what the source has committed is received and applied, how large the
//! backlog is, and how far the target lags. It is collected from the parts that run the channel as they
//! come and go; the rest is pure.

mod backlog;
mod collected;
mod lag;
mod progress_view;

pub use backlog::{Count, ReadUpTo};
pub use collected::{CollectedProgress, Search, SearchResult};
pub use lag::Tail;
pub use progress_view::{Moment, ProgressView};
