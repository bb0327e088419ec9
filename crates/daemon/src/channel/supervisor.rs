//! Starts, stops and restarts a channel: its runs ("lives"), one after the other.
//!
//! A stop waits until running groups are committed (`Applier::run`, crates/applier/src/applier.rs), for at most
//! `stop_timeout` or the time that the command names (`patience`, admin/api/control.rs). The rest is given up
//! then, which takes another 2 s at most. After that the intake's thread ends (`Pipeline::run`), and with
//! `--receiving` reception, whose writer syncs what it has.

mod commands;
mod enders;
mod ending;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, error, warn};

use self::enders::Enders;
use super::describe::state::Phase;
use super::error::ChannelError;
use super::lifetime::Channel;
use super::live_settings::Controls;
use super::prepare::KeptPreflight;
use super::reception::Reception;
use super::refusal::Refusal;
use super::rounds::status::RoundsStatus;
use super::traced::Traced;
use super::watch::Watch;
use crate::config::ChannelSettings;
use crate::host::logging::channel_span;
use crate::host::{caught, now_micros};
use crate::notify::{Tally, WatchedChannel};
use crate::observe::view::{ChannelState, ChannelView, VerifyView};

/// A channel as an operator handles it.
#[derive(Debug)]
pub(crate) struct Supervisor {
    name: String,
    /// Unique in the process: a channel that was removed and added again has another one.
    instance: u64,
    /// Around all that the channel does, so that each line of the log names it.
    span: Span,
    watch: Watch,
    controls: Controls,
    settings: KeptSettings,
    // Held through a whole command, so that commands follow one another. Taken before every other
    // lock here and in reception.
    state: AsyncMutex<RunState>,
    enders: Enders,
    reception: Arc<Reception>,
    process: ProcessEnd,
    hindrance: Hindrance,
    kept: Arc<KeptPreflight>,
    /// Figures of the events that are sent.
    tally: Arc<Tally>,
    rounds: RoundsStatus,
}

/// The settings, which a reload may change.
#[derive(Debug)]
struct KeptSettings {
    /// The settings for the next start, from the last one on.
    next: Mutex<Arc<ChannelSettings>>,
    started_with: Mutex<Arc<ChannelSettings>>,
}

/// The end of the process: `stop` lets running groups finish, `kill` gives them up.
#[derive(Debug)]
struct ProcessEnd {
    stop: CancellationToken,
    kill: CancellationToken,
}

/// The reason why the channel must not start, changed under `state`.
#[derive(Debug, Default)]
struct Hindrance {
    /// It is no longer in the configuration; set for good.
    removed: CancellationToken,
    /// In a fleet it must not run here, for this reason.
    elsewhere: Mutex<Option<Elsewhere>>,
}

/// The reason why a channel of a fleet must not run here.
#[derive(Debug, Clone)]
struct Elsewhere {
    /// The reason in words.
    detail: String,
    /// This daemon may be about to claim it.
    is_joining: bool,
}

#[derive(Debug)]
struct RunState {
    life: Option<Life>,
    /// Result of the last run.
    outcome: Result<(), String>,
    /// The number of the last stop that was asked for.
    stops: u64,
}

/// The end of a channel's run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    /// All running groups finished.
    pub(crate) drained: bool,
    /// The number of the last stop.
    pub(crate) number: u64,
}

/// A run of the channel.
#[derive(Debug)]
struct Life {
    stop: CancellationToken,
    kill: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

type Done<T> = Result<T, Refusal>;

/// The longest wait for a relay store to write what is in memory only.
const RELAY_PATIENCE: Duration = Duration::from_secs(2);

impl Supervisor {
    pub(crate) fn new(
        settings: ChannelSettings,
        stop: CancellationToken,
        kill: CancellationToken,
    ) -> Self {
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        let controls = Controls::new(&settings);
        let settings = Arc::new(settings);
        let watch = Watch::new(&settings, controls.clone());
        Self {
            name: settings.name.clone(),
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            span: channel_span(&settings.name),
            reception: Arc::new(Reception::new(watch.clone(), settings.directory(), stop.clone())),
            watch,
            controls,
            settings: KeptSettings {
                started_with: Mutex::new(Arc::clone(&settings)),
                next: Mutex::new(settings),
            },
            state: AsyncMutex::new(RunState {
                life: None,
                outcome: Ok(()),
                // No stop of an earlier process has a number of this one.
                stops: now_micros(),
            }),
            enders: Enders::default(),
            process: ProcessEnd { stop, kill },
            hindrance: Hindrance::default(),
            kept: Arc::default(),
            tally: Arc::default(),
            rounds: RoundsStatus::default(),
        }
    }

