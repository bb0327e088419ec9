//! One run of a channel's applying part, from the relay store to the target: its parts are built and
//! taken apart in order. Reception is separate: see [`super::reception`].

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{
    AdmittedStream, Applier, ApplierOptions, ApplierStatus, ChannelClaim, CommitObserver,
    ControlSession, Converging, ExecMode, Executor, Intake, Reachability, TargetCatalogue,
    TargetFacts,
};
use csa_provider::binlog::GtidSet;
use csa_provider::source::SourceFacts;
use csa_relaystore::disk::{self, RelayPosition};
use csa_relaystore::opening::RelayStore;
use csa_scheduler::admission::{Admission, AdmittedTransaction};
use csa_scheduler::filter::Filters;
use csa_scheduler::intake::IntakeEnd;
use csa_scheduler::low_water::LowWaterMark;
use csa_scheduler::until::{StreamEnd, Until, UntilGate};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, info};

use super::error::ChannelError;
use super::first_copy::copied_tables;
use super::health::Health;
use super::identity::Taking;
use super::live_settings::Controls;
use super::reception::{Received, Reception, StoreDamage};
use super::start_steps::StartStep;
use super::watch::Watch;
use crate::config::{ChannelSettings, written_rules};
use crate::copy::{CopyError, CopyStep, converging_tables, lacks_tables};
use crate::host::{blocking, caught};

/// Transactions read ahead of the applier: a few groups, so that one is ready after each commit.
const READ_AHEAD: usize = 1024;

pub(super) struct Pipeline<'a> {
    settings: &'a Arc<ChannelSettings>,
    options: ApplierOptions,
    watch: &'a Watch,
    controls: &'a Controls,
    filters: Filters,
    control: ControlSession,
    status: Arc<ApplierStatus>,
    received: Received,
    /// The channel's, or that of a copy in chunks.
    until: UntilGate,
    converging: Option<Converging>,
}

/// The end of a pipeline, unless by an error.
pub(super) enum PipelineEnd {
    Stopped,
    /// Everything up to `until` is applied; `already`: it was before the start.
    UntilReached {
        until: Until,
        already: bool,
    },
    /// Everything that changed while tables were copied in chunks is applied.
    Converged(Converging),
    /// A copy was interrupted after it had dropped tables.
    LacksTables(Converging),
    /// It reached an end that was moved meanwhile: the stream continues.
    UntilMoved,
    /// Damage on disk, found while reading.
    RelayDamaged {
        error: csa_relaystore::disk::Error,
        transaction: RelayPosition,
    },
    /// The source serves again, after it had ended reception.
    ReceptionReturns,
    /// The target lacks what was committed there.
    TargetOlder(csa_applier::Error),
    /// A transaction was begun while it was being received, and given up.
    NotWhole(csa_applier::Error),
}

impl<'a> Pipeline<'a> {
    /// Takes the channel on the target, then attaches to reception after its checkpoint: nobody
    /// else moves a checkpoint whose channel lock is held.
    pub(super) async fn open(
        settings: &'a Arc<ChannelSettings>,
        watch: &'a Watch,
        controls: &'a Controls,
        reception: &Reception,
        source: Option<&SourceFacts>,
        target: &TargetFacts,
        taking: &Taking,
    ) -> Result<Self, ChannelError> {
        let workers = controls.tuning().worker_count;
        let control = ControlSession::open(
            &settings.target,
            &settings.name,
            workers,
            &ChannelClaim {
                identity: taking.identity.name(),
                // Not where preflight saw a checkpoint: if its rows are gone by now, a start as if
                // for the first time would repeat history.
                start: target.checkpoint.is_none().then_some(&taking.start),
                source_executed: source.map(|facts| &facts.gtid_executed),
                source_uuid: source.and_then(|facts| facts.server_uuid.parse().ok()),
                filters: &written_rules(&settings.filters),
                standby: settings.applier.standby,
                is_run: true,
            },
            target.statement_gtids,
        )
        .await?;
        watch.done(StartStep::Claim);
        let executed = &control.checkpoint().executed;
        let attached = reception.attach(settings, executed, source, control.foreign());
        let received = match attached.await {
            Ok(received) => received,
            Err(error) => {
                control.close().await;
                return Err(error);
            }
        };
        watch.done(StartStep::RelayStore);
        let converging = control.converging();
        let refused = no_row_images(converging.as_ref(), target.executor)
            .or_else(|| lost_changes(settings, converging.as_ref(), source, &received.store));
        if let Some(why) = refused {
            control.close().await;
            return Err(ChannelError::Refused(why));
        }
        let status: Arc<_> = ApplierStatus::new(
            control.commits(),
            control.reachability(),
            target.executor,
            watch.clock(),
        )
        .measuring(watch.durations(), watch.source())
        .into();
        let mut options = ApplierOptions {
            executor: target.executor,
            statement_gtids: target.statement_gtids,
            ..settings.applier.clone()
        };
        if let Some(converging) = &converging {
            let tables = converging_tables(&settings.name, converging).map_err(unreadable)?;
            options.converging = Some(Arc::new(tables));
        }
        // No end of the channel's own lies before: rows may be as they were later.
        let until = match converging.as_ref().and_then(|converging| converging.until.clone()) {
            Some(until) => UntilGate::new(Some(Until::AfterGtids(until))),
            None => controls.until().clone(),
        };
        // Where it is not known, as for a recording, names are what they were written as: most sources are like that.
        let source_folds_case = source.and_then(|facts| facts.folds_case).unwrap_or(false);
        let filters =
            Filters::new(settings.filters.clone(), target.folds_case).of_source(source_folds_case);
        Ok(Self {
            settings,
            options,
            watch,
            controls,
            filters,
            control,
            status,
            received,
            until,
            converging,
        })
    }

