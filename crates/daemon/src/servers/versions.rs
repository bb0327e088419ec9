//! The versions that were tested, and replication from newer to older ones.

use csa_provider::server::{Finding, Version};

/// The newest version that was tested.
const NEWEST: (u32, u32) = (9, 7);

/// Login already refuses versions that can be no source.
pub(super) fn source(version: &Version) -> Finding {
    const CHECK: &str = "source.version";
    known(CHECK, version)
}

/// Checks the target's version, with that of the `source` if it answered. Versions of MariaDB are a requirement.
pub(super) fn target(version: &Version, source: Option<&Version>) -> Finding {
    const CHECK: &str = "target.version";
    match source.filter(|source| version.is_older_than(source)) {
        Some(source) => Finding::warning(
            CHECK,
            format!(
                "{} is older than the source ({}): a statement or collation that it does not know stops \
                 the channel",
                version.text(),
                source.text()
            ),
        ),
        None => known(CHECK, version),
    }
}

fn known(check: &'static str, version: &Version) -> Finding {
    let text = version.text();
    if version.is_at_least(NEWEST.0, NEWEST.1 + 1) {
        let (major, minor) = NEWEST;
        return Finding::warning(
            check,
            format!("{text} is newer than MySQL {major}.{minor}, the newest that was tested"),
        );
    }
    Finding::ok(check, text)
}

#[cfg(test)]
mod tests {
    use csa_provider::server::Level;

    use super::*;

    #[test]
    fn what_is_newer_than_was_tried_is_said() {
        for (text, level) in [
            ("8.0.11", Level::Ok),
            ("8.4.6-6 Percona", Level::Ok),
            ("9.7.4-Debian", Level::Ok),
            ("9.8.0", Level::Warning),
            ("10.0.1", Level::Warning),
        ] {
            assert_eq!(source(&Version::parse(text)).level, level, "{text}");
        }
    }

    #[test]
    fn targets_had_better_not_be_older() {
        let of = |one: &str, other: &str| {
            target(&Version::parse(one), Some(&Version::parse(other))).level
        };
        assert_eq!(of("8.4.6", "8.4.7"), Level::Ok);
        assert_eq!(of("9.0.1", "8.4.7"), Level::Ok);
        assert_eq!(of("8.4.6", "9.7.4"), Level::Warning);
    }
}
