//! Commit times by clocks that differ.

use std::time::Duration;

use crate::binlog::event::TransactionHeader;

/// Microseconds by which clocks may differ before it is noticed.
pub(crate) const CLOCK_NOTICED: u64 = 1_000_000;

/// The commit times of a transaction; microseconds since the epoch, 0 if not logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// The commit on the server on which it was first committed, by that server's clock.
    pub original: u64,
    /// The commit on our source, by its clock.
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

    /// Returns the time of its commit on the server on which it was first committed; on our source, if only that is known.
    #[must_use]
    pub const fn first_commit(&self) -> u64 {
        match self.original_commit_timestamp {
            0 => self.immediate_commit_timestamp,
            original => original,
        }
    }

    /// The time since its commit on the source, at `now` (microseconds since the epoch) by our clock;
    /// the source's clock is `ahead` of ours. Slightly negative ones count as 0, because clocks are
    /// compared only so exactly; `None` for later ones, or if no time was logged.
    #[must_use]
    pub fn since_commit(&self, now: u64, ahead: i64) -> Option<Duration> {
        let immediate = CommitTimes { original: 0, ..self.commit_times() };
        let age = immediate.age(now, ahead)?;
        (age > -(CLOCK_NOTICED as i64)).then(|| Duration::from_micros(age.max(0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
