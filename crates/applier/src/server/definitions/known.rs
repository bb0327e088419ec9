//! Definitions that were read, and the keys that they make together.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use csa_scheduler::keys::{ForeignKey, KeyClass, KeyPart, TableId, TableKeys, UniqueKey};

use super::TableName;
use super::ahead::ReadAhead;
use super::keys::Definition;
use super::references::{self, References};

/// Definitions of tables, valid until a statement is executed.
#[derive(Debug, Default)]
pub(super) struct KnownDefinitions {
    ids: HashMap<TableName, TableId>,
    pub(super) definitions: HashMap<TableName, Option<Definition>>,
    pub(super) ahead: ReadAhead,
    pub(super) references: Option<Arc<References>>,
    /// Some table is not transactional.
    pub(super) not_transactional: Option<bool>,
}

impl KnownDefinitions {
    /// Returns the number of a table, which gets one if it has none.
    pub(super) fn id(&mut self, name: &TableName) -> TableId {
        let next = TableId(self.ids.len() as u32 + 1);
        *self.ids.entry(name.clone()).or_insert(next)
    }

    /// Returns a table's keys, with numbers for the tables that they refer to; `None` if it does not exist.
    pub(super) fn assemble(
        &mut self,
        name: &TableName,
        references: &References,
        cascades_to: &BTreeSet<TableName>,
    ) -> Option<TableKeys> {
        let definition = self.definitions.get(name)?.clone()?;
        let reached = cascades_to.iter().filter_map(|table| self.definitions.get(table)?.as_ref());
        let computes = definition.computes || reached.into_iter().any(|table| table.computes);
        let unique = definition.unique.iter().map(|parts| UniqueKey { parts: parts.clone() });
        Some(TableKeys {
            columns: definition.columns.len(),
            unique: unique.collect(),
            has_primary: definition.has_primary,
            has_index: definition.has_index,
            opaque_unique_key: definition.opaque_unique_key,
            foreign_keys: references
                .of(name)
                .iter()
                .map(|reference| self.foreign_key(&definition, reference))
                .collect(),
            cascades_to: cascades_to.iter().map(|table| self.id(table)).collect(),
            other_parents: references
                .other_parents(name, cascades_to)
                .into_iter()
                .map(|table| self.id(table))
                .collect(),
            cascading_columns: cascading_columns(&definition, references, name),
            foreign_key_rank: references.rank(name),
            has_relations: references.has_relations(name),
            computes,
            not_transactional: definition.not_transactional,
            has_auto_increment: definition.has_auto_increment,
        })
    }

    fn foreign_key(&mut self, child: &Definition, reference: &references::Reference) -> ForeignKey {
        let parent = self.id(&reference.parent);
        let definition = self.definitions.get(&reference.parent).and_then(Option::as_ref);
        let parent_key = definition.and_then(|definition| {
            definition.unique.iter().enumerate().find_map(|(index, parts)| {
                let columns = child_columns(child, definition, parts, reference)?;
                Some((index, columns))
            })
        });
        ForeignKey { parent, parent_key }
    }

    /// Forgets everything, because a statement may have changed it.
    pub(super) fn forget(&mut self) {
        self.not_transactional = None;
        self.definitions.clear();
        self.ahead.forget();
        self.references = None;
        // Numbers are given again: all groups that used the former ones are committed by now, or the next transaction is
        // set apart from them (`Admission::examine`).
        self.ids.clear();
    }
}

/// Places of the columns that cascading references are to; all columns where one of them can't be found
/// by name, so that no cascade is missed.
fn cascading_columns(
    definition: &Definition,
    references: &References,
    name: &TableName,
) -> Vec<usize> {
    let place = |wanted: &str| {
        let is_it = |column: &String| column.to_lowercase() == wanted.to_lowercase();
        definition.columns.iter().position(is_it)
    };
    let columns = references.cascading_columns(name);
    let places: Option<Vec<usize>> = columns.into_iter().map(place).collect();
    places.unwrap_or_else(|| (0..definition.columns.len()).collect())
}

/// Returns the child's columns in the order of the parent's key, if the reference is to exactly
/// that key. No reference is to a key of prefixes.
fn child_columns(
    child: &Definition,
    parent: &Definition,
    parts: &[KeyPart],
    reference: &references::Reference,
) -> Option<Vec<KeyPart>> {
    if parts.len() != reference.columns.len() {
        return None;
    }
    let column_of = |part: &KeyPart| {
        if matches!(part.class, KeyClass::String { prefix: Some(_), .. }) {
            return None;
        }
        let name = parent.columns.get(part.column)?;
        let (own, _) = reference.columns.iter().find(|(_, theirs)| theirs == name)?;
        let column = child.columns.iter().position(|column| column == own)?;
        Some(KeyPart { column, class: part.class.clone() })
    };
    parts.iter().map(column_of).collect()
}

#[cfg(test)]
mod tests {
    use csa_scheduler::keys::{Collation, Weights};

    use super::*;

    fn text(column: usize, prefix: Option<usize>) -> KeyPart {
        let collation = Collation::new("utf8mb4", false, Weights::Bytes, Vec::new());
        KeyPart { column, class: KeyClass::String { collation: Arc::new(collation), prefix } }
    }

    fn definition(columns: &[&str], unique: Vec<Vec<KeyPart>>) -> Definition {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Definition { columns, unique, ..Definition::default() }
    }

    #[test]
    fn a_reference_is_to_the_key_of_whole_columns() {
        let name = |table: &str| ("d".to_owned(), table.to_owned());
        let parent = definition(&["code"], vec![vec![text(0, Some(5))], vec![text(0, None)]]);
        let child = definition(&["id", "p"], Vec::new());
        let reference = references::Reference {
            name: "f".to_owned(),
            parent: name("parent"),
            columns: vec![("p".to_owned(), "code".to_owned())],
            cascades: false,
        };
        let mut known = KnownDefinitions::default();
        known.definitions.insert(name("parent"), Some(parent));
        let (key, columns) = known.foreign_key(&child, &reference).parent_key.expect("found");
        assert_eq!((key, columns.iter().map(|part| part.column).collect()), (1, vec![1]));
    }
}
