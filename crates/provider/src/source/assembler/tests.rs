use super::*;
use crate::binlog::gtid::{Tag, Uuid};
use crate::test_util::{event, gtid_event, query_event};

fn begin(assembler: &mut TransactionAssembler, gno: u64) -> Gtid {
    let gtid = Gtid { uuid: Uuid::from_bytes([9; 16]), tag: Tag::untagged(), gno };
    let placed = assembler.place(&gtid_event(&gtid, 1)).unwrap();
    assert!(matches!(placed, Placement::Begin(header) if header.gtid == gtid));
    gtid
}

fn place(assembler: &mut TransactionAssembler, event_type: EventType) -> Placement {
    assembler.place(&event(event_type, &[0; 20])).unwrap()
}

fn query(assembler: &mut TransactionAssembler, text: &str) -> Result<Placement, StreamError> {
    assembler.place(&query_event("db", text))
}

#[test]
fn row_transaction_ends_at_its_xid() {
    let mut assembler = TransactionAssembler::new();
    assert_eq!(place(&mut assembler, EventType::ROTATE), Placement::Outside);
    let gtid = begin(&mut assembler, 1);
    assert_eq!(query(&mut assembler, "BEGIN").unwrap(), Placement::Body);
    assert_eq!(place(&mut assembler, EventType::TABLE_MAP), Placement::Body);
    assert_eq!(assembler.in_transaction(), Some(&gtid));
    assert_eq!(place(&mut assembler, EventType::WRITE_ROWS), Placement::Body);
    assert_eq!(query(&mut assembler, "SAVEPOINT `a`").unwrap(), Placement::Body);
    assert_eq!(place(&mut assembler, EventType::XID), Placement::End);
    assert_eq!(assembler.in_transaction(), None);
}

#[test]
fn each_way_to_end() {
    for (texts, end) in [
        (vec!["CREATE TABLE t (a INT)"], None),
        (vec!["BEGIN", "COMMIT"], None),
        (vec!["BEGIN", "CREATE TABLE t (a INT) START TRANSACTION"], Some(EventType::XID)),
        (vec!["XA START X'61',X'',1", "XA END X'61',X'',1"], Some(EventType::XA_PREPARE)),
        (vec!["XA COMMIT X'61',X'',1"], None),
        (vec![], Some(EventType::TRANSACTION_PAYLOAD)),
    ] {
        let mut assembler = TransactionAssembler::new();
        begin(&mut assembler, 1);
        let last = texts.iter().map(|text| query(&mut assembler, text).unwrap()).last();
        let last = end.map_or(last, |event_type| Some(place(&mut assembler, event_type)));
        assert_eq!(last, Some(Placement::End), "{texts:?}");
    }
}

/// Sources before 8.0.22 log it for a MEMORY table after a restart.
#[test]
fn a_table_may_be_emptied_by_a_statement_with_nothing_beside_it() {
    const EMPTYING: &str = "DELETE FROM `d`.`t`";
    let begun = || {
        let mut assembler = TransactionAssembler::new();
        begin(&mut assembler, 1);
        query(&mut assembler, "BEGIN").unwrap();
        assembler
    };
    let refused = |outcome: Result<Placement, StreamError>| {
        assert!(matches!(outcome, Err(StreamError::StatementFormat { .. })), "{outcome:?}");
    };
    let mut alone = begun();
    assert_eq!(query(&mut alone, EMPTYING).unwrap(), Placement::Body);
    assert_eq!(query(&mut alone, "COMMIT").unwrap(), Placement::End);
    for text in [EMPTYING, "SAVEPOINT `a`", "ROLLBACK", "DELETE FROM `d`.`t` WHERE a=1"] {
        let mut more = begun();
        query(&mut more, EMPTYING).unwrap();
        refused(query(&mut more, text));
    }
    for event_type in [EventType::TABLE_MAP, EventType::WRITE_ROWS, EventType::XID] {
        let mut more = begun();
        query(&mut more, EMPTYING).unwrap();
        refused(more.place(&event(event_type, &[0; 20])));
    }
    let mut late = begun();
    place(&mut late, EventType::TABLE_MAP);
    refused(query(&mut late, EMPTYING));
    let mut distributed = TransactionAssembler::new();
    begin(&mut distributed, 1);
    query(&mut distributed, "XA START X'61',X'',1").unwrap();
    refused(query(&mut distributed, EMPTYING));
    let mut without_begin = TransactionAssembler::new();
    begin(&mut without_begin, 1);
    refused(query(&mut without_begin, EMPTYING));
}

