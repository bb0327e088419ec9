use csa_scheduler::{KeyClass, KeyPart};

use super::TableName;
use super::collations::Collations;
use crate::error::Result;
use crate::server::session::Session;
use csa_provider::quote;

/// Name, type, collation; generated, and that virtually.
type Column = (String, String, Option<String>, bool, bool);

/// A table's columns and unique keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Definition {
    /// Names in the order of row images.
    pub(super) columns: Vec<String>,
    /// The primary key first.
    pub(super) unique: Vec<Vec<KeyPart>>,
    /// See [`csa_scheduler::TableKeys::has_primary`].
    pub(super) has_primary: bool,
    /// A unique key has values that are not in row images, or may be wrong there.
    pub(super) opaque_unique_key: bool,
    /// See [`csa_scheduler::TableKeys::computes`].
    pub(super) computes: bool,
    /// See [`csa_scheduler::TableKeys::not_transactional`].
    pub(super) not_transactional: bool,
}

/// Reads a table's definition; `None` when there is no such table.
pub(super) async fn read(
    session: &mut Session,
    collations: &mut Collations,
    (schema, table): &TableName,
) -> Result<Option<Definition>> {
    let named = format!("TABLE_SCHEMA={} AND TABLE_NAME={}", quote(schema), quote(table));
    let columns: Vec<Column> = session
        .rows(&format!(
            "SELECT COLUMN_NAME, LOWER(DATA_TYPE), COLLATION_NAME, \
             COALESCE(GENERATION_EXPRESSION,'')<>'', EXTRA LIKE '%VIRTUAL%' \
             FROM information_schema.COLUMNS \
             WHERE {named} ORDER BY ORDINAL_POSITION"
        ))
        .await?;
    if columns.is_empty() {
        return Ok(None);
    }
    let parts: Vec<(String, Option<String>, Option<usize>, bool)> = session
        .rows(&format!(
            "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, NON_UNIQUE=0 \
             FROM information_schema.STATISTICS WHERE {named} \
             ORDER BY INDEX_NAME<>'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
        ))
        .await?;
    let table = Table::read(session, &named).await?;
    let generated = columns.iter().any(|(.., generated, _)| *generated);
    let is_trusted = generated_are_logged_right(&columns);
    let functional = parts.iter().any(|(_, column, ..)| column.is_none());
    let mut primary =
        parts.iter().filter(|(index, ..)| index.eq_ignore_ascii_case("PRIMARY")).peekable();
    let mut definition = Definition {
        has_primary: primary.peek().is_some() && primary.all(|(.., prefix, _)| prefix.is_none()),
        computes: generated
            || functional
            || table.has_checks
            || (table.is_partitioned && partitions_compute(session, &named).await?),
        // Whether an engine is transactional is asked only for tables of uncommon ones.
        not_transactional: !matches!(table.engine.as_str(), "" | "InnoDB" | "BLACKHOLE")
            && has_not_transactional(session, &named).await?,
        ..Definition::default()
    };
    let mut last = None;
    let unique = parts.into_iter().filter(|(.., unique)| *unique);
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
        let Some((_, data_type, collation, generated, _)) = columns.get(place) else { continue };
        definition.opaque_unique_key |= *generated && !is_trusted;
        let class = class(session, collations, data_type, collation.as_deref(), prefix).await?;
        parts.push(KeyPart { column: place, class });
    }
    definition.columns = columns.into_iter().map(|(name, ..)| name).collect();
    Ok(Some(definition))
}

/// False if images may have wrong values of generated columns. For a virtual column of a type whose values
/// lie outside the server's row buffer, MySQL (8.0.15 to 9.7.4) may log the value of another row, or freed
/// memory: a REPLACE or INSERT IGNORE that finds a duplicate does that to rows after it. Columns of other
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
    !columns.iter().any(|(_, data_type, .., is_virtual)| *is_virtual && is_outside(data_type))
}

/// Looks for a table among those of `condition` that can't be rolled back. BLACKHOLE has nothing to roll back.
pub(super) async fn has_not_transactional(session: &mut Session, condition: &str) -> Result<bool> {
    let found: Vec<bool> = session
        .rows(&format!(
            "SELECT EXISTS(SELECT 1 FROM information_schema.TABLES WHERE {condition} \
             AND TABLE_TYPE='BASE TABLE' AND ENGINE<>'BLACKHOLE' AND ENGINE NOT IN \
             (SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS='YES'))"
        ))
        .await?;
    Ok(found.first() == Some(&true))
}

/// A table apart from its columns and keys.
#[derive(Debug, Default)]
struct Table {
    /// Empty for a view.
    engine: String,
    is_partitioned: bool,
    has_checks: bool,
}

impl Table {
    /// One query: a view of `information_schema` costs the server most of a millisecond, and every table
    /// is read again after a statement that changes definitions.
    async fn read(session: &mut Session, named: &str) -> Result<Self> {
        let found: Option<(Option<String>, bool, bool)> = session
            .setting(&format!(
                "SELECT ENGINE, COALESCE(CREATE_OPTIONS,'') LIKE '%partitioned%', \
                 EXISTS(SELECT 1 FROM information_schema.TABLE_CONSTRAINTS \
                  WHERE {named} AND CONSTRAINT_TYPE='CHECK') \
                 FROM information_schema.TABLES WHERE {named} AND TABLE_TYPE='BASE TABLE'"
            ))
            .await?;
        Ok(found.map_or_else(Self::default, |(engine, is_partitioned, has_checks)| Self {
            engine: engine.unwrap_or_default(),
            is_partitioned,
            has_checks,
        }))
    }
}

/// True if the server finds a row's partition by more than the values of columns. With generated
/// columns, index parts without a column and checks these are all expressions that it evaluates for a
/// row.
async fn partitions_compute(session: &mut Session, named: &str) -> Result<bool> {
    const COLUMNS_ONLY: &str = "'^`[^`]+`(,`[^`]+`)*$'";
    let found: Option<bool> = session
        .setting(&format!(
            "SELECT EXISTS(SELECT 1 FROM information_schema.PARTITIONS \
              WHERE {named} AND (PARTITION_EXPRESSION NOT REGEXP {COLUMNS_ONLY} \
               OR SUBPARTITION_EXPRESSION NOT REGEXP {COLUMNS_ONLY}))"
        ))
        .await?;
    Ok(found == Some(true))
}

async fn class(
    session: &mut Session,
    collations: &mut Collations,
    data_type: &str,
    collation: Option<&str>,
    prefix: Option<usize>,
) -> Result<KeyClass> {
    Ok(match data_type {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" => KeyClass::Integer,
        "float" => KeyClass::Float,
        "double" => KeyClass::Double,
        "decimal" => KeyClass::Decimal,
        "date" | "time" | "datetime" | "timestamp" => KeyClass::Temporal,
        "enum" | "set" => KeyClass::Choice,
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
            let columns = [
                ("id".to_owned(), "int".to_owned(), None, false, false),
                ("g".to_owned(), data_type.to_owned(), None, generated, is_virtual),
            ];
            assert_eq!(generated_are_logged_right(&columns), trusted, "{data_type}");
        }
    }
}
