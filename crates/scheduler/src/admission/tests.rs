use csa_provider::binlog::{EventHeader, EventType};
use csa_provider::test_util::{
    event, format_description, int_image, int_table_map, query_event, rows_event, with_flags,
};
use csa_relaystore::test_util::relayed_events;

use super::*;
use crate::filter::FilterRules;
use crate::key_source::KeySourceError;
use crate::keys::{TableId, TableKeys};

/// Two tables: `a`, and `my`, which is not transactional.
#[derive(Default)]
struct Definitions {
    is_doubted: bool,
    tables_read: u32,
}

impl KeySource for Definitions {
    async fn table(
        &mut self,
        _: &[u8],
        table: &[u8],
    ) -> std::result::Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        self.tables_read += 1;
        let not_transactional = table == b"my";
        let keys = TableKeys { columns: 1, not_transactional, ..TableKeys::default() };
        Ok((TableId(1 + u32::from(not_transactional)), Some(Arc::new(keys))))
    }

    async fn trigger_table(
        &mut self,
        _: &str,
        _: &str,
    ) -> std::result::Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    async fn has_not_transactional(&mut self) -> std::result::Result<bool, KeySourceError> {
        Ok(true)
    }

    fn is_doubted(&mut self) -> bool {
        std::mem::take(&mut self.is_doubted)
    }

    fn forget(&mut self) {}
}

/// Returns a row in each of the tables.
fn transaction(tables: &[&str]) -> RelayedTransaction {
    ending(tables, event(EventType::XID, &[0; 8]))
}

fn ending(tables: &[&str], end: RawEvent) -> RelayedTransaction {
    let mut events = vec![query_event("", "BEGIN")];
    for (id, table) in (70..).zip(tables) {
        events.push(int_table_map(id, "d", table, 1));
        events.push(rows_event(EventType::WRITE_ROWS, id, 1, &int_image(&[Some(1)])));
    }
    events.push(end);
    relayed_events(1, &Arc::new(format_description()), &events)
}

#[test]
fn a_table_that_is_not_transactional_counts_only_with_rows() {
    let events = [
        query_event("", "BEGIN"),
        int_table_map(70, "d", "my", 1),
        int_table_map(71, "d", "a", 1),
        rows_event(EventType::WRITE_ROWS, 71, 1, &int_image(&[Some(1)])),
        event(EventType::XID, &[0; 8]),
    ];
    for (whole, rows_limit) in [(true, u64::MAX), (false, u64::MAX), (true, 1)] {
        let mut admission = Admission::new(Definitions::default());
        admission.limit_rows(rows_limit);
        let transaction = relayed_events(1, &Arc::new(format_description()), &events);
        let admitted = admission.admit_now(transaction, None, whole).expect("known");
        assert_eq!(admitted.verdict, Verdict::Rows, "{whole} {rows_limit}");
    }
}

#[test]
fn a_table_that_is_not_transactional_counts_wherever_it_stands() {
    // The transaction is read as a whole, in pieces, and in pieces once its rows take too much.
    for (whole, rows_limit) in [(true, u64::MAX), (false, u64::MAX), (true, 1)] {
        let kind_of = |tables: &[&str]| {
            let mut admission = Admission::new(Definitions::default());
            admission.limit_rows(rows_limit);
            let admitted = admission.admit_now(transaction(tables), None, whole).expect("known");
            assert_eq!(admitted.changes.is_some(), tables == ["a", "a"] && rows_limit > 1 && whole);
            admitted.verdict
        };
        for tables in [["my", "a"], ["a", "my"], ["my", "my"]] {
            let kind = kind_of(&tables);
            assert_eq!(kind, Verdict::NotTransactional, "{tables:?} {whole} {rows_limit}");
        }
        assert_eq!(kind_of(&["a", "a"]), Verdict::Rows, "{whole} {rows_limit}");
    }
}

/// The source marks statements that used a temporary table, and in a routine those after it as well.
#[test]
fn changes_of_temporary_tables_do_not_reach_real_ones() {
    let admit = |admission: &mut Admission<_>, statement: &str, flags| {
        let events = [with_flags(&query_event("d", statement), flags)];
        let relayed = relayed_events(1, &Arc::new(format_description()), &events);
        admission.admit_now(relayed, None, true).expect("known").verdict
    };
    let mark = EventHeader::FLAG_THREAD_SPECIFIC;
    for (refused, statement) in [
        (true, "TRUNCATE TABLE a"),
        (true, "ALTER TABLE a ADD v INT"),
        (true, "CREATE UNIQUE INDEX i ON a (id)"),
        (true, "DROP INDEX i ON a"),
        (true, "CREATE TABLE b LIKE a"),
        (false, "CREATE VIEW v AS SELECT CONNECTION_ID()"),
    ] {
        let mut admission = Admission::new(Definitions::default());
        for flags in [0, mark] {
            let verdict = admit(&mut admission, statement, flags);
            assert_eq!(verdict, Verdict::Statement, "a source that logs rows: {statement}");
        }
        let made = admit(&mut admission, "CREATE TEMPORARY TABLE a (id INT)", mark);
        assert_eq!(made, Verdict::LeftOut(Omission::Nothing));
        assert_eq!(admit(&mut admission, statement, 0), Verdict::Statement, "{statement}");
        let marked = admit(&mut admission, statement, mark);
        assert_eq!(matches!(marked, Verdict::Refused(_)), refused, "{statement}: {marked:?}");
        assert_eq!(marked.refusal().is_some_and(|why| why.contains("temporary")), refused);
        let gone = admit(&mut admission, "DROP TEMPORARY TABLE IF EXISTS a", mark);
        assert_eq!(gone, Verdict::LeftOut(Omission::Nothing));
    }
}

