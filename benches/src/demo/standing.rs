//! The lag and backlog of a replica, by the same measure for both: what its tables show.

use std::time::{Duration, Instant};

/// The marks that the demonstration commits on the source.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// The time at which each was committed; mark 1 comes first.
    pub(super) marks: Vec<Instant>,
    /// All transactions on the source.
    pub(super) transactions: u64,
}

/// The last look at a replica.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// The mark that its table shows.
    pub(super) mark: u64,
    /// The source's transactions that it has.
    pub(super) transactions: u64,
    pub(super) is_reachable: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Standing {
    /// The age of the oldest mark that the replica lacks.
    pub(super) lag: Duration,
    /// Transactions of the source that it lacks.
    pub(super) backlog: u64,
    pub(super) is_reachable: bool,
}

impl Standing {
    pub(super) fn new(written: &Written, seen: Seen, now: Instant) -> Self {
        let oldest = usize::try_from(seen.mark).ok().and_then(|mark| written.marks.get(mark));
        Self {
            lag: oldest.map_or(Duration::ZERO, |mark| now.saturating_duration_since(*mark)),
            backlog: written.transactions.saturating_sub(seen.transactions),
            is_reachable: seen.is_reachable,
        }
    }
}

/// The worst of a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Peak {
    pub(super) lag: Duration,
    pub(super) backlog: u64,
}

impl Peak {
    pub(super) fn add(&mut self, standing: Standing) {
        *self = self.max(Self { lag: standing.lag, backlog: standing.backlog });
    }

    /// Returns the worst of several phases.
    pub(super) fn worst(peaks: impl IntoIterator<Item = Self>) -> Self {
        peaks.into_iter().fold(Self::default(), Self::max)
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self { lag: self.lag.max(other.lag), backlog: self.backlog.max(other.backlog) }
    }
}

/// Returns the number of transactions in GTID sets that the server with this UUID has made. The sets may overlap, and
/// are separated by commas like their members.
pub(super) fn transactions_of(uuid: &str, sets: &str) -> u64 {
    let members = sets.split(',').map(str::trim);
    let own = members.filter_map(|member| member.strip_prefix(uuid)?.strip_prefix(':'));
    let mut intervals: Vec<(u64, u64)> =
        own.flat_map(|member| member.split(':')).filter_map(interval).collect();
    intervals.sort_unstable();
    let (mut count, mut counted) = (0, 0);
    for (first, last) in intervals {
        count += (last + 1).saturating_sub(first.max(counted + 1));
        counted = counted.max(last);
    }
    count
}

fn interval(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mark: u64, transactions: u64) -> Seen {
        Seen { mark, transactions, is_reachable: true }
    }

    #[test]
    fn the_lag_is_the_age_of_the_oldest_mark_that_is_missing() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let written = Written { marks: vec![at(0), at(100), at(200)], transactions: 50 };
        let standing = Standing::new(&written, seen(1, 20), at(1000));
        assert_eq!(standing.lag, Duration::from_millis(900));
        assert_eq!(standing.backlog, 30);
    }

    #[test]
    fn a_replica_with_all_marks_has_no_lag() {
        let now = Instant::now();
        let written = Written { marks: vec![now], transactions: 50 };
        // It was asked after the source, and may have more.
        let standing = Standing::new(&written, seen(1, 51), now + Duration::from_secs(9));
        assert_eq!((standing.lag, standing.backlog), (Duration::ZERO, 0));
    }

    #[test]
    fn a_peak_keeps_the_worst_of_each_figure() {
        let mut peak = Peak::default();
        for (seconds, backlog) in [(3, 10), (1, 400), (2, 5)] {
            let lag = Duration::from_secs(seconds);
            peak.add(Standing { lag, backlog, is_reachable: true });
        }
        assert_eq!(peak, Peak { lag: Duration::from_secs(3), backlog: 400 });
    }

    #[test]
    fn transactions_of_a_server_are_counted() {
        let a = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let b = "4e11fa47-71ca-11e1-9e33-c80aa9429562";
        assert_eq!(transactions_of(a, ""), 0);
        assert_eq!(transactions_of(a, &format!("{a}:7")), 1);
        assert_eq!(transactions_of(a, &format!("{b}:1-99,\n{a}:1-5:8-9")), 7);
        // The checkpoint has several rows.
        assert_eq!(transactions_of(a, &format!("{a}:1-20:31,{a}:1-10,{a}:15-25")), 26);
    }
}
