//! The tables of a copy, and their parts.

use std::collections::{BTreeMap, BTreeSet};

use csa_applier::{CollationMap, current_collation};
use csa_provider::server::Vendor;
use csa_provider::server::link::Side;
use csa_provider::sql_text::identifier;

use super::definitions::schema_collations;
use super::error::{CopyError, Result};
use super::options::CopyOptions;
use super::rows::{Part, TableRows, bounded_ranges, ranges};
use crate::verify::{
    Estimate, LEFT_OUT, ListedTables, Scope, TableName, TablePair, TableSelection, VerifySession,
    folds_case, lowercase, missing_select, tables,
};

/// Names that an error shows.
const SHOWN: usize = 5;

/// The tables that are copied.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) tables: BTreeMap<TableName, Estimate>,
    /// Their schemas, and others in which a table that is made later is replicated.
    pub(super) schemas: Vec<String>,
    pub(super) target_folds_case: bool,
}

impl Plan {
    /// Returns the tables, the largest first.
    pub(super) fn by_size(&self) -> Vec<(&TableName, Estimate)> {
        let mut tables: Vec<_> = self.tables.iter().map(|(name, size)| (name, *size)).collect();
        tables.sort_by_key(|(_, size)| std::cmp::Reverse(size.rows * size.average_row.max(1)));
        tables
    }

    /// Returns true if both have the same schemas and tables.
    pub(super) fn names_the_same(&self, other: &Self) -> bool {
        self.schemas == other.schemas && self.tables.keys().eq(other.tables.keys())
    }

    /// Returns the first of these tables that is replicated and was not there when the copy began. A parent that a key
    /// names may be none of those that are `there`: it was dropped, or never made.
    pub(super) fn newcomer(
        &self,
        tables: BTreeSet<TableName>,
        there: &BTreeMap<TableName, Estimate>,
        selection: &dyn TableSelection,
    ) -> Option<TableName> {
        let is_new = |name: &TableName| there.contains_key(name) && !self.tables.contains_key(name);
        let is_replicated =
            |name: &TableName| selection.target_of(name, self.target_folds_case).is_some();
        tables.into_iter().find(|name| is_new(name) && is_replicated(name))
    }

    /// Returns the source's guess at the bytes of all rows.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.values().map(|table| table.rows.saturating_mul(table.average_row)).sum()
    }

    /// Returns the source's guess at the rows of all.
    pub(super) fn rows(&self) -> u64 {
        self.tables.values().map(|table| table.rows).sum()
    }
}

/// Reads the tables of both servers. `made`: tables that this copy has made on the target.
///
/// # Errors
/// Some of them can't be copied, or are on the target already; an account may not see them.
pub(super) async fn read(
    options: &CopyOptions,
    source: &mut VerifySession,
    selection: &dyn TableSelection,
    scope: &Scope,
    made: &BTreeSet<TableName>,
) -> Result<Plan> {
    if let Some(what) = missing_select(&source.grants().await?, &Scope::default()) {
        return Err(source.may_not_read(&what).into());
    }
    let mut target = VerifySession::open(Side::Target, &options.target).await?;
    if target.vendor() == Vendor::MariaDb {
        let why =
            "it is MariaDB, whose definitions differ; copy with a dump (docs/provisioning.md)";
        return Err(target.refused(why).into());
    }
    let (on_source, on_target) = (tables(source).await?, tables(&mut target).await?);
    let listed = ListedTables {
        source: &on_source,
        target: &on_target,
        source_folds_case: folds_case(source).await?,
        target_folds_case: folds_case(&mut target).await?,
    };
    let pairs = listed.pairs(scope, selection).map_err(CopyError::Refused)?;
    let pairs: Vec<_> =
        pairs.into_iter().filter(|pair| on_source.contains_key(&pair.source)).collect();
    let is_in_the_way =
        |pair: &&TablePair| on_target.contains_key(&pair.target) && !made.contains(&pair.target);
    let there: Vec<_> = pairs.iter().filter(is_in_the_way).collect();
    let there = shown(there.iter().map(|pair| &pair.target));
    if !there.is_empty() {
        return Err(target
            .refused(&format!(
                "it has {there} already, and a copy makes only tables that are missing; if they are a copy made \
                 by other means, set [channel.applier] start_from to its GTID set; else leave them out \
                 with replicate_ignore_table, or move them away"
            ))
            .into());
    }
    let folds =
        |pair: &&TablePair| listed.target_folds_case && lowercase(&pair.source) == pair.target;
    let renamed = || pairs.iter().filter(|pair| pair.source != pair.target);
    let folded = shown(renamed().filter(folds).map(|pair| &pair.source));
    if !folded.is_empty() {
        return Err(target
            .refused(&format!(
                "lower_case_table_names there writes {folded} in lower case, which a copy can't do yet; copy with a \
                 dump (docs/provisioning.md)"
            ))
            .into());
    }
    let renamed = shown(renamed().map(|pair| &pair.source));
    if !renamed.is_empty() {
        return Err(target
            .refused(&format!(
                "replicate_rewrite_db gives {renamed} another name there, which a copy can't do yet; copy \
                 with a dump (docs/provisioning.md)"
            ))
            .into());
    }
    let collations_there = schema_collations(&mut target).await?;
    let tables: BTreeMap<TableName, Estimate> = pairs
        .into_iter()
        .filter_map(|pair| Some((pair.source.clone(), *on_source.get(&pair.source)?)))
        .collect();
    check_engines(source, &tables).await?;
    let all: Vec<String> = source
        .rows(&format!(
            "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN ({LEFT_OUT}) ORDER BY 1"
        ))
        .await?;
    let is_copied = |schema: &String| {
        let any = TableName { schema: schema.clone(), table: String::new() };
        tables.keys().any(|table| table.schema == *schema)
            || selection.target_of(&any, listed.target_folds_case).is_some()
    };
    // A directory without data, such as lost+found, is a schema of this name in 5.7.
    let is_schema = |schema: &String| !schema.starts_with("#mysql50#");
    let schemas: Vec<String> = all.into_iter().filter(is_schema).filter(is_copied).collect();
    if scope.is_everything() {
        let collations_here = schema_collations(source).await?;
        let map = &options.target.collation_map;
        if let Some(why) = other_collation(&schemas, &collations_here, &collations_there, map) {
            return Err(target.refused(&why).into());
        }
    }
    target.close().await;
    Ok(Plan { tables, schemas, target_folds_case: listed.target_folds_case })
}

