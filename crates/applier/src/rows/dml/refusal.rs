//! Why row changes are not applied.

use csa_provider::server::visible::toml_string;
use csa_provider::sql_text::identifier;

use crate::server::definitions::table::BLACKHOLE;

/// The server's error numbers for the same conditions.
pub(crate) mod codes {
    /// Can't find record.
    pub(crate) const KEY_NOT_FOUND: u16 = 1032;
    /// No such table.
    pub(crate) const NO_SUCH_TABLE: u16 = 1146;
    /// The table's engine can't do it.
    pub(crate) const NOT_BY_ENGINE: u16 = 1031;
    /// Not supported.
    pub(crate) const UNSUPPORTED: u16 = 1235;
    /// Data truncated.
    pub(crate) const TRUNCATED: u16 = 1265;
    /// The engine is not transactional.
    pub(crate) const NOT_TRANSACTIONAL: u16 = 1785;
    /// No default value.
    pub(crate) const NO_DEFAULT: u16 = 1364;
    /// A column can't be converted.
    pub(crate) const CONVERSION: u16 = 1677;
}

/// Why row changes are not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Number of the server's error with the same meaning.
    pub(crate) code: u16,
    /// One line without row values.
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Says why rows of the table are neither changed nor deleted.
pub(crate) fn keeps_no_rows(schema: &str, table: &str) -> Refusal {
    let rule = toml_string(&format!("{schema}.{table}"));
    let quoted = format!("{}.{}", identifier(schema), identifier(table));
    Refusal::new(
        codes::NOT_BY_ENGINE,
        format!(
            "{schema}.{table} is {BLACKHOLE} on the target: an UPDATE or DELETE finds no row there, and would \
             not reach the target's binary log. Leave the table out with all its changes and definitions: \
             replicate_ignore_table = [{rule}] in [channel.applier]; or run there: ALTER \
             TABLE {quoted} ENGINE=InnoDB, and copy its rows"
        ),
    )
}

/// Refuses an event that can't be read.
pub(super) fn unreadable(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(codes::CONVERSION, error.to_string())
}
