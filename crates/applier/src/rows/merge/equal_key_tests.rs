//! A parent's key changes to one that its collation calls equal. The change keeps its place among those of the rows
//! that refer to the key.

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{ChecksumAlgorithm, EventHeader, EventType, RawEvent, TableMap};
use csa_provider::test_util::{event, format_description, query_event, rows_event};
use csa_relaystore::test_util::relayed_events;
use csa_scheduler::admission::Admission;
use csa_scheduler::key_source::{KeySource, KeySourceError};
use csa_scheduler::keys::{
    Collation, ForeignKey, KeyClass, KeyPart, TableId, TableKeys, UniqueKey, Weights,
};
use csa_scheduler::sequence::Sequence;

use super::merge;
use crate::options::RowImageColumns;

/// `p (id VARCHAR(9) PRIMARY KEY, v INT)` with a collation that ignores case, and
/// `c (id INT PRIMARY KEY, p VARCHAR(9) REFERENCES p (id))`.
struct EqualKeyTables;

fn text(column: usize) -> KeyPart {
    let weights = "defr".chars().flat_map(|c| {
        let weight: Box<[u8]> = [c as u8].into();
        [(u32::from(c), weight.clone()), (u32::from(c.to_ascii_uppercase()), weight)]
    });
    let weights = Weights::Learnt(weights.collect());
    let collation = Arc::new(Collation::new("utf8mb4", false, weights, vec![255]));
    KeyPart { column, class: KeyClass::String { collation, prefix: None } }
}

impl KeySource for EqualKeyTables {
    async fn table(
        &mut self,
        _schema: &[u8],
        table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let mut keys = TableKeys {
            columns: 2,
            has_primary: true,
            has_relations: true,
            ..TableKeys::default()
        };
        let id = match table {
            b"p" => {
                keys.unique = vec![UniqueKey { parts: vec![text(0)] }];
                keys.foreign_key_rank = Some(0);
                TableId(1)
            }
            _ => {
                let id = KeyPart { column: 0, class: KeyClass::Integer };
                keys.unique = vec![UniqueKey { parts: vec![id] }];
                keys.foreign_key_rank = Some(1);
                let parent_key = Some((0, vec![text(1)]));
                keys.foreign_keys.push(ForeignKey { parent: TableId(1), parent_key });
                TableId(2)
            }
        };
        Ok((id, Some(Arc::new(keys))))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

const PARENT: u8 = 1;
const CHILD: u8 = 2;

/// Columns, their metadata, and that all may be NULL; the collation is `utf8mb4_0900_ai_ci`.
fn table_map(table: u8) -> RawEvent {
    let (name, types) = if table == PARENT { (b'p', [15, 3]) } else { (b'c', [3, 15]) };
    let mut body = vec![table, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, 1, name, 0, 2];
    body.extend(types);
    body.extend([2, 36, 0, 0b11, 2, 3, 0xfc, 255, 0]);
    event(EventType::TABLE_MAP, &body)
}

fn parent(id: &str, v: u8) -> Vec<u8> {
    [&[0, id.len() as u8], id.as_bytes(), &[v, 0, 0, 0]].concat()
}

fn child(id: u8, p: Option<&str>) -> Vec<u8> {
    match p {
        Some(p) => [&[0, id, 0, 0, 0, p.len() as u8], p.as_bytes()].concat(),
        None => vec![0b10, id, 0, 0, 0],
    }
}

/// The table of each event that one transaction of these updates is sent in.
fn sent(updates: &[(u8, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut events = vec![query_event("", "BEGIN")];
    for (table, before, after) in updates {
        events.push(table_map(*table));
        let images = [before.as_slice(), after].concat();
        events.push(rows_event(EventType::UPDATE_ROWS, (*table).into(), 2, &images));
    }
    events.push(event(EventType::XID, &[0; 8]));
    let relayed = relayed_events(1, &Arc::new(format_description()), &events);
    let admitted = Admission::new(EqualKeyTables).admit_now(relayed, None, true).expect("known");
    assert!(admitted.is_keyed());
    let merged = merge(&[admitted], Sequence::new(1), 4 << 20, RowImageColumns::Full, |_| None);
    let statements = merged.expect("whole rows").free.into_iter();
    statements.flat_map(|images| tables_of(images.events.into())).collect()
}

fn tables_of(mut statement: Bytes) -> Vec<u8> {
    let (mut maps, mut tables) = (Vec::new(), Vec::new());
    while !statement.is_empty() {
        let header = EventHeader::parse(&statement).expect("header");
        let event = statement.split_to(header.event_size as usize);
        let event = RawEvent::trusted(event, ChecksumAlgorithm::Off).expect("event");
        let number = event.body()[..TableMap::ID_LEN].to_vec();
        if event.event_type() == EventType::TABLE_MAP {
            let map = TableMap::parse(event.body()).expect("table map");
            maps.push((number, if map.table == b"p" { PARENT } else { CHILD }));
        } else {
            let map = maps.iter().rfind(|(known, _)| *known == number).expect("mapped");
            tables.push(map.1);
        }
    }
    tables
}

#[test]
fn rows_let_go_of_a_key_before_it_is_rewritten() {
    let updates = [
        (CHILD, child(1, Some("de")), child(1, None)),
        (PARENT, parent("de", 1), parent("DE", 1)),
        (CHILD, child(1, None), child(1, Some("DE"))),
    ];
    assert_eq!(sent(&updates), [CHILD, PARENT, CHILD]);
    let updates = [
        (PARENT, parent("fr", 0), parent("fr", 1)),
        (CHILD, child(1, Some("de")), child(1, Some("fr"))),
        (PARENT, parent("de", 1), parent("DE", 1)),
    ];
    assert_eq!(sent(&updates), [PARENT, CHILD, PARENT]);
}

#[test]
fn changes_of_other_columns_are_sent_together() {
    let updates = [
        (PARENT, parent("fr", 0), parent("fr", 1)),
        (CHILD, child(1, Some("de")), child(1, Some("fr"))),
        (PARENT, parent("de", 1), parent("de", 2)),
    ];
    assert_eq!(sent(&updates), [PARENT, CHILD]);
}
