//! Collects what is known of a channel while it runs; [`super::describe`] makes the view of it.

mod copy;
mod intake;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csa_applier::{ApplierDurations, ApplierStatus, Commits, TargetFacts};
use csa_provider::binlog::{Gtid, GtidSet};
use csa_provider::recorder::Span;
use csa_provider::seams::{Clock, SystemClock};
use csa_provider::source::SourceStatus;
use csa_relaystore::opening::RelayStore;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::copy_watch::CopyWatch;
use super::describe::bottleneck::Meter;
use super::describe::state::Phase;
use super::describe::{Facts, Rewinds, failure, snapshot};
use super::error::ChannelError;
use super::live_settings::{Controls, Paused};
use super::stage::Stage;
use super::start_steps::{StartStep, StartSteps};
use super::target_watch::TargetWatch;
use crate::archive::upload::ArchiveStatus;
use crate::config::ChannelSettings;
use crate::host::rfc3339;
use crate::observe::progress::{CollectedProgress, Moment};
use crate::observe::view::ChannelView;

/// Shared by everything that runs in a channel; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    shared: Arc<Watched>,
}

#[derive(Debug)]
struct Watched {
    name: String,
    controls: Controls,
    source: Arc<SourceStatus>,
    durations: Arc<ApplierDurations>,
    archive: Arc<ArchiveStatus>,
    /// The first group after the start is committed: its steps are complete.
    has_begun: AtomicBool,
    clock: Arc<dyn Clock>,
    // Taken before the locks of the store, the commits and the applier's status; whoever holds one
    // of those never calls back here.
    inner: Mutex<Observed>,
}

#[derive(Debug, Default)]
struct Observed {
    target: TargetWatch,
    /// A channel without a target has its archive and its relay store.
    has_archive: bool,
    progress: CollectedProgress,
    meter: Meter,
    stage: Stage,
    /// Something is received into the relay store.
    receiving: bool,
    /// Reception has begun, and nobody has ended it since: where it ended on its own, somebody has to act.
    is_wanted: bool,
    start: Option<StartSteps>,
    copy: CopyWatch,
    events: Events,
}

/// Events of a channel since the daemon's start.
#[derive(Debug, Default)]
struct Events {
    rewinds: Rewinds,
    /// Transactions recorded as executed on request.
    skipped: u64,
    /// Attempts of a channel that had failed.
    attempts: u64,
}

impl Watch {
    pub(super) fn new(settings: &ChannelSettings, controls: Controls) -> Self {
        Self {
            shared: Arc::new(Watched {
                name: settings.name.clone(),
                controls,
                source: Arc::default(),
                durations: Arc::default(),
                archive: Arc::default(),
                has_begun: AtomicBool::new(false),
                clock: Arc::new(SystemClock),
                inner: Mutex::new(Observed {
                    target: TargetWatch::of(settings),
                    ..Observed::default()
                }),
            }),
        }
    }

    /// The channel starts, or starts again.
    pub(super) fn starting(&self, settings: &ChannelSettings) {
        if settings.archive.is_none() {
            self.shared.archive.ends();
        }
        let mut inner = self.shared.inner.lock();
        inner.stage.start();
        inner.target = TargetWatch::of(settings);
        inner.progress.expect_heartbeats(settings.source.heartbeat_interval);
    }

    /// The channel waits for so long before it tries again.
    pub(super) fn tries_again(&self, pause: Duration) {
        self.shared.inner.lock().stage.next_attempt = Some(Instant::now() + pause);
    }

    /// Notes that a channel that had failed tries again on its own.
    pub(super) fn tried_again(&self) {
        self.shared.inner.lock().events.attempts += 1;
    }

    /// Servers are asked for the first time in a start.
    pub(super) fn opening(&self) {
        let steps = StartSteps::begin(Instant::now());
        self.shared.inner.lock().start = Some(steps);
        self.shared.has_begun.store(false, Ordering::Relaxed);
    }

