use std::future::Future;

use tokio::sync::watch;

use crate::binlog::event::RawEvent;
use crate::binlog::gtid::{Gtid, GtidSet};
use crate::source::assembler::Placement;

/// The spool can't take any more events; the text says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// The whole transaction that a spool was given last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastReceived {
    pub gtid: Gtid,
    /// Microseconds since the epoch of its commit on its own server; 0 if that is not logged.
    pub committed: u64,
    /// Bytes of its events.
    pub bytes: u64,
}

/// The spool as the provider uses it.
pub trait TransactionSink {
    /// Takes the next event of the stream. Pending while the spool is full, so that the source is
    /// not read. Of the events outside transactions only format descriptions are handed over, and
    /// none that are passed over.
    fn append(
        &mut self,
        event: RawEvent,
        placement: Placement,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// More events are on their way, up to [`Self::end_block`]: what is appended until then need not be seen before.
    fn begin_block(&mut self) {}

    /// Nothing more is known to come soon. A block also ends with [`Self::abandon`].
    fn end_block(&mut self) {}

    /// Drops the unfinished transaction: the link was lost and the source will send it again.
    fn abandon(&mut self) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Waits until everything handed over is in the spool, or the spool takes nothing more.
    fn stored(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns the error once the spool takes nothing more. For those that wait for it and hand nothing over, which
    /// would tell them.
    fn failed(&self) -> impl Future<Output = SinkError> + Send + use<Self> {
        std::future::pending()
    }

    /// Every whole transaction handed over, and those present at the start.
    fn received(&self) -> GtidSet;

    /// Returns true if [`Self::received`] holds the GTID.
    fn has_received(&self, gtid: &Gtid) -> bool;

    /// Returns the last of [`Self::received`] that was handed over. `None` if that is not known, or the target has others,
    /// which may be later ones.
    fn last(&self) -> Option<LastReceived> {
        None
    }

    /// Returns a count of transactions, in the order in which they were handed over, that no crash
    /// takes any more. It begins anywhere. `None` if the spool does not wait for the disk.
    fn safe(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}
