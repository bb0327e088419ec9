//! The progress of the copy with which a channel begins, and the comparison that ends it.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CopyView {
    /// `snapshot`, `tables`, `rows`, `comparison`, `programs`, `rows_left`, `changes` or `keys`.
    pub(crate) step: String,
    pub(crate) tables: u64,
    pub(crate) tables_done: u64,
    /// The tables of which rows are copied now.
    pub(crate) moving: Vec<MovingTableView>,
    pub(crate) rows: u64,
    /// The source's guess.
    pub(crate) rows_estimated: u64,
    /// Bytes of the statements that insert rows.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Rows per second since the copy began or continued; absent while there are too few.
    pub(crate) rate: Option<f64>,
    /// Until all rows are copied, by the rate and the source's guess.
    pub(crate) seconds_left: Option<f64>,
    /// The pause or the limit that holds the copy back.
    pub(crate) held: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MovingTableView {
    pub(crate) table: String,
    pub(crate) rows: u64,
    /// The source's guess.
    pub(crate) rows_estimated: u64,
}

/// The comparison of the copied tables with the source, once the channel runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CopyCheckView {
    /// `comparing`, `equal`, `unstable`, `different` or `unfinished`.
    pub(crate) outcome: String,
    /// Tables and rows that were compared.
    pub(crate) tables: u64,
    pub(crate) rows: u64,
    /// The result in words, and how to proceed.
    pub(crate) text: String,
    /// Tables that are known to differ, also while they are copied and compared again.
    #[serde(skip)]
    pub(crate) differing: Vec<String>,
}

impl CopyCheckView {
    /// Returns true if all was compared.
    pub(crate) fn is_finished(&self) -> bool {
        self.outcome == "equal" || self.outcome == "different"
    }

    /// Returns true before the comparison has a result.
    pub(crate) fn is_under_way(&self) -> bool {
        self.outcome == "comparing"
    }

    /// Returns true if the copy is known to be wrong.
    pub(crate) fn is_different(&self) -> bool {
        self.outcome == "different" || !self.differing.is_empty()
    }
}