    /// A step of the start has ended.
    pub(super) fn done(&self, step: StartStep) -> bool {
        let now = Instant::now();
        self.shared.inner.lock().start.as_mut().is_some_and(|start| start.done(step, now))
    }

    /// Returns the steps of the start so far, in one line.
    pub(super) fn start_text(&self) -> String {
        let inner = self.shared.inner.lock();
        inner.start.as_ref().map(StartSteps::text).unwrap_or_default()
    }

    /// A group is committed, and everything before it.
    pub(super) fn committed(&self) {
        // No lock for any but the first.
        if !self.shared.has_begun.swap(true, Ordering::Relaxed) && self.done(StartStep::FirstGroup)
        {
            let took = self.start_text();
            info!(took, "first group committed since the start");
        }
    }

    /// A relay store is open and being received into.
    pub(super) fn receiving(&self, settings: &ChannelSettings, store: &Arc<RelayStore>) {
        let mut inner = self.shared.inner.lock();
        inner.progress.expect_heartbeats(settings.source.heartbeat_interval);
        inner.progress.receiving(store);
        inner.receiving = true;
        inner.is_wanted = true;
        // A pipeline says otherwise.
        store.set_has_applier(false);
    }

    /// Reception is to end: on request, or because another daemon has the channel.
    pub(super) fn reception_unwanted(&self) {
        self.shared.inner.lock().is_wanted = false;
    }

    /// Nothing more is received; the store is still there.
    pub(super) fn reception_over(&self) {
        self.shared.inner.lock().receiving = false;
    }

    /// The store is closed; its figures stay.
    pub(super) fn store_closed(&self) {
        self.shared.inner.lock().progress.store_closed();
    }

    pub(super) fn source(&self) -> Arc<SourceStatus> {
        Arc::clone(&self.shared.source)
    }

    /// Returns how far the archive is.
    pub(super) fn archive(&self) -> Arc<ArchiveStatus> {
        Arc::clone(&self.shared.archive)
    }

    /// Returns the durations of all pipelines.
    pub(super) fn durations(&self) -> Arc<ApplierDurations> {
        Arc::clone(&self.shared.durations)
    }

    pub(super) fn attach(&self, commits: &Commits, status: &Arc<ApplierStatus>) {
        let mut inner = self.shared.inner.lock();
        let from = if commits.executed().is_empty() { "the start" } else { "the checkpoint" };
        inner.stage.enter(Phase::Running, &format!("from {from}"));
        inner.stage.forget_error();
        inner.progress.attach(commits, status);
    }

    /// A channel without a target receives, and fills its archive.
    pub(super) fn archiving(&self) {
        let mut inner = self.shared.inner.lock();
        inner.stage.enter(Phase::Running, "from the end of the archive");
        inner.has_archive = true;
        inner.stage.forget_error();
    }

    /// Notes the target that answered now.
    pub(super) fn target_answered(&self, facts: &TargetFacts) {
        self.shared.inner.lock().target.answered(facts);
    }

    /// Returns true unless it is known that tables can't be copied again.
    pub(super) fn takes_copies(&self) -> bool {
        self.shared.inner.lock().target.failed(&self.shared.name).takes_copies()
    }

    pub(super) fn is_taken(&self) -> bool {
        let inner = self.shared.inner.lock();
        inner.has_archive || inner.progress.is_taken()
    }

    /// The pipeline has ended; its totals stay.
    pub(super) fn detach(&self) {
        self.shared.inner.lock().progress.detach();
    }

    pub(super) fn waiting_for_source(&self, why: &str) {
        self.phase(Phase::WaitingForSource, why);
    }

    pub(super) fn waiting_for_target(&self, why: &str) {
        self.phase(Phase::WaitingForTarget, why);
    }

    pub(super) fn waiting_for_archive(&self, why: &str) {
        self.phase(Phase::WaitingForArchive, why);
    }

