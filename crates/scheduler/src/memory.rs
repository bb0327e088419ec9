//! The limit of `event_memory_limit`. A channel has one, which its settings hold
//! (crates/daemon/src/channel/live_settings/mod.rs).

use std::pin::pin;
use std::sync::Arc;

use csa_provider::seams::planted::{Bug, is_planted};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A limit for the bytes of events in flight between the relay store and the target, and of
/// everything built from them; first come, first served.
///
/// A transaction asks once, in advance, for all that it may need: nothing waits for memory while it
/// holds some, so there can be no deadlock.
///
/// A request larger than the limit is granted while nothing else is held, so that no transaction is
/// too large to pass. Large transactions are streamed, and ask for little.
#[derive(Debug, Clone)]
pub struct EventMemory {
    shared: Arc<SharedEventMemory>,
}

#[derive(Debug)]
struct SharedEventMemory {
    state: Mutex<EventMemoryState>,
    released: Notify,
}

#[derive(Debug)]
struct EventMemoryState {
    limit: u64,
    held: u64,
    peak: u64,
    next_ticket: u64,
    serving: u64,
}

impl EventMemory {
    /// Returns `limit` in bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let state = EventMemoryState { limit, held: 0, peak: 0, next_ticket: 0, serving: 0 };
        Self {
            shared: Arc::new(SharedEventMemory {
                state: Mutex::new(state),
                released: Notify::new(),
            }),
        }
    }

    /// Takes a place in the queue for `bytes`; the caller waits
    /// on the ticket until they are granted.
    #[must_use]
    pub fn request(&self, bytes: u64) -> Ticket {
        let mut state = self.shared.state.lock();
        let number = state.next_ticket;
        state.next_ticket += 1;
        Ticket { memory: self.clone(), number, bytes, granted: false }
    }

    /// Changes the limit. Memory held beyond it is returned as transactions commit.
    pub fn set_limit(&self, bytes: u64) {
        self.shared.state.lock().limit = bytes;
        self.shared.released.notify_waiters();
    }

    #[must_use]
    pub fn limit(&self) -> u64 {
        self.shared.state.lock().limit
    }

    /// Returns true if a request waits.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let state = self.shared.state.lock();
        state.next_ticket > state.serving
    }

    /// Returns the bytes held now, the most ever held, and the limit.
    #[must_use]
    pub fn usage(&self) -> (u64, u64, u64) {
        let state = self.shared.state.lock();
        (state.held, state.peak, state.limit)
    }
}

/// The bytes that a transaction may take until it is committed on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint(u64);

impl Footprint {
    /// A statement's text (BASE64 or values) and the link's copy, as a multiple of the events.
    const TEXTS: u64 = 3;
    /// The minimum for any transaction: header, places of events, the group's bookkeeping.
    const LEAST: u64 = 1 << 10;

    /// Computes the memory for a transaction that is looked at as a whole. That is `compressed` bytes
    /// kept, `events` bytes decompressed, the same again once merged with others, and the text of at
    /// most `statement_bytes` of them.
    #[must_use]
    pub const fn whole(compressed: u64, events: u64, statement_bytes: u64) -> Self {
        let in_statement = if events < statement_bytes { events } else { statement_bytes };
        let events = events.saturating_mul(2).saturating_add(in_statement * Self::TEXTS);
        Self(compressed.saturating_add(events).saturating_add(Self::LEAST))
    }

    /// Computes the memory for a transaction that is cut while it is sent: `kept` bytes, one part
    /// being sent and the next one.
    #[must_use]
    pub const fn streamed(kept: u64, statement_bytes: u64) -> Self {
        let steps = statement_bytes.saturating_mul(2 + Self::TEXTS);
        Self(kept.saturating_add(steps).saturating_add(Self::LEAST))
    }

    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// A place in the queue for memory. Dropping it gives up the place only while it is first in the
/// queue: a channel's one relay reader holds the tickets, and drops at most the last.
#[derive(Debug)]
pub struct Ticket {
    memory: EventMemory,
    number: u64,
    bytes: u64,
    granted: bool,
}

impl Ticket {
    /// Waits for the bytes. The place in the queue is kept if the wait is given up.
    pub async fn granted(&mut self) -> EventPermit {
        if let Some(permit) = self.take() {
            return permit;
        }
        let shared = Arc::clone(&self.memory.shared);
        loop {
            // Before the state is looked at, so that no release in between is missed.
            let mut released = pin!(shared.released.notified());
            released.as_mut().enable();
            if let Some(permit) = self.take() {
                return permit;
            }
            released.await;
        }
    }

