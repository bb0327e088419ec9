//! A random load of what every supported version knows: all types, several clients, definitions that
//! change in between.

use std::fmt::Write as _;

use csa_tests::Server;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;

/// Tables of a seed.
const TABLES: usize = 4;
/// Clients of a seed, the first of which also changes definitions.
const CLIENTS: u64 = 3;
/// Transactions of each client.
const TRANSACTIONS: u32 = 60;

/// A type, and values for it, as a source writes them.
const TYPES: [(&str, &[&str]); 23] = [
    ("TINYINT", &["-128", "127", "0"]),
    ("SMALLINT UNSIGNED", &["65535", "0", "32768"]),
    ("MEDIUMINT UNSIGNED", &["16777215", "8388608", "1"]),
    ("INT UNSIGNED", &["4294967295", "2147483648", "7"]),
    ("BIGINT UNSIGNED", &["18446744073709551615", "9223372036854775808", "1"]),
    ("BIGINT", &["-9223372036854775808", "9223372036854775807", "-1"]),
    ("DECIMAL(20,6)", &["-12345678901234.000001", "99999999999999.999999", "0.5"]),
    ("FLOAT", &["0.1", "-1.5e30", "16777217"]),
    ("DOUBLE", &["0.1", "1e300", "-5e-324"]),
    ("BIT(17)", &["b'10000000000000001'", "0", "131071"]),
    ("YEAR", &["1901", "2155", "2026"]),
    ("DATE", &["'2024-02-29'", "'1000-01-01'", "'9999-12-31'"]),
    ("TIME(3)", &["'-838:59:58.125'", "'00:00:00.5'", "'23:59:59'"]),
    ("DATETIME(6)", &["'2024-02-29 23:59:59.999999'", "'1000-01-01 00:00:00'", "NOW(6)"]),
    ("TIMESTAMP(2) NULL", &["'2038-01-19 03:14:07'", "'1970-01-02 00:00:01.25'", "NOW(2)"]),
    ("CHAR(8)", &["'a '", "'ÄÖÜ'", "''"]),
    ("VARCHAR(60)", &["'größe'", "'😀'", "REPEAT('x',60)"]),
    ("VARCHAR(20) CHARACTER SET latin1", &["_latin1 0xE9E8", "'plain'", "''"]),
    ("VARBINARY(30)", &["0x00FF00", "''", "REPEAT(0x7F,30)"]),
    ("MEDIUMTEXT", &["REPEAT('wörter ',300)", "'short'", "''"]),
    ("MEDIUMBLOB", &["REPEAT(0x00FF27,500)", "0x5C", "''"]),
    ("ENUM('a','b','ü')", &["'a'", "'ü'", "2"]),
    ("SET('x','y','z')", &["'x,z'", "''", "7"]),
];
const DOCUMENTS: (&str, &[&str]) =
    ("JSON", &["'{\"a\": [1, 2.5, null, true], \"ä\": \"b\"}'", "'[]'", "'\"text\"'"]);

/// A table: its name, and its columns apart from the key as indexes of [`TYPES`].
#[derive(Debug, Clone)]
pub(crate) struct Table {
    name: String,
    columns: Vec<usize>,
}

impl Table {
    fn any(schema: &str, number: usize, random: &mut StdRng) -> Self {
        let count = random.random_range(3..=9);
        let columns = (0..count).map(|_| random.random_range(0..=TYPES.len())).collect();
        Self { name: format!("{schema}.t{number}"), columns }
    }

    fn create(&self, random: &mut StdRng) -> String {
        let mut text =
            format!("CREATE TABLE {} (id INT AUTO_INCREMENT, part INT NOT NULL", self.name);
        for (place, &column) in self.columns.iter().enumerate() {
            let (sql_type, _) = type_of(column);
            let _ = write!(text, ", c{place} {sql_type}");
        }
        text.push_str(match random.random_range(0..3) {
            0 => ", PRIMARY KEY (id))",
            1 => ", PRIMARY KEY (part,id), KEY (id))",
            _ => ", UNIQUE KEY (id), KEY (part))",
        });
        text + " ENGINE=InnoDB"
    }

    fn insert(&self, random: &mut StdRng) -> String {
        let columns: String = (0..self.columns.len()).map(|place| format!(",c{place}")).collect();
        let row = |random: &mut StdRng| {
            let values: String =
                self.columns.iter().map(|&column| format!(",{}", value(column, random))).collect();
            format!("({}{values})", random.random_range(0..20))
        };
        let rows: Vec<String> = (0..random.random_range(1..6)).map(|_| row(random)).collect();
        format!("INSERT INTO {} (part{columns}) VALUES {}", self.name, rows.join(","))
    }

    fn change(&self, random: &mut StdRng) -> String {
        let place = random.random_range(0..self.columns.len());
        let part = random.random_range(0..20);
        let name = &self.name;
        match random.random_range(0..6) {
            0 | 1 => self.insert(random),
            2 | 3 => format!(
                "UPDATE {name} SET c{place}={} WHERE part={part}",
                value(self.columns[place], random)
            ),
            4 => format!("UPDATE {name} SET part={} WHERE part={part}", random.random_range(0..20)),
            _ => format!("DELETE FROM {name} WHERE part={part} ORDER BY id LIMIT 3"),
        }
    }
}

