//! The contents of `/status` for a channel, under the column names of the
//! `performance_schema.replication_*` tables where they have one.

mod answers;
mod copy;
mod errors;
mod health;
mod locks;
mod notify;
mod peers;
mod steps;
mod verify;

use csa_provider::source::SourceCause;
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use crate::archive::upload::ArchiveView;
pub(crate) use answers::{
    ChangedView, CommandView, ErrorAnswer, LastReload, PendingView, ReloadView, RestartedView,
    SegmentView, SegmentsView, WaitView,
};
pub(crate) use copy::{CopyCheckView, CopyView, MovingTableView};
pub(crate) use errors::{ErrorValues, ErrorView, FailingColumnView, FailingRowView};
pub(crate) use health::{LimitView, ThrottleByView};
pub(crate) use locks::{LockHolderView, LockWaitView};
pub(crate) use notify::NotifyView;
pub(crate) use peers::{PeerChannelView, PeerView, PeersView};
pub(crate) use steps::{DurationView, StartStepView, StepsView};
pub(crate) use verify::{DifferingTableView, VerifyProgressView, VerifyResultView, VerifyView};

/// The part of every path that names the version of the HTTP API. docs/stability.md says what it promises.
pub(crate) const API: &str = "/api/v1";

/// `/status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StatusView {
    pub(crate) daemon: DaemonView,
    pub(crate) channels: Vec<ChannelView>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DaemonView {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_seconds: u64,
    pub(crate) log_filter: String,
    /// The sender is shown row values.
    pub(crate) shows_values: bool,
    /// Made at its start: two addresses may lead to one daemon.
    #[serde(default)]
    pub(crate) id: String,
    /// Other daemons whose channels `/peers` has.
    #[serde(default)]
    pub(crate) peers: usize,
}

named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum ChannelState {
        #[default]
        Starting = "starting",
        WaitingForSource = "waiting_for_source",
        WaitingForTarget = "waiting_for_target",
        /// The archive of a channel without a target can't be written.
        WaitingForArchive = "waiting_for_archive",
        /// Another session on the target has a lock that the next transaction needs.
        WaitingForLock = "waiting_for_lock",
        /// Nothing more can be received before there is room for it on the disk or in the relay store.
        WaitingForSpace = "waiting_for_space",
        /// The next transaction is not yet due.
        WaitingForDelay = "waiting_for_delay",
        /// Another daemon has the channel.
        Standby = "standby",
        Running = "running",
        Paused = "paused",
        Stopped = "stopped",
        Failed = "failed",
        ;
        /// A client's word for the state of a daemon of a later version. No daemon is in it.
        #[serde(skip_deserializing)]
        Unknown = "unknown",
    }
}

impl ChannelState {
    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.name() == name).unwrap_or(Self::Unknown)
    }

    /// Reads an answer: a state that a later version has added must not hide the rest of it.
    fn of_any_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::named(&name))
    }

    /// It does what it should.
    pub(crate) const fn is_well(self) -> bool {
        matches!(self, Self::Running | Self::WaitingForLock | Self::WaitingForDelay | Self::Standby)
    }
}

/// One channel.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ChannelView {
    pub(crate) channel_name: String,
    #[serde(deserialize_with = "ChannelState::of_any_version")]
    pub(crate) state: ChannelState,
    /// The state in a sentence.
    pub(crate) state_detail: String,
    /// In a fleet, this daemon may be about to claim the channel. Serves events; other programs have the state.
    #[serde(skip)]
    pub(crate) is_joining: bool,
    /// The time until the daemon tries again on its own; absent while it waits for no attempt.
    pub(crate) next_attempt_seconds: Option<f64>,
    /// Times that the daemon tried again on its own after the channel had failed.
    #[serde(default)]
    pub(crate) attempts_after_failure_total: u64,
    /// Now minus the source's commit time of the oldest transaction not committed on the target, or not archived by a
    /// channel without a target; absent when nothing is pending and the source can't be reached.
    pub(crate) lag_seconds: Option<f64>,
    /// Received and not committed, or not archived.
    pub(crate) backlog_transactions: Option<u64>,
    pub(crate) backlog_bytes: Option<u64>,
    pub(crate) received_transaction_set: String,
    pub(crate) applied_transaction_set: String,
    pub(crate) applied_transactions_total: u64,
    pub(crate) applied_groups_total: u64,
    pub(crate) applied_statements_total: u64,
    /// Average of the last seconds.
    pub(crate) applied_transactions_per_second: Option<f64>,
    pub(crate) received_transactions_per_second: Option<f64>,
    /// The time to drain at these rates; absent while the backlog does not shrink.
    pub(crate) seconds_to_drain: Option<f64>,
    pub(crate) bottleneck: BottleneckView,
    /// Steps of the last start that have ended.
    #[serde(default)]
    pub(crate) start: Vec<StartStepView>,
    /// Absent unless the channel begins with a copy at the moment.
    pub(crate) copy: Option<CopyView>,
    /// Absent unless a copy was made since the daemon started.
    pub(crate) copy_check: Option<CopyCheckView>,
    /// Absent without an archive.
    pub(crate) archive: Option<ArchiveView>,
    /// How long the steps took since the daemon started.
    #[serde(default)]
    pub(crate) durations: StepsView,
    pub(crate) settings: SettingsView,
    /// Absent without limits, and while nothing is applied.
    pub(crate) throttle_by: Option<ThrottleByView>,
    pub(crate) connection: ConnectionView,
    pub(crate) relay: RelayView,
    pub(crate) applier: ApplierView,
    pub(crate) event_memory: EventMemoryView,
    pub(crate) last_error: Option<ErrorView>,
    /// Absent unless the channel's events have a receiver.
    pub(crate) notify: Option<NotifyView>,
    /// Absent unless the daemon compares both servers on its own.
    pub(crate) verify: Option<VerifyView>,
}