/// Returns the reason why a schema that is on the target can't become a copy: a table that the source makes without a
/// character set would get another one there.
fn other_collation(
    schemas: &[String],
    here: &BTreeMap<String, String>,
    there: &BTreeMap<String, String>,
    map: &CollationMap,
) -> Option<String> {
    schemas.iter().find_map(|schema| {
        let wanted = here.get(schema)?;
        let wanted = map.get(wanted).unwrap_or(wanted);
        let found = there.get(schema)?;
        (current_collation(found) != current_collation(wanted)).then(|| {
            format!(
                "schema {schema} has the default collation {found} there, and {wanted} on the source: tables that the \
                 source makes later would not be the same; run there: ALTER DATABASE {} COLLATE {wanted}",
                identifier(schema)
            )
        })
    })
}

/// A snapshot holds the rows of InnoDB alone.
async fn check_engines(
    source: &mut VerifySession,
    tables: &BTreeMap<TableName, Estimate>,
) -> Result<()> {
    let others: Vec<(String, String)> = source
        .rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' \
             AND ENGINE<>'InnoDB' AND TABLE_SCHEMA NOT IN ({LEFT_OUT})"
        ))
        .await?;
    let others: Vec<TableName> =
        others.into_iter().map(TableName::from).filter(|name| tables.contains_key(name)).collect();
    let names = shown(others.iter());
    match names.is_empty() {
        true => Ok(()),
        false => Err(source
            .refused(&format!(
                "{names} are not InnoDB tables, and no snapshot holds their rows; run there: ALTER TABLE … \
                 ENGINE=InnoDB, or leave them out with replicate_ignore_table"
            ))
            .into()),
    }
}

fn shown<'a>(names: impl Iterator<Item = &'a TableName>) -> String {
    let names: Vec<String> = names.map(TableName::to_string).collect();
    match names.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} other tables", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

/// Returns the number of ranges into which a table with a key of integers is divided.
pub(super) fn parts_wanted(estimate: Estimate, options: &CopyOptions) -> u64 {
    match options.lanes {
        0 | 1 => 1,
        lanes => (estimate.rows / options.limits.part_rows).clamp(1, 4 * lanes as u64),
    }
}

/// Divides the rows whose key begins with an integer from the first to the last one.
pub(super) fn parts_between((first, last): (i128, i128), options: &CopyOptions) -> Vec<Part> {
    let rows = u64::try_from(last - first).unwrap_or(u64::MAX);
    let wanted = parts_wanted(Estimate { rows, ..Estimate::default() }, options);
    let ranges = bounded_ranges(first, last, wanted as u32);
    (0..).zip(ranges).map(|(number, range)| Part { number, range }).collect()
}

/// Divides a table: a large one with a key of integers into ranges, without reading it.
pub(super) async fn parts(
    source: &mut VerifySession,
    name: &TableName,
    estimate: Estimate,
    rows: &TableRows,
    options: &CopyOptions,
) -> Result<Vec<Part>> {
    let whole = vec![Part::default()];
    let wanted = parts_wanted(estimate, options);
    let Some(column) = rows.integer.as_deref().filter(|_| wanted > 1) else {
        return Ok(whole);
    };
    let column = identifier(column);
    let query = format!(
        "SELECT MIN({column}), MAX({column}) FROM {}.{}",
        identifier(&name.schema),
        identifier(&name.table)
    );
    let ends = source.texts(&query).await?;
    let ends = ends.into_iter().next().unwrap_or_default();
    let number = |place: usize| ends.get(place)?.as_ref()?.parse::<i128>().ok();
    let (Some(least), Some(most)) = (number(0), number(1)) else { return Ok(whole) };
    let ranges = ranges(least, most, wanted as u32);
    Ok((0..).zip(ranges).map(|(number, range)| Part { number, range }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_not_replicated_or_not_there_is_no_newcomer() {
        let name = |table: &str| TableName { schema: "d".to_owned(), table: table.to_owned() };
        let plan = Plan {
            tables: BTreeMap::from([(name("known"), Estimate::default())]),
            ..Plan::default()
        };
        let selection = |table: &TableName| (table.table != "ignored").then(|| table.clone());
        let there = ["ignored", "known", "made"];
        let there = BTreeMap::from(there.map(|table| (name(table), Estimate::default())));
        let newcomer = |tables: &[&str]| {
            let tables = tables.iter().map(|&table| name(table)).collect();
            plan.newcomer(tables, &there, &selection)
        };
        assert_eq!(newcomer(&["gone", "ignored", "known"]), None);
        assert_eq!(newcomer(&["ignored", "known", "made"]), Some(name("made")));
    }
}
