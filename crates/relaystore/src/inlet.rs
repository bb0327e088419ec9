//! The asynchronous entry to the store: a bounded queue to the writer thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use csa_provider::{Gtid, GtidSet, Placement, RawEvent, SinkError, TransactionSink};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::store::Shared;
use crate::writer::Writer;
use crate::{Result, SyncPolicy};

/// The most event bytes in the queue; a larger event is queued alone.
const QUEUE_BYTES: usize = 2 << 20;
/// The bytes that any event counts in addition, for its place in the queue.
const ITEM_BYTES: usize = size_of::<Item>();

#[derive(Debug)]
enum Item {
    Event(RawEvent, Placement),
    Abandon,
}

/// The writer takes a whole batch with one short lock: nothing is allocated per event, and no task
/// is woken before there is something to do.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    items: Vec<Item>,
    bytes: usize,
    closed: bool,
    writer_waits: bool,
    failed: Option<String>,
}

/// Hands events to the writer thread.
///
/// Dropping it waits until the thread has written and synced the queue and has ended, so that the
/// store can be opened again right after. A thread that waits for space gives up at once.
#[derive(Debug)]
pub struct RelayInlet {
    queue: Arc<Queue>,
    shared: Arc<Shared>,
    received: GtidSet,
    open: Option<Gtid>,
    thread: Option<JoinHandle<()>>,
}

impl RelayInlet {
    pub(crate) fn start(shared: Arc<Shared>, writer: Writer, received: GtidSet) -> Self {
        let queue = Arc::new(Queue::default());
        let items = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("csa-relay".to_owned())
            .spawn(move || {
                if let Err(error) = write_all(writer, &items) {
                    let mut state = items.state.lock();
                    state.failed = Some(error.to_string());
                    state.items = Vec::new();
                    drop(state);
                    items.emptied.notify_one();
                }
            })
            .expect("threads can be started");
        Self { queue, shared, received, open: None, thread: Some(thread) }
    }

    /// Pending while the queue is full. An item is queued whole or, if this future is dropped, not
    /// at all: between the check and the push there is no await.
    async fn send(&self, item: Item) -> std::result::Result<(), SinkError> {
        let (bytes, complete) = match &item {
            Item::Event(event, placement) => {
                (event.len(), matches!(placement, Placement::End | Placement::Outside))
            }
            Item::Abandon => (0, true),
        };
        let bytes = bytes + ITEM_BYTES;
        loop {
            {
                let mut state = self.queue.state.lock();
                if let Some(text) = &state.failed {
                    return Err(SinkError(text.clone()));
                }
                if state.items.is_empty() || state.bytes + bytes <= QUEUE_BYTES {
                    state.items.push(item);
                    state.bytes += bytes;
                    if state.writer_waits && (complete || state.bytes >= QUEUE_BYTES / 2) {
                        state.writer_waits = false;
                        self.queue.filled.notify_one();
                    }
                    return Ok(());
                }
                // A large event may not fit although the queue is below
                // the mark that wakes the writer.
                if state.writer_waits {
                    state.writer_waits = false;
                    self.queue.filled.notify_one();
                }
            }
            self.queue.emptied.notified().await;
        }
    }
}

impl TransactionSink for RelayInlet {
    async fn append(
        &mut self,
        event: RawEvent,
        placement: Placement,
    ) -> std::result::Result<(), SinkError> {
        let begins = match &placement {
            Placement::Begin(header) => Some(header.gtid.clone()),
            _ => None,
        };
        let ends = placement == Placement::End;
        self.send(Item::Event(event, placement)).await?;
        // Only now: a transaction counts as received once its end is queued.
        if begins.is_some() {
            self.open = begins;
        }
        if ends && let Some(gtid) = self.open.take() {
            self.received.add(&gtid);
        }
        Ok(())
    }

    async fn abandon(&mut self) -> std::result::Result<(), SinkError> {
        self.open = None;
        self.send(Item::Abandon).await
    }

    fn received(&self) -> GtidSet {
        self.received.clone()
    }

    fn has_received(&self, gtid: &Gtid) -> bool {
        self.received.contains(gtid)
    }
}

impl Drop for RelayInlet {
    fn drop(&mut self) {
        // Without this a writer that waits for space would never reach the end of the queue.
        self.shared.giving_up.store(true, Ordering::Release);
        self.queue.state.lock().closed = true;
        self.queue.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            drop(thread.join());
        }
    }
}

enum Taken {
    Items,
    SyncDue,
    Closed,
}

impl Queue {
    /// Swaps the queued items into `into`; waits for some at most `wait`, or without limit.
    fn take(&self, into: &mut Vec<Item>, wait: Option<Duration>) -> Taken {
        let until = wait.map(|wait| Instant::now() + wait);
        let mut state = self.state.lock();
        while state.items.is_empty() {
            if state.closed {
                return Taken::Closed;
            }
            state.writer_waits = true;
            match until {
                None => self.filled.wait(&mut state),
                Some(until) => {
                    if self.filled.wait_until(&mut state, until).timed_out() {
                        state.writer_waits = false;
                        if state.items.is_empty() {
                            return Taken::SyncDue;
                        }
                    }
                }
            }
        }
        state.writer_waits = false;
        std::mem::swap(&mut state.items, into);
        state.bytes = 0;
        drop(state);
        self.emptied.notify_one();
        Taken::Items
    }

    fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }
}

/// Runs the writer thread. Queued items are written together,
/// and made visible once the queue is empty.
fn write_all(mut writer: Writer, queue: &Queue) -> Result<()> {
    let mut items = Vec::new();
    loop {
        match queue.take(&mut items, writer.sync_due()) {
            Taken::Items => {
                for item in items.drain(..) {
                    match item {
                        Item::Event(event, placement) => writer.append(&event, placement)?,
                        Item::Abandon => writer.abandon()?,
                    }
                }
                // With more in the queue, larger writes are worth a little delay.
                if writer.sync_policy() == SyncPolicy::Transaction || queue.is_empty() {
                    writer.flush()?;
                }
            }
            Taken::SyncDue => {}
            // A transaction cut off by the end is dropped: the source sends it again.
            Taken::Closed => {
                writer.abandon()?;
                writer.flush()?;
                return writer.sync();
            }
        }
        if writer.sync_due() == Some(Duration::ZERO) {
            writer.sync()?;
        }
    }
}
