//! Collects what is known of a channel while it runs; [`super::view`] makes the view of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csa_applier::{
    ApplierDurations, ApplierStatus, ApplierView as Applied, Commits, HeldUntil, IntakeObserver,
    Wait,
};
use csa_provider::{
    Clock, CommitTimes, Details, Gtid, GtidSet, SourceStatus, Span, SystemClock, Track,
};
use csa_relaystore::{RelayStore, RelayUsage, RelayedTransaction};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

use super::start_steps::{StartStep, StartSteps};
use super::view::backlog::Count;
use super::view::bottleneck::Meter;
use super::view::state::Phase;
use super::view::{Facts, Moment, Rewinds, failure};
use super::{ChannelError, Controls};
use crate::clock::rfc3339;
use crate::config::ChannelSettings;
use crate::view::{ChannelView, ErrorView};

/// Shared by everything that runs in a channel; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    controls: Controls,
    source: Arc<SourceStatus>,
    durations: Arc<ApplierDurations>,
    /// The first group after the start is committed: its steps are complete.
    has_begun: AtomicBool,
    clock: Arc<dyn Clock>,
    // Taken before the locks of the store, the commits and the applier's status; whoever holds one
    // of those never calls back here.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// A source heard from within this time counts as present.
    fresh_within: Duration,
    /// Its address, and its version once it is known.
    target: String,
    target_version: Option<String>,
    meter: Meter,
    phase: Phase,
    detail: String,
    /// The relay store while it is open, and whether something is received into it.
    store: Option<Arc<RelayStore>>,
    receiving: bool,
    pipeline: Option<Running>,
    taken: bool,
    /// Applied by earlier pipelines.
    earlier: Applied,
    /// Received by earlier relay stores, and the figures of the last one.
    received: GtidSet,
    closed: RelayUsage,
    /// Everything up to there was committed when reading began, or when applying ended.
    base: Option<Count>,
    /// Of the store while nothing is applied.
    waiting: Waiting,
    last_error: Option<ErrorView>,
    /// The transaction that the last error is about.
    stopped_at: Option<Gtid>,
    held_back: Option<HeldUntil>,
    rewinds: Rewinds,
    start: Option<StartSteps>,
    /// Transactions recorded as executed on request.
    skipped: u64,
}

/// The running pipeline.
#[derive(Debug, Clone)]
struct Running {
    commits: Commits,
    status: Arc<ApplierStatus>,
}

/// The first transaction in the relay store that is not applied, while nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Waiting {
    #[default]
    Unknown,
    /// Its commit times, and the moment at which it was found.
    Since(CommitTimes, Instant),
    /// Damaged; the next pipeline to read it reports that.
    Unreadable,
}

impl Watch {
    pub(super) fn new(settings: &ChannelSettings, controls: Controls) -> Self {
        Self {
            shared: Arc::new(Shared {
                name: settings.name.clone(),
                controls,
                source: Arc::default(),
                durations: Arc::default(),
                has_begun: AtomicBool::new(false),
                clock: Arc::new(SystemClock),
                inner: Mutex::new(Inner { target: settings.target.address(), ..Inner::default() }),
            }),
        }
    }

