//! Random loads in which nearly everything touches the same rows, with every kind of key: whatever
//! runs in parallel, the target ends equal to the source.

use std::time::Duration;

use csa_tests::{Clients, Compare, Compared, Daemon, MakeTransaction, Server};
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::DRAIN;
use crate::crash::mid_drain;
use crate::relations;

const CLIENTS: u32 = 6;

/// A table of a key column `k`, another one `u`, and a number `v`.
struct Table {
    name: &'static str,
    k: Values,
    u: Values,
    columns: &'static str,
    collation: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Values {
    Numbers,
    Words,
    Floats,
    Times,
    Choices,
}
use Values::{Choices, Floats, Numbers, Times, Words};

/// Strings that one collation or another calls equal: case, accents, width, trailing spaces,
/// expansions, contractions, characters without weight, and the same first characters.
pub(crate) const WORDS: [&str; 61] = [
    "",
    " ",
    "a",
    "A",
    "a ",
    "A  ",
    "á",
    "Á",
    "ä",
    "Ä",
    "a\u{301}",
    "a\u{ad}",
    "ａ",
    "æ",
    "ae",
    "Æ",
    "ß",
    "ss",
    "SS",
    "o",
    "ø",
    "ö",
    "Ö ",
    "é",
    "e",
    "E\u{301}",
    "ñ",
    "n",
    "ĳ",
    "ij",
    "ﬁ",
    "fi",
    "i",
    "I",
    "İ",
    "ı",
    "l",
    "l·",
    "ŀ",
    "c",
    "ch",
    "CH",
    "ccs",
    "cscs",
    "CSCS",
    "か",
    "カ",
    "ガ",
    "か\u{3099}",
    "日本語",
    "日本人",
    "日本",
    "😀😀a",
    "😀😁a",
    "😀😀b",
    "xyz1",
    "xyz2",
    "XYZ",
    "xy\t",
    "xy",
    "€",
];

impl Values {
    fn any(self, random: &mut StdRng) -> String {
        let mut one_of = |values: &[&str]| format!("'{}'", values.choose(random).unwrap_or(&""));
        match self {
            Words => one_of(&WORDS),
            Floats => one_of(&["0", "-0", "1.5", "-1.5", "1e-30", "0.1", "3e7", "2"]),
            Choices => one_of(&["x", "y", "z", "X"]),
            Numbers => random.random_range(1..50).to_string(),
            Times => format!("'2026-01-01 00:00:0{:.1}'", random.random_range(0.0..5.0)),
        }
    }
}

const fn table(
    name: &'static str,
    (k, u): (Values, Values),
    columns: &'static str,
    collation: &'static str,
) -> Table {
    Table { name, k, u, columns, collation }
}

const STRINGS: &str = "k VARCHAR(9) PRIMARY KEY, u VARCHAR(9) UNIQUE";
const PADDED: &str = "k CHAR(9) PRIMARY KEY, u VARCHAR(9) UNIQUE";
const COMPOSITE: &str =
    "k INT, u VARCHAR(9), w INT AS (v % 3) STORED NOT NULL, PRIMARY KEY (k, w), UNIQUE (u, v)";

/// Any value but a collation named below means `utf8mb4_0900_ai_ci`.
const TABLES: [Table; 21] = [
    table("ints", (Numbers, Numbers), "k INT PRIMARY KEY, u INT UNIQUE", ""),
    table("no_primary", (Numbers, Numbers), "k INT UNIQUE, u INT UNIQUE", ""),
    table("not_null", (Numbers, Words), "k INT NOT NULL UNIQUE, u VARCHAR(9) UNIQUE", ""),
    table("keyless", (Numbers, Words), "k INT, u VARCHAR(9)", ""),
    table("index_only", (Numbers, Words), "k INT, u VARCHAR(9), KEY (k)", ""),
    table("composite", (Numbers, Words), COMPOSITE, ""),
    table("ai_ci", (Words, Words), STRINGS, ""),
    table("as_cs", (Words, Words), STRINGS, "COLLATE utf8mb4_0900_as_cs"),
    table("bin", (Words, Words), PADDED, "COLLATE utf8mb4_bin"),
    table("general", (Words, Words), PADDED, "COLLATE utf8mb4_general_ci"),
    table("unicode", (Words, Words), STRINGS, "COLLATE utf8mb4_unicode_ci"),
    table("lithuanian", (Words, Words), STRINGS, "COLLATE utf8mb4_lithuanian_ci"),
    table("hungarian", (Words, Words), STRINGS, "COLLATE utf8mb4_hu_0900_ai_ci"),
    table("swedish", (Words, Words), PADDED, "COLLATE latin1_swedish_ci"),
    table("german", (Words, Words), STRINGS, "COLLATE latin1_german2_ci"),
    table("prefix", (Numbers, Words), "k INT PRIMARY KEY, u TEXT, UNIQUE (u(2))", ""),
    table(
        "prefix_pad",
        (Numbers, Words),
        "k INT PRIMARY KEY, u TEXT, UNIQUE (u(3))",
        "COLLATE utf8mb4_general_ci",
    ),
    table("bytes", (Words, Words), "k VARBINARY(20) PRIMARY KEY, u BINARY(20) UNIQUE", ""),
    table(
        "functional",
        (Numbers, Words),
        "k INT PRIMARY KEY, u VARCHAR(9), UNIQUE ((LOWER(u)))",
        "",
    ),
    table("floats", (Floats, Floats), "k DOUBLE PRIMARY KEY, u FLOAT UNIQUE", ""),
    table("kinds", (Times, Choices), "k DATETIME(1) PRIMARY KEY, u ENUM('x','y','z') UNIQUE", ""),
];

/// Wide rows fill groups, so that a backlog of a few thousand transactions makes many.
pub(crate) async fn prepare_filler(source: &Server) {
    source.exec("CREATE DATABASE IF NOT EXISTS filler").await;
    source
        .exec("CREATE TABLE IF NOT EXISTS filler.t (id INT PRIMARY KEY AUTO_INCREMENT, c TEXT)")
        .await;
}

pub(crate) fn fill(random: &mut StdRng, statements: &mut Vec<String>) {
    if random.random_bool(0.5) {
        let rows = ["(REPEAT('x',3000))"; 12].join(",");
        statements.push(format!("INSERT INTO filler.t (c) VALUES {rows}"));
    }
}

pub(crate) async fn prepare(source: &Server) {
    prepare_tables(source, &TABLES.each_ref()).await;
}

/// Returns the tables whose keys MariaDB supports: no collation of Unicode 9.0, no generated or
/// functional primary key, no negative zero.
fn shared_tables() -> Vec<&'static Table> {
    const OF_MYSQL: [&str; 5] = ["composite", "as_cs", "hungarian", "functional", "floats"];
    TABLES.iter().filter(|table| !OF_MYSQL.contains(&table.name)).collect()
}

