//! The bounded queue between the inlet and the writer.

use std::collections::VecDeque;

use csa_provider::binlog::RawEvent;
use csa_provider::source::{Placement, SinkError};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The most event bytes in the queue; a larger event is queued alone.
const QUEUE_BYTES: usize = 2 << 20;
/// The bytes that any event counts in addition, for its place in the queue.
const ITEM_BYTES: usize = size_of::<Item>();

#[derive(Debug)]
pub(crate) enum Item {
    Event(RawEvent, Placement),
    Abandon,
}

/// The writer takes a whole batch with one short lock: nothing is allocated per event, and no task
/// is woken before there is something to do.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    /// Queued bytes for which the writer is woken.
    wake_bytes: usize,
    filled: Notify,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    items: VecDeque<Item>,
    bytes: usize,
    /// The end of a transaction is among the items.
    has_end: bool,
    closed: bool,
    writer_waits: bool,
    failed: Option<String>,
}

impl QueueState {
    fn swap(&mut self, into: &mut VecDeque<Item>) {
        std::mem::swap(&mut self.items, into);
        (self.bytes, self.has_end) = (0, false);
    }
}

/// The outcome of looking into the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Items,
    Nothing,
    /// Nothing, and no more will come.
    Closed,
}

impl Queue {
    pub(crate) fn new(wake_bytes: usize) -> Self {
        let (filled, emptied) = (Notify::new(), Notify::new());
        Self { state: Mutex::default(), wake_bytes, filled, emptied }
    }

    /// Waits while the queue is full, then adds the item. An item is queued whole or, if this
    /// future is dropped, not at all: between the check and the push there is no await. With `more` to come the end
    /// of a transaction does not wake the writer: the caller looks whether [`Self::wants_writer`] afterwards.
    pub(crate) async fn send(&self, item: Item, more: bool) -> Result<(), SinkError> {
        let (bytes, ends) = match &item {
            Item::Event(event, placement) => {
                (event.len(), matches!(placement, Placement::End | Placement::Outside))
            }
            Item::Abandon => (0, true),
        };
        let bytes = bytes + ITEM_BYTES;
        loop {
            {
                let mut state = self.state.lock();
                if let Some(text) = &state.failed {
                    return Err(SinkError(text.clone()));
                }
                if state.items.is_empty() || state.bytes + bytes <= QUEUE_BYTES {
                    state.items.push_back(item);
                    state.bytes += bytes;
                    state.has_end |= ends;
                    // Hardly anybody can see part of a transaction, so the writer is woken for a whole
                    // one, or once a whole batch (the writer's BATCH_BYTES) has come together.
                    if ends && !more || state.bytes >= self.wake_bytes {
                        self.wake(&mut state);
                    }
                    return Ok(());
                }
                // A large event may not fit although the queue is below
                // the mark that wakes the writer.
                self.wake(&mut state);
            }
            // A store has one inlet, which sends one item at a time: if the writer empties the
            // queue before this, `notify_one` leaves a permit, so no wake-up is missed.
            self.emptied.notified().await;
        }
    }

    fn wake(&self, state: &mut QueueState) {
        if std::mem::take(&mut state.writer_waits) {
            self.filled.notify_one();
        }
    }

    /// Returns true if the writer waits although the end of a transaction is queued.
    pub(crate) fn wants_writer(&self) -> bool {
        let state = self.state.lock();
        state.writer_waits && state.has_end
    }

    /// Wakes the writer if it waits.
    pub(crate) fn wake_writer(&self) {
        self.wake(&mut self.state.lock());
    }

    /// Nothing more will be sent.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    /// Nothing more will be taken.
    pub(crate) fn fail(&self, error: String) {
        let mut state = self.state.lock();
        // The first error stays: a writer that fails reports another one when it is dropped.
        state.failed.get_or_insert(error);
        state.items = VecDeque::new();
        drop(state);
        self.emptied.notify_one();
    }

    pub(crate) fn failure(&self) -> Option<SinkError> {
        self.state.lock().failed.clone().map(SinkError)
    }

    /// Swaps the queued items into `into`, which is empty.
    pub(crate) fn take(&self, into: &mut VecDeque<Item>) -> Taken {
        let mut state = self.state.lock();
        if state.items.is_empty() {
            // Under the lock of the look: an item sent after it wakes the writer.
            state.writer_waits = true;
            return if state.closed { Taken::Closed } else { Taken::Nothing };
        }
        state.writer_waits = false;
        state.swap(into);
        drop(state);
        self.emptied.notify_one();
        Taken::Items
    }

    /// Swaps them for somebody else than the writer, which waits on.
    pub(crate) fn take_beside(&self, into: &mut VecDeque<Item>) {
        self.state.lock().swap(into);
        // The inlet alone takes them so, and does not wait for room meanwhile.
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }

    /// Returns when there is something to take, or the queue is closed.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}
