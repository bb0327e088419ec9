//! The lag of a server, from the GTID sets of both: in the clock of the observer, and with no help from
//! the servers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use csa_provider::binlog::GtidSet;

/// Positions kept of a server whose replica stands still; at so many every other one is forgotten, and
/// from then on as many are passed over.
const KEPT: usize = 512;

/// Age of the oldest position of a server that its replica has not passed.
#[derive(Debug, Default)]
pub(crate) struct GtidLag {
    open: VecDeque<(Instant, GtidSet)>,
    /// Least time between two of them.
    spacing: Duration,
    lacking: GtidSet,
}

impl GtidLag {
    /// The server had executed this set at that time.
    pub(crate) fn source_at(&mut self, time: Instant, executed: GtidSet) {
        let is_news = self.open.back().is_none_or(|(at, last)| {
            *last != executed && time.saturating_duration_since(*at) >= self.spacing
        });
        if is_news {
            self.open.push_back((time, executed));
        }
        if self.open.len() > KEPT {
            // The oldest, which decides, stays.
            let mut number = 0_usize;
            self.open.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            let span = self.open.front().zip(self.open.back());
            let span = span.map_or(Duration::ZERO, |((first, _), (last, _))| *last - *first);
            self.spacing = span / u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        }
    }

    /// The replica has executed this set.
    pub(crate) fn target_at(&mut self, executed: &GtidSet) {
        while self.open.front().is_some_and(|(_, oldest)| oldest.is_subset_of(executed)) {
            self.open.pop_front();
        }
        if self.open.is_empty() {
            self.spacing = Duration::ZERO;
        }
        self.lacking =
            self.open.front().map_or_else(GtidSet::new, |(_, oldest)| oldest.difference(executed));
    }

    /// Returns the set that separates the replica from the oldest position that it has not passed.
    pub(crate) fn lacking(&self) -> &GtidSet {
        &self.lacking
    }

    pub(crate) fn get(&self, now: Instant) -> Duration {
        self.open.front().map_or(Duration::ZERO, |(time, _)| now.saturating_duration_since(*time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lag_is_the_age_of_what_the_replica_lacks() {
        let set = |text: &str| text.parse::<GtidSet>().expect("a set");
        let at = |n: u64| set(&format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{n}"));
        let start = Instant::now();
        let mut lag = GtidLag::default();
        lag.source_at(start, at(5));
        lag.source_at(start + SECOND, at(5));
        lag.source_at(start + 2 * SECOND, at(9));
        lag.target_at(&at(4));
        assert_eq!(lag.get(start + 3 * SECOND), 3 * SECOND);
        assert_eq!(lag.lacking().count(), 1);
        lag.target_at(&at(7));
        assert_eq!(lag.get(start + 3 * SECOND), SECOND);
        lag.target_at(&at(9));
        assert_eq!(lag.get(start + 9 * SECOND), Duration::ZERO);
    }

    #[test]
    fn a_replica_that_stands_still_costs_no_memory() {
        let at = |n: u64| {
            let text = format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{n}");
            text.parse::<GtidSet>().expect("a set")
        };
        let start = Instant::now();
        let mut lag = GtidLag::default();
        for second in 0..20_000 {
            lag.source_at(start + second * SECOND, at(u64::from(second) + 1));
            lag.target_at(&GtidSet::new());
        }
        assert!(lag.open.len() <= KEPT, "{}", lag.open.len());
        let now = start + 20_000 * SECOND;
        assert_eq!(lag.get(now), 20_000 * SECOND);
        lag.target_at(&at(10_000));
        let left = lag.get(now).as_secs_f64();
        assert!((9_000.0..=10_000.0).contains(&left), "{left}");
    }
}
