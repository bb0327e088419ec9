use std::future::Future;

use crate::event::RawEvent;
use crate::gtid::{Gtid, GtidSet};
use crate::transaction::Placement;

/// The spool can't take events any more; the text says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// What the provider needs from a spool.
pub trait TransactionSink {
    /// Takes the next event of the stream. Pending while the spool has no room: the source is then
    /// not read. Of events outside transactions only format descriptions are handed over, and nothing
    /// that is passed over.
    fn append(
        &mut self,
        event: RawEvent,
        placement: Placement,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Drops the unfinished transaction: the link was lost and the source will send it again.
    fn abandon(&mut self) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Every whole transaction handed over, and what there was at the start.
    fn received(&self) -> GtidSet;

    /// Whether [`Self::received`] holds a GTID.
    fn has_received(&self, gtid: &Gtid) -> bool;
}
