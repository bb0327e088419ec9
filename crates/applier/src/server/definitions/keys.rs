use csa_scheduler::{KeyClass, KeyPart};

use super::TableName;
use super::collations::Collations;
use crate::error::Result;
use crate::server::session::Session;
use csa_provider::quote;

/// A table's columns and unique keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Definition {
    /// Names in the order of row images.
    pub(super) columns: Vec<String>,
    /// The primary key first.
    pub(super) unique: Vec<Vec<KeyPart>>,
    /// A unique key has values that are not in row images.
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
    let columns: Vec<(String, String, Option<String>, bool)> = session
        .rows(&format!(
            "SELECT COLUMN_NAME, LOWER(DATA_TYPE), COLLATION_NAME, \
             COALESCE(GENERATION_EXPRESSION,'')<>'' FROM information_schema.COLUMNS \
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
    let generated = columns.iter().any(|(.., generated)| *generated);
    let functional = parts.iter().any(|(_, column, ..)| column.is_none());
    let mut definition = Definition {
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
        let Some((_, data_type, collation, _)) = columns.get(place) else { continue };
        let class = class(session, collations, data_type, collation.as_deref(), prefix).await?;
        parts.push(KeyPart { column: place, class });
    }
    definition.columns = columns.into_iter().map(|(name, ..)| name).collect();
    Ok(Some(definition))
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
