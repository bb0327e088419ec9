//! Reception: the source's stream into the relay store. It is independent of pipelines, which attach to it, and continues
//! while nothing is applied, because the source purges without waiting for an applier.

mod received;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::seams::Backoff;
use csa_provider::source::{Foreign, Provider, ReceptionEnd, RecordedProvider, SourceFacts};
use csa_relaystore::disk::{RelayPosition, RelayStoreOptions};
use csa_relaystore::opening::{self, Loss, RelayContents, RelayStore};
use csa_relaystore::read::Recovery;
use csa_relaystore::write::RelayInlet;
use csa_scheduler::filter::is_change_of_service;
use parking_lot::Mutex as SyncMutex;
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info, warn};

use super::error::ChannelError;
use super::identity::{self, replica_uuid};
use super::kept_foreign::KeptForeign;
use super::watch::Watch;
use crate::archive::replay::RecordedStream;
use crate::archive::store::ArchiveError;
use crate::archive::upload::{self, BeginningOfReception, Uploader};
use crate::config::ChannelSettings;
use crate::host::{blocking, caught, unlocked};

use received::{Ended, before_return, passes};
pub(super) use received::{Received, StoreDamage};

/// A channel's reception over all its restarts.
#[derive(Debug)]
pub(super) struct Reception {
    watch: Watch,
    /// The process's.
    stop: CancellationToken,
    /// The target's last answer about it, perhaps to an earlier process, and the servers that sent something since.
    /// Until the first answer, a source must have all that was received.
    foreign: KeptForeign,
    /// They grow until something is received.
    pauses: Arc<SyncMutex<Backoff>>,
    /// A store was closed to be opened again, which has not succeeded yet; the time of the next attempt where no applier
    /// attaches. Changed under the lock of `current`.
    reopening: SyncMutex<Option<Instant>>,
    // Locked while a store is opened or closed, so that there is never a second one.
    current: Mutex<Option<Receiving>>,
}

/// A relay store, and the task that receives into it.
#[derive(Debug)]
struct Receiving {
    settings: Arc<ChannelSettings>,
    received: Received,
    halt: CancellationToken,
    /// The time of the next look whether a reception that ended may begin again.
    due: Option<Instant>,
    /// `None` once it was waited for, like the next one.
    task: Option<JoinHandle<()>>,
    /// Fills the archive.
    archive: Option<JoinHandle<()>>,
}

/// The place from which a channel receives.
enum ReceivedFrom {
    Source(Box<Provider>),
    Recorded(Box<RecordedProvider<RecordedStream>>),
}

impl ReceivedFrom {
    async fn run(self, inlet: RelayInlet, stop: CancellationToken) -> Result<(), ReceptionEnd> {
        match self {
            Self::Source(provider) => provider.run(inlet, stop).await,
            Self::Recorded(provider) => provider.run(inlet, stop).await,
        }
    }
}

impl Reception {
    /// `directory` is the channel's.
    pub(super) fn new(watch: Watch, directory: &Path, stop: CancellationToken) -> Self {
        let foreign = KeptForeign::read(directory);
        let pauses = Arc::new(SyncMutex::new(before_return()));
        let reopening = SyncMutex::default();
        Self { watch, stop, foreign, pauses, reopening, current: Mutex::new(None) }
    }