fn type_of(column: usize) -> (&'static str, &'static [&'static str]) {
    TYPES.get(column).copied().unwrap_or(DOCUMENTS)
}

fn value(column: usize, random: &mut StdRng) -> &'static str {
    let (_, values) = type_of(column);
    match random.random_bool(0.1) {
        true => "NULL",
        false => values.choose(random).expect("values"),
    }
}

/// Kinds of definitions.
const KINDS: u32 = 8;
pub(crate) const EVERY_KIND: [u32; KINDS as usize] = [0, 1, 2, 3, 4, 5, 6, 7];
/// Definitions without a definer.
pub(crate) const WITHOUT_VIEWS: [u32; KINDS as usize - 1] = [0, 1, 2, 3, 4, 5, 6];

/// Returns the definitions that a source may change while it is written.
fn definition(table: &str, number: u32) -> String {
    match number % KINDS {
        0 => format!("ALTER TABLE {table} ADD COLUMN extra_{number} VARCHAR(10) DEFAULT 'ä'"),
        1 => format!("CREATE INDEX key_{number} ON {table} (part)"),
        2 => format!("CREATE TABLE {table}_{number} LIKE {table}"),
        3 => format!("INSERT INTO {table}_{} SELECT * FROM {table}", number - 1),
        4 => format!("RENAME TABLE {table}_{} TO {table}_{number}", number - 2),
        5 => format!("TRUNCATE TABLE {table}_{}", number - 1),
        6 => format!("ALTER TABLE {table}_{} COMMENT 'größe'", number - 2),
        _ => format!("CREATE OR REPLACE VIEW {table}_view AS SELECT id FROM {table}"),
    }
}

/// Makes the tables of a seed.
///
/// `plain`: with a table whose collation is the default of the source's version, which MariaDB may not
/// have.
pub(crate) async fn prepare(source: &Server, schema: &str, seed: u64, plain: bool) -> Vec<Table> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut conn = source.conn().await;
    // Every version and vendor knows this collation.
    let database =
        format!("CREATE DATABASE {schema} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
    execute(&mut conn, &database).await;
    if plain {
        execute(
            &mut conn,
            &format!("CREATE TABLE {schema}.plain (a CHAR(9) CHARACTER SET utf8mb4)"),
        )
        .await;
    }
    let mut tables = Vec::new();
    for number in 0..TABLES {
        let table = Table::any(schema, number, &mut random);
        execute(&mut conn, &table.create(&mut random)).await;
        tables.push(table);
    }
    conn.disconnect().await.expect("disconnects");
    tables
}

/// Writes the tables with several clients, the first of which changes definitions if it may.
pub(super) async fn write(source: &Server, tables: &[Table], seed: u64, definitions: bool) {
    write_as(source.opts(), tables, seed, if definitions { &EVERY_KIND } else { &[] }).await;
}

/// The same by another account; `kinds` are the definitions of the first client.
pub(crate) async fn write_as(opts: Opts, tables: &[Table], seed: u64, kinds: &'static [u32]) {
    let mut clients = JoinSet::new();
    let first = seed * 100 + if kinds.is_empty() { CLIENTS } else { 0 };
    for number in 0..CLIENTS {
        let kinds = if number == 0 { kinds } else { &[] };
        let seed = first + number;
        clients.spawn(client(opts.clone(), tables.to_vec(), seed, kinds));
    }
    while let Some(client) = clients.join_next().await {
        let committed = client.expect("a client");
        assert!(committed > TRANSACTIONS / 2, "a client committed only {committed} transactions");
    }
}

/// Returns the transactions committed.
async fn client(opts: Opts, tables: Vec<Table>, seed: u64, kinds: &[u32]) -> u32 {
    let mut random = StdRng::seed_from_u64(seed);
    let mut conn = Conn::new(opts).await.expect("connects");
    // The other half of the clients has its server's default modes, which later versions do not know.
    if seed.is_multiple_of(2) {
        execute(&mut conn, "SET sql_mode='', time_zone='+02:00'").await;
    }
    let mut committed = 0;
    for number in 0..TRANSACTIONS {
        let table = tables.choose(&mut random).expect("tables");
        if number % 5 == 4 && kinds.contains(&(number / 5 % KINDS)) {
            attempt(&mut conn, &definition(&tables[0].name, number / 5)).await;
        }
        execute(&mut conn, "BEGIN").await;
        let mut worked = true;
        for _ in 0..random.random_range(1..5) {
            worked &= attempt(&mut conn, &table.change(&mut random)).await;
        }
        let end = if random.random_bool(0.1) { "ROLLBACK" } else { "COMMIT" };
        execute(&mut conn, end).await;
        committed += u32::from(worked && end == "COMMIT");
    }
    conn.disconnect().await.expect("disconnects");
    committed
}

/// Returns `false` when the server refuses it: out of range, a duplicate, a deadlock.
async fn attempt(conn: &mut Conn, statement: &str) -> bool {
    match conn.query_drop(statement).await {
        Ok(()) => true,
        Err(Error::Server(error)) => {
            let is_mistake = [1054, 1064].contains(&error.code);
            assert!(!is_mistake, "{statement}: {error}");
            false
        }
        Err(error) => panic!("{statement}: {error}"),
    }
}

async fn execute(conn: &mut Conn, statement: &str) {
    let outcome = conn.query_drop(statement).await;
    outcome.unwrap_or_else(|error| panic!("{statement}: {error}"));
}
