//! Whose server the target is.

/// Whose server the target is.
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

    /// What changes a server's setting for longest.
    pub(crate) const fn set(self) -> &'static str {
        match self {
            Self::MySql => "SET PERSIST",
            Self::MariaDb => "SET GLOBAL",
        }
    }
}
