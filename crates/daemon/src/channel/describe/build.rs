//! Builds the view of a channel from what is known of it. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::copy::CopyProgress;
use crate::observe::progress::{Moment, ProgressView};
use csa_applier::{ApplierDurationsView, Tuning};
use csa_provider::binlog::GtidSet;
use csa_provider::seams::DurationsView;

use super::archive_only::ArchiveOnly;
use super::bottleneck::{BottleneckCause, Snapshot};
use super::parts;
use super::state::{Circumstances, Phase};
use crate::channel::live_settings::Paused;
use crate::host::rfc3339;
use crate::observe::view::{
    ApplierView, ArchiveView, ChannelState, ChannelView, CopyCheckView, ErrorView, EventMemoryView,
    RelayView, SettingsView, ThrottleByView,
};

/// How often the target came back without what was committed there; when it last did, and what it
/// lacked.
#[derive(Debug, Clone, Default)]
pub(in crate::channel) struct Rewinds {
    pub(in crate::channel) total: u64,
    pub(in crate::channel) last: Option<(u64, String)>,
}

/// Everything known of a channel at one moment.
#[derive(Debug, Clone)]
pub(in crate::channel) struct Facts {
    pub(in crate::channel) name: String,
    pub(in crate::channel) phase: Phase,
    /// The reason for the phase.
    pub(in crate::channel) detail: String,
    pub(in crate::channel) tuning: Tuning,
    pub(in crate::channel) settings: SettingsView,
    pub(in crate::channel) health: Option<ThrottleByView>,
    pub(in crate::channel) paused: Option<Paused>,
    /// Address, and version once it is known; `None` for a channel that only archives.
    pub(in crate::channel) target: Option<(String, Option<String>)>,
    pub(in crate::channel) source_delay: Duration,
    /// Bytes held, the most ever held, and the limit.
    pub(in crate::channel) memory: (u64, u64, u64),
    /// A transaction waits for event memory.
    pub(in crate::channel) memory_short: bool,
    /// From the source's commit to the arrival of the whole transaction.
    pub(in crate::channel) reception: DurationsView,
    pub(in crate::channel) durations: ApplierDurationsView,
    pub(in crate::channel) progress: ProgressView,
    /// Something is received into the relay store.
    pub(in crate::channel) receiving: bool,
    /// The most frequent cause of the last seconds, and its share.
    pub(in crate::channel) cause: Option<(BottleneckCause, f64)>,
    /// Transactions per second, applied and received.
    pub(in crate::channel) rates: Option<(f64, f64)>,
    pub(in crate::channel) rewinds: Rewinds,
    /// Steps of the last start, and their times.
    pub(in crate::channel) start: Vec<(&'static str, Duration)>,
    /// The copy that is being made.
    pub(in crate::channel) copy: Option<CopyProgress>,
    pub(in crate::channel) copy_check: Option<CopyCheckView>,
    pub(in crate::channel) archive: Option<ArchiveView>,
    /// Everything archived; `None` without an archive, and before it has answered.
    pub(in crate::channel) archived: Option<GtidSet>,
    /// Transactions that an operator skipped.
    pub(in crate::channel) skipped: u64,
    /// The time of the next attempt, of a channel that waits for one.
    pub(in crate::channel) next_attempt: Option<Instant>,
    /// Attempts of a channel that had failed.
    pub(in crate::channel) attempts: u64,
    pub(in crate::channel) last_error: Option<ErrorView>,
}

impl Facts {
    /// Returns the sample from which the bottleneck is found.
    pub(in crate::channel) fn snapshot(&self) -> Snapshot {
        let progress = &self.progress;
        if !progress.is_applying {
            return Snapshot::default();
        }
        let applied = &progress.applied;
        Snapshot {
            running: self.phase == Phase::Running,
            paused: self.tuning.paused,
            throttled: applied.throttled,
            source_connected: progress.source.connected,
            target_connected: applied.target_connected,
            backlog: progress.backlog().map(|backlog| backlog.transactions),
            relay_full: progress.usage.waiting.is_some(),
            memory_short: self.memory_short,
            arrival_delay: progress.source.arrival_delay,
            locked: !applied.lock_holders.is_empty() || applied.lock_wait.is_some(),
            statement: applied.statement.is_some(),
            workers: usize::from(self.tuning.worker_count),
            busy: applied.sessions.iter().map(|session| session.state).collect(),
            waiting_transactions: applied.waiting_transactions,
        }
    }

