//! Facts about a row that could not be applied.

use std::fmt;

/// The row that stopped a channel. Holds row values: not for logs.
#[derive(Clone, PartialEq, Eq)]
pub struct FailingRow {
    pub table: String,
    /// `Write_rows`, `Update_rows` or `Delete_rows`.
    pub event_type: &'static str,
    /// Number of the event among the transaction's rows events, from 1.
    pub event_number: u64,
    /// End position of the event in the source's binary log; 0 inside a compressed transaction.
    pub end_log_pos: u32,
    /// Number of the row in the event, from 1; `None` if each of them can be applied alone.
    pub row_number: Option<u64>,
    /// Index and columns by which the target's row was looked up.
    pub key: Option<String>,
    pub columns: Vec<FailingColumn>,
    pub present: PresentRow,
    /// A column whose types differ, where the row does not fit the target's table.
    pub mismatch: Option<String>,
    /// The server's refusal of such a change by our account, where it named no cause.
    pub denied: Option<String>,
    /// A statement for the target, after which the transaction can be applied.
    pub repair: Option<String>,
}

/// One column, as far as images and target have it; long values are cut.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FailingColumn {
    pub name: String,
    /// The row on the source before and after the change.
    pub before: Option<String>,
    pub after: Option<String>,
    /// The row on the target at this moment.
    pub target: Option<String>,
}

/// The target's row with that key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresentRow {
    Present,
    Missing,
    /// It was not looked up, for this reason.
    Unknown(String),
}

impl fmt::Debug for FailingColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailingColumn({})", self.name)
    }
}

impl fmt::Debug for FailingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailingRow({self})")
    }
}

/// Shows no values.
impl fmt::Display for FailingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, event_type, event_number, .. } = self;
        if let Some(row) = self.row_number {
            write!(f, "row {row} of ")?;
        }
        write!(f, "rows event {event_number} ({event_type} of {table}")?;
        if self.end_log_pos > 0 {
            write!(f, ", end_log_pos {}", self.end_log_pos)?;
        }
        f.write_str(")")
    }
}
