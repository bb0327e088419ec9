//! The part of the stream that is applied: filters, and the end.

use std::collections::BTreeMap;

use csa_applier::CollationMap;
use csa_provider::binlog::GtidSet;
use csa_scheduler::filter::FilterRules;
use csa_scheduler::until::Until;
use toml::{Table, Value};

use super::declared_keys::ApplierConfig;
use super::error::{ConfigError, Result};
use crate::host::micros_of;

/// Returns the `replicate_*` keys.
pub(super) fn filters(applier: &ApplierConfig) -> Result<FilterRules> {
    let rules = FilterRules {
        do_db: applier.replicate_do_db.clone(),
        ignore_db: applier.replicate_ignore_db.clone(),
        do_table: applier.replicate_do_table.clone(),
        ignore_table: applier.replicate_ignore_table.clone(),
        wild_do_table: applier.replicate_wild_do_table.clone(),
        wild_ignore_table: applier.replicate_wild_ignore_table.clone(),
        rewrite_db: pairs("replicate_rewrite_db", &applier.replicate_rewrite_db)?,
        accounts: applier.replicate_accounts,
    };
    rules.check().map_err(|error| ConfigError(format!("applier.{error}")))?;
    Ok(rules)
}

/// Returns the key `collation_map`.
pub(super) fn collations(applier: &ApplierConfig) -> Result<CollationMap> {
    let pairs = pairs("collation_map", &applier.collation_map)?;
    CollationMap::new(pairs).map_err(|why| ConfigError(format!("applier.collation_map: {why}")))
}

fn pairs(key: &str, table: &Table) -> Result<Vec<(String, String)>> {
    let pair = |(from, to): (&String, &Value)| match to {
        Value::String(to) => Ok((from.clone(), to.clone())),
        other => Err(ConfigError(format!(
            "applier.{key}: {from:?} = {other} is not {{ \"from\" = \"to\" }}"
        ))),
    };
    table.iter().map(pair).collect()
}

/// Returns the rules that MySQL accepts and never applies.
pub(super) fn without_effect(rules: &FilterRules) -> Option<&'static str> {
    (!rules.do_db.is_empty() && !rules.ignore_db.is_empty())
        .then_some("replicate_ignore_db has no effect beside replicate_do_db")
}

/// Returns `until = { sql_before_gtids | sql_after_gtids = "…" }`, or `sql_before_time` with a TOML
/// time or a quoted one.
pub(super) fn until(table: &Table) -> Result<Until> {
    let text = |(key, value): (&String, &Value)| match value {
        Value::String(text) => Ok((key.clone(), text.clone())),
        Value::Datetime(time) => Ok((key.clone(), time.to_string())),
        _ => Err(ConfigError(format!("applier.until.{key}: a GTID set or a time, in quotes"))),
    };
    let said = table.iter().map(text).collect::<Result<_>>()?;
    let none = || format!(": one of {UNTIL_KEYS}");
    parse_until(&said)
        .and_then(|until| until.ok_or_else(none))
        .map_err(|error| ConfigError(format!("applier.until{error}")))
}

const UNTIL_KEYS: &str = "sql_before_gtids, sql_after_gtids and sql_before_time";

/// Returns an end by its key; no end without a key.
///
/// # Errors
/// The error, worded as the continuation of `until`.
pub(crate) fn parse_until(
    said: &BTreeMap<String, String>,
) -> std::result::Result<Option<Until>, String> {
    let mut said = said.iter();
    let Some((key, text)) = said.next() else { return Ok(None) };
    if said.next().is_some() {
        return Err(format!(": one of {UNTIL_KEYS}, not several"));
    }
    let set = || match text.parse::<GtidSet>() {
        Ok(set) if !set.is_empty() => Ok(set),
        Ok(_) => Err(format!(".{key}: the set is empty")),
        Err(error) => Err(format!(".{key}: {error}")),
    };
    Ok(Some(match key.as_str() {
        "sql_before_gtids" => Until::BeforeGtids(set()?),
        "sql_after_gtids" => Until::AfterGtids(set()?),
        "sql_before_time" => Until::BeforeTime(micros_of(text).ok_or_else(|| {
            format!(
                ".{key}: {text:?} is not an RFC 3339 time with offset, e.g. 2026-03-01T18:00:00Z"
            )
        })?),
        _ => return Err(format!(".{key}: unknown key; known are {UNTIL_KEYS}")),
    }))
}