#[test]
fn rows_that_the_source_rolled_back_are_refused() {
    for whole in [true, false] {
        let admit = |tables: &[&str], end: &str| {
            let transaction = ending(tables, query_event("", end));
            Admission::new(Definitions::default()).admit_now(transaction, None, whole)
        };
        let kind = |tables: &[&str], end: &str| admit(tables, end).map(|admitted| admitted.verdict);
        assert_eq!(kind(&[], "ROLLBACK").expect("nothing"), Verdict::LeftOut(Omission::Nothing));
        assert_eq!(kind(&["a"], "COMMIT").expect("a row"), Verdict::Rows);
        // One that is not looked at as a whole is refused where it is executed.
        if whole {
            let refused = admit(&["a"], "ROLLBACK").expect_err("its rows are no change");
            assert!(refused.to_string().contains("ROLLBACK"), "{refused}");
        }
    }
}

#[test]
fn definitions_in_doubt_are_read_again_and_set_a_transaction_apart() {
    let mut admission = Admission::new(Definitions::default());
    let is_apart = |admission: &mut Admission<_>, tables: &[&str]| {
        let admitted = admission.admit_now(transaction(tables), None, true).expect("known");
        admitted.changes.is_none()
    };
    assert!(!is_apart(&mut admission, &["a"]) && !is_apart(&mut admission, &["a"]));
    assert_eq!(admission.source.tables_read, 1);
    admission.source.is_doubted = true;
    assert!(!is_apart(&mut admission, &[]), "it changes nothing");
    assert!(is_apart(&mut admission, &["a"]), "keys before it had other numbers");
    assert!(!is_apart(&mut admission, &["a"]));
    assert_eq!(admission.source.tables_read, 2);
}

#[test]
fn a_change_in_statement_format_is_left_out_only_with_its_table() {
    const HEARTBEAT: &str = "INSERT INTO mysql.rds_heartbeat2 VALUES (1)";
    let admit = |ignored: &[&str], statement: &str, table: Option<&str>, whole: bool| {
        let mut events = vec![query_event("", "BEGIN"), event(EventType::INTVAR, &[0; 9])];
        events.push(query_event("", statement));
        if let Some(table) = table {
            events.push(int_table_map(70, "d", table, 1));
            events.push(rows_event(EventType::WRITE_ROWS, 70, 1, &int_image(&[Some(1)])));
        }
        events.push(event(EventType::XID, &[0; 8]));
        let wild_ignore_table = ignored.iter().map(|pattern| (*pattern).to_owned()).collect();
        let rules = FilterRules { wild_ignore_table, ..FilterRules::default() };
        let relayed = relayed_events(1, &Arc::new(format_description()), &events);
        Admission::new(Definitions::default())
            .with_filters(Filters::new(rules, false))
            .admit_now(relayed, None, whole)
            .map(|admitted| admitted.verdict)
    };
    let (none, ignored): (&[&str], &[&str]) = (&[], &["mysql.%", "d.b"]);
    for table in [None, Some("b")] {
        let left_out = admit(ignored, HEARTBEAT, table, true).expect("known");
        assert_eq!(left_out, Verdict::LeftOut(Omission::Nothing), "{table:?}");
    }
    for whole in [true, false] {
        let beside = admit(ignored, HEARTBEAT, Some("a"), whole).expect("known");
        assert!(matches!(beside, Verdict::Refused(_)), "{beside:?}");
    }
    for (ignored, statement, words) in [
        (none, HEARTBEAT, ["statement-format", "ignore_table = [\"mysql.rds_heartbeat2\"]"]),
        // It may have a trigger that changes others.
        (ignored, "UPDATE d.b SET v=1", ["statement-format", "binlog_format=ROW"]),
        (ignored, "INSERT INTO d.a VALUES (1)", ["statement-format", "binlog_format=ROW"]),
    ] {
        let why = admit(ignored, statement, None, true).expect_err("a change").to_string();
        assert!(words.iter().all(|word| why.contains(word)), "{statement}: {why}");
    }
}
