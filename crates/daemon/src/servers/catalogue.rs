//! All tables of a server, read with a handful of queries, however many tables there are.

use std::collections::{BTreeMap, BTreeSet};

use csa_applier::current_collation;

use crate::verify::{Column, Definition, Estimate, LEFT_OUT, TableName, Tables, UniqueKey};

use super::check_session::{CheckSession, QueryError};
use csa_provider::server::ask::TextRow;

/// Definitions of more tables than this are not read: with some 40 columns each they take 100 MB
/// here.
const TABLES_MAX: usize = 10_000;

/// The parts of a table that are read.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) engine: String,
    pub(super) definition: Definition,
    /// Unique keys by their meaning: parts, and whether they admit NULL.
    pub(super) unique: BTreeSet<String>,
    pub(super) collations: BTreeSet<String>,
}

/// The parts of a server that are read.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub(super) tables: BTreeMap<TableName, Table>,
    /// Columns and keys were not read, because of [`TABLES_MAX`].
    pub(super) is_too_large: bool,
    /// A table and one of its triggers.
    pub(super) triggers: Vec<(TableName, String)>,
    /// Child and parent of each foreign key that changes the child's rows.
    pub(super) cascades: Vec<(TableName, TableName)>,
    /// Those of them that a DELETE of the parent's rows follows.
    pub(super) delete_rules: Vec<DeleteRule>,
    /// All collations that the server knows.
    pub(super) collations: BTreeSet<String>,
    /// The default collation of each schema.
    pub(super) schemas: BTreeMap<String, String>,
}

/// A foreign key that changes the child's rows when the parent's are deleted.
#[derive(Debug)]
pub(super) struct DeleteRule {
    pub(super) child: TableName,
    pub(super) parent: TableName,
    /// It deletes them; otherwise it sets them to NULL.
    pub(super) deletes: bool,
}

impl Catalogue {
    pub(super) async fn read(session: &mut CheckSession) -> Result<Self, QueryError> {
        let mut found = Self::default();
        let tables = format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES \
             WHERE TABLE_TYPE='BASE TABLE' AND TABLE_SCHEMA NOT IN ({LEFT_OUT})"
        );
        for row in session.rows(&tables).await? {
            let Some((name, rest)) = named(row) else { continue };
            let engine = rest.into_iter().next().flatten().unwrap_or_default();
            found.tables.insert(name, Table { engine, ..Table::default() });
        }
        found.is_too_large = found.tables.len() > TABLES_MAX;
        if !found.is_too_large {
            found.read_columns(session).await?;
            found.read_keys(session).await?;
        }
        let cascades = format!(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, \
             REFERENCED_TABLE_NAME, DELETE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS \
             WHERE (DELETE_RULE NOT IN ('RESTRICT','NO ACTION') \
             OR UPDATE_RULE NOT IN ('RESTRICT','NO ACTION')) \
             AND CONSTRAINT_SCHEMA NOT IN ({LEFT_OUT})"
        );
        for row in session.rows(&cascades).await? {
            let Some((child, parent)) = named(row) else { continue };
            let Some((parent, rule)) = named(parent) else { continue };
            let rule = rule.into_iter().flatten().next().unwrap_or_default();
            if !matches!(rule.as_str(), "RESTRICT" | "NO ACTION") {
                let (child, parent) = (child.clone(), parent.clone());
                found.delete_rules.push(DeleteRule { child, parent, deletes: rule == "CASCADE" });
            }
            found.cascades.push((child, parent));
        }
        let triggers = format!(
            "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_NAME \
             FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA NOT IN ({LEFT_OUT})"
        );
        for row in session.rows(&triggers).await? {
            let Some((table, rest)) = named(row) else { continue };
            found.triggers.extend(rest.into_iter().flatten().map(|name| (table.clone(), name)));
        }
        let collations = session.rows("SELECT COLLATION_NAME FROM information_schema.COLLATIONS");
        let collations = collations.await?.into_iter().flatten().flatten();
        found.collations = collations.map(|name| current_collation(&name)).collect();
        let schemas = "SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA";
        for row in session.rows(schemas).await? {
            if let [Some(schema), Some(collation)] = &row[..] {
                found.schemas.insert(schema.clone(), current_collation(collation));
            }
        }
        Ok(found)
    }

    async fn read_columns(&mut self, session: &mut CheckSession) -> Result<(), QueryError> {
        let columns = format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, \
             CHARACTER_SET_NAME FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA NOT IN ({LEFT_OUT}) \
             ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
        );
        for row in session.rows(&columns).await? {
            let Some((table, rest)) = named(row) else { continue };
            // Views have columns too.
            let Some(table) = self.tables.get_mut(&table) else { continue };
            let mut values = rest.into_iter();
            let mut next = || values.next().flatten();
            let (Some(name), Some(column_type)) = (next(), next()) else { continue };
            let (collation, charset) = (next(), next());
            table.collations.extend(collation.as_deref().map(current_collation));
            table.definition.columns.push(Column::new(
                &name,
                &column_type,
                collation.as_deref(),
                charset.as_deref(),
                None,
            ));
        }
        Ok(())
    }

    async fn read_keys(&mut self, session: &mut CheckSession) -> Result<(), QueryError> {
        let parts = format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE \
             FROM information_schema.STATISTICS \
             WHERE NON_UNIQUE=0 AND TABLE_SCHEMA NOT IN ({LEFT_OUT}) \
             ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
        );
        let mut indexes: BTreeMap<(TableName, String), Vec<IndexPart>> = BTreeMap::new();
        for row in session.rows(&parts).await? {
            let Some((table, rest)) = named(row) else { continue };
            let mut values = rest.into_iter();
            let Some(index) = values.next().flatten() else { continue };
            let mut next = || values.next().flatten();
            let (column, prefix, nullable) = (next(), next(), next());
            let is_nullable = nullable.as_deref() == Some("YES");
            let part = IndexPart { column, prefix, is_nullable };
            indexes.entry((table, index)).or_default().push(part);
        }
        for ((table, index), parts) in indexes {
            let Some(table) = self.tables.get_mut(&table) else { continue };
            table.unique.insert(meaning(&parts));
            let columns: Option<Vec<String>> = parts.iter().map(IndexPart::whole_column).collect();
            let key = |columns| UniqueKey { index, columns, ..UniqueKey::default() };
            table.definition.keys.extend(columns.map(key));
        }
        Ok(())
    }

    /// Returns the names alone.
    pub(super) fn listed(&self) -> Tables {
        self.tables.keys().map(|name| (name.clone(), Estimate::default())).collect()
    }
}

