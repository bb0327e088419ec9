//! The committed state of the server: tables with their rows, and `gtid_executed`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use csa_provider::binlog::GtidSet;

use super::row_locks::{LockName, Mode};
use super::transaction::Transaction;

/// Schema and table.
pub(crate) type TableName = (String, String);
pub(crate) type Row = Vec<Value>;
/// Values of the columns of a key, in the key's order.
pub(crate) type Key = Vec<Value>;
pub(crate) type Rows = BTreeMap<Key, Row>;

/// NULL in an answer; no text is like it.
pub(crate) const NULL: &str = "\0NULL";

/// A value; texts are compared by their bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Null,
    Number(i64),
    Text(String),
}

impl Value {
    /// As the text protocol shows it, and [`NULL`].
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Null => NULL.to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Value of a row that was written without it.
    pub(crate) default: Value,
    pub(crate) counts_up: bool,
}

/// A reference to the primary key, of one column, of another table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) column: usize,
    pub(crate) parent: TableName,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) primary: Vec<usize>,
    /// Columns of unique secondary keys.
    pub(crate) unique: Vec<Vec<usize>>,
    pub(crate) references: Vec<Reference>,
    /// Shared with older states until one of them changes.
    pub(crate) rows: Arc<Rows>,
}

impl Table {
    pub(crate) fn column(&self, name: &str) -> usize {
        let found = self.columns.iter().position(|column| column.name == name);
        found.unwrap_or_else(|| panic!("no column {name}"))
    }

    pub(crate) fn key(&self, row: &Row) -> Key {
        self.primary.iter().map(|&column| row[column].clone()).collect()
    }

    /// Returns the row's value of a unique secondary key; `None` if a part is NULL.
    pub(crate) fn unique_value(&self, index: usize, row: &Row) -> Option<Key> {
        let parts = self.unique[index].iter().map(|&column| row[column].clone());
        let parts: Key = parts.collect();
        (!parts.contains(&Value::Null)).then_some(parts)
    }
}

/// Everything that is committed.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) schemas: BTreeSet<String>,
    pub(crate) tables: BTreeMap<TableName, Table>,
    pub(crate) executed: GtidSet,
    /// Distributed transactions that are prepared, by their xids.
    pub(crate) prepared: BTreeMap<String, Branch>,
}

/// A distributed transaction that belongs to no session any more.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    pub(crate) changes: Transaction,
    /// The number of no session, under which its locks are held.
    pub(crate) owner: u32,
    pub(crate) locks: Vec<(LockName, Mode)>,
}

impl State {
    /// Returns the tables that refer to `parent`, and the column.
    pub(crate) fn children_of(
        &self,
        parent: &TableName,
    ) -> impl Iterator<Item = (&TableName, usize)> {
        let references = self.tables.iter().flat_map(|(name, table)| {
            table.references.iter().map(move |reference| (name, reference))
        });
        references
            .filter(move |(_, reference)| reference.parent == *parent)
            .map(|(name, reference)| (name, reference.column))
    }

    /// Returns the rows of every table of a schema.
    pub(crate) fn rows_of(&self, schema: &str) -> BTreeMap<&str, &Rows> {
        let tables = self.tables.iter().filter(|((of, _), _)| of == schema);
        tables.map(|((_, name), table)| (name.as_str(), &*table.rows)).collect()
    }
}
