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
        // Frames of a streamed transaction are read, and checked, only when its events are.
        error.into_store_error().map_or_else(Self::Refused, Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use csa_provider::binlog::{EventError, Gtid};
    use csa_relaystore::disk;

    use super::*;
    use crate::events::unreadable;

    #[test]
    fn a_disk_that_fails_is_no_fault_of_the_transaction() {
        let gtid: Gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".parse().expect("a GTID");
        let source = ErrorKind::Other.into();
        let open = disk::Error::Io { what: "opening", path: "relay".into(), source };
        let end = IntakeEnd::from(unreadable(&gtid, open));
        assert!(matches!(end, IntakeEnd::Unreadable(disk::Error::Io { .. })), "{end:?}");
        let transaction = RelayPosition { segment: 1, offset: 2 };
        let (path, offset) = ("relay".into(), 3);
        let damage = disk::Error::Damaged { path, offset, what: "frame header", transaction };
        let end = IntakeEnd::from(unreadable(&gtid, damage));
        assert!(matches!(end, IntakeEnd::Damaged { .. }), "{end:?}");
        for end in [
            IntakeEnd::from(unreadable(&gtid, EventError::UnknownChecksum(7))),
            IntakeEnd::from(unreadable(&gtid, disk::Error::CutOff)),
        ] {
            assert!(matches!(end, IntakeEnd::Refused(_)), "{end:?}");
        }
    }
}