/// A part of an index.
#[derive(Debug)]
pub(super) struct IndexPart {
    /// A functional part has none.
    pub(super) column: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) is_nullable: bool,
}

impl IndexPart {
    /// Returns the column, if the part is the whole column and never NULL.
    fn whole_column(&self) -> Option<String> {
        let is_whole = self.prefix.is_none() && !self.is_nullable;
        self.column.clone().filter(|_| is_whole)
    }
}

/// Returns the restriction that a unique key imposes, which does not depend on its name or the
/// order of its parts.
pub(super) fn meaning(parts: &[IndexPart]) -> String {
    let mut names: Vec<String> = parts
        .iter()
        .map(|part| match (&part.column, &part.prefix) {
            (Some(column), None) => column.to_lowercase(),
            (Some(column), Some(prefix)) => format!("{}({prefix})", column.to_lowercase()),
            (None, _) => "(expression)".to_owned(),
        })
        .collect();
    names.sort();
    format!("({})", names.join(", "))
}

/// Returns the table that a row names first, and the rest of the row.
fn named(row: TextRow) -> Option<(TableName, TextRow)> {
    let mut values = row.into_iter();
    let (schema, table) = (values.next()??, values.next()??);
    Some((TableName { schema, table }, values.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_keys_are_the_same_by_what_they_forbid() {
        let part = |column: Option<&str>, prefix: Option<&str>| IndexPart {
            column: column.map(str::to_owned),
            prefix: prefix.map(str::to_owned),
            is_nullable: false,
        };
        let one = [part(Some("b"), None), part(Some("A"), None)];
        let other = [part(Some("a"), None), part(Some("B"), None)];
        assert_eq!(meaning(&one), "(a, b)");
        assert_eq!(meaning(&one), meaning(&other));
        assert_eq!(meaning(&[part(Some("a"), Some("10"))]), "(a(10))");
        assert_eq!(meaning(&[part(None, None)]), "((expression))");
        let nullable = IndexPart { is_nullable: true, ..part(Some("a"), None) };
        assert_eq!(nullable.whole_column(), None);
    }
}
