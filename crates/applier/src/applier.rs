//! Takes admitted transactions, has the scheduler group them, and keeps the workers busy.

use std::sync::Arc;
use std::time::Duration;

use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::group::{Group, GroupLimits};
use csa_scheduler::low_water::LowWaterMark;
use csa_scheduler::scheduler::Scheduler;
use csa_scheduler::until::UntilGate;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::arrivals::{AdmittedStream, Arrivals};
use crate::error::{Error, ErrorClass, Invariant, Result};
use crate::group::commit_turn::{CommitTurn, Sending};
use crate::group::lock_inversion::{self, LockWatch};
use crate::group::series;
use crate::group::throttle::Throttle;
use crate::group::worker_session::SharedWorkerState;
use crate::group::workers::{Finished, Workers};
use crate::lock_watch;
use crate::options::{ApplierOptions, TargetGtids, Tuning};
use crate::ownership::control::ControlSession;
use crate::ownership::keeper::Keeper;
use crate::ownership::locks::{self, Claimant};
use crate::ownership::shown_state::{ShownStateWriter, StateSource};
use crate::server::definitions::tables::TargetTables;
use crate::server::reachability::Reachability;
use crate::server::session::Session;
use crate::server::target::Target;
use crate::statement::executor::StatementExecutor;
use crate::status::ApplierStatus;

/// Is called when everything up to a mark is committed on the target.
pub trait CommitObserver: Send {
    fn low_water_mark(&mut self, mark: LowWaterMark);
}

/// Interval at which the target's GTIDs are brought level with the checkpoint, or the other way round.
const LEVEL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval while a lock of others is in the way; each attempt holds new groups up for a second.
const LEVEL_AGAIN: Duration = Duration::from_secs(10);
/// Time limit for ending our sessions; a target that does not answer ends them on its own.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// One channel's applier.
pub struct Applier<O> {
    scheduler: Scheduler,
    workers: Workers,
    tuning: watch::Receiver<Tuning>,
    throttle: Throttle,
    keeper: Keeper,
    statements: StatementExecutor,
    observer: O,
    arrivals: Arrivals,
    upkeep: Upkeep,
    locks: LockWatch,
    shown: ShownStateWriter,
}

/// The times of what recurs while transactions are applied.
struct Upkeep {
    pinged: Instant,
    levelled: Instant,
    /// The last time nothing was in the way of levelling.
    is_level: bool,
    /// Next check for lock inversions; arriving transactions must not postpone it.
    look_at: Instant,
}

impl<O> std::fmt::Debug for Applier<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("scheduler", &self.scheduler).finish_non_exhaustive()
    }
}

impl<O: CommitObserver> Applier<O> {
    /// `control` holds the channel; the stream begins after its checkpoint.
    #[must_use]
    #[allow(clippy::too_many_arguments, reason = "the parts of a channel, put together once")]
    pub fn new(
        control: ControlSession,
        target: Target,
        options: ApplierOptions,
        limits: GroupLimits,
        until: UntilGate,
        tuning: watch::Receiver<Tuning>,
        status: Arc<ApplierStatus>,
        stream: AdmittedStream,
        observer: O,
    ) -> Self {
        let limits = series::limits(limits, target.gtids, &options);
        let checkpoint = control.checkpoint().clone();
        let now = Instant::now();
        let Tuning { throttle, .. } = *tuning.borrow();
        // Begins with the workers that have checkpoint rows; `apply_all` starts with the number now
        // wanted.
        let wanted = control.workers().max(1);
        let tables = Arc::new(TargetTables::default());
        let shared = SharedWorkerState {
            commits: control.commits(),
            target: control.reachability(),
            status: Arc::clone(&status),
            turn: CommitTurn::new(checkpoint.sequence),
            sending: Sending::new(checkpoint.sequence),
            sessions: status.sessions(),
            tables: Arc::clone(&tables),
            generation: control.generation(),
        };
        Self {
            scheduler: Scheduler::new(
                limits,
                usize::from(wanted),
                checkpoint.sequence,
                checkpoint.executed.clone(),
            )
            .with_until(until),
            workers: Workers {
                epoch: checkpoint.epoch,
                target: target.clone(),
                options: options.clone(),
                shared,
                wanted,
                with_rows: wanted,
                existing: Vec::new(),
                idle: Vec::new(),
                running: JoinSet::new(),
            },
            tuning,
            throttle: Throttle::new(throttle, now),
            keeper: Keeper::new(control, target.clone(), &options),
            statements: StatementExecutor::new(target, options, Arc::clone(&status), tables),
            observer,
            arrivals: Arrivals::of(stream),
            upkeep: Upkeep { pinged: now, levelled: now, is_level: true, look_at: now },
            locks: LockWatch::default(),
            shown: ShownStateWriter::new(None),
        }
    }

