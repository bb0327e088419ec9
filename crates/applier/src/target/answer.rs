//! Answers of the server to statements.

/// A statement's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) rows: u64,
    pub(crate) warnings: u16,
    /// Rows of a `SHOW WARNINGS`.
    pub(crate) shown: Vec<Warning>,
}

/// A line of `SHOW WARNINGS`, in English.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) code: u16,
    pub(crate) message: String,
}
