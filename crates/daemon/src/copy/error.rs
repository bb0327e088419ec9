//! The reasons why a copy is not made, or not finished.

use csa_provider::server::link::LinkError;

use crate::verify::VerifyError;

/// One line that names the server or the table, and what to do.
#[derive(Debug, thiserror::Error)]

pub(crate) enum CopyError {
    /// Nothing was copied.
    #[error("{0}")]
    Refused(String),
    /// The source, or a question to the target.
    #[error(transparent)]
    Asked(#[from] VerifyError),
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
