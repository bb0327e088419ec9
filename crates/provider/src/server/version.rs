//! A server's version.

use crate::binlog::version::version_numbers;
use crate::server::vendor::Vendor;

/// The parsed `@@version`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    text: String,
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Reads the numbers at the beginning of `@@version`; those that are missing are 0.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let [major, minor, patch] = version_numbers(text);
        Self { text: text.to_owned(), major, minor, patch }
    }

    /// Returns the version as the server writes it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub const fn numbers(&self) -> [u32; 3] {
        [self.major, self.minor, self.patch]
    }

    #[must_use]
    pub fn vendor(&self) -> Vendor {
        Vendor::of(&self.text)
    }

    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        self.vendor() == Vendor::MariaDb
    }

    /// Returns true if it is of an earlier release series (major and minor) than `other`.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        !self.is_at_least(other.major, other.minor)
    }

    #[must_use]
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }

    /// Returns true if the server, and not its storage engine, makes cascades and logs their rows, unless
    /// `innodb_native_foreign_keys` is on.
    #[must_use]
    pub fn cascades_itself(&self) -> bool {
        !self.is_mariadb() && self.is_at_least(9, 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mysql_cascades_itself_since_9_6() {
        for (version, expected) in [
            ("5.7.44-log", false),
            ("8.4.6", false),
            ("9.5.0", false),
            ("9.6.0", true),
            ("9.7.4-commercial", true),
            ("10.0.0", true),
            ("10.11.14-MariaDB-log", false),
            ("11.4.8-MariaDB", false),
        ] {
            assert_eq!(Version::parse(version).cascades_itself(), expected, "{version}");
        }
    }
}
