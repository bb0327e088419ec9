//! Starts, stops and restarts a channel: its runs ("lives"), one after the other.
//!
//! A stop waits until running groups are committed (`Applier::run`, crates/applier/src/applier.rs), for at most
//! `stop_timeout` or the time that the command names (`patience`, admin/api/control.rs). The rest is given up
//! then, which takes another 2 s at most. After that the intake's thread ends (`Pipeline::run`), and with
//! `--receiving` reception, whose writer syncs what it has.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{AuditEntry, ChannelClaim, ControlSession};
use csa_provider::binlog::{Gtid, GtidSet};
use csa_scheduler::until::Until;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, error, info};

use super::error::ChannelError;
use super::identity::Identity;
use super::lifetime::Channel;
use super::live_settings::Controls;
use super::live_settings::Paused;
use super::prepare::KeptPreflight;
use super::reception::Reception;
use super::refusal::Refusal;
use super::rounds::{self, RoundsStatus};
use super::traced::Traced;
use super::watch::Watch;
use crate::config::{ChannelSettings, written_rules};
use crate::host::{Sender, logging::channel_span};
use crate::notify::{Tally, WatchedChannel};
use crate::observe::view::ChannelView;

/// How often a wait checks the target's progress.
const LOOK: Duration = Duration::from_millis(20);

/// More than enough: a run that pauses between attempts notices a stop at once.
const END_OF_A_PAUSE: Duration = Duration::from_secs(10);

/// A channel as an operator handles it.
#[derive(Debug)]
pub(crate) struct Supervisor {
    name: String,
    /// Around all that the channel does, so that each line of the log names it.
    span: Span,
    watch: Watch,
    controls: Controls,
    /// The settings for the next start, from the last one on.
    settings: Mutex<Arc<ChannelSettings>>,
    started_with: Mutex<Arc<ChannelSettings>>,
    // Held through a whole command, so that commands follow one another. Taken before every other
    // lock here and in reception.
    state: AsyncMutex<RunState>,
    reception: Arc<Reception>,
    /// The process's: `stop` lets running groups finish, `kill` gives them up.
    stop: CancellationToken,
    kill: CancellationToken,
    /// No longer in the configuration; set under `state`, for good.
    removed: CancellationToken,
    /// In a fleet: why the channel must not run here, in words; changed under `state`.
    elsewhere: Mutex<Option<String>>,
    kept: Arc<KeptPreflight>,
    /// Figures of the events that are sent.
    tally: Arc<Tally>,
    rounds: RoundsStatus,
}

#[derive(Debug)]
struct RunState {
    life: Option<Life>,
    /// Result of the last run.
    outcome: Result<(), String>,
}

/// A run of the channel.
#[derive(Debug)]
struct Life {
    stop: CancellationToken,
    kill: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

type Done<T> = Result<T, Refusal>;

impl Supervisor {
    pub(crate) fn new(
        settings: ChannelSettings,
        stop: CancellationToken,
        kill: CancellationToken,
    ) -> Self {
        let controls = Controls::new(&settings);
        let settings = Arc::new(settings);
        let watch = Watch::new(&settings, controls.clone());
        Self {
            name: settings.name.clone(),
            span: channel_span(&settings.name),
            reception: Arc::new(Reception::new(watch.clone(), stop.clone())),
            watch,
            controls,
            started_with: Mutex::new(Arc::clone(&settings)),
            settings: Mutex::new(settings),
            state: AsyncMutex::new(RunState { life: None, outcome: Ok(()) }),
            stop,
            kill,
            removed: CancellationToken::new(),
            elsewhere: Mutex::default(),
            kept: Arc::default(),
            tally: Arc::default(),
            rounds: RoundsStatus::default(),
        }
    }

