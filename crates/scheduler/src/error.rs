use csa_provider::binlog::Gtid;
use csa_relaystore::disk::Error as Stored;

/// The reason a transaction could not be admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction holds something this version does not apply; nothing of it is skipped.
    #[error("transaction {gtid}: {what}")]
    Unsupported { gtid: Gtid, what: String },
    /// The transaction's bytes could not be read back or understood.
    #[error("reading transaction {gtid}: {source}")]
    Unreadable {
        gtid: Gtid,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The target's definitions, from which conflicts are found, could not be read.
    #[error("transaction {gtid}: reading the keys of its tables on the target: {source}")]
    Keys {
        gtid: Gtid,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Returns the error of the relay store because of which a transaction could not be read: damage, or a disk that
    /// fails. It says nothing about the transaction.
    #[must_use]
    pub fn store_error(&self) -> Option<&Stored> {
        let Self::Unreadable { source, .. } = self else { return None };
        let of_store =
            |error: &&Stored| matches!(error, Stored::Damaged { .. } | Stored::Io { .. });
        source.downcast_ref().filter(of_store)
    }

    /// Returns [`Self::store_error`].
    ///
    /// # Errors
    /// Any other error, as it was.
    pub fn into_store_error(self) -> std::result::Result<Stored, Self> {
        if self.store_error().is_none() {
            return Err(self);
        }
        match self {
            Self::Unreadable { gtid, source } => match source.downcast() {
                Ok(error) => Ok(*error),
                Err(source) => Err(Self::Unreadable { gtid, source }),
            },
            other => Err(other),
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
