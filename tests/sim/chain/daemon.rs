//! A daemon from the source to the target, as `crates/daemon` puts it together.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use csa_applier::{
    Applier, ApplierStatus, CommitObserver, ControlSession, Converging, Error, HeldUntil, Intake,
    IntakeObserver, Standby, Target, Tuning,
};
use csa_daemon::observe::progress::{CollectedProgress, ProgressView};
use csa_provider::binlog::GtidSet;
use csa_provider::source::SourceStatus;
use csa_relaystore::disk::{RelayPosition, RelayStoreOptions};
use csa_relaystore::opening::RelayStore;
use csa_relaystore::read::RelayedTransaction;
use csa_scheduler::admission::Admission;
use csa_scheduler::intake::IntakeEnd;
use csa_scheduler::low_water::LowWaterMark;
use csa_scheduler::memory::EventMemory;
use csa_scheduler::until::{StreamEnd, Until, UntilGate};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::World;
use super::lag;
use super::machine::Machine;
use super::reception::{Received, Reception};
use crate::applying::daemon::{AGAIN, CHANNEL, applier_options, claim, look_at};
use crate::definitions::Definitions;
use crate::history::History;
use crate::life::{Disk, Door, Life};
use crate::oracle;
use crate::target::Server;

/// Transactions read ahead of the applier.
const READ_AHEAD: usize = 64;
/// Pause between two looks at a daemon from outside.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Daemon<'a> {
    pub(super) world: &'a World,
    machine: &'a Machine,
    pub(super) life: Life,
    target: Target,
    memory: EventMemory,
    until: UntilGate,
    status: Arc<SourceStatus>,
    progress: Arc<Mutex<CollectedProgress>>,
    tuning: watch::Sender<Tuning>,
}

/// The end of a pipeline, unless by an error of the applier.
enum End {
    Stopped,
    UntilReached(Until),
    Converged(Converging),
    LacksTables(Converging),
    Damaged(csa_relaystore::disk::Error, RelayPosition),
}

impl<'a> Daemon<'a> {
    pub(super) fn new(world: &'a World, machine: &'a Machine, life: Life) -> Self {
        let door = Door { life: life.clone(), server: world.server.clone() };
        let workers = world.settings.workers;
        let tuning = Tuning { worker_count: workers, paused: false, throttle: None };
        let mut progress = CollectedProgress::default();
        progress.expect_heartbeats(world.heartbeat_interval());
        Self {
            world,
            machine,
            life,
            target: Target::new(world.target_options(), door),
            memory: EventMemory::new(world.memory_limit),
            until: UntilGate::new(world.until.lock().clone()),
            status: Arc::default(),
            progress: Arc::new(Mutex::new(progress)),
            tuning: watch::Sender::new(tuning),
        }
    }

