use csa_provider::source::ReceptionEnd;
use csa_relaystore::disk::RelayPosition;

use crate::error::Error;
use crate::until::Until;

/// The end of the intake. Everything handed over before it is applied.
#[derive(Debug)]
pub enum IntakeEnd {
    /// The pipeline ends, or nobody takes more transactions.
    Stopped,
    /// Nothing past this end was handed over.
    Until(Until),
    /// The relay store is damaged in the transaction that begins there. The store can be cut at
    /// that place: the source sends the rest again.
    Damaged { error: csa_relaystore::disk::Error, transaction: RelayPosition },
    /// The relay store can't be read.
    Unreadable(csa_relaystore::disk::Error),
    /// Nothing more will come from the source, and everything that came was handed over.
    Reception(ReceptionEnd),
    /// A transaction can't be admitted.
    Refused(Error),
}

impl From<csa_relaystore::disk::Error> for IntakeEnd {
    fn from(error: csa_relaystore::disk::Error) -> Self {
        match error {
            csa_relaystore::disk::Error::Damaged { transaction, .. } => {
                Self::Damaged { error, transaction }
            }
            other => Self::Unreadable(other),
        }
    }
}

impl From<Error> for IntakeEnd {
    fn from(error: Error) -> Self {
        // Frames of a streamed transaction are checked only when its events are read.
        error.into_damage().map_or_else(Self::Refused, Self::from)
    }
}
