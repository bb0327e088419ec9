//! The kind of the target server.

/// The vendor of the target server, and MySQL before 8.0, which lacks much of what later versions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Vendor {
    #[default]
    MySql,
    /// MySQL 5.7.
    MySql57,
    MariaDb,
}

impl Vendor {
    /// By `@@version`.
    pub(crate) fn of(version: &str) -> Self {
        match version.to_ascii_lowercase().contains("mariadb") {
            true => Self::MariaDb,
            false if version.starts_with("5.") => Self::MySql57,
            false => Self::MySql,
        }
    }

    /// The statement that changes a server setting for as long as the vendor permits.
    pub(crate) const fn set(self) -> &'static str {
        match self {
            Self::MySql => "SET PERSIST",
            Self::MySql57 | Self::MariaDb => "SET GLOBAL",
        }
    }
}
