//! One channel's relay store: opened, written through its inlet, read, released and closed.

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_provider::recorder::Recorder;
use csa_provider::seams::Durations;
use csa_provider::source::LastReceived;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::disk::directory::Directory;
use crate::disk::error::{Result, io};
use crate::disk::options::RelayStoreOptions;
use crate::disk::segment::RelayPosition;
use crate::opening::survey::RelayContents;
use crate::read::inspect::RelayInspector;
use crate::read::reader::RelayReader;
use crate::read::recovery::{self, Recovered, Recovery};
use crate::state::segments;
use crate::state::shared::{RelayUsage, Shared, StoreState};
use crate::state::tail::Tail;
use crate::write::driver::RelayWriter;
use crate::write::history::History;
use crate::write::inlet::RelayInlet;
use crate::write::queue::Queue;
use crate::write::writer::Writer;

/// One channel's relay store.
#[derive(Debug)]
pub struct RelayStore {
    pub(crate) shared: Arc<Shared>,
    received: GtidSet,
    /// The part of [`Self::received`] that only the target had when the store was opened.
    only_on_target: GtidSet,
    /// The last transaction that was in it when it was opened.
    last: Option<LastReceived>,
    writer: Mutex<Option<Writer>>,
    /// Segments at which a reader met an error.
    pub(super) doubtful: Mutex<BTreeSet<u64>>,
}

impl RelayStore {
    /// Opens a channel's store, or creates it. The target has `executed`.
    ///
    /// Blocks on the disk: call it where blocking is allowed.
    ///
    /// # Errors
    /// Another process holds the store, the disk fails, or a segment is of another version.
    pub fn open(options: RelayStoreOptions, executed: &GtidSet) -> Result<(Self, Recovery)> {
        Self::open_behind(options, executed, executed, executed)
    }

