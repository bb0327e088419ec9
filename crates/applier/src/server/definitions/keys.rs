use std::collections::{HashMap, HashSet};

use csa_provider::binlog::TemporalType;
use csa_scheduler::keys::{KeyClass, KeyPart};

use super::collations::Collations;
use crate::error::Result;
use crate::server::session::Session;
use csa_provider::sql_text::quote;

/// Name, type, collation; generated; what else the server says of it, in lower case.
type Column = (String, String, Option<String>, bool, String);
/// A part of an index: the index, the column if it is one, the length of a prefix, whether the index is unique.
type IndexPart = (String, Option<String>, Option<usize>, bool);

/// A part with its table.
type PartRow = (String, String, Option<String>, Option<usize>, bool);

/// A table's columns and unique keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Definition {
    /// Names in the order of row images.
    pub(super) columns: Vec<String>,
    /// The primary key first.
    pub(super) unique: Vec<Vec<KeyPart>>,
    /// See [`csa_scheduler::keys::TableKeys::has_primary`].
    pub(super) has_primary: bool,
    /// See [`csa_scheduler::keys::TableKeys::has_index`].
    pub(super) has_index: bool,
    /// A unique key has values that are not in row images, or may be wrong there.
    pub(super) opaque_unique_key: bool,
    /// See [`csa_scheduler::keys::TableKeys::computes`].
    pub(super) computes: bool,
    /// See [`csa_scheduler::keys::TableKeys::not_transactional`].
    pub(super) not_transactional: bool,
    /// See [`csa_scheduler::keys::TableKeys::has_auto_increment`].
    pub(super) has_auto_increment: bool,
}

/// The answers of `information_schema` about some tables of one schema.
///
/// Few queries: a view of `information_schema` costs the server most of a millisecond for one table and
/// little more for a hundred, and every table is read again after a statement that changes definitions.
#[derive(Debug)]
struct Answers {
    columns: HashMap<String, Vec<Column>>,
    parts: HashMap<String, Vec<IndexPart>>,
    tables: HashMap<String, TableTraits>,
    partitions_compute: HashSet<String>,
    not_transactional: HashSet<String>,
}

/// A table apart from its columns and keys.
#[derive(Debug, Default)]
struct TableTraits {
    /// Empty for a view.
    engine: String,
    is_partitioned: bool,
    has_checks: bool,
}

/// Reads the definitions of tables of one schema. Those that do not exist are missing from the result.
/// `fold` gives the names of the result their case.
pub(super) async fn read(
    session: &mut Session,
    collations: &mut Collations,
    schema: &str,
    tables: &[String],
    fold: impl Fn(String) -> String,
) -> Result<HashMap<String, Definition>> {
    let mut answers = Answers::read(session, &condition(schema, tables)).await?;
    let mut definitions = HashMap::with_capacity(tables.len());
    for (name, columns) in std::mem::take(&mut answers.columns) {
        let definition = answers.definition(&name, columns, session, collations).await?;
        definitions.insert(fold(name), definition);
    }
    Ok(definitions)
}

/// Returns the condition for these tables. MySQL before 8.0 and MariaDB look up only a single name and else
/// open all tables of the schema.
fn condition(schema: &str, tables: &[String]) -> String {
    let names: Vec<_> = tables.iter().map(|table| quote(table)).collect();
    let schema = quote(schema);
    match names.as_slice() {
        [table] => format!("TABLE_SCHEMA={schema} AND TABLE_NAME={table}"),
        _ => format!("TABLE_SCHEMA={schema} AND TABLE_NAME IN ({})", names.join(",")),
    }
}

impl Answers {
    async fn read(session: &mut Session, named: &str) -> Result<Self> {
        let columns: Vec<(String, String, String, Option<String>, bool, String)> = session
            .rows(&format!(
                "SELECT TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE), COLLATION_NAME, \
                 COALESCE(GENERATION_EXPRESSION,'')<>'', LOWER(EXTRA) \
                 FROM information_schema.COLUMNS \
                 WHERE {named} ORDER BY TABLE_NAME, ORDINAL_POSITION"
            ))
            .await?;
        let columns =
            columns.into_iter().map(|(table, name, data_type, collation, generated, extra)| {
                (table, (name, data_type, collation, generated, extra))
            });
        let columns = by_table(columns);
        let mut answers = Self {
            columns,
            parts: HashMap::new(),
            tables: HashMap::new(),
            partitions_compute: HashSet::new(),
            not_transactional: HashSet::new(),
        };
        if answers.columns.is_empty() {
            return Ok(answers);
        }
        let parts: Vec<PartRow> = session
            .rows(&format!(
                "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NON_UNIQUE=0 \
                 FROM information_schema.STATISTICS WHERE {named} \
                 ORDER BY TABLE_NAME, INDEX_NAME<>'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
            ))
            .await?;
        answers.parts =
            by_table(parts.into_iter().map(|(table, index, column, prefix, unique)| {
                (table, (index, column, prefix, unique))
            }));
        answers.tables = TableTraits::read(session, named).await?;
        // Asked only where there are such tables.
        if answers.tables.values().any(|table| table.is_partitioned) {
            answers.partitions_compute = partitions_compute(session, named).await?;
        }
        if answers.tables.values().any(TableTraits::may_not_be_transactional) {
            let query = format!("SELECT TABLE_NAME {NOT_TRANSACTIONAL} AND {named}");
            answers.not_transactional = session.rows(&query).await?.into_iter().collect();
        }
        Ok(answers)
    }

