//! Decides which groups conflict. Two groups conflict if they write the same key, or if one reads a key which
//! the other writes. A table as a whole conflicts with its rows, and a transaction that is not understood with
//! everything else. Of two groups that conflict, the later waits for the earlier to be committed. Pure.

use csa_provider::seams::planted::{Bug, is_planted};

use crate::changes::RowChanges;
use crate::keys::{KeyMap, KeyRole, TableId, TableUse};

/// Groups that share something: they don't wait for each other, but a group that needs it
/// exclusively waits for all of them.
#[derive(Debug, Clone, Copy, Default)]
struct SharingGroups {
    last: u64,
    /// The one before the last, because the last may be the asking group itself.
    before: u64,
}

impl SharingGroups {
    fn add(&mut self, sequence: u64) {
        if self.last != sequence {
            self.before = self.last;
            self.last = sequence;
        }
    }

    /// Returns the last group other than `own`.
    fn other_than(self, own: u64) -> u64 {
        if self.last == own { self.before } else { self.last }
    }
}

/// Keys for which an empty map keeps memory, whatever the last groups had.
const KEPT_KEYS: usize = 8192;

/// The last groups that used a key, 0 for none. A writer has waited for every use before it, so a
/// group's own write hides no other.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    write: u64,
    read: SharingGroups,
}

#[derive(Debug, Clone, Copy, Default)]
struct TableUses {
    rows: SharingGroups,
    whole: u64,
}

/// The last group that touched each key, for groups that are not committed.
///
/// Keys are kept in two generations: once everything in the older one is committed, it is dropped
/// as a whole. So memory follows the groups in flight, and no search for committed keys is needed.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    young: KeyMap<Uses>,
    old: KeyMap<Uses>,
    /// The last group in `old`, and the last group of all.
    old_last: u64,
    last: u64,
    tables: foldhash::HashMap<TableId, TableUses>,
    /// The last group that conflicts with everything.
    alone: u64,
    /// Everything up to it is committed.
    low_water: u64,
}

impl Conflicts {
    /// Returns the highest uncommitted group that group `own` as a whole has to wait for if it
    /// takes `changes`, 0 for none. Keys that conflict with an uncommitted group go to `late` with
    /// that group.
    pub(crate) fn dependency(
        &self,
        changes: Option<&RowChanges>,
        own: u64,
        late: &mut KeyMap<u64>,
    ) -> u64 {
        let mut highest = if self.alone == own { 0 } else { self.alone };
        let mut take = |sequence: u64| {
            if sequence != own && sequence > highest {
                highest = sequence;
            }
        };
        let Some(changes) = changes else {
            // It conflicts with every group except its own: the half of the DDL barrier that makes a
            // statement wait (the other is intake/barrier.rs).
            let before = if self.last == own { own.saturating_sub(1) } else { self.last };
            take(before);
            return self.uncommitted(highest);
        };
        for table in &changes.tables {
            match table {
                // Rows of other groups conflict by their keys, below.
                TableUse::Rows(id) => {
                    if let Some(uses) = self.tables.get(id) {
                        take(uses.whole);
                    }
                }
                TableUse::Whole(id) => {
                    if let Some(uses) = self.tables.get(id) {
                        take(uses.whole);
                        take(uses.rows.other_than(own));
                    }
                }
            }
        }
        for key in changes.keys.iter().filter(|_| !is_planted(Bug::KeysIgnored)) {
            let number = key.key();
            let mut highest = 0;
            // A key in use again has a new entry in `young`, and `old` has its earlier uses.
            for uses in [self.young.get(&number), self.old.get(&number)].into_iter().flatten() {
                if uses.write != own {
                    highest = highest.max(uses.write);
                }
                // Readers of a parent's key do not wait for each other.
                if key.role() != KeyRole::Read {
                    highest = highest.max(uses.read.other_than(own));
                }
            }
            if highest > self.low_water {
                // The last group stands for those before it: the low-water mark is waited for.
                let known = late.entry(number).or_default();
                *known = highest.max(*known);
            }
        }
        self.uncommitted(highest)
    }

