//! Drives the writer. [`RelayWriter::step`] does everything that can be done now, and the only
//! waits are those of [`RelayWriter::run`], by tokio's timer. The store runs it on a thread of its
//! own, because a step blocks on the disk. A simulation spawns it on its single thread, where
//! tokio's paused time makes every sync and every look for room happen at a known moment.
//!
//! While nothing needs the disk, the inlet takes the writer's steps itself ([`Steps::take_in_memory`]): waking a thread takes
//! longer than they do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::disk::error::{Error, Result};
use crate::disk::options::SyncPolicy;
use crate::state::shared::Shared;
use crate::write::queue::{Item, Queue, Taken};
use crate::write::writer::{Progress, Writer};

/// The interval at which a full store looks for room.
// Polled, because nothing announces free space of a disk.
const ROOM_POLL: Duration = Duration::from_millis(20);

/// Writes what the inlet hands over; see [`RelayStore::inlet_and_writer`](crate::opening::RelayStore::inlet_and_writer).
///
/// Dropping it before it has ended is like a crash of the process: what is queued or not synced may
/// be lost.
#[derive(Debug)]
pub struct RelayWriter {
    steps: SharedSteps,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

/// `None` once the writer has ended. The inlet never waits for the lock, which is held while the disk is written.
pub(crate) type SharedSteps = Arc<Mutex<Option<Steps>>>;

/// The writer, and what it has taken from the queue.
#[derive(Debug)]
pub(crate) struct Steps {
    writer: Writer,
    queue: Arc<Queue>,
    /// Taken from the queue, not yet by the writer.
    items: VecDeque<Item>,
    /// The time at which [`RelayWriter::run`] takes the next step even if nothing wakes it.
    planned: Option<Instant>,
}

/// The next occasion for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// There is more to do.
    AtOnce,
    /// Something is queued, or this much time has passed and a sync is due.
    WhenQueued(Option<Duration>),
    /// This much time has passed: there is no room for what is queued.
    After(Duration),
    /// None: the inlet is dropped and everything written and synced, or the disk has failed.
    Never,
}

impl RelayWriter {
    pub(crate) fn new(writer: Writer, shared: Arc<Shared>, queue: Arc<Queue>) -> Self {
        let steps =
            Steps { writer, queue: Arc::clone(&queue), items: VecDeque::new(), planned: None };
        Self { steps: Arc::new(Mutex::new(Some(steps))), shared, queue }
    }

    /// Returns the steps, for the inlet.
    pub(crate) fn steps(&self) -> SharedSteps {
        Arc::clone(&self.steps)
    }

    /// Runs until the inlet is dropped or the disk fails, which the inlet then reports. Needs
    /// tokio's timer, and blocks on the disk.
    pub async fn run(mut self) {
        loop {
            match self.step() {
                NextStep::AtOnce => yield_now().await,
                NextStep::WhenQueued(None) => self.filled().await,
                NextStep::WhenQueued(Some(limit)) => {
                    timeout(limit, self.filled()).await.ok();
                }
                NextStep::After(interval) => sleep(interval).await,
                NextStep::Never => return,
            }
        }
    }

    /// Returns when there is something to do.
    async fn filled(&self) {
        tokio::select! {
            () = self.queue.filled() => {}
            () = self.shared.wanted.notified() => {}
        }
    }

    /// Runs on a thread of its own.
    ///
    /// # Errors
    /// The system refuses it for now, for lack of memory or of threads.
    pub(crate) fn spawn(self, thread: std::thread::Builder) -> std::io::Result<JoinHandle<()>> {
        let span = tracing::Span::current();
        thread.name("csa-relay".to_owned()).spawn(move || {
            let _entered = span.entered();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            runtime.expect("a timer needs nothing of the system").block_on(self.run());
        })
    }

    /// Writes what is queued as far as there is room, and syncs if it is time.
    pub fn step(&mut self) -> NextStep {
        self.steps.lock().as_mut().map_or(NextStep::Never, Steps::take)
    }
}