    pub(in crate::channel) fn view(self, at: Moment) -> ChannelView {
        let archive_only = ArchiveOnly::of(&self, at);
        let (address, target_version) = self.target.clone().unwrap_or_default();
        let backlog = self.progress.backlog();
        let due_in = self.progress.held_back();
        let due_in = due_in.map(|held| held.due.saturating_sub(at.micros) as f64 / 1e6);
        let wait = self.progress.applied.lock_wait.as_ref();
        let lock_wait = wait.map(|wait| parts::lock_wait(wait, at));
        let standing = Circumstances {
            phase: self.phase,
            detail: &self.detail,
            receiving: self.receiving,
            paused: self.tuning.paused,
            paused_by: self.paused.as_ref(),
            source: &self.progress.source,
            applied: &self.progress.applied,
            lock_wait: lock_wait.as_ref().map(|wait| wait.sentence.as_str()),
            no_room: self.progress.usage.waiting.as_deref(),
            lacks_disk: self.progress.usage.waits_for_disk,
            backlog: backlog.map(|backlog| backlog.transactions),
            due_in,
            tail: self.progress.tail(),
        };
        let (state, mut state_detail) = standing.state();
        let health = self.health.as_ref().map(ThrottleByView::sentence).unwrap_or_default();
        if state == ChannelState::Running && !health.is_empty() {
            state_detail = format!("{state_detail}; {health}");
        }
        // A session that found no room waits without one, and what it waits for is the better reason.
        if matches!(state, ChannelState::Running | ChannelState::WaitingForTarget)
            && let Some(shortage) = &self.progress.applied.shortage
            && !state_detail.contains(&shortage.why)
        {
            state_detail = format!("{state_detail}; {}", parts::shortage(shortage));
        }
        if let Some(check) = self.copy_check.as_ref().filter(|check| check.is_different()) {
            state_detail = format!("{state_detail}; {}", check.text);
        }
        let target = self.progress.applied.target_next_attempt;
        let next_attempt = match state {
            ChannelState::WaitingForTarget => self.next_attempt.or(target),
            _ => self.next_attempt,
        };
        let next_attempt = next_attempt.map(|next| next.saturating_duration_since(at.instant));
        let ProgressView { source, applied, earlier, usage, .. } = &self.progress;
        let rewinds = &self.rewinds;
        let service_state = if self.phase == Phase::Running { "ON" } else { "OFF" };
        let view = ChannelView {
            state,
            state_detail,
            next_attempt_seconds: next_attempt.map(|pause| pause.as_secs_f64()),
            attempts_after_failure_total: self.attempts,
            lag_seconds: self.progress.lag(at),
            backlog_transactions: backlog.map(|backlog| backlog.transactions),
            backlog_bytes: backlog.map(|backlog| backlog.bytes),
            received_transaction_set: self.progress.received().to_string(),
            applied_transaction_set: applied.executed.to_string(),
            applied_transactions_total: earlier.transactions_total + applied.transactions_total,
            applied_groups_total: earlier.groups_total + applied.groups_total,
            applied_statements_total: earlier.statements_total + applied.statements_total,
            bottleneck: parts::bottleneck(self.cause, applied, &health),
            applied_transactions_per_second: self.rates.map(|rates| rates.0),
            received_transactions_per_second: self.rates.map(|rates| rates.1),
            start: parts::start(&self.start),
            copy: self.copy.as_ref().map(parts::copy),
            copy_check: self.copy_check,
            archive: self.archive,
            durations: parts::durations(&self.reception, &usage.syncs, &self.durations),
            seconds_to_drain: parts::seconds_to_drain(backlog, self.rates),
            settings: self.settings,
            throttle_by: self.health,
            connection: parts::connection(source, !self.receiving),
            relay: RelayView {
                segments: usage.segments as u64,
                bytes: usage.bytes,
                written_bytes_total: usage.written_total,
                syncs_total: usage.syncs_total,
                space_limit_bytes: usage.space_limit,
                min_free_disk_bytes: usage.min_free_disk,
                free_disk_bytes: usage.free_disk,
                waiting: usage.waiting.clone(),
            },
            applier: ApplierView {
                target: address,
                target_version,
                desired_delay: self.source_delay.as_secs_f64(),
                remaining_delay: due_in,
                lock_wait,
                skipped_total: self.skipped,
                target_rewinds_total: rewinds.total,
                last_target_rewind_timestamp: rewinds.last.as_ref().map(|last| rfc3339(last.0)),
                last_target_rewind_transaction_set: rewinds
                    .last
                    .as_ref()
                    .map(|last| last.1.clone()),
                ..parts::applier(applied, service_state, earlier)
            },
            event_memory: EventMemoryView {
                held_bytes: self.memory.0,
                peak_bytes: self.memory.1,
                limit_bytes: self.memory.2,
            },
            channel_name: self.name,
            last_error: self.last_error,
            notify: None,
            verify: None,
        };
        match archive_only {
            Some(archive_only) => archive_only.shown(view),
            None => view,
        }
    }
}
