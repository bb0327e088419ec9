use csa_provider::binlog::Gtid;

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
    /// Returns the damage of the relay store because of which a transaction could not be read.
    ///
    /// # Errors
    /// Any other error, as it was.
    pub fn into_damage(self) -> std::result::Result<csa_relaystore::disk::Error, Self> {
        match self {
            Self::Unreadable { gtid, source } => {
                match source.downcast::<csa_relaystore::disk::Error>() {
                    Ok(error) if matches!(*error, csa_relaystore::disk::Error::Damaged { .. }) => {
                        Ok(*error)
                    }
                    Ok(error) => Err(Self::Unreadable { gtid, source: error }),
                    Err(source) => Err(Self::Unreadable { gtid, source }),
                }
            }
            other => Err(other),
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