    /// Attaches an applier that begins after `executed`. Reception continues undisturbed if the
    /// store holds all that follows `executed` and the settings are the same; otherwise the store
    /// is opened again. What the archive lacks then, and the source has, is received again.
    ///
    /// `foreign` is the target's word about servers whose transactions a source need not have, though the target has
    /// them. They count after a restart, too, until the target answers.
    pub(super) async fn attach(
        &self,
        settings: &Arc<ChannelSettings>,
        executed: &GtidSet,
        source: Option<&SourceFacts>,
        foreign: Foreign,
    ) -> Result<Received, ChannelError> {
        let mut current = self.current.lock().await;
        let mut lost = None;
        if let Some(receiving) = current.as_ref()
            && receiving.continues(settings)
        {
            let store = &receiving.received.store;
            // A source that answers has passed the checks of a start, which know of the loss, too: it sends again. One that
            // does not answer may have purged what the disk gives again some day.
            if source.is_some() {
                lost = loss(store, executed).await;
            }
            // Last, because it changes what counts as committed.
            if lost.is_none() && store.restart_after(executed) {
                let followed = sent(store, executed);
                self.foreign.shared().answer(Foreign { followed, ..foreign });
                self.foreign.save().await;
                return Ok(receiving.received.clone());
            }
        }
        self.close_to_reopen(&mut current).await;
        if let Some(Loss { position, error, .. }) = lost {
            error!(%error, "cutting the relay store there and fetching the rest from the source again");
            cut(settings, position).await?;
        }
        let begin = match (&settings.archive, source) {
            (Some(archive), Some(source)) => {
                let (all, purged) = (&source.gtid_executed, &source.gtid_purged);
                upload::begin(archive, &settings.name, executed, all, purged).await
            }
            _ => BeginningOfReception { after: executed.clone(), settled: executed.clone() },
        };
        let target = executed.clone();
        let open = move |options| {
            let BeginningOfReception { after, settled } = &begin;
            RelayStore::open_behind(options, &target, after, settled).map(Some)
        };
        let store = opened(settings, open).await?;
        let store = store.ok_or_else(|| ChannelError::State("no relay store".to_owned()))?;
        let followed = sent(&store, executed);
        self.foreign.shared().set(Foreign { followed, ..foreign });
        // Before reception begins, which checks its source by them.
        self.foreign.save().await;
        let receiving = self.begin(settings, store)?;
        Ok(current.insert(receiving).received.clone())
    }

    /// Receives after what the store holds, although the target's progress is not known; an empty store has no place to
    /// begin. Returns whether anything is received. No applier is attached, so a store with other settings is opened
    /// again: until the target is back, nothing else makes a higher limit count.
    pub(super) async fn resume(
        &self,
        settings: &Arc<ChannelSettings>,
    ) -> Result<bool, ChannelError> {
        self.revive(settings).await?;
        let mut current = self.current.lock().await;
        // Whoever told it to end, to open another one in its place, may have been dropped by a stop.
        let is_halted = |halt: &CancellationToken| halt.is_cancelled() && !self.stop.is_cancelled();
        let is_past = |old: &Receiving| is_halted(&old.halt) || !old.is_of(settings);
        if current.as_ref().is_some_and(is_past) {
            info!("reception begins again");
            self.close_to_reopen(&mut current).await;
        }
        if current.is_none()
            && let Some(store) = opened(settings, RelayStore::resume).await?
        {
            *current = Some(self.begin(settings, store)?);
        }
        Ok(current.as_ref().is_some_and(|receiving| receiving.continues(settings)))
    }

    /// Receives again after an end that has passed, where no applier is attached. Reception that was told to end is left
    /// alone.
    pub(super) async fn revive(&self, settings: &Arc<ChannelSettings>) -> Result<(), ChannelError> {
        let Some(ended) = self.due_return().await else { return Ok(()) };
        if !ended.is_served(settings).await {
            return Ok(());
        }
        let mut current = self.current.lock().await;
        // A command may have ended it meanwhile, or begun another one.
        if current.as_ref().is_some_and(|receiving| ended.is_of(&receiving.received.store)) {
            info!("reception begins again");
            self.close_to_reopen(&mut current).await;
            let store = opened(settings, RelayStore::resume).await?;
            *current = store.map(|store| self.begin(settings, store)).transpose()?;
        }
        Ok(())
    }

    /// Opens a store that was closed to be opened again, where no applier is attached any more: a stop has dropped the
    /// attempt, or it failed.
    pub(super) async fn reopen(&self, settings: &Arc<ChannelSettings>) -> Result<(), ChannelError> {
        let mut current = self.current.lock().await;
        let now = Instant::now();
        if self.reopening.lock().is_none_or(|due| now < due) {
            return Ok(());
        }
        let next = now + self.pauses.lock().pause();
        *self.reopening.lock() = Some(next);
        // A dropped attempt may have begun that only.
        self.close(&mut current).await;
        if let Some(store) = opened(settings, RelayStore::resume).await? {
            info!("reception begins again");
            *current = Some(self.begin(settings, store)?);
        }
        Ok(())
    }

