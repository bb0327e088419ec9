use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csa_provider::GtidSet;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::directory::Directory;
use crate::queue::Queue;
use crate::recovery::{self, Recovered, Recovery};
use crate::segment::SegmentHeader;
use crate::tail::Tail;
use crate::writer::Writer;
use crate::{
    RelayInlet, RelayInspector, RelayPosition, RelayReader, RelayStoreOptions, RelayWriter, Result,
};

/// One channel's relay store.
#[derive(Debug)]
pub struct RelayStore {
    shared: Arc<Shared>,
    received: GtidSet,
    writer: Mutex<Option<Writer>>,
}

/// Sizes and totals, for the status page and metrics.
#[derive(Debug, Clone, Default)]
pub struct RelayUsage {
    pub segments: usize,
    /// Bytes of all segment files.
    pub bytes: u64,
    /// All transactions that the channel ever received into this store, and bytes of their events.
    pub transactions_total: u64,
    pub event_bytes_total: u64,
    /// The reason reception waits for space.
    pub waiting: Option<String>,
    /// The number of fdatasync calls.
    pub syncs_total: u64,
    /// The limits from the options; 0 for none.
    pub space_limit: u64,
    pub min_free_disk: u64,
    /// Free bytes of the file system as of the last [`RelayStore::measure_disk`].
    pub free_disk: Option<u64>,
}

/// The part of a store that the writer, readers and the status page share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: RelayStoreOptions,
    pub(crate) directory: Directory,
    pub(crate) state: Mutex<State>,
    /// Signals that the visible end moved.
    pub(crate) grown: Notify,
    /// The store is dropped: readers no longer wait.
    pub(crate) closing: AtomicBool,
    /// The inlet or the store is dropped: the writer no longer waits for space.
    pub(crate) giving_up: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// End of the last whole transaction.
    pub(crate) end: RelayPosition,
    /// Everything below is committed on the target.
    pub(crate) released: RelayPosition,
    pub(crate) tail: Tail,
    /// GTIDs of the whole transactions, and of those executed when the store was opened.
    pub(crate) received: GtidSet,
    pub(crate) usage: RelayUsage,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) header_len: u64,
    /// Bytes written so far, including an unfinished transaction.
    pub(crate) len: u64,
    /// End of its last whole transaction; a format description may follow.
    pub(crate) transactions_end: u64,
}

impl State {
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.len).sum()
    }

    /// True if everything after `executed` is here, up to the end.
    fn follows(&self, executed: &GtidSet) -> bool {
        executed.is_subset_of(&self.received) && recovery::follows(&self.segments, executed)
    }

    fn is_released(&self, number: u64, segment: &Segment) -> bool {
        let offset = segment.transactions_end;
        if offset > segment.header_len {
            return self.released >= RelayPosition { segment: number, offset };
        }
        // Without transactions: it was always empty, or a crash has taken those that were never synced.
        // Until the target is past it, only this segment shows that they are missing.
        let was_empty = self.segments.range(number + 1..).next().is_none_or(|(_, next)| {
            next.header.transactions_before == segment.header.transactions_before
        });
        was_empty || self.released.segment > number
    }

    /// True if every whole transaction in the store is released.
    pub(crate) fn is_all_released(&self) -> bool {
        self.segments.iter().all(|(&number, segment)| self.is_released(number, segment))
    }
}

impl Shared {
    /// Deletes segments with a released last transaction, but never the one being written.
    ///
    /// A file that can't be deleted is logged and left. Nothing but its space is lost, until the
    /// store is opened again.
    pub(crate) fn purge(&self) {
        let mut state = self.state.lock();
        let mut gone = Vec::new();
        while state.segments.len() > 1
            && let Some((&number, segment)) = state.segments.first_key_value()
            && state.is_released(number, segment)
        {
            // First here, so that readers no longer find it; a file left by a crash is deleted
            // after the next start.
            state.segments.remove(&number);
            gone.push(number);
        }
        drop(state);
        if gone.is_empty() {
            return;
        }
        for &number in &gone {
            match self.directory.remove(number) {
                Ok(()) => debug!(segment = number, "relay segment purged"),
                Err(error) => warn!(%error, "relay segment can't be purged"),
            }
        }
        if let Err(error) = self.directory.sync() {
            warn!(%error, "purging of relay segments is not durable yet");
        }
    }
}

impl RelayStore {
    /// Opens a channel's store, or creates it. The target has `executed`.
    ///
    /// Blocks on the disk: call it where blocking is allowed.
    ///
    /// # Errors
    /// Another process holds the store, the disk fails, or a segment is of another version.
    pub fn open(options: RelayStoreOptions, executed: &GtidSet) -> Result<(Self, Recovery)> {
        let directory = Directory::open(&options)?;
        let recovered = recovery::recover(&directory, Some(executed))?;
        Self::build(options, directory, recovered, executed)
    }

