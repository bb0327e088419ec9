//! Source to target, once: every part of a channel put together, and taken apart in order.

use std::sync::Arc;

use csa_applier::{Applier, ApplierStatus, CommitObserver, ControlSession, TargetCatalogue};
use csa_provider::{Provider, SourceFacts};
use csa_relaystore::{RelayInlet, RelayPosition, RelayStore};
use csa_scheduler::{Admission, EventMemory, Filters, LowWaterMark, UntilTracker};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::delay::Delay;
use super::identity::replica_uuid;
use super::relay_thread::{Damage, Notes, RelayThread};
use super::watch::Watch;
use super::{ChannelError, Live};
use crate::config::ChannelSettings;

/// Transactions read ahead of the applier: a few groups, so that the next is ready when one commits.
const READ_AHEAD: usize = 1024;

pub(super) struct Pipeline<'a> {
    settings: &'a ChannelSettings,
    watch: &'a Watch,
    live: &'a Live,
    filters: Filters,
    control: ControlSession,
    status: Arc<ApplierStatus>,
    store: Arc<RelayStore>,
}

/// How a pipeline ended, short of an error.
pub(super) enum End {
    Stopped,
    /// Everything up to `until` is applied; whether it already was at the start.
    UntilReached {
        already: bool,
    },
    RelayDamaged(Damage),
}

impl<'a> Pipeline<'a> {
    /// Takes the channel on the target, then opens the relay store behind its checkpoint.
    /// `folds_case`: how the target compares names.
    pub(super) async fn open(
        settings: &'a ChannelSettings,
        watch: &'a Watch,
        live: &'a Live,
        source: Option<&SourceFacts>,
        folds_case: bool,
    ) -> Result<Self, ChannelError> {
        let workers = *live.worker_count.borrow();
        let control = ControlSession::open(
            &settings.target,
            &settings.name,
            workers,
            &settings.start_from,
            source.map(|facts| &facts.gtid_executed),
        )
        .await?;
        let executed = control.checkpoint().executed.clone();
        let options = settings.relay.clone();
        let opened = spawn_blocking(move || RelayStore::open(options, &executed)).await;
        let (store, recovery) = opened
            .map_err(|error| ChannelError::State(format!("opening the relay store: {error}")))??;
        if recovery.cut_bytes > 0 {
            let (bytes, transactions) = (recovery.cut_bytes, recovery.cut_transactions);
            info!(bytes, %transactions, "relay store: cut an unfinished tail, it is fetched again");
        }
        if recovery.dropped_segments > 0 {
            warn!(segments = recovery.dropped_segments, "relay store: dropped damaged segments");
        }
        if let Some(missing) = recovery.emptied_for {
            warn!(%missing, "relay store emptied: it did not follow on from the target");
        }
        let status = Arc::new(ApplierStatus::new(control.checkpoint()));
        let store = Arc::new(store);
        let filters = Filters::new(settings.filters.clone(), folds_case);
        Ok(Self { settings, watch, live, filters, control, status, store })
    }