#[test]
fn what_cannot_be_replicated_is_refused_by_name() {
    let mut assembler = TransactionAssembler::new();
    begin(&mut assembler, 5);
    let error = query(&mut assembler, "insert into t values (1)").unwrap_err().to_string();
    assert!(error.contains("09090909-0909-0909-0909-090909090909:5"), "{error}");
    assert!(error.contains("binlog_format=ROW"), "{error}");
    for (event_type, words) in [
        (EventType::INTVAR, "statement-format"),
        (EventType::INCIDENT, "incident"),
        (EventType(99), "event type 99"),
        (EventType::ANONYMOUS_GTID, "anonymous"),
    ] {
        let error = assembler.place(&event(event_type, &[0; 20])).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("090909:5"), "{error}");
    }
}

/// A rule may leave its table out, which reception does not know.
#[test]
fn a_change_in_statement_format_has_its_place() {
    let mut assembler = TransactionAssembler::new();
    begin(&mut assembler, 1);
    query(&mut assembler, "BEGIN").unwrap();
    for event_type in [EventType::INTVAR, EventType::RAND, EventType::USER_VAR] {
        assert_eq!(place(&mut assembler, event_type), Placement::Body);
    }
    assert_eq!(query(&mut assembler, "insert into t values (1)").unwrap(), Placement::Body);
    let load = assembler.place(&event(EventType::BEGIN_LOAD_QUERY, &[0; 20]));
    assert!(matches!(load, Err(StreamError::StatementFormat { .. })), "{load:?}");
    assert_eq!(query(&mut assembler, "COMMIT").unwrap(), Placement::End);
}

/// Nobody judges it after the reception of an archive.
#[test]
fn an_archive_admits_changes_in_statement_format_of_some_tables_only() {
    fn admits(query: &QueryEvent<'_>) -> bool {
        query.statement.ends_with(b" s VALUES (1)")
    }
    for (text, is_admitted) in
        [("insert into s VALUES (1)", true), ("delete from t where a=1", false)]
    {
        let mut assembler = TransactionAssembler::admitting(admits);
        begin(&mut assembler, 1);
        query(&mut assembler, "BEGIN").unwrap();
        assert_eq!(place(&mut assembler, EventType::INTVAR), Placement::Body);
        match query(&mut assembler, text) {
            Ok(placed) => assert!(is_admitted && placed == Placement::Body, "{text}"),
            Err(error) => assert!(!is_admitted && error.to_string().contains(":1: Query event")),
        }
    }
}

#[test]
fn what_is_left_out_is_not_judged() {
    let mut assembler = TransactionAssembler::new();
    begin(&mut assembler, 1);
    assembler.leave_out();
    assert_eq!(assembler.in_transaction(), None);
    let passed_over = |outcome: Result<Placement, StreamError>| {
        assert_eq!(outcome.unwrap(), Placement::PassedOver);
    };
    passed_over(query(&mut assembler, "BEGIN"));
    for event_type in [EventType::INTVAR, EventType::INCIDENT, EventType(99)] {
        passed_over(assembler.place(&event(event_type, &[0; 20])));
    }
    passed_over(query(&mut assembler, "insert into t values (1)"));
    passed_over(assembler.place(&event(EventType::XID, &[0; 8])));
    // It has ended.
    assert!(assembler.place(&event(EventType(99), &[0; 20])).is_err());
    begin(&mut assembler, 2);
    assert_eq!(place(&mut assembler, EventType::TRANSACTION_PAYLOAD), Placement::End);

    // An end that is not known as one: whatever can't be within a transaction counts again.
    begin(&mut assembler, 3);
    assembler.leave_out();
    passed_over(query(&mut assembler, "CREATE TABLE t SELECT 1"));
    let gtid = begin(&mut assembler, 4);
    assert_eq!(assembler.in_transaction(), Some(&gtid));
    assert!(query(&mut assembler, "CREATE TABLE t SELECT 1").is_err());
    assembler.leave_out();
    assert_eq!(place(&mut assembler, EventType::ROTATE), Placement::Outside);
    assert!(assembler.place(&event(EventType::ANONYMOUS_GTID, &[0; 20])).is_err());
}

#[test]
fn events_out_of_place_are_refused() {
    let mut assembler = TransactionAssembler::new();
    assert!(assembler.place(&event(EventType::XID, &[0; 8])).is_err());
    let gtid = begin(&mut assembler, 1);
    assert!(assembler.place(&gtid_event(&gtid, 1)).is_err());
    for event_type in [
        EventType::FORMAT_DESCRIPTION,
        EventType::ROTATE,
        EventType::STOP,
        EventType::PREVIOUS_GTIDS,
    ] {
        let outcome = assembler.place(&event(event_type, &[0; 20]));
        assert!(matches!(outcome, Err(StreamError::OutOfPlace { .. })), "{outcome:?}");
    }
    assert_eq!(place(&mut assembler, EventType::HEARTBEAT), Placement::Outside);
    assert_eq!(assembler.in_transaction(), Some(&gtid));
    assembler.reset();
    begin(&mut assembler, 1);
}
