use std::collections::BTreeMap;

use super::{Gtid, Tag, Uuid};

/// Transaction numbers `start..=end`, both at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub start: u64,
    pub end: u64,
}

/// The most intervals that are inserted one by one.
const FEW: usize = 16;

/// A set of GTIDs, held as sorted, disjoint, non-adjacent intervals per UUID and tag.
///
/// Adding the number after the last one of a known UUID, the usual case in replication, costs one
/// map look-up and no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GtidSet {
    sids: BTreeMap<(Uuid, Tag), Vec<Interval>>,
}

impl GtidSet {
    #[must_use]
    pub const fn new() -> Self {
        Self { sids: BTreeMap::new() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sids.is_empty()
    }

    /// Returns the number of GTIDs in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.intervals().map(|(_, _, i)| i.end - i.start + 1).fold(0, u64::saturating_add)
    }

    /// All intervals, by UUID, then tag (none first), then number.
    pub fn intervals(&self) -> impl Iterator<Item = (&Uuid, &Tag, Interval)> {
        self.sids
            .iter()
            .flat_map(|((uuid, tag), list)| list.iter().map(move |&interval| (uuid, tag, interval)))
    }

    pub(super) fn sids(&self) -> &BTreeMap<(Uuid, Tag), Vec<Interval>> {
        &self.sids
    }

    #[must_use]
    pub fn contains(&self, gtid: &Gtid) -> bool {
        let key = (gtid.uuid, gtid.tag.clone());
        self.sids.get(&key).is_some_and(|list| covers(list, gtid.gno, gtid.gno))
    }

    /// Returns the GTIDs that the server with this UUID assigned.
    #[must_use]
    pub fn of_server(&self, uuid: &str) -> Self {
        let sids = self.sids.iter().filter(|((own, _), _)| own.to_string() == uuid);
        Self { sids: sids.map(|(key, list)| (key.clone(), list.clone())).collect() }
    }

    /// Adds one GTID; true if it is new.
    pub fn add(&mut self, gtid: &Gtid) -> bool {
        let list = self.sids.entry((gtid.uuid, gtid.tag.clone())).or_default();
        if let Some(last) = list.last_mut()
            && last.end + 1 == gtid.gno
        {
            last.end = gtid.gno;
            return true;
        }
        if covers(list, gtid.gno, gtid.gno) {
            return false;
        }
        insert(list, Interval { start: gtid.gno, end: gtid.gno });
        true
    }

    /// Adds `start..=end`; an interval that is empty or starts at 0 is ignored.
    pub fn add_interval(&mut self, uuid: Uuid, tag: &Tag, interval: Interval) {
        if interval.start == 0 || interval.start > interval.end {
            return;
        }
        insert(self.sids.entry((uuid, tag.clone())).or_default(), interval);
    }

    /// Adds everything in `other`.
    pub fn union(&mut self, other: &Self) {
        for (key, theirs) in &other.sids {
            let ours = self.sids.entry(key.clone()).or_default();
            // Insertions move what follows them, so many of them cost more than a copy.
            match theirs.len() {
                0..=FEW => theirs.iter().for_each(|&interval| insert(ours, interval)),
                _ => *ours = merged(ours, theirs),
            }
        }
    }

    /// Removes everything in `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (key, theirs) in &other.sids {
            if let Some(ours) = self.sids.get_mut(key) {
                *ours = without(ours, theirs);
                if ours.is_empty() {
                    self.sids.remove(key);
                }
            }
        }
    }

    /// Returns true if it holds a transaction of the server `uuid`, tagged or not.
    #[must_use]
    pub fn has_uuid(&self, uuid: &Uuid) -> bool {
        self.sids.keys().any(|(known, _)| known == uuid)
    }

    /// Removes every transaction of the server `uuid`, tagged or not.
    pub fn remove_uuid(&mut self, uuid: &Uuid) {
        self.sids.retain(|(known, _), _| known != uuid);
    }

    /// Returns the servers that assigned the GTIDs, each once.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        let mut last = None;
        self.sids
            .keys()
            .map(|(uuid, _)| *uuid)
            .filter(move |uuid| last.replace(*uuid) != Some(*uuid))
    }

    /// Returns the GTIDs without a tag.
    #[must_use]
    pub fn untagged(&self) -> Self {
        let sids = self.sids.iter().filter(|((_, tag), _)| tag.is_empty());
        Self { sids: sids.map(|(key, list)| (key.clone(), list.clone())).collect() }
    }

    /// Returns the GTIDs of the servers for which `keep` is true.
    #[must_use]
    pub fn of_servers(&self, keep: impl Fn(&Uuid) -> bool) -> Self {
        let sids = self.sids.iter().filter(|((uuid, _), _)| keep(uuid));
        Self { sids: sids.map(|(key, list)| (key.clone(), list.clone())).collect() }
    }

    /// Returns the GTIDs that are not above the highest number in `other` of the same server and
    /// tag.
    #[must_use]
    pub fn below_ends_of(&self, other: &Self) -> Self {
        let mut result = Self::new();
        for (key, ours) in &self.sids {
            let end =
                other.sids.get(key).and_then(|theirs| theirs.last()).map_or(0, |last| last.end);
            for interval in ours.iter().filter(|interval| interval.start <= end) {
                let end = interval.end.min(end);
                result.add_interval(key.0, &key.1, Interval { start: interval.start, end });
            }
        }
        result
    }

    /// The GTIDs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    /// The GTIDs in this set and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.subtract(other);
        result
    }

    #[must_use]
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.sids.iter().all(|(key, ours)| {
            other.sids.get(key).is_some_and(|theirs| {
                ours.iter().all(|interval| covers(theirs, interval.start, interval.end))
            })
        })
    }

    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.difference(other).count() != self.count()
    }
}

