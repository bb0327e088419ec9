//! A progress line for source and target, and the peaks seen.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use crate::topology::Sample;

/// On a terminal the line is rewritten; elsewhere a new one is printed this often.
const LINE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    last_tick: Instant,
    last_line: Instant,
    last_committed: u64,
    last_applied: Option<u64>,
    peak_lag: f64,
    peak_backlog: u64,
    peak_backlog_bytes: u64,
    peak_applied_rate: f64,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last_tick: now,
            last_line: now,
            last_committed: 0,
            last_applied: None,
            peak_lag: 0.0,
            peak_backlog: 0,
            peak_backlog_bytes: 0,
            peak_applied_rate: 0.0,
            terminal: stdout().is_terminal(),
        }
    }

    pub(crate) fn peak_lag(&self) -> f64 {
        self.peak_lag
    }

    pub(crate) fn peak_backlog(&self) -> u64 {
        self.peak_backlog
    }

    pub(crate) fn peak_backlog_bytes(&self) -> u64 {
        self.peak_backlog_bytes
    }

    /// Returns the transactions per second in the best interval between two lines.
    pub(crate) fn peak_applied_rate(&self) -> f64 {
        self.peak_applied_rate
    }

    /// Records a sample and shows it.
    pub(crate) fn tick(&mut self, sample: Option<Sample>, committed: u64) {
        if let Some(sample) = sample {
            self.peak_lag = self.peak_lag.max(sample.lag_seconds.unwrap_or(0.0));
            self.peak_backlog = self.peak_backlog.max(sample.backlog_transactions);
            self.peak_backlog_bytes = self.peak_backlog_bytes.max(sample.backlog_bytes);
        }
        if !self.terminal && self.last_line.elapsed() < LINE_EVERY {
            return;
        }
        self.last_line = Instant::now();
        let text = self.line(sample, committed);
        if self.terminal {
            print!("\r\x1b[K{text}");
        } else {
            println!("{text}");
        }
        let _ = stdout().flush();
    }

    fn line(&mut self, sample: Option<Sample>, committed: u64) -> String {
        let seconds = self.last_tick.elapsed().as_secs_f64().max(0.001);
        self.last_tick = Instant::now();
        let source_rate = committed.saturating_sub(self.last_committed) as f64 / seconds;
        self.last_committed = committed;
        let elapsed = self.started.elapsed().as_secs_f64();
        let start = format!("{elapsed:5.1} s  source {source_rate:6.0} trx/s");
        let Some(sample) = sample else {
            return format!("{start}  the daemon does not answer");
        };
        let before = self.last_applied.unwrap_or(sample.applied_transactions);
        let applied_rate = sample.applied_transactions.saturating_sub(before) as f64 / seconds;
        self.peak_applied_rate = self.peak_applied_rate.max(applied_rate);
        self.last_applied = Some(sample.applied_transactions);
        let lag = sample.lag_seconds.map_or("unknown".into(), |lag| format!("{lag:.2} s"));
        format!(
            "{start}  applied {applied_rate:6.0} trx/s  lag {lag}  backlog {} trx, {}",
            sample.backlog_transactions,
            bytes(sample.backlog_bytes)
        )
    }

    /// Ends the line.
    pub(crate) fn finish(&self) {
        if self.terminal {
            println!();
        }
    }
}

/// Returns a size in readable units.
pub(crate) fn bytes(count: u64) -> String {
    let count = count as f64;
    if count < 1024.0 * 1024.0 {
        format!("{:.0} KiB", count / 1024.0)
    } else {
        format!("{:.1} MiB", count / (1024.0 * 1024.0))
    }
}
