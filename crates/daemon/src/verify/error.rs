//! The reasons why there is no result, or no complete one.

use csa_provider::server::link::{LinkError, Side};

use super::table_name::TableName;
use crate::host::counted;

/// The reason why there is no result, or no complete one; one line that names what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    #[error("{0}")]
    Refused(String),
    #[error("{side} {address}: {source}")]
    Server {
        side: Side,
        address: String,
        #[source]
        source: LinkError,
    },
    #[error(
        "target {target} has made no progress for {seconds} s; it lacks {} from {first} on: is channel \
         {channel} running (csa-daemon status)?",
        counted(*.lacking, "transaction")
    )]
    Stalled { target: String, channel: String, seconds: u64, lacking: u64, first: String },
    #[error(
        "target {target} lacks {} from {first} on, and {why}",
        counted(*.lacking, "transaction")
    )]
    Standing { target: String, lacking: u64, first: String, why: String },
    #[error("comparing {table}: {source}")]
    Table {
        table: TableName,
        #[source]
        source: Box<VerifyError>,
    },
}

pub(crate) type Result<T> = std::result::Result<T, VerifyError>;

impl VerifyError {
    /// Returns the server's error number, if a server refused a statement.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Server { source, .. } => source.code(),
            _ => None,
        }
    }

    /// Returns true if a schema, table, column or index is gone, or a definition changed.
    pub(crate) fn is_definition_change(&self) -> bool {
        matches!(self.code(), Some(1049 | 1054 | 1146 | 1176 | 1412))
    }
}
