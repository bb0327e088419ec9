//! Status of a channel: state, lag, backlog.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use csa_applier::{ApplierStatus, ApplierView as Applied, HeldUntil, IntakeObserver};
use csa_provider::{Gtid, GtidSet, SourceStatus, SourceView};
use csa_relaystore::{RelayStore, RelayUsage, RelayedTransaction};
use csa_scheduler::EventMemory;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::debug;

use super::bottleneck::{Meter, Snapshot};
use super::lag::{Pending, Seen, Tail};
use super::{ChannelError, Controls, failure, shown};
use crate::clock::{now_micros, rfc3339_of};
use crate::config::ChannelSettings;
use crate::view::{
    ApplierView, ChannelState, ChannelView, ErrorView, EventMemoryView, RelayView, SettingsView,
};

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
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// A source heard from within this time counts as present.
    fresh_within: Duration,
    meter: Meter,
    phase: Phase,
    detail: String,
    /// The relay store while it is open, and whether something is received into it.
    store: Option<Arc<RelayStore>>,
    receiving: bool,
    parts: Option<Parts>,
    taken: bool,
    /// Applied by earlier pipelines.
    earlier: Applied,
    /// Received by earlier relay stores, and the figures of the last one.
    received: GtidSet,
    closed: RelayUsage,
    /// Relay number and bytes up to which everything was committed when reading began, or when
    /// applying ended.
    base: Option<(u64, u64)>,
    /// Of the store while nothing is applied.
    waiting: Waiting,
    last_error: Option<ErrorView>,
    /// The transaction that the last error is about.
    stopped_at: Option<Gtid>,
    held_back: Option<HeldUntil>,
    rewinds: Rewinds,
}