    /// Runs until stopped, damaged, or failed.
    pub(super) async fn run(
        self,
        stop: &CancellationToken,
        kill: &CancellationToken,
    ) -> Result<PipelineEnd, ChannelError> {
        let commits = self.control.commits();
        // Even if nothing is left to run: a wait learns from it what is executed.
        self.watch.attach(&commits, &self.status);
        let (until, converging) = (self.until.clone(), self.converging.clone());
        if let Some(converging) = &converging {
            if lacks_tables(&self.settings.name, converging).map_err(unreadable)? {
                self.control.close().await;
                self.watch.detach();
                return Ok(PipelineEnd::LacksTables(converging.clone()));
            }
            let until = converging.until.as_ref().map(GtidSet::brief);
            self.watch.copy_step(match until {
                Some(_) => CopyStep::Changes,
                None => CopyStep::RowsLeft,
            });
            info!(?until, "applying what changed while rows were copied");
        }
        if let Some(until) = until.begin(&self.control.checkpoint().executed) {
            self.control.close().await;
            self.watch.detach();
            return Ok(reached(until, true, converging));
        }
        let end = CancellationToken::new();
        // Dropping this future does not end a blocking thread; the guard does.
        let _end_on_drop = end.clone().drop_guard();
        let (sender, stream) = mpsc::channel(READ_AHEAD);
        let intake = self.intake(sender, end.clone());
        let intake = tokio::spawn(intake.run().in_current_span());
        let watch = self.watch;
        let health = Health::keep(&self.settings.target, self.controls, watch);
        let store = Arc::clone(&self.received.store);
        let applies = applies(self.control.reachability(), Arc::clone(&store));
        let damage = self.received.damage.clone();
        let returned = self.received.clone().returns(Arc::clone(self.settings));
        let reopening = Reopening::new(damage.clone(), returned, stop);
        // Of its own: an applier that stops while the target is away gives up its groups, and only a stop of the channel
        // is to end the channel with that.
        let given_up = kill.child_token();
        let applier = self.applier(stream);
        let outcome = ended(caught(applier.run(reopening.stop.clone(), given_up.clone()))).await;
        if given_up.is_cancelled() && stop.is_cancelled() {
            kill.cancel();
        }
        health.end().await;
        drop(applies);
        store.set_has_applier(false);
        end.cancel();
        // The thread is waited for even after an error: it still writes to `watch`.
        let intake = intake.await.map_err(|panic| broken(&panic));
        watch.detach();
        match (&outcome, &intake) {
            (Err(csa_applier::Error::Admission(error)), _) => {
                error.store_error().into_iter().for_each(|error| store.doubt(error));
            }
            (_, Ok(IntakeEnd::Unreadable(error))) => store.doubt(error),
            _ => {}
        }
        let executed = commits.executed();
        let is_stopped = stop.is_cancelled() || kill.is_cancelled();
        let is_clean = matches!(
            outcome,
            Ok(()) | Err(csa_applier::Error::NotWhole { .. } | csa_applier::Error::Stopping)
        );
        // After another error the next pipeline meets it.
        if is_clean
            && !is_stopped
            && let Some(error @ disk::Error::Damaged { transaction, .. }) = damage.take()
        {
            until.rest(&executed);
            return Ok(PipelineEnd::RelayDamaged { error, transaction });
        }
        if is_clean && !is_stopped && reopening.stop.is_cancelled() {
            until.rest(&executed);
            return Ok(PipelineEnd::ReceptionReturns);
        }
        // A stop wins over an end reached at the same moment: the next start meets that end again.
        if outcome.is_err() || is_stopped {
            until.rest(&executed);
            return match outcome {
                Err(csa_applier::Error::NotWhole { .. } | csa_applier::Error::Stopping)
                    if is_stopped =>
                {
                    Ok(PipelineEnd::Stopped)
                }
                Err(error @ csa_applier::Error::NotWhole { .. }) => {
                    Ok(PipelineEnd::NotWhole(error))
                }
                Err(error @ csa_applier::Error::Older { .. }) => {
                    Ok(PipelineEnd::TargetOlder(error))
                }
                // A streamed transaction is read again when it is applied.
                Err(csa_applier::Error::Admission(error)) => {
                    end_of(StreamEnd::Elsewhere, error.into())
                }
                outcome => Ok(outcome.map(|()| PipelineEnd::Stopped)?),
            };
        }
        let read_to = match &intake {
            Ok(IntakeEnd::Until(until)) => Some(until),
            _ => None,
        };
        match (until.end(&executed, read_to), intake) {
            (StreamEnd::Until(until), _) => Ok(reached(until, false, converging)),
            (stream, intake) => end_of(stream, intake?),
        }
    }