    /// Returns what is left of a reception that ended, and may return by now. It is looked at seldom.
    async fn due_return(&self) -> Option<Ended> {
        let mut current = self.current.lock().await;
        let receiving = current.as_mut().filter(|receiving| receiving.may_return())?;
        let (now, pause) = (Instant::now(), || self.pauses.lock().pause());
        let due = *receiving.due.get_or_insert_with(|| now + pause());
        (due <= now).then(|| {
            receiving.due = Some(now + pause());
            receiving.received.ended()
        })
    }

    /// `executed` and everything that an applier that begins after it will find in the store; the
    /// source is asked for the rest.
    pub(super) async fn received(
        &self,
        settings: &Arc<ChannelSettings>,
        executed: &GtidSet,
    ) -> Option<GtidSet> {
        let store = {
            let current = self.current.lock().await;
            let receiving = current.as_ref().filter(|receiving| receiving.continues(settings))?;
            Arc::clone(&receiving.received.store)
        };
        if !store.follows(executed) {
            return None;
        }
        Some(match loss(&store, executed).await {
            None => store.received_so_far(),
            Some(loss) => loss.before,
        })
    }

    /// Returns the transactions that the channel's store has, open or closed; `None` if there is none.
    pub(super) async fn contents(
        &self,
        settings: &ChannelSettings,
    ) -> Result<Option<RelayContents>, ChannelError> {
        let open = self.current.lock().await.as_ref().map(|open| Arc::clone(&open.received.store));
        if let Some(store) = open {
            return Ok(store.contents());
        }
        let options = settings.relay.clone();
        let found = blocking(move || opening::contents(&options)).await;
        let wrong = |error| ChannelError::State(format!("looking at the relay store: {error}"));
        Ok(found.map_err(wrong)??)
    }

    /// Returns true until the store is closed, also after reception has ended.
    pub(super) async fn holds_store(&self) -> bool {
        self.current.lock().await.is_some()
    }

    /// Ends reception and closes the store, which keeps what was received.
    pub(super) async fn end(&self) {
        let mut current = self.current.lock().await;
        // Under the lock: one that is just beginning says the opposite.
        self.watch.reception_unwanted();
        *self.reopening.lock() = None;
        self.close(&mut current).await;
    }

    /// Ends reception and cuts a damaged store; the source sends the rest again.
    pub(super) async fn discard(
        &self,
        settings: &ChannelSettings,
        position: RelayPosition,
    ) -> Result<(), ChannelError> {
        let mut current = self.current.lock().await;
        self.close_to_reopen(&mut current).await;
        cut(settings, position).await
    }

