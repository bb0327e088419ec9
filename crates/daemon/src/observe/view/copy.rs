//! The progress of the copy with which a channel begins.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CopyView {
    /// `snapshot`, `tables`, `rows` or `programs`.
    pub(crate) step: String,
    pub(crate) tables: u64,
    pub(crate) tables_done: u64,
    /// A table of which rows are copied.
    pub(crate) table: String,
    pub(crate) rows: u64,
    /// The source's guess.
    pub(crate) rows_estimated: u64,
    /// Bytes of the statements that insert rows.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}