/// How often the target came back without what was committed there; when it last did, and what it
/// lacked.
#[derive(Debug, Clone, Default)]
pub(super) struct Rewinds {
    pub(super) total: u64,
    pub(super) last: Option<(SystemTime, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Starting,
    WaitingForSource,
    WaitingForTarget,
    Running,
    Stopped,
    Failed,
}

/// The running pipeline.
#[derive(Debug, Clone)]
struct Parts {
    status: Arc<ApplierStatus>,
    memory: EventMemory,
}

/// The first transaction in the relay store that is not applied, while nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Waiting {
    #[default]
    Unknown,
    Since(Pending),
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
                inner: Mutex::default(),
            }),
        }
    }

    /// The channel starts, or starts again.
    pub(super) fn starting(&self, settings: &ChannelSettings) {
        let mut inner = self.shared.inner.lock();
        inner.phase = Phase::Starting;
        inner.fresh_within = fresh_within(settings);
        inner.last_error = None;
        inner.stopped_at = None;
    }

    /// A relay store is open and being received into.
    pub(super) fn receiving(&self, settings: &ChannelSettings, store: &Arc<RelayStore>) {
        let mut inner = self.shared.inner.lock();
        inner.fresh_within = fresh_within(settings);
        inner.store = Some(Arc::clone(store));
        inner.receiving = true;
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

    pub(super) fn attach(
        &self,
        status: &Arc<ApplierStatus>,
        memory: &EventMemory,
        executed: &GtidSet,
    ) {
        let mut inner = self.shared.inner.lock();
        inner.phase = Phase::Running;
        inner.detail =
            format!("from {}", if executed.is_empty() { "the start" } else { "the checkpoint" });
        inner.base = None;
        inner.taken = true;
        inner.last_error = None;
        inner.stopped_at = None;
        inner.parts = Some(Parts { status: Arc::clone(status), memory: memory.clone() });
    }

    pub(super) fn is_taken(&self) -> bool {
        self.shared.inner.lock().taken
    }

    /// The pipeline has ended; its totals stay.
    pub(super) fn detach(&self) {
        let mut inner = self.shared.inner.lock();
        if let Some(parts) = inner.parts.take() {
            let ended = parts.status.view();
            let reached = (ended.committed_ordinal, ended.committed_bytes);
            inner.base = inner.base.map(|base| (base.0.max(reached.0), base.1.max(reached.1)));
            inner.waiting = Waiting::Unknown;
            let earlier = &mut inner.earlier;
            earlier.transactions_total += ended.transactions_total;
            earlier.groups_total += ended.groups_total;
            earlier.statements_total += ended.statements_total;
            earlier.accounts_left_out_total += ended.accounts_left_out_total;
            earlier.own_left_out_total += ended.own_left_out_total;
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
        let at = rfc3339_of(SystemTime::now());
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
        inner.rewinds.last = Some((SystemTime::now(), missing));
    }

    fn phase(&self, phase: Phase, detail: &str) {
        let mut inner = self.shared.inner.lock();
        inner.phase = phase;
        detail.clone_into(&mut inner.detail);
    }

    /// Everything committed on the target, as far as this process knows.
    pub(super) fn executed(&self) -> GtidSet {
        let inner = self.shared.inner.lock();
        match &inner.parts {
            Some(parts) => parts.status.executed(),
            None => inner.earlier.executed.clone(),
        }
    }

    pub(super) fn has_executed(&self, set: &GtidSet) -> bool {
        let inner = self.shared.inner.lock();
        match &inner.parts {
            Some(parts) => parts.status.has_executed(set),
            None => set.is_subset_of(&inner.earlier.executed),
        }
    }

    /// No group and no statement is running.
    pub(super) fn is_at_rest(&self) -> bool {
        let parts = self.shared.inner.lock().parts.clone();
        parts.is_none_or(|parts| {
            let applied = parts.status.view();
            applied.applying.is_none() && applied.statement.is_none()
        })
    }

    /// The transaction that stopped the channel.
    pub(super) fn stopped_at(&self) -> Option<Gtid> {
        self.shared.inner.lock().stopped_at.clone()
    }

    /// Takes a sample of what keeps the channel busy.
    pub(super) fn sample(&self) {
        let snapshot = self.snapshot();
        let mut inner = self.shared.inner.lock();
        if inner.parts.is_none() {
            inner.meter = Meter::default();
            return;
        }
        let applied = inner.earlier.transactions_total + snapshot.applied;
        inner.meter.take(Instant::now(), snapshot.now.cause(), applied, snapshot.received);
    }

    fn snapshot(&self) -> Sampled {
        let source = self.shared.source.view();
        let (parts, store, phase, base) = {
            let inner = self.shared.inner.lock();
            (inner.parts.clone(), inner.store.clone(), inner.phase, inner.base)
        };
        let tuning = self.shared.controls.tuning();
        let (Some(parts), Some(store)) = (parts, store) else { return Sampled::default() };
        let (applied, usage) = (parts.status.view(), store.usage());
        let now = Snapshot {
            running: phase == Phase::Running,
            paused: tuning.paused,
            throttled: applied.throttled,
            source_connected: source.connected,
            target_connected: applied.target_connected,
            backlog: base.map(|base| backlog(&usage, &applied, base).0),
            relay_full: usage.waiting.is_some(),
            memory_short: parts.memory.is_short(),
            arrival_delay: source.arrival_delay,
            locked: !applied.lock_holders.is_empty(),
            statement: applied.statement.is_some(),
            workers: usize::from(tuning.worker_count),
            busy: applied.sessions.iter().map(|session| session.state).collect(),
            waiting_transactions: applied.waiting_transactions,
        };
        Sampled { now, applied: applied.transactions_total, received: usage.transactions_total }
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
            if inner.parts.is_some() || !inner.taken || inner.waiting != Waiting::Unknown {
                return;
            }
            let total = store.usage().transactions_total;
            if inner.base.is_some_and(|(committed, _)| committed >= total) {
                return;
            }
            inner.earlier.executed.clone()
        };
        let mut reader = store.reader(executed);
        // The header is enough.
        reader.set_inline_limit(0);
        let found = reader.next(Duration::ZERO);
        let mut inner = self.shared.inner.lock();
        let is_same = inner.store.as_ref().is_some_and(|now| Arc::ptr_eq(now, store));
        if inner.parts.is_some() || !is_same {
            return;
        }
        match found {
            Ok(Some(relayed)) => {
                let committed = relayed.header.commit_times();
                inner.waiting = Waiting::Since(Pending { committed, since: Instant::now() });
                inner.base = Some(before(&relayed));
            }
            Ok(None) => inner.base = Some(reader.read_so_far()),
            Err(error) => {
                debug!(%error, "the first transaction that waits can't be read");
                inner.waiting = Waiting::Unreadable;
            }
        }
    }

    pub(super) fn view(&self) -> ChannelView {
        let tuning = self.shared.controls.tuning();
        let source = self.shared.source.view();
        let (
            parts,
            store,
            closed,
            receiving,
            waiting,
            phase,
            detail,
            earlier,
            received,
            base,
            last_error,
            fresh_within,
            cause,
            rates,
            held_back,
            rewinds,
        ) = {
            let inner = self.shared.inner.lock();
            (
                inner.parts.clone(),
                inner.store.clone(),
                inner.closed.clone(),
                inner.receiving,
                inner.waiting,
                inner.phase,
                inner.detail.clone(),
                inner.earlier.clone(),
                inner.received.clone(),
                inner.base,
                inner.last_error.clone(),
                inner.fresh_within,
                inner.meter.cause(),
                inner.meter.rates(),
                inner.held_back,
                inner.rewinds.clone(),
            )
        };
        let applied = parts.as_ref().map_or_else(
            || Applied {
                executed: earlier.executed.clone(),
                last_applied: earlier.last_applied.clone(),
                oldest_pending: match waiting {
                    Waiting::Since(pending) => Some((pending.committed, pending.since)),
                    Waiting::Unknown | Waiting::Unreadable => None,
                },
                ..Applied::default()
            },
            |parts| parts.status.view(),
        );
        // Held back is only what the applier does not have yet.
        let held_back = held_back.filter(|_| applied.oldest_pending.is_none());
        let pending = applied.oldest_pending.map(|(committed, since)| Pending { committed, since });
        let of_held = |held: HeldUntil| Pending { committed: held.committed, since: held.since };
        let pending = pending.or(held_back.map(of_held));
        let due_in = held_back.map(|held| held.due.saturating_sub(now_micros()) as f64 / 1e6);
        let usage = store.as_ref().map_or(closed, |store| store.usage());
        let memory = self.shared.controls.memory().usage();
        let fresh = source.connected
            && source.last_event.is_some_and(|last| last.elapsed() <= fresh_within);
        let backlog = base.map(|base| backlog(&usage, &applied, base));
        let detail = match phase {
            Phase::Stopped if receiving => format!("{detail}; still receiving"),
            _ => detail,
        };
        let mut received = store.as_ref().map_or(received, |store| store.received_so_far());
        received.union(&applied.executed);
        let stored = source.last_queued.as_ref().is_none_or(|last| received.contains(&last.gtid));
        let tail = Tail::of(&source, stored);
        let (state, state_detail) =
            state(phase, detail, tuning.paused, &source, &applied, &usage, backlog, due_in, tail);
        let lag_seconds = backlog.and_then(|(backlog, _)| {
            let last = applied.last_applied.as_ref();
            let seen = Seen {
                backlog,
                pending,
                applied: last.map(|group| group.last.commit_times()),
                tail,
                fresh,
                clock_ahead: source.clock_ahead,
            };
            seen.lag(now_micros(), Instant::now())
        });
        ChannelView {
            channel_name: self.shared.name.clone(),
            state,
            state_detail,
            lag_seconds,
            backlog_transactions: backlog.map(|b| b.0),
            backlog_bytes: backlog.map(|b| b.1),
            received_transaction_set: received.to_string(),
            applied_transaction_set: applied.executed.to_string(),
            applied_transactions_total: earlier.transactions_total + applied.transactions_total,
            applied_groups_total: earlier.groups_total + applied.groups_total,
            applied_statements_total: earlier.statements_total + applied.statements_total,
            bottleneck: shown::bottleneck(cause, &applied),
            applied_transactions_per_second: rates.map(|rates| rates.0),
            received_transactions_per_second: rates.map(|rates| rates.1),
            seconds_to_drain: shown::seconds_to_drain(backlog, rates),
            settings: SettingsView {
                paused: tuning.paused,
                worker_count: tuning.worker_count,
                event_memory_limit: memory.2,
                throttle: tuning.throttle.map_or(0, |rate| rate.get()),
                until: self.shared.controls.until().get().map(|until| until.to_string()),
            },
            connection: shown::connection(&source, !receiving),
            relay: RelayView {
                segments: usage.segments as u64,
                bytes: usage.bytes,
                syncs_total: usage.syncs_total,
                space_limit_bytes: usage.space_limit,
                min_free_disk_bytes: usage.min_free_disk,
                free_disk_bytes: usage.free_disk,
                waiting: usage.waiting,
            },
            applier: ApplierView {
                desired_delay: self.shared.controls.source_delay().as_secs_f64(),
                remaining_delay: due_in,
                target_rewinds_total: rewinds.total,
                last_target_rewind_timestamp: rewinds.last.as_ref().map(|last| rfc3339_of(last.0)),
                last_target_rewind_transaction_set: rewinds.last.map(|last| last.1),
                ..shown::applier(
                    &applied,
                    if phase == Phase::Running { "ON" } else { "OFF" },
                    &earlier,
                    parts.as_ref().map(|parts| &*parts.status),
                )
            },
            event_memory: EventMemoryView {
                held_bytes: memory.0,
                peak_bytes: memory.1,
                limit_bytes: memory.2,
            },
            last_error,
        }
    }
}