    fn begin(
        &self,
        settings: &Arc<ChannelSettings>,
        store: RelayStore,
    ) -> Result<Receiving, ChannelError> {
        let source = self.watch.source();
        let stream = self.stream(settings)?;
        store.record_to(source.recorder());
        let inlet = store.inlet()?;
        let (ended, end) = watch::channel(None);
        let (store, damage) = (Arc::new(store), StoreDamage::default());
        let (kept, pauses) = (self.foreign.clone(), Arc::clone(&self.pauses));
        let (before, spool) = (store.received_so_far(), Arc::clone(&store));
        let foreign = kept.shared().clone();
        let received = Received { store, end, damage, foreign, pauses: Arc::clone(&pauses) };
        // Nothing fails once one of the tasks runs: nobody could end it.
        let uploader = self.uploader(settings, &received)?;
        // Before the task, which reports its end there.
        self.watch.receiving(settings, &received.store);
        // With the process's stop, reception ends at once, while running groups still finish.
        let halt = self.stop.child_token();
        let (halted, shown) = (halt.clone(), self.watch.clone());
        let received_until_stopped = async move {
            let changing = kept.clone();
            let receiving = async move {
                // Cancelled by dropping it: a provider that waits for room in the store would not notice a stop.
                tokio::select! {
                    outcome = stream.run(inlet, halted.clone()) => outcome,
                    () = halted.cancelled() => Ok(()),
                    never = changing.save_changes() => match never {},
                }
            };
            let outcome = caught(receiving).await;
            // The last change may be unsaved, also after a panic.
            kept.save().await;
            let outcome = outcome.unwrap_or_else(|panic| Err(ReceptionEnd::of_panic(panic)));
            let error = outcome.err().map(|end| {
                let error = Arc::clone(&end.error);
                if spool.received_so_far() != before {
                    pauses.lock().restart();
                }
                // The inlet is gone, and with it the writer: a reader that sees this end finds in
                // the store all that was received before it.
                ended.send_replace(Some(end));
                error
            });
            source.disconnected();
            shown.reception_over();
            // Last, so that nothing of the log's can keep the end from those who wait for it.
            if let Some(error) = error {
                error!(%error, "reception ended; what was received is still applied");
            }
        };
        let task = Some(tokio::spawn(received_until_stopped.in_current_span()));
        let archive = uploader.map(|uploader| archive(uploader, &received, &halt));
        let settings = Arc::clone(settings);
        *self.reopening.lock() = None;
        Ok(Receiving { settings, received, halt, due: None, task, archive })
    }

    /// Returns the channel's stream: from its source, or from what takes the place of one.
    fn stream(&self, settings: &ChannelSettings) -> Result<ReceivedFrom, ChannelError> {
        let source = self.watch.source();
        if let Some(recorded) = &settings.recorded {
            let recording = recorded.source.open();
            let recording = recording.map_err(|error| ChannelError::State(error.to_string()))?;
            let provider = RecordedProvider::new(recording, recorded.end.clone(), source);
            return Ok(ReceivedFrom::Recorded(Box::new(provider)));
        }
        let mut options = settings.source.clone();
        options.replica_uuid = replica_uuid(settings.directory())?;
        let provider = Provider::new(options, source).with_foreign(self.foreign.shared().clone());
        let provider = match settings.archives_only() {
            // Nothing after it would say that no restore applies the others.
            true => provider.admitting(is_change_of_service),
            false => provider,
        };
        Ok(ReceivedFrom::Source(Box::new(provider)))
    }

    /// Returns what fills the channel's archive, if it has one.
    fn uploader(
        &self,
        settings: &ChannelSettings,
        received: &Received,
    ) -> Result<Option<Uploader>, ChannelError> {
        let Some(options) = &settings.archive else { return Ok(None) };
        // Without a target the channel itself fills it (archiving.rs).
        if options.is_alone {
            return Ok(None);
        }
        let (source, status) = (self.watch.source(), self.watch.archive());
        let directory = settings.directory();
        let writer = (settings.name.as_str(), identity::writer(directory)?);
        let store = Arc::clone(&received.store);
        let uploader = Uploader::new(options, writer, directory, store, source, status);
        let uploader = uploader.map_err(|error| ChannelError::State(error.to_string()))?;
        Ok(Some(uploader))
    }

    /// Closes the store, and notes first that another one is wanted in its place: a stop may drop whoever opens it.
    async fn close_to_reopen(&self, current: &mut Option<Receiving>) {
        *self.reopening.lock() = Some(Instant::now());
        self.close(current).await;
    }

    /// Cancel-safe: the next call carries it out, and the store stays locked until then.
    async fn close(&self, current: &mut Option<Receiving>) {
        let Some(receiving) = current.as_mut() else { return };
        receiving.halt.cancel();
        if let Err(error) = joined(&mut receiving.task).await {
            error!(%error, "the reception task failed");
            self.watch.reception_over();
        }
        // It holds the store.
        if let Err(error) = joined(&mut receiving.archive).await {
            error!(%error, "the task of the archive failed");
        }
        *current = None;
        self.watch.store_closed();
    }
}

