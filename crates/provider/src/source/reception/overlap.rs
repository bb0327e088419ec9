//! The last received transaction is requested once more with each dump: the GTIDs of a source that was set back, and
//! has gone on since, are those of other transactions.

use super::end::Error;
use super::executed::purged;
use crate::binlog::event::TransactionHeader;
use crate::binlog::gtid::{Gtid, GtidSet, Uuid};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::sink::LastReceived;

/// A larger transaction is not sent twice.
const BYTES_MAX: u64 = 16 << 20;

/// A received transaction that the source sends again, and that is compared with the one received.
#[derive(Debug)]
pub(super) struct Overlap(LastReceived);

impl Overlap {
    /// Returns the transaction that tells whether the source with this `uuid` was set back: its own one, with the time
    /// of its commit. `None` if there is none that it can send.
    pub(super) async fn find(
        last: Option<LastReceived>,
        connection: &mut SourceConnection,
        uuid: &str,
        executed: &GtidSet,
    ) -> Result<Option<Self>, ConnectionError> {
        let Some(last) = last.filter(|last| can_tell(last, uuid, executed)) else {
            return Ok(None);
        };
        let purged = purged(connection).await?;
        Ok((!purged.contains(&last.gtid)).then_some(Self(last)))
    }

    pub(super) const fn gtid(&self) -> &Gtid {
        &self.0.gtid
    }

    /// Returns the set to begin after: `received` without the transaction.
    pub(super) fn begin(&self, received: &GtidSet) -> GtidSet {
        received.difference(&GtidSet::from_iter([self.0.gtid.clone()]))
    }

    /// Returns true if the transaction that begins is the one that was requested again.
    ///
    /// # Errors
    /// It is another one of that GTID.
    pub(super) fn matches(&self, header: &TransactionHeader, address: &str) -> Result<bool, Error> {
        if header.gtid != self.0.gtid {
            return Ok(false);
        }
        match header.original_commit_timestamp == self.0.committed {
            true => Ok(true),
            false => Err(Error::SetBack { address: address.to_owned(), gtid: header.gtid.clone() }),
        }
    }
}

/// A source gives GTIDs of its own `uuid` itself, so that one of them stands for another transaction only after it was
/// set back. One that lacks the transaction is refused for that. Sources before 8.0.1 log no time of a commit.
fn can_tell(last: &LastReceived, uuid: &str, executed: &GtidSet) -> bool {
    Uuid::parse_str(uuid).is_ok_and(|own| own == last.gtid.uuid)
        && last.committed != 0
        && last.bytes <= BYTES_MAX
        && executed.contains(&last.gtid)
}
