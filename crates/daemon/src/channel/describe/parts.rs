//! Parts of the view of a channel: link, applier, workers, bottleneck. Pure.

use std::time::Duration;

use crate::copy::CopyProgress;
use crate::observe::progress::{Count, Moment};
use csa_applier::{
    ApplierDurationsView, ApplierView as Applied, HeldBack, LockWait, SessionView, Shortage,
};
use csa_provider::binlog::TransactionHeader;
use csa_provider::seams::DurationsView;
use csa_provider::source::SourceView;

use super::bottleneck::BottleneckCause;
use crate::host::{counted, rfc3339};
use crate::observe::view::{
    ApplierView, BottleneckView, ConnectionView, CopyView, DependencyView, DurationView,
    LockHolderView, LockWaitView, StartStepView, StatementView, StepsView, WorkerView,
};

/// Tables named in a view.
const TABLES_SHOWN: usize = 10;

/// `over`: reception has ended; `is_wanted`: nobody has asked for that.
pub(super) fn connection(source: &SourceView, over: bool, is_wanted: bool) -> ConnectionView {
    let queued = source.last_queued.as_ref();
    let service_state = match (over, source.connected) {
        (true, _) => "OFF",
        (false, true) => "ON",
        (false, false) => "CONNECTING",
    };
    ConnectionView {
        source: source.address.clone(),
        source_uuid: source.source_uuid.clone(),
        source_version: source.server_version.clone(),
        service_state: service_state.to_owned(),
        is_wanted,
        count_received_heartbeats: source.heartbeats_total,
        last_heartbeat_timestamp: source.last_heartbeat.map(rfc3339),
        last_error_message: source.last_error.clone(),
        last_error_cause: source.last_cause,
        last_error_timestamp: source.last_error_at.map(rfc3339),
        last_queued_transaction: queued.map(|h| h.gtid.to_string()),
        last_queued_transaction_original_commit_timestamp: original(queued),
        last_queued_transaction_immediate_commit_timestamp: immediate(queued),
        queueing_transaction: source.queueing.as_ref().map(|h| h.gtid.to_string()),
        queueing_transaction_bytes: source.queueing.as_ref().map(|h| h.transaction_length),
        queueing_transaction_received_bytes: source
            .queueing
            .as_ref()
            .map(|_| source.queueing_bytes),
        arrival_delay_seconds: source.arrival_delay.map(|delay| delay.as_secs_f64()),
        received_events_total: source.events_total,
        received_bytes_total: source.bytes_total,
        received_transactions_total: source.transactions_total,
        connects_total: source.connects_total,
        checksum_failures_total: source.checksum_failures_total,
        passed_over_events_total: source.passed_over_events_total,
        semi_sync: source.semi_sync.filter(|_| source.connected),
        acknowledgements_total: source.acknowledgements_total,
    }
}

/// The target's name, the delay, the lock's wait, the rewinds and skips do not come from the applier.
pub(super) fn applier(applied: &Applied, service_state: &str, earlier: &Applied) -> ApplierView {
    let last = applied.last_applied.as_ref();
    let header = last.map(|group| &group.last);
    let applying = applied.groups.values().next();
    ApplierView {
        service_state: service_state.to_owned(),
        executor: applied.executor.map(|executor| executor.name().to_owned()),
        own_left_out_total: earlier.own_left_out_total + applied.own_left_out_total,
        returned_left_out_total: earlier.returned_left_out_total + applied.returned_left_out_total,
        accounts_left_out_total: earlier.accounts_left_out_total + applied.accounts_left_out_total,
        count_transactions_retries: earlier.retries_total + applied.retries_total,
        lock_inversions_total: earlier.lock_inversions_total + applied.lock_inversions_total,
        commit_inversions_total: earlier.commit_inversions_total + applied.commit_inversions_total,
        waiting_transactions: applied.waiting_transactions as u64,
        waiting_groups: applied.waiting_groups as u64,
        workers: applied.sessions.iter().map(|session| worker(session, applied)).collect(),
        lock_holders: applied.lock_holders.clone(),
        dependencies: applied.held_back.iter().take(TABLES_SHOWN).map(dependency).collect(),
        statement: applied.statement.as_ref().map(statement),
        applying_transaction: applying.map(|group| group.last.gtid.to_string()),
        applying_transaction_start_apply_timestamp: applying.map(|g| rfc3339(g.started)),
        last_applied_transaction: header.map(|h| h.gtid.to_string()),
        last_applied_transaction_original_commit_timestamp: original(header),
        last_applied_transaction_immediate_commit_timestamp: immediate(header),
        last_applied_transaction_start_apply_timestamp: last.map(|g| rfc3339(g.started)),
        last_applied_transaction_end_apply_timestamp: last.and_then(|g| g.ended).map(rfc3339),
        target_error_message: applied.target_error.clone(),
        refused_sessions_total: earlier.refused_sessions_total + applied.refused_sessions_total,
        session_limit: applied.shortage.as_ref().map(|shortage| shortage.sessions as u64),
        ..ApplierView::default()
    }
}

