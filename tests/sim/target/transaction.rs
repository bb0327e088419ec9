//! The changes of a transaction that is not committed: kept beside the committed rows, where only the
//! transaction sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{Key, Row, State, TableName};

/// Rows as the transaction leaves them; `None` for a row that it deleted.
type Changed = BTreeMap<Key, Option<Row>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Transaction {
    /// It was begun by BEGIN, not by a statement that commits on its own.
    pub(crate) is_explicit: bool,
    /// The xid of a distributed one, which only steps of XA can end.
    pub(crate) xid: Option<String>,
    changes: BTreeMap<TableName, Changed>,
    /// The entries that `changes` had before, the latest last.
    undo: Vec<(TableName, Key, Option<Option<Row>>)>,
    savepoints: Vec<(String, usize)>,
}

impl Transaction {
    pub(crate) fn explicit() -> Self {
        Self { is_explicit: true, ..Self::default() }
    }

    pub(crate) fn distributed(xid: &str) -> Self {
        Self { xid: Some(xid.to_owned()), ..Self::explicit() }
    }

    /// The number of row changes, by which a deadlock's victim is chosen.
    pub(crate) fn weight(&self) -> usize {
        self.undo.len()
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.undo.is_empty()
    }

    /// The row as the transaction sees it.
    pub(crate) fn row(&self, state: &State, table: &TableName, key: &Key) -> Option<Row> {
        match self.changes.get(table).and_then(|changed| changed.get(key)) {
            Some(changed) => changed.clone(),
            None => state.tables.get(table)?.rows.get(key).cloned(),
        }
    }

    /// All rows of a table as the transaction sees them.
    pub(crate) fn rows(&self, state: &State, table: &TableName) -> Vec<(Key, Row)> {
        let committed = state.tables.get(table).map(|table| &*table.rows);
        let changed = self.changes.get(table);
        let is_changed = |key: &Key| changed.is_some_and(|changed| changed.contains_key(key));
        let mut rows: Vec<(Key, Row)> = committed
            .into_iter()
            .flatten()
            .filter(|(key, _)| !is_changed(key))
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        let written = changed.into_iter().flatten();
        rows.extend(written.filter_map(|(key, row)| Some((key.clone(), row.clone()?))));
        rows.sort();
        rows
    }

    pub(crate) fn set(&mut self, table: &TableName, key: Key, row: Option<Row>) {
        let before = self.changes.entry(table.clone()).or_default().insert(key.clone(), row);
        self.undo.push((table.clone(), key, before));
    }

    /// Returns the present place, for [`Self::undo_to`].
    pub(crate) fn place(&self) -> usize {
        self.undo.len()
    }

    pub(crate) fn undo_to(&mut self, place: usize) {
        while self.undo.len() > place {
            let Some((table, key, before)) = self.undo.pop() else { return };
            let changed = self.changes.entry(table).or_default();
            match before {
                Some(before) => changed.insert(key, before),
                None => changed.remove(&key),
            };
        }
    }

    pub(crate) fn savepoint(&mut self, name: &str) {
        self.savepoints.retain(|(known, _)| known != name);
        self.savepoints.push((name.to_owned(), self.place()));
    }

    /// Returns false if there is no such savepoint.
    pub(crate) fn roll_back_to(&mut self, name: &str) -> bool {
        let Some(at) = self.savepoints.iter().position(|(known, _)| known == name) else {
            return false;
        };
        let place = self.savepoints[at].1;
        self.savepoints.truncate(at + 1);
        self.undo_to(place);
        true
    }

    pub(crate) fn commit(self, state: &mut State) {
        for (name, changed) in self.changes {
            let Some(table) = state.tables.get_mut(&name) else { continue };
            let rows = Arc::make_mut(&mut table.rows);
            for (key, row) in changed {
                match row {
                    Some(row) => rows.insert(key, row),
                    None => rows.remove(&key),
                };
            }
        }
    }
}
