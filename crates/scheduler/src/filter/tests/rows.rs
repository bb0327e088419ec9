//! The row events of a transaction as the filters leave them.

use csa_provider::binlog::{EventType, Gtid, RawEvent, RowsEvent, TableMap, Tag, Uuid};
use csa_provider::test_util::{event, int_image, int_table_map, query_event, rows_event};
use proptest::prelude::*;

use super::*;

/// Rows of table `table`: 0 and 1 are kept, 2 and 3 are not.
fn rows(table: u64, value: i32, ends: bool) -> RawEvent {
    let whole = rows_event(EventType::WRITE_ROWS, table, 1, &int_image(&[Some(value)]));
    let mut body = whole.body().to_vec();
    body[6] = u8::from(ends);
    event(EventType::WRITE_ROWS, &body)
}

fn map(table: u64) -> RawEvent {
    int_table_map(table, ["kept", "old", "left", "csa"][table as usize], "checkpoint", 1)
}

fn kept(events: &[RawEvent]) -> Vec<RawEvent> {
    let gtid = Gtid { uuid: Uuid::nil(), tag: Tag::untagged(), gno: 1 };
    let filters = filters(&["rewrite_db=old>renamed", "ignore_db=left"]);
    let events = events.iter().cloned().map(Ok);
    KeptEvents::new(gtid, filters.into(), events).map(|event| event.expect("readable")).collect()
}

/// Schemas of table maps; first value and statement end of rows; types of others.
fn describe(events: &[RawEvent]) -> Vec<String> {
    let text = |event: &RawEvent| match event.event_type() {
        EventType::TABLE_MAP => {
            let map = TableMap::parse(event.body()).expect("well-formed");
            String::from_utf8_lossy(map.schema).into_owned()
        }
        EventType::WRITE_ROWS => {
            let rows = RowsEvent::parse(event.event_type(), event.body());
            let rows = rows.expect("well-formed").expect("plain");
            let ends = if rows.flags & RowsEvent::STATEMENT_END != 0 { "." } else { "" };
            format!("{}{ends}", rows.images[1])
        }
        other => other.name().to_owned(),
    };
    events.iter().map(text).collect()
}

#[test]
fn what_is_left_of_a_statement_ends_it() {
    let begin = query_event("", "BEGIN");
    let events = [
        begin.clone(),
        // Kept and renamed, and the statement ends in a table that is left out.
        map(0),
        map(1),
        map(2),
        rows(0, 10, false),
        rows(1, 11, false),
        rows(2, 12, true),
        // Nothing is kept, though a table is.
        map(0),
        map(3),
        rows(3, 20, true),
        map(1),
        rows(1, 30, true),
    ];
    assert_eq!(
        describe(&kept(&events)),
        ["Query", "kept", "renamed", "10", "11.", "renamed", "30."]
    );
    assert_eq!(describe(&kept(&[map(0), rows(0, 1, true)])), ["kept", "1."]);
}

/// Of a transaction that is still being received: the rest of a statement comes later, and ends it.
#[test]
fn a_first_end_of_the_events_ends_no_statement() {
    let gtid = Gtid { uuid: Uuid::nil(), tag: Tag::untagged(), gno: 1 };
    let filters = filters(&["ignore_db=left"]);
    let parts = [
        vec![map(0), map(2), rows(0, 10, false)],
        vec![rows(2, 11, true)],
        vec![event(EventType::XID, &[0; 8])],
    ];
    let mut parts = parts.into_iter();
    let mut there = Vec::new().into_iter();
    let come = std::cell::RefCell::new(Vec::new());
    let events = std::iter::from_fn(|| {
        there = match there.len() {
            0 => std::mem::take(&mut *come.borrow_mut()).into_iter(),
            _ => std::mem::take(&mut there),
        };
        there.next().map(Ok)
    });
    let mut kept = KeptEvents::new(gtid, filters.into(), events).continuing(true);
    for expected in [vec!["kept"], vec!["10."], vec!["Xid"]] {
        *come.borrow_mut() = parts.next().expect("a part");
        let found: Vec<_> = kept.by_ref().map(|event| event.expect("readable")).collect();
        assert_eq!(describe(&found), expected);
    }
}

/// A schema for each customer, and a transaction that writes to all of them.
#[test]
fn tables_of_a_transaction_may_be_many() {
    const TABLES: u64 = 10_000;
    let map = |table| int_table_map(table, "kept", &table.to_string(), 1);
    let statements = (0..10 * TABLES).map(|number| number % TABLES);
    let events: Vec<_> = statements.flat_map(|table| [map(table), rows(table, 1, true)]).collect();
    let begun = std::time::Instant::now();
    assert_eq!(kept(&events).len(), events.len());
    let taken = begun.elapsed();
    assert!(taken < std::time::Duration::from_secs(5), "{taken:?}");
}

proptest! {
    /// Kept rows come out whole, once, in order, after a map of their table, and each statement
    /// with kept rows ends once.
    #[test]
    fn keeping_events_loses_nothing(
        statements in prop::collection::vec(prop::collection::vec(0_u64..4, 1..6), 1..8),
    ) {
        let mut events = Vec::new();
        let mut expected = Vec::new();
        let mut number = 0;
        for statement in &statements {
            events.extend((0..4).map(map));
            let mut values = Vec::new();
            for (index, &table) in statement.iter().enumerate() {
                number += 1;
                events.push(rows(table, number, index + 1 == statement.len()));
                if table < 2 {
                    values.push(number.to_string());
                }
            }
            if let Some(last) = values.last_mut() {
                last.push('.');
            }
            expected.extend(values);
        }
        let kept = kept(&events);
        let found = kept.iter().filter(|event| event.event_type().is_rows()).cloned();
        prop_assert_eq!(describe(&found.collect::<Vec<_>>()), expected);
        let mut mapped = Vec::new();
        for event in &kept {
            let id = event.body()[0];
            if event.event_type() == EventType::TABLE_MAP {
                mapped.push(id);
            } else {
                prop_assert!(mapped.contains(&id));
                if event.body()[6] == 1 {
                    mapped.clear();
                }
            }
        }
        prop_assert!(mapped.is_empty(), "maps without rows are left: {:?}", mapped);
    }
}