    /// Shows the channel's state in `csa.status` on the target.
    #[must_use]
    pub fn showing(self, source: Arc<dyn StateSource>) -> Self {
        Self { shown: ShownStateWriter::new(Some(source)), ..self }
    }

    /// Applies until the stream ends or its end point is reached, until `stop` (finish the running
    /// groups, then return) or until `kill` (return at once; the target rolls back what was not
    /// committed). A stop that gives up running groups, because the target is away, cancels `kill`.
    ///
    /// # Errors
    /// The error that stops the channel; everything before it is committed.
    pub async fn run(mut self, stop: CancellationToken, kill: CancellationToken) -> Result<()> {
        let target = self.workers.shared.target.clone();
        let (server, status) =
            (self.workers.target.clone(), Arc::clone(&self.workers.shared.status));
        // A kill waits for nothing, and a stop gives up only a target that is away.
        let outcome = tokio::select! {
            biased;
            () = kill.cancelled() => None,
            outcome = self.apply_and_level(&stop) => Some(outcome),
            never = lock_watch::watch(&server, &status, &stop) => match never {},
            () = gone_while_stopping(&stop, &target) => {
                if !self.workers.running.is_empty() {
                    kill.cancel();
                }
                return Ok(());
            }
        };
        let Some(outcome) = outcome else {
            self.abandon().await;
            return Ok(());
        };
        // The lock goes last, when nothing of ours is sent any more.
        self.keeper.close().await;
        outcome
    }

    /// Applies to the end, and leaves the target's GTIDs as the checkpoint has them.
    async fn apply_and_level(&mut self, stop: &CancellationToken) -> Result<()> {
        let outcome = self.apply_all(stop).await;
        self.workers.close().await;
        // It may wait for another session's lock on a row of the checkpoint, until a kill.
        if !self.workers.shared.target.is_lost()
            && let Err(error) = self.keeper.level().await
        {
            warn!(%error, "the target's gtid_executed and the checkpoint differ until the next start");
        }
        if !self.workers.shared.target.is_lost() {
            let is_cut_off = !stop.is_cancelled() && !self.scheduler.is_at_end();
            self.shown.note_end(&mut self.keeper, &outcome, is_cut_off).await;
        }
        outcome
    }

