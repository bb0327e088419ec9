//! The vendor of the target server.

/// The vendor of the target server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Vendor {
    #[default]
    MySql,
    MariaDb,
}

impl Vendor {
    /// By `@@version`.
    pub(crate) fn of(version: &str) -> Self {
        match version.to_ascii_lowercase().contains("mariadb") {
            true => Self::MariaDb,
            false => Self::MySql,
        }
    }

    /// The statement that changes a server setting for as long as the vendor permits.
    pub(crate) const fn set(self) -> &'static str {
        match self {
            Self::MySql => "SET PERSIST",
            Self::MariaDb => "SET GLOBAL",
        }
    }
}