    /// Returns true while all tables converge. Delayed, rows would be of different moments for so long: those in chunks are
    /// as new as the source's.
    fn is_first_copy(&self) -> bool {
        let copied = self.converging.as_ref().map(|of| copied_tables(self.settings, of));
        copied.is_some_and(|of| of.is_ok_and(|of| of.tables.is_empty()))
    }

    /// Returns the part that reads ahead, until `end`.
    fn intake(
        &self,
        sender: mpsc::Sender<AdmittedTransaction>,
        end: CancellationToken,
    ) -> Intake<TargetCatalogue, Watch> {
        let control = &self.control;
        let target = self.settings.target.clone();
        let catalogue = TargetCatalogue::new(target, end.clone()).of_channel(
            &self.options,
            control.generation(),
            control.reachability(),
            control.own_servers(),
            control.commits(),
        );
        let is_as_logged =
            self.options.exec_mode == ExecMode::Idempotent || self.converging.is_some();
        Intake {
            reader: self.received.store.reader(control.checkpoint().executed.clone()),
            memory: self.controls.memory().clone(),
            admission: Admission::new(catalogue)
                .as_logged(is_as_logged)
                .with_filters(self.filters.clone()),
            begin_early: self.settings.begin_early,
            delay: match self.is_first_copy() {
                true => watch::channel(Duration::ZERO).1,
                false => self.controls.subscribe_delay(),
            },
            until: self.until.clone(),
            tuning: self.controls.subscribe(),
            reception: self.received.end.clone(),
            statements: control.commits().statements(),
            sender,
            observer: self.watch.clone(),
            clock: self.watch.clock(),
            end,
        }
    }

    /// Returns the part that applies `stream`.
    fn applier(self, stream: AdmittedStream) -> Applier<Purge> {
        let shown = Arc::new(self.watch.clone());
        Applier::new(
            self.control,
            self.settings.target.clone(),
            self.options,
            self.settings.limits,
            self.until,
            self.controls.subscribe(),
            self.status,
            stream,
            Purge { store: self.received.store, watch: self.watch.clone() },
        )
        .showing(shown)
    }
}

/// The end of a pipeline whose relay store has to be opened again.
struct Reopening {
    /// Cancelled with the channel's own, too.
    stop: CancellationToken,
    _watched: AbortOnDropHandle<()>,
}

impl Reopening {
    /// Stops when the archive has met damage, and when a source that ended reception has `returned`.
    fn new(
        damage: StoreDamage,
        returned: impl Future<Output = ()> + Send + 'static,
        stop: &CancellationToken,
    ) -> Self {
        let stop = stop.child_token();
        let stopped = stop.clone();
        let watched = tokio::spawn(async move {
            tokio::select! {
                () = damage.is_found() => {}
                () = returned => {}
            }
            stopped.cancel();
        });
        Self { stop, _watched: AbortOnDropHandle::new(watched) }
    }
}