pub(super) fn lock_wait(wait: &LockWait, at: Moment) -> LockWaitView {
    let LockWait { what, connection, since, found } = wait;
    let time = at.instant.saturating_duration_since(*since);
    let since = rfc3339(at.micros.saturating_sub(time.as_micros() as u64));
    let holders = found.holders.iter().map(|holder| LockHolderView {
        connection: holder.connection,
        user: holder.user.clone(),
        host: holder.host.clone(),
        command: holder.command.clone(),
        seconds: holder.seconds,
        statement: holder.statement.clone(),
    });
    LockWaitView {
        what: what.clone(),
        lock: found.lock.clone(),
        seconds: time.as_secs(),
        thread_id: *connection,
        holders: holders.collect(),
        unseen: found.unseen.clone(),
        look: found.look.clone(),
        sentence: format!("since {since} {wait}"),
        since,
    }
}

/// Returns the sessions that the target permits, in words.
pub(super) fn shortage(shortage: &Shortage) -> String {
    let Shortage { sessions, why, .. } = shortage;
    format!(
        "the target permits no more than {} beside the one that holds the channel: {why}",
        counted(*sessions as u64, "session")
    )
}

fn worker(session: &SessionView, applied: &Applied) -> WorkerView {
    let group = applied.groups.get(&session.sequence);
    WorkerView {
        worker_id: session.worker,
        thread_id: session.connection,
        state: session.state.name().to_owned(),
        seconds_in_state: session.since.elapsed().as_secs_f64(),
        sequence: session.sequence.get(),
        transactions: group.map_or(0, |group| group.transactions as u64),
        applying_transaction: group.map(|group| group.last.gtid.to_string()),
        applied_bytes: session.done_bytes,
        applying_bytes: session.total_bytes,
    }
}

fn dependency(held: &HeldBack) -> DependencyView {
    DependencyView { table: held.table.clone(), groups: held.groups, rows: held.rows }
}

fn statement(statement: &csa_applier::StatementView) -> StatementView {
    StatementView {
        transaction: statement.gtid.clone(),
        statement: statement.statement.clone(),
        seconds: statement.since.elapsed().as_secs_f64(),
        work_completed: statement.work_completed,
        work_estimated: statement.work_estimated,
    }
}

pub(super) fn copy(progress: &CopyProgress) -> CopyView {
    CopyView {
        step: progress.step.name().to_owned(),
        tables: progress.tables as u64,
        tables_done: progress.tables_done as u64,
        moving: progress.moving.clone(),
        rows: progress.rows,
        rows_estimated: progress.rows_estimated,
        bytes: progress.bytes,
        seconds: progress.elapsed.as_secs_f64(),
        rate: progress.rate().map(|(rate, _)| rate),
        seconds_left: progress.rate().map(|(_, left)| left),
        held: progress.held.clone(),
    }
}

