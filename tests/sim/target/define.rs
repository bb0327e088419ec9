//! Definitions: each commits what is open, and itself.

use std::sync::Arc;

use csa_provider::server::link::LinkError;

use super::core::{Answered, Core, Step, refused};
use super::row_locks::{LockName, Mode};
use super::sql::{AddedKey, Statement};
use super::state::{Reference, State, Table};

impl Core {
    /// A definition commits what is open, and itself.
    pub(super) fn define(&mut self, id: u32, statement: &Statement) -> Step {
        if let Err(error) = self.commit(id) {
            return Step::Failed(error);
        }
        let name = match statement {
            Statement::CreateTable { name, .. }
            | Statement::DropTable { name, .. }
            | Statement::AddColumn(name, _)
            | Statement::AddKeys(name, _) => Some(name),
            _ => None,
        };
        // A table that is there is seen without a lock that anyone holds.
        let is_there = matches!(statement, Statement::CreateTable { .. })
            && name.is_some_and(|name| self.state.tables.contains_key(name));
        if let Some(name) = name.filter(|_| !is_there) {
            let lock = LockName::Table(name.clone());
            if !self.locks.take(id, &lock, Mode::Exclusive) {
                return self.block(id, lock, Mode::Exclusive);
            }
        }
        let step = match defined(&self.state, statement) {
            Err(error) => {
                self.roll_back(id);
                return Step::Failed(error);
            }
            Ok(state) => {
                let session = self.sessions.get_mut(&id).expect("it is there");
                let (next, logs) = (session.take_gtid(), session.logs);
                // Logged even where it changes nothing.
                self.publish(&next, logs, |present| *present = state);
                Step::Done(Answered::default())
            }
        };
        self.locks.release_all(id);
        step
    }
}

/// Returns the state after a definition.
pub(super) fn defined(state: &State, statement: &Statement) -> Result<State, LinkError> {
    let mut state = state.clone();
    match statement {
        Statement::CreateSchema(name) => {
            state.schemas.insert(name.clone());
        }
        Statement::CreateTable { name, table, if_missing } => {
            let is_there = state.tables.contains_key(name);
            if !state.schemas.contains(&name.0) {
                return Err(refused(1049, "Unknown database"));
            }
            if is_there && !if_missing {
                return Err(refused(1050, format!("Table '{}' already exists", name.1)));
            }
            if !is_there {
                state.tables.insert(name.clone(), table.clone());
            }
        }
        Statement::DropTable { name, if_exists } => {
            if state.tables.remove(name).is_none() && !if_exists {
                return Err(refused(1051, format!("Unknown table '{}'", name.1)));
            }
        }
        Statement::AddColumn(name, column) => {
            let Some(table) = state.tables.get_mut(name) else {
                return Err(refused(1146, format!("Table '{}' doesn't exist", name.1)));
            };
            if table.columns.iter().any(|known| known.name == column.name) {
                return Err(refused(1060, format!("Duplicate column name '{}'", column.name)));
            }
            table.columns.push(column.clone());
            let rows = Arc::make_mut(&mut table.rows);
            rows.values_mut().for_each(|row| row.push(column.default.clone()));
        }
        Statement::AddKeys(name, keys) => {
            let Some(table) = state.tables.get_mut(name) else {
                return Err(refused(1146, format!("Table '{}' doesn't exist", name.1)));
            };
            keys.iter().try_for_each(|key| add_key(table, key))?;
        }
        other => panic!("not a definition: {other:?}"),
    }
    Ok(state)
}

/// References are not checked: whoever adds them has switched that off.
fn add_key(table: &mut Table, key: &AddedKey) -> Result<(), LinkError> {
    match key {
        AddedKey::Unique(columns) => {
            let columns: Vec<usize> = columns.iter().map(|name| table.column(name)).collect();
            if table.unique.contains(&columns) {
                return Err(refused(1061, "Duplicate key name"));
            }
            table.unique.push(columns);
            let index = table.unique.len() - 1;
            let mut values: Vec<_> =
                table.rows.values().filter_map(|row| table.unique_value(index, row)).collect();
            values.sort();
            if let Some(pair) = values.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(refused(1062, format!("Duplicate entry '{:?}' for key", pair[0])));
            }
        }
        AddedKey::Reference { column, parent } => {
            let reference = Reference { column: table.column(column), parent: parent.clone() };
            if table.references.contains(&reference) {
                return Err(refused(1826, "Duplicate foreign key constraint name"));
            }
            table.references.push(reference);
        }
    }
    Ok(())
}