    /// Opens a channel's store, or creates it. Reception continues after what the store has and after `begin`, a part of
    /// `executed`: the archive lacks the rest. If segments are missing, those before `settled`, of which neither target nor
    /// archive needs anything, are given up, and otherwise those after the gap.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_behind(
        options: RelayStoreOptions,
        executed: &GtidSet,
        begin: &GtidSet,
        settled: &GtidSet,
    ) -> Result<(Self, Recovery)> {
        let directory = Directory::open(&options)?;
        let mut recovered = recovery::recover(&directory, Some((executed, settled)))?;
        if recovered.segments.is_empty() {
            recovered.received.clone_from(begin);
        }
        let (store, recovery) = Self::build(options, directory, recovered, begin)?;
        if !executed.is_subset_of(&store.received) {
            store.shared.state.lock().ahead = Some(executed.clone());
        }
        Ok((store, recovery))
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
        let before = segments::received_before(&recovered.segments, end.segment);
        let archived = options.archived.then_some(RelayPosition { segment: 0, offset: 0 });
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
            state: Mutex::new(StoreState {
                segments: recovered.segments,
                kept: None,
                end,
                released: recovered.released,
                archived,
                tail: Tail::default(),
                received: Arc::default(),
                ahead: None,
                queued: VecDeque::new(),
                open: None,
                usage,
            }),
            grown: Notify::new(),
            has_applier: AtomicBool::new(true),
            file_wanted: AtomicBool::new(false),
            wanted: Notify::new(),
            safe: watch::Sender::new(recovered.transactions),
            syncs: Durations::default(),
            recorder: OnceLock::new(),
            ended: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            giving_up: AtomicBool::new(false),
        });
        let mut received = recovered.received;
        let only_on_target = executed.difference(&received);
        // Those may be later ones, and from a copy of a source that was set back.
        let last = recovered.last.filter(|_| only_on_target.is_empty());
        let history = History {
            grown: received.difference(&before),
            received: received.clone(),
            only_on_target: only_on_target.clone(),
            format: recovered.format,
            last: last.clone(),
            transactions: recovered.transactions,
            event_bytes: recovered.event_bytes,
        };
        let mut writer = Writer::open(Arc::clone(&shared), history)?;
        // The source is not asked for what only the target has: reception continues after both.
        received.union(executed);
        // On a full disk the writer's first step tries it again.
        let _ = writer.prepare()?;
        shared.purge();
        shared.state.lock().received = Arc::new(received.clone());
        let writer = Mutex::new(Some(writer));
        let doubtful = Mutex::default();
        let store = Self { shared, received, only_on_target, last, writer, doubtful };
        Ok((store, recovered.report))
    }

    /// Returns everything that was in the store and on the target when the store was opened.
    #[must_use]
    pub const fn received(&self) -> &GtidSet {
        &self.received
    }

    /// Returns [`Self::received`] and everything that has become visible to readers since.
    #[must_use]
    pub fn received_so_far(&self) -> GtidSet {
        GtidSet::clone(&self.shared_received())
    }

    /// Returns [`Self::received_so_far`] without a copy. What becomes visible while somebody has it costs one.
    #[must_use]
    pub fn shared_received(&self) -> Arc<GtidSet> {
        Arc::clone(&self.shared.state.lock().received)
    }

    /// Returns true once nothing more becomes visible to readers, because reception is over.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// Records syncs there, from now on; only the first call counts.
    pub fn record_to(&self, recorder: &Recorder) {
        self.shared.recorder.get_or_init(|| recorder.clone());
    }

    /// Returns the inlet of the store. Starts the writer's thread; a store has only one, ever.
    ///
    /// # Errors
    /// The system refuses the thread. The store has to be opened again.
    ///
    /// # Panics
    /// If called twice.
    pub fn inlet(&self) -> Result<RelayInlet> {
        self.inlet_of(std::thread::Builder::new())
    }

    pub(crate) fn inlet_of(&self, thread: std::thread::Builder) -> Result<RelayInlet> {
        let (mut inlet, writer) = self.inlet_and_writer();
        let thread = writer.spawn(thread);
        let directory = self.shared.directory.directory();
        inlet.written_by(thread.map_err(io("starting the thread that writes", directory))?);
        Ok(inlet)
    }

    /// Returns the inlet and its writer, for a caller that drives the writer: a simulation in one
    /// thread.
    ///
    /// # Panics
    /// If either this or [`Self::inlet`] was called before.
    #[must_use]
    pub fn inlet_and_writer(&self) -> (RelayInlet, RelayWriter) {
        let writer = self.writer.lock().take().expect("a relay store has one inlet");
        let queue = Arc::new(Queue::new(self.shared.options.wake_bytes));
        let writer = RelayWriter::new(writer, Arc::clone(&self.shared), Arc::clone(&queue));
        let shared = Arc::clone(&self.shared);
        let before = (self.received.clone(), self.last.clone());
        let inlet = RelayInlet::new(shared, queue, writer.steps(), before);
        (inlet, writer)
    }

    /// Returns a reader that begins after `executed`, skipping whole transactions in that set.
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
        let StoreState { segments, end, received, .. } = &*state;
        // Not the higher of both: a target that came back older reads released transactions again.
        state.released = segments::released(segments, *end, received, executed);
        state.ahead = None;
        drop(state);
        self.shared.purge();
        true
    }

    /// Returns true if [`Self::restart_after`] would succeed.
    #[must_use]
    pub fn follows(&self, executed: &GtidSet) -> bool {
        self.shared.state.lock().follows(executed)
    }

    /// Everything below `position` is committed on the target and may be purged. Blocks while it deletes
    /// segments.
    pub fn release(&self, position: RelayPosition) {
        if self.note_released(position) {
            self.purge();
        }
    }

    /// As [`Self::release`], but deletes nothing; true if [`Self::purge`] has something to delete.
    pub fn note_released(&self, position: RelayPosition) -> bool {
        let mut state = self.shared.state.lock();
        if state.released < position {
            state.released = position;
        }
        state.segments.len() > 1
            && state.segments.iter().next().is_some_and(|(&number, s)| state.is_released(number, s))
    }

    /// Returns the transactions before the first one in the store, and those that only the target had when the store
    /// was opened, now or earlier: reception has passed them over.
    #[must_use]
    pub fn passed_over(&self) -> GtidSet {
        self.passed_over_in(&self.shared.state.lock())
    }

    fn passed_over_in(&self, state: &StoreState) -> GtidSet {
        let mut passed = segments::passed_over(&state.segments);
        passed.union(&self.only_on_target);
        passed
    }

    /// Returns the transactions that the store has, as [`crate::opening::contents`] does for a closed one.
    #[must_use]
    pub fn contents(&self) -> Option<RelayContents> {
        let is_empty = self.shared.state.lock().segments.is_empty();
        let all = || RelayContents { before: self.passed_over(), received: self.received_so_far() };
        (!is_empty).then(all)
    }

    /// Returns the transactions before the first one in the store.
    #[must_use]
    pub fn before(&self) -> GtidSet {
        let state = self.shared.state.lock();
        let first = state.segments.values().next();
        first.map_or_else(GtidSet::new, |first| first.grown.clone())
    }

    /// Everything in `archived` is in the archive, so that its segments may be purged once they are released, too. In a
    /// store that keeps nothing for an archive this releases them: the archive takes the place of a target. Blocks
    /// while it deletes segments.
    pub fn note_archived(&self, archived: &GtidSet) {
        let mut state = self.shared.state.lock();
        // No reader hands these out, so that no archive gets them from here.
        let mut all = self.passed_over_in(&state);
        all.union(archived);
        let StoreState { segments, end, received, .. } = &*state;
        let position = segments::released(segments, *end, received, &all);
        let passed = match &mut state.archived {
            Some(archived) => archived,
            None => &mut state.released,
        };
        *passed = position.max(*passed);
        drop(state);
        self.shared.purge();
    }

    /// Returns true if reception waits for space that is free once more is archived.
    #[must_use]
    pub fn waits_for_archive(&self) -> bool {
        let state = self.shared.state.lock();
        let is_behind = state.archived.is_none_or(|archived| archived < state.released);
        let applied = if state.archived.is_some() { state.released } else { state.end };
        // The store has room once all in it is archived; the disk has it once a whole segment is deleted.
        let frees_segment = state.segments.len() > 1
            && state.segments.first_key_value().is_some_and(|(&segment, first)| {
                applied >= RelayPosition { segment, offset: first.transactions_end }
            });
        let frees_space = frees_segment || !state.usage.waits_for_disk;
        state.usage.waiting.is_some() && is_behind && frees_space
    }

    /// Keeps nothing for the archive up to what is released: there is no room for it. Returns true if that is more than
    /// before. Blocks while it deletes segments.
    pub fn give_up_unarchived(&self) -> bool {
        let mut state = self.shared.state.lock();
        let released = state.released;
        let is_more = state.archived.is_some_and(|archived| archived < released);
        if is_more {
            state.archived = Some(released);
        }
        drop(state);
        self.shared.purge();
        is_more
    }

    /// Says whether what is received is applied at present, as it is at first: otherwise everything is written at once.
    pub fn set_has_applier(&self, has_applier: bool) {
        let had = self.shared.has_applier.swap(has_applier, Ordering::AcqRel);
        if had && !has_applier {
            self.shared.want_files();
        }
    }

    /// Has everything written to files that is in memory only, and returns once it is, or after `patience`: there may be
    /// no room for it.
    pub async fn write_out(&self, patience: Duration) {
        let until = Instant::now() + patience;
        loop {
            let mut grown = pin!(self.shared.grown.notified());
            grown.as_mut().enable();
            if self.shared.state.lock().segments.values().all(|it| it.unwritten.is_none()) {
                return;
            }
            self.shared.want_files();
            if timeout_at(until, grown).await.is_err() {
                return;
            }
        }
    }

    /// Deletes released segments; blocks until the disk has.
    pub fn purge(&self) {
        self.shared.purge();
    }

    #[must_use]
    pub fn usage(&self) -> RelayUsage {
        let state = self.shared.state.lock();
        let mut usage = state.usage.clone();
        usage.unwritten_bytes = state.unwritten_bytes();
        let files = state.segments.values().filter(|segment| segment.unwritten.is_none());
        let files = files.map(|segment| segment.len).chain(state.kept.map(|(_, len)| len));
        let files: Vec<u64> = files.collect();
        (usage.segments, usage.bytes) = (files.len(), files.iter().sum());
        usage.syncs = self.shared.syncs.view();
        usage.queued = state.queued.front().map(|(_, queued)| *queued);
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

    /// Empties a closed store whose target is made again: what it holds need not follow from the new one.
    ///
    /// # Errors
    /// The store is open, or the disk fails.
    pub fn empty(options: &RelayStoreOptions) -> Result<()> {
        Self::discard_from(options, RelayPosition { segment: 0, offset: 0 })
    }
}

impl Drop for RelayStore {
    fn drop(&mut self) {
        // Before the wake-up: a reader looks at it after each one.
        self.shared.closing.store(true, Ordering::Release);
        self.shared.giving_up.store(true, Ordering::Release);
        self.shared.grown.notify_waiters();
    }
}
