//! The kind of a server.

/// The vendor of a server, and MySQL before 8.0, which lacks much of what later versions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Vendor {
    #[default]
    MySql,
    /// MySQL 5.7.
    MySql57,
    MariaDb,
}

impl Vendor {
    /// Recognises the vendor by `@@version`.
    #[must_use]
    pub fn of(version: &str) -> Self {
        match version.to_ascii_lowercase().contains("mariadb") {
            true => Self::MariaDb,
            false if version.starts_with("5.") => Self::MySql57,
            false => Self::MySql,
        }
    }

    /// Returns the statement that changes a server setting for as long as the vendor permits.
    #[must_use]
    pub const fn set(self) -> &'static str {
        match self {
            Self::MySql => "SET PERSIST",
            Self::MySql57 | Self::MariaDb => "SET GLOBAL",
        }
    }

    /// Returns the condition in `information_schema.STATISTICS` for an index by which the optimizer finds rows.
    #[must_use]
    pub const fn usable_index(self) -> &'static str {
        match self {
            Self::MySql => "IS_VISIBLE='YES'",
            Self::MySql57 => "TRUE",
            // Its optimizer can't find rows by hash indexes.
            Self::MariaDb => "IGNORED='NO' AND INDEX_TYPE='BTREE'",
        }
    }
}
