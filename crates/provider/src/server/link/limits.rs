//! Limits of answers: no server is trusted to end an answer.

use super::LinkError;

/// Rows and bytes of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub rows: usize,
    /// Bytes of one row.
    pub row_bytes: usize,
    /// Bytes of all rows, including the memory overhead of holding them.
    pub bytes: usize,
}

impl Limits {
    /// One row of a few variables.
    pub const SETTING: Self = Self { rows: 1, row_bytes: 64 << 10, bytes: 128 << 10 };
    /// One row with GTID sets, which grow with their gaps.
    pub const GTIDS: Self = Self { rows: 1, row_bytes: 16 << 20, bytes: 17 << 20 };
    /// Tables, columns, grants, connections: more than the largest servers have.
    pub const LIST: Self = Self { rows: 1 << 20, row_bytes: 64 << 20, bytes: 256 << 20 };
}

/// The approximate memory overhead of a row, and of each of its values.
const ROW_BYTES: usize = 64;
const VALUE_BYTES: usize = 48;

/// The rest of an answer's limits.
#[derive(Debug)]
pub struct Budget<'a> {
    limits: Limits,
    rows: usize,
    bytes: usize,
    /// The statement, as errors may name it.
    what: &'a str,
}

impl<'a> Budget<'a> {
    #[must_use]
    pub fn new(limits: Limits, what: &'a str) -> Self {
        Self { limits, rows: 0, bytes: 0, what }
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.limits.row_bytes
    }

    /// Counts a row before it is kept.
    pub(super) fn row(&mut self, bytes: usize, values: usize) -> Result<(), LinkError> {
        self.rows += 1;
        if self.rows > self.limits.rows {
            return Err(self.exceeded(format!("more than {} rows", self.limits.rows)));
        }
        self.bytes(bytes + ROW_BYTES + values * VALUE_BYTES)
    }

    /// Counts an answer without rows.
    pub(super) fn answer(&mut self) -> Result<(), LinkError> {
        self.bytes(ROW_BYTES)
    }

    fn bytes(&mut self, bytes: usize) -> Result<(), LinkError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > self.limits.bytes {
            true => Err(self.exceeded(format!("more than {} bytes", self.limits.bytes))),
            false => Ok(()),
        }
    }

    fn exceeded(&self, limit: String) -> LinkError {
        LinkError::TooLong(format!("{limit} in answer to {}", self.what))
    }

    /// Names the statement in an error about one packet.
    pub(super) fn named(&self, error: LinkError) -> LinkError {
        match error {
            LinkError::TooLong(text) => {
                LinkError::TooLong(format!("{text} in answer to {}", self.what))
            }
            other => other,
        }
    }
}

/// Returns the beginning of a query, enough to recognize it, without the values after WHERE, which
/// must not be logged.
pub(super) fn named(query: &str) -> &str {
    const CHARS: usize = 80;
    let end = query.find(" WHERE ").unwrap_or(query.len());
    let head = query.get(..end).unwrap_or(query);
    match head.char_indices().nth(CHARS) {
        Some((end, _)) => head.get(..end).unwrap_or(head),
        None => head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_limit_and_the_statement() {
        let mut budget = Budget::new(Limits::SETTING, "SELECT @@version");
        budget.row(10, 1).expect("one row");
        let error = budget.row(10, 1).expect_err("another");
        assert_eq!(error.to_string(), "too long: more than 1 rows in answer to SELECT @@version");
        let mut budget = Budget::new(Limits::LIST, "SHOW GRANTS");
        let error = (0..).find_map(|_| budget.row(1 << 20, 1).err()).expect("an end");
        assert!(error.to_string().contains("268435456 bytes in answer to SHOW GRANTS"), "{error}");
        let mut budget = Budget::new(Limits::LIST, "it");
        assert!((0..).find_map(|_| budget.answer().err()).is_some(), "answers end too");
    }

    #[test]
    fn values_are_not_named() {
        assert_eq!(named("SELECT a FROM t WHERE b='secret'"), "SELECT a FROM t");
        assert_eq!(named(&"é".repeat(100)).chars().count(), 80);
    }
}
