//! Random updates of a table without a key, applied by a model of the server's hash scan.

use std::collections::{BTreeSet, HashMap};

use csa_provider::binlog::{EventType, TableMap};
use csa_provider::test_util::event;
use proptest::prelude::*;

use super::*;

/// `t (a INT, b TEXT)`.
type Row = (u8, &'static str);

const TEXTS: [&str; 3] = ["x", "y", "long"];

/// The body of its table map.
fn table_map() -> Vec<u8> {
    let mut body = vec![7, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, 1, b't', 0];
    // INT and BLOB with two bytes of length.
    body.extend([2, 3, 252, 1, 2, 0b11]);
    body
}

fn image((a, b): Row) -> Vec<u8> {
    let length = u16::try_from(b.len()).unwrap().to_le_bytes();
    [&[0, a, 0, 0, 0], length.as_slice(), b.as_bytes()].concat()
}

/// An event of updates whose images have these columns.
fn event_of(columns: [u8; 2], images: &[u8]) -> RawEvent {
    let head = [7, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2];
    event(EventType::UPDATE_ROWS, &[&head, columns.as_slice(), images].concat())
}

fn update_event(updates: &[(Row, Row)]) -> RawEvent {
    let images = updates.iter().map(|(before, after)| [image(*before), image(*after)].concat());
    event_of([0b11, 0b11], &images.collect::<Vec<_>>().concat())
}

fn parts(event: &RawEvent, has_index: bool) -> Vec<RawEvent> {
    let map = table_map();
    let divided = divided(event, &TableMap::parse(&map).unwrap(), has_index).unwrap();
    let Some(parts) = divided else { return vec![event.clone()] };
    let mut before = 0;
    for part in &parts {
        assert_eq!(part.rows_before, before);
        before += read(&part.event).len();
    }
    parts.into_iter().map(|part| part.event).collect()
}

/// The updates in an event.
fn read(event: &RawEvent) -> Vec<(Row, Row)> {
    let map = table_map();
    let columns = TableMap::parse(&map).unwrap().columns().unwrap();
    let rows = RowsEvent::parse_any(event.event_type(), event.body()).unwrap().unwrap();
    let row = |fields: &[Field<'_>]| -> Row {
        let [Field::Bytes(a), Field::Bytes(b)] = fields else { panic!("{fields:?}") };
        let text = TEXTS.into_iter().find(|text| text.as_bytes() == *b).unwrap();
        (a[0], text)
    };
    updates(&columns, &rows).unwrap().iter().map(|u| (row(&u.before), row(&u.after))).collect()
}

/// The updates that are left, by the row before.
type RowHash = HashMap<Row, Vec<Row>>;

/// Updates as a server makes them that has to find the rows by a hash, in a table with or without a key of `a`.
fn hash_scan(
    table: &mut [Row],
    updates: &[(Row, Row)],
    has_index: bool,
) -> Result<(), &'static str> {
    let mut hash = RowHash::new();
    for (before, after) in updates {
        hash.entry(*before).or_default().push(*after);
    }
    let keys: BTreeSet<u8> = updates.iter().map(|(before, _)| before.0).collect();
    if !has_index {
        table.iter_mut().for_each(|stored| update_stored(stored, &mut hash));
    }
    for key in keys.into_iter().filter(|_| has_index) {
        let mut rows = table.iter_mut().filter(|stored| stored.0 == key).peekable();
        if rows.peek().is_none() && !is_done(&hash) {
            return Err("1032");
        }
        rows.for_each(|stored| update_stored(stored, &mut hash));
    }
    if is_done(&hash) { Ok(()) } else { Err("1032") }
}

fn is_done(hash: &RowHash) -> bool {
    hash.values().all(Vec::is_empty)
}

/// Updates a row that was found, for as long as the hash has what it becomes.
fn update_stored(stored: &mut Row, hash: &mut RowHash) {
    let (mut seen, mut is_again) = (*stored, false);
    while let Some(after) = hash.get_mut(&seen).and_then(Vec::pop) {
        stored.0 = after.0;
        // The old text lies where the new one is, so the engine compares the new one with itself.
        if !is_again || seen.1.len() != after.1.len() {
            stored.1 = after.1;
        }
        (seen, is_again) = (after, true);
    }
}

/// The updates one after the other, each of the first row that is equal.
fn one_by_one(table: &mut [Row], updates: &[(Row, Row)]) {
    for (before, after) in updates {
        *table.iter_mut().find(|row| *row == before).unwrap() = *after;
    }
}

/// Some rows, and updates of them: number of the row, and what it becomes.
fn any_updates() -> impl Strategy<Value = (Vec<Row>, Vec<(Row, Row)>)> {
    // Mostly the same, so that rows also become again what they were without a new text.
    let text = || prop_oneof![6 => Just(TEXTS[0]), 1 => prop::sample::select(&TEXTS)];
    let row = || (0..4_u8, text());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), row()), 1..8);
    (prop::collection::vec(row(), 1..5), changes).prop_map(|(table, changes)| {
        let mut now = table.clone();
        let updates = changes.into_iter().map(|(row, after)| {
            let before = std::mem::replace(row.get_mut(&mut now), after);
            (before, after)
        });
        // The server logs no update that changes nothing.
        let updates = updates.filter(|(before, after)| before != after).collect();
        (table, updates)
    })
}

