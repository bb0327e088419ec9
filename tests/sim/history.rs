//! A source's history from a seed: transactions as their events, and the tables after each of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{
    EventType, FormatDescription, Gtid, GtidSet, RawEvent, Tag, TransactionHeader, Uuid,
};
use csa_provider::test_util::{
    event, format_description, gtid_event, gtid_event_of, int_image, int_table_map, query_event,
    rows_event,
};
use csa_relaystore::disk::RelayPosition;
use csa_relaystore::read::{RelayedTransaction, TransactionBody};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::branches::{Branches, PREPARED, Step};
use crate::seeds::Case;
use crate::target::{Row, Rows, Value};

pub(crate) const SOURCE: Uuid = Uuid::from_bytes([0x5e; 16]);

/// The server that takes over from the source in some runs.
pub(crate) const PEER: Uuid = Uuid::from_bytes([0x5f; 16]);

pub(crate) fn is_of_source(uuid: &Uuid) -> bool {
    [SOURCE, PEER].contains(uuid)
}

/// Tables that every copy begins with. `accounts` has codes that move from row to row.
pub(crate) const TABLES: [&str; 5] = [
    "CREATE DATABASE IF NOT EXISTS app",
    "CREATE TABLE app.log (id INT NOT NULL, n INT, PRIMARY KEY (id))",
    "CREATE TABLE app.accounts (id INT NOT NULL, balance INT, code INT, PRIMARY KEY (id), UNIQUE KEY (code))",
    "CREATE TABLE app.parents (id INT NOT NULL, n INT, PRIMARY KEY (id))",
    "CREATE TABLE app.children (id INT NOT NULL, parent INT, PRIMARY KEY (id), \
     FOREIGN KEY (parent) REFERENCES parents (id))",
];

/// Table, the row before and the row after.
pub(crate) type RowChange = (String, Option<Row>, Option<Row>);

/// The rows of each table; the names of prepared transactions are one of them.
pub(crate) type Contents = BTreeMap<String, Rows>;

#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) gtid: Gtid,
    /// Nothing is applied beside it: a definition, or a step of a distributed transaction.
    pub(crate) is_alone: bool,
    /// The statement of a definition.
    pub(crate) definition: Option<String>,
    events: Vec<RawEvent>,
    changes: Vec<RowChange>,
}

/// Kinds of transactions that only some histories have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kinds {
    /// Distributed ones.
    pub(crate) branches: bool,
    /// Those that undo what they do.
    pub(crate) undone: bool,
    /// Those that give rows other keys.
    pub(crate) moves: bool,
}

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) transactions: Vec<Transaction>,
    /// Contents before the first transaction, and after each.
    pub(crate) states: Vec<Contents>,
    format: Arc<FormatDescription>,
}

pub(crate) fn gtid(number: usize) -> Gtid {
    Gtid { uuid: SOURCE, tag: Tag::untagged(), gno: number as u64 }
}

fn committed_at(number: usize) -> u64 {
    1_700_000_000_000_000 + number as u64
}

impl Transaction {
    pub(crate) const fn is_definition(&self) -> bool {
        self.definition.is_some()
    }
}

