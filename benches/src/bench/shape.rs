//! The shapes of load: which tables they need and what a transaction of each does.

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::families::Families;
use super::sizes::Sizes;
use super::transaction::Transaction;

/// Characters of a wide row's body.
pub(super) const WIDE: usize = 4096;
/// Transactions of a backlog with one change each, unless the options say how many.
const TRANSACTIONS: u64 = 40_000;
/// Rows that take all updates of `hot-row`.
const HOT_ROWS: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum Shape {
    /// One update of a column without index in each transaction.
    #[value(name = "updates-1")]
    #[serde(rename = "updates-1")]
    Updates1,
    /// Ten of them.
    #[value(name = "updates-10")]
    #[serde(rename = "updates-10")]
    Updates10,
    /// Index update, non-index update, and delete and insert of one id in each transaction.
    #[serde(rename = "write-only")]
    WriteOnly,
    /// One insert in each transaction.
    #[serde(rename = "insert-only")]
    InsertOnly,
    /// The load updates-1, but on 16 rows.
    #[serde(rename = "hot-row")]
    HotRow,
    /// The load updates-1, but on rows of 4 KiB.
    #[serde(rename = "wide-row")]
    WideRow,
    /// One update of --bulk-rows rows in each transaction.
    #[serde(rename = "bulk")]
    Bulk,
    /// Parents with children inserted, updated and deleted under RESTRICT foreign keys.
    #[serde(rename = "fk")]
    Fk,
}

/// The state from which a session makes its transactions; it depends on the seed alone.
#[derive(Debug)]
pub(super) struct Client {
    random: StdRng,
    families: Families,
}

impl Client {
    /// A different sequence for each load: repeating the values of the first would change nothing.
    pub(super) fn new(shape: Shape, seed: u64, number: u32) -> Self {
        let own = (shape as u64 + 1) << 48 | u64::from(number) << 32;
        Self { random: StdRng::seed_from_u64(seed ^ own), families: Families::new(number) }
    }
}

impl Shape {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the schema whose tables it changes.
    pub(super) fn schema(self) -> &'static str {
        match self {
            Self::WideRow => "wide",
            Self::Fk => "families",
            _ => "sbtest",
        }
    }

    /// The share of a backlog of single changes that takes about as long.
    pub(super) fn backlog(self, sizes: &Sizes) -> u64 {
        let divisor = match self {
            Self::Updates1 | Self::InsertOnly => 1,
            Self::HotRow | Self::Fk => 2,
            Self::WriteOnly | Self::WideRow => 4,
            Self::Updates10 => 5,
            Self::Bulk => sizes.bulk_rows,
        };
        (sizes.transactions.unwrap_or(TRANSACTIONS) / divisor).max(1)
    }

    pub(super) fn next(self, sizes: &Sizes, client: &mut Client) -> Transaction {
        let random = &mut client.random;
        match self {
            Self::Updates1 => updates(1, sizes, random),
            Self::Updates10 => updates(10, sizes, random),
            Self::WriteOnly => write_only(sizes, random),
            Self::InsertOnly => insert(sizes, random),
            Self::HotRow => {
                let id = random.random_range(1..=HOT_ROWS.min(sizes.rows));
                Transaction::of(&[non_index_update("sbtest.sbtest1", id, random)], 1)
            }
            Self::WideRow => {
                let id = random.random_range(1..=sizes.wide_rows);
                let body = wide_body(random);
                let update = format!("UPDATE wide.page SET body='{body}' WHERE id={id}");
                Transaction::of(&[update], 1)
            }
            Self::Bulk => bulk(sizes, random),
            Self::Fk => client.families.next(random),
        }
    }
}

fn updates(count: u64, sizes: &Sizes, random: &mut StdRng) -> Transaction {
    let statements: Vec<String> = (0..count)
        .map(|_| {
            let (table, id) = any_row(sizes, random);
            non_index_update(&table, id, random)
        })
        .collect();
    Transaction::of(&statements, count)
}

/// Returns the neighbours in one table.
fn bulk(sizes: &Sizes, random: &mut StdRng) -> Transaction {
    let table = random.random_range(1..=sizes.tables);
    let count = sizes.bulk_rows.min(sizes.rows);
    let first = random.random_range(1..=sizes.rows - count + 1);
    let (text, last) = (digits(random, 10), first + count - 1);
    let update =
        format!("UPDATE sbtest.sbtest{table} SET c='{text}' WHERE id BETWEEN {first} AND {last}");
    Transaction::of(&[update], count)
}

fn write_only(sizes: &Sizes, random: &mut StdRng) -> Transaction {
    let (table, id) = any_row(sizes, random);
    let index_update = format!("UPDATE {table} SET k=k+1 WHERE id={id}");
    let (table, id) = any_row(sizes, random);
    let non_index_update = non_index_update(&table, id, random);
    let (table, id) = any_row(sizes, random);
    let values = values(sizes, random);
    let statements = [
        index_update,
        non_index_update,
        format!("DELETE FROM {table} WHERE id={id}"),
        format!("INSERT INTO {table} (id,k,c,pad) VALUES ({id},{values})"),
    ];
    Transaction::of(&statements, 4)
}

fn insert(sizes: &Sizes, random: &mut StdRng) -> Transaction {
    let (table, _) = any_row(sizes, random);
    let values = values(sizes, random);
    Transaction::of(&[format!("INSERT INTO {table} (k,c,pad) VALUES ({values})")], 1)
}

fn non_index_update(table: &str, id: u64, random: &mut StdRng) -> String {
    format!("UPDATE {table} SET c='{}' WHERE id={id}", digits(random, 10))
}

fn any_row(sizes: &Sizes, random: &mut StdRng) -> (String, u64) {
    let table = random.random_range(1..=sizes.tables);
    (format!("sbtest.sbtest{table}"), random.random_range(1..=sizes.rows))
}

/// Values of k, c and pad.
fn values(sizes: &Sizes, random: &mut StdRng) -> String {
    let k = random.random_range(1..=sizes.rows);
    format!("{k},'{}','{}'", digits(random, 10), digits(random, 5))
}

/// sysbench's strings: groups of eleven digits.
fn digits(random: &mut StdRng, groups: usize) -> String {
    let group = |_| format!("{:011}", random.random_range(0..100_000_000_000_u64));
    (0..groups).map(group).collect::<Vec<_>>().join("-")
}

pub(super) fn wide_body(random: &mut StdRng) -> String {
    let letter = |_| char::from(random.random_range(b'a'..=b'z'));
    (0..WIDE).map(letter).collect()
}
