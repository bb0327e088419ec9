//! Messages from a run in progress.

use super::report::TableReport;
use super::resume::Saved;

/// The current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    #[default]
    Comparing,
    /// Rows that differed are being read again.
    Rechecking { rows: u64 },
    /// The target lags by more than `max_lag`.
    WaitingForLag,
}

/// The progress of a run.
#[derive(Debug, Clone, Default)]
pub struct VerifyProgress {
    pub tables: usize,
    pub tables_done: usize,
    /// The table being compared, as the source names it.
    pub table: String,
    pub rows: u64,
    /// The source's estimate.
    pub rows_estimated: u64,
    pub activity: Activity,
}

/// A message from a run in progress.
#[derive(Debug)]
pub enum VerifyEvent<'a> {
    Progress(&'a VerifyProgress),
    Table(&'a TableReport),
    /// An earlier run has compared these rows of a table.
    Resumed(&'a VerifyProgress),
    /// A later run can resume here.
    Saved(&'a Saved),
}
