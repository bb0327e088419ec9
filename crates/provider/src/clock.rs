//! Commit times by clocks that differ. Pure, except for the query to the source.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::connection::{ConnectionError, SourceConnection};
use crate::event::TransactionHeader;

/// The wall clock. A simulation has its own.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Microseconds since the epoch.
    fn now_micros(&self) -> u64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "the one place that gives it to channels")]
impl Clock for SystemClock {
    fn now_micros(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

/// The commit times of a transaction; microseconds since the epoch, 0 if not logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// On the server on which it was first committed, by that server's clock.
    pub original: u64,
    /// On our source, by its clock.
    pub immediate: u64,
}

impl CommitTimes {
    /// Microseconds since the commit, at `now` by our clock; the source's clock is `ahead` of ours.
    /// Negative if the commit is in the future by these clocks, `None` if no time was logged.
    ///
    /// The clock of a server before the source is unknown. A transaction was committed there before
    /// it was here, so that time counts if it makes the transaction older.
    #[must_use]
    pub fn age(self, now: u64, ahead: i64) -> Option<i64> {
        let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let since = |time: u64| signed(now).saturating_sub(signed(time));
        let immediate = (self.immediate != 0).then(|| since(self.immediate).saturating_add(ahead));
        let original =
            (self.original != 0 && self.original != self.immediate).then(|| since(self.original));
        immediate.max(original)
    }
}

impl TransactionHeader {
    #[must_use]
    pub const fn commit_times(&self) -> CommitTimes {
        CommitTimes {
            original: self.original_commit_timestamp,
            immediate: self.immediate_commit_timestamp,
        }
    }
}

/// The microseconds by which the source's clock is ahead of ours, from the fastest of a few
/// answers. Like native replication's `clock_diff_with_master`, but finer.
pub(crate) async fn ahead(
    connection: &mut SourceConnection,
    clock: &dyn Clock,
) -> Result<i64, ConnectionError> {
    // UTC, which does not depend on time zones or daylight saving.
    const QUERY: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    let now = || i64::try_from(clock.now_micros()).unwrap_or(i64::MAX);
    let mut best: Option<(i64, i64)> = None;
    for _ in 0..3 {
        let asked = now();
        let text = connection.setting(QUERY).await?;
        let answered = now();
        let theirs = text.parse().map_err(|_| {
            ConnectionError::Protocol(format!("its clock can't be read from {text:?}"))
        })?;
        let took = answered.saturating_sub(asked);
        if best.is_none_or(|(_, before)| took < before) {
            best = Some((estimate(asked, theirs, answered), took));
        }
    }
    Ok(best.map_or(0, |(ahead, _)| ahead))
}

/// The clock difference from an answer that was requested and received at these times: 0 if a
/// correct clock could have given it, else the middle of the possible range.
fn estimate(asked: i64, theirs: i64, answered: i64) -> i64 {
    let (least, most) = (theirs.saturating_sub(answered), theirs.saturating_sub(asked));
    if least <= 0 && most >= 0 { 0 } else { least.saturating_add(most) / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_differ_by_what_the_way_of_the_answer_does_not_explain() {
        for (asked, theirs, answered, ahead) in [
            (100, 105, 110, 0),
            (100, 100, 110, 0),
            (100, 110, 110, 0),
            (100, 205, 110, 100),
            (100, 5, 110, -100),
            (100, 111, 110, 6),
            (0, i64::MAX, i64::MIN, i64::MAX / 2),
        ] {
            assert_eq!(estimate(asked, theirs, answered), ahead, "{asked} {theirs} {answered}");
        }
    }

    #[test]
    fn age_is_by_our_clock() {
        let age =
            |original, immediate, ahead| CommitTimes { original, immediate }.age(1_000, ahead);
        assert_eq!(age(900, 900, 0), Some(100));
        assert_eq!(age(900, 900, 50), Some(150), "the source's clock is ahead");
        assert_eq!(age(900, 900, -150), Some(-50));
        // First committed elsewhere, by a clock that shows less, more, or nothing.
        assert_eq!(age(700, 900, 50), Some(300));
        assert_eq!(age(5_000, 900, 50), Some(150));
        assert_eq!(age(0, 900, 0), Some(100));
        assert_eq!(age(0, 0, 0), None);
    }
}