pub(super) fn start(steps: &[(&'static str, Duration)]) -> Vec<StartStepView> {
    let step = |&(step, time): &(&str, Duration)| StartStepView {
        step: step.to_owned(),
        seconds: time.as_secs_f64(),
    };
    steps.iter().map(step).collect()
}

pub(super) fn durations(
    reception: &DurationsView,
    syncs: &DurationsView,
    applied: &ApplierDurationsView,
) -> StepsView {
    let duration = |durations: &DurationsView| DurationView {
        count: durations.count(),
        seconds: durations.seconds(),
        buckets: durations.buckets,
    };
    StepsView {
        reception: duration(reception),
        relay_sync: duration(syncs),
        admission_wait: duration(&applied.admission_wait),
        group_formation: duration(&applied.group_formation),
        preparation: duration(&applied.preparation),
        dependency_wait: duration(&applied.dependency_wait),
        statement: duration(&applied.statement),
        commit_order_wait: duration(&applied.commit_order_wait),
        commit: duration(&applied.commit),
        end_to_end: duration(&applied.end_to_end),
    }
}

/// In words, with the figures known now; `health`: how the health of the target throttles the channel.
pub(super) fn bottleneck(
    cause: Option<(BottleneckCause, f64)>,
    applied: &Applied,
    health: &str,
) -> BottleneckView {
    let (cause, share) = cause.unwrap_or((BottleneckCause::None, 1.0));
    let tables = || {
        let names = applied.held_back.iter().take(3).map(|held| held.table.as_str());
        let names: Vec<&str> = names.collect();
        if names.is_empty() { "no table".to_owned() } else { names.join(", ") }
    };
    let detail = match cause {
        BottleneckCause::None => "not running".to_owned(),
        BottleneckCause::Paused => "paused on request".to_owned(),
        BottleneckCause::Throttle if !health.is_empty() => health.to_owned(),
        BottleneckCause::Throttle => "limited by the throttle".to_owned(),
        BottleneckCause::Source => "nothing more has arrived from the source".to_owned(),
        BottleneckCause::Network => {
            "transactions arrive late, or the source can't be reached".to_owned()
        }
        BottleneckCause::Relay => "reading the relay store, or waiting for room in it".to_owned(),
        BottleneckCause::Dependency => {
            format!("rows wait for earlier groups, most in {}", tables())
        }
        BottleneckCause::CommitTurn => "groups wait for an earlier one to commit".to_owned(),
        BottleneckCause::Locks => match &applied.lock_wait {
            Some(wait) => wait.to_string(),
            None => lock_of(&applied.lock_holders),
        },
        BottleneckCause::Memory => "event_memory_limit is reached".to_owned(),
        BottleneckCause::Applier => "row changes are being merged".to_owned(),
        BottleneckCause::Target => "the target is executing".to_owned(),
    };
    BottleneckView { cause: cause.name().to_owned(), detail, share }
}

/// Names the connections that hold the lock, where they are known.
fn lock_of(holders: &[u32]) -> String {
    let named: Vec<String> = holders.iter().map(u32::to_string).collect();
    match named.len() {
        0 => "a lock on the target".to_owned(),
        1 => format!("a lock on the target, held by connection {}", named[0]),
        _ => format!("a lock on the target, held by connections {}", named.join(", ")),
    }
}

/// Returns the time to drain at the rates of the last seconds; `None` while the backlog does not
/// shrink.
pub(super) fn seconds_to_drain(backlog: Option<Count>, rates: Option<(f64, f64)>) -> Option<f64> {
    match (backlog?.transactions, rates) {
        (0, _) => Some(0.0),
        (pending, Some((applied, received))) if applied > received => {
            Some(pending as f64 / (applied - received))
        }
        _ => None,
    }
}

fn original(header: Option<&TransactionHeader>) -> Option<String> {
    header.map(|h| rfc3339(h.first_commit()))
}

fn immediate(header: Option<&TransactionHeader>) -> Option<String> {
    header.map(|h| rfc3339(h.immediate_commit_timestamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_whom_it_knows() {
        for (holders, text) in [
            (&[][..], "a lock on the target"),
            (&[7], "a lock on the target, held by connection 7"),
            (&[7, 12], "a lock on the target, held by connections 7, 12"),
        ] {
            assert_eq!(lock_of(holders), text);
        }
    }

    #[test]
    fn a_commit_time_that_is_not_logged_is_not_that_of_the_epoch() {
        let committed = |original, immediate| {
            let header = TransactionHeader {
                gtid: "05050505-0505-0505-0505-050505050505:1".parse().expect("a GTID"),
                original_commit_timestamp: original,
                immediate_commit_timestamp: immediate,
                transaction_length: 0,
                last_committed: 0,
                sequence_number: 0,
                original_server_version: TransactionHeader::UNKNOWN_VERSION,
                immediate_server_version: TransactionHeader::UNKNOWN_VERSION,
            };
            super::original(Some(&header)).expect("a time")
        };
        assert_eq!(committed(0, 7_000_000), committed(7_000_000, 7_000_000));
        assert_ne!(committed(5_000_000, 7_000_000), committed(7_000_000, 7_000_000));
    }
}
