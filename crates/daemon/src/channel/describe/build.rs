//! Builds the view of a channel from what is known of it. Pure.

use super::archive_only::ArchiveOnly;
use super::elsewhere;
use super::facts::Facts;
use super::parts;
use super::state::{Circumstances, Phase};
use crate::host::rfc3339;
use crate::observe::progress::{Moment, ProgressView};
use crate::observe::view::{
    ApplierView, ChannelState, ChannelView, EventMemoryView, RelayView, ThrottleByView,
};

impl Facts {
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
            attached: self.attached,
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
            // Only some views need texts that may be large.
            received_transaction_set: String::new(),
            applied_transaction_set: String::new(),
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
            connection: parts::connection(source, !self.receiving, self.is_wanted),
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
            is_joining: false,
            notify: None,
            verify: None,
        };
        let view = match archive_only {
            Some(archive_only) => archive_only.shown(view),
            None => view,
        };
        elsewhere::shown(view)
    }
}
