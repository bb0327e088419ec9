use std::collections::HashMap;
use std::sync::Arc;

use csa_provider::binlog::{EventType, RawEvent, RowsEvent, TableMap};
use csa_provider::test_util::{int_image, int_table_map, rows_event};

use super::*;

/// Returns `t (a PRIMARY KEY, b, c)` with a unique key on (b, c).
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
    touch_in(&layout(), event)
}

fn touch_in(layout: &TableLayout, event: &RawEvent) -> Touched {
    let rows = RowsEvent::parse(event.event_type(), event.body()).expect("rows").expect("plain");
    let mut touched = Touched { keys: Vec::new(), tables: Vec::new() };
    let ends = layout.read_row(
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
fn a_row_without_a_key_before_or_after_its_update_counts_as_the_whole_table() {
    // `t (a, b UNIQUE, c UNIQUE)`, all of which may be NULL.
    let unique = |column| UniqueKey { parts: vec![KeyPart { column, class: KeyClass::Integer }] };
    let keys = TableKeys { columns: 3, unique: vec![unique(1), unique(2)], ..TableKeys::default() };
    let map = int_table_map(7, "d", "t", 3);
    let parsed = TableMap::parse(map.body()).expect("well-formed");
    let layout = TableLayout::new(TableId(1), Some(Arc::new(keys)), &parsed, map.body());
    let layout = layout.expect("well-formed");
    let (rows, whole) = (TableUse::Rows(TableId(1)), TableUse::Whole(TableId(1)));
    for (before, after, expected) in [
        ([Some(5), None], [None, None], whole),
        ([None, None], [None, Some(6)], whole),
        ([None, None], [None, None], whole),
        ([Some(5), None], [Some(6), None], rows),
        ([Some(5), None], [Some(5), None], rows),
        ([Some(5), None], [None, Some(6)], rows),
    ] {
        let image = |[b, c]: [Option<i32>; 2]| int_image(&[Some(1), b, c]);
        let images = [image(before), image(after)].concat();
        let touched = touch_in(&layout, &rows_event(EventType::UPDATE_ROWS, 7, 3, &images));
        assert_eq!(touched.tables, [expected], "{before:?} -> {after:?}");
        assert_eq!(touched.keys.is_empty(), expected == whole, "{before:?} -> {after:?}");
    }
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
    // The first image has the primary key, the second one no part of any key.
    let images = [int_image(&[Some(1)]), int_image(&[])].concat();
    let updated = touch(&partial(EventType::UPDATE_ROWS, &[0b001, 0b000], &images));
    assert_eq!(updated.roles(), [KeyRole::Kept]);
    // The second image has one part of the unique key, and its old value is unknown.
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
    let collation = Collation::new("utf8mb4", false, learnt, vec![255]);
    assert_eq!(counted(&collation, "Aß", None), counted(&collation, "ass", None));
    // Two characters are three bytes and more.
    assert_eq!(counted(&collation, "éae", Some(2)), counted(&collation, "ea", None));
    assert_ne!(counted(&collation, "a", None), counted(&collation, "aa", None));
    assert_eq!(counted(&collation, "日", None), None, "not learnt, not guessed");
}

/// Returns the keys of a new row of a table with this type of column and these keys.
fn written(id: u32, column: [u8; 3], keys: TableKeys, value: &[u8]) -> Vec<KeyUse> {
    let [code, low, high] = column;
    let mut body = vec![7, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, 1, b't', 0, 1, code];
    // The type's metadata, no NULLs, and the collation `binary`.
    body.extend([2, low, high, 0, 2, 1, 63]);
    let map = TableMap::parse(&body).expect("well-formed");
    let keys = TableKeys { columns: 1, ..keys };
    let layout = TableLayout::new(TableId(id), Some(Arc::new(keys)), &map, &body).expect("known");
    let image = [&[0, value.len() as u8], value].concat();
    let event = rows_event(EventType::WRITE_ROWS, 7, 1, &image);
    let rows = RowsEvent::parse(event.event_type(), event.body()).expect("rows").expect("plain");
    let (mut keys, mut tables) = (Vec::new(), Vec::new());
    layout
        .read_row(&rows, rows.images, &mut Scratch::default(), &mut keys, &mut tables)
        .expect("whole");
    keys
}

/// Returns the key of a new row of `t (id PRIMARY KEY)`, with an integer of this type.
fn integer_key(code: u8, value: &[u8]) -> KeyUse {
    let body = [&[7, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, 1, b't', 0, 1][..], &[code, 0, 0]].concat();
    let part = KeyPart { column: 0, class: KeyClass::Integer };
    let keys = Some(Arc::new(TableKeys {
        columns: 1,
        unique: vec![UniqueKey { parts: vec![part] }],
        ..TableKeys::default()
    }));
    let map = TableMap::parse(&body).expect("well-formed");
    let layout = TableLayout::new(TableId(1), keys, &map, &body).expect("well-formed");
    let event = rows_event(EventType::WRITE_ROWS, 7, 1, &[&[0], value].concat());
    let rows = RowsEvent::parse(event.event_type(), event.body()).expect("rows").expect("plain");
    let (mut keys, mut tables) = (Vec::new(), Vec::new());
    layout
        .read_row(&rows, rows.images, &mut Scratch::default(), &mut keys, &mut tables)
        .expect("whole");
    assert_eq!(tables, [TableUse::Rows(TableId(1))]);
    keys[0]
}

#[test]
fn a_key_outlives_a_change_of_its_width() {
    const BIGINT: u8 = 8;
    const INT: u8 = 3;
    for value in [5, -5, i32::MIN, i32::MAX] {
        let wide = integer_key(BIGINT, &i64::from(value).to_le_bytes());
        assert_eq!(integer_key(INT, &value.to_le_bytes()), wide, "{value}");
    }
    // INT UNSIGNED: some sources do not say so.
    let wide = integer_key(BIGINT, &i64::from(u32::MAX - 5).to_le_bytes());
    assert_eq!(integer_key(INT, &(u32::MAX - 5).to_le_bytes()), wide);
    assert_ne!(integer_key(INT, &5_i32.to_le_bytes()), wide);
}

#[test]
fn a_varbinary_refers_to_the_binary_that_it_equals() {
    let collation = Arc::new(Collation::new("binary", true, Weights::Bytes, vec![63]));
    let part = KeyPart { column: 0, class: KeyClass::String { collation, prefix: None } };
    let unique = vec![UniqueKey { parts: vec![part.clone()] }];
    let parent = TableKeys { unique, ..TableKeys::default() };
    let parent_key = Some((0, vec![part]));
    let foreign_keys = vec![ForeignKey { parent: TableId(1), parent_key }];
    let child = TableKeys { foreign_keys, ..parent.clone() };
    // BINARY(4), and VARBINARY(4).
    let parent = written(1, [254, 254, 4], parent, b"\x01");
    let child = written(2, [15, 4, 0], child, b"\x01\0\0\0");
    assert_eq!((parent.len(), parent[0].role()), (1, KeyRole::Added));
    assert_eq!(child[1], KeyUse::new(parent[0].key(), KeyRole::Read));
}

/// `p (id PRIMARY KEY, code UNIQUE, u)`: children refer to `code` and `u` with ON UPDATE CASCADE, and
/// `code` has a case-insensitive collation.
fn cascading_layout() -> TableLayout {
    coded_layout(TableKeys {
        cascades_to: vec![TableId(2)],
        cascading_columns: vec![1, 2],
        has_relations: true,
        ..TableKeys::default()
    })
}

/// Returns the same table with other references to it.
fn coded_layout(references: TableKeys) -> TableLayout {
    let learnt = weights(&[('d', b"D"), ('D', b"D"), ('e', b"E"), ('E', b"E"), ('x', b"X")]);
    let collation = Arc::new(Collation::new("utf8mb4", false, learnt, vec![255]));
    let code = KeyPart { column: 1, class: KeyClass::String { collation, prefix: None } };
    let id = KeyPart { column: 0, class: KeyClass::Integer };
    let keys = TableKeys {
        columns: 3,
        unique: vec![UniqueKey { parts: vec![id] }, UniqueKey { parts: vec![code] }],
        foreign_key_rank: Some(0),
        ..references
    };
    // INT, VARCHAR(9) of utf8mb4_0900_ai_ci, INT: name, types, metadata, nullable, charsets.
    let mut body = vec![7, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, 1, b'p', 0, 3, 3, 15, 3];
    body.extend([2, 36, 0, 0b110, 1, 1, 0, 3, 3, 0xfc, 255, 0]);
    let map = TableMap::parse(&body).expect("well-formed");
    TableLayout::new(TableId(1), Some(Arc::new(keys)), &map, &body).expect("well-formed")
}

/// A row of it, with the key 1.
fn coded_image(code: Option<&str>, other: Option<i32>) -> Vec<u8> {
    let nulls = u8::from(code.is_none()) << 1 | u8::from(other.is_none()) << 2;
    let mut image = vec![nulls, 1, 0, 0, 0];
    if let Some(code) = code {
        image.push(code.len() as u8);
        image.extend_from_slice(code.as_bytes());
    }
    image.extend(other.iter().flat_map(|other| other.to_le_bytes()));
    image
}

#[test]
fn an_equal_key_of_other_bytes_is_another_key_to_rows_that_refer_to_it() {
    use KeyRole::{Added, Kept, Removed};
    for (has_relations, after, expected) in [
        (true, "de", vec![Kept, Kept]),
        (true, "DE", vec![Kept, Removed, Added]),
        (false, "DE", vec![Kept, Kept]),
    ] {
        let images = [coded_image(Some("de"), None), coded_image(Some(after), None)].concat();
        let event = rows_event(EventType::UPDATE_ROWS, 7, 3, &images);
        let parsed = RowsEvent::parse(event.event_type(), event.body()).expect("rows");
        let (mut keys, mut tables) = (Vec::new(), Vec::new());
        let layout = coded_layout(TableKeys { has_relations, ..TableKeys::default() });
        let ends = layout.read_row(
            &parsed.expect("plain"),
            &images,
            &mut Scratch::default(),
            &mut keys,
            &mut tables,
        );
        assert!(ends.expect("whole").keyed);
        assert_eq!(tables, [TableUse::Rows(TableId(1))]);
        let roles: Vec<_> = keys.iter().map(|key| key.role()).collect();
        assert_eq!(roles, expected, "{has_relations} {after}");
        assert!(keys[1..].iter().all(|key| key.key() == keys[1].key()));
    }
}

#[test]
fn any_change_of_bytes_that_others_refer_to_moves_the_row_they_cascade_from() {
    let image = coded_image;
    let (rows, whole) = (TableUse::Rows(TableId(1)), TableUse::Whole(TableId(2)));
    let (de, same) = (Some("de"), Some(1));
    for (before, after, moves) in [
        ((de, same), (de, same), false),
        ((de, same), (Some("DE"), same), true),
        ((de, same), (Some("x"), same), true),
        ((de, same), (de, Some(2)), true),
        ((de, same), (de, None), true),
        ((None, None), (None, None), false),
        ((None, same), (de, same), true),
    ] {
        let images = [image(before.0, before.1), image(after.0, after.1)].concat();
        let event = rows_event(EventType::UPDATE_ROWS, 7, 3, &images);
        let parsed = RowsEvent::parse(event.event_type(), event.body()).expect("rows");
        let parsed = parsed.expect("plain");
        let (mut keys, mut tables) = (Vec::new(), Vec::new());
        let ends = cascading_layout()
            .read_row(&parsed, parsed.images, &mut Scratch::default(), &mut keys, &mut tables)
            .expect("whole");
        let expected = if moves { vec![whole, rows] } else { vec![rows] };
        assert_eq!((tables, ends.keyed), (expected, !moves), "{before:?} -> {after:?}");
    }
    // MINIMAL: the column is in the second image only.
    let images = [int_image(&[Some(1)]), int_image(&[Some(5)])].concat();
    let event = partial(EventType::UPDATE_ROWS, &[0b001, 0b100], &images);
    let parsed = RowsEvent::parse(event.event_type(), event.body()).expect("rows").expect("plain");
    let (mut keys, mut tables) = (Vec::new(), Vec::new());
    let mut scratch = Scratch::default();
    let read =
        cascading_layout().read_row(&parsed, parsed.images, &mut scratch, &mut keys, &mut tables);
    assert!(!read.expect("whole").keyed);
    assert_eq!(tables, [whole, rows]);
}

#[test]
fn a_cascade_counts_as_all_rows_that_the_rows_it_reaches_may_refer_to() {
    let (this, child, other) = (TableId(1), TableId(2), TableId(3));
    let layout = coded_layout(TableKeys {
        cascades_to: vec![child],
        other_parents: vec![this, other],
        cascading_columns: vec![1],
        has_relations: true,
        ..TableKeys::default()
    });
    let image = |code| coded_image(Some(code), Some(1));
    let whole = [child, this, other].map(TableUse::Whole);
    let without_this = [child, other].map(TableUse::Whole);
    let (update, delete) = (EventType::UPDATE_ROWS, EventType::DELETE_ROWS);
    for (kind, images, expected) in [
        (update, [image("de"), image("x")].concat(), &whole[..]),
        (update, [image("de"), image("de")].concat(), &[][..]),
        (delete, image("de"), &without_this[..]),
        (EventType::WRITE_ROWS, image("de"), &[][..]),
    ] {
        let event = rows_event(kind, 7, 3, &images);
        let parsed = RowsEvent::parse(event.event_type(), event.body()).expect("rows");
        let parsed = parsed.expect("plain");
        let (mut keys, mut tables) = (Vec::new(), Vec::new());
        layout
            .read_row(&parsed, parsed.images, &mut Scratch::default(), &mut keys, &mut tables)
            .expect("whole");
        assert_eq!(tables, [expected, &[TableUse::Rows(this)]].concat(), "{kind:?} {images:?}");
    }
}