/// The part that limits the channel.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct BottleneckView {
    pub(crate) cause: String,
    pub(crate) detail: String,
    /// Its share of the last seconds, 0 to 1.
    pub(crate) share: f64,
}

/// Settings that can change while the channel runs, with their current values.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SettingsView {
    pub(crate) paused: bool,
    /// The sender of the pause (the claimed name and the identity that the kernel reports), and its time.
    pub(crate) paused_by: Option<String>,
    pub(crate) paused_since: Option<String>,
    pub(crate) worker_count: u16,
    pub(crate) event_memory_limit: u64,
    /// Transactions per second; 0 for no limit.
    pub(crate) throttle: u32,
    /// The end at which it stops automatically.
    pub(crate) until: Option<String>,
}

/// Modelled on `replication_connection_status`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectionView {
    pub(crate) source: String,
    pub(crate) source_uuid: Option<String>,
    pub(crate) source_version: Option<String>,
    pub(crate) service_state: String,
    /// Reception has begun, and nobody has ended it since.
    pub(crate) is_wanted: bool,
    pub(crate) count_received_heartbeats: u64,
    pub(crate) last_heartbeat_timestamp: Option<String>,
    pub(crate) last_error_message: Option<String>,
    /// Serves to choose advice; other programs have the message.
    #[serde(skip)]
    pub(crate) last_error_cause: Option<SourceCause>,
    pub(crate) last_error_timestamp: Option<String>,
    pub(crate) last_queued_transaction: Option<String>,
    pub(crate) last_queued_transaction_original_commit_timestamp: Option<String>,
    pub(crate) last_queued_transaction_immediate_commit_timestamp: Option<String>,
    pub(crate) queueing_transaction: Option<String>,
    /// Its bytes, and those received so far.
    pub(crate) queueing_transaction_bytes: Option<u64>,
    pub(crate) queueing_transaction_received_bytes: Option<u64>,
    /// Time from the last transaction's commit on the source until it was received.
    pub(crate) arrival_delay_seconds: Option<f64>,
    pub(crate) received_events_total: u64,
    pub(crate) received_bytes_total: u64,
    pub(crate) received_transactions_total: u64,
    pub(crate) connects_total: u64,
    pub(crate) checksum_failures_total: u64,
    /// Events passed over because they mean nothing to a replica.
    pub(crate) passed_over_events_total: u64,
    /// The source takes acknowledgements; absent unless `semi_sync` is set and the source is connected.
    pub(crate) semi_sync: Option<bool>,
    /// One can cover many transactions.
    pub(crate) acknowledgements_total: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RelayView {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// Bytes written to segment files. A daemon of an earlier version does not count them.
    #[serde(default)]
    pub(crate) written_bytes_total: u64,
    pub(crate) syncs_total: u64,
    /// 0 for none.
    pub(crate) space_limit_bytes: u64,
    pub(crate) min_free_disk_bytes: u64,
    pub(crate) free_disk_bytes: Option<u64>,
    /// The reason why reception waits.
    pub(crate) waiting: Option<String>,
}

