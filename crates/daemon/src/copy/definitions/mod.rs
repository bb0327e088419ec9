//! The definitions of everything that is copied, in the order in which a copy makes them.

mod create_table;
mod programs;

use std::collections::BTreeMap;

use csa_provider::sql_text::identifier;

pub(super) use create_table::TableDefinition;
pub(super) use programs::Program;

use crate::verify::{TableName, VerifyError, VerifySession};

type Result<T> = std::result::Result<T, VerifyError>;

#[derive(Debug, Clone, Default)]
pub(super) struct Definitions {
    /// Statements that make the schemas.
    pub(super) schemas: Vec<String>,
    pub(super) tables: BTreeMap<TableName, TableDefinition>,
    pub(super) programs: Vec<Program>,
}

impl Definitions {
    /// Returns true if both define the same; the next values of AUTO_INCREMENT may differ.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let fixed = |tables: &BTreeMap<TableName, TableDefinition>| -> Vec<TableDefinition> {
            let fixed = |table: &TableDefinition| TableDefinition {
                auto_increment: String::new(),
                ..table.clone()
            };
            tables.values().map(fixed).collect()
        };
        self.schemas == other.schemas
            && self.programs == other.programs
            && self.tables.keys().eq(other.tables.keys())
            && fixed(&self.tables) == fixed(&other.tables)
    }
}

/// Reads the definitions of schemas, and of tables in them.
pub(super) async fn read(
    session: &mut VerifySession,
    schemas: &[String],
    tables: &[TableName],
) -> Result<Definitions> {
    let mut found = Definitions::default();
    for schema in schemas {
        let query = format!("SHOW CREATE DATABASE IF NOT EXISTS {}", identifier(schema));
        let text = second(session.texts(&query).await?);
        found.schemas.push(text.ok_or_else(|| unreadable(session, &identifier(schema)))?);
    }
    for table in tables {
        let name = format!("{}.{}", identifier(&table.schema), identifier(&table.table));
        let text = second(session.texts(&format!("SHOW CREATE TABLE {name}")).await?);
        let parsed = text.and_then(|text| TableDefinition::parse(table, &text));
        let definition = parsed.ok_or_else(|| unreadable(session, &name))?;
        found.tables.insert(table.clone(), definition);
    }
    found.programs = programs::read(session, schemas, tables).await?;
    Ok(found)
}

fn second(rows: Vec<Vec<Option<String>>>) -> Option<String> {
    rows.into_iter().next()?.into_iter().nth(1)?
}

fn unreadable(session: &VerifySession, name: &str) -> VerifyError {
    session.refused(&format!("the definition of {name} can't be read"))
}
