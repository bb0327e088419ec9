//! The time at which a transaction is due by `source_delay`.

use std::time::Duration;

use csa_provider::binlog::CommitTimes;
use tokio::time::Instant;

/// Returns the time left until the commit on the source is as old as `delay`; never more than
/// `delay`, even for a commit time in the future. It is at least as old as `known`.
pub(super) fn left(
    delay: Duration,
    committed: CommitTimes,
    now: u64,
    clock_ahead: i64,
    known: Duration,
) -> Option<Duration> {
    if delay.is_zero() {
        return None;
    }
    let age = age(committed, now, clock_ahead)?.max(micros(known));
    let left = u64::try_from(micros(delay).saturating_sub(age)).ok()?;
    (left > 0).then(|| Duration::from_micros(left))
}

/// Returns the age by the immediate source's commit time, like native replication (`sql_delay_event` in the
/// server's sql/rpl_replica.cc), wherever the transaction was made.
fn age(committed: CommitTimes, now: u64, clock_ahead: i64) -> Option<i64> {
    CommitTimes { original: 0, ..committed }.age(now, clock_ahead)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Bounds the wait for commits that a wrong clock puts into the future.
///
/// Whatever was read is committed. So the first of them counts as committed when it was read, and those after it by the
/// differences of their commit times: each would wait for the whole delay otherwise, one after the other.
#[derive(Debug, Default)]
pub struct FutureCommits {
    /// The commit time of the first one, and the moment at which it was read.
    first: Option<(u64, Instant)>,
    /// The commit time of the last one.
    last: u64,
}

/// Commit times in the order of the binary log go back by less, in microseconds, unless the clock is set back.
const OUT_OF_ORDER: u64 = 1_000_000;

impl FutureCommits {
    /// Returns the time for which a transaction that was read at `read` is known to be committed at `instant`, when the
    /// clocks show `now` and `clock_ahead`.
    #[must_use]
    pub fn known(
        &mut self,
        committed: CommitTimes,
        read: Instant,
        instant: Instant,
        (now, clock_ahead): (u64, i64),
    ) -> Duration {
        let known = instant.saturating_duration_since(read);
        // The clock was set right: its differences from the first one mean nothing any more.
        if age(committed, now, clock_ahead).is_none_or(|age| age >= 0) {
            self.first = None;
            return known;
        }
        // The clock was set back, but not all the way. Later commits would seem to be as old as the first one.
        if committed.immediate.saturating_add(OUT_OF_ORDER) < self.last {
            self.first = None;
        }
        self.last = committed.immediate;
        let by_first = self.first.and_then(|(first, at)| {
            let later = Duration::from_micros(committed.immediate.saturating_sub(first));
            instant.saturating_duration_since(at).checked_sub(later)
        });
        if by_first.is_none() {
            self.first = Some((committed.immediate, read));
        }
        known.max(by_first.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_measured_by_our_clock() {
        let held = |delay, immediate, ahead, known| {
            let committed = CommitTimes { original: 1, immediate };
            let known = Duration::from_micros(known);
            let left = left(Duration::from_micros(delay), committed, 1_000, ahead, known);
            left.map(|left| left.as_micros())
        };
        let left = |delay, immediate, ahead| held(delay, immediate, ahead, 0);
        assert_eq!(left(300, 900, 0), Some(200));
        assert_eq!(left(100, 900, 0), None);
        assert_eq!(left(300, 1_900, 1_000), Some(200), "the source's clock is ahead");
        assert_eq!(left(300, 400, -500), Some(200));
        assert_eq!(left(300, 9_000, 0), Some(300), "not longer than the delay");
        assert_eq!(left(300, 0, 0), None, "no time was logged");
        assert_eq!(left(0, 9_000, 0), None, "no delay");
        assert_eq!(left(u64::MAX, 900, 0), Some(i64::MAX as u128 - 100));
        assert_eq!(held(300, 9_000, 0, 100), Some(200), "not longer than the delay in all");
        assert_eq!(held(300, 9_000, 0, 300), None);
        assert_eq!(held(300, 900, 0, 50), Some(200), "the clocks know more");
    }

    #[test]
    fn commits_of_the_future_count_from_the_first_that_was_read() {
        const DAY: u64 = 86_400_000_000;
        let start = Instant::now();
        let after = |micros| start + Duration::from_micros(micros);
        let mut future = FutureCommits::default();
        let mut known = |immediate, read, instant| {
            let committed = CommitTimes { original: 0, immediate };
            let known = future.known(committed, after(read), after(instant), (1_000 + instant, 0));
            known.as_micros()
        };
        // A day ahead; the first is held for 300.
        assert_eq!(known(DAY, 0, 0), 0);
        assert_eq!(known(DAY, 0, 300), 300);
        // Those after it were committed 10 and 400 later; the last of them has not waited yet.
        assert_eq!(known(DAY + 10, 300, 300), 290);
        assert_eq!(known(DAY + 400, 310, 310), 0);
        assert_eq!(known(DAY + 410, 610, 610), 290);
        // One further in the future counts from its own reading.
        assert_eq!(known(2 * DAY, 620, 640), 20);
        assert_eq!(known(2 * DAY + 5, 640, 640), 15);
        // The clock is right again, then ahead by another time.
        assert_eq!(known(1_000, 650, 660), 10);
        assert_eq!(known(2 * DAY, 660, 661), 1);
        assert_eq!(known(2 * DAY - 900_000, 670, 670), 10, "commits are not quite in order");
        // The clock is set back in part, twice: each first one counts from its own reading.
        assert_eq!(known(DAY, 680, 680), 0);
        assert_eq!(known(DAY + 5_000_000, 6_000_680, 6_000_680), 1_000_000);
        assert_eq!(known(DAY + 3_000_000, 6_000_700, 6_000_700), 0);
        assert_eq!(known(DAY + 3_000_010, 6_000_800, 6_000_800), 90);
    }
}
