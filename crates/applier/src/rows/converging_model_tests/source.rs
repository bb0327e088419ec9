//! The source of the model, and how its rows change.

use std::collections::BTreeMap;

use csa_provider::binlog::EventType;
use csa_provider::test_util::{int_image, int_table_map, rows_event};

use super::{KEYS, STRICT_ID, TABLE_ID};
use crate::rows::binlog_statements::set_statement_end;

/// A row by its key: a value with a unique key, and another one.
pub(super) type Row = (i32, i32);
pub(super) type Table = BTreeMap<i32, Row>;

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: i32) -> i32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as i32
    }
}

pub(super) fn image(key: i32, (unique, value): Row) -> Vec<u8> {
    int_image(&[Some(key), Some(unique), Some(value)])
}

/// A source with its binary log: the rows events of each transaction.
#[derive(Default)]
pub(super) struct Source {
    pub(super) table: Table,
    /// Rows of the strict table.
    pub(super) strict: i32,
    pub(super) log: Vec<Vec<Vec<u8>>>,
}

impl Source {
    fn free_unique(&self, random: &mut Random) -> i32 {
        let mut unique = random.below(KEYS * 2);
        while self.table.values().any(|row| row.0 == unique) {
            unique += 1;
        }
        unique
    }

    pub(super) fn commit(&mut self, random: &mut Random) {
        let mut events = Vec::new();
        for _ in 0..=random.below(3) {
            self.change(random, &mut events);
        }
        if !events.is_empty() {
            self.log.push(events);
        }
    }

    fn change(&mut self, random: &mut Random, events: &mut Vec<Vec<u8>>) {
        let key = random.below(KEYS);
        let found = self.table.get(&key).copied();
        match (random.below(7), found) {
            (0 | 1, None) => {
                let row = (self.free_unique(random), random.below(100));
                self.write(events, EventType::WRITE_ROWS, image(key, row));
                self.table.insert(key, row);
            }
            (0, Some(row)) => {
                self.write(events, EventType::DELETE_ROWS, image(key, row));
                self.table.remove(&key);
            }
            (1 | 2, Some(row)) => {
                let next = (row.0, random.below(100));
                self.write(
                    events,
                    EventType::UPDATE_ROWS,
                    [image(key, row), image(key, next)].concat(),
                );
                self.table.insert(key, next);
            }
            // The key moves.
            (3, Some(row)) => {
                let to = random.below(KEYS);
                if !self.table.contains_key(&to) {
                    self.write(
                        events,
                        EventType::UPDATE_ROWS,
                        [image(key, row), image(to, row)].concat(),
                    );
                    self.table.remove(&key);
                    self.table.insert(to, row);
                }
            }
            // All keys of a range move by one, in one statement.
            (4, _) => {
                let moved: Vec<(i32, Row)> =
                    self.table.range(key..).take(4).map(|(key, row)| (*key, *row)).collect();
                let free =
                    moved.last().is_some_and(|(last, _)| !self.table.contains_key(&(last + 1)));
                if free {
                    let mut images = Vec::new();
                    for &(key, row) in moved.iter().rev() {
                        // One that follows closely has moved before.
                        images.extend([image(key, row), image(key + 1, row)].concat());
                        self.table.remove(&key);
                        self.table.insert(key + 1, row);
                    }
                    self.write(events, EventType::UPDATE_ROWS, images);
                }
            }
            // Two rows exchange their unique values, over a third one.
            (5, Some(row)) => {
                let other = self.table.range(key + 1..).next().map(|(key, row)| (*key, *row));
                let Some((other_key, other)) = other else { return };
                let between = (self.free_unique(random), row.1);
                let steps = [
                    (key, row, between),
                    (other_key, other, (row.0, other.1)),
                    (key, between, (other.0, row.1)),
                ];
                for (key, before, after) in steps {
                    self.write(
                        events,
                        EventType::UPDATE_ROWS,
                        [image(key, before), image(key, after)].concat(),
                    );
                    self.table.insert(key, after);
                }
            }
            // A row comes and goes.
            (6, None) => {
                let row = (self.free_unique(random), random.below(100));
                self.write(events, EventType::WRITE_ROWS, image(key, row));
                self.write(events, EventType::DELETE_ROWS, image(key, row));
            }
            // It goes and comes again.
            (6, Some(row)) => {
                self.write(events, EventType::DELETE_ROWS, image(key, row));
                let next = (self.free_unique(random), random.below(100));
                self.write(events, EventType::WRITE_ROWS, image(key, next));
                self.table.insert(key, next);
            }
            _ => {}
        }
    }

    /// Logs a statement, which may add a row to the strict table, too.
    fn write(&mut self, events: &mut Vec<Vec<u8>>, event_type: EventType, images: Vec<u8>) {
        let mut bytes = Vec::new();
        int_table_map(STRICT_ID, "d", "strict", 1).write_without_checksum(&mut bytes);
        int_table_map(TABLE_ID, "d", "t", 3).write_without_checksum(&mut bytes);
        if !self.log.len().is_multiple_of(3) {
            self.strict += 1;
            let image = int_image(&[Some(self.strict)]);
            rows_event(EventType::WRITE_ROWS, STRICT_ID, 1, &image)
                .write_without_checksum(&mut bytes);
        }
        let last = bytes.len();
        rows_event(event_type, TABLE_ID, 3, &images).write_without_checksum(&mut bytes);
        set_statement_end(&mut bytes, last);
        events.push(bytes);
    }
}
