//! The last hour of a channel on disk, so that its charts are not empty after a restart of the daemon: a line
//! of JSON for each ten seconds, in the channel's part of `state_dir`.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use csa_relaystore::disk::make_private;

use super::sample::HistorySample;
use super::window::SECONDS_MAX;
use crate::host::replaced_file::replace;

/// Seconds of a line.
const SECONDS: u64 = 10;
/// An hour.
const KEPT: usize = (SECONDS_MAX / SECONDS) as usize;
/// Lines that are written together: a crash costs the charts a minute.
const TOGETHER: usize = 6;
/// A longer file is replaced by the last hour. Until then lines are appended: 200 channels would else
/// write megabytes a minute.
const LINES_MAX: usize = 3 * KEPT;

#[derive(Debug, Default)]
pub(super) struct SampleFile {
    /// `None` keeps nothing.
    path: Option<PathBuf>,
    /// The ten seconds that are not over.
    current: Option<HistorySample>,
    /// The last hour, of which the newest are not on disk.
    kept: VecDeque<HistorySample>,
    unwritten: usize,
    lines: usize,
    /// This process has ended a line.
    has_begun: bool,
}

/// Lines to write.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) path: PathBuf,
    text: Vec<u8>,
    replaces: bool,
}

impl SampleFile {
    /// Returns the file in `folder`, the channel's part of `state_dir`.
    pub(super) fn of(folder: Option<&Path>) -> Self {
        Self { path: folder.map(|folder| folder.join("history.jsonl")), ..Self::default() }
    }

    /// Returns the samples of the last hour before `now`. Lines that can't be read are passed over: a crash
    /// leaves half of one.
    pub(super) fn read(&mut self, now: u64) -> Vec<HistorySample> {
        let Some(path) = &self.path else { return Vec::new() };
        let Ok(text) = fs::read(path) else { return Vec::new() };
        make_private(path);
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut samples: Vec<HistorySample> = lines
            .inspect(|_| self.lines += 1)
            .filter_map(|line| serde_json::from_slice(line).ok())
            .filter(|sample: &HistorySample| {
                // The clock may have been set back; a quick restart is in the same second.
                sample.second <= now + SECONDS && sample.second + SECONDS_MAX >= now
            })
            .collect();
        samples.sort_by_key(|sample| sample.second);
        samples.dedup_by_key(|sample| sample.second);
        self.kept = samples.iter().copied().collect();
        by_second(&samples)
    }

    pub(super) fn take(&mut self, sample: HistorySample) {
        let is_another =
            |current: &HistorySample| current.second / SECONDS != sample.second / SECONDS;
        if self.current.as_ref().is_some_and(is_another) {
            self.end_line();
        }
        self.current = Some(match self.current {
            Some(current) => current.and_then(&sample),
            None => sample,
        });
        // A line of its own: the totals of the first seconds grow from there.
        if !self.has_begun {
            self.end_line();
        }
    }

    /// Forgets what is later than `second`, on disk with the next lines.
    pub(super) fn forget_after(&mut self, second: u64) {
        self.current.take_if(|line| line.second > second);
        self.kept.retain(|line| line.second <= second);
        self.unwritten = self.unwritten.min(self.kept.len());
        // One line more replaces the file.
        self.lines = LINES_MAX;
    }

    fn end_line(&mut self) {
        let Some(line) = self.current.take() else { return };
        self.has_begun = true;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(line);
        self.unwritten = KEPT.min(self.unwritten + 1);
    }

    /// Returns what to write, if that is due; `is_last`: the process ends.
    pub(super) fn due(&mut self, is_last: bool) -> Option<Writing> {
        if is_last {
            self.end_line();
        }
        if self.unwritten < if is_last { 1 } else { TOGETHER } {
            return None;
        }
        let path = self.path.clone()?;
        let replaces = self.lines + self.unwritten > LINES_MAX;
        let count = if replaces { self.kept.len() } else { self.unwritten };
        let mut text = Vec::new();
        // A line that a crash cut in half ends here.
        if !replaces {
            text.push(b'\n');
        }
        for line in self.kept.iter().skip(self.kept.len() - count) {
            // Writing to a Vec can't fail.
            let _ = serde_json::to_writer(&mut text, line);
            text.push(b'\n');
        }
        self.lines = count + if replaces { 0 } else { self.lines };
        self.unwritten = 0;
        Some(Writing { path, text, replaces })
    }
}

impl Writing {
    /// Appends, or replaces the file as a whole. Nothing is synced: charts are no reason to wait for a disk.
    pub(super) fn write(&self) -> io::Result<()> {
        if self.replaces || !self.path.exists() {
            return replace(&self.path, &self.text);
        }
        OpenOptions::new().append(true).open(&self.path)?.write_all(&self.text)
    }
}

