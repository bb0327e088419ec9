#![doc = include_str!("../README.md")]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod admission;
mod changes;
mod conflicts;
mod error;
mod events;
mod filter;
mod group;
pub mod intake;
mod key_source;
mod keys;
mod low_water;
mod memory;
mod returned;
mod row_sessions;
mod scheduler;
mod sequence;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod until;

pub use admission::{Admission, AdmittedTransaction, TransactionKind};
pub use changes::{RowChange, RowChanges, RowsBlock};
pub use error::{Error, Result};
pub use events::{bytes_at_a_time, decompressed_bytes, flattened_events};
pub use filter::{FilterRules, Filters, InvalidRule, is_own};
pub use group::{Group, GroupCommits, GroupKind, GroupLimits};
pub use key_source::{KeySource, KeySourceError};
pub use keys::{
    Collation, ForeignKey, KeyClass, KeyHasher, KeyMap, KeyPart, KeyRole, KeyUse, TableId,
    TableKeys, TableLayout, TableUse, UniqueKey, Weights, foreign_key_ranks,
};
pub use low_water::{LowWaterMark, Uncommitted};
pub use memory::{EventMemory, EventPermit, Footprint, Ticket};
pub use scheduler::Scheduler;
pub use sequence::Sequence;
pub use until::{StreamEnd, Until, UntilGate, UntilPast};
