use csa_provider::binlog::{ChecksumAlgorithm, Tag, Uuid};
use csa_provider::test_util::{event, int_table_map, query_event, xa_prepare_event};
use proptest::prelude::*;

use super::*;

fn gtid() -> Gtid {
    Gtid { uuid: Uuid::from_bytes([1; 16]), tag: Tag::untagged(), gno: 1 }
}

fn table_map(table: u8) -> RawEvent {
    event(EventType::TABLE_MAP, &[table; 20])
}

/// A rows event of `len` body bytes; its flags follow a table id of six bytes.
fn rows(table: u8, len: usize, ends: bool) -> RawEvent {
    let mut body = vec![table; 8 + len];
    body[6..8].copy_from_slice(&u16::from(ends).to_le_bytes());
    event(EventType::WRITE_ROWS, &body)
}

fn cut(events: &[RawEvent], limit: usize) -> Vec<Step> {
    let mut cutter = RowImageCutter::new(limit, Framing::Group);
    let mut steps = Vec::new();
    for event in events {
        cutter.push(&gtid(), event, &mut steps).expect("known");
    }
    cutter.finish(&mut steps);
    steps
}

/// Returns the events of a step, as (type, first body byte, body length, statement end).
fn contents(step: &Step) -> Vec<(EventType, u8, usize, bool)> {
    let Step::RowImages(RowImages { events: mut bytes, .. }) = step.clone() else {
        panic!("a statement")
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let header = EventHeader::parse(&bytes).expect("whole");
        let rest = bytes.split_off(header.event_size as usize);
        let event = RawEvent::trusted(bytes.into(), ChecksumAlgorithm::Off).expect("whole");
        let ends = event.event_type().is_rows() && event.body()[6] & STATEMENT_END != 0;
        found.push((event.event_type(), event.body()[0], event.body().len(), ends));
        bytes = rest;
    }
    found
}

#[test]
fn everything_that_fits_goes_in_one_step_without_checksums() {
    let events = [
        query_event("", "BEGIN"),
        table_map(1),
        rows(1, 10, true),
        table_map(2),
        rows(2, 10, false),
        rows(2, 20, true),
        event(EventType::XID, &[0; 8]),
    ];
    let steps = cut(&events, 10_000);
    assert_eq!(steps.len(), 1);
    assert_eq!(
        contents(&steps[0]),
        [
            (EventType::TABLE_MAP, 1, 20, false),
            (EventType::WRITE_ROWS, 1, 18, true),
            (EventType::TABLE_MAP, 2, 20, false),
            (EventType::WRITE_ROWS, 2, 18, false),
            (EventType::WRITE_ROWS, 2, 28, true),
        ]
    );
}

#[test]
fn a_statement_that_is_cut_ends_in_each_part_and_repeats_its_maps() {
    let events = [table_map(1), table_map(2), rows(1, 100, false), rows(2, 100, true)];
    let steps = cut(&events, 250);
    assert_eq!(steps.len(), 2);
    let maps = [(EventType::TABLE_MAP, 1, 20, false), (EventType::TABLE_MAP, 2, 20, false)];
    assert_eq!(contents(&steps[0])[..2], maps);
    assert_eq!(contents(&steps[0])[2..], [(EventType::WRITE_ROWS, 1, 108, true)]);
    assert_eq!(contents(&steps[1])[..2], maps);
    assert_eq!(contents(&steps[1])[2..], [(EventType::WRITE_ROWS, 2, 108, true)]);
}

#[test]
fn checkpoints_of_another_daemon_are_left_out() {
    // All bytes of a table id count.
    let own = int_table_map(u64::from_le_bytes([9, 9, 9, 9, 9, 9, 0, 0]), "csa", "checkpoint", 7);
    let alone = [own.clone(), rows(9, 10, true), table_map(1), rows(1, 10, true)];
    let kept = [(EventType::TABLE_MAP, 1, 20, false), (EventType::WRITE_ROWS, 1, 18, true)];
    let steps = cut(&alone, 10_000);
    assert_eq!(steps.len(), 1);
    assert_eq!(contents(&steps[0]), kept);
    // A statement that they end must still end, and a later table may have the same id.
    let together = [table_map(1), own, rows(1, 10, false), rows(9, 10, true)];
    assert_eq!(contents(&cut(&together, 10_000)[0]), kept);
    let later = [together.as_slice(), &[table_map(9), rows(9, 5, true)]].concat();
    let steps = cut(&later, 10_000);
    assert_eq!(
        contents(&steps[0])[2..],
        [(EventType::TABLE_MAP, 9, 20, false), (EventType::WRITE_ROWS, 9, 13, true),]
    );
}

