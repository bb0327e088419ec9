//! Values the configuration knows and this version does not act on: refused, never ignored.

use super::{ApplierConfig, ConfigError};

/// One row per key, to be struck out as functions arrive.
pub(super) fn check(applier: &ApplierConfig) -> Result<(), ConfigError> {
    let used = [
        ("commit = \"one-to-one\"", applier.commit == "one-to-one"),
        ("target_gtids = \"source\"", applier.target_gtids == "source"),
        ("executor = \"sql\"", applier.executor == "sql"),
        ("exec_mode = \"idempotent\"", applier.exec_mode == "idempotent"),
    ];
    match used.into_iter().find(|(_, used)| *used) {
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
    Ok(())
}