impl Drop for RelayWriter {
    fn drop(&mut self) {
        // The inlet may hold the rest for longer.
        drop(self.steps.lock().take());
        self.shared.ended.store(true, Ordering::Release);
        // An inlet must not wait for a writer that is gone.
        self.queue.fail("the writer of the relay store has ended".to_owned());
    }
}

impl Steps {
    fn take(&mut self) -> NextStep {
        let next = self.try_take().unwrap_or_else(|error| self.failed(&error));
        self.planned = match next {
            NextStep::AtOnce => Some(Instant::now()),
            NextStep::WhenQueued(limit) => limit.map(|limit| Instant::now() + limit),
            NextStep::After(interval) => Some(Instant::now() + interval),
            NextStep::Never => None,
        };
        next
    }

    fn failed(&self, error: &Error) -> NextStep {
        self.queue.fail(error.to_string());
        NextStep::Never
    }

    fn try_take(&mut self) -> Result<NextStep> {
        if self.writer.must_write_out() && self.writer.write_out()? == Progress::NoRoom {
            return Ok(NextStep::After(ROOM_POLL));
        }
        let mut next = self.write_queued()?;
        if self.writer.sync_due() == Some(Duration::ZERO) {
            self.writer.sync()?;
        }
        if let NextStep::WhenQueued(limit) = &mut next {
            *limit = self.due();
        }
        Ok(next)
    }

    /// Returns the time until something is due although nothing is queued.
    fn due(&self) -> Option<Duration> {
        [self.writer.sync_due(), self.writer.write_due()].into_iter().flatten().min()
    }

    /// Takes what is queued into a segment that has no file, without any wait. Returns false if the writer has to be
    /// woken: it needs the disk for the rest, or something is due that it does not know of.
    pub(crate) fn take_in_memory(&mut self) -> bool {
        if !self.items.is_empty() || !self.writer.needs_no_disk() {
            return false;
        }
        self.queue.take_beside(&mut self.items);
        self.writer.memory_only = true;
        let taken = self.append_items();
        self.writer.memory_only = false;
        match taken {
            Ok(Progress::Done) => {}
            Ok(Progress::NoRoom) => return false,
            Err(error) => {
                self.failed(&error);
                return false;
            }
        }
        let is_planned = |due| self.planned.is_some_and(|at| at <= Instant::now() + due);
        self.due().is_none_or(is_planned)
    }

    /// Queued items are written together, and made visible once the queue is empty.
    fn write_queued(&mut self) -> Result<NextStep> {
        let no_room = Ok(NextStep::After(ROOM_POLL));
        if self.writer.prepare()? == Progress::NoRoom {
            return no_room;
        }
        let taken = match self.items.is_empty() {
            true => self.queue.take(&mut self.items),
            false => Taken::Items,
        };
        if taken == Taken::Closed {
            // A transaction cut off by the end is dropped: the source sends it again.
            self.writer.abandon()?;
        }
        if self.append_items()? == Progress::NoRoom {
            return no_room;
        }
        Ok(match taken {
            // The queue notifies only a writer that found nothing in it.
            Taken::Items => NextStep::AtOnce,
            Taken::Nothing => NextStep::WhenQueued(None),
            // Whatever the policy: a store that is closed in order loses nothing in a crash of the
            // host.
            Taken::Closed => match self.writer.close()? {
                Progress::Done => NextStep::Never,
                Progress::NoRoom => return no_room,
            },
        })
    }

    fn append_items(&mut self) -> Result<Progress> {
        while let Some(item) = self.items.front() {
            match item {
                Item::Event(event, placement) => {
                    if self.writer.append(event, placement)? == Progress::NoRoom {
                        return Ok(Progress::NoRoom);
                    }
                }
                Item::Abandon => self.writer.abandon()?,
            }
            self.items.pop_front();
        }
        // With more in the queue, larger writes are worth a little delay.
        if self.queue.is_empty() || self.writer.sync_policy() == SyncPolicy::Transaction {
            return self.writer.flush();
        }
        Ok(Progress::Done)
    }
}
