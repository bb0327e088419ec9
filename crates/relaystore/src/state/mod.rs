//! The state that the writer, the readers and the status page share: segments, the visible end, the memory tail.

pub(crate) mod buffers;
pub(crate) mod follow;
pub(crate) mod purge;
pub(crate) mod segments;
pub(crate) mod shared;
pub(crate) mod space;
pub(crate) mod tail;

pub use follow::{Followed, Outcome};
pub use shared::{Queued, RelayUsage};
