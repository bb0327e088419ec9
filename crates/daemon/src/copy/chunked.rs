//! The choice between the two ways of reading a table: in the snapshot with which the copy begins, or in chunks
//! after it, each with a short query of its own.
//!
//! Tables in chunks keep no snapshot open on the source for longer than one query, and a copy that was interrupted
//! continues. What changes meanwhile is applied afterwards in a way that needs much of a table and of both
//! servers, so some are read in the snapshot.

use std::collections::{BTreeMap, BTreeSet};

use csa_applier::{Executor, executor_for};

use super::error::Result;
use super::options::CopyOptions;
use super::plan::Plan;
use super::rows::TableRows;
use crate::verify::{LEFT_OUT, TableName, TableSelection, VerifySession, tables};

/// The ways in which the tables of a copy are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chunked {
    /// The tables that are read in chunks.
    pub(super) tables: BTreeSet<TableName>,
    /// Tables whose foreign keys are made before changes are applied, because these cascade.
    pub(super) cascading: BTreeSet<TableName>,
    /// The reason why no table at all is read in chunks.
    pub(super) why_none: Option<String>,
}

impl Chunked {
    /// Returns a replicated table that foreign keys have connected with those in chunks since the copy began; `known`
    /// were connected before. Its keys are checked while rows converge: the target would pass over a change of a
    /// parent, or delete children with it.
    pub(super) async fn connected_since(
        &self,
        source: &mut VerifySession,
        selection: &dyn TableSelection,
        plan: &Plan,
        known: &BTreeSet<TableName>,
    ) -> Result<Option<TableName>> {
        let related = related(source, &self.tables).await?;
        let there = tables(source).await?;
        Ok(plan.newcomer(&related - known, &there, selection))
    }
}

/// Chooses the way for each table.
pub(super) async fn choose(
    options: &CopyOptions,
    source: &mut VerifySession,
    target: &mut VerifySession,
    plan: &Plan,
    rows: &BTreeMap<TableName, TableRows>,
) -> Result<Chunked> {
    let none = |why: String| Ok(Chunked { why_none: Some(why), ..Chunked::default() });
    let limit = options.snapshot_bytes;
    if limit > 0 && plan.bytes() <= limit {
        return none(format!("all tables together have less than {} MiB", limit >> 20));
    }
    if executor_for(&options.target, target.vendor(), &target.grants().await?) != Executor::RowImage
    {
        return none(
            "rows go to the target as statements (executor = \"sql\"), which can't replace rows \
             that are there already"
                .to_owned(),
        );
    }
    if let Some(why) = incomplete_images(source).await? {
        return none(why);
    }
    let cascading = cascading(source).await?;
    let numbered_elsewhere = numbered_elsewhere(source).await?;
    let tables = rows
        .iter()
        .filter(|(name, rows)| {
            rows.has_primary_key && !cascading.contains(name) && !numbered_elsewhere.contains(name)
        })
        .map(|(name, _)| name.clone())
        .collect();
    Ok(Chunked { tables, cascading, why_none: None })
}

/// Returns the reason why row images of the source may lack columns.
async fn incomplete_images(source: &mut VerifySession) -> Result<Option<String>> {
    let settings: Vec<(String, String)> = source
        .rows(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_row_image', 'binlog_row_value_options')",
        )
        .await?;
    let complete = |(name, value): &(String, String)| match name.as_str() {
        "binlog_row_image" => value == "FULL",
        _ => value.is_empty(),
    };
    let lacking = settings.iter().find(|setting| !complete(setting));
    Ok(lacking.map(|(name, value)| format!("{name}={value} on the source leaves out columns")))
}

/// Returns tables that are connected by foreign keys of which any cascades. What such a key changes is not in the
/// log of most sources: the target's own keys have to do the same, from rows of one moment.
pub(super) async fn cascading(source: &mut VerifySession) -> Result<BTreeSet<TableName>> {
    let keys = foreign_keys(source).await?;
    let cascading = keys.iter().filter(|(_, _, cascades)| *cascades);
    let first = cascading.flat_map(|(child, parent, _)| [child.clone(), parent.clone()]);
    Ok(connected(first.collect(), &keys))
}

/// Returns tables that foreign keys connect with any of `tables`, and these.
pub(super) async fn related(
    source: &mut VerifySession,
    tables: &BTreeSet<TableName>,
) -> Result<BTreeSet<TableName>> {
    Ok(connected(tables.clone(), &foreign_keys(source).await?))
}

/// A child, its parent, and whether the key cascades.
type ForeignKey = (TableName, TableName, bool);

async fn foreign_keys(source: &mut VerifySession) -> Result<Vec<ForeignKey>> {
    let keys: Vec<(String, String, String, String, bool)> = source
        .rows(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, \
             UPDATE_RULE IN ('CASCADE','SET NULL') OR DELETE_RULE IN ('CASCADE','SET NULL') \
             FROM information_schema.REFERENTIAL_CONSTRAINTS",
        )
        .await?;
    let keys = keys.into_iter().map(|(schema, table, parent_schema, parent, cascades)| {
        ((schema, table).into(), (parent_schema, parent).into(), cascades)
    });
    Ok(keys.collect())
}

/// Adds all tables that keys connect with those found.
fn connected(mut found: BTreeSet<TableName>, keys: &[ForeignKey]) -> BTreeSet<TableName> {
    loop {
        let before = found.len();
        for (child, parent, _) in keys {
            if found.contains(child) || found.contains(parent) {
                found.extend([child.clone(), parent.clone()]);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Returns tables whose AUTO_INCREMENT column is not the first of the primary key: they need another index from
/// the begin, and it may be a unique one.
async fn numbered_elsewhere(source: &mut VerifySession) -> Result<BTreeSet<TableName>> {
    let tables: Vec<(String, String)> = source
        .rows(&format!(
            "SELECT c.TABLE_SCHEMA, c.TABLE_NAME FROM information_schema.COLUMNS c \
             LEFT JOIN information_schema.STATISTICS s ON s.TABLE_SCHEMA=c.TABLE_SCHEMA \
             AND s.TABLE_NAME=c.TABLE_NAME AND s.COLUMN_NAME=c.COLUMN_NAME \
             AND s.INDEX_NAME='PRIMARY' AND s.SEQ_IN_INDEX=1 \
             WHERE c.EXTRA LIKE '%auto_increment%' AND s.INDEX_NAME IS NULL \
             AND c.TABLE_SCHEMA NOT IN ({LEFT_OUT})"
        ))
        .await?;
    Ok(tables.into_iter().map(TableName::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_connect_tables_over_others() {
        let name = |table: &str| TableName { schema: "d".to_owned(), table: table.to_owned() };
        let key = |child, parent, cascades| (name(child), name(parent), cascades);
        let keys = [
            key("line", "order", true),
            key("order", "customer", false),
            key("note", "customer", false),
            key("stock", "item", false),
        ];
        let first = BTreeSet::from([name("line"), name("order")]);
        let names: Vec<String> =
            connected(first, &keys).into_iter().map(|name| name.table).collect();
        assert_eq!(names, ["customer", "line", "note", "order"]);
    }
}
