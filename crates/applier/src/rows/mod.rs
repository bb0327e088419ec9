//! Row changes: merged, cut into steps, and sent as row images or as SQL.

pub(crate) mod binlog_statements;
pub(crate) mod converging;
pub(crate) mod discarded;
pub(crate) mod dml;
pub(crate) mod executor;
pub(crate) mod failing_row;
mod merge;
pub(crate) mod steps;
mod updated_again;

#[cfg(test)]
mod converging_model_tests;
#[cfg(test)]
mod recorded_stream_tests;
