//! Drives the writer. [`RelayWriter::step`] does everything that can be done now, and the only
//! waits are those of [`RelayWriter::run`], by tokio's timer. The store runs it on a thread of its
//! own, because a step blocks on the disk. A simulation spawns it on its single thread, where
//! tokio's paused time makes every sync and every look for room happen at a known moment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::disk::error::Result;
use crate::disk::options::SyncPolicy;
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
    writer: Writer,
    queue: Arc<Queue>,
    /// Taken from the queue, not yet by the writer.
    items: VecDeque<Item>,
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
    pub(crate) fn new(writer: Writer, queue: Arc<Queue>) -> Self {
        Self { writer, queue, items: VecDeque::new() }
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
            () = self.writer.wanted() => {}
        }
    }

    /// Runs on a thread of its own.
    pub(crate) fn spawn(self) -> JoinHandle<()> {
        let span = tracing::Span::current();
        std::thread::Builder::new()
            .name("csa-relay".to_owned())
            .spawn(move || {
                let _entered = span.entered();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                runtime.expect("a timer needs nothing of the system").block_on(self.run());
            })
            .expect("threads can be started")
    }

    /// Writes what is queued as far as there is room, and syncs if it is time.
    pub fn step(&mut self) -> NextStep {
        self.try_step().unwrap_or_else(|error| {
            self.queue.fail(error.to_string());
            NextStep::Never
        })
    }

    fn try_step(&mut self) -> Result<NextStep> {
        if self.writer.must_write_out() && self.writer.write_out()? == Progress::NoRoom {
            return Ok(NextStep::After(ROOM_POLL));
        }
        let mut next = self.write_queued()?;
        if self.writer.sync_due() == Some(Duration::ZERO) {
            self.writer.sync()?;
        }
        if let NextStep::WhenQueued(limit) = &mut next {
            let due = [self.writer.sync_due(), self.writer.write_due()];
            *limit = due.into_iter().flatten().min();
        }
        Ok(next)
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
        while let Some(item) = self.items.front() {
            match item {
                Item::Event(event, placement) => {
                    if self.writer.append(event, placement)? == Progress::NoRoom {
                        return no_room;
                    }
                }
                Item::Abandon => self.writer.abandon()?,
            }
            self.items.pop_front();
        }
        if taken == Taken::Closed {
            // A transaction cut off by the end is dropped: the source sends it again.
            self.writer.abandon()?;
        }
        // With more in the queue, larger writes are worth a little delay.
        if (self.queue.is_empty() || self.writer.sync_policy() == SyncPolicy::Transaction)
            && self.writer.flush()? == Progress::NoRoom
        {
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
}

impl Drop for RelayWriter {
    fn drop(&mut self) {
        // An inlet must not wait for a writer that is gone.
        self.queue.fail("the writer of the relay store has ended".to_owned());
    }
}