    /// Returns a channel of a fleet, which no daemon may run before it has claimed it.
    pub(crate) fn unclaimed(self) -> Self {
        self.show_elsewhere("joining the fleet");
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn view(&self) -> ChannelView {
        let mut view = self.watch.view();
        view.verify = self.rounds.view();
        view.notify = self.controls.notify().is_set().then(|| self.tally.view());
        view
    }

    pub(super) fn rounds(&self) -> &RoundsStatus {
        &self.rounds
    }

    /// Compares both servers from time to time, as the settings say. Never ends; may be dropped anywhere.
    pub(crate) async fn keep_compared(&self, permits: &Semaphore) {
        match rounds::keep(self, permits).instrument(self.span.clone()).await {}
    }

    /// Returns what the events of the channel depend on; `None` if they have no receiver.
    pub(crate) fn watched(&self) -> Option<WatchedChannel> {
        let notify = Some(self.controls.notify()).filter(|notify| notify.is_set())?;
        let folder = self.started_with().directory().to_owned();
        let tally = Arc::clone(&self.tally);
        Some(WatchedChannel { view: self.view(), notify, tally, folder })
    }

    /// It was ours at least once: lock, checkpoint and relay store.
    pub(crate) fn is_taken(&self) -> bool {
        self.watch.is_taken()
    }

    /// Begins to record a timeline; `None` while another client records one.
    pub(crate) fn trace(&self) -> Option<Traced> {
        Traced::start(&self.watch, &self.controls)
    }

    /// Measures the relay store's disk for the next view; blocks.
    pub(crate) fn measure_disk(&self) {
        self.watch.measure_disk();
    }

    /// Takes a sample of what keeps the channel busy; call it a few times a second.
    pub(crate) fn sample(&self) {
        self.watch.sample();
    }

    pub(crate) fn controls(&self) -> &Controls {
        &self.controls
    }

    /// Returns the settings for the next start.
    pub(crate) fn settings(&self) -> Arc<ChannelSettings> {
        Arc::clone(&self.settings.lock())
    }

    /// Returns the settings of the current run, or of the last.
    pub(crate) fn started_with(&self) -> Arc<ChannelSettings> {
        Arc::clone(&self.started_with.lock())
    }

    pub(crate) fn set_settings(&self, settings: ChannelSettings) {
        *self.settings.lock() = Arc::new(settings);
    }

    /// Checks both servers; writes nothing. Returns the reason why a server does not answer.
    ///
    /// # Errors
    /// One line that names the necessary change.
    pub(crate) async fn preflight(&self) -> Result<Option<String>, String> {
        self.channel().preflight().instrument(self.span.clone()).await
    }

    fn channel(&self) -> Channel {
        Channel {
            settings: self.settings(),
            watch: self.watch.clone(),
            controls: self.controls.clone(),
            reception: Arc::clone(&self.reception),
            kept: Arc::clone(&self.kept),
        }
    }

    /// Starts the channel if it does not run; a reload may have removed it meanwhile.
    pub(crate) async fn start(&self) {
        let mut state = self.state.lock().await;
        if !state.is_alive() && self.check_present().is_ok() {
            self.begin(&mut state);
        }
    }

    /// Starts a channel that this daemon has claimed.
    pub(crate) async fn claimed(&self) {
        let mut state = self.state.lock().await;
        *self.elsewhere.lock() = None;
        if !state.is_alive() && self.check_present().is_ok() {
            self.begin(&mut state);
        }
    }

    /// Ends a channel that this daemon gives away, with its reception; it starts again when it is claimed
    /// again.
    pub(crate) async fn give_away(&self, patience: Duration) {
        let mut state = self.state.lock().await;
        *self.elsewhere.lock() = Some("given away".to_owned());
        if state.is_alive() {
            self.end(&mut state, patience).await;
        }
        self.end_reception().await;
        self.show_elsewhere("given away");
    }

    /// Says why the channel does not run here; for one that does not.
    pub(crate) fn show_elsewhere(&self, detail: &str) {
        *self.elsewhere.lock() = Some(detail.to_owned());
        self.watch.standing_by(detail);
    }

    fn begin(&self, state: &mut RunState) {
        let channel = self.channel();
        let before =
            std::mem::replace(&mut *self.started_with.lock(), Arc::clone(&channel.settings));
        // A value set by hand remains, unless the file has changed since.
        // Before the task, which begins at the gate with the end of this run.
        let until = &channel.settings.until;
        self.controls.until().start((*until != before.until).then(|| until.clone()));
        let (stop, kill) = (self.stop.child_token(), self.kill.child_token());
        let watch = self.watch.clone();
        // Before the task, whose reports it would overwrite.
        watch.starting(&channel.settings);
        // A task inside a task: a panic fails this channel alone.
        let name = self.name.clone();
        let (stopping, killing) = (stop.clone(), kill.clone());
        let life = async move {
            let run = async move { channel.run(stopping, killing).await };
            let run = tokio::spawn(run.in_current_span());
            let outcome = run.await.unwrap_or_else(|panic| {
                let broke = ChannelError::State(format!("a task of the channel failed: {panic}"));
                watch.detach();
                watch.failed(&broke);
                Err(broke)
            });
            if let Err(error) = &outcome {
                error!(%error, "channel stopped");
            }
            outcome.map_err(|error| format!("channel {name:?}: {error}"))
        };
        let task = tokio::spawn(life.instrument(self.span.clone()));
        state.life = Some(Life { stop, kill, task });
    }

    /// Lets running groups finish for at most `patience`, then gives up the rest. Returns whether
    /// all finished. Reception continues unless `all` is set.
    ///
    /// # Errors
    /// The channel does not run.
    pub(crate) async fn stop(&self, patience: Duration, all: bool) -> Done<bool> {
        let mut state = self.state.lock().await;
        let alive = state.is_alive();
        let receives = all && self.reception.is_alive().await;
        if !alive && !receives {
            return Err(self.not_running("restart it to resume"));
        }
        // The applier first: a store that it still reads stays locked, and the next start would
        // have to wait for it.
        let drained = !alive || self.end(&mut state, patience).await;
        if all {
            self.end_reception().await;
        }
        Ok(drained)
    }

    /// Stops the channel if it runs, and starts it; with `all`, reception restarts too.
    ///
    /// # Errors
    /// The daemon is stopping.
    pub(crate) async fn restart(&self, patience: Duration, all: bool) -> Done<bool> {
        let mut state = self.state.lock().await;
        self.check_present()?;
        let drained = !state.is_alive() || self.end(&mut state, patience).await;
        if all {
            self.end_reception().await;
        }
        self.begin(&mut state);
        Ok(drained)
    }

    /// Stops everything for good, and leaves its state: relay store, identity, checkpoint. True if all
    /// running groups finished.
    pub(crate) async fn remove(&self, patience: Duration) -> bool {
        let mut state = self.state.lock().await;
        self.removed.cancel();
        let drained = !state.is_alive() || self.end(&mut state, patience).await;
        self.end_reception().await;
        drained
    }

    async fn end_reception(&self) {
        self.reception.end().instrument(self.span.clone()).await;
    }

    /// Returns whether all running groups finished.
    async fn end(&self, state: &mut RunState, patience: Duration) -> bool {
        // Commands run to their end (`to_its_end` in admin/api/control.rs): no dropped future leaves a
        // task that nothing waits for.
        let Some(mut life) = state.life.take() else { return true };
        self.span.in_scope(|| info!(?patience, "stopping: finishing running groups"));
        life.stop.cancel();
        let finished = tokio::time::timeout(patience, &mut life.task).await;
        let in_time = finished.is_ok();
        let ended = match finished {
            Ok(ended) => ended,
            Err(_) => {
                // The target rolls back what is given up; the next start applies it again.
                life.kill.cancel();
                life.task.await
            }
        };
        state.outcome = ended.unwrap_or_else(|panic| Err(panic.to_string()));
        in_time && !life.kill.is_cancelled()
    }

    /// Pauses or resumes the applier: while paused it begins nothing new.
    ///
    /// # Errors
    /// The channel does not run.
    pub(crate) async fn set_paused(&self, paused: Option<Paused>) -> Done<()> {
        let state = self.state.lock().await;
        self.check_target("a pause")?;
        if !state.is_alive() {
            return Err(self.not_running("restart it first"));
        }
        let is_paused = paused.is_some();
        self.controls.set_paused(paused);
        self.span.in_scope(|| info!(paused = is_paused, "pause changed"));
        Ok(())
    }

    /// Changes where the channel stops on its own, and resumes a channel that has stopped there.
    /// Returns the end before the change.
    ///
    /// # Errors
    /// The new end is already past; nothing was changed.
    pub(crate) async fn set_until(&self, until: Option<Until>) -> Done<Option<Until>> {
        let mut state = self.state.lock().await;
        self.check_present()?;
        self.check_target("an end")?;
        if self.started_with().applier.standby && until.is_some() {
            // It would stop here, and the other daemon would resume beyond it.
            return Err(Refusal::state(
                format!(
                    "channel {}: until: the daemon that stands by would not know it",
                    self.name
                ),
                "set applier.until in the files of all daemons of the channel, and restart it there",
            ));
        }
        let before = self.controls.until().get();
        let had_stopped = self.controls.set_until(until).map_err(|past| {
            Refusal::state(
                format!("channel {}: {past}", self.name),
                "name a later end, or use stop to end the channel where it is",
            )
        })?;
        if had_stopped {
            if let Some(life) = state.life.take() {
                // The run is at its end, so the wait is short.
                state.outcome = life.task.await.unwrap_or_else(|panic| Err(panic.to_string()));
            }
            self.begin(&mut state);
        }
        Ok(before)
    }

    /// Waits until no group runs, at most `patience`; returns whether none does.
    pub(crate) async fn wait_at_rest(&self, patience: Duration) -> bool {
        let rest = async {
            while !self.watch.is_at_rest() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(patience, rest).await.is_ok()
    }

    /// Records the transaction that stopped the channel as executed, and starts the channel.
    ///
    /// # Errors
    /// The channel runs, it stopped elsewhere, or the target refuses.
    pub(crate) async fn skip(&self, gtid: &Gtid, sender: &Sender) -> Done<()> {
        let mut state = self.state.lock().await;
        self.check_present()?;
        self.check_target("a skip")?;
        // Alive and failed: its start is refused and retried.
        if state.is_alive() && !self.watch.has_failed() {
            return Err(Refusal::state(
                format!(
                    "channel {} runs; only a transaction that stopped it can be skipped",
                    self.name
                ),
                "wait until it stops at a transaction, and skip that one",
            ));
        }
        let stopped_at = self.watch.stopped_at();
        if stopped_at.as_ref() != Some(gtid) {
            let (at, fix) = match stopped_at {
                Some(at) => (format!("stopped at {at}, not at {gtid}"), format!("skip {at}")),
                None => (
                    "did not stop at a transaction".to_owned(),
                    "last_error in its status names what has to be changed".to_owned(),
                ),
            };
            return Err(Refusal::state(format!("channel {} {at}", self.name), fix));
        }
        // A run whose start is retried may hold the identity's lock, which the skip needs.
        let is_retried = state.is_alive();
        if is_retried {
            self.end(&mut state, END_OF_A_PAUSE).await;
        }
        let settings = self.settings();
        let skipped = self.record_skip(&settings, gtid, sender).instrument(self.span.clone());
        let skipped = skipped.await.map_err(|error| Refusal {
            error: format!("channel {}: skipping {gtid}: {error}", self.name),
            fix: "nothing was skipped; try again when the target permits it".to_owned(),
            by_target: true,
        });
        // Dying here is harmless: the checkpoint has the GTID, the next start resumes after it.
        if skipped.is_ok() {
            self.watch.skipped();
        }
        if skipped.is_ok() || is_retried {
            self.begin(&mut state);
        }
        skipped
    }

    async fn record_skip(
        &self,
        settings: &ChannelSettings,
        gtid: &Gtid,
        sender: &Sender,
    ) -> Result<(), ChannelError> {
        let workers = self.controls.tuning().worker_count;
        let identity = Identity::claim(settings.directory())?;
        let mut control = ControlSession::open(
            &settings.target,
            &settings.name,
            workers,
            &ChannelClaim {
                identity: identity.name(),
                start: None,
                source_executed: None,
                source_uuid: None,
                filters: &written_rules(&settings.filters),
                standby: false,
            },
            // The skip executes no statement, so nothing has to be announced.
            true,
        )
        .await?;
        let entry = sender.entry(&self.name, "skip", String::new());
        let entry = AuditEntry { gtid: gtid.to_string(), ..entry };
        let skipped = control.skip(&settings.target, gtid, &entry).await;
        // Whatever the outcome: the next start would find the channel's lock held.
        control.close().await;
        if !skipped? {
            info!(%gtid, "was already executed");
        }
        Ok(())
    }

    /// Waits until everything in `set` is committed on the target, or archived without one; returns what is missing after
    /// `timeout`, or when the channel is removed. The wait continues while the channel is stopped, like
    /// the server's `WAIT_FOR_EXECUTED_GTID_SET`.
    pub(crate) async fn wait_for(&self, set: &GtidSet, timeout: Duration) -> GtidSet {
        let executed = async {
            // Polled, because pipelines come and go during the wait.
            while !self.watch.has_executed(set) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            waited = tokio::time::timeout(timeout, executed) => if waited.is_ok() {
                return GtidSet::new();
            },
            () = self.removed.cancelled() => {}
        }
        set.difference(&self.watch.executed())
    }

    /// Waits for the end of the channel, which the process's `stop` or `kill` causes.
    pub(crate) async fn finish(&self) -> Result<(), String> {
        let mut state = self.state.lock().await;
        // Under the lock: a command under way has ended, and a later one finds the daemon stopping.
        let outcome = match state.life.take() {
            Some(life) => life.task.await.unwrap_or_else(|panic| Err(panic.to_string())),
            None => std::mem::replace(&mut state.outcome, Ok(())),
        };
        self.end_reception().await;
        outcome
    }

    /// A command may have waited for the state while a reload removed the channel.
    fn check_present(&self) -> Done<()> {
        if self.removed.is_cancelled() {
            let error = format!("channel {} was removed from the configuration", self.name);
            return Err(Refusal::state(error, "add it there, and reload"));
        }
        if let Some(why) = self.refused_here() {
            return Err(why);
        }
        match self.stop.is_cancelled() {
            true => Err(Refusal::state("the daemon is stopping", "start the daemon again")),
            false => Ok(()),
        }
    }

    /// Returns the refusal of a command for a channel that another daemon of the fleet runs.
    fn refused_here(&self) -> Option<Refusal> {
        let detail = self.elsewhere.lock().clone()?;
        let fix =
            "csa-daemon fleet names the daemon that has the channel: send the command to that one";
        Some(Refusal::state(format!("channel {}: {detail}", self.name), fix))
    }

    /// Refuses a command that has no sense for a channel that only archives.
    pub(crate) fn check_target(&self, what: &str) -> Done<()> {
        let fix = "stop and restart end and begin a channel that only archives; wait waits until transactions are archived";
        self.started_with().check_target(what).map_err(|why| Refusal::state(why, fix))
    }

    fn not_running(&self, fix: &str) -> Refusal {
        if let Some(refused) = self.refused_here() {
            return refused;
        }
        let view = self.watch.view();
        Refusal::state(format!("channel {} is {}", self.name, view.state.name()), fix)
    }
}

impl RunState {
    fn is_alive(&self) -> bool {
        self.life.as_ref().is_some_and(|life| !life.task.is_finished())
    }
}