    /// Returns a channel of a fleet, which no daemon may run before it has claimed it.
    pub(crate) fn unclaimed(self) -> Self {
        self.show_joining("joining the fleet");
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number that tells this channel from earlier and later ones of its name.
    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    pub(crate) fn view(&self) -> ChannelView {
        self.completed(self.watch.view())
    }

    /// Adds what the watch does not know.
    fn completed(&self, mut view: ChannelView) -> ChannelView {
        // What was compared before another daemon had the channel is not true any more.
        let is_elsewhere = view.state == ChannelState::Standby;
        let verify = self.rounds.view();
        view.verify = if is_elsewhere { verify.map(VerifyView::without_result) } else { verify };
        view.notify = self.controls.notify().is_set().then(|| self.tally.view());
        view.is_joining = self.hindrance.is_joining();
        view
    }

    /// Waits until the files of the relay store have all that it has, for somebody who reads them.
    pub(crate) async fn write_relay_files(&self) {
        if let Some(store) = self.watch.store() {
            store.write_out(RELAY_PATIENCE).await;
        }
    }

    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn rounds(&self) -> &RoundsStatus {
        &self.rounds
    }

    /// Returns what the events of the channel depend on; `None` if they have no receiver.
    pub(crate) fn watched(&self) -> Option<WatchedChannel> {
        let notify = Some(self.controls.notify()).filter(|notify| notify.is_set())?;
        let folder = self.started_with().directory().to_owned();
        let tally = Arc::clone(&self.tally);
        let view = self.completed(self.watch.view_without_sets());
        Some(WatchedChannel { view, notify, tally, folder })
    }

    /// It has stopped at its end (`until`), and not on request.
    pub(crate) fn has_stopped_at_end(&self) -> bool {
        self.controls.until().has_stopped()
    }

    /// It was ours at least once: lock, checkpoint and relay store.
    pub(crate) fn is_taken(&self) -> bool {
        self.watch.is_taken()
    }

    /// Returns true while an operator keeps the channel from applying, or a command is under way that may do so.
    pub(crate) fn is_held(&self) -> bool {
        self.is_kept_from_applying() || self.state.try_lock().is_err()
    }

    fn is_kept_from_applying(&self) -> bool {
        self.controls.paused().is_some() || self.watch.is_in(Phase::Stopped)
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
        Arc::clone(&self.settings.next.lock())
    }

    /// Returns the settings of the current run, or of the last.
    pub(crate) fn started_with(&self) -> Arc<ChannelSettings> {
        Arc::clone(&self.settings.started_with.lock())
    }

    pub(crate) fn set_settings(&self, settings: ChannelSettings) {
        *self.settings.next.lock() = Arc::new(settings);
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
        *self.hindrance.elsewhere.lock() = None;
        if !state.is_alive() && self.check_present().is_ok() {
            self.begin(&mut state);
        }
    }

    /// Says why the channel does not run here; for one that does not.
    pub(crate) fn show_elsewhere(&self, detail: &str) {
        self.hindrance.set_elsewhere(detail, false);
        self.span.in_scope(|| self.watch.standing_by(detail));
    }

    /// Says why the channel does not run yet; for one that this daemon may be about to claim.
    pub(crate) fn show_joining(&self, detail: &str) {
        self.hindrance.set_elsewhere(detail, true);
        self.span.in_scope(|| self.watch.standing_by(detail));
    }

    /// Lets reception begin again after an end that has passed, or where a stop came while its store was opened again, if
    /// the channel does not run; a running one sees to it itself.
    pub(crate) async fn keep_receiving(&self) {
        // A command that is under way decides for itself.
        let is_at_rest = self.state.try_lock().is_ok_and(|state| !state.is_alive());
        if !is_at_rest {
            return;
        }
        let settings = self.started_with();
        let received = async {
            self.reception.revive(&settings).await?;
            self.reception.reopen(&settings).await
        };
        if let Err(error) = received.instrument(self.span.clone()).await {
            warn!(channel = self.name, %error, "reception can't begin again");
        }
    }

    fn begin(&self, state: &mut RunState) {
        let channel = self.channel();
        let before = std::mem::replace(
            &mut *self.settings.started_with.lock(),
            Arc::clone(&channel.settings),
        );
        // A value set by hand remains, unless the file has changed since.
        // Before the task, which begins at the gate with the end of this run.
        let until = &channel.settings.until;
        self.controls.until().start((*until != before.until).then(|| until.clone()));
        let (stop, kill) = (self.process.stop.child_token(), self.process.kill.child_token());
        let watch = self.watch.clone();
        // Before the task, whose reports it would overwrite.
        watch.starting(&channel.settings);
        let name = self.name.clone();
        let (stopping, killing) = (stop.clone(), kill.clone());
        let life = async move {
            let run = caught(async move { channel.run(stopping, killing).await });
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

    /// Lets running groups finish for at most `patience`, then gives up the rest. Reception continues unless `all` is
    /// set. A stop of a channel that is stopped already has a number, too, unless that `may_be_stopped`.
    ///
    /// # Errors
    /// The channel does not run.
    pub(crate) async fn stop(
        &self,
        patience: Duration,
        all: bool,
        may_be_stopped: bool,
    ) -> Done<Stopped> {
        let mut state = self.state_to_end(patience).await;
        let alive = state.is_alive();
        // Reception that has ended for good holds the relay store, which a copy empties.
        let holds = all && self.reception.holds_store().await;
        if alive || holds || !may_be_stopped {
            state.stops += 1;
        }
        if !alive && !holds && !may_be_stopped {
            return Err(self.not_running("restart it to resume"));
        }
        // The applier first: a store that it still reads stays locked, and the next start would
        // have to wait for it.
        let drained = !alive || self.end(&mut state, patience).await;
        if all {
            self.end_reception().await;
        }
        Ok(Stopped { drained, number: state.stops })
    }

    /// Stops the channel if it runs, and starts it; with `all`, reception restarts too. Returns whether all running
    /// groups finished.
    ///
    /// # Errors
    /// The daemon is stopping, or somebody has stopped the channel since the stop `if_stopped_by`.
    pub(crate) async fn restart(
        &self,
        patience: Duration,
        all: bool,
        if_stopped_by: Option<u64>,
    ) -> Done<bool> {
        let mut state = self.state_to_end(patience).await;
        self.check_present()?;
        // Somebody who wants it to run has started one that does.
        if !state.is_alive() && if_stopped_by.is_some_and(|number| number != state.stops) {
            let error = format!("channel {}: another command has stopped it since", self.name);
            return Err(Refusal::state(error, "restart it to resume"));
        }
        let drained = !state.is_alive() || self.end(&mut state, patience).await;
        if all {
            self.end_reception().await;
        }
        self.begin(&mut state);
        Ok(drained)
    }

    /// Restarts the channel for changed settings, unless it was stopped on request since that was decided, or another
    /// command has it for longer than `patience`. Returns whether it did.
    pub(crate) async fn restart_unless_stopped(&self, patience: Duration) -> bool {
        // A stop keeps the time that it was given, and other reloads don't wait for that.
        let Ok(mut state) = tokio::time::timeout(patience, self.state.lock()).await else {
            return false;
        };
        // A run that ended on its own is still there.
        if state.life.is_none() || self.check_present().is_err() {
            return false;
        }
        self.end(&mut state, patience).await;
        self.begin(&mut state);
        true
    }

    /// Stops everything for good, and leaves its state: relay store, identity, checkpoint. True if all
    /// running groups finished.
    pub(crate) async fn remove(&self, patience: Duration) -> bool {
        let mut state = self.state_to_end(patience).await;
        self.hindrance.removed.cancel();
        let drained = !state.is_alive() || self.end(&mut state, patience).await;
        self.end_reception().await;
        drained
    }

    /// Returns true for a channel that is removed, or was to be: it never starts again.
    pub(crate) fn is_removed(&self) -> bool {
        self.hindrance.removed.is_cancelled()
    }

    async fn end_reception(&self) {
        self.reception.end().instrument(self.span.clone()).await;
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
}

impl Hindrance {
    fn set_elsewhere(&self, detail: &str, is_joining: bool) {
        *self.elsewhere.lock() = Some(Elsewhere { detail: detail.to_owned(), is_joining });
    }

    fn is_joining(&self) -> bool {
        self.elsewhere.lock().as_ref().is_some_and(|elsewhere| elsewhere.is_joining)
    }
}

impl RunState {
    fn is_alive(&self) -> bool {
        self.life.as_ref().is_some_and(|life| !life.task.is_finished())
    }
}

#[cfg(test)]
pub(super) mod tests;
