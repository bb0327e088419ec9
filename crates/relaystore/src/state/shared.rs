//! The part of a store that its writer, its readers and the status page share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use csa_provider::binlog::{CommitTimes, Gtid, GtidSet, TransactionHeader};
use csa_provider::recorder::Recorder;
use csa_provider::seams::{Durations, DurationsView};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::disk::directory::Directory;
use crate::disk::options::RelayStoreOptions;
use crate::disk::segment::RelayPosition;
use crate::state::follow::Followed;
use crate::state::segments::{self, Segment};
use crate::state::tail::Tail;

/// Sizes and totals, for the status page and metrics.
#[derive(Debug, Clone, Default)]
pub struct RelayUsage {
    /// Segment files.
    pub segments: usize,
    /// Bytes of all segment files.
    pub bytes: u64,
    /// Bytes of frames that have no file yet.
    pub unwritten_bytes: u64,
    /// Bytes of frames that were written to segment files since the store was opened.
    pub written_total: u64,
    /// All transactions that the channel ever received into this store, and bytes of their events.
    pub transactions_total: u64,
    pub event_bytes_total: u64,
    /// The oldest transaction that the inlet has taken and no reader can see yet.
    pub queued: Option<Queued>,
    /// The reason reception waits for space.
    pub waiting: Option<String>,
    /// It waits for the disk, and not for the store's own limit.
    pub waits_for_disk: bool,
    /// The number of fdatasync calls.
    pub syncs_total: u64,
    /// Their durations.
    pub syncs: DurationsView,
    /// The limits from the options; 0 for none.
    pub space_limit: u64,
    pub min_free_disk: u64,
    /// Free bytes of the file system as of the last [`RelayStore::measure_disk`].
    pub free_disk: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: RelayStoreOptions,
    pub(crate) directory: Directory,
    // Never held during disk I/O: readers take it for every look.
    pub(crate) state: Mutex<StoreState>,
    /// Signals that the visible end moved.
    pub(crate) grown: Notify,
    /// Somebody applies what is received.
    pub(crate) has_applier: AtomicBool,
    /// A reader needs the file of a segment that has none, or somebody looks at the files.
    pub(crate) file_wanted: AtomicBool,
    /// Wakes the writer for that.
    pub(crate) wanted: Notify,
    /// Transactions that are synced, of all ever received; it stands still under a policy that shows
    /// them before.
    pub(crate) safe: watch::Sender<u64>,
    pub(crate) syncs: Durations,
    pub(crate) recorder: OnceLock<Recorder>,
    /// The writer has ended: nothing more becomes visible.
    pub(crate) ended: AtomicBool,
    /// The store is dropped: readers no longer wait.
    pub(crate) closing: AtomicBool,
    /// The inlet or the store is dropped: the writer no longer waits for space.
    pub(crate) giving_up: AtomicBool,
}

/// A transaction on its way into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    pub committed: CommitTimes,
    /// The time at which the inlet took its first event.
    pub since: Instant,
}

/// The beginning of a transaction in the last segment.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) start: RelayPosition,
    pub(crate) header: TransactionHeader,
    pub(crate) followed: Arc<Followed>,
}

#[derive(Debug)]
pub(crate) struct StoreState {
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// The last file, while no segment has one, with its length: a start without the target continues after it.
    pub(crate) kept: Option<(u64, u64)>,
    /// End of the last whole transaction.
    pub(crate) end: RelayPosition,
    /// Everything below is committed on the target.
    pub(crate) released: RelayPosition,
    /// Everything below is in the archive; `None` without one.
    pub(crate) archived: Option<RelayPosition>,
    pub(crate) tail: Tail,
    /// GTIDs of the whole transactions, and of those executed when the store was opened.
    pub(crate) received: Arc<GtidSet>,
    /// Everything that the target has, until it is received: no reader hands it out, so nobody else releases it.
    pub(crate) ahead: Option<GtidSet>,
    /// Transactions that the inlet has taken and that are not visible, the oldest first.
    pub(crate) queued: VecDeque<(Gtid, Queued)>,
    /// The transaction whose first frames are written and whose last is not.
    pub(crate) open: Option<Open>,
    pub(crate) usage: RelayUsage,
}

impl StoreState {
    /// The inlet takes a transaction's first event.
    pub(crate) fn begins(&mut self, header: &TransactionHeader) {
        let queued = Queued { committed: header.commit_times(), since: Instant::now() };
        self.queued.push_back((header.gtid.clone(), queued));
    }

    /// The inlet gives up the transaction that it took last.
    pub(crate) fn abandons(&mut self, gtid: &Gtid) {
        self.queued.pop_back_if(|(last, _)| last == gtid);
    }

    /// A whole transaction becomes visible.
    pub(crate) fn receives(&mut self, gtid: &Gtid) {
        Arc::make_mut(&mut self.received).add(gtid);
        self.queued.pop_front_if(|(first, _)| first == gtid);
    }

    /// Returns the bytes of all segments, with and without a file.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.len).sum()
    }

    /// Returns the bytes of frames in segments without a file.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        let unwritten = self.segments.values().filter(|segment| segment.unwritten.is_some());
        unwritten.map(|segment| segment.len - segment.header_len).sum()
    }

    /// Returns the bytes of a segment that are written: beyond the visible end more is on its way.
    pub(crate) fn written_len(&self, number: u64, segment: &Segment) -> u64 {
        if number == self.end.segment { self.end.offset } else { segment.len }
    }

    pub(crate) fn is_unwritten(&self, number: u64) -> bool {
        self.segments.get(&number).is_some_and(|segment| segment.unwritten.is_some())
    }

    /// Returns the time since which a transaction that the target may lack has no file.
    pub(crate) fn unwritten_since(&self) -> Option<Instant> {
        let mut segments = self.segments.iter();
        let waiting = segments.find(|&(&number, segment)| {
            segment.unwritten.is_some() && !self.is_released(number, segment)
        });
        waiting.and_then(|(_, segment)| segment.unwritten)
    }

    /// Everything below is committed on the target, and in the archive if there is one.
    pub(crate) fn passed(&self) -> RelayPosition {
        self.archived.map_or(self.released, |archived| archived.min(self.released))
    }

    /// Returns true if everything after `executed` is here, up to the end.
    pub(crate) fn follows(&self, executed: &GtidSet) -> bool {
        executed.is_subset_of(&self.received) && segments::follows(&self.segments, executed)
    }
}

impl Shared {
    /// Has the writer write every segment to a file.
    pub(crate) fn want_files(&self) {
        self.file_wanted.store(true, Ordering::Release);
        self.wanted.notify_one();
    }
}
