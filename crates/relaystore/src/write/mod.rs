//! Takes events at the inlet, and writes them over a bounded queue to the segment files.

pub(crate) mod buffers;
pub(crate) mod driver;
mod frames;
pub(crate) mod history;
pub(crate) mod inlet;
pub(crate) mod queue;
mod segment_file;
mod unpublished;
pub(crate) mod writer;

pub use driver::{NextStep, RelayWriter};
pub use inlet::RelayInlet;
