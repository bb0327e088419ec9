//! The facts about a channel at one moment.

use std::time::Duration;

use csa_applier::{ApplierDurationsView, Tuning};
use csa_provider::binlog::GtidSet;
use csa_provider::seams::DurationsView;
use tokio::time::Instant;

use super::bottleneck::{BottleneckCause, Snapshot};
use super::state::Phase;
use crate::channel::live_settings::Paused;
use crate::copy::CopyProgress;
use crate::observe::progress::ProgressView;
use crate::observe::view::{ArchiveView, CopyCheckView, ErrorView, SettingsView, ThrottleByView};

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
    /// From the source's commit to the arrival of the whole transaction.
    pub(in crate::channel) reception: DurationsView,
    pub(in crate::channel) durations: ApplierDurationsView,
    pub(in crate::channel) progress: ProgressView,
    /// Something is received into the relay store.
    pub(in crate::channel) receiving: bool,
    /// Something should be received.
    pub(in crate::channel) is_wanted: bool,
    /// A pipeline applies what was received.
    pub(in crate::channel) attached: bool,
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

/// Returns the sample from which the bottleneck is found.
pub(in crate::channel) fn snapshot(
    phase: Phase,
    tuning: &Tuning,
    memory_short: bool,
    progress: &ProgressView,
) -> Snapshot {
    if !progress.is_applying {
        return Snapshot::default();
    }
    let applied = &progress.applied;
    Snapshot {
        running: phase == Phase::Running,
        paused: tuning.paused,
        throttled: applied.throttled,
        source_connected: progress.source.connected,
        source_idle: progress.source.idle,
        target_connected: applied.target_connected,
        backlog: progress.backlog().map(|backlog| backlog.transactions),
        relay_full: progress.usage.waiting.is_some(),
        memory_short,
        arrival_delay: progress.source.arrival_delay,
        locked: !applied.lock_holders.is_empty() || applied.lock_wait.is_some(),
        statement: applied.statement.is_some(),
        workers: usize::from(tuning.worker_count),
        busy: applied.sessions.iter().map(|session| session.state).collect(),
        waiting_transactions: applied.waiting_transactions,
    }
}