    /// Runs until stopped, damaged, or failed.
    pub(super) async fn run(
        self,
        stop: &CancellationToken,
        kill: &CancellationToken,
    ) -> Result<End, ChannelError> {
        let notes = Arc::new(Notes::default());
        let memory = EventMemory::new(self.settings.event_memory_limit);
        let executed = self.control.checkpoint().executed.clone();
        self.watch.attach(&self.status, &self.store, &memory, &executed);
        let until = self.settings.until.clone();
        if until.as_ref().is_some_and(|until| until.is_reached(&executed)) {
            self.control.close().await;
            self.watch.detach();
            return Ok(End::UntilReached { already: true });
        }
        let end = CancellationToken::new();
        let _end_on_drop = end.clone().drop_guard();
        let reception = self.start_reception(stop, &end, &notes)?;
        let (sender, stream) = mpsc::channel(READ_AHEAD);
        let mut reader = self.store.reader(executed.clone());
        // A larger transaction is streamed: a quarter leaves room for others beside it.
        let inline_limit = self.settings.event_memory_limit / 4;
        reader.set_inline_limit(inline_limit);
        let target = self.settings.target.clone();
        let catalogue = TargetCatalogue::new(Handle::current(), target, end.clone());
        let thread = RelayThread {
            reader,
            memory,
            inline_limit,
            admission: Admission::new(catalogue).with_filters(self.filters),
            delay: Delay {
                runtime: Handle::current(),
                by: self.live.source_delay.subscribe(),
                watch: self.watch.clone(),
                end: end.clone(),
            },
            until: UntilTracker::new(until, executed),
            status: Arc::clone(&self.status),
            sender,
            notes: Arc::clone(&notes),
            watch: self.watch.clone(),
            end: end.clone(),
        };
        let relay = spawn_blocking(move || thread.run());
        let applier = Applier::new(
            self.control,
            self.settings.target.clone(),
            self.settings.applier.clone(),
            self.settings.limits,
            self.live.worker_count.subscribe(),
            Arc::clone(&self.status),
            stream,
            Purge { store: Arc::clone(&self.store) },
        );
        let outcome = applier.run(stop.clone(), kill.clone()).await;
        end.cancel();
        for part in [reception, relay] {
            if let Err(error) = part.await {
                error!(%error, "a part of the channel broke");
            }
        }
        self.watch.detach();
        match (outcome, notes.damage.get()) {
            (Err(_), Some(damage)) => Ok(End::RelayDamaged(damage.clone())),
            (Err(error), None) => Err(error.into()),
            (Ok(()), _) if notes.until.get().is_some() && !stop.is_cancelled() => {
                Ok(End::UntilReached { already: false })
            }
            (Ok(()), _) => Ok(End::Stopped),
        }
    }

    /// Reception goes on beside the applier; its failure ends the channel once all is applied.
    fn start_reception(
        &self,
        stop: &CancellationToken,
        end: &CancellationToken,
        notes: &Arc<Notes>,
    ) -> Result<JoinHandle<()>, ChannelError> {
        let mut options = self.settings.source.clone();
        let directory =
            self.settings.relay.directory.parent().unwrap_or(&self.settings.relay.directory);
        options.replica_uuid = replica_uuid(directory)?;
        let provider = Provider::new(options, self.watch.source());
        let inlet: RelayInlet = self.store.inlet();
        let notes = Arc::clone(notes);
        let halt = end.child_token();
        let stop = stop.clone();
        let name = self.settings.name.clone();
        Ok(tokio::spawn(async move {
            let run = provider.run(inlet, halt.clone());
            let outcome = tokio::select! {
                outcome = run => outcome,
                () = stop.cancelled() => Ok(()),
            };
            if let Err(error) = outcome {
                error!(channel = %name, %error, "reception ended; what was received is still applied");
                // Set once: a provider ends once.
                let _ = notes.reception.set(error.to_string());
            }
        }))
    }
}

/// Releases relay segments behind the low-water mark.
#[derive(Debug)]
struct Purge {
    store: Arc<RelayStore>,
}

impl CommitObserver for Purge {
    fn low_water_mark(&mut self, mark: LowWaterMark) {
        if let Some(position) = mark.released {
            self.store.release(position);
        }
    }
}

/// Cuts a damaged store; its writer thread may hold the lock a moment longer.
pub(super) async fn discard(
    settings: &ChannelSettings,
    position: RelayPosition,
) -> Result<(), ChannelError> {
    let options = settings.relay.clone();
    let cut = spawn_blocking(move || {
        for _ in 0..100 {
            match RelayStore::discard_from(&options, position) {
                Err(csa_relaystore::Error::Locked { .. }) => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                other => return other,
            }
        }
        RelayStore::discard_from(&options, position)
    });
    cut.await
        .map_err(|error| ChannelError::State(format!("cutting the relay store: {error}")))??;
    Ok(())
}
