//! The events of one channel that are to be delivered, in order. Their number is bounded, and nothing waits for room.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_provider::seams::{Backoff, SystemChance, unhurried};
use parking_lot::Mutex;
use tokio::sync::Notify as Wake;
use tokio::task::JoinSet;
use tracing::{Instrument as _, debug, info, warn};

use super::event::Event;
use super::kept;
use super::receiver::{deliver, name_of};
use super::state::SentState;
use super::tally::Tally;
use crate::config::Notify;
use crate::host::{blocking, logging::channel_span};

/// Events that wait for the receiver. Changes of state are far fewer; the oldest are dropped.
const WAITING_MAX: usize = 64;
/// An event is tried for so long, unless it is the last change of the state.
const TRIED_FOR: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// An event that waits, or a state that needs none.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) event: Option<Event>,
    /// The state that the receiver knows afterwards.
    pub(super) standing: Option<SentState>,
}

#[derive(Debug)]
struct Queue {
    /// The first one is being delivered.
    letters: VecDeque<(u64, Instant, Letter)>,
    next: u64,
    receiver: Arc<Notify>,
}

#[derive(Debug)]
struct SharedOutbox {
    queue: Mutex<Queue>,
    wake: Wake,
    tally: Arc<Tally>,
    /// The file with the state that the receiver knows.
    path: PathBuf,
}

/// Delivers for as long as it is not dropped.
#[derive(Debug)]
pub(super) struct Outbox {
    shared: Arc<SharedOutbox>,
    _task: JoinSet<()>,
}

impl Outbox {
    pub(super) fn open(
        channel: &str,
        receiver: Arc<Notify>,
        tally: Arc<Tally>,
        path: PathBuf,
    ) -> Self {
        let queue = Queue { letters: VecDeque::new(), next: 0, receiver };
        let shared = SharedOutbox { queue: Mutex::new(queue), wake: Wake::new(), tally, path };
        let shared = Arc::new(shared);
        let mut task = JoinSet::new();
        task.spawn(work(Arc::clone(&shared)).instrument(channel_span(channel)));
        Self { shared, _task: task }
    }

    pub(super) fn add(&self, letter: Letter) {
        let mut queue = self.shared.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.letters.push_back((number, Instant::now(), letter));
        if queue.letters.len() > WAITING_MAX {
            // Not the first: it is being delivered.
            let oldest = queue.letters.remove(1);
            let is_event = oldest.is_some_and(|(.., letter)| letter.event.is_some());
            self.shared.tally.dropped(is_event.into());
        }
        self.shared.show(&queue);
        self.shared.wake.notify_one();
    }

    /// Delivers to this receiver from the next attempt on.
    pub(super) fn set_receiver(&self, receiver: &Arc<Notify>) {
        let mut queue = self.shared.queue.lock();
        if queue.receiver != *receiver {
            queue.receiver = Arc::clone(receiver);
            self.shared.wake.notify_one();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let letters = std::mem::take(&mut self.shared.queue.lock().letters);
        let events = letters.iter().filter(|(.., letter)| letter.event.is_some()).count();
        self.shared.tally.dropped(events as u64);
        self.shared.tally.waiting(0);
    }
}

impl SharedOutbox {
    fn show(&self, queue: &Queue) {
        self.tally.waiting(queue.letters.iter().filter(|(.., one)| one.event.is_some()).count());
    }

    fn first(&self) -> Option<(u64, Letter, Arc<Notify>)> {
        let queue = self.queue.lock();
        let (number, _, letter) = queue.letters.front()?;
        Some((*number, letter.clone(), Arc::clone(&queue.receiver)))
    }

    /// The first letter is delivered.
    async fn delivered(&self, number: u64, letter: Letter) {
        self.take(number);
        if letter.event.is_some() {
            self.tally.delivered();
        }
        if let Some(standing) = letter.standing {
            let path = self.path.clone();
            // A failure costs a repeated event after a restart.
            let _ = blocking(move || kept::write(&path, &standing)).await;
        }
    }

    fn take(&self, number: u64) {
        let mut queue = self.queue.lock();
        if queue.letters.front().is_some_and(|(first, ..)| *first == number) {
            queue.letters.pop_front();
        }
        self.show(&queue);
    }

    /// Drops the first letter if it is too old and says nothing about the present state.
    fn gives_up(&self, number: u64) -> bool {
        let mut queue = self.queue.lock();
        let Some((_, added, letter)) = queue.letters.front().filter(|(first, ..)| *first == number)
        else {
            return false;
        };
        let is_last_state = letter.standing.is_some()
            && !queue.letters.iter().skip(1).any(|(.., other)| other.standing.is_some());
        if is_last_state || added.elapsed() < unhurried(TRIED_FOR) {
            return false;
        }
        queue.letters.pop_front();
        self.show(&queue);
        true
    }
}

async fn work(shared: Arc<SharedOutbox>) {
    let mut backoff = Backoff::new(PAUSE, PAUSE_MAX);
    // Attempts that have failed since the last one that did not.
    let mut failures = 0_u64;
    loop {
        let Some((number, letter, receiver)) = shared.first() else {
            shared.wake.notified().await;
            continue;
        };
        let delivered = match &letter.event {
            Some(event) => deliver(&receiver, event).await,
            None => Ok(()),
        };
        let why = match delivered {
            Ok(()) => {
                if letter.event.is_some() && failures > 0 {
                    info!(receiver = name_of(&receiver), failures, "events are delivered again");
                    failures = 0;
                    backoff.restart();
                }
                shared.delivered(number, letter).await;
                continue;
            }
            Err(why) => why,
        };
        shared.tally.failed(&why);
        let event = letter.event.map(|event| event.event).unwrap_or_default();
        match failures {
            0 => warn!(event, error = %why, "an event was not delivered; trying again"),
            _ => debug!(event, error = %why, "an event was not delivered; trying again"),
        }
        failures += 1;
        if shared.gives_up(number) {
            shared.tally.dropped(1);
            warn!(event, failures, "an event was given up after an hour");
        }
        let pause = backoff.jittered(0.75..1.25, &SystemChance);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = receiver_changed(&shared, &receiver) => backoff.restart(),
        }
    }
}

/// Waits until events go to another receiver, which may answer at once.
async fn receiver_changed(shared: &SharedOutbox, receiver: &Arc<Notify>) {
    while shared.queue.lock().receiver == *receiver {
        shared.wake.notified().await;
    }
}
