//! Takes events at the inlet, and writes them over a bounded queue to the segment files.

pub(crate) mod driver;
mod frames;
pub(crate) mod history;
pub(crate) mod inlet;
mod pace;
pub(crate) mod queue;
mod segment_file;
mod unpublished;
mod unwritten;
pub(crate) mod writer;

pub use driver::{NextStep, RelayWriter};
pub use inlet::RelayInlet;