    /// Another daemon has the channel, and applies it.
    pub(super) fn standing_by(&self, why: &str) {
        let mut inner = self.shared.inner.lock();
        inner.stage.enter(Phase::Standby, why);
        inner.stage.forget_error();
        inner.progress.given_up();
        inner.copy.given_up();
        drop(inner);
        // It would be back at the next takeover, when nobody expects it.
        if let Some(Paused { by, since }) = self.shared.controls.end_pause() {
            let since = rfc3339(since);
            warn!(by, since, "the pause ends, because this daemon no longer has the channel");
        }
    }

    pub(super) fn is_in(&self, phase: Phase) -> bool {
        self.shared.inner.lock().stage.phase == phase
    }

    /// The channel is given away: once it has stopped, another daemon has it.
    pub(super) fn stands_by_at_its_end(&self, why: &str) {
        self.shared.inner.lock().stage.given_away = Some(why.to_owned());
    }

    pub(super) fn stopped(&self, why: &str) {
        self.shared.inner.lock().stage.stop(why);
    }

    /// Notes that the channel stopped for good.
    pub(super) fn failed(&self, error: &ChannelError) {
        self.fail(error, false);
    }

    /// The channel could not start; the daemon tries again.
    pub(super) fn refused(&self, error: &ChannelError) {
        self.fail(error, true);
    }

    /// In one step: nobody sees a channel that failed for no reason.
    fn fail(&self, error: &ChannelError, is_retried: bool) {
        let at = rfc3339(self.shared.clock.now_micros());
        let mut inner = self.shared.inner.lock();
        let shown = failure::shown(inner.target.failed(&self.shared.name), error, at, is_retried);
        inner.stage.enter(Phase::Failed, &error.to_string());
        inner.stage.last_error = Some(shown);
        inner.stage.stopped_at = error.gtid();
    }

    /// Notes that the target lacks something that was committed there.
    pub(super) fn came_back_older(&self, error: &csa_applier::Error) {
        let missing = match error {
            csa_applier::Error::Older { missing, .. } => missing.clone(),
            _ => String::new(),
        };
        let mut inner = self.shared.inner.lock();
        inner.events.rewinds.total += 1;
        inner.events.rewinds.last = Some((self.shared.clock.now_micros(), missing));
    }

    /// Notes that an operator skipped a transaction.
    pub(super) fn skipped(&self) {
        self.shared.inner.lock().events.skipped += 1;
    }

    fn phase(&self, phase: Phase, detail: &str) {
        self.shared.inner.lock().stage.enter(phase, detail);
    }

    /// Everything committed on the target, as far as this process knows; without a target, everything archived.
    pub(super) fn executed(&self) -> GtidSet {
        let inner = self.shared.inner.lock();
        match inner.target.present {
            Some(_) => inner.progress.executed(),
            None => self.shared.archive.archived().unwrap_or_default(),
        }
    }

    pub(super) fn has_executed(&self, set: &GtidSet) -> bool {
        let inner = self.shared.inner.lock();
        match inner.target.present {
            Some(_) => inner.progress.has_executed(set),
            None => set.is_subset_of(&self.shared.archive.archived().unwrap_or_default()),
        }
    }

    /// Returns the relay store, while it is open.
    pub(super) fn store(&self) -> Option<Arc<RelayStore>> {
        self.shared.inner.lock().progress.store().cloned()
    }

    /// No group and no statement is running.
    pub(super) fn is_at_rest(&self) -> bool {
        self.shared.inner.lock().progress.is_at_rest()
    }

    /// Returns the transaction that stopped the channel.
    pub(super) fn stopped_at(&self) -> Option<Gtid> {
        self.shared.inner.lock().stage.stopped_at.clone()
    }

    /// Groups that workers have at this moment, for a timeline.
    pub(super) fn unfinished(&self) -> Vec<Span> {
        let status = self.shared.inner.lock().progress.status().cloned();
        status.map(|status| status.unfinished()).unwrap_or_default()
    }