    /// Opens a store that is not empty while the target's transactions are unknown: reception
    /// continues after those received. Nothing is released before [`Self::restart_after`] sets the
    /// place. `None`, with nothing created, if there is nothing to continue.
    ///
    /// Blocks on the disk.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn resume(options: RelayStoreOptions) -> Result<Option<(Self, Recovery)>> {
        if RelayInspector::open(&options)?.is_empty() {
            return Ok(None);
        }
        let directory = Directory::open(&options)?;
        let recovered = recovery::recover(&directory, None)?;
        // Without a whole header there is no position.
        if recovered.segments.is_empty() {
            return Ok(None);
        }
        Self::build(options, directory, recovered, &GtidSet::new()).map(Some)
    }

    fn build(
        options: RelayStoreOptions,
        directory: Directory,
        recovered: Recovered,
        executed: &GtidSet,
    ) -> Result<(Self, Recovery)> {
        let end = recovered.end;
        let usage = RelayUsage {
            transactions_total: recovered.transactions,
            event_bytes_total: recovered.event_bytes,
            space_limit: options.space_limit,
            min_free_disk: options.min_free_disk,
            ..RelayUsage::default()
        };
        let shared = Arc::new(Shared {
            options,
            directory,
            state: Mutex::new(State {
                segments: recovered.segments,
                end,
                released: recovered.released,
                tail: Tail::default(),
                received: GtidSet::new(),
                usage,
            }),
            grown: Notify::new(),
            closing: AtomicBool::new(false),
            giving_up: AtomicBool::new(false),
        });
        let mut received = recovered.received;
        let ahead = !executed.is_subset_of(&received);
        received.union(executed);
        let mut writer = Writer::open(
            Arc::clone(&shared),
            received.clone(),
            recovered.format,
            (recovered.transactions, recovered.event_bytes),
            ahead,
        )?;
        // On a full disk the writer's first step tries it again.
        let _ = writer.prepare()?;
        shared.purge();
        shared.state.lock().received.clone_from(&received);
        let store = Self { shared, received, writer: Mutex::new(Some(writer)) };
        Ok((store, recovered.report))
    }

    /// Everything that was in the store and on the target when the store was opened.
    #[must_use]
    pub const fn received(&self) -> &GtidSet {
        &self.received
    }

    /// [`Self::received`] and everything that has become visible to readers since.
    #[must_use]
    pub fn received_so_far(&self) -> GtidSet {
        self.shared.state.lock().received.clone()
    }

    /// The inlet of the store. Starts the writer's thread; a store has only one, ever.
    ///
    /// # Panics
    /// If called twice.
    #[must_use]
    pub fn inlet(&self) -> RelayInlet {
        let (mut inlet, writer) = self.inlet_and_writer();
        inlet.written_by(writer.spawn());
        inlet
    }

    /// The inlet and its writer, for a caller that drives the writer: a simulation in one thread.
    ///
    /// # Panics
    /// If either this or [`Self::inlet`] was called before.
    #[must_use]
    pub fn inlet_and_writer(&self) -> (RelayInlet, RelayWriter) {
        let writer = self.writer.lock().take().expect("a relay store has one inlet");
        let queue = Arc::new(Queue::default());
        let inlet =
            RelayInlet::new(Arc::clone(&self.shared), Arc::clone(&queue), self.received.clone());
        (inlet, RelayWriter::new(writer, queue))
    }

    /// A reader that begins after `executed`, skipping whole transactions in that set.
    #[must_use]
    pub fn reader(&self, executed: GtidSet) -> RelayReader {
        RelayReader::new(Arc::clone(&self.shared), executed)
    }

    /// Prepares for a reader that begins after `executed`: from now on only that counts as
    /// committed, even if more was released. `false`, with nothing changed, if the store lacks some
    /// later transaction or has not received all of `executed`: it has to be opened again.
    #[must_use]
    pub fn restart_after(&self, executed: &GtidSet) -> bool {
        let mut state = self.shared.state.lock();
        if !state.follows(executed) {
            return false;
        }
        let State { segments, end, received, .. } = &*state;
        state.released = recovery::released(segments, *end, received, executed);
        drop(state);
        self.shared.purge();
        true
    }

    /// True if [`Self::restart_after`] would succeed.
    #[must_use]
    pub fn follows(&self, executed: &GtidSet) -> bool {
        self.shared.state.lock().follows(executed)
    }

    /// Everything below `position` is committed on the target and may be purged.
    pub fn release(&self, position: RelayPosition) {
        let mut state = self.shared.state.lock();
        if state.released < position {
            state.released = position;
        }
        let crossed = state.segments.len() > 1
            && state
                .segments
                .iter()
                .next()
                .is_some_and(|(&number, s)| state.is_released(number, s));
        drop(state);
        if crossed {
            self.shared.purge();
        }
    }

    #[must_use]
    pub fn usage(&self) -> RelayUsage {
        let state = self.shared.state.lock();
        let mut usage = state.usage.clone();
        usage.segments = state.segments.len();
        usage.bytes = state.bytes();
        usage
    }

    /// Measures the free space of the file system; blocks until it answers.
    pub fn measure_disk(&self) {
        let free = Some(self.shared.directory.free_bytes()).filter(|&free| free != u64::MAX);
        self.shared.state.lock().usage.free_disk = free;
    }

    /// Cuts a closed store before a damaged transaction; that and all later ones are fetched again.
    ///
    /// # Errors
    /// The store is open, or the disk fails.
    pub fn discard_from(options: &RelayStoreOptions, position: RelayPosition) -> Result<()> {
        let directory = Directory::open(options)?;
        recovery::discard_from(&directory, position)
    }
}

impl Drop for RelayStore {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.giving_up.store(true, Ordering::Release);
        self.shared.grown.notify_waiters();
    }
}
