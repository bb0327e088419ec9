//! A source's history from a seed: transactions as their events, and the tables after each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use csa_provider::test_util::{
    event, format_description, gtid_event, int_image, int_table_map, query_event, rows_event,
};
use csa_provider::{EventType, FormatDescription, Gtid, RawEvent, Tag, TransactionHeader, Uuid};
use csa_relaystore::{RelayPosition, RelayedTransaction, TransactionBody};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::target::{Rows, Value};

pub(super) const SOURCE: Uuid = Uuid::from_bytes([0x5e; 16]);

/// Tables that every copy begins with. `accounts` has codes that move from row to row.
pub(super) const TABLES: [&str; 5] = [
    "CREATE DATABASE IF NOT EXISTS app",
    "CREATE TABLE app.log (id INT NOT NULL, n INT, PRIMARY KEY (id))",
    "CREATE TABLE app.accounts (id INT NOT NULL, balance INT, code INT, PRIMARY KEY (id), UNIQUE KEY (code))",
    "CREATE TABLE app.parents (id INT NOT NULL, n INT, PRIMARY KEY (id))",
    "CREATE TABLE app.children (id INT NOT NULL, parent INT, PRIMARY KEY (id), \
     FOREIGN KEY (parent) REFERENCES parents (id))",
];

/// The rows of each table.
pub(super) type Contents = BTreeMap<String, Rows>;

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) gtid: Gtid,
    pub(super) is_definition: bool,
    events: Vec<RawEvent>,
}

#[derive(Debug)]
pub(super) struct History {
    pub(super) transactions: Vec<Transaction>,
    /// Contents before the first transaction, and after each.
    pub(super) states: Vec<Contents>,
    format: Arc<FormatDescription>,
}

pub(super) fn gtid(number: usize) -> Gtid {
    Gtid { uuid: SOURCE, tag: Tag::untagged(), gno: number as u64 }
}

impl History {
    pub(super) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let names = ["log", "accounts", "parents", "children"];
        let contents: Contents =
            names.map(|name| (name.to_owned(), Rows::new())).into_iter().collect();
        let mut history = Self {
            transactions: Vec::new(),
            states: vec![contents],
            format: Arc::new(format_description()),
        };
        let definitions = if random.random_bool(0.5) { 0.1 } else { 0.0 };
        let length = random.random_range(10..80);
        let mut log_columns = 2;
        for number in 1..=length {
            let contents = history.states.last().expect("one at least").clone();
            let mut writing = Writing { contents, events: Vec::new(), random: &mut random };
            // The log has a row by then, so every definition shows in the contents.
            let is_definition = number > 1 && writing.random.random_bool(definitions);
            match is_definition {
                true => writing.define(number, &mut log_columns),
                false => writing.write(number, log_columns),
            }
            let Writing { contents, mut events, .. } = writing;
            let gtid = gtid(number);
            events.insert(0, gtid_event(&gtid, 1_700_000_000_000_000 + number as u64));
            history.transactions.push(Transaction { gtid, is_definition, events });
            history.states.push(contents);
        }
        history
    }

    /// A transaction as the relay store has it.
    pub(super) fn relayed(&self, index: usize) -> RelayedTransaction {
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
    random: &'a mut StdRng,
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
    fn define(&mut self, number: usize, log_columns: &mut usize) {
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

    fn change(&mut self, table: &str, before: Option<Vec<Value>>, after: Option<Vec<Value>>) {
        let rows = self.contents.get_mut(table).expect("a table");
        if let Some(before) = &before {
            rows.remove(&before[..1]);
        }
        if let Some(after) = &after {
            rows.insert(after[..1].to_vec(), after.clone());
        }
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
        let code = if is_taken { Value::Null } else { code };
        let balance = Value::from(self.random.random_range(0..1000));
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
