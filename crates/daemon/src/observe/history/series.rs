//! Samples as lines for charts: a value for each bucket of seconds. Pure.

use csa_applier::SessionState;
use serde::Serialize;

use super::errors::ErrorEntry;
use super::sample::{HistorySample, attention};
use super::track::{Track, WORKER_SECONDS};
use super::window::Window;
use crate::observe::view::ChannelState;

/// `/history`: columns of equal length, oldest first, `null` where nothing is known.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryView {
    /// Seconds since the epoch: the newest sample, and the beginning of the first bucket.
    now: u64,
    first: u64,
    /// Seconds in a bucket.
    step: u64,
    /// The newest five minutes of the workers, by second.
    workers_first: u64,
    /// Meaning of the digits in the workers' rows.
    worker_states: Vec<&'static str>,
    channels: Vec<ChannelHistory>,
}

#[derive(Debug, Serialize)]
struct ChannelHistory {
    channel_name: String,
    #[serde(flatten)]
    columns: Columns,
    workers: Vec<WorkerHistory>,
    errors: Vec<ErrorEntry>,
}

/// The worst value of each bucket: the highest lag and backlog, the state that needs most
/// attention. Rates are averages of the whole bucket.
#[derive(Debug, Default, Serialize)]
pub(super) struct Columns {
    pub(super) state: Vec<Option<ChannelState>>,
    pub(super) lag_seconds: Vec<Option<f64>>,
    pub(super) backlog_transactions: Vec<Option<u64>>,
    pub(super) backlog_bytes: Vec<Option<u64>>,
    pub(super) received_transactions_per_second: Vec<Option<f64>>,
    pub(super) applied_transactions_per_second: Vec<Option<f64>>,
    pub(super) received_bytes_per_second: Vec<Option<f64>>,
}

#[derive(Debug, Serialize)]
struct WorkerHistory {
    worker_id: u16,
    states: String,
}

impl HistoryView {
    pub(super) fn new<'a>(
        now: u64,
        window: Window,
        tracks: impl Iterator<Item = &'a Track>,
    ) -> Self {
        let workers = Window::ending(now, WORKER_SECONDS, 1);
        let channel = |track: &Track| ChannelHistory {
            channel_name: track.channel_name().to_owned(),
            columns: Columns::new(window, track.samples()),
            workers: track
                .worker_rows(workers)
                .into_iter()
                .map(|(worker_id, states)| WorkerHistory { worker_id, states })
                .collect(),
            errors: track.errors.entries().cloned().collect(),
        };
        Self {
            now,
            first: window.first,
            step: window.step,
            workers_first: workers.first,
            worker_states: SessionState::ALL.iter().map(|state| state.name()).collect(),
            channels: tracks.map(channel).collect(),
        }
    }
}

impl Columns {
    pub(super) fn new<'a>(
        window: Window,
        samples: impl Iterator<Item = &'a HistorySample>,
    ) -> Self {
        let mut buckets: Vec<Vec<&HistorySample>> = vec![Vec::new(); window.count];
        let mut before = None;
        for sample in samples {
            match window.bucket(sample.second).and_then(|bucket| buckets.get_mut(bucket)) {
                Some(bucket) => bucket.push(sample),
                None => before = Some(sample),
            }
        }
        let mut columns = Self::default();
        for bucket in &buckets {
            columns.push(bucket, before, window.step);
            before = bucket.last().copied().or(before);
        }
        columns
    }

    /// Appends a bucket; `before` is the last sample before it.
    fn push(&mut self, bucket: &[&HistorySample], before: Option<&HistorySample>, step: u64) {
        let lag = bucket.iter().filter_map(|sample| sample.lag_seconds).reduce(f64::max);
        self.lag_seconds.push(lag.map(rounded));
        self.state.push(bucket.iter().map(|sample| sample.state).max_by_key(attention));
        let most =
            |read: fn(&HistorySample) -> Option<u64>| bucket.iter().filter_map(|s| read(s)).max();
        self.backlog_transactions.push(most(|sample| sample.backlog_transactions));
        self.backlog_bytes.push(most(|sample| sample.backlog_bytes));
        // A gap (the host was suspended) has no rate.
        let from = before.or(bucket.first().copied());
        let ends = from.zip(bucket.last().copied()).filter(|(from, to)| {
            to.second > from.second && to.second - from.second <= 2 * step.max(5)
        });
        let rate = |read: fn(&HistorySample) -> u64| {
            let (from, to) = ends?;
            let change = read(to).saturating_sub(read(from)) as f64;
            Some(rounded(change / (to.second - from.second) as f64))
        };
        self.received_transactions_per_second.push(rate(|sample| sample.received_transactions));
        self.applied_transactions_per_second.push(rate(|sample| sample.applied_transactions));
        self.received_bytes_per_second.push(rate(|sample| sample.received_bytes));
    }
}

/// Keeps JSON short.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
