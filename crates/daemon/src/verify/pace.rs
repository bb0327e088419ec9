//! The pace: rows per second and rows per chunk.

use std::time::{Duration, Instant};

/// A chunk that takes longer is followed by a smaller one, so that statements stay short.
const CHUNK_TIME: Duration = Duration::from_millis(500);
/// The smallest chunk.
const CHUNK_ROWS_MIN: u64 = 16;
/// Size of the first chunk, by the table's average row length.
const FIRST_CHUNK_BYTES: u64 = 4 << 20;

/// Keeps the rate of rows read at or below a limit; pauses are not made up for.
#[derive(Debug, Default)]
pub(super) struct VerifyPace {
    rows_per_second: Option<u64>,
    due: Option<Instant>,
}

impl VerifyPace {
    pub(super) fn new(rows_per_second: Option<u64>) -> Self {
        Self { rows_per_second, due: None }
    }

    /// Returns the pause after reading `rows` rows since `started`.
    pub(super) fn pause(&mut self, rows: u64, started: Instant, now: Instant) -> Duration {
        let Some(rate) = self.rows_per_second else { return Duration::ZERO };
        let takes = Duration::from_secs_f64(rows as f64 / rate.max(1) as f64);
        let due = self.due.map_or(started, |due| due.max(started)) + takes;
        self.due = Some(due);
        due.saturating_duration_since(now)
    }
}

/// Rows of the next chunk.
#[derive(Debug)]
pub(super) struct ChunkRows {
    rows: u64,
    max: u64,
}

impl ChunkRows {
    /// Begins with a chunk for rows of `average_row` bytes; 0 if unknown.
    pub(super) fn new(max: u64, average_row: u64) -> Self {
        let max = max.max(1);
        let first = FIRST_CHUNK_BYTES / average_row.max(1);
        Self { rows: first.clamp(CHUNK_ROWS_MIN.min(max), max), max }
    }

    pub(super) fn get(&self) -> u64 {
        self.rows
    }

    /// Notes how long a chunk of `rows` took.
    pub(super) fn took(&mut self, rows: u64, time: Duration) {
        if time > CHUNK_TIME {
            self.rows = (self.rows / 2).max(CHUNK_ROWS_MIN.min(self.max));
        } else if time < CHUNK_TIME / 4 && rows >= self.rows {
            self.rows = (self.rows * 2).min(self.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_rate_holds_over_chunks_and_pauses_are_not_made_up_for() {
        let start = Instant::now();
        let mut pace = VerifyPace::new(Some(100));
        assert_eq!(pace.pause(100, start, start), SECOND);
        assert_eq!(pace.pause(50, start + SECOND, start + SECOND), SECOND / 2);
        let late = start + 60 * SECOND;
        assert_eq!(pace.pause(100, late, late + SECOND / 4), SECOND * 3 / 4);
        assert_eq!(VerifyPace::new(None).pause(1_000_000, start, start), Duration::ZERO);
    }

    #[test]
    fn chunks_shrink_when_slow_and_grow_when_quick() {
        let mut chunk = ChunkRows::new(1000, 100);
        assert_eq!(chunk.get(), 1000);
        chunk.took(1000, SECOND);
        assert_eq!(chunk.get(), 500);
        chunk.took(500, SECOND / 4);
        assert_eq!(chunk.get(), 500);
        chunk.took(500, SECOND / 100);
        chunk.took(1000, SECOND / 100);
        assert_eq!(chunk.get(), 1000);
        for _ in 0..20 {
            chunk.took(1000, SECOND);
        }
        assert_eq!(chunk.get(), CHUNK_ROWS_MIN);
        assert_eq!(ChunkRows::new(1000, 1 << 20).get(), CHUNK_ROWS_MIN);
        assert_eq!(ChunkRows::new(5, 0).get(), 5);
    }
}
