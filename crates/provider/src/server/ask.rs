//! Questions to a server, whatever the session is.

use std::future::Future;

use super::link::{Limits, Row, Value};
use crate::binlog::gtid::ParseGtidError;

/// A row as text; `None` for NULL.
pub type TextRow = Vec<Option<String>>;

/// A session that answers queries.
pub trait Ask {
    type Error: Send;

    /// Returns the rows of a query.
    fn ask(
        &mut self,
        query: &str,
        limits: Limits,
    ) -> impl Future<Output = Result<Vec<TextRow>, Self::Error>> + Send;

    /// Returns the error for a GTID set that can't be read.
    fn unreadable(&self, variable: &str, why: ParseGtidError) -> Self::Error;
}

/// Returns the first column of the first row; `None` for NULL and no row.
#[must_use]
pub fn first(rows: Vec<TextRow>) -> Option<String> {
    rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten()
}

/// Returns the values of a row as text.
#[must_use]
pub fn texts(row: Row) -> TextRow {
    let text = |value: Option<Value>| match value? {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true)),
    };
    row.unwrap_raw().into_iter().map(text).collect()
}