impl History {
    pub(crate) fn of(case: Case, kinds: Kinds) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed);
        let names = ["log", "accounts", "parents", "children", PREPARED];
        let contents: Contents =
            names.map(|name| (name.to_owned(), Rows::new())).into_iter().collect();
        let mut history = Self {
            transactions: Vec::new(),
            states: vec![contents],
            format: Arc::new(format_description()),
        };
        let definitions = if random.random_bool(0.5) { 0.1 } else { 0.0 };
        let length = random.random_range(10..80).min(case.transactions);
        let mut log_columns = 2;
        let mut branches = Branches::of(case, kinds.branches);
        let mut undoing = StdRng::seed_from_u64(case.seed ^ 0x0000_1790);
        let mut moving = StdRng::seed_from_u64(case.seed ^ 0x0000_30fe);
        let undone = if kinds.undone { [0.0, 0.1, 0.4][undoing.random_range(0..3)] } else { 0.0 };
        for number in 1..=length {
            if let Some(step) = branches.step(length - number) {
                history.distributed(number, step, &mut branches);
                continue;
            }
            let contents = history.states.last().expect("one at least").clone();
            let mut writing = Writing {
                contents,
                events: Vec::new(),
                changes: Vec::new(),
                random: &mut random,
                branches: &branches,
            };
            // The log has a row by then, so every definition shows in the contents.
            let is_definition = number > 1 && writing.random.random_bool(definitions);
            let mut definition = None;
            if is_definition {
                definition = Some(writing.define(number, &mut log_columns));
            } else if !(undoing.random_bool(undone) && writing.undo(&mut undoing)) {
                writing.write(number, log_columns);
            }
            if kinds.moves && definition.is_none() && moving.random_bool(0.4) {
                writing.move_account(&mut moving);
            }
            let Writing { contents, events, changes, .. } = writing;
            history.push(events, changes, contents, definition, is_definition);
        }
        history
    }

    fn push(
        &mut self,
        mut events: Vec<RawEvent>,
        changes: Vec<RowChange>,
        contents: Contents,
        definition: Option<String>,
        is_alone: bool,
    ) {
        let number = self.states.len();
        let gtid = gtid(number);
        events.insert(0, gtid_event(&gtid, committed_at(number)));
        self.transactions.push(Transaction { gtid, is_alone, definition, events, changes });
        self.states.push(contents);
    }

    fn distributed(&mut self, number: usize, step: Step, branches: &mut Branches) {
        let mut contents = self.states.last().expect("one at least").clone();
        let (events, changes) = match step {
            Step::Prepare => {
                let mut random = branches.random.clone();
                let mut writing = Writing {
                    contents: contents.clone(),
                    events: Vec::new(),
                    changes: Vec::new(),
                    random: &mut random,
                    branches,
                };
                let most = writing.random.random_range(1..4);
                while writing.changes.len() < most {
                    writing.account();
                }
                let Writing { events, changes, .. } = writing;
                branches.random = random;
                branches.prepare(number, events, changes)
            }
            Step::End { place, is_commit } => branches.end(place, is_commit),
        };
        for (table, before, after) in &changes {
            write(&mut contents, table, before.as_ref(), after.as_ref());
        }
        self.push(events, changes, contents, None, true);
    }

    /// From `place` on, the transactions are those of the peer.
    pub(crate) fn promoted_at(mut self, place: usize) -> Self {
        let later = self.transactions.iter_mut().skip(place);
        for (number, transaction) in (1..).zip(later) {
            transaction.gtid = Gtid { uuid: PEER, ..gtid(number) };
            transaction.events[0] = gtid_event(&transaction.gtid, committed_at(place + number));
        }
        self
    }

    /// The first definition ended with an error on the source, which logs it because it has changed something.
    pub(crate) fn with_error(mut self, code: u16) -> Self {
        /// After the thread, the time and the length of the database's name.
        const ERROR_CODE: usize = 9;
        let first = self.transactions.iter_mut().find(|one| one.is_definition());
        let query = first.and_then(|first| first.events.last_mut()).expect("a definition");
        let mut body = query.body().to_vec();
        body[ERROR_CODE..ERROR_CODE + 2].copy_from_slice(&code.to_le_bytes());
        *query = event(EventType::QUERY, &body);
        self
    }

    /// A transaction as a source logs it, first committed at `original`, and there at `immediate`.
    pub(crate) fn logged(&self, index: usize, original: u64, immediate: u64) -> Vec<RawEvent> {
        let transaction = &self.transactions[index];
        let mut events = transaction.events.clone();
        events[0] = gtid_event_of(&transaction.gtid, original, immediate);
        events
    }

    pub(crate) fn index_of(&self, gtid: &Gtid) -> usize {
        let found = self.transactions.iter().position(|one| one.gtid == *gtid);
        found.expect("one of the history")
    }

    /// The most bytes of a transaction's events, with the commit times of two servers.
    pub(crate) fn largest(&self) -> u64 {
        let of = |index| self.logged(index, 1, 2).iter().map(|event| event.len() as u64).sum();
        (0..self.transactions.len()).map(of).max().unwrap_or_default()
    }

    /// Returns the number of transactions before the first that is not executed.
    pub(crate) fn prefix(&self, executed: &GtidSet) -> usize {
        let missing = self.transactions.iter().position(|one| !executed.contains(&one.gtid));
        missing.unwrap_or(self.transactions.len())
    }

    /// Returns the contents once these are executed: the first `prefix`, and others in their order.
    pub(crate) fn contents_after(&self, prefix: usize, executed: &GtidSet) -> Cow<'_, Contents> {
        let mut contents = Cow::Borrowed(&self.states[prefix]);
        if prefix as u64 == executed.count() {
            return contents;
        }
        let later = &self.transactions[prefix..];
        let runs = later
            .chunk_by(|one, next| executed.contains(&one.gtid) == executed.contains(&next.gtid));
        for run in runs.filter(|run| executed.contains(&run[0].gtid)) {
            // Net changes: a row that appears and disappears again is never written, and waits for nothing.
            let mut net = BTreeMap::new();
            for transaction in run {
                assert!(!transaction.is_alone, "{} is ahead of others", transaction.gtid);
                for (table, before, after) in &transaction.changes {
                    let row = before.as_ref().or(after.as_ref()).expect("a change");
                    net.entry((table, &row[0])).or_insert((before, after)).1 = after;
                }
            }
            for ((table, _), (before, after)) in net {
                if before != after {
                    write(contents.to_mut(), table, before.as_ref(), after.as_ref());
                }
            }
        }
        contents
    }

    /// A transaction as the relay store has it.
    pub(crate) fn relayed(&self, index: usize) -> RelayedTransaction {
        let transaction = &self.transactions[index];
        let bytes: Vec<u8> =
            transaction.events.iter().flat_map(|event| event.bytes().to_vec()).collect();
        let at = |place: usize| RelayPosition { segment: 1, offset: place as u64 };
        RelayedTransaction {
            header: TransactionHeader::parse(&transaction.events[0]).expect("well-formed"),
            format: Arc::clone(&self.format),
            start: at(index),
            end: at(index + 1),
            ordinal: index as u64 + 1,
            event_bytes: bytes.len() as u64,
            cumulative_bytes: 0,
            body: TransactionBody::Whole(vec![Bytes::from(bytes)]),
        }
    }
}

