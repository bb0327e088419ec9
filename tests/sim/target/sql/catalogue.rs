//! Questions about definitions and the binary log, as a copy asks them.

use super::super::state::TableName;

/// A question, each of which has a place of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CatalogueQuery {
    /// Tables with the numbers and the sizes of their rows.
    Sizes,
    Schemas,
    SchemaCollations,
    ColumnTypes(TableName),
    UsableKeys(TableName),
    CreateTable(TableName),
    CreateSchema(String),
    References,
    CharacterSets,
    LogEnd,
    LogEventsFrom(u64),
    Prepared,
    /// The least and the greatest value of a column.
    Ends(TableName, String),
    /// The number and the digest of all rows.
    Digest(TableName),
    /// Programs, generated columns and other engines, of which there are none.
    Nothing,
}

/// Beginnings of questions to which the answer is no row.
const NOTHING: [&str; 8] = [
    "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=",
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' AND ENGINE<>",
    "SELECT c.TABLE_SCHEMA, c.TABLE_NAME FROM information_schema.COLUMNS c LEFT JOIN",
    "SELECT ROUTINE_TYPE, ROUTINE_SCHEMA, ",
    "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='information_schema' ",
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEWS",
    "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_OBJECT_TABLE ",
    "SELECT EVENT_SCHEMA, EVENT_NAME FROM information_schema.EVENTS",
];

pub(crate) fn known(text: &str) -> Option<CatalogueQuery> {
    let is = |beginning: &str| text.starts_with(beginning);
    if NOTHING.iter().any(|beginning| is(beginning)) {
        return Some(CatalogueQuery::Nothing);
    }
    if is("SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS, AVG_ROW_LENGTH ") {
        return Some(CatalogueQuery::Sizes);
    }
    if is("SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME ") {
        return Some(CatalogueQuery::SchemaCollations);
    }
    if is("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ") {
        return Some(CatalogueQuery::Schemas);
    }
    if is("SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, ") {
        return super::named(text).map(CatalogueQuery::ColumnTypes);
    }
    if is("SELECT INDEX_NAME, IF(SUB_PART IS NULL ") {
        return super::named(text).map(CatalogueQuery::UsableKeys);
    }
    if is("SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, ") {
        return Some(CatalogueQuery::References);
    }
    if is("SELECT CHARACTER_SET_NAME, DEFAULT_COLLATE_NAME ") {
        return Some(CatalogueQuery::CharacterSets);
    }
    if text == "SHOW BINARY LOG STATUS" {
        return Some(CatalogueQuery::LogEnd);
    }
    if text == "XA RECOVER" {
        return Some(CatalogueQuery::Prepared);
    }
    if let Some(rest) = text.strip_prefix("SHOW BINLOG EVENTS IN ") {
        let from = rest.split(' ').skip_while(|word| *word != "FROM").nth(1)?;
        return from.parse().ok().map(CatalogueQuery::LogEventsFrom);
    }
    if let Some(name) = text.strip_prefix("SHOW CREATE TABLE ") {
        return qualified(name).map(CatalogueQuery::CreateTable);
    }
    if let Some(name) = text.strip_prefix("SHOW CREATE DATABASE IF NOT EXISTS ") {
        return Some(CatalogueQuery::CreateSchema(name.trim_matches('`').to_owned()));
    }
    if is("SELECT COUNT(*), SUM(IFNULL(CAST(CONV(SUBSTRING(SHA2(") {
        let (_, name) = text.rsplit_once(" FROM ")?;
        return qualified(name).map(CatalogueQuery::Digest);
    }
    let rest = text.strip_prefix("SELECT MIN(`")?;
    let (column, rest) = rest.split_once("`), MAX(`")?;
    let (_, table) = rest.split_once("`) FROM ")?;
    Some(CatalogueQuery::Ends(qualified(table)?, column.to_owned()))
}

/// Returns a name like `` `schema`.`table` ``.
fn qualified(name: &str) -> Option<TableName> {
    let (schema, table) = name.split_once('.')?;
    Some((schema.trim_matches('`').to_owned(), table.trim_matches('`').to_owned()))
}