impl FromIterator<Gtid> for GtidSet {
    fn from_iter<I: IntoIterator<Item = Gtid>>(gtids: I) -> Self {
        let mut collector = Collector::default();
        for Gtid { uuid, tag, gno } in gtids {
            collector.add(uuid, &tag, Interval { start: gno, end: gno });
        }
        collector.into_set()
    }
}

/// Collects intervals that come in any order. Inserted into a set one by one, those in descending order would each move
/// all others, and 16 MiB of them would take an hour.
#[derive(Default)]
pub(super) struct Collector {
    sids: BTreeMap<(Uuid, Tag), Vec<Interval>>,
}

impl Collector {
    /// Adds `start..=end`; an interval that is empty or starts at 0 is ignored.
    pub(super) fn add(&mut self, uuid: Uuid, tag: &Tag, interval: Interval) {
        if interval.start == 0 || interval.start > interval.end {
            return;
        }
        let list = self.sids.entry((uuid, tag.clone())).or_default();
        if list.len() == list.capacity() {
            join(list);
            // The next time comes only after as many again, so that each one is moved a few times.
            list.reserve(list.len());
        }
        list.push(interval);
    }

    pub(super) fn into_set(mut self) -> GtidSet {
        self.sids.values_mut().for_each(join);
        GtidSet { sids: self.sids }
    }
}

/// Sorts a list, and joins those that overlap or adjoin.
fn join(list: &mut Vec<Interval>) {
    list.sort_unstable_by_key(|interval| interval.start);
    list.dedup_by(|next, last| {
        let joins = next.start <= last.end.saturating_add(1);
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
}

fn covers(list: &[Interval], start: u64, end: u64) -> bool {
    let next = list.partition_point(|interval| interval.end < start);
    list.get(next).is_some_and(|interval| interval.start <= start && end <= interval.end)
}

/// Inserts an interval and joins those it overlaps or adjoins.
fn insert(list: &mut Vec<Interval>, new: Interval) {
    let from = list.partition_point(|interval| interval.end.saturating_add(1) < new.start);
    let to = list.partition_point(|interval| interval.start <= new.end.saturating_add(1));
    let joined = list.get(from..to).unwrap_or_default();
    let start = joined.first().map_or(new.start, |first| first.start.min(new.start));
    let end = joined.last().map_or(new.end, |last| last.end.max(new.end));
    list.splice(from..to, [Interval { start, end }]);
}

/// Both lists as one, in one pass.
fn merged(ours: &[Interval], theirs: &[Interval]) -> Vec<Interval> {
    let mut all: Vec<Interval> = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    loop {
        let is_ours = match (ours.peek(), theirs.peek()) {
            (Some(our), Some(their)) => our.start <= their.start,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return all,
        };
        let Some(&next) = (if is_ours { ours.next() } else { theirs.next() }) else { return all };
        match all.last_mut() {
            Some(last) if next.start <= last.end.saturating_add(1) => {
                last.end = last.end.max(next.end)
            }
            _ => all.push(next),
        }
    }
}

fn without(ours: &[Interval], theirs: &[Interval]) -> Vec<Interval> {
    let mut left = Vec::with_capacity(ours.len());
    let mut theirs = theirs;
    for interval in ours {
        let mut start = interval.start;
        // Both are sorted: those passed by here are passed by for good, or sets with 100,000 gaps would
        // take minutes.
        let passed = theirs.partition_point(|cut| cut.end < interval.start);
        theirs = theirs.get(passed..).unwrap_or_default();
        for cut in theirs {
            if cut.start > interval.end {
                break;
            }
            if cut.start > start {
                left.push(Interval { start, end: cut.start - 1 });
            }
            start = start.max(cut.end + 1);
        }
        if start <= interval.end {
            left.push(Interval { start, end: interval.end });
        }
    }
    // Those who keep what little is left don't keep room for all.
    left.shrink_to_fit();
    left
}