proptest! {
    #[test]
    fn all_updates_arrive((table, updates) in any_updates()) {
        let mut wanted = table.clone();
        one_by_one(&mut wanted, &updates);
        wanted.sort_unstable();
        // The last has no index, but that is not known.
        for (may_have_index, has_index) in [(true, true), (false, false), (true, false)] {
            let mut target = table.clone();
            let parts = parts(&update_event(&updates), may_have_index);
            prop_assert_eq!(&parts.iter().flat_map(read).collect::<Vec<_>>(), &updates);
            for part in &parts {
                prop_assert_eq!(hash_scan(&mut target, &read(part), has_index), Ok(()));
            }
            target.sort_unstable();
            prop_assert_eq!(&target, &wanted);
        }
    }
}

#[test]
fn only_what_goes_wrong_is_divided() {
    let cases = [
        // Another row, a text of the same row, and a row that becomes another.
        (vec![((1, "x"), (1, "y")), ((2, "x"), (2, "y"))], vec![2], vec![2]),
        (vec![((1, "x"), (2, "x")), ((2, "x"), (2, "y"))], vec![1, 1], vec![1, 1]),
        (vec![((2, "x"), (2, "y")), ((1, "x"), (2, "x"))], vec![1, 1], vec![1, 1]),
        // All rows of a table without large values: without an index each event costs a scan of the table.
        (
            vec![((1, "x"), (2, "x")), ((2, "x"), (3, "x")), ((3, "x"), (4, "x"))],
            vec![3],
            vec![1, 1, 1],
        ),
        (
            vec![((1, "x"), (2, "x")), ((2, "x"), (1, "x")), ((1, "x"), (4, "x"))],
            vec![1, 2],
            vec![1, 1, 1],
        ),
        (
            vec![((3, "x"), (4, "x")), ((1, "x"), (2, "x")), ((2, "x"), (3, "x"))],
            vec![3],
            vec![2, 1],
        ),
        (vec![((3, "x"), (4, "x")), ((2, "x"), (3, "x"))], vec![2], vec![2]),
        (vec![((1, "x"), (1, "y"))], vec![1], vec![1]),
    ];
    for (updates, scanned, indexed) in cases {
        for (has_index, wanted) in [(false, scanned), (true, indexed)] {
            let parts = parts(&update_event(&updates), has_index);
            let lengths: Vec<usize> = parts.iter().map(|part| read(part).len()).collect();
            assert_eq!(lengths, wanted, "{updates:?} {has_index}");
        }
    }
}

#[test]
fn the_model_loses_what_the_server_loses() {
    let mut table = [(1, "x")];
    let updates = [((1, "x"), (2, "x")), ((2, "x"), (2, "y"))];
    assert_eq!((hash_scan(&mut table, &updates, false), table), (Ok(()), [(2, "x")]));
    let mut table = [(1, "x")];
    let updates = [((1, "x"), (2, "x")), ((2, "x"), (1, "x")), ((1, "x"), (3, "x"))];
    assert_eq!(hash_scan(&mut table, &updates, false), Err("1032"));
    // By an index it looks for 3 first, and for 5 after that row has become another.
    let moves = [
        vec![((5, "x"), (3, "x")), ((3, "x"), (7, "x"))],
        vec![((3, "x"), (5, "x")), ((5, "x"), (7, "x")), ((8, "x"), (9, "x"))],
    ];
    for updates in moves {
        for (has_index, expected) in [(false, Ok(())), (true, Err("1032"))] {
            let mut table = [updates[0].0, (8, "x")];
            assert_eq!(hash_scan(&mut table, &updates, has_index), expected, "{updates:?}");
        }
    }
}

#[test]
fn the_last_part_alone_ends_the_statement() {
    let updates = [((1, "x"), (2, "x")), ((2, "x"), (2, "y")), ((2, "y"), (3, "x"))];
    let mut event = update_event(&updates);
    for ends in [false, true] {
        let mut body = event.body().to_vec();
        body[TableMap::ID_LEN] = RowsEvent::NO_FOREIGN_KEY_CHECKS as u8 | u8::from(ends);
        event = event.with_body(&body);
        let flags = parts(&event, false)
            .iter()
            .map(|part| part.body()[TableMap::ID_LEN])
            .collect::<Vec<_>>();
        assert_eq!(flags, [2, 2, 2 | u8::from(ends)]);
    }
}

/// `binlog_row_image=MINIMAL`: the row after has the changed columns only.
#[test]
fn columns_that_an_image_lacks_have_their_old_values() {
    let after = |a: u8| [0, a, 0, 0, 0];
    let rows = [
        [image((1, "x")), after(2).to_vec()].concat(),
        [image((2, "x")), after(1).to_vec()].concat(),
        [image((1, "x")), after(3).to_vec()].concat(),
    ];
    let parts = parts(&event_of([0b11, 0b01], &rows.concat()), false);
    assert_eq!(parts.len(), 2);
}

#[test]
fn malformed_events_are_no_reason_to_stop_here() {
    let whole = update_event(&[((1, "x"), (2, "x")), ((2, "x"), (2, "y"))]);
    let map = table_map();
    let map = TableMap::parse(&map).unwrap();
    for length in 0..whole.body().len() {
        let _ = divided(&whole.with_body(&whole.body()[..length]), &map, true);
    }
    // No columns at all, which would be rows without end.
    assert!(divided(&event_of([0, 0], &[0; 4]), &map, true).unwrap().is_none());
}
