#![doc = include_str!("../README.md")]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod directory;
mod driver;
mod error;
mod follow;
mod fs;
mod inlet;
mod inspect;
#[cfg(any(test, feature = "test-util"))]
mod memory_fs;
mod options;
mod private;
mod purge;
mod queue;
mod reader;
mod recovery;
mod room;
mod segment;
mod segments;
mod shared;
mod store;
mod survey;
mod tail;
mod transaction;
mod writer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;

pub use driver::{NextStep, RelayWriter};
pub use error::{Error, Result};
pub use follow::{Followed, Outcome};
pub use fs::{FileSystem, RealFs, StoredFile};
pub use inlet::RelayInlet;
pub use inspect::{RelayInspector, SegmentFacts};
#[cfg(any(test, feature = "test-util"))]
pub use memory_fs::{Faults, MemoryFs};
pub use options::{RelayStoreOptions, SyncPolicy};
pub use private::{create_private_file, create_private_folder, make_private};
pub use reader::RelayReader;
pub use recovery::Recovery;
pub use segment::RelayPosition;
pub use shared::{Queued, RelayUsage};
pub use store::RelayStore;
pub use survey::{RelaySurvey, survey};
pub use transaction::{EventCursor, Extent, RelayRange, RelayedTransaction, TransactionBody};
