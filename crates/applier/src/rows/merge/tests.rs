//! Random histories of two tables, merged, must change a strict model as they did one by one.

mod statements;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{
    ChecksumAlgorithm, EventHeader, EventType, RawEvent, RowsEvent, RowsKind, TableMap, Value,
    scan_image,
};
use csa_provider::test_util::{
    event, format_description, int_image, int_table_map, query_event_in, rows_event,
};
use csa_relaystore::read::RelayedTransaction;
use csa_relaystore::test_util::relayed_events;
use csa_scheduler::admission::{Admission, AdmittedTransaction};
use csa_scheduler::key_source::{KeySource, KeySourceError};
use csa_scheduler::keys::{ForeignKey, KeyClass, KeyPart, TableId, TableKeys, UniqueKey};
use csa_scheduler::sequence::Sequence;
use proptest::prelude::*;

use super::merge;
use crate::options::RowImageColumns;

/// `parent (id PRIMARY KEY, u UNIQUE, v)` and `child (id PRIMARY KEY, p REFERENCES parent (id), v)`.
type Row = [Option<i32>; 3];

const PARENT: usize = 0;
const CHILD: usize = 1;
const NAMES: [&str; 2] = ["parent", "child"];

/// Rows by id; every change is checked as strictly as the target does.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    tables: [BTreeMap<i32, Row>; 2],
}

#[derive(Debug, Clone, Copy)]
struct Change {
    table: usize,
    before: Option<Row>,
    after: Option<Row>,
}

impl Model {
    fn apply(&mut self, change: Change) -> Result<(), String> {
        let Change { table, before, after } = change;
        if let Some(before) = before {
            let id = before[0].expect("key");
            let held = self.tables[table].remove(&id);
            if held != Some(before) {
                return Err(format!("1032: {} has {held:?}, not {before:?}", NAMES[table]));
            }
        }
        if let Some(after) = after {
            let id = after[0].expect("key");
            let rows = &self.tables[table];
            let taken = rows.contains_key(&id)
                || table == PARENT
                    && after[1].is_some()
                    && rows.values().any(|row| row[1] == after[1]);
            if taken {
                return Err(format!("1062: {} {after:?}", NAMES[table]));
            }
            self.tables[table].insert(id, after);
        }
        self.check_references()
    }

    fn check_references(&self) -> Result<(), String> {
        let lost = self.tables[CHILD]
            .values()
            .find(|row| row[1].is_some_and(|parent| !self.tables[PARENT].contains_key(&parent)));
        lost.map_or(Ok(()), |row| Err(format!("1452: child {row:?}")))
    }

    /// Returns the change that some random bytes select, if it is possible now.
    fn change(&self, [what, id, other, value]: [u8; 4]) -> Option<Change> {
        let table = usize::from(what & 1);
        let id = i32::from(id % 6);
        let held = self.tables[table].get(&id).copied();
        let second = (other % 5 != 0).then(|| i32::from(other % 6));
        let row = [Some(id), second, Some(i32::from(value))];
        let (before, after) = match (what >> 1 & 3, held) {
            (_, None) => (None, Some(row)),
            (0, held) => (held, None),
            (1, Some(held)) => (Some(held), Some(row)),
            (2, Some(held)) => (Some(held), Some([Some(i32::from(other % 6)), held[1], row[2]])),
            (_, Some(held)) => (Some(held), Some([held[0], held[1], row[2]])),
        };
        let change = Change { table, before, after };
        self.clone().apply(change).is_ok().then_some(change)
    }
}

/// An image as it is sent, which may lack columns.
type Image = [Option<Option<i32>>; 3];

/// A change as it is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sent {
    table: usize,
    before: Option<Image>,
    after: Option<Image>,
}

