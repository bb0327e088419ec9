//! Values the configuration knows and this version does not act on: refused, never ignored.

use std::time::Duration;

use super::{ApplierConfig, ConfigError};

/// One row per key, to be struck out as functions arrive.
pub(super) fn check(applier: &ApplierConfig) -> Result<(), ConfigError> {
    let filtered = [
        ("replicate_do_db", &applier.replicate_do_db),
        ("replicate_ignore_db", &applier.replicate_ignore_db),
        ("replicate_do_table", &applier.replicate_do_table),
        ("replicate_ignore_table", &applier.replicate_ignore_table),
        ("replicate_wild_do_table", &applier.replicate_wild_do_table),
        ("replicate_wild_ignore_table", &applier.replicate_wild_ignore_table),
    ];
    let used = [
        ("source_delay", applier.source_delay.0 > Duration::ZERO),
        ("until", applier.until.is_some()),
        ("replicate_rewrite_db", !applier.replicate_rewrite_db.is_empty()),
    ];
    let filters = filtered.iter().map(|(key, list)| (*key, !list.is_empty()));
    match used.into_iter().chain(filters).find(|(_, used)| *used) {
        Some((key, _)) => {
            Err(ConfigError(format!("applier.{key} is not supported by this version")))
        }
        None => Ok(()),
    }
}

/// Values that no version will know.
pub(super) fn check_words(applier: &ApplierConfig) -> Result<(), ConfigError> {
    for (key, value, words) in [
        ("commit", &applier.commit, &["grouped", "one-to-one"][..]),
        ("target_gtids", &applier.target_gtids, &["own", "mirror", "source"]),
        ("executor", &applier.executor, &["auto", "row-image", "sql"]),
        ("exec_mode", &applier.exec_mode, &["strict", "idempotent"]),
    ] {
        if !words.contains(&value.as_str()) {
            let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            return Err(ConfigError(format!(
                "applier.{key}: {value:?} is not one of {}",
                words.join(", ")
            )));
        }
    }
    if applier.target_gtids == "source" && applier.commit != "one-to-one" {
        return Err(ConfigError(
            "applier.target_gtids: \"source\" needs commit = \"one-to-one\": a group has no GTID on \
             the source; for groups and the source's GTID set take \"mirror\""
                .to_owned(),
        ));
    }
    Ok(())
}
