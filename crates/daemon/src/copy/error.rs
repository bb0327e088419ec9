//! The reasons why a copy is not made, or not finished.

use csa_provider::server::link::LinkError;

use crate::verify::{TableName, VerifyError, VerifySession};

/// One line that names the server or the table, and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// Nothing was copied.
    #[error("{0}")]
    Refused(String),
    /// The source, or a question to the target.
    #[error(transparent)]
    Asked(#[from] VerifyError),
    /// Something was defined, altered or dropped on the source meanwhile.
    #[error("{0}")]
    Changed(String),
    /// Transactions are prepared on the source.
    #[error("{0}")]
    Prepared(String),
    /// The channel's claim on the target.
    #[error(transparent)]
    Claim(#[from] csa_applier::Error),
    /// A statement on the target.
    #[error("target {address}: {what}: {source}")]
    Written {
        address: String,
        what: String,
        #[source]
        source: LinkError,
    },
}

pub(super) type Result<T> = std::result::Result<T, CopyError>;

impl CopyError {
    /// Another daemon has the channel.
    pub(crate) fn is_held_by_another(&self) -> bool {
        matches!(self, Self::Claim(error) if error.is_held_by_another())
    }

    /// Returns the number of the error that a server sent, if one did.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Asked(error) => error.code(),
            Self::Claim(error) => error.code(),
            Self::Written { source, .. } => source.code(),
            Self::Refused(_) | Self::Changed(_) | Self::Prepared(_) => None,
        }
    }

    pub(super) fn changed(session: &VerifySession, table: &TableName) -> Self {
        let why =
            format!("{table} was altered, renamed or dropped while it was copied; copy again");
        Self::Changed(session.refused(&why).to_string())
    }

    /// Returns true if the target refused a statement, as opposed to a link that was lost.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Written { source: LinkError::Server { .. }, .. })
    }
}
