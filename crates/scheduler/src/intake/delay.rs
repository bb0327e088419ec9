//! The time at which a transaction is due by `source_delay`.

use std::time::Duration;

use csa_provider::binlog::CommitTimes;

/// Returns the time left until the commit on the source is as old as `delay`; never more than
/// `delay`, even for a commit time in the future.
pub(super) fn left(
    delay: Duration,
    committed: CommitTimes,
    now: u64,
    clock_ahead: i64,
) -> Option<Duration> {
    if delay.is_zero() {
        return None;
    }
    // By the immediate source's commit time, like native replication (`sql_delay_event` in the
    // server's sql/rpl_replica.cc), wherever the transaction was made.
    let age = CommitTimes { original: 0, ..committed }.age(now, clock_ahead)?.max(0);
    let delay = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
    let left = u64::try_from(delay.saturating_sub(age)).ok()?;
    (left > 0).then(|| Duration::from_micros(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_measured_by_our_clock() {
        let left = |delay, immediate, ahead| {
            let committed = CommitTimes { original: 1, immediate };
            let left = left(Duration::from_micros(delay), committed, 1_000, ahead);
            left.map(|left| left.as_micros())
        };
        assert_eq!(left(300, 900, 0), Some(200));
        assert_eq!(left(100, 900, 0), None);
        assert_eq!(left(300, 1_900, 1_000), Some(200), "the source's clock is ahead");
        assert_eq!(left(300, 400, -500), Some(200));
        assert_eq!(left(300, 9_000, 0), Some(300), "not longer than the delay");
        assert_eq!(left(300, 0, 0), None, "no time was logged");
        assert_eq!(left(0, 9_000, 0), None, "no delay");
        assert_eq!(left(u64::MAX, 900, 0), Some(i64::MAX as u128 - 100));
    }
}
