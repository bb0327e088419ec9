//! `csa-daemon verify`: equal rows are equal, different rows are named, late rows are neither.

mod keyless;
mod moving;
mod repaired;
mod resumed;
mod rounds;
mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use csa_applier::{TargetGtids, TargetOptions, TlsOptions};
use csa_daemon::verify::{Outcome, TableName, VerifyOptions};
use csa_tests::{Daemon, Load, LoadOptions, Server, eventually, prepare};
use mysql_async::prelude::Queryable as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::DRAIN;

pub(crate) use repaired::repair;

/// The output of a run.
pub(crate) struct Verified {
    code: i32,
    /// The one channel.
    json: Value,
    stderr: String,
}

/// Runs it as the source's admin, who may read the tables.
pub(crate) fn verify(daemon: &Daemon, arguments: &[&str]) -> Verified {
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    let user = ["--source-user", "admin", "--source-password-file", &password];
    let arguments = [&["verify", "--json"], &user[..], arguments].concat();
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    let (code, stdout, stderr) = (said.code.expect("an exit code"), said.out, said.error);
    let json: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
    Verified { code, json: json[0].clone(), stderr }
}

impl Verified {
    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{:#}\n{}", self.json, self.stderr);
        self
    }

    fn tables(&self) -> &[Value] {
        self.json["tables"].as_array().expect("tables")
    }

