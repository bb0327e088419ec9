//! Definitions of the target's tables from `information_schema`, read once between two statements.

use std::collections::HashMap;
use std::sync::Arc;

use csa_provider::server::link::{FromValue, Row};
use parking_lot::Mutex;

use super::TableName;
use super::table::{BLACKHOLE, ColumnRow, TargetTable, UniqueIndex};
use crate::error::Result;
use crate::server::session::Session;
use csa_provider::sql_text::quote;

/// Definitions shared by the workers of a channel.
#[derive(Debug, Default)]
pub(crate) struct TargetTables {
    known: Mutex<HashMap<TableName, Option<Arc<TargetTable>>>>,
}

impl TargetTables {
    /// Forgets all definitions, because they may have changed.
    pub(crate) fn forget(&self) {
        self.known.lock().clear();
    }

    /// Returns true if nothing has to be read for these.
    pub(crate) fn has_all(&self, names: &[TableName]) -> bool {
        let known = self.known.lock();
        names.iter().all(|name| known.contains_key(name))
    }

    /// Returns the tables named; `None` for one that does not exist.
    pub(crate) async fn of(
        &self,
        session: &mut Session,
        names: Vec<TableName>,
    ) -> Result<HashMap<TableName, Option<Arc<TargetTable>>>> {
        let mut tables = HashMap::with_capacity(names.len());
        for name in names {
            let known = self.known.lock().get(&name).cloned();
            let table = match known {
                Some(table) => table,
                // Not locked while reading: two workers may both read a table, with the same result.
                None => {
                    let table = read(session, &name).await?.map(Arc::new);
                    self.known.lock().insert(name.clone(), table.clone());
                    table
                }
            };
            tables.insert(name, table);
        }
        Ok(tables)
    }
}

async fn read(session: &mut Session, (schema, name): &TableName) -> Result<Option<TargetTable>> {
    let named = format!("TABLE_SCHEMA={} AND TABLE_NAME={}", quote(schema), quote(name));
    let columns: Vec<Row> = session
        .rows(&format!(
            "SELECT c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, c.CHARACTER_SET_NAME, \
             c.CHARACTER_MAXIMUM_LENGTH, c.CHARACTER_OCTET_LENGTH, c.NUMERIC_PRECISION, \
             c.NUMERIC_SCALE, c.DATETIME_PRECISION, c.EXTRA, c.IS_NULLABLE='YES', \
             c.COLUMN_DEFAULT IS NOT NULL, \
             COALESCE(LOWER(c.COLUMN_DEFAULT) LIKE 'current_timestamp%', 0), c.COLUMN_KEY \
             FROM information_schema.COLUMNS c \
             JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) \
             WHERE {named} AND t.TABLE_TYPE='BASE TABLE' ORDER BY c.ORDINAL_POSITION"
        ))
        .await?;
    if columns.is_empty() {
        return Ok(None);
    }
    let columns = columns.into_iter().map(|row| column(row).map(Into::into));
    let columns: Option<Vec<_>> = columns.collect();
    let columns = columns
        .ok_or_else(|| session.server().unexpected(format!("the columns of {schema}.{name}")))?;
    let mut table = TargetTable {
        vendor: session.vendor(),
        schema: schema.clone(),
        name: name.clone(),
        columns,
        ..TargetTable::default()
    };
    table.unique = unique(session, &named, &table).await?;
    table.triggers = session
        .rows(&format!(
            "SELECT TRIGGER_NAME, EVENT_MANIPULATION FROM information_schema.TRIGGERS \
             WHERE EVENT_OBJECT_SCHEMA={} AND EVENT_OBJECT_TABLE={}",
            quote(schema),
            quote(name)
        ))
        .await?;
    table.refers_to_itself = refers_to_itself(session, &table).await?;
    table.missed_cascade = missed_cascade(session, &table).await?;
    // Looked up here because MySQL refuses such a table beside a transactional one only under GTIDs.
    let engines: Vec<String> = session
        .rows(&format!(
            "SELECT ENGINE FROM information_schema.TABLES WHERE {named} AND ENGINE NOT IN \
             (SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS='YES')"
        ))
        .await?;
    table.discards_rows = engines.iter().any(|engine| engine == BLACKHOLE);
    table.not_transactional = engines.into_iter().find(|engine| engine != BLACKHOLE);
    // Parts of functional indexes have no column.
    let functional = format!(
        "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE {named} AND COLUMN_NAME IS NULL"
    );
    table.functional_index = session.rows::<u64>(&functional).await?.iter().any(|&parts| parts > 0);
    Ok(Some(table))
}