impl Receiving {
    fn is_alive(&self) -> bool {
        let is_running = |task: &JoinHandle<()>| !task.is_finished();
        // Nothing more comes of one that was told to end, which may take its disk a while.
        let is_wanted = !self.halt.is_cancelled() && self.received.end.borrow().is_none();
        is_wanted && self.task.as_ref().is_some_and(is_running)
    }

    fn may_return(&self) -> bool {
        passes(&self.received.end.borrow())
    }

    /// It can stay as it is for a channel that starts with these settings.
    fn continues(&self, settings: &Arc<ChannelSettings>) -> bool {
        self.is_alive() && self.is_of(settings)
    }

    fn is_of(&self, settings: &Arc<ChannelSettings>) -> bool {
        Arc::ptr_eq(&self.settings, settings)
    }
}

/// Starts the task that fills the channel's archive.
fn archive(uploader: Uploader, received: &Received, halt: &CancellationToken) -> JoinHandle<()> {
    let (halt, damage) = (halt.clone(), received.damage.clone());
    // It gives up nothing else beside a target. The archive continues when the store is opened again.
    let filled = async move {
        if let Err(ArchiveError::Relay(error)) = uploader.run(halt).await {
            damage.0.send_replace(Some(error));
        }
    };
    tokio::spawn(filled.in_current_span())
}

/// Returns the servers whose transactions are in the store and not on a target with `executed`: a source has sent them.
fn sent(store: &RelayStore, executed: &GtidSet) -> BTreeSet<Uuid> {
    store.received_so_far().difference(executed).uuids().collect()
}

/// Cuts a closed store; the source sends the rest again.
async fn cut(settings: &ChannelSettings, position: RelayPosition) -> Result<(), ChannelError> {
    let options = settings.relay.clone();
    let cut = blocking(move || unlocked(|| RelayStore::discard_from(&options, position)));
    let cut = cut.await;
    cut.map_err(|error| ChannelError::State(format!("cutting the relay store: {error}")))??;
    Ok(())
}

/// Returns what the disk has lost of an open store for somebody who continues after `executed`.
async fn loss(store: &Arc<RelayStore>, executed: &GtidSet) -> Option<Loss> {
    let (store, executed) = (Arc::clone(store), executed.clone());
    // A look that panics finds nothing.
    blocking(move || store.loss(&executed)).await.ok().flatten()
}

/// Waits for a task. Cancel-safe: a task that has ended must not be waited for twice.
async fn joined(task: &mut Option<JoinHandle<()>>) -> Result<(), JoinError> {
    let Some(handle) = task else { return Ok(()) };
    let ended = handle.await;
    *task = None;
    ended
}

type Opened = csa_relaystore::disk::Result<Option<(RelayStore, Recovery)>>;

/// Opens a store and logs what was found.
async fn opened(
    settings: &ChannelSettings,
    open: impl Fn(RelayStoreOptions) -> Opened + Send + 'static,
) -> Result<Option<RelayStore>, ChannelError> {
    let options = settings.relay.clone();
    // If this future is dropped, the thread opens the store anyway and drops it; the next attempt
    // waits for that in `unlocked`.
    let opened = blocking(move || unlocked(|| open(options.clone()))).await;
    let opened = opened
        .map_err(|error| ChannelError::State(format!("opening the relay store: {error}")))??;
    let Some((store, recovery)) = opened else { return Ok(None) };
    if recovery.cut_bytes > 0 {
        let (bytes, transactions) = (recovery.cut_bytes, recovery.cut_transactions);
        info!(bytes, %transactions, "relay store: cut an unfinished tail; it is fetched again");
    }
    if recovery.dropped_segments > 0 {
        let segments = recovery.dropped_segments;
        warn!(segments, "relay store: dropped damaged segments");
    }
    if let Some(missing) = recovery.emptied_for {
        warn!(%missing, "relay store emptied: it did not follow the checkpoint");
    }
    Ok(Some(store))
}