    /// Ends our sessions on the target: else it would finish each statement, and hold the channel's lock
    /// until then, before it noticed that nobody listens.
    async fn abandon(self) {
        let target = self.workers.target.clone();
        let workers = self.workers.existing.clone();
        let channel = self.workers.options.channel.clone();
        let Claimant { identity, earlier } = self.keeper.claimant();
        let identity = identity.to_owned();
        // Aborts the workers' tasks, so that none of them sends anything more.
        drop(self);
        let end = async {
            let mut session = Session::connect(&target).await?;
            let claimant = Claimant { identity: &identity, earlier };
            locks::end_all(&mut session, &channel, claimant, workers.into_iter()).await?;
            session.close().await;
            Result::Ok(())
        };
        match tokio::time::timeout(KILL_PATIENCE, end).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "the target's sessions can't be killed"),
            Err(_) => debug!("the target did not answer, its sessions end on their own"),
        }
    }

    async fn apply_all(&mut self, stop: &CancellationToken) -> Result<()> {
        self.keeper.begin().await?;
        self.keeper.note_order(self.workers.options.preserve_commit_order).await?;
        // The number may have changed since the rows were made.
        self.retune().await?;
        // Before the first transaction is admitted, which may be that one.
        self.arrivals.begun = self.keeper.begun().await?;
        loop {
            self.admit_waiting();
            self.workers.shared.commits.may_begin(true);
            let resting = stop.is_cancelled() || self.tuning.borrow().paused;
            if resting {
                self.arrivals.give_up_open();
            }
            let allowed = if resting { 0 } else { self.throttle.allowance(Instant::now()) };
            self.scheduler.allow(allowed);
            // Before anything of theirs is in a group that runs.
            while let Some(server) = self.arrivals.new_servers.pop_first() {
                self.keeper.follow(server).await?;
            }
            self.scheduler.set_workers(self.workers.permitted());
            self.hand_out(stop).await?;
            self.workers.shared.commits.may_begin(false);
            self.throttle.spend(allowed - self.scheduler.allowance());
            let held_back = !resting && self.scheduler.allowance() == 0;
            let is_throttled = held_back && self.scheduler.waiting().0 > 0;
            self.workers.shared.status.throttled(is_throttled);
            // With nothing running no formed group is left: `hand_out` would have begun it.
            if self.workers.running.is_empty() {
                if stop.is_cancelled() || self.scheduler.is_at_end() {
                    return Ok(());
                }
                self.arrivals.check_open()?;
                if self.scheduler.is_idle() && self.arrivals.ended {
                    return Ok(());
                }
            }
            // At rest nothing is earned, so that the next check would be due for good.
            let next_check = self.throttle.next().filter(|_| is_throttled);
            self.wait(stop, next_check).await?;
        }
    }

    /// Admits the transactions that have arrived, without waiting: they join the next groups.
    fn admit_waiting(&mut self) {
        let mut now = None;
        while !self.scheduler.is_full()
            && let Some(next) = self.arrivals.next_now()
        {
            self.admit(next, *now.get_or_insert_with(Instant::now));
        }
        self.workers.shared.status.pending(&self.scheduler);
    }

    fn admit(&mut self, transaction: AdmittedTransaction, now: Instant) {
        let transaction = self.arrivals.note(transaction, now, &self.keeper);
        self.scheduler.admit(transaction);
    }

    /// Gives every idle worker a group, as far as there are groups.
    async fn hand_out(&mut self, stop: &CancellationToken) -> Result<()> {
        while let Some(group) = self.scheduler.next_group() {
            self.workers.shared.status.started(&group);
            self.workers.shared.commits.handed_out();
            if group.verdict().may_share_a_group() {
                let Some(worker) = self.workers.take() else {
                    return Err(Error::Broken(Invariant::GroupHasWorker));
                };
                self.workers.start(worker, group);
                continue;
            }
            let group = Arc::new(group);
            let begun = Instant::now();
            // Awaited here: the scheduler lets no other group run beside it.
            self.statements.apply(&mut self.keeper, &group, stop).await?;
            self.workers.shared.status.executed(&group, begun);
            // Recorded before the turn passes; `committed` opens the intake's barrier last.
            self.workers.shared.commits.record(&group.transactions);
            self.workers.shared.committed(group.sequence);
            self.committed(&group);
        }
        Ok(())
    }

    /// Waits for something to do. The throttle lets more begin at `next_check`; `None` if it holds nothing back.
    async fn wait(&mut self, stop: &CancellationToken, next_check: Option<Instant>) -> Result<()> {
        // Here, when everything that has arrived is on its way.
        self.keep_up().await?;
        let generation = self.workers.shared.generation.clone();
        let mut is_suspect = false;
        let hungry = !self.arrivals.ended && !self.scheduler.is_full();
        let busy = !self.workers.running.is_empty();
        // In a fixed order, so that a simulation can repeat a run; the rare ones first, which can't keep the
        // others from their turn.
        tokio::select! {
            biased;
            () = stop.cancelled(), if !stop.is_cancelled() => {}
            Ok(()) = self.tuning.changed() => self.retune().await?,
            () = generation.suspected() => is_suspect = true,
            () = tokio::time::sleep_until(self.upkeep.look_at), if busy => {
                self.resolve_lock_inversion().await;
                self.upkeep.look_at = Instant::now() + lock_inversion::INTERVAL;
            }
            () = sleep_until(next_check), if next_check.is_some() => {}
            finished = self.workers.running.join_next(), if busy => {
                if let Some(finished) = finished {
                    self.finished(finished)?;
                }
            }
            // It receives nothing if another branch wins, so no transaction is lost.
            batch = self.arrivals.receive(), if hungry => {
                let now = Instant::now();
                for next in batch {
                    self.admit(next, now);
                }
            }
            () = tokio::time::sleep(LEVEL_INTERVAL), if !busy => {}
        }
        if is_suspect {
            self.upkeep.pinged = Instant::now();
            // No ping: a worker may have been refused a write, where reads still succeed.
            self.keeper.look_writable().await?;
        }
        Ok(())
    }

    /// Does what is due for the channel's own session and rows.
    async fn keep_up(&mut self) -> Result<()> {
        self.keeper.end_lost(self.workers.with_rows).await?;
        let interval = if self.upkeep.is_level { LEVEL_INTERVAL } else { LEVEL_AGAIN };
        if self.upkeep.levelled.elapsed() >= interval {
            self.level().await?;
            self.upkeep.levelled = Instant::now();
        }
        if self.upkeep.pinged.elapsed() >= self.workers.options.ping_interval() {
            self.upkeep.pinged = Instant::now();
            self.keeper.keep_alive().await?;
        }
        self.shown.note(&mut self.keeper, !self.workers.running.is_empty()).await
    }

    fn finished(
        &mut self,
        finished: std::result::Result<Finished, tokio::task::JoinError>,
    ) -> Result<()> {
        let Finished { worker, group, outcome } = match finished {
            Ok(finished) => finished,
            Err(source) => return Err(Error::Task { task: "a worker", source }),
        };
        self.workers.put_back(worker);
        match outcome {
            Ok(()) => {
                self.committed(&group);
                Ok(())
            }
            Err(error) => {
                // It failed in its turn: those before it are committed, reported or not.
                while let Some(Ok(earlier)) = self.workers.running.try_join_next() {
                    if let Finished { group, outcome: Ok(()), .. } = earlier {
                        self.committed(&group);
                    }
                }
                Err(error)
            }
        }
    }

    fn committed(&mut self, group: &Group) {
        let mark = self.scheduler.committed(group);
        self.workers.shared.status.committed(group, mark);
        self.workers.shared.commits.finished(group);
        if group.followed().is_some() {
            self.arrivals.committed_open();
        }
        let (first, last) = group.span();
        debug!(
            sequence = group.sequence.get(),
            transactions = group.transactions.len(),
            rows = group.rows,
            %first, %last,
            "group committed"
        );
        if let Some(mark) = mark {
            // The relay store may purge up to the mark, which the target has committed by now.
            self.observer.low_water_mark(mark);
        }
    }

    async fn retune(&mut self) -> Result<()> {
        let Tuning { worker_count, throttle, .. } = *self.tuning.borrow_and_update();
        self.throttle.set(throttle, Instant::now());
        let wanted = worker_count.max(1);
        if wanted == self.workers.wanted {
            return Ok(());
        }
        // The rows come first: a worker without one would match none and take itself for fenced.
        self.keeper.add_workers(wanted).await?;
        info!(from = self.workers.wanted, to = wanted, "worker count changes");
        self.workers.resize(wanted);
        Ok(())
    }

    async fn level(&mut self) -> Result<()> {
        match self.keeper.level().await {
            Err(error) if error.class() == ErrorClass::Unavailable => {
                self.keeper.look_writable().await
            }
            // A lock of others or a deadlock: a later one states the same and more.
            Err(error) if error.is_passing() || error.is_brief() => {
                if std::mem::take(&mut self.upkeep.is_level) {
                    warn!(%error, "the target's gtid_executed and the checkpoint differ, trying again");
                }
                Ok(())
            }
            Ok(()) => {
                self.upkeep.is_level = true;
                Ok(())
            }
            other => other,
        }
    }

    async fn resolve_lock_inversion(&mut self) {
        let Workers { target, options, shared, .. } = &self.workers;
        let is_source = target.gtids == TargetGtids::Source;
        let under_gtids = is_source.then_some(options.channel.as_str());
        let session = self.keeper.session();
        match self.locks.look(session, &shared.sessions, under_gtids).await {
            Ok(Some(holders)) => self.workers.shared.status.locked_by(holders),
            Ok(None) => {}
            Err(error) => lock_inversion::blind(&error, &shared.sessions),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at).await;
    }
}

/// A stop must not wait for a target that is away.
async fn gone_while_stopping(stop: &CancellationToken, target: &Reachability) {
    stop.cancelled().await;
    target.until_lost().await;
    warn!("stopped while the target is away; its checkpoint says how far it is");
}
