//! What a channel shows of itself: state, lag, backlog.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use csa_applier::{ApplierStatus, ApplierView as Applied, SessionView};
use csa_provider::{GtidSet, SourceStatus, SourceView, TransactionHeader};
use csa_relaystore::{RelayStore, RelayUsage, RelayedTransaction};
use csa_scheduler::EventMemory;
use parking_lot::Mutex;
use tokio::sync::watch as value;

use super::ChannelError;
use crate::clock::{now_micros, rfc3339, rfc3339_of};
use crate::config::ChannelSettings;
use crate::view::{
    ApplierView, ChannelState, ChannelView, ConnectionView, ErrorView, EventMemoryView, RelayView,
    WorkerView,
};

/// Shared by everything that runs in a channel; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    /// A source that was heard of within this time is there.
    fresh_within: Duration,
    source_delay: value::Receiver<Duration>,
    source: Arc<SourceStatus>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    phase: Phase,
    detail: String,
    parts: Option<Parts>,
    /// What was applied by pipelines before this one.
    earlier: Applied,
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
    pub(super) fn new(settings: &ChannelSettings, source_delay: value::Receiver<Duration>) -> Self {
        let heartbeat = settings.source.heartbeat_interval;
        Self {
            shared: Arc::new(Shared {
                name: settings.name.clone(),
                fresh_within: heartbeat * 2 + Duration::from_secs(1),
                source_delay,
                source: Arc::default(),
                inner: Mutex::default(),
            }),
        }
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
        inner.parts = Some(Parts {
            status: Arc::clone(status),
            store: Arc::clone(store),
            memory: memory.clone(),
        });
    }

    /// The pipeline has ended; its totals stay.
    pub(super) fn detach(&self) {
        let mut inner = self.shared.inner.lock();
        if let Some(parts) = inner.parts.take() {
            let ended = parts.status.view();
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
        let (number, transaction) = match error {
            ChannelError::Applier(error) => (error.code().unwrap_or(0), error.gtid()),
            _ => (0, None),
        };
        self.shared.inner.lock().last_error = Some(ErrorView {
            number,
            message: error.to_string(),
            timestamp: rfc3339_of(SystemTime::now()),
            transaction,
        });
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

    pub(super) fn view(&self) -> ChannelView {
        let source = self.shared.source.view();
        let (parts, phase, detail, earlier, base, last_error, held_back) = {
            let inner = self.shared.inner.lock();
            (
                inner.parts.clone(),
                inner.phase,
                inner.detail.clone(),
                inner.earlier.clone(),
                inner.base,
                inner.last_error.clone(),
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
        let memory = parts.as_ref().map_or((0, 0, 0), |parts| parts.memory.usage());
        let fresh = source.connected
            && source.last_event.is_some_and(|last| last.elapsed() <= self.shared.fresh_within);
        let backlog =
            parts.is_some().then(|| base.map(|base| backlog(&usage, &applied, base))).flatten();
        let (state, state_detail) =
            state(phase, detail, &source, &applied, &usage, backlog, due_in);
        let received = received(&parts, &source, &applied);
        ChannelView {
            channel_name: self.shared.name.clone(),
            state,
            state_detail,
            lag_seconds: lag(phase, backlog, fresh, &applied),
            backlog_transactions: backlog.map(|b| b.0),
            backlog_bytes: backlog.map(|b| b.1),
            received_transaction_set: received,
            applied_transaction_set: applied.executed.to_string(),
            applied_transactions_total: earlier.transactions_total + applied.transactions_total,
            applied_groups_total: earlier.groups_total + applied.groups_total,
            applied_statements_total: earlier.statements_total + applied.statements_total,
            connection: connection(&source, phase),
            relay: RelayView {
                segments: usage.segments as u64,
                bytes: usage.bytes,
                syncs_total: usage.syncs_total,
                waiting: usage.waiting,
            },
            applier: ApplierView {
                desired_delay: self.shared.source_delay.borrow().as_secs_f64(),
                remaining_delay: due_in,
                ..applier(&applied, phase, &earlier)
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

fn state(
    phase: Phase,
    detail: String,
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

fn received(parts: &Option<Parts>, source: &SourceView, applied: &Applied) -> String {
    let mut set = parts.as_ref().map(|parts| parts.store.received().clone()).unwrap_or_default();
    set.union(&applied.executed);
    if let Some(last) = &source.last_queued {
        set.add(&last.gtid);
    }
    set.to_string()
}

fn connection(source: &SourceView, phase: Phase) -> ConnectionView {
    let queued = source.last_queued.as_ref();
    let service_state = match (phase, source.connected) {
        (Phase::Stopped | Phase::Failed, _) => "OFF",
        (_, true) => "ON",
        (_, false) => "CONNECTING",
    };
    ConnectionView {
        source: source.address.clone(),
        source_uuid: source.source_uuid.clone(),
        source_version: source.server_version.clone(),
        service_state: service_state.to_owned(),
        count_received_heartbeats: source.heartbeats_total,
        last_heartbeat_timestamp: source.last_heartbeat.map(rfc3339_of),
        last_error_message: source.last_error.clone(),
        last_error_timestamp: source.last_error_at.map(rfc3339_of),
        last_queued_transaction: queued.map(|h| h.gtid.to_string()),
        last_queued_transaction_original_commit_timestamp: original(queued),
        last_queued_transaction_immediate_commit_timestamp: immediate(queued),
        queueing_transaction: source.queueing.as_ref().map(|h| h.gtid.to_string()),
        received_events_total: source.events_total,
        received_bytes_total: source.bytes_total,
        received_transactions_total: source.transactions_total,
        connects_total: source.connects_total,
        checksum_failures_total: source.checksum_failures_total,
    }
}

fn applier(applied: &Applied, phase: Phase, earlier: &Applied) -> ApplierView {
    let last = applied.last_applied.as_ref();
    let header = last.map(|group| &group.last);
    let applying = applied.applying.as_ref();
    ApplierView {
        service_state: if phase == Phase::Running { "ON" } else { "OFF" }.to_owned(),
        count_transactions_retries: earlier.retries_total + applied.retries_total,
        lock_inversions_total: earlier.lock_inversions_total + applied.lock_inversions_total,
        waiting_transactions: applied.waiting_transactions as u64,
        waiting_groups: applied.waiting_groups as u64,
        workers: applied.sessions.iter().map(worker).collect(),
        applying_transaction: applying.map(|group| group.last.gtid.to_string()),
        applying_transaction_start_apply_timestamp: applying.map(|g| rfc3339_of(g.started)),
        last_applied_transaction: header.map(|h| h.gtid.to_string()),
        last_applied_transaction_original_commit_timestamp: original(header),
        last_applied_transaction_immediate_commit_timestamp: immediate(header),
        last_applied_transaction_start_apply_timestamp: last.map(|g| rfc3339_of(g.started)),
        last_applied_transaction_end_apply_timestamp: last.and_then(|g| g.ended).map(rfc3339_of),
        target_error_message: applied.target_error.clone(),
        ..ApplierView::default()
    }
}

fn worker(session: &SessionView) -> WorkerView {
    WorkerView {
        worker_id: session.worker,
        thread_id: session.connection,
        state: session.state.name().to_owned(),
        seconds_in_state: session.since.elapsed().as_secs_f64(),
        sequence: session.sequence.get(),
    }
}

fn original(header: Option<&TransactionHeader>) -> Option<String> {
    header.map(|h| rfc3339(h.original_commit_timestamp))
}

fn immediate(header: Option<&TransactionHeader>) -> Option<String> {
    header.map(|h| rfc3339(h.immediate_commit_timestamp))
}