impl Model {
    /// Takes what images lack from the row that the target has.
    fn completed(&self, sent: Sent) -> Change {
        let Sent { table, before, after } = sent;
        let filled = |image: Image, row: Option<Row>| -> Row {
            std::array::from_fn(|column| image[column].unwrap_or_else(|| row?[column]))
        };
        let held =
            before.and_then(|image| image[0].flatten()).and_then(|id| self.tables[table].get(&id));
        let before = before.map(|image| filled(image, held.copied()));
        Change { table, before, after: after.map(|image| filled(image, before)) }
    }
}

struct ModelTables {
    /// Parents always have one.
    have_primary: bool,
    number_rows: bool,
    related: bool,
}

const KEYED: ModelTables = ModelTables { have_primary: true, number_rows: false, related: true };

fn key(column: usize) -> KeyPart {
    KeyPart { column, class: KeyClass::Integer }
}

impl KeySource for ModelTables {
    async fn table(
        &mut self,
        _schema: &[u8],
        table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let mut keys = TableKeys {
            columns: 3,
            unique: vec![UniqueKey { parts: vec![key(0)] }],
            has_primary: self.have_primary,
            has_auto_increment: self.number_rows,
            foreign_key_rank: Some(0),
            has_relations: self.related,
            ..TableKeys::default()
        };
        if table == b"parent" {
            keys.unique.push(UniqueKey { parts: vec![key(1)] });
            keys.computes = true;
            keys.has_primary = true;
            return Ok((TableId(1), Some(Arc::new(keys))));
        }
        keys.foreign_key_rank = Some(1);
        keys.foreign_keys
            .push(ForeignKey { parent: TableId(1), parent_key: Some((0, vec![key(1)])) });
        Ok((TableId(2), Some(Arc::new(keys))))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

fn transaction(gno: u64, changes: &[Change]) -> RelayedTransaction {
    transaction_in(0, gno, changes)
}

/// Of a session in this time zone.
fn transaction_in(zone: u64, gno: u64, changes: &[Change]) -> RelayedTransaction {
    let time_zone = [&[5, 6], format!("+0{zone}:00").as_bytes()].concat();
    let mut events = vec![query_event_in(&time_zone, "", "BEGIN")];
    for change in changes {
        let id = change.table as u64 + 70;
        let image = |row: Option<Row>| row.map(|row| int_image(&row)).unwrap_or_default();
        let images = [image(change.before), image(change.after)].concat();
        let event_type = match (change.before, change.after) {
            (None, _) => EventType::WRITE_ROWS,
            (_, None) => EventType::DELETE_ROWS,
            _ => EventType::UPDATE_ROWS,
        };
        events.push(int_table_map(id, "d", NAMES[change.table], 3));
        events.push(rows_event(event_type, id, 3, &images));
    }
    events.push(event(EventType::XID, &[0; 8]));
    relayed_events(gno, &Arc::new(format_description()), &events)
}

/// Reads merged statements back as the target would.
fn changes_of(statement: &[u8]) -> Vec<Sent> {
    let mut changes = Vec::new();
    let mut rest = Bytes::copy_from_slice(statement);
    let mut tables = BTreeMap::new();
    while !rest.is_empty() {
        let header = EventHeader::parse(&rest).expect("header");
        let event = rest.split_to(header.event_size as usize);
        let event = RawEvent::trusted(event, ChecksumAlgorithm::Off).expect("event");
        if event.event_type() == EventType::TABLE_MAP {
            let map = TableMap::parse(event.body()).expect("table map");
            let table = NAMES.iter().position(|name| name.as_bytes() == map.table).expect("known");
            tables.insert(map.table_id, (table, map.columns().expect("columns")));
            continue;
        }
        let rows =
            RowsEvent::parse(event.event_type(), event.body()).expect("rows").expect("plain");
        let last = rest.is_empty();
        assert_eq!(rows.flags & RowsEvent::STATEMENT_END != 0, last, "only the last ends it");
        let (table, columns) = &tables[&rows.table_id];
        let mut images = rows.images;
        while !images.is_empty() {
            let mut read = |bitmap: &[u8]| {
                let mut row: Image = [None; 3];
                let end = scan_image(columns, bitmap, images, &[0, 1, 2], |place, value| {
                    row[place] = match value {
                        Value::Absent => None,
                        Value::Null => Some(None),
                        Value::At(range) => {
                            let bytes = images[range].try_into().expect("INT");
                            Some(Some(i32::from_le_bytes(bytes)))
                        }
                    };
                })
                .expect("image");
                images = &images[end..];
                row
            };
            let before = (rows.kind != RowsKind::Write).then(|| read(rows.before));
            let after = (rows.kind != RowsKind::Delete).then(|| read(rows.after));
            changes.push(Sent { table: *table, before, after });
        }
    }
    changes
}

/// True if a change uses one of these keys, as admission sees it.
fn touches(change: &Change, keys: &[u64]) -> bool {
    let admitted = Admission::new(KEYED).admit_now(transaction(1, &[*change]), None, true);
    let changes = admitted.expect("known").changes.expect("looked at");
    changes.keys.iter().any(|key| keys.contains(&key.key()))
}

const OWN: Sequence = Sequence::new(100);

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever the history, its merged statements are possible one after the other and end alike.
    #[test]
    fn merged_statements_do_what_the_history_did(
        setup in prop::collection::vec(any::<[u8; 4]>(), 0..30),
        history in prop::collection::vec(prop::collection::vec(any::<[u8; 4]>(), 1..6), 1..20),
        limit in prop_oneof![Just(200_usize), Just(4 << 20)],
        late in prop_oneof![Just(0_u64), Just(10), Just(50), Just(100)],
        zones in 1..4_u64,
        columns in prop_oneof![Just(RowImageColumns::Full), Just(RowImageColumns::Minimal)],
    ) {
        let mut start = Model::default();
        for random in setup {
            if let Some(change) = start.change(random) {
                start.apply(change).expect("possible");
            }
        }
        let mut end = start.clone();
        let mut admission = Admission::new(KEYED);
        let mut admitted: Vec<AdmittedTransaction> = Vec::new();
        for (gno, randoms) in (1..).zip(history) {
            let mut changes = Vec::new();
            for random in randoms {
                if let Some(change) = end.change(random) {
                    end.apply(change).expect("possible");
                    changes.push(change);
                }
            }
            let relayed = transaction_in(gno % zones, gno, &changes);
            admitted.push(admission.admit_now(relayed, None, true).expect("known"));
        }
        prop_assert!(admitted.iter().all(AdmittedTransaction::is_keyed));
        let late: Vec<u64> = admitted
            .iter()
            .flat_map(|t| t.changes.iter().flat_map(|changes| &changes.keys))
            .map(|key| key.key())
            .filter(|key| key % 100 < late)
            .collect();
        // Each of them waits for one of the groups before this one.
        let earlier = |key: u64| Sequence::new(OWN.get() - 1 - key / 100 % 40);
        let in_the_way = |key| late.contains(&key).then(|| earlier(key));
        let merged = merge(&admitted, OWN, limit, columns, in_the_way).expect("whole rows");
        let mut target = start;
        for statement in &merged.free {
            let changes = changes_of(&statement.events);
            prop_assert!(statement.events.len() <= limit || changes.len() == 1);
            let before = target.clone();
            for change in changes {
                let change = target.completed(change);
                prop_assert!(!touches(&change, &late), "{change:?} is late");
                target.apply(change).map_err(TestCaseError::fail)?;
            }
            prop_assert!(!statement.is_undone || target == before);
        }
        let mut committed = Sequence::default();
        for part in &merged.late {
            committed = committed.max(part.after);
            prop_assert!(!part.images.is_empty());
            for change in part.images.iter().flat_map(|statement| changes_of(&statement.events)) {
                let change = target.completed(change);
                let waits_on: Vec<_> = late.iter().filter(|key| earlier(**key) > committed).copied().collect();
                prop_assert!(!touches(&change, &waits_on), "{change:?} is sent too early");
                target.apply(change).map_err(TestCaseError::fail)?;
            }
        }
        prop_assert_eq!(target, end);
    }
}
