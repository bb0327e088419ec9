//! What a channel shows of itself: state, lag, backlog.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use csa_applier::{ApplierStatus, ApplierView as Applied};
use csa_provider::{Gtid, GtidSet, SourceStatus, SourceView};
use csa_relaystore::{RelayStore, RelayUsage, RelayedTransaction};
use csa_scheduler::EventMemory;
use parking_lot::Mutex;

use super::bottleneck::{Meter, Snapshot};
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
    /// A source that was heard of within this time is there.
    fresh_within: Duration,
    meter: Meter,
    phase: Phase,
    detail: String,
    parts: Option<Parts>,
    taken: bool,
    /// What was applied by pipelines before this one.
    earlier: Applied,
    /// What they had received.
    received: GtidSet,
    /// Relay number and bytes up to which everything was committed when reading began.
    base: Option<(u64, u64)>,
    last_error: Option<ErrorView>,
    held_back: Option<(u64, u64)>,
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

/// The pipeline that runs.
#[derive(Debug, Clone)]
struct Parts {
    status: Arc<ApplierStatus>,
    store: Arc<RelayStore>,
    memory: EventMemory,
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

    /// The channel is started, or started again.
    pub(super) fn starting(&self, settings: &ChannelSettings) {
        let mut inner = self.shared.inner.lock();
        inner.phase = Phase::Starting;
        inner.fresh_within = settings.source.heartbeat_interval * 2 + Duration::from_secs(1);
        inner.last_error = None;
    }

    pub(super) fn source(&self) -> Arc<SourceStatus> {
        Arc::clone(&self.shared.source)
    }

    pub(super) fn attach(
        &self,
        status: &Arc<ApplierStatus>,
        store: &Arc<RelayStore>,
        memory: &EventMemory,
        executed: &GtidSet,
    ) {
        let mut inner = self.shared.inner.lock();
        inner.phase = Phase::Running;
        inner.detail =
            format!("from {}", if executed.is_empty() { "the start" } else { "the checkpoint" });
        inner.base = None;
        inner.taken = true;
        inner.parts = Some(Parts {
            status: Arc::clone(status),
            store: Arc::clone(store),
            memory: memory.clone(),
        });
    }

    pub(super) fn is_taken(&self) -> bool {
        self.shared.inner.lock().taken
    }