    /// Runs pipelines until one ends with an error that the daemon leaves to its operator.
    pub(super) async fn run(&self, random: &mut StdRng) -> Error {
        let files = Disk { life: self.life.clone(), files: self.machine.disk.clone() };
        let options = RelayStoreOptions { files: Arc::new(files), ..self.world.relay.clone() };
        let mut reception =
            Reception::new(self.world, self.machine, options, Arc::clone(&self.status))
                .seen_by(Arc::clone(&self.progress));
        loop {
            self.copy_again().await;
            let (control, converging) = match self.taken(&mut reception).await {
                Ok(taken) => taken,
                Err(error) => return error,
            };
            let executed = control.checkpoint().executed.clone();
            let received = match reception.attach(&executed, control.foreign()).await {
                Ok(received) => received,
                Err(error) => self.refused(&error).await,
            };
            self.machine.applies(&self.life, control.checkpoint().epoch);
            // An operator stops the channel and starts it again.
            let stop = CancellationToken::new();
            let stops = async {
                if random.random_bool(0.3) {
                    sleep(Duration::from_millis(random.random_range(0..10_000))).await;
                    stop.cancel();
                } else if let Some(time) = self.round_after() {
                    sleep(time).await;
                    stop.cancel();
                }
                std::future::pending().await
            };
            let end = tokio::select! {
                biased;
                end = Box::pin(self.pipeline(control, converging, &received, &stop)) => end,
                never = self.pauses() => match never {},
                never = stops => never,
            };
            drop(received);
            self.machine.applies_no_more();
            self.progress.lock().detach();
            match end {
                Ok(End::Stopped) => {}
                Ok(End::UntilReached(until)) => self.reached(&until),
                Ok(End::Converged(converging)) => self.complete(&converging).await,
                Ok(End::LacksTables(converging)) => self.make_missing(&converging).await,
                Ok(End::Damaged(error, transaction)) => {
                    assert!(self.machine.may_be_damaged(), "{error}, in {transaction:?}");
                    if let Err(error) = reception.discard(transaction).await {
                        self.refused(&error).await
                    }
                }
                Err(Error::Older { .. } | Error::NotWhole { .. }) => {}
                // It stands by from now on.
                Err(Error::Fenced { .. }) if self.world.settings.standby => {
                    reception.end().await;
                }
                Err(error) => return error,
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Takes the channel, and receives meanwhile.
    async fn taken(
        &self,
        reception: &mut Reception<'_>,
    ) -> Result<(ControlSession, Option<Converging>), Error> {
        loop {
            let opened = async {
                let found = loop {
                    if self.world.settings.standby {
                        self.stand_by(reception).await?;
                    }
                    let found = look_at(&self.target).await?;
                    match &self.world.copies {
                        Some(copies) if copies.is_first && found.checkpoint.is_none() => {
                            self.copy_first(copies, reception).await;
                        }
                        _ => break found,
                    }
                };
                let World { settings, .. } = self.world;
                let control = claim(&self.target, self.machine.identity, settings, &found).await?;
                let converging = control.converging();
                Ok((control, converging))
            };
            match opened.await {
                // Another one was faster.
                Err(Error::Held { by_another: true, .. } | Error::Fenced { .. })
                    if self.world.settings.standby => {}
                Err(error) if error.class().is_failure() => return Err(error),
                Err(_) if self.world.settings.standby => sleep(AGAIN).await,
                Err(_) => {
                    if let Err(error) = reception.resume().await {
                        self.refused(&error).await
                    }
                    sleep(AGAIN).await;
                }
                Ok(taken) => return Ok(taken),
            }
        }
    }

    /// Waits while another daemon holds the channel.
    async fn stand_by(&self, reception: &mut Reception<'_>) -> Result<(), Error> {
        let mut standby = Standby::open(&self.target, CHANNEL, self.machine.identity).await?;
        while standby.holder().await?.is_some() {
            reception.end().await;
            self.progress.lock().given_up();
            sleep(LOOK).await;
        }
        standby.close().await;
        Ok(())
    }

    /// The store can't be opened, because the process is being killed.
    async fn refused(&self, error: &csa_relaystore::disk::Error) -> ! {
        assert!(self.life.is_over(), "the relay store: {error}");
        std::future::pending().await
    }

    async fn pipeline(
        &self,
        control: ControlSession,
        converging: Option<Converging>,
        received: &Received,
        stop: &CancellationToken,
    ) -> Result<End, Error> {
        let World { settings, .. } = self.world;
        let commits = control.commits();
        let executed = control.checkpoint().executed.clone();
        let epoch = control.checkpoint().epoch;
        if let (Some(converging), Some(copies)) = (&converging, &self.world.copies)
            && copies.driven(self.world, &self.life).lacks_tables(converging).expect("readable")
        {
            control.close().await;
            return Ok(End::LacksTables(converging.clone()));
        }
        let end_of_copy = converging.as_ref().and_then(|converging| converging.until.clone());
        let gate = match end_of_copy {
            Some(until) => UntilGate::new(Some(Until::AfterGtids(until))),
            None => self.until.clone(),
        };
        if let Some(until) = gate.begin(&executed) {
            control.close().await;
            return Ok(reached(until, converging));
        }
        let environment = self.world.environment(self.machine);
        let mut options = applier_options(settings, &environment);
        if let (Some(converging), Some(copies)) = (&converging, &self.world.copies) {
            let tables = copies.driven(self.world, &self.life).converging_tables(converging);
            let tables = tables.unwrap_or_else(|failure| panic!("{}", failure.text));
            options.converging = Some(Arc::new(tables));
        }
        let status = ApplierStatus::new(
            commits.clone(),
            control.reachability(),
            options.executor,
            Arc::clone(&environment.clock),
        );
        let status = Arc::new(status);
        self.progress.lock().attach(&commits, &status);
        let (sender, stream) = mpsc::channel(READ_AHEAD);
        let end = CancellationToken::new();
        let _end_on_drop = end.clone().drop_guard();
        let reading = Arc::new(AtomicUsize::new(0));
        let definitions = Definitions::of(&self.world.server);
        let definitions = match self.world.may_lose {
            0 => definitions.checked(Arc::clone(&self.world.history), Arc::clone(&reading)),
            _ => definitions,
        };
        let (_delay, delays) = watch::channel(self.world.delay);
        let intake = Intake {
            reader: received.store.reader(executed),
            memory: self.memory.clone(),
            admission: Admission::new(definitions).as_logged(converging.is_some()),
            begin_early: self.world.early.from,
            delay: delays,
            until: gate.clone(),
            tuning: self.tuning.subscribe(),
            reception: received.end.clone(),
            statements: commits.statements(),
            sender,
            observer: Reading {
                place: reading,
                history: Arc::clone(&self.world.history),
                status: Arc::clone(&self.status),
                progress: Arc::clone(&self.progress),
                begun: Arc::clone(&self.world.early.begun),
            },
            clock: Arc::clone(&environment.clock),
            end: end.clone(),
        };
        let intake = tokio::spawn(intake.run());
        let is_checked = self.world.may_lose == 0 && !self.machine.may_be_damaged();
        let applier = Applier::new(
            control,
            self.target.clone(),
            options,
            settings.limits,
            gate.clone(),
            self.tuning.subscribe(),
            status,
            stream,
            Purge {
                store: Arc::clone(&received.store),
                server: is_checked.then(|| self.world.server.clone()),
            },
        );
        let outcome = applier.run(stop.clone(), CancellationToken::new()).await;
        end.cancel();
        let intake = intake.await.expect("no panic");
        let executed = commits.executed();
        if outcome.is_err() || stop.is_cancelled() {
            gate.rest(&executed);
            return match outcome {
                // The stop ended a statement's wait for a lock.
                Err(Error::Stopping) if stop.is_cancelled() => Ok(End::Stopped),
                outcome => outcome.map(|()| End::Stopped),
            };
        }
        let read_to = match &intake {
            IntakeEnd::Until(until) => Some(until),
            _ => None,
        };
        if let StreamEnd::Until(until) = gate.end(&executed, read_to) {
            return Ok(reached(until, converging));
        }
        match intake {
            IntakeEnd::Damaged { error, transaction } => Ok(End::Damaged(error, transaction)),
            // Another daemon has taken the channel over, and this one does not know it yet: the source
            // may have purged what the other has applied.
            IntakeEnd::Reception(_)
                if self.world.server.with_state(oracle::epoch) > epoch as i64 =>
            {
                Ok(End::Stopped)
            }
            other if !self.life.is_over() => panic!("the intake ended: {other:?}"),
            _ => std::future::pending().await,
        }
    }

    /// The channel has stopped at its end; its operator lets it continue.
    fn reached(&self, until: &Until) {
        let applied = self.world.server.with_state(oracle::checkpoint).unwrap_or_default();
        let (is_there, is_exact) = match until {
            // A crash may take commits back between the end and this look.
            Until::AfterGtids(set) => {
                (set.is_subset_of(&applied) || self.world.may_lose > 0, applied.is_subset_of(set))
            }
            Until::BeforeGtids(set) => (true, !set.intersects(&applied)),
            Until::BeforeTime(_) | Until::BeforeTimeWithin(..) => (true, true),
        };
        assert!(is_there && is_exact, "stopped {until} with {applied}");
        *self.world.until.lock() = None;
        self.until.set(None).expect("no end is past");
    }

    /// An operator pauses the applier now and then. A rate beside it must not keep it from its rest.
    async fn pauses(&self) -> Infallible {
        let mut random = StdRng::seed_from_u64(self.world.case.seed ^ 0x9a05e);
        let left = [0, 0, 2][random.random_range(0..3)];
        for _ in 0..left {
            for paused in [true, false] {
                sleep(Duration::from_millis(random.random_range(0..10_000))).await;
                let throttle = NonZeroU32::new(1).filter(|_| paused);
                self.tuning
                    .send_modify(|tuning| (tuning.paused, tuning.throttle) = (paused, throttle));
            }
        }
        std::future::pending().await
    }

    /// Looks at the daemon from outside.
    pub(super) async fn watch(&self) -> Infallible {
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            self.machine.look();
            let lag = lag::judged(self.world, self.machine, &self.seen());
            let (held, peak, _) = self.memory.usage();
            let limit = self.world.memory_bound;
            assert!(peak <= limit, "{peak} bytes of events in memory, of {limit}");
            let all = self.world.history.transactions.len();
            let is_all = self.world.server.with_state(oracle::applied) == Some(all);
            self.machine.leaves(if is_all { held } else { 1 }, lag);
        }
    }

    /// The progress that the daemon shows; a part of it is found by looking, as in `crates/daemon`.
    fn seen(&self) -> ProgressView {
        let source = self.status.view();
        let mut progress = self.progress.lock();
        if let Some(search) = progress.search().filter(|_| !self.life.is_over()) {
            let found = search.run();
            progress.found(&search, found);
        }
        progress.view(source)
    }
}

fn reached(until: Until, converging: Option<Converging>) -> End {
    match converging.filter(|converging| converging.until.is_some()) {
        Some(converging) => End::Converged(converging),
        None => End::UntilReached(until),
    }
}

/// Notes what is being read.
struct Reading {
    place: Arc<AtomicUsize>,
    history: Arc<History>,
    status: Arc<SourceStatus>,
    progress: Arc<Mutex<CollectedProgress>>,
    begun: Arc<AtomicUsize>,
}

impl IntakeObserver for Reading {
    fn read(&mut self, relayed: &RelayedTransaction) {
        if relayed.followed().is_some() {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        self.place.store(self.history.index_of(&relayed.header.gtid), Ordering::Relaxed);
        self.progress.lock().read(relayed);
    }

    fn read_to_end(&mut self, transactions: u64, bytes: u64) {
        self.progress.lock().read_to_end(transactions, bytes);
    }

    fn held_back(&mut self, held: Option<HeldUntil>) {
        self.progress.lock().held_back(held);
    }

    fn clock_ahead(&self) -> i64 {
        self.status.clock_ahead()
    }
}

/// Releases up to the low-water mark, which is never ahead of the target.
struct Purge {
    store: Arc<RelayStore>,
    server: Option<Server>,
}

impl CommitObserver for Purge {
    fn low_water_mark(&mut self, mark: LowWaterMark) {
        let Some(position) = mark.released else { return };
        self.store.release(position);
        if let Some(server) = &self.server {
            let executed = server.with_state(|state| {
                let mut executed: GtidSet = oracle::checkpoint(state).unwrap_or_default();
                // Under the source's GTIDs the checkpoint has the target's own as well.
                executed.union(&state.executed);
                executed
            });
            // Another daemon may have applied more than was received here.
            let here = executed.intersection(&self.store.received_so_far());
            assert!(self.store.follows(&here), "purged what the target lacks; it has {executed}");
        }
    }
}