/// The source's default collation must exist on both servers.
pub(crate) async fn prepare_for_mariadb(source: &Server) {
    prepare_tables(source, &shared_tables()).await;
}

pub(crate) fn conflicting_on_mariadb(_: u32, random: &mut StdRng) -> Vec<String> {
    conflicting_in(&shared_tables(), random)
}

async fn prepare_tables(source: &Server, tables: &[&Table]) {
    source.exec("CREATE DATABASE c").await;
    prepare_filler(source).await;
    for Table { name, columns, collation, .. } in tables {
        source.exec(&format!("CREATE TABLE c.{name} (v INT, {columns}) {collation}")).await;
    }
}

/// Moves values between rows in every possible way.
pub(crate) fn conflicting(_: u32, random: &mut StdRng) -> Vec<String> {
    conflicting_in(&TABLES.each_ref(), random)
}

fn conflicting_in(tables: &[&Table], random: &mut StdRng) -> Vec<String> {
    let mut statements = Vec::new();
    for _ in 0..random.random_range(1..4) {
        if let Some(table) = tables.choose(random) {
            change(table, random, &mut statements);
        }
    }
    fill(random, &mut statements);
    statements
}

fn change(table: &Table, random: &mut StdRng, statements: &mut Vec<String>) {
    let t = format!("c.{}", table.name);
    let v = random.random_range(0..9);
    let (k, other) = (table.k.any(random), table.k.any(random));
    let u = if random.random_bool(0.2) { "NULL".to_owned() } else { table.u.any(random) };
    let mut add = |statement| statements.push(statement);
    match random.random_range(0..14) {
        0..3 => add(format!("INSERT INTO {t} (k,u,v) VALUES ({k},{u},{v})")),
        3 => add(format!("UPDATE {t} SET v=v+1 WHERE k={k}")),
        4 => add(format!("UPDATE {t} SET k={other} WHERE k={k}")),
        5 => add(format!("UPDATE {t} SET u={u} WHERE k={k}")),
        6 => {
            // Two rows exchange their values.
            add(format!("SELECT MAX(u) INTO @a FROM {t} WHERE k={k}"));
            add(format!("SELECT MAX(u) INTO @b FROM {t} WHERE k={other}"));
            add(format!("UPDATE {t} SET u=NULL WHERE k IN ({k},{other})"));
            add(format!("UPDATE {t} SET u=@b WHERE k={k}"));
            add(format!("UPDATE {t} SET u=@a WHERE k={other}"));
        }
        7 => add(format!("DELETE FROM {t} WHERE k={k}")),
        8 => {
            add(format!("DELETE FROM {t} WHERE k={k}"));
            add(format!("INSERT INTO {t} (k,u,v) VALUES ({k},{u},{v})"));
        }
        9 => {
            add(format!("DELETE FROM {t} WHERE u={u}"));
            add(format!("INSERT INTO {t} (k,u,v) VALUES ({k},{u},{v})"));
        }
        10 => add(format!("REPLACE INTO {t} (k,u,v) VALUES ({k},{u},{v})")),
        11 => add(format!(
            "INSERT INTO {t} (k,u,v) VALUES ({k},{u},{v}) ON DUPLICATE KEY UPDATE u={u}, v={v}"
        )),
        12 => add(format!("UPDATE {t} SET v=v+1 WHERE v={v}")),
        _ => add(format!("DELETE FROM {t} WHERE v={v} LIMIT 3")),
    }
}