/// Returns a sample for each second that a line covers: the line's worst values, and totals that grow evenly.
fn by_second(lines: &[HistorySample]) -> Vec<HistorySample> {
    let mut samples = Vec::new();
    let mut before: Option<&HistorySample> = None;
    for line in lines {
        let first = line.second - line.second % SECONDS;
        let begin = before.map_or(first, |before| first.max(before.second + 1));
        let from = before.filter(|before| before.second + 2 * SECONDS > line.second);
        for second in begin..=line.second {
            let grown = |read: fn(&HistorySample) -> u64| {
                let Some(from) = from else { return read(line) };
                let (start, end) = (read(from), read(line));
                let share = (second - from.second) as f64 / (line.second - from.second) as f64;
                start + (end.saturating_sub(start) as f64 * share).round() as u64
            };
            samples.push(HistorySample {
                second,
                received_transactions: grown(|sample| sample.received_transactions),
                received_bytes: grown(|sample| sample.received_bytes),
                applied_transactions: grown(|sample| sample.applied_transactions),
                ..*line
            });
        }
        before = Some(line);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::ChannelState;

    fn sample(second: u64) -> HistorySample {
        HistorySample {
            second,
            state: ChannelState::Running,
            lag_seconds: Some((second % 10) as f64),
            backlog_transactions: None,
            backlog_bytes: Some(second),
            received_transactions: second * 3,
            received_bytes: second * 100,
            applied_transactions: second * 2,
        }
    }

    fn write(file: &mut SampleFile, is_last: bool) -> bool {
        file.due(is_last).is_some_and(|writing| writing.write().is_ok())
    }

    fn read(folder: &Path, now: u64) -> Vec<HistorySample> {
        SampleFile::of(Some(folder)).read(now)
    }

    #[test]
    fn the_last_hour_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = SampleFile::of(Some(folder.path()));
        let mut writes = 0;
        for second in 10_000..20_005 {
            let mut sample = sample(second);
            if second == 19_000 {
                sample.state = ChannelState::Failed;
            }
            file.take(sample);
            writes += usize::from(write(&mut file, false));
        }
        assert_eq!(writes, 166);
        assert!(write(&mut file, true), "the process ends");
        let samples = read(folder.path(), 20_010);
        assert_eq!(samples.first().map(|first| first.second), Some(16_410));
        assert_eq!(samples.last().map(|last| last.second), Some(20_004));
        // Of the first line it is not known from where its totals grew.
        for pair in samples[9..].windows(2) {
            assert_eq!(pair[1].second, pair[0].second + 1);
            assert_eq!(pair[1].applied_transactions, pair[0].applied_transactions + 2, "{pair:?}");
        }
        assert_eq!(samples[0].lag_seconds, Some(9.0), "the worst of ten seconds");
        let failed = samples.iter().filter(|sample| sample.state == ChannelState::Failed).count();
        assert_eq!(failed, 10);
        assert!(read(folder.path(), 9_000).is_empty(), "the clock was set back");
        assert!(read(folder.path(), 40_000).is_empty(), "long ago");
    }

    #[test]
    fn a_clock_that_was_set_back_leaves_no_line_of_the_future() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = SampleFile::of(Some(folder.path()));
        for second in 10_000..10_500 {
            file.take(sample(second));
            write(&mut file, false);
        }
        file.forget_after(10_170);
        for second in 10_200..10_300 {
            file.take(sample(second));
            write(&mut file, false);
        }
        assert!(write(&mut file, true));
        let samples = read(folder.path(), 10_299);
        assert_eq!(samples.last().map(|last| last.second), Some(10_299));
        // The line that ends with second 10,179 is one of the future in part.
        let has = |second| samples.iter().any(|sample| sample.second == second);
        assert!(has(10_000) && has(10_169) && !has(10_170) && !has(10_199) && has(10_200));
        assert!(samples.is_sorted_by(|one, next| one.second < next.second));
        assert_eq!(read(folder.path(), 10_500).len(), samples.len(), "none is left over");
    }

    #[test]
    fn a_file_stays_short_and_damage_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.jsonl");
        for run in 0..4_u64 {
            let mut file = SampleFile::of(Some(folder.path()));
            file.read(100_000 + run * 3700);
            for second in 0..3600 {
                file.take(sample(100_000 + run * 3700 + second));
                write(&mut file, false);
            }
            write(&mut file, true);
            // A crash, in the middle of a line.
            let whole = fs::read(&path).expect("there");
            fs::write(&path, &whole[..whole.len() - 9]).expect("written");
        }
        let now = 100_000 + 3 * 3700 + 3600;
        assert!(fs::read_to_string(&path).expect("text").lines().count() <= 2 * LINES_MAX);
        let samples = read(folder.path(), now);
        assert_eq!(samples.len(), 3590, "all but the line that was cut");
        fs::write(&path, b"\xff\xfe\n{}\n\n[1]").expect("written");
        assert!(read(folder.path(), now).is_empty());
    }
}
