//! One channel, second by second.

use std::collections::VecDeque;
use std::path::PathBuf;

use csa_applier::SessionState;

use super::clock::TOLERANCE;
use super::errors::ErrorLog;
use super::incident_file::IncidentFile;
use super::incidents::IncidentLog;
use super::sample::HistorySample;
use super::sample_file::SampleFile;
use super::window::{SECONDS_MAX, Window};
use crate::observe::view::{ChannelState, ChannelView};

/// An hour, and the sample from which its first rates are counted.
const SAMPLES: usize = SECONDS_MAX as usize + 60;
/// Workers' states are kept for a shorter time, and for a limited number of workers.
pub(super) const WORKER_SECONDS: u64 = 300;
const WORKERS: usize = 64;
/// Seconds without a sample before a clock that was set back. Totals have grown since then, and no rate is shown across
/// a gap that is as long as this.
const GAP: u64 = 30;
/// A worker without a group.
const IDLE: u8 = b'.';
/// It is not known what the workers do.
const UNKNOWN: u8 = b' ';

#[derive(Debug)]
pub(super) struct Track {
    channel_name: String,
    samples: VecDeque<HistorySample>,
    /// Workers' states as digits, by second.
    workers: VecDeque<(u64, [u8; WORKERS])>,
    pub(super) errors: ErrorLog,
    pub(super) incidents: IncidentLog,
    pub(super) file: IncidentFile,
    pub(super) sample_file: SampleFile,
    /// Totals of earlier processes: those of the views begin at 0 with each.
    earlier: Option<HistorySample>,
}

impl Track {
    /// Reads what earlier processes have left in `folder`, the channel's part of `state_dir`.
    pub(super) fn new(channel_name: &str, folder: Option<PathBuf>, now: u64) -> Self {
        let mut sample_file = SampleFile::of(folder.as_deref());
        let samples = VecDeque::from(sample_file.read(now));
        let file = IncidentFile::of(folder);
        Self {
            channel_name: channel_name.to_owned(),
            earlier: samples.back().copied(),
            samples,
            sample_file,
            workers: VecDeque::new(),
            errors: ErrorLog::default(),
            incidents: IncidentLog::of(file.read()),
            file,
        }
    }

    pub(super) fn channel_name(&self) -> &str {
        &self.channel_name
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.samples.back().map(|sample| sample.second)
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = &HistorySample> {
        self.samples.iter()
    }

    /// Ignores a second that has a sample already. Samples of a time that is still to come are forgotten: the clock was
    /// set back.
    pub(super) fn take(&mut self, second: u64, view: &ChannelView) {
        if let Some(ahead) = self.newest().and_then(|newest| newest.checked_sub(second)) {
            if ahead <= TOLERANCE {
                return;
            }
            self.forget_after(second.saturating_sub(GAP));
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let total =
            |now: u64, read: fn(&HistorySample) -> u64| now + self.earlier.as_ref().map_or(0, read);
        let sample = HistorySample {
            second,
            state: view.state,
            lag_seconds: view.lag_seconds,
            backlog_transactions: view.backlog_transactions,
            backlog_bytes: view.backlog_bytes,
            received_transactions: total(view.connection.received_transactions_total, |sample| {
                sample.received_transactions
            }),
            received_bytes: total(view.connection.received_bytes_total, |sample| {
                sample.received_bytes
            }),
            applied_transactions: total(view.applied_transactions_total, |sample| {
                sample.applied_transactions
            }),
        };
        self.samples.push_back(sample);
        self.sample_file.take(sample);
        if self.workers.len() == WORKER_SECONDS as usize {
            self.workers.pop_front();
        }
        self.workers.push_back((second, doing(view)));
        self.errors.take(second, view);
        self.file.is_due |= self.incidents.take(second, view);
    }

    fn forget_after(&mut self, second: u64) {
        self.samples.retain(|sample| sample.second <= second);
        self.workers.retain(|(at, _)| *at <= second);
        self.sample_file.forget_after(second);
    }

    /// A row for each worker that had a group: its number, and a character for each second of the
    /// window. A digit is the index of its state in [`SessionState::ALL`], a dot stands for no
    /// group, a blank for no sample, or none that means anything.
    pub(super) fn worker_rows(&self, window: Window) -> Vec<(u16, String)> {
        let mut rows = Vec::new();
        for worker in 0..WORKERS {
            let mut row = vec![UNKNOWN; window.count];
            for (second, doing) in &self.workers {
                let slot = window.bucket(*second).and_then(|bucket| row.get_mut(bucket));
                if let (Some(slot), Some(state)) = (slot, doing.get(worker)) {
                    *slot = *state;
                }
            }
            if row.iter().any(u8::is_ascii_digit) {
                rows.push((worker as u16, row.into_iter().map(char::from).collect()));
            }
        }
        rows
    }
}

fn doing(view: &ChannelView) -> [u8; WORKERS] {
    // The last that was known of sessions that the target may have lost.
    if view.state == ChannelState::WaitingForTarget {
        return [UNKNOWN; WORKERS];
    }
    let mut doing = [IDLE; WORKERS];
    for worker in &view.applier.workers {
        let state = SessionState::ALL.iter().position(|state| state.name() == worker.state);
        let slot = doing.get_mut(usize::from(worker.worker_id));
        if let (Some(slot), Some(state)) = (slot, state) {
            *slot = b'0' + state as u8;
        }
    }
    doing
}