    /// The channel starts, or starts again.
    pub(super) fn starting(&self, settings: &ChannelSettings) {
        let mut inner = self.shared.inner.lock();
        inner.phase = Phase::Starting;
        inner.fresh_within = fresh_within(settings);
        inner.target = settings.target.address();
        inner.target_version = None;
        inner.last_error = None;
        inner.stopped_at = None;
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

    /// The steps of the start so far, in one line.
    pub(super) fn start_text(&self) -> String {
        let inner = self.shared.inner.lock();
        inner.start.as_ref().map(StartSteps::text).unwrap_or_default()
    }

    /// A group is committed, and everything before it.
    pub(super) fn committed(&self) {
        // No lock for any but the first.
        if !self.shared.has_begun.swap(true, Ordering::Relaxed) && self.done(StartStep::FirstGroup)
        {
            let (channel, took) = (&self.shared.name, self.start_text());
            info!(%channel, took, "first group committed since the start");
        }
    }

    /// A relay store is open and being received into.
    pub(super) fn receiving(&self, settings: &ChannelSettings, store: &Arc<RelayStore>) {
        let mut inner = self.shared.inner.lock();
        inner.fresh_within = fresh_within(settings);
        inner.store = Some(Arc::clone(store));
        inner.receiving = true;
        // Ordinals of another store mean nothing in this one.
        inner.base = None;
        inner.waiting = Waiting::Unknown;
    }

    /// Nothing more is received; the store is still there.
    pub(super) fn reception_over(&self) {
        self.shared.inner.lock().receiving = false;
    }

    /// The store is closed; its figures stay.
    pub(super) fn store_closed(&self) {
        let mut inner = self.shared.inner.lock();
        if let Some(store) = inner.store.take() {
            inner.received = store.received_so_far();
            inner.closed = RelayUsage { waiting: None, ..store.usage() };
        }
    }

    pub(super) fn source(&self) -> Arc<SourceStatus> {
        Arc::clone(&self.shared.source)
    }

    /// Of all pipelines.
    pub(super) fn durations(&self) -> Arc<ApplierDurations> {
        Arc::clone(&self.shared.durations)
    }

    pub(super) fn attach(&self, commits: &Commits, status: &Arc<ApplierStatus>) {
        let mut inner = self.shared.inner.lock();
        inner.phase = Phase::Running;
        inner.detail = format!(
            "from {}",
            if commits.executed().is_empty() { "the start" } else { "the checkpoint" }
        );
        // Set again by the intake's first reading: this pipeline may begin elsewhere.
        inner.base = None;
        inner.taken = true;
        inner.last_error = None;
        inner.stopped_at = None;
        inner.pipeline = Some(Running { commits: commits.clone(), status: Arc::clone(status) });
    }

    /// The target that answered now.
    pub(super) fn target_version(&self, version: String) {
        self.shared.inner.lock().target_version = Some(version);
    }

    pub(super) fn is_taken(&self) -> bool {
        self.shared.inner.lock().taken
    }

    /// The pipeline has ended; its totals stay.
    pub(super) fn detach(&self) {
        let mut inner = self.shared.inner.lock();
        // In one step with the totals: a wait must never see less than was executed.
        if let Some(running) = inner.pipeline.take() {
            let ended = running.status.view();
            inner.base = inner.base.map(|base| base.max(Count::committed(&ended)));
            inner.waiting = Waiting::Unknown;
            let earlier = &mut inner.earlier;
            earlier.transactions_total += ended.transactions_total;
            earlier.groups_total += ended.groups_total;
            earlier.statements_total += ended.statements_total;
            earlier.accounts_left_out_total += ended.accounts_left_out_total;
            earlier.own_left_out_total += ended.own_left_out_total;
            earlier.returned_left_out_total += ended.returned_left_out_total;
            earlier.retries_total += ended.retries_total;
            earlier.lock_inversions_total += ended.lock_inversions_total;
            earlier.executed = ended.executed;
            earlier.last_applied = ended.last_applied;
        }
    }

    pub(super) fn waiting_for_source(&self, why: &str) {
        self.phase(Phase::WaitingForSource, why);
    }

    pub(super) fn waiting_for_target(&self, why: &str) {
        self.phase(Phase::WaitingForTarget, why);
    }

    /// Another daemon has the channel.
    pub(super) fn standing_by(&self, why: &str) {
        self.phase(Phase::Standby, why);
        let mut inner = self.shared.inner.lock();
        inner.last_error = None;
        inner.stopped_at = None;
        // What this daemon received while it had the channel is no backlog of the other.
        inner.base = None;
        inner.waiting = Waiting::Unknown;
        inner.held_back = None;
    }

    pub(super) fn stopped(&self, why: &str) {
        self.phase(Phase::Stopped, why);
    }

    /// The channel stopped for good.
    pub(super) fn failed(&self, error: &ChannelError) {
        self.fail(error, false);
    }

    /// The channel could not start; the daemon tries again.
    pub(super) fn refused(&self, error: &ChannelError) {
        self.fail(error, true);
    }

    fn fail(&self, error: &ChannelError, is_retried: bool) {
        self.phase(Phase::Failed, &error.to_string());
        let at = rfc3339(self.shared.clock.now_micros());
        let shown = failure::shown(&self.shared.name, error, at, is_retried);
        let mut inner = self.shared.inner.lock();
        inner.last_error = Some(shown);
        inner.stopped_at = error.gtid();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.shared.inner.lock().phase == Phase::Failed
    }

    /// The target lacks something that was committed there.
    pub(super) fn came_back_older(&self, error: &csa_applier::Error) {
        let missing = match error {
            csa_applier::Error::Older { missing, .. } => missing.clone(),
            _ => String::new(),
        };
        let mut inner = self.shared.inner.lock();
        inner.rewinds.total += 1;
        inner.rewinds.last = Some((self.shared.clock.now_micros(), missing));
    }

    /// An operator skipped a transaction.
    pub(super) fn skipped(&self) {
        self.shared.inner.lock().skipped += 1;
    }

    fn phase(&self, phase: Phase, detail: &str) {
        let mut inner = self.shared.inner.lock();
        inner.phase = phase;
        detail.clone_into(&mut inner.detail);
    }

    /// Everything committed on the target, as far as this process knows.
    pub(super) fn executed(&self) -> GtidSet {
        let inner = self.shared.inner.lock();
        match &inner.pipeline {
            Some(running) => running.commits.executed(),
            None => inner.earlier.executed.clone(),
        }
    }

    pub(super) fn has_executed(&self, set: &GtidSet) -> bool {
        let inner = self.shared.inner.lock();
        match &inner.pipeline {
            Some(running) => running.commits.has_executed(set),
            None => set.is_subset_of(&inner.earlier.executed),
        }
    }

    /// No group and no statement is running.
    pub(super) fn is_at_rest(&self) -> bool {
        let inner = self.shared.inner.lock();
        inner.pipeline.as_ref().is_none_or(|running| running.commits.is_at_rest())
    }

    /// The transaction that stopped the channel.
    pub(super) fn stopped_at(&self) -> Option<Gtid> {
        self.shared.inner.lock().stopped_at.clone()
    }

    /// Groups that workers have at this moment, for a timeline.
    pub(super) fn unfinished(&self) -> Vec<Span> {
        let running = self.shared.inner.lock().pipeline.clone();
        running.map(|running| running.status.unfinished()).unwrap_or_default()
    }

    /// Takes a sample of what keeps the channel busy.
    pub(super) fn sample(&self) {
        // First, because it takes the same lock.
        let facts = self.facts();
        let mut inner = self.shared.inner.lock();
        if inner.pipeline.is_none() {
            inner.meter = Meter::default();
            return;
        }
        let (applied, received) = match facts.is_applying {
            true => (facts.applied.transactions_total, facts.usage.transactions_total),
            false => (0, 0),
        };
        let applied = inner.earlier.transactions_total + applied;
        inner.meter.take(Instant::now(), facts.snapshot().cause(), applied, received);
    }

    /// Measures the relay store and its disk; blocks.
    pub(super) fn measure_disk(&self) {
        let store = self.shared.inner.lock().store.clone();
        if let Some(store) = store {
            store.measure_disk();
            self.look_for_waiting(&store);
        }
    }

    /// While a pipeline runs, the applier knows the first transaction that is not applied. Without
    /// a pipeline one search is enough: the first stays the first.
    fn look_for_waiting(&self, store: &Arc<RelayStore>) {
        let executed = {
            let inner = self.shared.inner.lock();
            if inner.pipeline.is_some() || !inner.taken || inner.waiting != Waiting::Unknown {
                return;
            }
            let total = store.usage().transactions_total;
            if inner.base.is_some_and(|base| base.transactions >= total) {
                return;
            }
            inner.earlier.executed.clone()
        };
        let mut reader = store.reader(executed);
        // The header is enough.
        reader.set_inline_limit(0);
        let found = reader.next_now();
        let mut inner = self.shared.inner.lock();
        // During the search a pipeline may have begun, or another store been opened.
        let is_same = inner.store.as_ref().is_some_and(|now| Arc::ptr_eq(now, store));
        if inner.pipeline.is_some() || !is_same {
            return;
        }
        match found {
            Ok(Some(relayed)) => {
                inner.waiting = Waiting::Since(relayed.header.commit_times(), Instant::now());
                inner.base = Some(Count::before(&relayed));
            }
            Ok(None) => {
                let (transactions, bytes) = reader.read_so_far();
                inner.base = Some(Count { transactions, bytes });
            }
            Err(error) => {
                debug!(%error, "the first transaction that waits can't be read");
                inner.waiting = Waiting::Unreadable;
            }
        }
    }

    /// The wall clock of this channel.
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    pub(super) fn view(&self) -> ChannelView {
        let facts = self.facts();
        let micros = self.shared.clock.now_micros();
        facts.view(Moment { micros, instant: Instant::now() })
    }

    /// Everything known at this moment. What was applied is read before what was received, so the
    /// backlog is never too small.
    fn facts(&self) -> Facts {
        let Shared { name, controls, source, durations, .. } = &*self.shared;
        let (tuning, until, source_delay) =
            (controls.tuning(), controls.until().get(), controls.source_delay());
        let (memory, memory_short) = (controls.memory().usage(), controls.memory().is_short());
        let (reception, durations) = (source.reception(), durations.view());
        let source = source.view();
        let (mut facts, running, store) = {
            let inner = self.shared.inner.lock();
            let facts = Facts {
                name: name.clone(),
                phase: inner.phase,
                detail: inner.detail.clone(),
                tuning,
                paused: controls.paused(),
                target: (inner.target.clone(), inner.target_version.clone()),
                until,
                source_delay,
                memory,
                memory_short,
                source,
                reception,
                durations,
                fresh_within: inner.fresh_within,
                receiving: inner.receiving,
                usage: inner.closed.clone(),
                received: inner.received.clone(),
                is_applying: inner.pipeline.is_some() && inner.store.is_some(),
                applied: inner.at_rest(),
                earlier: inner.earlier.clone(),
                base: inner.base,
                held_back: inner.held_back,
                cause: inner.meter.cause(),
                rates: inner.meter.rates(),
                rewinds: inner.rewinds.clone(),
                start: inner.start.iter().flat_map(StartSteps::named).collect(),
                skipped: inner.skipped,
                last_error: inner.last_error.clone(),
            };
            (facts, inner.pipeline.clone(), inner.store.clone())
        };
        if let Some(running) = running {
            facts.applied = running.status.view();
        }
        if let Some(store) = store {
            facts.usage = store.usage();
            facts.received = store.received_so_far();
        }
        facts
    }
}

impl Inner {
    /// The applier's part of the view while no pipeline runs.
    fn at_rest(&self) -> Applied {
        Applied {
            executed: self.earlier.executed.clone(),
            last_applied: self.earlier.last_applied.clone(),
            oldest_pending: match self.waiting {
                Waiting::Since(committed, since) => Some((committed, since)),
                Waiting::Unknown | Waiting::Unreadable => None,
            },
            ..Applied::default()
        }
    }
}

impl IntakeObserver for Watch {
    /// Everything before the first of them is executed.
    fn read(&mut self, relayed: &RelayedTransaction) {
        let mut inner = self.shared.inner.lock();
        inner.base.get_or_insert(Count::before(relayed));
        if !self.shared.has_begun.load(Ordering::Relaxed)
            && let Some(start) = &mut inner.start
        {
            start.done(StartStep::FirstTransaction, Instant::now());
        }
    }

    /// If no transaction was read before, all of the store was executed.
    fn read_to_end(&mut self, transactions: u64, bytes: u64) {
        self.shared.inner.lock().base.get_or_insert(Count { transactions, bytes });
    }

    fn waited(&mut self, wait: Wait, begun: Instant, ended: Instant) {
        let name = match wait {
            Wait::Memory => "waiting for event memory",
            Wait::Applier => "waiting for the applier",
        };
        let (track, details) = (Track::Intake, Details::default());
        self.shared.source.recorder().record(|| Span { track, name, begun, ended, details });
    }

    fn handed_over(&mut self, waited: Duration) {
        self.shared.durations.admission_wait.note(waited);
        if !self.shared.has_begun.load(Ordering::Relaxed) {
            self.done(StartStep::Definitions);
        }
    }

    fn held_back(&mut self, held: Option<HeldUntil>) {
        self.shared.inner.lock().held_back = held;
    }

    fn clock_ahead(&self) -> i64 {
        self.shared.source.clock_ahead()
    }
}

/// A source heard from within this time counts as present.
fn fresh_within(settings: &ChannelSettings) -> Duration {
    settings.source.heartbeat_interval * 2 + Duration::from_secs(1)
}
