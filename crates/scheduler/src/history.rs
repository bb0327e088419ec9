use std::collections::HashMap;

use crate::changes::RowChanges;
use crate::keys::{KeyMap, KeyRole, TableId, TableUse};

/// The last group that wrote (0 for none), and those that read.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    write: u64,
    read: LastTwo,
}

#[derive(Debug, Clone, Copy, Default)]
struct TableUses {
    rows: LastTwo,
    whole: u64,
}

/// The last two groups of those that need not wait for each other, 0 for none: the group that is
/// being formed does not hide the one before it.
#[derive(Debug, Clone, Copy, Default)]
struct LastTwo {
    last: u64,
    before: u64,
}

impl LastTwo {
    fn set(&mut self, sequence: u64) {
        if sequence != self.last {
            *self = Self { last: sequence, before: self.last };
        }
    }

    const fn other_than(self, own: u64) -> u64 {
        if self.last == own { self.before } else { self.last }
    }
}

/// Which group last touched a key, for groups that are not committed.
///
/// Two generations of keys: when everything in the older one is committed it is dropped whole. Memory
/// follows what is in flight, and nothing is ever searched for to be forgotten.
#[derive(Debug, Default)]
pub(crate) struct KeyHistory {
    young: KeyMap<Uses>,
    old: KeyMap<Uses>,
    /// The last group in `old`, and in anything.
    old_last: u64,
    last: u64,
    tables: HashMap<TableId, TableUses>,
    /// The last group that is in the way of everything.
    barrier: u64,
    /// Everything up to it is committed.
    low_water: u64,
}

impl KeyHistory {
    /// The highest uncommitted group that `changes` must wait for, other than `own`; 0 for none.
    pub(crate) fn dependency(&self, changes: Option<&RowChanges>, own: u64) -> u64 {
        let mut highest = if self.barrier == own { 0 } else { self.barrier };
        let mut take = |sequence: u64| {
            if sequence != own && sequence > highest {
                highest = sequence;
            }
        };
        let Some(changes) = changes else {
            // In the way of everything: of all groups but its own.
            let before = if self.last == own { own.saturating_sub(1) } else { self.last };
            take(before);
            return self.uncommitted(highest);
        };
        for table in &changes.tables {
            match table {
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
        for key in &changes.keys {
            let number = key.key();
            for uses in [self.young.get(&number), self.old.get(&number)].into_iter().flatten() {
                take(uses.write);
                if key.role() != KeyRole::Read {
                    take(uses.read.other_than(own));
                }
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
            self.barrier = sequence;
            return;
        };
        for table in &changes.tables {
            match table {
                TableUse::Rows(id) => self.tables.entry(*id).or_default().rows.set(sequence),
                TableUse::Whole(id) => self.tables.entry(*id).or_default().whole = sequence,
            }
        }
        for key in &changes.keys {
            let uses = self.young.entry(key.key()).or_default();
            match key.role() {
                KeyRole::Read => uses.read.set(sequence),
                _ => uses.write = sequence,
            }
        }
    }

    /// Everything up to `low_water` is committed.
    pub(crate) fn forget(&mut self, low_water: u64) {
        self.low_water = low_water;
        if self.old_last <= low_water {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
            self.old_last = self.last;
        }
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

    /// Adds both to group 6, after `earlier` in group 5; what the second waits for.
    fn dependency(earlier: &RowChanges, first: &RowChanges, second: &RowChanges) -> u64 {
        let mut history = KeyHistory::default();
        history.add(Some(earlier), 5);
        assert_eq!(history.dependency(Some(first), 6), 0);
        history.add(Some(first), 6);
        history.dependency(Some(second), 6)
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
}
