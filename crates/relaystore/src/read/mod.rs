//! Reads whole transactions from the segment files; recovers and inspects the files.

mod ahead;
pub(crate) mod inspect;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod transaction;

pub use inspect::{RelayInspector, SegmentFacts};
pub use reader::RelayReader;
pub use recovery::Recovery;
pub use transaction::{EventCursor, Extent, RelayRange, RelayedTransaction, TransactionBody};
