#![doc = include_str!("../README.md")]

mod admission;
mod commit_order;
mod error;
mod group;
mod memory;
mod scheduler;
mod sequence;

pub use admission::{AdmittedTransaction, TransactionKind, flattened_events};
pub use commit_order::{CommitOrder, LowWaterMark};
pub use error::{Error, Result};
pub use group::{Group, GroupKind, GroupLimits};
pub use memory::{EventMemory, EventPermit};
pub use scheduler::Scheduler;
pub use sequence::Sequence;