/// Clients differ in the row images they write.
pub(crate) fn row_images(client: u32) -> &'static str {
    match client % 3 {
        0 => "SET binlog_row_image=FULL, sql_mode=''",
        1 => "SET binlog_row_image=MINIMAL, sql_mode=''",
        _ => "SET binlog_row_image=NOBLOB, sql_mode=''",
    }
}

/// Replicates online, then drains a backlog with the daemon killed several times; equal after both.
pub(crate) async fn both_ways(
    source: &Server,
    target: &Server,
    daemon: &Daemon,
    transaction: MakeTransaction,
) {
    both_ways_comparing(source, target, daemon, transaction, &Compare::new()).await;
}

pub(crate) async fn both_ways_comparing(
    source: &Server,
    target: &Server,
    daemon: &Daemon,
    transaction: MakeTransaction,
    comparison: &Compare,
) {
    let equal = async || -> Compared {
        let compared = comparison.run(source, target).await;
        compared.unwrap_or_else(|difference| panic!("{difference}"))
    };
    let (online, backlog) = (Duration::from_millis(3000), Duration::from_millis(4000));
    let committed = Clients::run(source, CLIENTS, row_images, transaction, online).await;
    daemon.wait_drained(source, target, DRAIN).await;
    equal().await;
    daemon.kill9();
    let backlogged = Clients::run(source, CLIENTS, row_images, transaction, backlog).await;
    assert!(committed > 200 && backlogged > 200, "{committed} and {backlogged}");
    daemon.start_again();
    let mut kills = 0;
    while kills < 4 && mid_drain(daemon).await {
        daemon.kill9();
        daemon.start_again();
        kills += 1;
    }
    daemon.wait_drained(source, target, DRAIN).await;
    let compared = equal().await;
    assert!(compared.rows > 100, "{compared:?}");
    assert!(kills > 0, "the backlog of {backlogged} was gone before the first kill");
    report(daemon, committed + backlogged, kills);
    // Rows and keys unknown to the scheduler would show here first.
    let repaired = daemon.log().contains("applying its transactions one by one");
    assert!(!repaired, "a group met rows of another\n{}", daemon.log_tail());
}

fn report(daemon: &Daemon, committed: u64, kills: u32) {
    let view = &daemon.status()["channels"][0];
    let log = daemon.log();
    let count = |text: &str| log.matches(text).count();
    println!(
        "{committed} transactions, {kills} kills; since the last {} in {} groups, {} let go; \
         in all {} repeated, {} taken apart",
        view["applied_transactions_total"],
        view["applied_groups_total"],
        view["applier"]["lock_inversions_total"],
        count("trying again"),
        count("applying its transactions one by one"),
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn every_key_in_conflict() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source).await;
    let daemon = Daemon::builder(&source, &target).start();
    both_ways(&source, &target, &daemon, conflicting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_in_conflict() {
    let (source, target) = Server::pair(&[], &[]);
    relations::prepare(&source).await;
    let daemon = Daemon::builder(&source, &target).start();
    relations::move_away(&source, &target, &daemon).await;
    both_ways(&source, &target, &daemon, relations::related).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn out_of_commit_order_the_end_is_the_same() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source).await;
    relations::prepare(&source).await;
    let daemon =
        Daemon::builder(&source, &target).set("applier.preserve_commit_order", false).start();
    both_ways(&source, &target, &daemon, |client, random| match client % 2 {
        0 => conflicting(client, random),
        _ => relations::related(client, random),
    })
    .await;
}
