//! Source to target, once: every part of a channel put together, and taken apart in order.

use std::sync::Arc;

use csa_applier::{
    Applier, ApplierOptions, ApplierStatus, CommitObserver, ControlSession, ExecMode,
    TargetCatalogue, TargetFacts,
};
use csa_provider::{Provider, SourceFacts};
use csa_relaystore::{RelayInlet, RelayPosition, RelayStore};
use csa_scheduler::{Admission, Filters, LowWaterMark, StreamEnd, Until};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::delay::Delay;
use super::identity::replica_uuid;
use super::relay_thread::{Damage, Ended, Notes, RelayThread};
use super::watch::Watch;
use super::{ChannelError, Controls};
use crate::config::ChannelSettings;

/// Transactions read ahead of the applier: a few groups, so that the next is ready when one commits.
const READ_AHEAD: usize = 1024;

pub(super) struct Pipeline<'a> {
    settings: &'a ChannelSettings,
    applier: ApplierOptions,
    watch: &'a Watch,
    controls: &'a Controls,
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
        until: Until,
        already: bool,
    },
    /// The end it was at was moved: the stream goes on.
    UntilMoved,
    RelayDamaged(Damage),
}

impl<'a> Pipeline<'a> {
    /// Takes the channel on the target, then opens the relay store behind its checkpoint.
    /// `folds_case`: how the target compares names.
    pub(super) async fn open(
        settings: &'a ChannelSettings,
        watch: &'a Watch,
        controls: &'a Controls,
        source: Option<&SourceFacts>,
        target: &TargetFacts,
    ) -> Result<Self, ChannelError> {
        let workers = controls.tuning().worker_count;
        let control = ControlSession::open(
            &settings.target,
            &settings.name,
            workers,
            &settings.start_from,
            source.map(|facts| &facts.gtid_executed),
            target.statement_gtids,
        )
        .await?;
        let executed = control.checkpoint().executed.clone();
        let options = settings.relay.clone();
        let opened =
            spawn_blocking(move || unlocked(|| RelayStore::open(options.clone(), &executed))).await;
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
        let status = Arc::new(ApplierStatus::new(control.checkpoint(), target.executor));
        let store = Arc::new(store);
        let applier = ApplierOptions {
            executor: target.executor,
            statement_gtids: target.statement_gtids,
            ..settings.applier.clone()
        };
        let filters = Filters::new(settings.filters.clone(), target.folds_case);
        Ok(Self { settings, applier, watch, controls, filters, control, status, store })
    }

    /// Runs until stopped, damaged, or failed.
    pub(super) async fn run(
        self,
        stop: &CancellationToken,
        kill: &CancellationToken,
    ) -> Result<End, ChannelError> {
        let notes = Arc::new(Notes::default());
        let memory = self.controls.memory().clone();
        let executed = self.control.checkpoint().executed.clone();
        self.watch.attach(&self.status, &self.store, &memory, &executed);
        let until = self.controls.until();
        if let Some(until) = until.begin(&executed) {
            self.control.close().await;
            self.watch.detach();
            return Ok(End::UntilReached { until, already: true });
        }
        let end = CancellationToken::new();
        let _end_on_drop = end.clone().drop_guard();
        let reception = self.start_reception(stop, &end, &notes)?;
        let (sender, stream) = mpsc::channel(READ_AHEAD);
        let reader = self.store.reader(executed);
        let target = self.settings.target.clone();
        let catalogue = TargetCatalogue::new(Handle::current(), target, end.clone());
        let thread = RelayThread {
            reader,
            memory,
            inline_limit: 0,
            admission: Admission::new(catalogue)
                .as_logged(self.settings.applier.exec_mode == ExecMode::Idempotent)
                .with_filters(self.filters),
            delay: Delay {
                runtime: Handle::current(),
                by: self.controls.subscribe_delay(),
                until: until.clone(),
                watch: self.watch.clone(),
                end: end.clone(),
            },
            until: until.clone(),
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
            self.applier.clone(),
            self.settings.limits,
            until.clone(),
            self.controls.subscribe(),
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
        let executed = self.status.executed();
        let by_itself = outcome.is_ok() && !stop.is_cancelled() && !kill.is_cancelled();
        let end = match by_itself {
            true => until.end(&executed, notes.until.get()),
            false => until.rest(&executed),
        };
        match (outcome, notes.damage.get()) {
            (Err(_), Some(damage)) => Ok(End::RelayDamaged(damage.clone())),
            (Err(error), None) => Err(error.into()),
            (Ok(()), _) => Ok(match end {
                StreamEnd::Until(until) => End::UntilReached { until, already: false },
                StreamEnd::Moved => End::UntilMoved,
                StreamEnd::Elsewhere => End::Stopped,
            }),
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
        let source = self.watch.source();
        let provider = Provider::new(options, Arc::clone(&source));
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
                let gtid = source.view().stopped_in.map(|gtid| gtid.to_string());
                let _ = notes.reception.set(Ended { why: error.to_string(), gtid });
            }
            source.disconnected();
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

/// A store that was just closed may be locked a moment longer by those who still look at it.
fn unlocked<T>(mut open: impl FnMut() -> csa_relaystore::Result<T>) -> csa_relaystore::Result<T> {
    for _ in 0..100 {
        match open() {
            Err(csa_relaystore::Error::Locked { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            other => return other,
        }
    }
    open()
}

/// Cuts a damaged store.
pub(super) async fn discard(
    settings: &ChannelSettings,
    position: RelayPosition,
) -> Result<(), ChannelError> {
    let options = settings.relay.clone();
    let cut = spawn_blocking(move || unlocked(|| RelayStore::discard_from(&options, position)));
    cut.await
        .map_err(|error| ChannelError::State(format!("cutting the relay store: {error}")))??;
    Ok(())
}