#[test]
fn savepoints_keep_their_place_and_strangers_are_refused() {
    let events = [
        table_map(1),
        rows(1, 5, true),
        query_event("", "SAVEPOINT \"a\"\"\"\"b`c\""),
        table_map(1),
        rows(1, 6, true),
    ];
    let steps = cut(&events, 10_000);
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[1], Step::Statement(b"SAVEPOINT `a\"\"b``c`".to_vec()));
    for statement in ["SAVEPOINT `a\"b`", "RELEASE SAVEPOINT plain", "ROLLBACK TO `a`"] {
        let steps = cut(&[query_event("", statement)], 100);
        assert_eq!(steps, [Step::Statement(statement.as_bytes().to_vec())]);
    }
    for more in ["SAVEPOINT `a`;DROP TABLE t", "SAVEPOINT $a$;DROP TABLE $a$", "SAVEPOINT `a"] {
        let mut cutter = RowImageCutter::new(100, Framing::Group);
        let error = cutter.push(&gtid(), &query_event("", more), &mut Vec::new());
        assert!(error.is_err_and(|error| error.to_string().contains("savepoint")), "{more}");
    }
    let mut cutter = RowImageCutter::new(100, Framing::Group);
    let error = cutter.push(&gtid(), &event(EventType::INTVAR, &[0; 9]), &mut Vec::new());
    assert!(error.expect_err("refused").to_string().contains(&gtid().to_string()));
}

#[test]
fn a_transaction_of_its_own_keeps_its_beginning_and_end() {
    let branch = |one_phase| {
        [
            query_event("", "XA START X'61',X'',1"),
            table_map(1),
            rows(1, 5, true),
            query_event("", "XA END X'61',X'',1"),
            xa_prepare_event(one_phase, b"a", b""),
        ]
    };
    assert_eq!(cut(&branch(true), 10_000).len(), 1, "the group has its own BEGIN and COMMIT");
    let mut cutter = RowImageCutter::new(10_000, Framing::Own);
    let mut steps = Vec::new();
    for event in branch(false) {
        cutter.push(&gtid(), &event, &mut steps).expect("known");
    }
    cutter.finish(&mut steps);
    let texts: Vec<String> = steps
        .into_iter()
        .map(|step| match step {
            Step::Statement(text) => String::from_utf8(text).expect("text"),
            Step::RowImages(_) => "rows".to_owned(),
        })
        .collect();
    assert_eq!(
        texts,
        ["XA START X'61',X'',1", "rows", "XA END X'61',X'',1", "XA PREPARE X'61',X'',1"]
    );
}

proptest! {
    /// Whatever the limit: the rows come out whole, once, in order, each after its map, and every
    /// step ends its statement.
    #[test]
    fn cutting_loses_and_moves_nothing(
        statements in prop::collection::vec(prop::collection::vec((0_u8..3, 1_usize..80), 1..6), 1..8),
        limit in 50_usize..600,
    ) {
        let mut events = Vec::new();
        let mut expected = Vec::new();
        for statement in &statements {
            events.extend((0..3).map(table_map));
            for (index, (table, len)) in statement.iter().enumerate() {
                events.push(rows(*table, *len, index + 1 == statement.len()));
                expected.push((*table, len + 8));
            }
        }
        let mut found = Vec::new();
        for step in cut(&events, limit) {
            let contents = contents(&step);
            prop_assert!(contents.last().is_some_and(|last| last.3), "{:?}", contents);
            let mut mapped = Vec::new();
            for (event_type, table, len, _) in contents {
                if event_type == EventType::TABLE_MAP {
                    mapped.push(table);
                } else {
                    prop_assert!(mapped.contains(&table));
                    found.push((table, len));
                }
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn rows_that_the_source_rolled_back_are_refused() {
    for framing in [Framing::Group, Framing::Own] {
        let mut cutter = RowImageCutter::new(10_000, framing);
        let mut push = |event: RawEvent| cutter.push(&gtid(), &event, &mut Vec::new());
        // An empty transaction between two others.
        for event in [
            query_event("", "BEGIN"),
            table_map(1),
            rows(1, 10, true),
            event(EventType::XID, &[0; 8]),
            query_event("", "BEGIN"),
            query_event("", "ROLLBACK"),
            query_event("", "BEGIN"),
            table_map(1),
            rows(1, 10, true),
        ] {
            push(event).expect("known");
        }
        let refused = push(query_event("", "ROLLBACK")).expect_err("its rows are no change");
        assert!(refused.to_string().contains("ROLLBACK"), "{refused}");
    }
}

#[test]
fn a_change_in_statement_format_is_never_sent() {
    for framing in [Framing::Group, Framing::Own] {
        let mut cutter = RowImageCutter::new(10_000, framing);
        let change = query_event("", "UPDATE t SET a=1");
        let refused = cutter.push(&gtid(), &change, &mut Vec::new()).expect_err("no rows");
        assert!(refused.to_string().contains("Dml"), "{refused}");
    }
}
