use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csa_provider::GtidSet;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::directory::Directory;
use crate::recovery::{self, Recovery};
use crate::segment::SegmentHeader;
use crate::tail::Tail;
use crate::writer::Writer;
use crate::{RelayInlet, RelayPosition, RelayReader, RelayStoreOptions, Result};

/// One channel's relay store.
#[derive(Debug)]
pub struct RelayStore {
    shared: Arc<Shared>,
    received: GtidSet,
    writer: Mutex<Option<Writer>>,
}

/// Sizes and totals, for those who watch.
#[derive(Debug, Clone, Default)]
pub struct RelayUsage {
    pub segments: usize,
    /// Bytes of all segment files.
    pub bytes: u64,
    /// Transactions the channel ever received into this store, and bytes of their events.
    pub transactions_total: u64,
    pub event_bytes_total: u64,
    /// Why reception waits for space.
    pub waiting: Option<String>,
    /// Times fdatasync was called.
    pub syncs_total: u64,
}

/// What writer, readers and watchers have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: RelayStoreOptions,
    pub(crate) directory: Directory,
    pub(crate) state: Mutex<State>,
    /// The visible end moved.
    pub(crate) grown: Condvar,
    /// Something was released.
    pub(crate) released: Notify,
    pub(crate) closing: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// End of the last whole transaction.
    pub(crate) end: RelayPosition,
    /// Everything below is committed on the target.
    pub(crate) released: RelayPosition,
    pub(crate) tail: Tail,
    pub(crate) usage: RelayUsage,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) header_len: u64,
    /// Bytes written so far, unfinished transaction included.
    pub(crate) len: u64,
}

impl State {
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.len).sum()
    }
}

impl RelayStore {
    /// Opens a channel's store, or creates it. `executed` is what the target has.
    ///
    /// Blocks on the disk: call it where blocking is allowed.
    ///
    /// # Errors
    /// Another process holds it, the disk fails, a segment is of another version.
    pub fn open(options: RelayStoreOptions, executed: &GtidSet) -> Result<(Self, Recovery)> {
        let directory = Directory::open(&options.directory)?;
        let recovered = recovery::recover(&directory, executed)?;
        let end = recovered.end;
        let first = recovered.segments.keys().next().copied().unwrap_or(end.segment);
        let usage = RelayUsage {
            transactions_total: recovered.transactions,
            event_bytes_total: recovered.event_bytes,
            ..RelayUsage::default()
        };
        let shared = Arc::new(Shared {
            options,
            directory,
            state: Mutex::new(State {
                segments: recovered.segments,
                end,
                released: RelayPosition { segment: first, offset: 0 },
                tail: Tail::default(),
                usage,
            }),
            grown: Condvar::new(),
            released: Notify::new(),
            closing: AtomicBool::new(false),
        });
        let writer = Writer::open(
            Arc::clone(&shared),
            recovered.received.clone(),
            recovered.format,
            (recovered.transactions, recovered.event_bytes),
        )?;
        let mut received = recovered.received;
        received.union(executed);
        let store = Self { shared, received, writer: Mutex::new(Some(writer)) };
        Ok((store, recovered.report))
    }

    /// Everything in the store and on the target when the store was opened.
    #[must_use]
    pub const fn received(&self) -> &GtidSet {
        &self.received
    }

    /// The way in. Starts the writer's thread; there is one per store, ever.
    ///
    /// # Panics
    /// When asked for twice, or outside a tokio runtime.
    #[must_use]
    pub fn inlet(&self) -> RelayInlet {
        let writer = self.writer.lock().take().expect("a relay store has one inlet");
        RelayInlet::start(writer, self.received.clone())
    }

    /// A way out, beginning behind `executed`: whole transactions in it are passed over.
    #[must_use]
    pub fn reader(&self, executed: GtidSet) -> RelayReader {
        RelayReader::new(Arc::clone(&self.shared), executed)
    }

    /// Everything below `position` is committed on the target and may go.
    pub fn release(&self, position: RelayPosition) {
        let mut state = self.shared.state.lock();
        let crossed = state.released.segment < position.segment;
        if state.released < position {
            state.released = position;
        }
        let pressed = state.usage.waiting.is_some();
        drop(state);
        if crossed || pressed {
            self.shared.released.notify_one();
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

    /// Cuts a closed store before a damaged transaction; what was behind it is fetched again.
    ///
    /// # Errors
    /// The store is open, or the disk fails.
    pub fn discard_from(options: &RelayStoreOptions, position: RelayPosition) -> Result<()> {
        let directory = Directory::open(&options.directory)?;
        recovery::discard_from(&directory, position)
    }
}

impl Drop for RelayStore {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.released.notify_one();
        self.shared.grown.notify_all();
    }
}
