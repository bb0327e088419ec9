//! Changes of rows in a transaction: each takes its locks first, then checks keys and references.

use super::binlog::{Change, Image};
use super::row_locks::{LockName, Mode, RowLocks};
use super::sql::{Condition, Conflict, Insert, Scalar, Select};
use super::state::{Key, Row, State, Table, TableName, Value};
use super::transaction::Transaction;
use csa_provider::binlog::RowsKind;

/// The reason a statement can't be finished now.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It has to wait for a lock, and then to begin again.
    Blocked(LockName, Mode),
    Failed(u16, String),
}

pub(crate) type Result<T> = std::result::Result<T, Stop>;

fn failed<T>(code: u16, message: impl Into<String>) -> Result<T> {
    Err(Stop::Failed(code, message.into()))
}

/// A session at work on rows.
pub(crate) struct Writer<'a> {
    pub(crate) session: u32,
    pub(crate) state: &'a State,
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) locks: &'a mut RowLocks,
    pub(crate) checks_references: bool,
    /// Its row images pass over missing rows, and replace those that are there.
    pub(crate) is_idempotent: bool,
    /// Value of NOW().
    pub(crate) now: i64,
}

impl Writer<'_> {
    pub(crate) fn lock(&mut self, name: LockName, mode: Mode) -> Result<()> {
        match self.locks.take(self.session, &name, mode) {
            true => Ok(()),
            false => Err(Stop::Blocked(name, mode)),
        }
    }

    fn lock_value(&mut self, table: &TableName, index: usize, key: Key, mode: Mode) -> Result<()> {
        self.lock(LockName::Value(table.clone(), index, key), mode)
    }

    /// Returns a table that the transaction is going to use.
    fn table(&mut self, name: &TableName) -> Result<Table> {
        let Some(table) = self.state.tables.get(name) else {
            let code = if self.state.schemas.contains(&name.0) { 1146 } else { 1049 };
            return failed(code, format!("Table '{}.{}' doesn't exist", name.0, name.1));
        };
        let table = table.clone();
        self.lock(LockName::Table(name.clone()), Mode::Shared)?;
        Ok(table)
    }

    fn row(&self, table: &TableName, key: &Key) -> Option<Row> {
        self.transaction.row(self.state, table, key)
    }

    fn put(&mut self, name: &TableName, table: &Table, row: Row) -> Result<()> {
        let key = table.key(&row);
        self.lock_value(name, 0, key.clone(), Mode::Exclusive)?;
        if self.is_idempotent {
            self.make_room(name, table, &row)?;
        }
        if self.row(name, &key).is_some() {
            return failed(1062, format!("Duplicate entry '{key:?}' for key '{}.PRIMARY'", name.1));
        }
        self.check_unique(name, table, &row, &key)?;
        self.check_parents(table, &row, None)?;
        self.transaction.set(name, key, Some(row));
        Ok(())
    }

    /// Removes the rows that have a key of this one.
    fn make_room(&mut self, name: &TableName, table: &Table, row: &Row) -> Result<()> {
        let own = table.key(row);
        let rows = self.transaction.rows(self.state, name);
        let has_key = |(key, other): &&(Key, Row)| {
            let has_value = |index: usize| {
                let value = table.unique_value(index, row);
                value.is_some() && table.unique_value(index, other) == value
            };
            *key == own || (0..table.unique.len()).any(has_value)
        };
        for (key, other) in rows.iter().filter(has_key) {
            self.lock_value(name, 0, key.clone(), Mode::Exclusive)?;
            self.remove(name, table, key, other)?;
        }
        Ok(())
    }

    fn check_unique(
        &mut self,
        name: &TableName,
        table: &Table,
        row: &Row,
        own: &Key,
    ) -> Result<()> {
        for index in 0..table.unique.len() {
            let Some(value) = table.unique_value(index, row) else { continue };
            self.lock_value(name, index + 1, value.clone(), Mode::Exclusive)?;
            let rows = self.transaction.rows(self.state, name);
            let has_it = |(key, other): &(Key, Row)| {
                key != own && table.unique_value(index, other).as_ref() == Some(&value)
            };
            if rows.iter().any(has_it) {
                return failed(1062, format!("Duplicate entry '{value:?}' for key '{}'", name.1));
            }
        }
        Ok(())
    }

    fn check_parents(&mut self, table: &Table, row: &Row, before: Option<&Row>) -> Result<()> {
        let checked = if self.checks_references { table.references.as_slice() } else { &[] };
        for reference in checked {
            let value = &row[reference.column];
            let is_kept = before.is_some_and(|before| before[reference.column] == *value);
            if is_kept || *value == Value::Null {
                continue;
            }
            let parent = vec![value.clone()];
            self.lock_value(&reference.parent, 0, parent.clone(), Mode::Shared)?;
            if self.row(&reference.parent, &parent).is_none() {
                return failed(1452, "Cannot add or update a child row");
            }
        }
        Ok(())
    }

    /// Checks that no row refers to one that disappears.
    fn check_children(&mut self, parent: &TableName, key: &Key) -> Result<()> {
        let (state, is_checked) = (self.state, self.checks_references);
        for (child, column) in state.children_of(parent).filter(|_| is_checked) {
            for (row_key, row) in self.transaction.rows(state, child) {
                if Some(&row[column]) == key.first() {
                    // Its own deletion may be under way.
                    self.lock_value(child, 0, row_key, Mode::Shared)?;
                    return failed(1451, "Cannot delete or update a parent row");
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, name: &TableName, table: &Table, key: &Key, row: &Row) -> Result<()> {
        for index in 0..table.unique.len() {
            if let Some(value) = table.unique_value(index, row) {
                self.lock_value(name, index + 1, value, Mode::Exclusive)?;
            }
        }
        self.check_children(name, key)?;
        self.transaction.set(name, key.clone(), None);
        Ok(())
    }

    fn replace(
        &mut self,
        name: &TableName,
        table: &Table,
        (key, before): (&Key, &Row),
        after: Row,
    ) -> Result<()> {
        let new_key = table.key(&after);
        if new_key != *key {
            self.remove(name, table, key, before)?;
            return self.put(name, table, after);
        }
        for index in 0..table.unique.len() {
            let (old, new) = (table.unique_value(index, before), table.unique_value(index, &after));
            if let Some(old) = old.filter(|old| new.as_ref() != Some(old)) {
                self.lock_value(name, index + 1, old, Mode::Exclusive)?;
            }
        }
        self.check_unique(name, table, &after, key)?;
        self.check_parents(table, &after, Some(before))?;
        if after != *before {
            self.transaction.set(name, new_key, Some(after));
        }
        Ok(())
    }

    /// Applies a row change of the source.
    pub(crate) fn apply(&mut self, change: &Change) -> Result<()> {
        self.checks_references = change.checks_references;
        let name = &change.table;
        let table = self.table(name)?;
        if change.before.len().max(change.after.len()) > table.columns.len() {
            return failed(1677, format!("{}.{} has fewer columns", name.0, name.1));
        }
        let defaults = || table.columns.iter().map(|column| column.default.clone()).collect();
        if change.kind == RowsKind::Write {
            return self.put(name, &table, merged(defaults(), &change.after));
        }
        let key = table.key(&merged(defaults(), &change.before));
        self.lock_value(name, 0, key.clone(), Mode::Exclusive)?;
        let Some(row) = self.row(name, &key) else {
            if self.is_idempotent {
                return Ok(());
            }
            return failed(1032, format!("Can't find record in '{}'", name.1));
        };
        match change.kind {
            RowsKind::Delete => self.remove(name, &table, &key, &row),
            _ => {
                let after = merged(row.clone(), &change.after);
                self.replace(name, &table, (&key, &row), after)
            }
        }
    }

    /// Returns the number of rows inserted or changed.
    pub(crate) fn insert(&mut self, insert: &Insert) -> Result<u64> {
        let Insert { table: name, columns, rows, conflict } = insert;
        let mut written = 0;
        for values in rows {
            let table = self.table(name)?;
            let mut row: Row = table.columns.iter().map(|column| column.default.clone()).collect();
            for (place, value) in values.iter().enumerate() {
                let place = columns.as_ref().map_or(place, |names| table.column(&names[place]));
                row[place] = self.value(&table, value, &row);
            }
            if let Some(counted) = table.columns.iter().position(|column| column.counts_up) {
                row[counted] = self.next_number(name, counted);
            }
            let key = table.key(&row);
            self.lock_value(name, 0, key.clone(), Mode::Exclusive)?;
            match (self.row(name, &key), conflict) {
                (Some(_), Conflict::Ignore) => continue,
                (_, Conflict::Replace) => {
                    self.make_room(name, &table, &row)?;
                    self.put(name, &table, row)?;
                }
                (Some(before), Conflict::Update(set)) => {
                    let after = self.with(&table, &before, set);
                    self.replace(name, &table, (&key, &before), after)?;
                }
                _ => self.put(name, &table, row)?,
            }
            written += 1;
        }
        Ok(written)
    }

    fn next_number(&self, name: &TableName, column: usize) -> Value {
        let rows = self.transaction.rows(self.state, name);
        let numbers = rows.iter().map(|(_, row)| match row[column] {
            Value::Number(number) => number,
            _ => 0,
        });
        Value::Number(numbers.max().unwrap_or_default() + 1)
    }

    fn value(&self, table: &Table, scalar: &Scalar, row: &Row) -> Value {
        match scalar {
            Scalar::Value(value) => value.clone(),
            Scalar::Column(name) => row[table.column(name)].clone(),
            Scalar::Sum(name, added) => match &row[table.column(name)] {
                Value::Number(number) => Value::Number(number + added),
                other => panic!("{other:?} + {added}"),
            },
            Scalar::Now => Value::Number(self.now),
        }
    }

    fn with(&self, table: &Table, row: &Row, set: &[(String, Scalar)]) -> Row {
        let mut after = row.clone();
        for (column, scalar) in set {
            after[table.column(column)] = self.value(table, scalar, row);
        }
        after
    }

    /// The number of rows that match, changed or not: our client asks for that number.
    pub(crate) fn update(
        &mut self,
        name: &TableName,
        set: &[(String, Scalar)],
        conditions: &[Condition],
    ) -> Result<u64> {
        let table = self.table(name)?;
        let found = self.locked(name, &table, conditions)?;
        for (key, row) in &found {
            let after = self.with(&table, row, set);
            self.replace(name, &table, (key, row), after)?;
        }
        Ok(found.len() as u64)
    }

    pub(crate) fn delete(&mut self, name: &TableName, conditions: &[Condition]) -> Result<u64> {
        let table = self.table(name)?;
        let found = self.locked(name, &table, conditions)?;
        for (key, row) in &found {
            self.remove(name, &table, key, row)?;
        }
        Ok(found.len() as u64)
    }

    /// Returns the rows that match, locked until the transaction ends. As under READ COMMITTED,
    /// others are locked only while they are looked at.
    fn locked(
        &mut self,
        name: &TableName,
        table: &Table,
        conditions: &[Condition],
    ) -> Result<Vec<(Key, Row)>> {
        let by_key = |key: &Key| {
            conditions.iter().all(|(column, test)| {
                let place = table.primary.iter().position(|&c| c == table.column(column));
                place.is_none_or(|place| test.holds(&key[place]))
            })
        };
        let mut keys = self.locks.keys_of_others(self.session, name);
        keys.extend(self.transaction.rows(self.state, name).into_iter().map(|(key, _)| key));
        let mut found = Vec::new();
        for key in keys.into_iter().filter(|key| by_key(key)) {
            let lock = LockName::Value(name.clone(), 0, key.clone());
            let had_it = self.locks.holds(self.session, &lock);
            self.lock(lock.clone(), Mode::Exclusive)?;
            match self.row(name, &key).filter(|row| matches(table, row, conditions)) {
                Some(row) => found.push((key, row)),
                None if !had_it => self.locks.release(self.session, &lock),
                None => {}
            }
        }
        Ok(found)
    }

    /// Returns the rows as texts. Without FOR UPDATE nothing is locked.
    pub(crate) fn select(&mut self, select: &Select) -> Result<Vec<Vec<String>>> {
        let Select { table: name, columns, conditions, for_update, distinct, limit } = select;
        let table = self.table(name)?;
        let mut found = match for_update {
            true => self.locked(name, &table, conditions)?,
            false => self.transaction.rows(self.state, name),
        };
        found.retain(|(_, row)| matches(&table, row, conditions));
        let Some(columns) = columns else { return Ok(vec![vec![found.len().to_string()]]) };
        let value = |row: &Row, column: &String| match column.as_str() {
            "1" => "1".to_owned(),
            column => row[table.column(column)].shown(),
        };
        let shown = |row: &Row| columns.iter().map(|column| value(row, column)).collect();
        let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit).expect("64 bits"));
        let mut rows: Vec<Vec<String>> =
            found.iter().take(most).map(|(_, row)| shown(row)).collect();
        if *distinct {
            rows.dedup();
        }
        Ok(rows)
    }
}

/// Returns a row with those columns of an image that the image has.
fn merged(mut row: Row, image: &Image) -> Row {
    for (place, value) in image.iter().enumerate() {
        if let Some(value) = value {
            row[place] = value.clone();
        }
    }
    row
}

fn matches(table: &Table, row: &Row, conditions: &[Condition]) -> bool {
    conditions.iter().all(|(column, test)| test.holds(&row[table.column(column)]))
}
