//! Keys with a few words as values, and the words that must go together.

use super::{ApplierConfig, ConfigError};

pub(super) fn check(applier: &ApplierConfig) -> Result<(), ConfigError> {
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