impl IntakeObserver for Watch {
    /// Everything before the first of them is executed.
    fn read(&mut self, relayed: &RelayedTransaction) {
        self.shared.inner.lock().base.get_or_insert(before(relayed));
    }

    /// If no transaction was read before, all of the store was executed.
    fn read_to_end(&mut self, transactions: u64, bytes: u64) {
        self.shared.inner.lock().base.get_or_insert((transactions, bytes));
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

/// Number and bytes of everything before a transaction.
fn before(relayed: &RelayedTransaction) -> (u64, u64) {
    (relayed.ordinal - 1, relayed.cumulative_bytes - relayed.event_bytes)
}

/// Transactions and bytes received and not committed on the target.
fn backlog(usage: &RelayUsage, applied: &Applied, base: (u64, u64)) -> (u64, u64) {
    (
        usage.transactions_total.saturating_sub(base.0.max(applied.committed_ordinal)),
        usage.event_bytes_total.saturating_sub(base.1.max(applied.committed_bytes)),
    )
}

/// A snapshot with the totals at that moment.
#[derive(Debug, Default)]
struct Sampled {
    now: Snapshot,
    applied: u64,
    received: u64,
}

#[allow(clippy::too_many_arguments, reason = "everything a state depends on")]
fn state(
    phase: Phase,
    detail: String,
    paused: bool,
    source: &SourceView,
    applied: &Applied,
    usage: &RelayUsage,
    backlog: Option<(u64, u64)>,
    due_in: Option<f64>,
    tail: Tail,
) -> (ChannelState, String) {
    match phase {
        Phase::Starting => (ChannelState::Starting, "checking both servers".to_owned()),
        Phase::WaitingForSource => (ChannelState::WaitingForSource, detail),
        Phase::WaitingForTarget => (ChannelState::WaitingForTarget, detail),
        Phase::Stopped => (ChannelState::Stopped, detail),
        Phase::Failed => (ChannelState::Failed, detail),
        Phase::Running => {
            if !applied.target_connected {
                let why = applied.target_error.clone().unwrap_or_default();
                return (ChannelState::WaitingForTarget, why);
            }
            if !source.connected {
                let why = source.last_error.clone().unwrap_or_else(|| "connecting".to_owned());
                return (ChannelState::WaitingForSource, why);
            }
            if paused {
                let (pending, _) = backlog.unwrap_or_default();
                let text = match applied.sessions.len() {
                    0 => format!("paused, {pending} transactions to go"),
                    groups => format!("pausing, {groups} groups are being finished"),
                };
                return (ChannelState::Paused, text);
            }
            if let (Some(seconds), Some((pending, _))) = (due_in, backlog) {
                let text = format!(
                    "waiting for delay; the next transaction is due in {seconds:.0} s, {pending} \
                     transactions to go"
                );
                return (ChannelState::WaitingForDelay, text);
            }
            let text = match (&usage.waiting, backlog) {
                (Some(waiting), _) => waiting.clone(),
                (None, Some((0, _))) => match (tail.is_caught_up(), source.queueing_bytes) {
                    (true, _) => "has applied everything received, waiting for more".to_owned(),
                    (false, bytes) if source.queueing.is_some() => format!(
                        "has applied all whole transactions received; of the next, {bytes} bytes are here"
                    ),
                    _ => {
                        "has applied everything received; the source may have sent more".to_owned()
                    }
                },
                (None, Some((pending, _))) => format!("applying, {pending} transactions to go"),
                (None, None) => "reading the relay store".to_owned(),
            };
            (ChannelState::Running, text)
        }
    }
}
