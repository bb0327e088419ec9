//! Random streams and random completion orders: groups that may run beside each other touch no
//! common row, every transaction runs once and commits in order, and there is never a deadlock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use csa_provider::binlog::{EventType, RawEvent};
use csa_provider::test_util::{
    event, format_description, int_image, int_table_map, query_event, rows_event,
};
use csa_relaystore::test_util::relayed_events;
use proptest::prelude::*;

use super::*;
use crate::admission::Admission;
use crate::group::GroupCommits;
use crate::key_source::{KeySource, KeySourceError};
use crate::keys::{
    ForeignKey, KeyClass, KeyPart, KeyRole, KeyUse, TableId, TableKeys, TableUse, UniqueKey,
};

/// `parent (id PRIMARY KEY, u UNIQUE)`, `child (id PRIMARY KEY, p REFERENCES parent (id))`, and
/// `keyless (a, b)`.
struct Definitions;

impl KeySource for Definitions {
    async fn table(
        &mut self,
        _schema: &[u8],
        table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let key = |column| KeyPart { column, class: KeyClass::Integer };
        let unique = |column| UniqueKey { parts: vec![key(column)] };
        let mut keys = TableKeys { columns: 2, foreign_key_rank: Some(0), ..TableKeys::default() };
        let id = match table {
            b"parent" => {
                keys.unique = vec![unique(0), unique(1)];
                TableId(1)
            }
            b"child" => {
                keys.unique = vec![unique(0)];
                let parent_key = Some((0, vec![key(1)]));
                keys.foreign_keys.push(ForeignKey { parent: TableId(1), parent_key });
                TableId(2)
            }
            _ => TableId(3),
        };
        Ok((id, Some(Arc::new(keys))))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

type Row = [Option<i32>; 2];

#[derive(Debug, Clone, Copy)]
enum Change {
    Write(usize, Row),
    Update(usize, Row, Row),
    Delete(usize, Row),
}

const TABLES: [&str; 3] = ["parent", "child", "keyless"];

fn change() -> impl Strategy<Value = Change> {
    let row = || (0..40_i32, prop::option::of(0..40_i32)).prop_map(|(id, other)| [Some(id), other]);
    let table = prop_oneof![8 => Just(0_usize), 8 => Just(1), 3 => Just(2)];
    (table, row(), row(), 0..3_u8).prop_map(|(table, before, after, what)| match what {
        0 => Change::Write(table, after),
        1 => Change::Update(table, before, after),
        _ => Change::Delete(table, before),
    })
}

/// The keys a transaction touches, found from its rows and not from hashes: name and whether it
/// writes.
fn touched(changes: &[Change]) -> BTreeSet<(String, bool)> {
    let mut touched = BTreeSet::new();
    for change in changes {
        let (table, rows) = match *change {
            Change::Write(table, row) | Change::Delete(table, row) => (table, vec![row]),
            Change::Update(table, before, after) => (table, vec![before, after]),
        };
        for [id, other] in rows {
            match table {
                0 => {
                    touched.insert((format!("parent.id={id:?}"), true));
                    if other.is_some() {
                        touched.insert((format!("parent.u={other:?}"), true));
                    }
                }
                1 => {
                    touched.insert((format!("child.id={id:?}"), true));
                    if other.is_some() {
                        touched.insert((format!("parent.id={other:?}"), false));
                    }
                }
                _ => {
                    touched.insert(("keyless".to_owned(), true));
                }
            }
        }
    }
    touched
}

fn conflict(a: &BTreeSet<(String, bool)>, b: &BTreeSet<(String, bool)>) -> bool {
    let writes = |set: &BTreeSet<(String, bool)>, key: &str| set.contains(&(key.to_owned(), true));
    let reads = |set: &BTreeSet<(String, bool)>, key: &str| set.contains(&(key.to_owned(), false));
    a.iter().any(|(key, write)| writes(b, key) || *write && reads(b, key))
}

#[derive(Debug, PartialEq)]
enum Meeting {
    /// No key in common.
    Never,
    /// In common are only keys that the later group holds back.
    Late,
    Unguarded,
}

/// The conflict between two groups that may run beside each other.
fn meeting(first: &Group, second: &Group, sequence: u64) -> Meeting {
    let changes = |group: &Group| {
        let changes = group.transactions.iter().filter_map(|t| t.changes.as_ref());
        let keys: Vec<KeyUse> = changes.clone().flat_map(|c| c.keys.clone()).collect();
        let tables: BTreeSet<TableUse> = changes.flat_map(|c| c.tables.clone()).collect();
        (keys, tables)
    };
    let ((first_keys, first_tables), (second_keys, second_tables)) =
        (changes(first), changes(second));
    let uses = |tables: &BTreeSet<TableUse>, id| {
        tables.contains(&TableUse::Whole(id)) || tables.contains(&TableUse::Rows(id))
    };
    let whole = |tables: &BTreeSet<TableUse>, other: &BTreeSet<TableUse>| {
        tables.iter().any(|table| matches!(table, TableUse::Whole(id) if uses(other, *id)))
    };
    if whole(&first_tables, &second_tables) || whole(&second_tables, &first_tables) {
        return Meeting::Unguarded;
    }
    let mut met = Meeting::Never;
    for key in second_keys {
        let read = key.role() == KeyRole::Read;
        let common =
            |other: &KeyUse| other.key() == key.key() && !(read && other.role() == KeyRole::Read);
        if first_keys.iter().any(common) {
            if second.late.get(&key.key()).is_none_or(|&late| late < sequence) {
                return Meeting::Unguarded;
            }
            met = Meeting::Late;
        }
    }
    met
}

fn events(changes: &[Change]) -> Vec<RawEvent> {
    let mut events = vec![query_event("", "BEGIN")];
    for change in changes {
        let (table, event_type, images) = match change {
            Change::Write(table, row) => (table, EventType::WRITE_ROWS, int_image(row)),
            Change::Delete(table, row) => (table, EventType::DELETE_ROWS, int_image(row)),
            Change::Update(table, before, after) => {
                let images = [int_image(before), int_image(after)].concat();
                (table, EventType::UPDATE_ROWS, images)
            }
        };
        let id = *table as u64 + 1;
        events.push(int_table_map(id, "d", TABLES[*table], 2));
        events.push(rows_event(event_type, id, 2, &images));
    }
    events.push(event(EventType::XID, &[0; 8]));
    events
}

/// Groups in flight as the target would see them.
#[derive(Default)]
struct Target {
    running: BTreeMap<u64, Group>,
    committed: u64,
    next_gno: u64,
}

impl Target {
    /// Commits the group whose turn it is, if it may run; `None` when it is not handed out.
    fn commit_next(&mut self, scheduler: &mut Scheduler) -> Option<()> {
        let group = self.running.remove(&(self.committed + 1))?;
        assert!(group.dependency.get() <= self.committed, "it waits for a later group");
        for transaction in &group.transactions {
            self.next_gno += 1;
            assert_eq!(transaction.relayed.header.gtid.gno, self.next_gno);
        }
        self.committed += 1;
        let mark = scheduler.committed(&group).expect("in order");
        assert_eq!(mark.sequence.get(), self.committed);
        Some(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_runs_beside_each_other_is_independent(
        transactions in prop::collection::vec(prop::collection::vec(change(), 0..4), 1..80),
        choices in prop::collection::vec((0..4_u8, 1_usize..9), 200),
        mut workers in 1_usize..9,
        rows in 1_usize..20,
        commits in prop::sample::select(vec![
            GroupCommits::Shared,
            GroupCommits::Each { in_order: false },
            GroupCommits::Each { in_order: true },
        ]),
    ) {
        let limits = GroupLimits { transactions: 10, rows, bytes: 1 << 20, commits };
        let mut scheduler = Scheduler::new(limits, workers, Sequence::default(), GtidSet::new());
        // The most workers at any time: each session has a checkpoint row of its own.
        let mut sessions = workers;
        let mut admission = Admission::new(Definitions);
        let format = Arc::new(format_description());
        let mut target = Target::default();
        let mut touched_by: BTreeMap<u64, BTreeSet<(String, bool)>> = BTreeMap::new();
        let mut stream = (1_u64..).zip(&transactions);
        let mut choices = choices.into_iter().cycle();
        let mut steps = 0;
        while target.next_gno < transactions.len() as u64 {
            steps += 1;
            prop_assert!(steps < 20_000, "nothing moves");
            let (choice, count) = choices.next().expect("endless");
            match choice {
                0 => {
                    if let Some((gno, changes)) = stream.next() {
                        let relayed = relayed_events(gno, &format, &events(changes));
                        let admitted = admission.admit_now(relayed, None, true).expect("known");
                        scheduler.admit(admitted);
                    }
                }
                1 => {
                    while let Some(group) = scheduler.next_group() {
                        let is_next = group.sequence.get() == target.committed + 1;
                        prop_assert!(target.running.len() < workers || is_next);
                        prop_assert!(target.running.len() < sessions, "no session is left for it");
                        prop_assert!(!group.is_series() || group.late.is_empty(), "a row of a series is late");
                        let of = |t: &AdmittedTransaction| {
                            let gno = t.relayed.header.gtid.gno as usize;
                            touched(&transactions[gno - 1])
                        };
                        let own: BTreeSet<_> = group.transactions.iter().flat_map(of).collect();
                        for (&other, running) in &target.running {
                            let (earlier, later) = if other < group.sequence.get() {
                                (other, &group)
                            } else {
                                (group.sequence.get(), running)
                            };
                            let (first, second) =
                                if other < group.sequence.get() { (running, &group) } else { (&group, running) };
                            if earlier > later.dependency.get() {
                                let met = meeting(first, second, earlier);
                                let conflicts = conflict(&own, &touched_by[&other]);
                                prop_assert!(
                                    met != Meeting::Unguarded && (!conflicts || met == Meeting::Late),
                                    "groups {other} and {} run beside each other: {met:?}",
                                    group.sequence,
                                );
                            }
                        }
                        touched_by.insert(group.sequence.get(), own);
                        target.running.insert(group.sequence.get(), group);
                    }
                    // All that could begin has begun: the group whose turn it is must be among them.
                    let (_, formed) = scheduler.waiting();
                    prop_assert!(
                        target.running.contains_key(&(target.committed + 1))
                            || target.running.is_empty() && formed == 0,
                        "everything that runs waits for a group that does not",
                    );
                }
                2 => {
                    workers = count;
                    sessions = sessions.max(count);
                    scheduler.set_workers(count);
                }
                _ => {
                    target.commit_next(&mut scheduler);
                }
            }
        }
        prop_assert!(scheduler.is_idle());
    }
}