    async fn definition(
        &mut self,
        name: &str,
        columns: Vec<Column>,
        session: &mut Session,
        collations: &mut Collations,
    ) -> Result<Definition> {
        let parts = self.parts.remove(name).unwrap_or_default();
        let table = self.tables.remove(name).unwrap_or_default();
        let generated = columns.iter().any(|(.., generated, _)| *generated);
        let is_trusted = generated_are_logged_right(&columns);
        let functional = parts.iter().any(|(_, column, ..)| column.is_none());
        let mut definition = Definition {
            has_primary: has_whole_primary(&parts),
            has_index: !parts.is_empty(),
            computes: generated
                || functional
                || table.has_checks
                || self.partitions_compute.contains(name),
            not_transactional: self.not_transactional.contains(name),
            has_auto_increment: columns.iter().any(|(.., extra)| extra.contains("auto_increment")),
            ..Definition::default()
        };
        let mut last = None;
        let unique: Vec<_> = parts.into_iter().filter(|(.., unique)| *unique).collect();
        for (index, column, prefix, _) in unique {
            if last.as_ref() != Some(&index) {
                definition.unique.push(Vec::new());
                last = Some(index);
            }
            let place = columns.iter().position(|(name, ..)| Some(name) == column.as_ref());
            let (Some(place), Some(parts)) = (place, definition.unique.last_mut()) else {
                // A functional part has no column.
                definition.opaque_unique_key = true;
                continue;
            };
            let Some((_, data_type, collation, generated, _)) = columns.get(place) else {
                continue;
            };
            definition.opaque_unique_key |= *generated && !is_trusted;
            let class = class(session, collations, data_type, collation.as_deref(), prefix).await?;
            parts.push(KeyPart { column: place, class });
        }
        definition.columns = columns.into_iter().map(|(name, ..)| name).collect();
        Ok(definition)
    }
}

/// Returns true if there is a primary key, of whole columns.
fn has_whole_primary(parts: &[IndexPart]) -> bool {
    let is_primary = |(index, ..): &&IndexPart| index.eq_ignore_ascii_case("PRIMARY");
    let mut primary = parts.iter().filter(is_primary).peekable();
    primary.peek().is_some() && primary.all(|(.., prefix, _)| prefix.is_none())
}

/// Returns the rows under the names of their tables, in their order.
fn by_table<T>(rows: impl Iterator<Item = (String, T)>) -> HashMap<String, Vec<T>> {
    let mut tables: HashMap<String, Vec<T>> = HashMap::new();
    for (table, row) in rows {
        tables.entry(table).or_default().push(row);
    }
    tables
}

/// Returns false if images may have wrong values of generated columns. MySQL (8.0.15 to 9.7.4) may log the
/// value of another row, or freed memory, for a virtual column of a type whose values lie outside the server's
/// row buffer. A REPLACE or INSERT IGNORE that finds a duplicate does so to rows after it. Columns of other
/// types, and stored ones, were right in all images, but may be computed from such a column.
fn generated_are_logged_right(columns: &[Column]) -> bool {
    let is_outside = |data_type: &str| {
        !matches!(
            data_type,
            "tinyint"
                | "smallint"
                | "mediumint"
                | "int"
                | "bigint"
                | "bit"
                | "float"
                | "double"
                | "decimal"
                | "year"
                | "date"
                | "time"
                | "datetime"
                | "timestamp"
                | "enum"
                | "set"
                | "char"
                | "varchar"
                | "binary"
                | "varbinary"
        )
    };
    !columns
        .iter()
        .any(|(_, data_type, .., extra)| extra.contains("virtual") && is_outside(data_type))
}

