//! The asynchronous entry to the store.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use csa_provider::binlog::{Gtid, GtidSet, RawEvent};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::source::{LastReceived, Placement, SinkError, TransactionSink};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::disk::fs::in_place;
use crate::disk::options::SyncPolicy;
use crate::state::shared::Shared;
use crate::write::driver::{SharedSteps, Steps};
use crate::write::queue::{Item, Queue};

/// The longest wait for the writer without another look at it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Hands events to the writer.
///
/// Dropping it waits until the writer's thread has written and synced the queue and has ended, so
/// that the store can be opened again right after. A thread that waits for space gives up at once.
#[derive(Debug)]
pub struct RelayInlet {
    queue: Arc<Queue>,
    shared: Arc<Shared>,
    received: GtidSet,
    open: Option<Gtid>,
    /// The transaction whose first event came last.
    begun: Option<LastReceived>,
    /// The last whole one.
    last: Option<LastReceived>,
    /// More events come at once.
    in_block: bool,
    /// The writer's steps, which the inlet takes itself while they need no disk.
    steps: SharedSteps,
    /// `None` if the writer is not driven by a thread.
    thread: Option<JoinHandle<()>>,
}

impl RelayInlet {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        steps: SharedSteps,
        (received, last): (GtidSet, Option<LastReceived>),
    ) -> Self {
        let (open, begun, in_block, thread) = (None, None, false, None);
        Self { queue, shared, received, open, begun, last, in_block, steps, thread }
    }

    /// Has it wait for the writer's thread when it is dropped.
    pub(crate) fn written_by(&mut self, thread: JoinHandle<()>) {
        self.thread = Some(thread);
    }
}

impl TransactionSink for RelayInlet {
    async fn append(
        &mut self,
        event: RawEvent,
        placement: Placement,
    ) -> std::result::Result<(), SinkError> {
        let begins = match &placement {
            Placement::Begin(header) => {
                // Before the queue may be full for long.
                self.shared.state.lock().begins(header);
                self.begun = Some(LastReceived {
                    gtid: header.gtid.clone(),
                    committed: header.original_commit_timestamp,
                    bytes: 0,
                });
                Some(header.gtid.clone())
            }
            _ => None,
        };
        let bytes = event.len() as u64;
        let ends = placement == Placement::End;
        self.queue.send(Item::Event(event, placement), self.in_block).await?;
        if let Some(begun) = &mut self.begun {
            begun.bytes += bytes;
        }
        // Only now: a transaction counts as received once its end is queued.
        if begins.is_some() {
            self.open = begins;
        }
        if is_planted(Bug::ReceivedTooEarly)
            && let Some(gtid) = &self.open
        {
            self.received.add(gtid);
        }
        if ends && let Some(gtid) = self.open.take() {
            self.last = self.begun.take();
            self.received.add(&gtid);
        }
        Ok(())
    }

    fn begin_block(&mut self) {
        self.in_block = true;
    }

    fn end_block(&mut self) {
        self.in_block = false;
        if !self.queue.wants_writer() {
            return;
        }
        // Whoever holds the lock is the writer. It may have found the queue empty just before.
        let steps = self.steps.try_lock();
        let is_done =
            steps.is_some_and(|mut steps| steps.as_mut().is_some_and(Steps::take_in_memory));
        if !is_done {
            self.queue.wake_writer();
        }
    }

    async fn abandon(&mut self) -> std::result::Result<(), SinkError> {
        (self.open, self.in_block) = (None, false);
        if let Some(begun) = self.begun.take() {
            self.shared.state.lock().abandons(&begun.gtid);
        }
        self.queue.send(Item::Abandon, false).await
    }

    async fn stored(&mut self) {
        let shared = Arc::clone(&self.shared);
        while !self.queue.has_failed() {
            let mut grown = pin!(shared.grown.notified());
            grown.as_mut().enable();
            let is_stored = self.received.is_subset_of(&shared.state.lock().received);
            if is_stored || shared.closing.load(Ordering::Acquire) {
                return;
            }
            // A writer that fails reports that only to the queue.
            timeout(LOOK_AGAIN, grown).await.ok();
        }
    }

    fn failed(&self) -> impl Future<Output = SinkError> + Send + use<> {
        let queue = Arc::clone(&self.queue);
        async move {
            loop {
                if let Some(error) = queue.failure() {
                    return error;
                }
                timeout(LOOK_AGAIN, std::future::pending::<()>()).await.ok();
            }
        }
    }

    fn received(&self) -> GtidSet {
        self.received.clone()
    }

    fn has_received(&self, gtid: &Gtid) -> bool {
        self.received.contains(gtid)
    }

    fn last(&self) -> Option<LastReceived> {
        self.last.clone()
    }

    fn safe(&self) -> Option<watch::Receiver<u64>> {
        let synced = self.shared.options.sync == SyncPolicy::Transaction;
        synced.then(|| self.shared.safe.subscribe())
    }
}

impl Drop for RelayInlet {
    fn drop(&mut self) {
        // Without this a writer that waits for space would never reach the end of the queue.
        self.shared.giving_up.store(true, Ordering::Release);
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // The thread syncs its last segment, which may take seconds; this is a task's. The panic hook has reported a
            // panic of the thread.
            drop(in_place(|| thread.join()));
        }
    }
}
