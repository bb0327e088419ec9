use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Bytes of events in flight between the relay store and the target, bounded and first come first
/// served.
///
/// One request larger than the limit is admitted when nothing else is held, so that no transaction
/// is too large to pass; such transactions are streamed and ask for little.
#[derive(Debug, Clone)]
pub struct EventMemory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug)]
struct State {
    limit: u64,
    held: u64,
    peak: u64,
    next_ticket: u64,
    serving: u64,
}

impl EventMemory {
    /// `limit` in bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let state = State { limit, held: 0, peak: 0, next_ticket: 0, serving: 0 };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), released: Condvar::new() }) }
    }

    /// Takes a place in the queue for `bytes`; the caller asks the ticket until it is granted.
    #[must_use]
    pub fn request(&self, bytes: u64) -> Ticket {
        let mut state = self.shared.state.lock();
        let number = state.next_ticket;
        state.next_ticket += 1;
        Ticket { memory: self.clone(), number, bytes, granted: false }
    }

    /// Changes the limit; what is held above it is given back as transactions commit.
    pub fn set_limit(&self, bytes: u64) {
        self.shared.state.lock().limit = bytes;
        self.shared.released.notify_all();
    }

    #[must_use]
    pub fn limit(&self) -> u64 {
        self.shared.state.lock().limit
    }

    /// Whether a request waits.
    #[must_use]
    pub fn is_short(&self) -> bool {
        let state = self.shared.state.lock();
        state.next_ticket > state.serving
    }

    /// Bytes held now, the most ever held, and the limit.
    #[must_use]
    pub fn usage(&self) -> (u64, u64, u64) {
        let state = self.shared.state.lock();
        (state.held, state.peak, state.limit)
    }
}

/// A place in the queue for memory. Dropping it gives the place up, only in its turn: tickets are
/// held by the one relay reader of a channel, which drops at most the last.
#[derive(Debug)]
pub struct Ticket {
    memory: EventMemory,
    number: u64,
    bytes: u64,
    granted: bool,
}

impl Ticket {
    /// Waits up to `wait`; `None` when memory is still short.
    pub fn wait(&mut self, wait: Duration) -> Option<EventPermit> {
        let shared = Arc::clone(&self.memory.shared);
        let mut state = shared.state.lock();
        loop {
            let fits = state.held == 0 || state.held.saturating_add(self.bytes) <= state.limit;
            if state.serving == self.number && fits {
                state.serving += 1;
                state.held = state.held.saturating_add(self.bytes);
                state.peak = state.peak.max(state.held);
                self.granted = true;
                shared.released.notify_all();
                return Some(EventPermit { memory: self.memory.clone(), bytes: self.bytes });
            }
            if shared.released.wait_for(&mut state, wait).timed_out() {
                return None;
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.granted {
            let mut state = self.memory.shared.state.lock();
            if state.serving == self.number {
                state.serving += 1;
                self.memory.shared.released.notify_all();
            }
        }
    }
}

/// Bytes of event memory, given back when dropped.
#[derive(Debug)]
pub struct EventPermit {
    memory: EventMemory,
    bytes: u64,
}

impl Drop for EventPermit {
    fn drop(&mut self) {
        let mut state = self.memory.shared.state.lock();
        state.held = state.held.saturating_sub(self.bytes);
        self.memory.shared.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);

    fn take(memory: &EventMemory, bytes: u64) -> Option<EventPermit> {
        memory.request(bytes).wait(SHORT)
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
        assert!(waiting.wait(SHORT).is_none());
        assert!(memory.is_short());
        memory.set_limit(200);
        let passed = waiting.wait(SHORT).expect("fits now");
        assert!(!memory.is_short());
        memory.set_limit(50);
        drop(held);
        assert!(take(&memory, 1).is_none(), "80 of 50 bytes are held");
        drop(passed);
        assert!(take(&memory, 50).is_some());
    }

    #[test]
    fn first_come_first_served() {
        let memory = EventMemory::new(100);
        let held = take(&memory, 80).expect("fits");
        let mut big = memory.request(50);
        let mut small = memory.request(10);
        assert!(small.wait(SHORT).is_none(), "a later small request must not overtake");
        drop(held);
        let big = big.wait(SHORT).expect("first in line");
        assert!(small.wait(SHORT).is_some());
        drop(big);
    }
}