/// The tables that can't be rolled back. BLACKHOLE has nothing to roll back.
pub(crate) const NOT_TRANSACTIONAL: &str = "FROM information_schema.TABLES \
     WHERE TABLE_TYPE='BASE TABLE' AND ENGINE<>'BLACKHOLE' AND ENGINE NOT IN \
     (SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS='YES')";

/// Looks for a table among those of `condition` that can't be rolled back.
pub(super) async fn has_not_transactional(session: &mut Session, condition: &str) -> Result<bool> {
    let query = format!("SELECT EXISTS(SELECT 1 {NOT_TRANSACTIONAL} AND {condition})");
    let found: Vec<bool> = session.rows(&query).await?;
    Ok(found.first() == Some(&true))
}

impl TableTraits {
    async fn read(session: &mut Session, named: &str) -> Result<HashMap<String, Self>> {
        let rows: Vec<(String, Option<String>, bool, bool)> = session
            .rows(&format!(
                "SELECT TABLE_NAME, ENGINE, COALESCE(CREATE_OPTIONS,'') LIKE '%partitioned%', \
                 TABLE_NAME IN (SELECT TABLE_NAME FROM information_schema.TABLE_CONSTRAINTS \
                  WHERE {named} AND CONSTRAINT_TYPE='CHECK') \
                 FROM information_schema.TABLES WHERE {named} AND TABLE_TYPE='BASE TABLE'"
            ))
            .await?;
        let tables = rows.into_iter().map(|(name, engine, is_partitioned, has_checks)| {
            (name, Self { engine: engine.unwrap_or_default(), is_partitioned, has_checks })
        });
        Ok(tables.collect())
    }

    /// Returns true if the server has to be asked whether the table's engine is transactional.
    fn may_not_be_transactional(&self) -> bool {
        !matches!(self.engine.as_str(), "" | "InnoDB" | "BLACKHOLE")
    }
}

/// Returns the tables in which the server finds a row's partition by more than the values of
/// columns. With generated columns, index parts without a column and checks these are all
/// expressions that it evaluates for a row.
async fn partitions_compute(session: &mut Session, named: &str) -> Result<HashSet<String>> {
    const COLUMNS_ONLY: &str = "'^`[^`]+`(,`[^`]+`)*$'";
    let found: Vec<String> = session
        .rows(&format!(
            "SELECT DISTINCT TABLE_NAME FROM information_schema.PARTITIONS \
             WHERE {named} AND (PARTITION_EXPRESSION NOT REGEXP {COLUMNS_ONLY} \
              OR SUBPARTITION_EXPRESSION NOT REGEXP {COLUMNS_ONLY})"
        ))
        .await?;
    Ok(found.into_iter().collect())
}

async fn class(
    session: &mut Session,
    collations: &mut Collations,
    data_type: &str,
    collation: Option<&str>,
    prefix: Option<usize>,
) -> Result<KeyClass> {
    Ok(match data_type {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => KeyClass::Integer,
        "year" => KeyClass::Year,
        "float" => KeyClass::Float,
        "double" => KeyClass::Double,
        "decimal" => KeyClass::Decimal,
        "date" => KeyClass::Temporal(TemporalType::Date),
        "time" => KeyClass::Temporal(TemporalType::Time),
        "datetime" => KeyClass::Temporal(TemporalType::DateTime),
        "timestamp" => KeyClass::Temporal(TemporalType::Timestamp),
        "enum" => KeyClass::Enum,
        "set" => KeyClass::Set,
        "bit" => KeyClass::Bit,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "binary"
        | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
            let collation = collations.get(session, collation.unwrap_or("binary")).await?;
            KeyClass::String { collation, prefix }
        }
        _ => KeyClass::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_columns_with_values_outside_the_row_are_not_trusted() {
        for (data_type, generated, is_virtual, trusted) in [
            ("int", true, true, true),
            ("bigint", true, true, true),
            ("varchar", true, true, true),
            ("varbinary", true, true, true),
            ("decimal", true, true, true),
            ("datetime", true, true, true),
            ("enum", true, true, true),
            ("text", true, true, false),
            ("longblob", true, true, false),
            ("json", true, true, false),
            ("point", true, true, false),
            ("text", true, false, true),
            ("text", false, false, true),
        ] {
            let extra = if is_virtual { "virtual generated" } else { "" };
            let columns = [
                ("id".to_owned(), "int".to_owned(), None, false, "auto_increment".to_owned()),
                ("g".to_owned(), data_type.to_owned(), None, generated, extra.to_owned()),
            ];
            assert_eq!(generated_are_logged_right(&columns), trusted, "{data_type}");
        }
    }
}
