//! Answers of the server to statements.

use tokio::time::Instant;

/// A statement's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub rows: u64,
    pub warnings: u16,
    /// Rows of a `SHOW WARNINGS`.
    pub shown: Vec<Warning>,
    /// The moment of its arrival, where that is of use.
    pub at: Option<Instant>,
}

/// A line of `SHOW WARNINGS`, in English.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub code: u16,
    pub message: String,
}