/// Modelled on `replication_applier_status` and `replication_applier_status_by_worker`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ApplierView {
    /// Address, as configured; empty for a channel that only archives.
    pub(crate) target: String,
    pub(crate) target_version: Option<String>,
    pub(crate) service_state: String,
    /// How rows are written: `row-image` or `sql`.
    pub(crate) executor: Option<String>,
    /// `source_delay`, and the time for which the next transaction is still held back; seconds.
    pub(crate) desired_delay: f64,
    pub(crate) remaining_delay: Option<f64>,
    /// Transactions whose account management was left out.
    pub(crate) accounts_left_out_total: u64,
    /// Statements about schema csa that were not applied.
    pub(crate) own_left_out_total: u64,
    /// Transactions that came back to the target and were not applied again.
    pub(crate) returned_left_out_total: u64,
    /// Transactions that an operator skipped.
    pub(crate) skipped_total: u64,
    pub(crate) count_transactions_retries: u64,
    /// Groups that gave up their locks to an earlier one.
    pub(crate) lock_inversions_total: u64,
    /// Groups that were committed before an earlier one.
    pub(crate) commit_inversions_total: u64,
    /// Transactions that were read and are in no group, and groups that wait for another's commit.
    pub(crate) waiting_transactions: u64,
    pub(crate) waiting_groups: u64,
    /// Workers that have a group.
    pub(crate) workers: Vec<WorkerView>,
    /// Connections on the target that hold locks, or the GTID, for which the next group to commit waits.
    pub(crate) lock_holders: Vec<u32>,
    /// The lock of others for which the channel waits.
    pub(crate) lock_wait: Option<LockWaitView>,
    /// Tables whose rows had to wait for other groups, most rows first.
    pub(crate) dependencies: Vec<DependencyView>,
    pub(crate) statement: Option<StatementView>,
    pub(crate) applying_transaction: Option<String>,
    pub(crate) applying_transaction_start_apply_timestamp: Option<String>,
    pub(crate) last_applied_transaction: Option<String>,
    pub(crate) last_applied_transaction_original_commit_timestamp: Option<String>,
    pub(crate) last_applied_transaction_immediate_commit_timestamp: Option<String>,
    pub(crate) last_applied_transaction_start_apply_timestamp: Option<String>,
    pub(crate) last_applied_transaction_end_apply_timestamp: Option<String>,
    pub(crate) target_error_message: Option<String>,
    /// Sessions that the target refused with an error.
    pub(crate) refused_sessions_total: u64,
    /// Sessions that the target permits beside the one that holds the channel; absent unless it has refused one more.
    pub(crate) session_limit: Option<u64>,
    /// Times the target came back without transactions that were committed there, and those it
    /// lacked the last time.
    pub(crate) target_rewinds_total: u64,
    pub(crate) last_target_rewind_timestamp: Option<String>,
    pub(crate) last_target_rewind_transaction_set: Option<String>,
}

/// A worker, and its work on its group.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WorkerView {
    pub(crate) worker_id: u16,
    /// The connection's number on the target.
    pub(crate) thread_id: Option<u32>,
    pub(crate) state: String,
    pub(crate) seconds_in_state: f64,
    /// The group's place in commit order.
    pub(crate) sequence: u64,
    pub(crate) transactions: u64,
    /// The group's last transaction.
    pub(crate) applying_transaction: Option<String>,
    /// Bytes of its row images that are applied; 0 until they are known.
    pub(crate) applied_bytes: u64,
    pub(crate) applying_bytes: u64,
}

/// Groups and rows of a table that had to wait; `*` stands for groups that wait for everything
/// before them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DependencyView {
    pub(crate) table: String,
    pub(crate) groups: u64,
    pub(crate) rows: u64,
}

/// A statement that commits implicitly, while it runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct StatementView {
    pub(crate) transaction: String,
    /// Its first words.
    pub(crate) statement: String,
    pub(crate) seconds: f64,
    /// As the target reports it, where it does.
    pub(crate) work_completed: Option<u64>,
    pub(crate) work_estimated: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct EventMemoryView {
    pub(crate) held_bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) limit_bytes: u64,
}

impl ChannelView {
    /// It applies what it receives; otherwise it only archives.
    pub(crate) const fn has_target(&self) -> bool {
        !self.applier.target.is_empty()
    }

    /// It has stopped at its end (`until`), where a restart stays.
    pub(crate) fn is_at_end(&self) -> bool {
        self.state == ChannelState::Stopped && self.state_detail.starts_with("stopped: until ")
    }

    /// Shows the row values that its error concerns.
    pub(crate) fn reveal(&mut self) {
        let Some(error) = &mut self.last_error else { return };
        let Some(values) = error.values.take() else { return };
        let ErrorValues { message, ways_on, columns } = *values;
        (error.message, error.ways_on) = (message, ways_on);
        if let Some(row) = &mut error.row {
            row.columns = columns;
        }
    }
}