/// Returns `None` if a value is missing or has an unexpected type.
fn column(mut row: Row) -> Option<ColumnRow> {
    fn take<T: FromValue>(row: &mut Row, place: usize) -> Option<T> {
        row.take_opt(place)?.ok()
    }
    Some(ColumnRow {
        name: take(&mut row, 0)?,
        data_type: take(&mut row, 1)?,
        column_type: take(&mut row, 2)?,
        charset: take(&mut row, 3)?,
        max_chars: take(&mut row, 4)?,
        max_bytes: take(&mut row, 5)?,
        precision: take(&mut row, 6)?,
        scale: take(&mut row, 7)?,
        fraction: take(&mut row, 8)?,
        extra: take(&mut row, 9)?,
        nullable: take(&mut row, 10)?,
        has_default: take(&mut row, 11)?,
        is_now: take(&mut row, 12)?,
        key: take(&mut row, 13)?,
    })
}

/// Returns the unique indexes of columns only that the optimizer may use.
async fn unique(
    session: &mut Session,
    named: &str,
    table: &TargetTable,
) -> Result<Vec<UniqueIndex>> {
    let usable = session.vendor().usable_index();
    let parts: Vec<(String, Option<String>)> = session
        .rows(&format!(
            "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS \
             WHERE {named} AND NON_UNIQUE=0 AND {usable} \
             ORDER BY INDEX_NAME<>'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
        ))
        .await?;
    let mut found: Vec<(UniqueIndex, bool)> = Vec::new();
    for (index, column) in parts {
        if found.last().is_none_or(|(last, _)| last.name != index) {
            found.push((UniqueIndex { name: index, columns: Vec::new() }, true));
        }
        let Some((last, whole)) = found.last_mut() else { continue };
        // A functional part has no column.
        match table.columns.iter().position(|known| Some(&known.name) == column.as_ref()) {
            Some(place) => last.columns.push(place),
            None => *whole = false,
        }
    }
    Ok(found.into_iter().filter_map(|(index, whole)| whole.then_some(index)).collect())
}

/// Returns true if a foreign key of the table refers to the table itself.
async fn refers_to_itself(session: &mut Session, table: &TargetTable) -> Result<bool> {
    let (schema, name) = (quote(&table.schema), quote(&table.name));
    let references: Vec<u64> = session
        .rows(&format!(
            "SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS \
             WHERE CONSTRAINT_SCHEMA={schema} AND TABLE_NAME={name} \
             AND UNIQUE_CONSTRAINT_SCHEMA={schema} AND REFERENCED_TABLE_NAME={name}"
        ))
        .await?;
    Ok(references.first().is_some_and(|&count| count > 0))
}

/// Returns the tables of a cascade of DELETEs in which MySQL 9.7.4 misses rows, unless InnoDB makes it. Of several
/// rows in the first table, it follows only one to the second, if that cascades to a third.
async fn missed_cascade(session: &mut Session, table: &TargetTable) -> Result<Option<String>> {
    if !session.server().cascades_itself() {
        return Ok(None);
    }
    // Deprecated: a server that lacks it has no other way left.
    let native = "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'";
    let native: Vec<(String, String)> = session.rows(native).await?;
    if native.first().is_some_and(|(_, value)| value == "ON") {
        return Ok(None);
    }
    let (schema, name) = (quote(&table.schema), quote(&table.name));
    let chains: Vec<String> = session
        .rows(&format!(
            "SELECT CONCAT_WS(', ', a.TABLE_NAME, b.TABLE_NAME, c.TABLE_NAME) \
             FROM information_schema.REFERENTIAL_CONSTRAINTS a \
             JOIN information_schema.REFERENTIAL_CONSTRAINTS b \
             ON b.UNIQUE_CONSTRAINT_SCHEMA=a.CONSTRAINT_SCHEMA \
             AND b.REFERENCED_TABLE_NAME=a.TABLE_NAME AND b.DELETE_RULE='CASCADE' \
             JOIN information_schema.REFERENTIAL_CONSTRAINTS c \
             ON c.UNIQUE_CONSTRAINT_SCHEMA=b.CONSTRAINT_SCHEMA \
             AND c.REFERENCED_TABLE_NAME=b.TABLE_NAME \
             AND c.DELETE_RULE NOT IN ('RESTRICT','NO ACTION') \
             WHERE a.UNIQUE_CONSTRAINT_SCHEMA={schema} AND a.REFERENCED_TABLE_NAME={name} \
             AND a.DELETE_RULE='CASCADE' ORDER BY 1 LIMIT 1"
        ))
        .await?;
    Ok(chains.into_iter().next())
}