    fn uncommitted(&self, sequence: u64) -> u64 {
        if sequence > self.low_water { sequence } else { 0 }
    }

    /// Records what group `sequence`, the newest, touches.
    pub(crate) fn add(&mut self, changes: Option<&RowChanges>, sequence: u64) {
        self.last = sequence;
        let Some(changes) = changes else {
            self.alone = sequence;
            return;
        };
        for table in &changes.tables {
            match table {
                TableUse::Rows(id) => self.tables.entry(*id).or_default().rows.add(sequence),
                TableUse::Whole(id) => self.tables.entry(*id).or_default().whole = sequence,
            }
        }
        for key in &changes.keys {
            let uses = self.young.entry(key.key()).or_default();
            match key.role() {
                KeyRole::Read => uses.read.add(sequence),
                _ => uses.write = sequence,
            }
        }
    }

    /// Everything up to `low_water` is committed.
    pub(crate) fn forget(&mut self, low_water: u64) {
        self.low_water = low_water;
        if self.old_last <= low_water {
            // Everything in `old` is committed. The cleared map keeps its memory for new keys, but not all that
            // one large transaction took.
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
            self.young.shrink_to(KEPT_KEYS.max(8 * self.old.len()));
            self.old_last = self.last;
        }
        // Tables have no generations: they are few, and go when nothing is in flight.
        if self.last <= low_water {
            self.tables.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyUse;

    fn changes(table: TableUse, keys: &[(u64, KeyRole)]) -> RowChanges {
        RowChanges {
            tables: vec![table],
            keys: keys.iter().map(|&(key, role)| KeyUse::new(key, role)).collect(),
            ..RowChanges::default()
        }
    }

    /// Adds both to group 6, after `earlier` in group 5, and returns the group the second waits
    /// for.
    fn dependency(earlier: &RowChanges, first: &RowChanges, second: &RowChanges) -> u64 {
        let mut conflicts = Conflicts::default();
        conflicts.add(Some(earlier), 5);
        let mut late = KeyMap::default();
        assert_eq!(conflicts.dependency(Some(first), 6, &mut late), 0);
        assert!(late.is_empty());
        conflicts.add(Some(first), 6);
        let whole = conflicts.dependency(Some(second), 6, &mut late);
        late.into_values().fold(whole, u64::max)
    }

    #[test]
    fn a_group_of_readers_does_not_hide_earlier_readers() {
        let table = TableUse::Rows(TableId(1));
        let read = changes(table, &[(7, KeyRole::Read)]);
        let removed = changes(table, &[(7, KeyRole::Removed)]);
        assert_eq!(dependency(&read, &read, &removed), 5);
    }

    #[test]
    fn a_group_that_writes_rows_does_not_hide_earlier_rows() {
        let table = TableId(1);
        let rows = |key| changes(TableUse::Rows(table), &[(key, KeyRole::Kept)]);
        let whole = changes(TableUse::Whole(table), &[]);
        assert_eq!(dependency(&rows(1), &rows(2), &whole), 5);
    }

    #[test]
    fn memory_for_the_keys_of_a_large_group_is_given_back() {
        let mut conflicts = Conflicts::default();
        let mut capacities = Vec::new();
        for (sequence, count) in (1..).zip([1, 500_000, 1, 1]) {
            let keys: Vec<_> = (0..count).map(|key| (key, KeyRole::Kept)).collect();
            conflicts.add(Some(&changes(TableUse::Rows(TableId(1)), &keys)), sequence);
            conflicts.forget(sequence - 1);
            capacities.push(conflicts.young.capacity() + conflicts.old.capacity());
        }
        assert!(capacities[1] >= 500_000, "they are not committed: {capacities:?}");
        assert!(capacities[3] < 4 * KEPT_KEYS, "{capacities:?}");
    }
}
