//! Server versions, and which replicate to which.

use csa_applier::Vendor;

use super::report::Finding;

/// The parsed `@@version`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) text: String,
    major: u32,
    minor: u32,
    patch: u32,
}

/// The newest version that was tested.
const NEWEST: (u32, u32) = (9, 7);

impl Version {
    pub(super) fn parse(text: &str) -> Self {
        let [major, minor, patch] = csa_provider::binlog::version_numbers(text);
        Self { text: text.to_owned(), major, minor, patch }
    }

    pub(super) fn numbers(&self) -> [u32; 3] {
        [self.major, self.minor, self.patch]
    }

    pub(super) fn is_mariadb(&self) -> bool {
        self.vendor() == Vendor::MariaDb
    }

    pub(super) fn vendor(&self) -> Vendor {
        Vendor::of(&self.text)
    }

    pub(super) fn has_set_persist(&self) -> bool {
        self.vendor() == Vendor::MySql
    }

    pub(super) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

/// Login already refuses versions that can be no source.
pub(super) fn source(version: &Version) -> Finding {
    const CHECK: &str = "source.version";
    known(CHECK, version)
}

/// Checks the target's version, with that of the `source` if it answered. The start checks what a
/// MariaDB target can do.
pub(super) fn target(version: &Version, source: Option<&Version>) -> Finding {
    const CHECK: &str = "target.version";
    let text = &version.text;
    if version.is_mariadb() {
        return Finding::ok(CHECK, text);
    }
    match source {
        Some(source) if (version.major, version.minor) < (source.major, source.minor) => {
            Finding::warning(
                CHECK,
                format!(
                    "{text} is older than the source ({}): a statement or collation that it does \
                     not know stops the channel",
                    source.text
                ),
            )
        }
        _ => known(CHECK, version),
    }
}

fn known(check: &'static str, version: &Version) -> Finding {
    let text = &version.text;
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
    use super::*;
    use crate::servers::report::Level;

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
    fn servers_before_8_0_and_mariadb_lack_set_persist() {
        for (text, expected) in
            [("5.7.22-log", false), ("8.0.11", true), ("9.7.4", true), ("10.11.5-MariaDB", false)]
        {
            assert_eq!(Version::parse(text).has_set_persist(), expected, "{text}");
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