    /// The pipeline has ended; its totals stay.
    pub(super) fn detach(&self) {
        let mut inner = self.shared.inner.lock();
        if let Some(parts) = inner.parts.take() {
            let ended = parts.status.view();
            inner.received = parts.store.received_so_far();
            let earlier = &mut inner.earlier;
            earlier.transactions_total += ended.transactions_total;
            earlier.groups_total += ended.groups_total;
            earlier.statements_total += ended.statements_total;
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

    /// A transaction waits until it is due: its original commit timestamp and when it is, both in
    /// microseconds since the epoch.
    pub(super) fn held_back(&self, transaction: Option<(u64, u64)>) {
        self.shared.inner.lock().held_back = transaction;
    }

    pub(super) fn failed(&self, error: &ChannelError) {
        self.phase(Phase::Failed, &error.to_string());
        let at = rfc3339_of(SystemTime::now());
        self.shared.inner.lock().last_error = Some(failure::shown(&self.shared.name, error, at));
    }

    fn phase(&self, phase: Phase, detail: &str) {
        let mut inner = self.shared.inner.lock();
        inner.phase = phase;
        detail.clone_into(&mut inner.detail);
    }

    /// Everything in the store has been read: without a first transaction, all of it was executed.
    pub(super) fn read_to_end(&self, ordinal: u64, bytes: u64) {
        self.shared.inner.lock().base.get_or_insert((ordinal, bytes));
    }

    /// The first transaction that is not executed: everything before it is.
    pub(super) fn first_read(&self, relayed: &RelayedTransaction) {
        let before = (relayed.ordinal - 1, relayed.cumulative_bytes - relayed.event_bytes);
        self.shared.inner.lock().base.get_or_insert(before);
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

    /// Whether nothing is being applied.
    pub(super) fn is_at_rest(&self) -> bool {
        let parts = self.shared.inner.lock().parts.clone();
        parts.is_none_or(|parts| {
            let applied = parts.status.view();
            applied.applying.is_none() && applied.statement.is_none()
        })
    }

    /// The transaction that stopped the channel.
    pub(super) fn stopped_at(&self) -> Option<Gtid> {
        let inner = self.shared.inner.lock();
        inner.last_error.as_ref()?.transaction.as_ref()?.parse().ok()
    }

    /// Looks at what keeps the channel busy.
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
        let (parts, phase, base) = {
            let inner = self.shared.inner.lock();
            (inner.parts.clone(), inner.phase, inner.base)
        };
        let tuning = self.shared.controls.tuning();
        let Some(parts) = parts else { return Sampled::default() };
        let (applied, usage) = (parts.status.view(), parts.store.usage());
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

    /// Looks at the relay store's disk; blocks.
    pub(super) fn measure_disk(&self) {
        let store = self.shared.inner.lock().parts.as_ref().map(|parts| Arc::clone(&parts.store));
        if let Some(store) = store {
            store.measure_disk();
        }
    }

    pub(super) fn view(&self) -> ChannelView {
        let tuning = self.shared.controls.tuning();
        let source = self.shared.source.view();
        let (
            parts,
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
        ) = {
            let inner = self.shared.inner.lock();
            (
                inner.parts.clone(),
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
            )
        };
        let mut applied = parts.as_ref().map_or_else(
            || Applied { executed: earlier.executed.clone(), ..Applied::default() },
            |parts| parts.status.view(),
        );
        // Only what the applier does not have yet is held back.
        let held_back = held_back.filter(|_| applied.oldest_pending_commit_timestamp.is_none());
        if let Some((original_commit_timestamp, _)) = held_back {
            applied.oldest_pending_commit_timestamp = Some(original_commit_timestamp);
        }
        let due_in = held_back.map(|(_, due)| due.saturating_sub(now_micros()) as f64 / 1e6);
        let usage = parts.as_ref().map(|parts| parts.store.usage()).unwrap_or_default();
        let memory = self.shared.controls.memory().usage();
        let fresh = source.connected
            && source.last_event.is_some_and(|last| last.elapsed() <= fresh_within);
        let backlog =
            parts.is_some().then(|| base.map(|base| backlog(&usage, &applied, base))).flatten();
        let (state, state_detail) =
            state(phase, detail, tuning.paused, &source, &applied, &usage, backlog, due_in);
        let mut received = parts.as_ref().map_or(received, |parts| parts.store.received_so_far());
        received.union(&applied.executed);
        ChannelView {
            channel_name: self.shared.name.clone(),
            state,
            state_detail,
            lag_seconds: lag(phase, backlog, fresh, &applied),
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
            connection: shown::connection(&source, matches!(phase, Phase::Stopped | Phase::Failed)),
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

/// Transactions and bytes received and not committed on the target.
fn backlog(usage: &RelayUsage, applied: &Applied, base: (u64, u64)) -> (u64, u64) {
    (
        usage.transactions_total.saturating_sub(base.0.max(applied.committed_ordinal)),
        usage.event_bytes_total.saturating_sub(base.1.max(applied.committed_bytes)),
    )
}

/// Zero only when nothing is pending and the source is heard; absent when it can't be known.
fn lag(phase: Phase, backlog: Option<(u64, u64)>, fresh: bool, applied: &Applied) -> Option<f64> {
    if phase != Phase::Running {
        return None;
    }
    match backlog? {
        (0, _) => fresh.then_some(0.0),
        _ => {
            let newest_applied = || {
                let applied = applied.last_applied.as_ref()?;
                Some(applied.last.original_commit_timestamp)
            };
            let oldest = applied.oldest_pending_commit_timestamp.or_else(newest_applied)?;
            Some(now_micros().saturating_sub(oldest) as f64 / 1e6)
        }
    }
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
) -> (ChannelState, String) {
    match phase {
        Phase::Starting => (ChannelState::Starting, "looking at both servers".to_owned()),
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
                    "waiting for delay, the next transaction is due in {seconds:.0} s, {pending} \
                     transactions to go"
                );
                return (ChannelState::WaitingForDelay, text);
            }
            let text = match (&usage.waiting, backlog) {
                (Some(waiting), _) => waiting.clone(),
                (None, Some((0, _))) => {
                    "has applied everything received, waiting for more".to_owned()
                }
                (None, Some((pending, _))) => format!("applying, {pending} transactions to go"),
                (None, None) => "reading the relay store".to_owned(),
            };
            (ChannelState::Running, text)
        }
    }
}
