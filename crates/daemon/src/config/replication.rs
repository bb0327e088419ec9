//! What of the stream is applied: filters, and where it ends.

use csa_provider::GtidSet;
use csa_scheduler::{FilterRules, Until};
use toml::{Table, Value};

use super::{ApplierConfig, ConfigError};

type Result<T> = std::result::Result<T, ConfigError>;

/// The `replicate_*` keys.
pub(super) fn filters(applier: &ApplierConfig) -> Result<FilterRules> {
    let rewrite_db = applier.replicate_rewrite_db.iter().map(|(from, to)| match to {
        Value::String(to) => Ok((from.clone(), to.clone())),
        other => Err(ConfigError(format!(
            "applier.replicate_rewrite_db: {from:?} = {other} is not {{ \"from\" = \"to\" }}"
        ))),
    });
    let rules = FilterRules {
        do_db: applier.replicate_do_db.clone(),
        ignore_db: applier.replicate_ignore_db.clone(),
        do_table: applier.replicate_do_table.clone(),
        ignore_table: applier.replicate_ignore_table.clone(),
        wild_do_table: applier.replicate_wild_do_table.clone(),
        wild_ignore_table: applier.replicate_wild_ignore_table.clone(),
        rewrite_db: rewrite_db.collect::<Result<_>>()?,
    };
    rules.check().map_err(|error| ConfigError(format!("applier.{error}")))?;
    Ok(rules)
}

/// Rules that MySQL accepts and never looks at.
pub(super) fn without_effect(rules: &FilterRules) -> Option<&'static str> {
    (!rules.do_db.is_empty() && !rules.ignore_db.is_empty())
        .then_some("replicate_ignore_db has no effect beside replicate_do_db")
}

/// `until = { sql_before_gtids | sql_after_gtids = "…" }`.
pub(super) fn until(table: &Table) -> Result<Until> {
    let wrong = |what: String| Err(ConfigError(format!("applier.until{what}")));
    let mut keys = table.iter();
    let (Some((key, value)), None) = (keys.next(), keys.next()) else {
        return wrong(": one of sql_before_gtids and sql_after_gtids".to_owned());
    };
    let make: fn(GtidSet) -> Until = match key.as_str() {
        "sql_before_gtids" => Until::BeforeGtids,
        "sql_after_gtids" => Until::AfterGtids,
        _ => {
            return wrong(format!(
                ".{key}: unknown key; known are sql_before_gtids, sql_after_gtids"
            ));
        }
    };
    let Value::String(text) = value else {
        return wrong(format!(".{key}: a GTID set in quotes"));
    };
    match text.parse::<GtidSet>() {
        Ok(set) if !set.is_empty() => Ok(make(set)),
        Ok(_) => wrong(format!(".{key}: the set is empty")),
        Err(error) => wrong(format!(".{key}: {error}")),
    }
}
