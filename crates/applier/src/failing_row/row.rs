//! What is told of a row that could not be applied.

use std::fmt;

/// The row that stopped a channel. Holds row values: not for logs.
#[derive(Clone, PartialEq, Eq)]
pub struct FailingRow {
    pub table: String,
    /// `Write_rows` and its kin.
    pub event_type: &'static str,
    /// Which of the transaction's rows events it is, from 1.
    pub event_number: u64,
    /// Where the event ends in the source's binary log; 0 inside a compressed transaction.
    pub end_log_pos: u32,
    /// Which row of the event it is, from 1; `None` where each of them can be applied alone.
    pub row_number: Option<u64>,
    /// Index and columns by which the target was asked for its row.
    pub key: Option<String>,
    pub columns: Vec<FailingColumn>,
    pub present: PresentRow,
    /// A statement that brings the target's row to where the transaction can be applied.
    pub repair: Option<String>,
}

/// One column, as far as images and target have it; long values are cut.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FailingColumn {
    pub name: String,
    /// On the source before and after the change.
    pub before: Option<String>,
    pub after: Option<String>,
    /// On the target at this moment.
    pub target: Option<String>,
}

/// What the target has by that key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresentRow {
    Present,
    Missing,
    /// Not asked for: why.
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

/// Without values.
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