/// One transaction in the making.
struct Writing<'a> {
    contents: Contents,
    events: Vec<RawEvent>,
    changes: Vec<RowChange>,
    random: &'a mut StdRng,
    /// Those that are open hold rows.
    branches: &'a Branches,
}

fn write(contents: &mut Contents, table: &str, before: Option<&Row>, after: Option<&Row>) {
    let rows = contents.get_mut(table).expect("a table");
    if let Some(before) = before {
        rows.remove(&before[..1]);
    }
    if let Some(after) = after {
        rows.insert(after[..1].to_vec(), after.clone());
    }
}

fn number(value: &Value) -> i32 {
    match value {
        Value::Number(number) => i32::try_from(*number).expect("small"),
        other => panic!("not a number: {other:?}"),
    }
}

fn image(row: &[Value]) -> Vec<u8> {
    let values = row.iter().map(|value| (*value != Value::Null).then(|| number(value)));
    int_image(&values.collect::<Vec<_>>())
}

impl Writing<'_> {
    fn define(&mut self, number: usize, log_columns: &mut usize) -> String {
        let extra: Option<String> =
            self.contents.keys().find(|name| name.starts_with("extra")).cloned();
        let statement = match extra {
            Some(name) if self.random.random_bool(0.5) => {
                self.contents.remove(&name);
                format!("DROP TABLE {name}")
            }
            None if self.random.random_bool(0.5) => {
                self.contents.insert(format!("extra{number}"), Rows::new());
                format!("CREATE TABLE extra{number} (id INT NOT NULL, n INT, PRIMARY KEY (id))")
            }
            _ => {
                let log = self.contents.get_mut("log").expect("it is never dropped");
                log.values_mut().for_each(|row| row.push(Value::Number(7)));
                *log_columns += 1;
                format!("ALTER TABLE log ADD COLUMN more{number} INT NOT NULL DEFAULT 7")
            }
        };
        self.events.push(query_event("app", &statement));
        statement
    }

    fn write(&mut self, number: usize, log_columns: usize) {
        self.events.push(query_event("", "BEGIN"));
        let mut row = vec![Value::from(number as i64); 2];
        row.resize(log_columns, Value::from(3));
        self.change("log", None, Some(row));
        for _ in 0..self.random.random_range(0..6) {
            match self.random.random_range(0..4) {
                0 => self.child(),
                1 => self.extra(),
                _ => self.account(),
            }
        }
        self.events.push(event(EventType::XID, &[0; 8]));
    }

    /// Changes a row and changes it back; false if there is none.
    fn undo(&mut self, random: &mut StdRng) -> bool {
        let is_free = |row: &&Row| !self.branches.has_row(i64::from(number(&row[0])));
        let rows: Vec<&Row> = self.contents["accounts"].values().filter(is_free).collect();
        let Some(row) = rows.choose(random).map(|row| (*row).clone()) else { return false };
        let mut other = row.clone();
        other[1] = Value::from(i64::from(number(&row[1])) + 1);
        self.events.push(query_event("", "BEGIN"));
        self.change("accounts", Some(row.clone()), Some(other.clone()));
        self.change("accounts", Some(other), Some(row));
        self.events.push(event(EventType::XID, &[0; 8]));
        true
    }

    /// Gives a row another key, in the transaction before its end.
    fn move_account(&mut self, random: &mut StdRng) {
        let is_free = |row: &&Row| !self.branches.has_row(i64::from(number(&row[0])));
        let rows: Vec<&Row> = self.contents["accounts"].values().filter(is_free).collect();
        let Some(row) = rows.choose(random).map(|row| (*row).clone()) else { return };
        let id = random.random_range(0..8);
        let is_taken = self.row("accounts", id).is_some() || self.branches.has_row(id);
        if is_taken {
            return;
        }
        let mut moved = row.clone();
        moved[0] = Value::from(id);
        let end = self.events.pop();
        self.change("accounts", Some(row), Some(moved));
        self.events.extend(end);
    }

    fn change(&mut self, table: &str, before: Option<Vec<Value>>, after: Option<Vec<Value>>) {
        write(&mut self.contents, table, before.as_ref(), after.as_ref());
        self.changes.push((table.to_owned(), before.clone(), after.clone()));
        let kind = match (&before, &after) {
            (None, _) => EventType::WRITE_ROWS,
            (_, None) => EventType::DELETE_ROWS,
            _ => EventType::UPDATE_ROWS,
        };
        let images = [before, after].into_iter().flatten().collect::<Vec<_>>();
        let columns = u8::try_from(images[0].len()).expect("few");
        let bytes: Vec<u8> = images.iter().flat_map(|row| image(row)).collect();
        self.events.push(int_table_map(9, "app", table, columns));
        self.events.push(rows_event(kind, 9, columns, &bytes));
    }

    fn row(&mut self, table: &str, id: i64) -> Option<Vec<Value>> {
        self.contents[table].get(&vec![Value::from(id)]).cloned()
    }

    /// An id and a code are free or taken by chance, so rows come, change, trade codes and disappear.
    fn account(&mut self) {
        let id = self.random.random_range(0..8);
        let code = Value::from(self.random.random_range(0..12));
        let is_taken = self.contents["accounts"]
            .values()
            .any(|row| row[2] == code && row[0] != Value::from(id));
        let is_taken = is_taken || self.branches.has_code(&code);
        let code = if is_taken { Value::Null } else { code };
        let balance = Value::from(self.random.random_range(0..1000));
        if self.branches.has_row(id) {
            return;
        }
        let before = self.row("accounts", id);
        let after = vec![Value::from(id), balance, code];
        match before {
            Some(before) if self.random.random_bool(0.3) => {
                self.change("accounts", Some(before), None);
            }
            before => self.change("accounts", before, Some(after)),
        }
    }

    fn child(&mut self) {
        let parent = self.random.random_range(0..4);
        let id = self.random.random_range(0..10);
        let children = &self.contents["children"];
        let has_children = children.values().any(|row| row[1] == Value::from(parent));
        match (self.row("parents", parent), self.row("children", id)) {
            (None, _) => {
                self.change("parents", None, Some(vec![Value::from(parent), Value::from(0)]));
            }
            (Some(row), _) if !has_children && self.random.random_bool(0.5) => {
                self.change("parents", Some(row), None);
            }
            (Some(_), None) => {
                self.change("children", None, Some(vec![Value::from(id), Value::from(parent)]));
            }
            (Some(_), Some(row)) => {
                let moved = vec![Value::from(id), Value::from(parent)];
                let after = self.random.random_bool(0.5).then_some(moved);
                if after.as_ref() != Some(&row) {
                    self.change("children", Some(row), after);
                }
            }
        }
    }

    fn extra(&mut self) {
        let tables: Vec<String> =
            self.contents.keys().filter(|name| name.starts_with("extra")).cloned().collect();
        let Some(table) = tables.choose(self.random).cloned() else { return };
        let id = self.random.random_range(0..5);
        let after = vec![Value::from(id), Value::from(self.random.random_range(0..100))];
        let before = self.row(&table, id);
        if before.as_ref() != Some(&after) {
            self.change(&table, before, Some(after));
        }
    }
}
