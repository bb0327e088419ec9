//! Statements that bring rows of the target to the source's content. They are printed for an operator
//! with the reason at hand why the rows differ; nothing is executed here.
//!
//! A statement changes a row only if the target still has it as it was found. So a row that replication has
//! changed meanwhile stays as it is, and applying the statements twice changes nothing more. All rows are
//! deleted before any is inserted: rows may have exchanged the values of a unique key.

use csa_provider::server::Vendor;
use csa_provider::sql_text::{identifier, quote};

use super::catalogue::Column;
use super::error::Result;
use super::expression::TableSql;
use super::literal::{literal, selected};
use super::recheck::Different;
use super::report::Repair;
use super::scope::TablePair;
use super::servers::Servers;
use super::suspects::PairedSql;

/// Bytes of a row that a statement may hold; hexadecimal digits double them.
const ROW_BYTES: u64 = 4 << 20;
/// Equal rows of a table without a key that are inserted one by one.
const COPIES: u64 = 100;

/// The settings of the session that executes the statements, as those of the comparison: a row's digest
/// is that of its text. Foreign keys are not checked, so that a row that is replaced takes no others along.
pub const REPAIR_SESSION: [&str; 2] = [
    "SET NAMES utf8mb4",
    "SET SESSION time_zone='+00:00', sql_mode='ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', \
     foreign_key_checks=0, sql_safe_updates=0",
];

/// Reads the source's rows and writes the statements; `is_whole`: both sides have the same columns.
pub(super) async fn repair(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    pair: &TablePair,
    is_whole: bool,
    wanted: &[Different],
) -> Result<Repair> {
    let mut repair = Repair::default();
    if wanted.is_empty() {
        return Ok(repair);
    }
    if !is_whole {
        let why = "no statements: the definitions differ, or not all columns can be compared";
        repair.notes.push(why.to_owned());
        return Ok(repair);
    }
    let on_target = format!(
        "EVENT_OBJECT_SCHEMA={} AND EVENT_OBJECT_TABLE={}",
        quote(&pair.target.schema),
        quote(&pair.target.table)
    );
    let triggers: Vec<String> = servers
        .target
        .rows(&format!("SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE {on_target}"))
        .await?;
    if !triggers.is_empty() {
        repair.notes.push(format!(
            "the statements fire triggers of the target that replication does not: {}",
            triggers.join(", ")
        ));
    }
    let stored = stored(servers, sql, pair).await?;
    let compared = sql.source.compared();
    let has_moments = compared.iter().any(|column| column.data_type == "timestamp");
    if has_moments && stored.len() < compared.len() {
        repair.notes.push(
            "the statements compute generated columns in UTC: those that depend on another time zone may differ from \
             the source's afterwards"
                .to_owned(),
        );
    }
    let (mut deletes, mut inserts) = (Vec::new(), Vec::new());
    for (number, one) in wanted.iter().enumerate() {
        let statements = match sql.target.key().is_empty() {
            true => counted(servers, sql, &stored, one).await?,
            false => keyed(servers, sql, &stored, one, number).await?,
        };
        match statements {
            Some(RepairStatements { delete, insert }) => {
                deletes.extend(delete);
                inserts.extend(insert);
            }
            None => repair.notes.push(
                "a row was left out: the source changed it meanwhile (verify again), it is larger than 4 MiB, \
                 or it has JSON with types that no text has"
                    .to_owned(),
            ),
        }
    }
    repair.statements = deletes.into_iter().chain(inserts).collect();
    Ok(repair)
}

#[derive(Default)]
struct RepairStatements {
    delete: Vec<String>,
    insert: Vec<String>,
}

/// The columns whose values are inserted: the target computes the others.
async fn stored(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    pair: &TablePair,
) -> Result<Vec<Column>> {
    let generated: Vec<String> = servers
        .target
        .rows(&format!(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA={} AND TABLE_NAME={} \
             AND COALESCE(GENERATION_EXPRESSION,'')<>''",
            quote(&pair.target.schema),
            quote(&pair.target.table)
        ))
        .await?;
    let is_stored = |column: &&Column| !generated.iter().any(|name| column.is_named(name));
    Ok(sql.source.compared().iter().filter(is_stored).cloned().collect())
}

