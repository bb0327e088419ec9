//! The comparisons that a channel makes on its own (`[channel.verify]`).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct VerifyView {
    /// `waiting` for the next comparison, `comparing`, or `held`.
    pub(crate) state: String,
    /// The state in words.
    pub(crate) detail: String,
    pub(crate) every_seconds: f64,
    /// Absent unless a comparison has begun.
    pub(crate) progress: Option<VerifyProgressView>,
    /// Absent before the first comparison of all tables has ended.
    pub(crate) last: Option<VerifyResultView>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct VerifyProgressView {
    pub(crate) begun: String,
    pub(crate) tables: u64,
    pub(crate) tables_done: u64,
    /// The table that is compared now.
    pub(crate) table: String,
    pub(crate) rows: u64,
    /// The source's guess.
    pub(crate) rows_estimated: u64,
}

/// The last comparison of all tables, with what later looks at the tables that differ have found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct VerifyResultView {
    /// `equal`, `unstable` or `different`.
    pub(crate) outcome: String,
    /// RFC 3339.
    pub(crate) finished: String,
    pub(crate) age_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) tables: u64,
    pub(crate) rows: u64,
    pub(crate) differing: Vec<DifferingTableView>,
    /// The result in words, and how to proceed.
    pub(crate) text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DifferingTableView {
    pub(crate) table: String,
    /// Rows that differ; of more than 100 the first 100.
    #[serde(default)]
    pub(crate) rows: u64,
    /// The difference in words.
    #[serde(default)]
    pub(crate) what: String,
    /// Copies what differs again; absent where a copy would not help.
    pub(crate) command: Option<String>,
}

impl VerifyView {
    pub(crate) fn without_result(self) -> Self {
        Self { progress: None, last: None, ..self }
    }

    /// Returns the share of the comparison that is done, 0 to 1; `None` unless one has begun.
    pub(crate) fn share(&self) -> Option<f64> {
        let progress = self.progress.as_ref()?;
        let of_table =
            progress.rows as f64 / progress.rows_estimated.max(progress.rows).max(1) as f64;
        Some(
            (progress.tables_done as f64 + of_table).min(progress.tables as f64)
                / progress.tables.max(1) as f64,
        )
    }
}