    /// Returns the bytes, if it is this ticket's turn and they fit.
    pub fn take(&mut self) -> Option<EventPermit> {
        let mut state = self.memory.shared.state.lock();
        let fits = is_planted(Bug::MemoryUnlimited)
            || state.held == 0
            || state.held.saturating_add(self.bytes) <= state.limit;
        // In the order of the tickets: small requests could otherwise pass a large one for ever.
        if state.serving != self.number || !fits {
            return None;
        }
        state.serving += 1;
        state.held = state.held.saturating_add(self.bytes);
        state.peak = state.peak.max(state.held);
        self.granted = true;
        // There may be room for the next ticket as well.
        self.memory.shared.released.notify_waiters();
        Some(EventPermit { memory: self.memory.clone(), bytes: self.bytes })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.granted {
            let mut state = self.memory.shared.state.lock();
            if state.serving == self.number {
                state.serving += 1;
                self.memory.shared.released.notify_waiters();
            }
        }
    }
}

/// Bytes of event memory, returned when dropped.
#[derive(Debug)]
pub struct EventPermit {
    memory: EventMemory,
    bytes: u64,
}

impl EventPermit {
    /// Adds bytes of a transaction that is already in memory. This may exceed the limit: it must
    /// not wait while it holds memory, so later requests wait instead.
    pub fn extend(&mut self, bytes: u64) {
        let mut state = self.memory.shared.state.lock();
        self.bytes = self.bytes.saturating_add(bytes);
        state.held = state.held.saturating_add(bytes);
        state.peak = state.peak.max(state.held);
    }
}

impl Drop for EventPermit {
    fn drop(&mut self) {
        if is_planted(Bug::MemoryKept) {
            return;
        }
        let mut state = self.memory.shared.state.lock();
        state.held = state.held.saturating_sub(self.bytes);
        self.memory.shared.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn take(memory: &EventMemory, bytes: u64) -> Option<EventPermit> {
        memory.request(bytes).take()
    }

    #[test]
    fn holds_to_the_limit_and_gives_back() {
        let memory = EventMemory::new(100);
        let first = take(&memory, 60).expect("fits");
        assert!(take(&memory, 60).is_none());
        let second = take(&memory, 40).expect("fits exactly");
        drop(first);
        drop(second);
        assert_eq!(memory.usage(), (0, 100, 100));
    }

    #[test]
    fn an_oversize_request_passes_alone() {
        let memory = EventMemory::new(100);
        let small = take(&memory, 1).expect("fits");
        assert!(take(&memory, 500).is_none());
        drop(small);
        let big = take(&memory, 500).expect("alone");
        assert!(take(&memory, 1).is_none());
        drop(big);
        assert!(take(&memory, 1).is_some());
    }

    #[test]
    fn a_raised_limit_lets_a_waiting_request_pass() {
        let memory = EventMemory::new(100);
        let held = take(&memory, 80).expect("fits");
        let mut waiting = memory.request(80);
        assert!(waiting.take().is_none());
        assert!(memory.is_short());
        memory.set_limit(200);
        let passed = waiting.take().expect("fits now");
        assert!(!memory.is_short());
        memory.set_limit(50);
        drop(held);
        assert!(take(&memory, 1).is_none(), "80 of 50 bytes are held");
        drop(passed);
        assert!(take(&memory, 50).is_some());
    }

    #[test]
    fn what_is_found_out_later_counts_and_is_given_back() {
        let memory = EventMemory::new(100);
        let mut first = take(&memory, 60).expect("fits");
        first.extend(50);
        assert_eq!(memory.usage(), (110, 110, 100));
        assert!(take(&memory, 1).is_none());
        drop(first);
        assert_eq!(memory.usage().0, 0);
    }

    #[test]
    fn a_footprint_is_all_that_is_built() {
        let least = Footprint::LEAST;
        // Events, merged, and text of them all; of a large one only a statement at a time.
        assert_eq!(Footprint::whole(0, 100, 1000).bytes(), 500 + least);
        assert_eq!(Footprint::whole(7, 100, 1000).bytes(), 507 + least);
        assert_eq!(Footprint::whole(0, 10_000, 1000).bytes(), 23_000 + least);
        assert_eq!(Footprint::streamed(7, 1000).bytes(), 5_007 + least);
        assert_eq!(Footprint::whole(u64::MAX, u64::MAX, 1000).bytes(), u64::MAX);
    }

    #[tokio::test]
    async fn a_wait_ends_with_a_release_and_may_be_given_up() {
        let memory = EventMemory::new(100);
        let held = take(&memory, 80).expect("fits");
        let mut waiting = memory.request(50);
        let given_up = tokio::time::timeout(Duration::ZERO, waiting.granted()).await;
        assert!(given_up.is_err());
        assert!(memory.is_short(), "the place is kept");
        let wait = tokio::spawn(async move { waiting.granted().await });
        tokio::task::yield_now().await;
        drop(held);
        drop(wait.await.expect("granted"));
        assert_eq!(memory.usage().0, 0);
    }

    #[test]
    fn first_come_first_served() {
        let memory = EventMemory::new(100);
        let held = take(&memory, 80).expect("fits");
        let mut big = memory.request(50);
        let mut small = memory.request(10);
        assert!(small.take().is_none(), "a later small request must not overtake");
        drop(held);
        let big = big.take().expect("first in line");
        assert!(small.take().is_some());
        drop(big);
    }
}
