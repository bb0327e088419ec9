//! A transaction of the load.

/// A transaction as it is sent, and the rows it changes.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) text: String,
    pub(super) row_changes: u64,
}

impl Transaction {
    /// A single statement autocommits; several are put between BEGIN and COMMIT.
    pub(super) fn of(statements: &[String], row_changes: u64) -> Self {
        let text = match statements {
            [single] => single.clone(),
            several => format!("BEGIN;{};COMMIT", several.join(";")),
        };
        Self { text, row_changes }
    }
}
