//! Everything that the channel has received, as the header of the next segment states it.

use csa_provider::binlog::{EventType, FormatDescription, GtidSet, RawEvent};
use csa_provider::source::LastReceived;

use crate::disk::segment::SegmentHeader;

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) received: GtidSet,
    /// The part of it since the last segment began; all of it before the first.
    pub(crate) grown: GtidSet,
    /// The transactions that the target has and this store has never had, until a segment records them.
    pub(crate) only_on_target: GtidSet,
    /// The format description in force.
    pub(crate) format: Option<FormatDescription>,
    /// The last transaction received. `None` if that is not known, or the target has others.
    pub(crate) last: Option<LastReceived>,
    /// All transactions ever received, and bytes of their events.
    pub(crate) transactions: u64,
    pub(crate) event_bytes: u64,
}

impl History {
    pub(super) fn header(&self, number: u64) -> SegmentHeader {
        SegmentHeader {
            number,
            transactions_before: self.transactions,
            bytes_before: self.event_bytes,
            format: self.format.clone(),
            last: self.last.clone(),
        }
    }

    /// Adds a whole transaction.
    pub(super) fn add(&mut self, whole: LastReceived) {
        if self.received.add(&whole.gtid) {
            self.grown.add(&whole.gtid);
        }
        self.transactions += 1;
        self.event_bytes += whole.bytes;
        self.last = Some(whole);
    }

    /// Counts what only the target has as received.
    pub(super) fn take_over_from_target(&mut self) {
        let theirs = std::mem::take(&mut self.only_on_target);
        self.received.union(&theirs);
        self.grown.union(&theirs);
    }

    /// Returns true if the event is a format description that differs from the one in force, and notes it.
    pub(super) fn changes_format(&mut self, event: &RawEvent) -> bool {
        // A source sends one for each file and each dump; only a change is worth a frame.
        if event.event_type() != EventType::FORMAT_DESCRIPTION
            || self.format.as_ref().is_some_and(|known| known.raw() == event.bytes())
        {
            return false;
        }
        // The provider has parsed it before, so this does not fail.
        let Ok(format) = FormatDescription::parse(event.bytes().clone()) else { return false };
        self.format = Some(format);
        true
    }
}