    /// Takes a sample of what keeps the channel busy.
    pub(super) fn sample(&self) {
        let Watched { controls, source, .. } = &*self.shared;
        let (tuning, memory_short) = (controls.tuning(), controls.memory().is_short());
        let source = source.view();
        let mut inner = self.shared.inner.lock();
        let progress = inner.progress.view(source);
        if inner.progress.status().is_none() {
            inner.meter = Meter::default();
            return;
        }
        let (applied, received) = match progress.is_applying {
            true => (progress.applied.transactions_total, progress.usage.transactions_total),
            false => (0, 0),
        };
        let applied = inner.progress.earlier_transactions() + applied;
        let cause = snapshot(inner.stage.phase, &tuning, memory_short, &progress).cause();
        inner.meter.take(Instant::now(), cause, applied, received);
    }

    /// Measures the relay store and its disk; blocks.
    pub(super) fn measure_disk(&self) {
        let store = self.shared.inner.lock().progress.store().cloned();
        if let Some(store) = store {
            store.measure_disk();
            let search = self.shared.inner.lock().progress.search();
            if let Some(search) = search {
                let found = search.run();
                self.shared.inner.lock().progress.found(&search, found);
            }
        }
    }

    /// Returns the transactions per second, of the last seconds.
    pub(super) fn applied_rate(&self) -> f64 {
        self.shared.inner.lock().meter.rates().map_or(0.0, |(applied, _)| applied)
    }

    /// Returns the wall clock of this channel.
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    pub(super) fn view(&self) -> ChannelView {
        let facts = self.facts();
        let received_transaction_set = facts.progress.received().to_string();
        let applied_transaction_set = facts.progress.applied.executed.to_string();
        ChannelView { received_transaction_set, applied_transaction_set, ..self.view_of(facts) }
    }

    /// Returns the view without the GTID sets.
    pub(super) fn view_without_sets(&self) -> ChannelView {
        self.view_of(self.facts())
    }

    fn view_of(&self, facts: Facts) -> ChannelView {
        let micros = self.shared.clock.now_micros();
        facts.view(Moment { micros, instant: Instant::now() })
    }

    /// Returns everything known at this moment.
    fn facts(&self) -> Facts {
        let Watched { name, controls, source, durations, .. } = &*self.shared;
        let (tuning, source_delay) = (controls.tuning(), controls.source_delay());
        let memory = controls.memory().usage();
        let (reception, durations) = (source.reception(), durations.view());
        let archived = self.shared.archive.archived();
        let source = source.view();
        let clock_ahead = source.clock.most();
        let mut inner = self.shared.inner.lock();
        let progress = inner.progress.view(source);
        let archive = self.shared.archive.view(clock_ahead, progress.usage.event_bytes_total);
        Facts {
            name: name.clone(),
            phase: inner.stage.phase,
            detail: inner.stage.detail.clone(),
            tuning,
            settings: controls.view(),
            health: controls.health(),
            paused: controls.paused(),
            target: inner
                .target
                .present
                .as_ref()
                .map(|target| (target.address(), inner.target.version.clone())),
            source_delay,
            memory,
            reception,
            durations,
            progress,
            receiving: inner.receiving,
            is_wanted: inner.is_wanted,
            attached: inner.progress.status().is_some(),
            cause: inner.meter.cause(),
            rates: inner.meter.rates(),
            rewinds: inner.events.rewinds.clone(),
            start: inner.start.iter().flat_map(StartSteps::named).collect(),
            copy: inner.copy.progress().filter(|_| inner.stage.phase == Phase::Copying).cloned(),
            copy_check: inner.copy.check().cloned(),
            archive,
            archived,
            skipped: inner.events.skipped,
            next_attempt: inner.stage.next_attempt,
            attempts: inner.events.attempts,
            last_error: inner.stage.last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::tests::MINIMAL;

    #[test]
    fn an_archive_that_was_removed_is_not_shown() {
        let config = Config::parse(MINIMAL).expect("valid");
        let settings = config.channels.into_iter().next().expect("a channel");
        let watch = Watch::new(&settings, Controls::new(&settings));
        watch.archive().begins("file:///archive", Duration::from_secs(60));
        assert!(watch.view().archive.is_some());
        watch.starting(&settings);
        assert_eq!(watch.view().archive, None);
    }
}
