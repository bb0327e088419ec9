//! The state of the link, for the status page and metrics.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::binlog::event::TransactionHeader;
use crate::binlog::gtid::GtidSet;
use crate::recorder::Recorder;
use crate::seams::durations::{Durations, DurationsView};
use crate::source::cause::SourceCause;
use crate::source::clock_difference::ClockDifference;

/// Shared by the provider, which writes it, and the status page, which reads it.
#[derive(Debug, Default)]
pub struct SourceStatus {
    view: Mutex<SourceView>,
    /// The time from the commit on the source to the arrival of the whole transaction.
    pub(crate) reception: Durations,
    recorder: Recorder,
}

/// A snapshot.
#[derive(Debug, Clone, Default)]
pub struct SourceView {
    pub connected: bool,
    /// `host:port` of the link, or of the last attempt.
    pub address: String,
    pub source_uuid: Option<String>,
    pub server_version: Option<String>,
    /// `gtid_executed` of the source when the link was made; `None` without one.
    pub executed: Option<Arc<GtidSet>>,
    /// The time at which the last heartbeat or event of a transaction arrived.
    pub last_event: Option<Instant>,
    /// Microseconds since the epoch.
    pub last_heartbeat: Option<u64>,
    pub heartbeats_total: u64,
    pub events_total: u64,
    pub bytes_total: u64,
    pub transactions_total: u64,
    pub connects_total: u64,
    pub checksum_failures_total: u64,
    /// Events that mean nothing to a replica.
    pub passed_over_events_total: u64,
    /// The source takes acknowledgements on this link; `None` where they are not wanted.
    pub semi_sync: Option<bool>,
    /// Acknowledgements sent; one can cover many transactions.
    pub acknowledgements_total: u64,
    /// The last transaction that arrived whole.
    pub last_queued: Option<TransactionHeader>,
    /// The transaction that is arriving.
    pub queueing: Option<TransactionHeader>,
    /// Bytes of it that have arrived.
    pub queueing_bytes: u64,
    /// The time from the commit of the last transaction on the source to its arrival; unknown if
    /// the commit is in the future by the clocks. The longest that the clocks' difference permits.
    pub arrival_delay: Option<Duration>,
    /// The time at which it began to arrive.
    pub queueing_since: Option<Instant>,
    /// The source had nothing else to send when it last sent something.
    pub idle: bool,
    /// The microseconds by which its clock is ahead of ours, as far as its answers show.
    pub clock: ClockDifference,
    /// The reason the link is or was down.
    pub last_error: Option<String>,
    /// Microseconds since the epoch.
    pub last_error_at: Option<u64>,
    pub last_cause: Option<SourceCause>,
}

impl SourceStatus {
    #[must_use]
    pub fn view(&self) -> SourceView {
        self.view.lock().clone()
    }

    /// Returns the durations from the commits of transactions on the source to their arrival as a
    /// whole. A transaction from the future, by the clocks, does not count.
    #[must_use]
    pub fn reception(&self) -> DurationsView {
        self.reception.view()
    }

    /// Returns the channel's recorder.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Sets what the source has executed, for tests without a source.
    #[cfg(any(test, feature = "test-util"))]
    pub fn set_executed(&self, executed: GtidSet) {
        self.update(|view| view.executed = Some(Arc::new(executed)));
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut SourceView)) {
        change(&mut self.view.lock());
    }

    /// Returns the microseconds by which the source's clock is probably ahead of ours.
    #[must_use]
    pub fn clock_ahead(&self) -> i64 {
        self.view.lock().clock.estimate()
    }

    /// Notes a new link. At `idle_at` the source had nothing that was not received before.
    pub(crate) fn connected(&self, uuid: String, clock: ClockDifference, idle_at: Option<Instant>) {
        self.update(|view| {
            view.clock = clock;
            view.idle = idle_at.is_some();
            // These describe the previous link.
            view.arrival_delay = None;
            view.queueing_since = None;
            view.semi_sync = None;
            view.connected = true;
            view.source_uuid = Some(uuid);
            // What it commits while the dump begins is not known yet.
            view.last_event = Some(idle_at.unwrap_or_else(Instant::now));
            view.connects_total += 1;
            view.last_error = None;
            view.last_cause = None;
        });
    }

    /// Notes a failure; `at` counts microseconds since the epoch.
    pub(crate) fn failed(&self, error: &dyn std::fmt::Display, cause: SourceCause, at: u64) {
        self.update(|view| {
            view.connected = false;
            view.queueing = None;
            view.last_error = Some(error.to_string());
            view.last_cause = Some(cause);
            view.last_error_at = Some(at);
        });
    }

    /// The link was closed on our side.
    pub fn disconnected(&self) {
        self.update(|view| {
            view.connected = false;
            view.queueing = None;
            // The next source answers for itself, and a decision must not rest on what this one had.
            view.executed = None;
        });
    }
}
