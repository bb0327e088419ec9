//! Reception as the daemon has it: a relay store and a provider that outlive the pipelines that apply.

use std::collections::BTreeSet;
use std::sync::Arc;

use csa_daemon::observe::progress::CollectedProgress;
use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::source::{Foreign, Provider, ReceptionEnd, SharedForeign, SourceStatus};
use csa_relaystore::disk::{Error, RelayPosition, RelayStoreOptions};
use csa_relaystore::opening::RelayStore;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::World;
use super::machine::Machine;

#[derive(Debug)]
pub(super) struct Reception<'a> {
    world: &'a World,
    machine: &'a Machine,
    options: RelayStoreOptions,
    status: Arc<SourceStatus>,
    foreign: SharedForeign,
    progress: Arc<Mutex<CollectedProgress>>,
    current: Option<Receiving>,
}

#[derive(Debug)]
struct Receiving {
    received: Received,
    tasks: JoinSet<()>,
}

/// The part of it that is applied.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) store: Arc<RelayStore>,
    pub(super) end: watch::Receiver<Option<ReceptionEnd>>,
}

impl<'a> Reception<'a> {
    pub(super) fn new(
        world: &'a World,
        machine: &'a Machine,
        options: RelayStoreOptions,
        status: Arc<SourceStatus>,
    ) -> Self {
        Self {
            world,
            machine,
            options,
            status,
            foreign: SharedForeign::default(),
            progress: Arc::default(),
            current: None,
        }
    }

    /// Returns the progress that the daemon shows.
    pub(super) fn seen_by(self, progress: Arc<Mutex<CollectedProgress>>) -> Self {
        Self { progress, ..self }
    }

    /// For an applier that begins after `executed`; `foreign` is the target's word.
    pub(super) async fn attach(
        &mut self,
        executed: &GtidSet,
        foreign: Foreign,
    ) -> Result<Received, Error> {
        if let Some(Receiving { received, .. }) = &self.current
            && received.end.borrow().is_none()
            && received.store.restart_after(executed)
        {
            self.foreign.answer(Foreign { followed: sent(&received.store, executed), ..foreign });
            return Ok(received.clone());
        }
        self.close().await;
        let store = unlocked(|| RelayStore::open(self.options.clone(), executed)).await?.0;
        self.machine.opened(self.world, store.received());
        self.foreign.set(Foreign { followed: sent(&store, executed), ..foreign });
        Ok(self.begin(store))
    }

    /// Receives after what the store holds while the target's progress is not known.
    pub(super) async fn resume(&mut self) -> Result<(), Error> {
        if self.current.is_none()
            && let Some((store, _)) = unlocked(|| RelayStore::resume(self.options.clone())).await?
        {
            self.begin(store);
        }
        Ok(())
    }

    /// Cuts a damaged store.
    pub(super) async fn discard(&mut self, position: RelayPosition) -> Result<(), Error> {
        self.close().await;
        unlocked(|| RelayStore::discard_from(&self.options, position)).await
    }

    /// Another daemon receives for the channel.
    pub(super) async fn end(&mut self) {
        if self.current.is_some() {
            self.close().await;
        }
    }

    /// Cancel-safe: the next call carries it out.
    async fn close(&mut self) {
        self.machine.closed();
        if let Some(receiving) = &mut self.current {
            receiving.tasks.shutdown().await;
            self.current = None;
            self.status.disconnected();
            self.progress.lock().store_closed();
        }
    }

    fn begin(&mut self, store: RelayStore) -> Received {
        let provider =
            Provider::new(self.world.source_options(self.machine), Arc::clone(&self.status));
        let provider = provider.with_foreign(self.foreign.clone());
        let (inlet, writer) = store.inlet_and_writer();
        let (ended, end) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run());
        tasks.spawn(async move {
            if let Err(end) = provider.run(inlet, CancellationToken::new()).await {
                ended.send_replace(Some(end));
            }
            // A receiver sees the last value, or nothing, and not that nobody sends.
            std::future::pending::<()>().await;
        });
        let received = Received { store: Arc::new(store), end };
        self.machine.receiving(&received.store);
        self.progress.lock().receiving(&received.store);
        self.current = Some(Receiving { received: received.clone(), tasks });
        received
    }
}

/// Returns the servers of which the store has what the target lacks.
fn sent(store: &RelayStore, executed: &GtidSet) -> BTreeSet<Uuid> {
    store.received_so_far().difference(executed).uuids().collect()
}

/// A process before this one may still hold the store for a moment.
async fn unlocked<T>(mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..100 {
        match open() {
            Err(Error::Locked { .. }) => sleep(Duration::from_millis(20)).await,
            other => return other,
        }
    }
    open()
}
