use std::collections::HashMap;
use std::sync::Arc;

use csa_provider::test_util::{int_image, int_table_map, rows_event};
use csa_provider::{EventType, RawEvent, RowsEvent, TableMap};

use super::*;

/// `t (a PRIMARY KEY, b, c)` with a unique key on (b, c).
fn layout() -> TableLayout {
    let part = |column| KeyPart { column, class: KeyClass::Integer };
    let keys = TableKeys {
        columns: 3,
        unique: vec![
            UniqueKey { parts: vec![part(0)] },
            UniqueKey { parts: vec![part(1), part(2)] },
        ],
        foreign_key_rank: Some(0),
        ..TableKeys::default()
    };
    let map = int_table_map(7, "d", "t", 3);
    let parsed = TableMap::parse(map.body()).expect("well-formed");
    TableLayout::new(TableId(1), Some(Arc::new(keys)), &parsed, map.body()).expect("well-formed")
}

struct Touched {
    keys: Vec<KeyUse>,
    tables: Vec<TableUse>,
}

impl Touched {
    fn roles(&self) -> Vec<KeyRole> {
        self.keys.iter().map(|key| key.role()).collect()
    }
}

fn touch(event: &RawEvent) -> Touched {
    let rows = RowsEvent::parse(event.event_type(), event.body()).expect("rows").expect("plain");
    let mut touched = Touched { keys: Vec::new(), tables: Vec::new() };
    let ends = layout().read_row(
        &rows,
        rows.images,
        &mut Scratch::default(),
        &mut touched.keys,
        &mut touched.tables,
    );
    assert_eq!(ends.expect("whole").row, rows.images.len());
    touched
}

fn update(before: [Option<i32>; 3], after: [Option<i32>; 3]) -> Touched {
    let images = [int_image(&before), int_image(&after)].concat();
    touch(&rows_event(EventType::UPDATE_ROWS, 7, 3, &images))
}

#[test]
fn keys_are_kept_or_moved_and_null_is_none() {
    let kept = update([Some(1), Some(2), Some(3)], [Some(1), Some(2), Some(3)]);
    assert_eq!(kept.roles(), [KeyRole::Kept, KeyRole::Kept]);
    let moved = update([Some(1), Some(2), Some(3)], [Some(1), Some(2), Some(4)]);
    assert_eq!(moved.roles(), [KeyRole::Kept, KeyRole::Removed, KeyRole::Added]);
    assert_eq!(kept.keys[1].key(), moved.keys[1].key());
    let to_null = update([Some(1), Some(2), Some(3)], [Some(1), None, Some(3)]);
    assert_eq!(to_null.roles(), [KeyRole::Kept, KeyRole::Removed]);
    assert_eq!(to_null.tables, [TableUse::Rows(TableId(1))]);
}

#[test]
fn parts_do_not_run_into_each_other() {
    let one =
        touch(&rows_event(EventType::WRITE_ROWS, 7, 3, &int_image(&[Some(1), Some(2), Some(3)])));
    let two =
        touch(&rows_event(EventType::WRITE_ROWS, 7, 3, &int_image(&[Some(1), Some(3), Some(2)])));
    assert_eq!(one.keys[0], two.keys[0]);
    assert_ne!(one.keys[1].key(), two.keys[1].key());
    // The same value in two keys is two keys.
    assert_ne!(one.keys[0].key(), one.keys[1].key());
}

/// An event with column bitmaps of its own.
fn partial(event_type: EventType, bitmaps: &[u8], images: &[u8]) -> RawEvent {
    let full = rows_event(event_type, 7, 3, images);
    let mut body = full.body().to_vec();
    body[11..11 + bitmaps.len()].copy_from_slice(bitmaps);
    csa_provider::test_util::event(event_type, &body)
}

#[test]
fn a_delete_that_leaves_out_a_unique_value_counts_as_the_whole_table() {
    // Only the primary key is in the image, as binlog_row_image=MINIMAL writes it.
    let deleted = touch(&partial(EventType::DELETE_ROWS, &[0b001], &int_image(&[Some(1)])));
    assert_eq!(deleted.tables, [TableUse::Whole(TableId(1))]);
    assert!(deleted.keys.is_empty());
}

#[test]
fn an_update_that_leaves_a_unique_key_alone_need_not_show_it() {
    // Before: the primary key. After: nothing of any key.
    let images = [int_image(&[Some(1)]), int_image(&[])].concat();
    let updated = touch(&partial(EventType::UPDATE_ROWS, &[0b001, 0b000], &images));
    assert_eq!(updated.roles(), [KeyRole::Kept]);
    // After: one part of the unique key, whose old value is not known.
    let images = [int_image(&[Some(1)]), int_image(&[Some(9)])].concat();
    let changed = touch(&partial(EventType::UPDATE_ROWS, &[0b001, 0b010], &images));
    assert_eq!(changed.tables, [TableUse::Whole(TableId(1))]);
}

fn weights(pairs: &[(char, &[u8])]) -> Weights {
    let weights = pairs.iter().map(|(c, weight)| (u32::from(*c), (*weight).into()));
    Weights::Learnt(weights.collect::<HashMap<u32, Box<[u8]>>>())
}

fn counted(collation: &Collation, text: &str, prefix: Option<usize>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    collation.append(text.as_bytes(), prefix, &mut out).then_some(out)
}

#[test]
fn strings_count_by_learnt_weights() {
    let learnt =
        weights(&[('a', b"A"), ('A', b"A"), ('s', b"S"), ('ß', b"SS"), ('é', b"E"), ('e', b"E")]);
    let collation = Collation::new("utf8mb4", false, learnt, false, vec![255]);
    assert_eq!(counted(&collation, "Aß", None), counted(&collation, "ass", None));
    // Two characters are three bytes and more.
    assert_eq!(counted(&collation, "éae", Some(2)), counted(&collation, "ea", None));
    assert_ne!(counted(&collation, "a", None), counted(&collation, "aa", None));
    assert_eq!(counted(&collation, "日", None), None, "not learnt, not guessed");
}

#[test]
fn trailing_spaces_count_where_the_collation_says_so() {
    let binary = |pad| Collation::new("utf8mb4", false, Weights::Bytes, pad, vec![46]);
    assert_eq!(counted(&binary(true), "a  ", None), counted(&binary(true), "a", None));
    assert_ne!(counted(&binary(false), "a  ", None), counted(&binary(false), "a", None));
}
