//! Takes events at the inlet, and writes them over a bounded queue to the segment files.

pub(crate) mod buffers;
pub(crate) mod driver;
pub(crate) mod inlet;
pub(crate) mod queue;
pub(crate) mod writer;

pub use driver::{NextStep, RelayWriter};
pub use inlet::RelayInlet;
