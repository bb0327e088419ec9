use std::fmt;

use csa_provider::{Gtid, GtidSet};

/// Where a channel stops by itself, as `START REPLICA UNTIL`
/// (<https://dev.mysql.com/doc/refman/en/start-replica.html>).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// In front of the first transaction of the set.
    BeforeGtids(GtidSet),
    /// Behind the last transaction of the set.
    AfterGtids(GtidSet),
}

impl Until {
    /// Whether nothing is left to be applied where `executed` is.
    #[must_use]
    pub fn is_reached(&self, executed: &GtidSet) -> bool {
        match self {
            Self::BeforeGtids(set) => set.intersects(executed),
            Self::AfterGtids(set) => set.is_subset_of(executed),
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeGtids(set) => write!(f, "sql_before_gtids = {set}"),
            Self::AfterGtids(set) => write!(f, "sql_after_gtids = {set}"),
        }
    }
}

/// Follows a stream up to its end.
#[derive(Debug)]
pub struct UntilTracker {
    until: Option<Until>,
    /// Executed, or let pass.
    passed: GtidSet,
}

impl UntilTracker {
    /// The stream begins behind `executed`.
    #[must_use]
    pub fn new(until: Option<Until>, executed: GtidSet) -> Self {
        Self { until, passed: executed }
    }

    /// Whether the transaction must not be applied any more: the stream ends in front of it.
    #[must_use]
    pub fn ends_before(&self, gtid: &Gtid) -> bool {
        matches!(&self.until, Some(Until::BeforeGtids(set)) if set.contains(gtid))
    }

    /// Lets a transaction pass; whether the stream ends behind it.
    pub fn ends_after(&mut self, gtid: &Gtid) -> bool {
        let Some(Until::AfterGtids(set)) = &self.until else { return false };
        set.contains(gtid) && self.passed.add(gtid) && set.is_subset_of(&self.passed)
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::{Tag, Uuid};

    use super::*;

    fn gtid(server: u8, gno: u64) -> Gtid {
        Gtid { uuid: Uuid::from_bytes([server; 16]), tag: Tag::untagged(), gno }
    }

    fn set(gtids: &[Gtid]) -> GtidSet {
        gtids.iter().cloned().collect()
    }

    #[test]
    fn before_ends_in_front_of_the_first_of_the_set() {
        let wanted = set(&[gtid(1, 4), gtid(1, 6), gtid(2, 1)]);
        let until = Until::BeforeGtids(wanted);
        assert!(!until.is_reached(&set(&[gtid(1, 5), gtid(2, 2)])));
        assert!(until.is_reached(&set(&[gtid(1, 5), gtid(1, 6)])));
        let mut tracker = UntilTracker::new(Some(until), GtidSet::new());
        for (gtid, ends) in [(gtid(1, 3), false), (gtid(3, 1), false), (gtid(2, 1), true)] {
            assert_eq!(tracker.ends_before(&gtid), ends, "{gtid}");
            assert!(!tracker.ends_after(&gtid));
        }
    }

    #[test]
    fn after_ends_with_the_last_of_the_set_whatever_the_order() {
        let wanted = set(&[gtid(1, 1), gtid(1, 2), gtid(2, 7)]);
        let until = Until::AfterGtids(wanted.clone());
        assert!(!until.is_reached(&set(&[gtid(1, 1), gtid(1, 2)])));
        assert!(until.is_reached(&wanted));
        let mut tracker = UntilTracker::new(Some(until), set(&[gtid(1, 1)]));
        for (gtid, ends) in
            [(gtid(2, 7), false), (gtid(1, 3), false), (gtid(2, 8), false), (gtid(1, 2), true)]
        {
            assert!(!tracker.ends_before(&gtid));
            assert_eq!(tracker.ends_after(&gtid), ends, "{gtid}");
        }
    }

    #[test]
    fn without_an_end_nothing_ends() {
        let mut tracker = UntilTracker::new(None, GtidSet::new());
        assert!(!tracker.ends_before(&gtid(1, 1)) && !tracker.ends_after(&gtid(1, 1)));
    }
}