    pub(crate) fn table(&self, name: &str) -> &Value {
        let found = self.tables().iter().find(|table| table["table"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {:#}", self.json))
    }

    /// Returns `table key kind` of every row that differs.
    pub(crate) fn differences(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for table in self.tables() {
            for row in table["differences"].as_array().expect("differences") {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let mut line = format!(
                    "{} {} {}",
                    text(&table["table"]),
                    text(&row["key"]),
                    text(&row["kind"])
                );
                if let Some(columns) = row["columns"].as_array() {
                    let names: Vec<String> = columns.iter().map(text).collect();
                    line.push_str(&format!(" {}", names.join(",")));
                }
                // The value of a digest must not be shown.
                if let Some((table, rest)) = line.split_once(" digest=") {
                    let kind = rest.split_once(' ').map_or("", |(_, kind)| kind);
                    line = format!("{table} {kind} {}:{}", row["source"], row["target"]);
                }
                found.insert(line);
            }
        }
        found
    }
}

/// Tables with every type and its edges.
async fn every_type(source: &Server) {
    let script = include_str!("../../fixtures/everything.sql");
    let mut conn = source.conn().await;
    for statement in script.split("\n/\n") {
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    conn.disconnect().await.expect("disconnects");
}

fn load_options() -> LoadOptions {
    LoadOptions { rate: Some(150.0), ..LoadOptions::default() }
}

/// Every type with its edges, while a load changes rows all the time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn every_type_is_equal_and_so_are_tables_under_load() {
    let (source, target) = Server::pair(&[], &[]);
    every_type(&source).await;
    prepare(&source, &load_options()).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let quiet = verify(&daemon, &[]);
    quiet.assert_code(0);
    assert_eq!(quiet.json["outcome"], "equal");
    assert!(quiet.tables().len() >= 22, "{:#}", quiet.json);
    for (table, rows) in [
        ("everything.numbers", 5),
        ("everything.keyless", 5),
        ("everything.hidden_key", 2),
        ("everything.we`ird näme", 1),
        ("sbtest.sbtest1", 1000),
    ] {
        assert_eq!(quiet.table(table)["rows"], rows, "{table}");
    }
    // The last row of a chunk belongs to it.
    let small = verify(&daemon, &["--chunk-rows", "37", "--table", "sbtest.sbtest1"]);
    assert_eq!(small.assert_code(0).table("sbtest.sbtest1")["rows"], 1000);

    let load = Load::start(&source, &load_options());
    for arguments in [&[][..], &["--chunk-rows", "37"], &["--schema", "sbtest"]] {
        let before = load.committed();
        let busy = verify(&daemon, arguments);
        busy.assert_code(0);
        assert!(load.committed() > before, "nothing happened meanwhile");
        assert!(busy.table("sbtest.sbtest1")["rows"].as_u64() > Some(900), "{:#}", busy.json);
        assert_eq!(busy.table("sbtest.counter")["outcome"], "equal");
    }
    load.stop().await;
}

const TABLES: &str = "CREATE DATABASE d; USE d; \
    CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20) NULL, f FLOAT, g DOUBLE, c CHAR(5), j JSON, \
      b VARBINARY(9), e ENUM('','x') , ts TIMESTAMP(6) NULL, d DECIMAL(20,10), bits BIT(64), \
      big LONGTEXT, v INT AS (id * 2) VIRTUAL, hidden INT INVISIBLE DEFAULT 1); \
    CREATE TABLE names (name VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, part DECIMAL(5,2), v INT, \
      PRIMARY KEY (name, part)); \
    CREATE TABLE by_bytes (k VARBINARY(4) PRIMARY KEY, v INT); \
    CREATE TABLE by_time (k DATETIME(3), e ENUM('z','a'), f FLOAT, v INT, \
      UNIQUE KEY u (k, e), PRIMARY KEY (e, k, f)); \
    CREATE TABLE by_unique (a INT NULL, code CHAR(3) CHARACTER SET latin1 NOT NULL, v INT, \
      UNIQUE KEY (a), UNIQUE KEY (code)); \
    CREATE TABLE bag (a INT, s VARCHAR(10))";
const ROWS: &str = "USE d; \
    INSERT INTO t (id, s, f, g, c, j, b, e, ts, d, bits, big) SELECT n, 'text', 0.1, 0.1, 'abc', '{\"a\": 1.5}', 'a', 'x', \
      '2024-01-01 00:00:00.5', 1, 1 << 63, IF(n < 20, REPEAT('x', 100000), 'x') FROM (WITH RECURSIVE s AS (SELECT 1 n \
      UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s) q; \
    UPDATE t SET s = NULL WHERE id = 5; \
    INSERT INTO names VALUES ('Ä', 1, 1), ('b', 1.5, 1), ('b', 2.5, 1), ('o''x', 1, 1), ('c', 1, 1); \
    INSERT INTO by_bytes VALUES ('', 1), (x'00', 1), (x'0000', 1), (x'ff', 1); \
    INSERT INTO by_time VALUES ('2024-01-01 00:00:00.001', 'z', 0.1, 1), \
      ('2024-01-01 00:00:00.001', 'a', 0.1, 1), ('2024-01-01 00:00:00.002', 'z', -1.5, 1); \
    INSERT INTO by_unique VALUES (NULL, 'é', 1), (NULL, 'b', 1), (3, 'c', 1); \
    INSERT INTO bag VALUES (1, 'a'), (1, 'a'), (2, 'b'), (NULL, NULL), (NULL, NULL)";

/// A change on the target and the expected output.
const CHANGES: &[(&str, &str)] = &[
    ("UPDATE t SET hidden = 2 WHERE id = 1", "d.t id=1 differs hidden"),
    ("DELETE FROM t WHERE id = 2", "d.t id=2 missing_on_target"),
    ("INSERT INTO t (id) VALUES (1000)", "d.t id=1000 only_on_target"),
    ("INSERT INTO t (id) VALUES (-7)", "d.t id=-7 only_on_target"),
    ("UPDATE t SET s = '' WHERE id = 5", "d.t id=5 differs s"),
    ("UPDATE t SET s = 'text ' WHERE id = 6", "d.t id=6 differs s"),
    ("UPDATE t SET s = 'Text' WHERE id = 7", "d.t id=7 differs s"),
    ("UPDATE t SET f = 0.10000001 WHERE id = 8", "d.t id=8 differs f"),
    ("UPDATE t SET g = 0.10000000000000002 WHERE id = 9", "d.t id=9 differs g"),
    ("UPDATE t SET j = '{\"a\": 1.50001}' WHERE id = 10", "d.t id=10 differs j"),
    ("UPDATE t SET b = x'6100' WHERE id = 11", "d.t id=11 differs b"),
    ("UPDATE t SET e = '' WHERE id = 12", "d.t id=12 differs e"),
    ("UPDATE t SET ts = '2024-01-01 00:00:00.500001' WHERE id = 13", "d.t id=13 differs ts"),
    ("UPDATE t SET d = 1.0000000001 WHERE id = 14", "d.t id=14 differs d"),
    ("UPDATE t SET bits = (1 << 63) + 1 WHERE id = 15", "d.t id=15 differs bits"),
    ("UPDATE t SET big = CONCAT(LEFT(big, 99999), 'y') WHERE id = 16", "d.t id=16 differs big"),
    ("UPDATE t SET s = 'tex', c = 'tabc' WHERE id = 17", "d.t id=17 differs s,c"),
    ("UPDATE t SET id = 5000 WHERE id = 18", "d.t id=18 missing_on_target"),
    ("DO 0", "d.t id=5000 only_on_target"),
    ("UPDATE names SET v = 2 WHERE name = 'ä'", "d.names name='Ä', part=1.00 differs v"),
    (
        "DELETE FROM names WHERE name = 'b' AND part = 2.5",
        "d.names name='b', part=2.50 missing_on_target",
    ),
    ("UPDATE names SET v = 2 WHERE name = 'o''x'", "d.names name='o\\'x', part=1.00 differs v"),
    // The keys are equal by the collation, but not by bytes.
    (
        "UPDATE names SET name = 'C' WHERE name = 'c'",
        "d.names name='c', part=1.00 missing_on_target",
    ),
    ("DO 0", "d.names name='C', part=1.00 only_on_target"),
    ("UPDATE by_bytes SET v = 2 WHERE k = x'00'", "d.by_bytes k=0x00 differs v"),
    ("DELETE FROM by_bytes WHERE k = ''", "d.by_bytes k=0x missing_on_target"),
    (
        "UPDATE by_time SET v = 2 WHERE e = 'a'",
        "d.by_time e=2, k='2024-01-01 00:00:00.001', f=0.10000000149011612 differs v",
    ),
    ("UPDATE by_unique SET a = 9 WHERE code = 'é'", "d.by_unique code='é' differs a"),
    ("DELETE FROM bag WHERE a = 1 LIMIT 1", "d.bag count 2:1"),
    ("INSERT INTO bag VALUES (2, 'b'), (NULL, '')", "d.bag count 1:2"),
    ("DO 0", "d.bag count 0:1"),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn every_difference_is_found_and_named_by_key() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec(TABLES).await;
    source.exec(ROWS).await;
    prepare(&source, &load_options()).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    verify(&daemon, &[]).assert_code(0);

    let mut conn = target.conn().await;
    conn.query_drop("USE d").await.expect("d");
    for (change, _) in CHANGES {
        conn.query_drop(*change).await.unwrap_or_else(|error| panic!("{change}: {error}"));
    }
    conn.query_drop("DELETE FROM sbtest.sbtest2 WHERE id = 77").await.expect("deletes");
    conn.query_drop("ALTER TABLE sbtest.sbtest2 DROP KEY k_2").await.expect("indexes may differ");
    conn.disconnect().await.expect("disconnects");
    let mut wanted: BTreeSet<String> =
        CHANGES.iter().map(|(_, found)| (*found).to_owned()).collect();
    wanted.insert("sbtest.sbtest2 id=77 missing_on_target".to_owned());

    // While the source is idle, and with small chunks while it is not.
    let quiet = verify(&daemon, &[]);
    quiet.assert_code(1);
    assert_eq!(quiet.differences(), wanted);
    assert!(quiet.stderr.contains("channel \"test\": target differs from source"));
    // Row 77 must stay, because a deleted one stops the channel.
    source.exec("CREATE DATABASE busy").await;
    let options = LoadOptions { schema: "busy".to_owned(), ..load_options() };
    prepare(&source, &options).await;
    let load = Load::start(&source, &options);
    let busy = verify(&daemon, &["--chunk-rows", "100"]);
    load.stop().await;
    busy.assert_code(1);
    assert_eq!(busy.differences(), wanted);
    assert!(busy.tables().iter().all(|table| table["outcome"] != "unstable"), "{:#}", busy.json);
    assert_eq!(daemon.status()["channels"][0]["state"], "running", "{}", daemon.log_tail());

    let part = verify(&daemon, &["--table", "d.names", "--table", "busy.account"]);
    part.assert_code(1);
    assert_eq!(part.tables().len(), 2);
    let few = verify(&daemon, &["--schema", "d", "--max-differences", "3"]);
    few.assert_code(1);
    assert_eq!(few.table("d.t")["differences"].as_array().map(Vec::len), Some(3));
    let left_out = few.table("d.t")["left_out"].as_str().expect("said");
    assert!(left_out.contains("--max-differences 3"), "{left_out}");
    assert_eq!(verify(&daemon, &["--table", "sbtest.account"]).assert_code(0).tables().len(), 1);
}

/// Servers cut some of these numbers where they are made a text.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_compared_to_their_last_bit() {
    let numbers: [f64; 8] = [
        -1.234_567_890_123_456_8e-10,
        -1.234_567_890_123_456_8e-300,
        1.234_567_890_123_456_8e-300,
        -0.000_123_456_789_012_345_67,
        1.234_567_890_123_456_7,
        -1.797_693_134_862_315_5e308,
        5e-324,
        0.0,
    ];
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, g DOUBLE, f FLOAT)")
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    for (id, number) in numbers.iter().enumerate() {
        let narrow = if number.abs() < 1e30 { *number as f32 } else { -1.5e30 };
        source
            .exec(&format!("INSERT INTO d.t VALUES ({id}, {number:e}, {:e})", f64::from(narrow)))
            .await;
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    verify(&daemon, &[]).assert_code(0);
    let mut expected = BTreeSet::new();
    for (id, number) in numbers.iter().enumerate() {
        let next = f64::from_bits(number.to_bits() + 1);
        target.exec(&format!("UPDATE d.t SET g={next:e} WHERE id={id}")).await;
        expected.insert(format!("d.t id={id} differs g"));
    }
    let found = verify(&daemon, &[]);
    assert_eq!(found.assert_code(1).differences(), expected);
}