/// Returns a row with a key; `None` if the source's row is no longer the one that was compared.
async fn keyed(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    stored: &[Column],
    one: &Different,
    number: usize,
) -> Result<Option<RepairStatements>> {
    let mut statements = RepairStatements::default();
    let found = sql.target.one_of(&one.key);
    let mut unless = format!("NOT EXISTS (SELECT 1 FROM {} WHERE {found})", sql.target.name());
    if let Some(digest) = &one.target {
        let (table, is_same) = (sql.target.name(), sql.target.has_digest(digest));
        statements.delete.push(format!("DELETE FROM {table} WHERE {found} AND {is_same}"));
        if one.source.is_some() {
            // A row that replication has deleted meanwhile must not come back.
            statements.delete.push(format!("SET @csa_{number}=ROW_COUNT()"));
            unless = format!("@csa_{number}=1 AND {unless}");
        }
    }
    if let Some(digest) = &one.source {
        let at = format!("{} AND {}", sql.source.one_of(&one.key), sql.source.has_digest(digest));
        let Some(row) = row(servers, &sql.source, stored, &at).await? else { return Ok(None) };
        statements.insert.push(insert(&sql.target, stored, &row, &unless));
    }
    Ok(Some(statements))
}

/// Equal rows without a key, of which one side has more.
async fn counted(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    stored: &[Column],
    one: &Different,
) -> Result<Option<RepairStatements>> {
    let count = |value: &Option<String>| value.as_ref().and_then(|n| n.parse().ok()).unwrap_or(0);
    let (source, target): (u64, u64) = (count(&one.source), count(&one.target));
    let digest = one.key.concat();
    let (table, is_same) = (sql.target.name(), sql.target.has_digest(&digest));
    // Through a derived table: a DELETE may not read its own table otherwise.
    let has = |count: u64| {
        format!("(SELECT n FROM (SELECT COUNT(*) AS n FROM {table} WHERE {is_same}) AS c)={count}")
    };
    let mut statements = RepairStatements::default();
    if target > source {
        statements.delete.push(format!(
            "DELETE FROM {table} WHERE {is_same} AND {} LIMIT {}",
            has(target),
            target - source
        ));
        return Ok(Some(statements));
    }
    if source - target > COPIES {
        return Ok(None);
    }
    let at = sql.source.has_digest(&digest);
    let Some(row) = row(servers, &sql.source, stored, &at).await? else { return Ok(None) };
    let inserted = (target..source).map(|count| insert(&sql.target, stored, &row, &has(count)));
    statements.insert.extend(inserted);
    Ok(Some(statements))
}

/// Returns the literals of the source's row, one for each column.
async fn row(
    servers: &mut Servers<'_>,
    sql: &TableSql,
    columns: &[Column],
    at: &str,
) -> Result<Option<Vec<String>>> {
    let values: Vec<String> = columns.iter().map(selected).collect();
    let bytes: Vec<String> =
        columns.iter().map(|c| format!("COALESCE(LENGTH({}),0)", identifier(&c.name))).collect();
    let is_57 = servers.source.vendor() == Vendor::MySql57;
    let is_text: String = columns.iter().filter_map(|column| is_text(column, is_57)).collect();
    let query = format!(
        "SELECT {} FROM {} WHERE {at} AND {}<={ROW_BYTES}{is_text} LIMIT 1",
        values.join(","),
        sql.name(),
        bytes.join("+")
    );
    let rows = servers.source.texts(&query).await?;
    let Some(row) = rows.into_iter().next() else { return Ok(None) };
    let literals =
        columns.iter().zip(&row).map(|(column, value)| literal(column, value.as_deref()));
    Ok(Some(literals.collect()))
}

/// The condition that a JSON value is the one that its text stands for: DECIMAL and times in it are not.
fn is_text(column: &Column, is_57: bool) -> Option<String> {
    if column.data_type != "json" {
        return None;
    }
    let name = identifier(&column.name);
    let text = format!("CAST(CAST({name} AS CHAR CHARACTER SET utf8mb4) AS JSON)");
    // Inside of an object or array only the size tells.
    let size = match is_57 {
        true => String::new(),
        false => format!(
            " AND JSON_STORAGE_SIZE({name})-JSON_STORAGE_FREE({name})=JSON_STORAGE_SIZE({text})"
        ),
    };
    Some(format!(" AND ({name} IS NULL OR (JSON_TYPE({name})=JSON_TYPE({text}){size}))"))
}

fn insert(sql: &TableSql, columns: &[Column], row: &[String], condition: &str) -> String {
    let names: Vec<String> = columns.iter().map(|column| identifier(&column.name)).collect();
    format!(
        "INSERT INTO {} ({}) SELECT {} FROM DUAL WHERE {condition}",
        sql.name(),
        names.join(","),
        row.join(",")
    )
}
