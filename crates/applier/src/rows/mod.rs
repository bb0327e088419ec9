//! Row changes: merged, cut into steps, and sent as row images or as SQL.

pub(crate) mod dml;
pub(crate) mod executor;
pub(crate) mod failing_row;
pub(crate) mod image;
mod merge;
pub(crate) mod steps;

#[cfg(test)]
mod recorded_stream_tests;