/// Returns why copied tables can't converge: a statement for a row that a chunk has brought fails.
fn no_row_images(converging: Option<&Converging>, executor: Executor) -> Option<String> {
    let has_chunks = converging.is_some_and(|converging| !converging.tables.is_empty());
    (has_chunks && executor == Executor::Sql).then(|| {
        "target: copied tables converge through row images, and rows go there as statements; GRANT \
         REPLICATION_APPLIER ON *.* there and set applier.executor = \"auto\" until the copy has ended. A transaction \
         whose row images fit no packet has to be skipped: copy its tables again afterwards (docs/copy-one-table.md)"
            .to_owned()
    })
}

/// Returns why copied tables can't become what they are on the source: it lacks changes that their rows already have. No
/// channel would ever reach their end.
fn lost_changes(
    settings: &ChannelSettings,
    converging: Option<&Converging>,
    source: Option<&SourceFacts>,
    store: &RelayStore,
) -> Option<String> {
    let converging = converging?;
    let until = converging.until.as_ref()?;
    let is_of_channel = copied_tables(settings, converging).is_ok_and(|of| of.tables.is_empty());
    let again = match is_of_channel {
        true => "copy the source again (docs/provisioning.md#copy-again)",
        false => "run the same csa-daemon copy again",
    };
    let mut known = source?.gtid_executed.clone();
    known.union(&store.received_so_far());
    let missing = until.difference(&known);
    (!missing.is_empty()).then(|| {
        format!(
            "source: it lacks {}, and copied tables have changes of these transactions already. A replica may get them \
             later; if a failover has lost them, {again}",
            missing.brief()
        )
    })
}

/// Has the relay store write everything at once while the target is away.
fn applies(target: Reachability, store: Arc<RelayStore>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        target.follow(|is_lost| store.set_has_applier(!is_lost)).await;
    }))
}

fn reached(until: Until, already: bool, converging: Option<Converging>) -> PipelineEnd {
    match converging.filter(|converging| converging.until.is_some()) {
        Some(converging) => PipelineEnd::Converged(converging),
        None => PipelineEnd::UntilReached { until, already },
    }
}

/// The end of a pipeline whose stream ended on its own, and not at the channel's end.
fn end_of(stream: StreamEnd, intake: IntakeEnd) -> Result<PipelineEnd, ChannelError> {
    match intake {
        IntakeEnd::Stopped | IntakeEnd::Until(_) => match stream {
            StreamEnd::Moved => Ok(PipelineEnd::UntilMoved),
            StreamEnd::Until(_) | StreamEnd::Elsewhere => Ok(PipelineEnd::Stopped),
        },
        IntakeEnd::Damaged { error, transaction } => {
            Ok(PipelineEnd::RelayDamaged { error, transaction })
        }
        IntakeEnd::Unreadable(error) => Err(error.into()),
        IntakeEnd::Reception(end) => Err(end.into()),
        IntakeEnd::Refused(error) => Err(csa_applier::Error::from(error).into()),
    }
}

/// The target's note of a copy can't be read.
#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn unreadable(error: CopyError) -> ChannelError {
    ChannelError::Refused(error.to_string())
}

/// Waits for the end of the applier; a panic ends its pipeline only.
async fn ended(applier: AbortOnDropHandle<csa_applier::Result<()>>) -> csa_applier::Result<()> {
    let failed = |source| Err(csa_applier::Error::Task { task: "the applier", source });
    applier.await.unwrap_or_else(failed)
}

fn broken(panic: &JoinError) -> ChannelError {
    ChannelError::State(format!("the relay reader failed: {panic}"))
}

/// Releases relay segments up to the low-water mark.
#[derive(Debug)]
struct Purge {
    store: Arc<RelayStore>,
    watch: Watch,
}

impl CommitObserver for Purge {
    fn low_water_mark(&mut self, mark: LowWaterMark) {
        self.watch.committed();
        if mark.released.is_some_and(|position| self.store.note_released(position)) {
            // Deleting a file may take the disk a while, and this is the applier's task.
            let store = Arc::clone(&self.store);
            drop(blocking(move || store.purge()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_while_applying_makes_the_channel_try_again() {
        let stop = CancellationToken::new();
        let applier = caught(async move {
            assert!(stop.is_cancelled(), "a bug");
            Ok(())
        });
        let error = ChannelError::from(ended(applier).await.expect_err("it panicked"));
        assert!(error.may_pass() && error.absent().is_none(), "{error}");
    }
}
