use std::sync::Arc;

use csa_provider::binlog::{EventType, FormatDescription, Gtid, RawEvent, Tag, Uuid};
use csa_provider::test_util::{
    event, format_description, format_description_of, int_image, int_table_map, query_event,
    rows_event, xa_prepare_event,
};
use csa_relaystore::read::RelayedTransaction;
use csa_relaystore::test_util::relayed_events;
use proptest::prelude::*;

use super::*;
use crate::admission::{Admission, Omission, Verdict};
use crate::error::Error;
use crate::filter::{FilterRules, Filters};
use crate::group::GroupCommits;
use crate::key_source::KeySource;
use crate::keys::{KeyClass, KeyPart, TableId, TableKeys, UniqueKey};
use crate::memory::EventMemory;
use crate::until::{Until, UntilGate};

/// A target without tables: every row change counts as one of its whole table.
struct NoTables;

impl KeySource for NoTables {
    async fn table(
        &mut self,
        _schema: &[u8],
        _table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), crate::key_source::KeySourceError> {
        Ok((TableId(1), None))
    }

    async fn trigger_table(
        &mut self,
        _: &str,
        _: &str,
    ) -> Result<Option<String>, crate::key_source::KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

fn admit(relayed: RelayedTransaction) -> crate::error::Result<AdmittedTransaction> {
    Admission::new(NoTables).admit_now(relayed, None, true)
}

fn gtid(gno: u64) -> Gtid {
    Gtid { uuid: Uuid::from_bytes([5; 16]), tag: Tag::untagged(), gno }
}

fn rows(size: usize) -> Vec<RawEvent> {
    vec![
        query_event("", "BEGIN"),
        event(EventType::TABLE_MAP, &table_map()),
        event(EventType::WRITE_ROWS, &write_rows(size)),
        event(EventType::XID, &[0; 8]),
    ]
}

/// Table 1, `d.t`, of one LONGBLOB.
fn table_map() -> Vec<u8> {
    [&[1, 0, 0, 0, 0, 0, 1, 0][..], b"\x01d\0\x01t\0", &[1, 252, 1, 4, 0]].concat()
}

/// Returns one row with a value of `size` bytes.
fn write_rows(size: usize) -> Vec<u8> {
    let head = [1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 0xff];
    let len = u32::try_from(size).expect("small").to_le_bytes();
    [&head[..], &[0], &len, &vec![7; size]].concat()
}

fn classify(events: &[RawEvent]) -> crate::error::Result<Verdict> {
    let relayed = relayed_events(1, &Arc::new(format_description()), events);
    admit(relayed).map(|admitted| admitted.verdict)
}

#[test]
fn transactions_are_what_their_events_say() {
    assert_eq!(classify(&rows(10)).expect("known"), Verdict::Rows);
    let empty = [query_event("", "BEGIN"), query_event("", "COMMIT")];
    assert_eq!(classify(&empty).expect("known"), Verdict::LeftOut(Omission::Nothing));
    let ddl = [query_event("d", "DROP TABLE t")];
    assert_eq!(classify(&ddl).expect("known"), Verdict::Statement);
    let create_select = [
        query_event("d", "CREATE TABLE t (a INT) START TRANSACTION"),
        event(EventType::TABLE_MAP, &table_map()),
        event(EventType::WRITE_ROWS, &write_rows(3)),
        event(EventType::XID, &[0; 8]),
    ];
    assert_eq!(classify(&create_select).expect("known"), Verdict::Statement);
    for (one_phase, kind) in [(false, Verdict::Xa), (true, Verdict::Rows)] {
        let branch = [
            query_event("", "XA START X'61',X'',1"),
            event(EventType::TABLE_MAP, &table_map()),
            event(EventType::WRITE_ROWS, &write_rows(3)),
            query_event("", "XA END X'61',X'',1"),
            xa_prepare_event(one_phase, b"a", b""),
        ];
        assert_eq!(classify(&branch).expect("known"), kind);
    }
    for end in ["XA COMMIT X'61',X'',1", "XA ROLLBACK X'61',X'',1"] {
        assert_eq!(classify(&[query_event("", end)]).expect("known"), Verdict::Xa);
    }
}

/// A change of members, as a source with Group Replication writes it and stores of older versions
/// hold it.
#[test]
fn what_means_nothing_to_a_replica_is_not_looked_at() {
    let change_of_members = [
        query_event("", "BEGIN"),
        event(EventType::VIEW_CHANGE, &[1; 80]),
        query_event("", "COMMIT"),
    ];
    assert_eq!(classify(&change_of_members).expect("known"), Verdict::LeftOut(Omission::Nothing));
    let mut events = rows(10);
    events.insert(1, event(EventType::TRANSACTION_CONTEXT, &[1; 80]));
    let admitted =
        admit(relayed_events(1, &Arc::new(format_description()), &events)).expect("known");
    assert_eq!(admitted.verdict, Verdict::Rows);
    let types: Vec<EventType> =
        admitted.events().map(|event| event.expect("readable").event_type()).collect();
    let expected = [
        EventType::GTID,
        EventType::QUERY,
        EventType::TABLE_MAP,
        EventType::WRITE_ROWS,
        EventType::XID,
    ];
    assert_eq!(types, expected);
}

#[test]
fn what_is_left_out_counts_as_empty_and_renamed_tables_by_their_new_name() {
    let admit = |rules: FilterRules, events: &[RawEvent], whole| {
        let relayed = relayed_events(1, &Arc::new(format_description()), events);
        let mut admission = Admission::new(NoTables).with_filters(Filters::new(rules, false));
        admission.admit_now(relayed, None, whole).expect("known")
    };
    let ignored = || FilterRules { ignore_db: vec!["d".to_owned()], ..FilterRules::default() };
    let create = "CREATE TABLE t (a INT) START TRANSACTION";
    let filled = [&[query_event("", "BEGIN"), query_event("d", create)], &rows(9)[1..]].concat();
    for events in [rows(9), vec![query_event("d", "DROP TABLE t")], filled] {
        let admitted = admit(ignored(), &events, true);
        assert_eq!(admitted.verdict, Verdict::LeftOut(Omission::Nothing));
        assert!(admitted.is_keyed() && admitted.rows() == 0, "{admitted:?}");
    }
    // Not looked at as a whole: its executor reads the rest.
    let streamed = admit(ignored(), &rows(9), false);
    assert_eq!(streamed.verdict.clone(), Verdict::Rows);
    let left: Vec<EventType> =
        streamed.events().map(|event| event.expect("readable").event_type()).collect();
    assert_eq!(left, [EventType::GTID, EventType::QUERY, EventType::XID]);

    let rewrite_db = vec![("d".to_owned(), "renamed".to_owned())];
    let renamed = admit(FilterRules { rewrite_db, ..FilterRules::default() }, &rows(9), true);
    let changes = renamed.changes.expect("looked at");
    let table_map = &changes.blocks[0].layout.table_map;
    assert!(table_map[2..].starts_with(b"\x07renamed\0\x01t\0"), "{table_map:?}");
    let rewrite_db = vec![("d".to_owned(), "renamed".to_owned())];
    let named = [query_event("x", "DROP TABLE d.t")];
    let refused = admit(FilterRules { rewrite_db, ..FilterRules::default() }, &named, true);
    assert!(refused.verdict.refusal().is_some_and(|why| why.contains("schema d")));
    assert!(refused.verdict.is_statement());
}

#[test]
fn what_is_not_understood_is_refused_by_gtid() {
    for events in [
        vec![query_event("", "XA START X'61',X'',1")],
        vec![query_event("", "XA END X'61',X'',1")],
        vec![query_event("", "BEGIN"), xa_prepare_event(false, b"a", b"")],
        vec![query_event("", "BEGIN"), query_event("", "INSERT INTO t VALUES (1)")],
        vec![query_event("", "BEGIN"), event(EventType(77), &[0; 4])],
        vec![query_event("", "BEGIN"), event(EventType::TABLE_MAP, &table_map())],
    ] {
        match classify(&events) {
            Err(Error::Unsupported { gtid: named, .. }) => assert_eq!(named, gtid(1)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_transaction_that_is_alone_leaves_at_once() {
    let format = Arc::new(format_description());
    let mut scheduler = Scheduler::new(GroupLimits::default(), 1, Sequence::new(7), GtidSet::new());
    scheduler.admit(admit(relayed_events(1, &format, &rows(5))).expect("known"));
    let group = scheduler.next_group().expect("a group of one");
    assert_eq!((group.sequence, group.transactions.len()), (Sequence::new(8), 1));
    assert_eq!(scheduler.oldest_commit().map(|times| times.original), Some(1));
    assert!(scheduler.committed(&group).is_some());
    assert!(scheduler.is_idle());
}

#[test]
fn no_more_transactions_are_begun_than_are_allowed() {
    let format = Arc::new(format_description());
    let mut scheduler = Scheduler::new(GroupLimits::default(), 4, Sequence::new(0), GtidSet::new());
    for gno in 1..=10 {
        scheduler.admit(admit(relayed_events(gno, &format, &rows(5))).expect("known"));
    }
    scheduler.allow(0);
    assert!(scheduler.next_group().is_none());
    scheduler.allow(3);
    let group = scheduler.next_group().expect("a group");
    assert_eq!((group.transactions.len(), scheduler.allowance()), (3, 0));
    assert!(scheduler.next_group().is_none());
    scheduler.allow(usize::MAX);
    scheduler.committed(&group);
    assert_eq!(scheduler.next_group().expect("the rest").transactions.len(), 7);
}

#[test]
fn an_end_holds_for_what_is_in_no_group_yet() {
    let format = Arc::new(format_description());
    let until = UntilGate::default();
    until.begin(&GtidSet::new());
    let limits = GroupLimits { transactions: 4, ..GroupLimits::default() };
    let mut scheduler =
        Scheduler::new(limits, 4, Sequence::new(0), GtidSet::new()).with_until(until.clone());
    for gno in 1..=20 {
        scheduler.admit(admit(relayed_events(gno, &format, &rows(5))).expect("known"));
    }
    let before = |gno| Some(Until::BeforeGtids([gtid(gno)].into_iter().collect()));
    let lengths = |scheduler: &mut Scheduler| -> Vec<usize> {
        let mut lengths = Vec::new();
        while let Some(group) = scheduler.next_group() {
            lengths.push(group.transactions.len());
            assert!(!scheduler.is_at_end(), "it is not committed");
            scheduler.committed(&group);
        }
        lengths
    };
    let first = scheduler.next_group().expect("a group");
    assert!(until.set(before(4)).is_err(), "in a group");
    assert_eq!(until.set(before(7)), Ok(false));
    scheduler.committed(&first);
    assert!(!scheduler.is_at_end(), "not met yet");
    assert_eq!(lengths(&mut scheduler), [2]);
    assert!(scheduler.is_at_end() && !scheduler.is_idle());
    assert_eq!(
        until.set(Some(Until::AfterGtids([gtid(8), gtid(12)].into_iter().collect()))),
        Ok(false)
    );
    assert!(!scheduler.is_at_end());
    assert_eq!(lengths(&mut scheduler), [4, 2]);
    assert!(scheduler.is_at_end());
    assert_eq!(until.set(None), Ok(false));
    assert_eq!(lengths(&mut scheduler), [4, 4]);
    assert!(scheduler.is_idle() && !scheduler.is_at_end());
}

/// `keyed (id PRIMARY KEY)`, and other tables without a key.
struct OneKeyless;

impl KeySource for OneKeyless {
    async fn table(
        &mut self,
        _schema: &[u8],
        table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), crate::key_source::KeySourceError> {
        let id = KeyPart { column: 0, class: KeyClass::Integer };
        let unique = if table == b"keyed" { vec![UniqueKey { parts: vec![id] }] } else { vec![] };
        let keys =
            TableKeys { columns: 1, unique, foreign_key_rank: Some(0), ..TableKeys::default() };
        Ok((TableId(u32::from(table == b"keyed")), Some(Arc::new(keys))))
    }

    async fn trigger_table(
        &mut self,
        _: &str,
        _: &str,
    ) -> Result<Option<String>, crate::key_source::KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

#[test]
fn a_transaction_of_too_many_rows_is_not_looked_at_as_a_whole() {
    let format = Arc::new(format_description());
    let images: Vec<u8> = (0..100).flat_map(|id| int_image(&[Some(id)])).collect();
    let events = [
        query_event("", "BEGIN"),
        int_table_map(1, "d", "keyed", 1),
        rows_event(EventType::WRITE_ROWS, 1, 1, &images),
        event(EventType::XID, &[0; 8]),
    ];
    let mut admission = Admission::new(OneKeyless);
    let admit = |admission: &mut Admission<OneKeyless>, gno| {
        let memory = EventMemory::new(1 << 20);
        let permit = memory.request(10).take();
        let admitted = admission.admit_now(relayed_events(gno, &format, &events), permit, true);
        (admitted.expect("known"), memory.usage().0)
    };
    let (whole, held) = admit(&mut admission, 1);
    assert_eq!((whole.verdict.clone(), whole.rows()), (Verdict::Rows, 100));
    let known = whole.changes.as_ref().expect("looked at").held_bytes();
    assert!(known > 100 * 100, "much more than 5 bytes a row: {known}");
    assert_eq!(held, 10 + known, "it counts as event memory");
    admission.limit_rows(known - 1);
    let (streamed, held) = admit(&mut admission, 2);
    assert_eq!((streamed.verdict.clone(), streamed.rows(), held), (Verdict::Rows, 0, 10));
    assert!(streamed.changes.is_none() && !streamed.is_keyed());
    admission.limit_rows(known);
    assert!(admit(&mut admission, 3).0.is_keyed(), "nothing is left of the previous one");
}

#[test]
fn with_fewer_workers_the_group_whose_turn_it_is_still_gets_one() {
    let limits = GroupLimits { transactions: 1, ..GroupLimits::default() };
    let mut scheduler = Scheduler::new(limits, 4, Sequence::default(), GtidSet::new());
    let format = Arc::new(format_description());
    let mut admission = Admission::new(OneKeyless);
    for (gno, table) in (1..).zip(["heap", "heap", "heap", "keyed", "keyed"]) {
        let events = [
            query_event("", "BEGIN"),
            int_table_map(1, "d", table, 1),
            rows_event(EventType::WRITE_ROWS, 1, 1, &int_image(&[Some(gno)])),
            event(EventType::XID, &[0; 8]),
        ];
        let relayed = relayed_events(gno as u64, &format, &events);
        scheduler.admit(admission.admit_now(relayed, None, true).expect("known"));
    }
    let mut running: Vec<Group> = std::iter::from_fn(|| scheduler.next_group()).collect();
    let numbers = |groups: &[Group]| groups.iter().map(|g| g.sequence.get()).collect::<Vec<_>>();
    // The third waits for a worker, the two after it only for their turn.
    assert_eq!(numbers(&running), [1, 4, 5, 2]);
    scheduler.set_workers(1);
    assert!(scheduler.next_group().is_none());
    for _ in 0..2 {
        let first = running.iter().position(|g| g.sequence == scheduler.low_water.next());
        scheduler.committed(&running.remove(first.expect("it runs")));
    }
    assert_eq!(numbers(&running), [4, 5]);
    let third = scheduler.next_group().expect("more run than allowed, but they wait for this one");
    assert_eq!(third.sequence.get(), 3);
    assert!(scheduler.next_group().is_none());
}

/// Inserts of so many rows into `keyed`, from an id on.
fn inserts(
    gno: u64,
    ids: std::ops::Range<i32>,
    format: &Arc<FormatDescription>,
) -> AdmittedTransaction {
    let images: Vec<u8> = ids.flat_map(|id| int_image(&[Some(id)])).collect();
    let events = [
        query_event("", "BEGIN"),
        int_table_map(1, "d", "keyed", 1),
        rows_event(EventType::WRITE_ROWS, 1, 1, &images),
        event(EventType::XID, &[0; 8]),
    ];
    let relayed = relayed_events(gno, format, &events);
    Admission::new(OneKeyless).admit_now(relayed, None, true).expect("known")
}

fn series(in_order: bool, workers: usize) -> Scheduler {
    let commits = GroupCommits::Each { in_order };
    let limits = GroupLimits { transactions: 4, commits, ..GroupLimits::default() };
    Scheduler::new(limits, workers, Sequence::default(), GtidSet::new())
}

#[test]
fn only_short_transactions_make_up_a_series() {
    let format = Arc::new(format_description());
    let mut scheduler = series(true, 8);
    for (gno, rows) in (1..).zip([1, 2, 17, 1, 16, 1, 1, 1]) {
        let first = gno as i32 * 100;
        scheduler.admit(inserts(gno, first..first + rows, &format));
    }
    let mut lengths = Vec::new();
    while let Some(group) = scheduler.next_group() {
        lengths.push(group.transactions.len());
        assert_eq!(group.target_transactions(), group.transactions.len() as u64);
        scheduler.committed(&group);
    }
    assert_eq!(lengths, [2, 1, 4, 1]);
}

#[test]
fn a_series_waits_as_a_whole_for_a_row_of_another() {
    let format = Arc::new(format_description());
    for (in_order, expected) in
        [(true, vec![(2, 0), (4, 1)]), (false, vec![(1, 0), (1, 0), (4, 1)])]
    {
        let mut scheduler = series(in_order, 2);
        for gno in 1..=2 {
            scheduler.admit(inserts(gno, gno as i32..gno as i32 + 1, &format));
        }
        let mut groups: Vec<Group> = std::iter::from_fn(|| scheduler.next_group()).collect();
        scheduler.set_workers(3);
        for (gno, id) in (3..).zip([1, 7, 8, 9]) {
            scheduler.admit(inserts(gno, id..id + 1, &format));
        }
        groups.extend(std::iter::from_fn(|| scheduler.next_group()));
        let seen: Vec<(usize, u64)> =
            groups.iter().map(|group| (group.transactions.len(), group.dependency.get())).collect();
        assert_eq!(seen, expected);
        assert!(groups.iter().all(|group| group.late.is_empty()));
    }
}

#[test]
fn out_of_order_what_waits_is_shared_out() {
    let format = Arc::new(format_description());
    let mut scheduler = series(false, 3);
    for gno in 1..=5 {
        scheduler.admit(inserts(gno, gno as i32..gno as i32 + 1, &format));
    }
    let groups: Vec<Group> = std::iter::from_fn(|| scheduler.next_group()).collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.transactions.len()).collect();
    assert_eq!(lengths, [2, 2, 1]);
}

proptest! {
    /// Groups, joined, are the admitted transactions in order; barriers are alone; limits hold.
    #[test]
    fn groups_are_runs_of_the_stream(
        kinds in prop::collection::vec((any::<bool>(), 1_usize..400, 0_u8..8), 1..60),
        limit in 1_usize..10,
        bytes in 300_u64..3000,
        batch in 1_usize..12,
    ) {
        let formats = [Arc::new(format_description()), Arc::new(format_description_of(b"8.4.0"))];
        let limits = GroupLimits { transactions: limit, rows: 1000, bytes, ..GroupLimits::default() };
        let mut scheduler =
            Scheduler::new(limits, 1, Sequence::default(), GtidSet::new());
        let mut next_gno = 1;
        let mut sequence = Sequence::default();
        let mut executed = GtidSet::new();
        let total = kinds.len() as u64;
        let mut stream = (1_u64..).zip(kinds);
        loop {
            for (gno, (ddl, size, format)) in stream.by_ref().take(batch) {
                let events = if ddl { vec![query_event("d", "DROP TABLE t")] } else { rows(size) };
                let format = &formats[usize::from(format == 0)];
                scheduler.admit(admit(relayed_events(gno, format, &events)).expect("known"));
            }
            let Some(group) = scheduler.next_group() else { break };
            prop_assert!(scheduler.next_group().is_none(), "one at a time");
            prop_assert_eq!(group.sequence, sequence.next());
            sequence = group.sequence;
            prop_assert!(group.transactions.len() <= limit);
            prop_assert!(group.bytes() <= bytes || group.transactions.len() == 1);
            for transaction in &group.transactions {
                prop_assert_eq!(transaction.relayed.header.gtid.gno, next_gno);
                next_gno += 1;
                executed.add(&transaction.relayed.header.gtid);
                prop_assert!(Arc::ptr_eq(&transaction.relayed.format, group.format()));
                if transaction.verdict == Verdict::Statement {
                    prop_assert_eq!(group.transactions.len(), 1);
                }
            }
            prop_assert_eq!(&group.executed_after, &executed);
            let mark = scheduler.committed(&group).expect("it was the oldest");
            prop_assert_eq!(mark.ordinal, next_gno - 1);
        }
        prop_assert_eq!(next_gno - 1, total);
    }
}
