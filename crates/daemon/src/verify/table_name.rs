//! The name of a table.

use std::fmt;
use std::str::FromStr;

/// A schema and a table in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: String,
    pub table: String,
}

impl From<(String, String)> for TableName {
    fn from((schema, table): (String, String)) -> Self {
        Self { schema, table }
    }
}

impl From<TableName> for (String, String) {
    fn from(TableName { schema, table }: TableName) -> Self {
        (schema, table)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.schema, self.table)
    }
}

impl FromStr for TableName {
    type Err = String;

    /// Returns `schema.table`; the first dot parts them.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('.') {
            Some((schema, table)) if !schema.is_empty() && !table.is_empty() => {
                Ok(Self { schema: schema.to_owned(), table: table.to_owned() })
            }
            _ => Err(format!("{text:?} is not SCHEMA.TABLE")),
        }
    }
}
