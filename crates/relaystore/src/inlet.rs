//! The asynchronous way in: a bounded queue to the thread that writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_provider::{Gtid, GtidSet, Placement, RawEvent, SinkError, TransactionSink};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::Result;
use crate::writer::Writer;

/// Event bytes on their way to the writer; an event larger than this goes alone.
const QUEUE_BYTES: u32 = 8 << 20;
const QUEUE_EVENTS: usize = 8192;
/// The writer looks after released segments at least this often.
const TICK: Duration = Duration::from_millis(500);

enum Item {
    Event(RawEvent, Placement, OwnedSemaphorePermit),
    Abandon,
}

/// Hands events to the writer thread. Dropping it ends the thread after what is queued is written.
#[derive(Debug)]
pub struct RelayInlet {
    queue: mpsc::Sender<Item>,
    room: Arc<Semaphore>,
    received: GtidSet,
    open: Option<Gtid>,
    failure: oneshot::Receiver<String>,
    failed: Option<String>,
}

impl RelayInlet {
    pub(crate) fn start(writer: Writer, received: GtidSet) -> Self {
        let (queue, items) = mpsc::channel(QUEUE_EVENTS);
        let (report, failure) = oneshot::channel();
        let runtime = Handle::current();
        std::thread::Builder::new()
            .name("csa-relay".to_owned())
            .spawn(move || {
                if let Err(error) = write_all(writer, items, &runtime) {
                    // Nobody listens once the channel is stopping.
                    let _ = report.send(error.to_string());
                }
            })
            .expect("threads can be started");
        let room = Arc::new(Semaphore::new(QUEUE_BYTES as usize));
        Self { queue, room, received, open: None, failure, failed: None }
    }

    async fn send(&mut self, item: Item) -> std::result::Result<(), SinkError> {
        if self.queue.send(item).await.is_ok() {
            return Ok(());
        }
        if self.failed.is_none() {
            self.failed = (&mut self.failure).await.ok();
        }
        let text = self.failed.clone().unwrap_or_else(|| "the relay writer ended".to_owned());
        Err(SinkError(text))
    }
}

impl TransactionSink for RelayInlet {
    async fn append(
        &mut self,
        event: RawEvent,
        placement: Placement,
    ) -> std::result::Result<(), SinkError> {
        match &placement {
            Placement::Begin(header) => self.open = Some(header.gtid.clone()),
            Placement::End => {
                if let Some(gtid) = self.open.take() {
                    self.received.add(&gtid);
                }
            }
            Placement::Body | Placement::Outside => {}
        }
        let bytes = u32::try_from(event.len()).unwrap_or(QUEUE_BYTES).min(QUEUE_BYTES);
        let permit = Arc::clone(&self.room)
            .acquire_many_owned(bytes)
            .await
            .map_err(|_| SinkError("the relay writer ended".to_owned()))?;
        self.send(Item::Event(event, placement, permit)).await
    }

    async fn abandon(&mut self) -> std::result::Result<(), SinkError> {
        self.open = None;
        self.send(Item::Abandon).await
    }

    fn received(&self) -> GtidSet {
        self.received.clone()
    }
}

/// The writer thread. Whatever is queued is written together; an empty queue shows it at once.
fn write_all(mut writer: Writer, mut items: mpsc::Receiver<Item>, runtime: &Handle) -> Result<()> {
    loop {
        let wait = writer.sync_due().unwrap_or(TICK).min(TICK);
        let next = runtime.block_on(async {
            tokio::select! {
                item = items.recv() => Wake::Item(item),
                () = writer.shared().released.notified() => Wake::Tick,
                () = tokio::time::sleep(wait) => Wake::Tick,
            }
        });
        match next {
            Wake::Item(Some(item)) => {
                take(&mut writer, item)?;
                while let Ok(item) = items.try_recv() {
                    take(&mut writer, item)?;
                }
                writer.flush()?;
            }
            Wake::Item(None) => {
                writer.abandon()?;
                writer.flush()?;
                return writer.sync();
            }
            Wake::Tick => writer.purge()?,
        }
        if writer.sync_due() == Some(Duration::ZERO) {
            writer.sync()?;
        }
        if writer.shared().closing.load(Ordering::Acquire) && items.is_closed() {
            return writer.sync();
        }
    }
}

enum Wake {
    Item(Option<Item>),
    Tick,
}

fn take(writer: &mut Writer, item: Item) -> Result<()> {
    match item {
        Item::Event(event, placement, _permit) => writer.append(&event, placement),
        Item::Abandon => writer.abandon(),
    }
}
