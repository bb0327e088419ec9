//! `csa-daemon verify`: equal rows are equal, different rows are named, late rows are neither.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use csa_applier::{TargetGtids, TargetOptions, TlsOptions};
use csa_daemon::verify::{Outcome, TableName, VerifyOptions};
use csa_tests::{Daemon, Load, LoadOptions, Server, prepare};
use mysql_async::prelude::Queryable as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::DRAIN;

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

    /// `table key kind` of every row that differs.
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

fn load_options() -> LoadOptions {
    LoadOptions { rate: Some(150.0), ..LoadOptions::default() }
}

/// Every type with its edges, while a load changes rows all the time.
#[tokio::test(flavor = "multi_thread")]
async fn every_type_is_equal_and_so_are_tables_under_load() {
    let (source, target) = Server::pair(&[], &[]);
    let script = include_str!("../fixtures/everything.sql");
    let mut conn = source.conn().await;
    for statement in script.split("\n/\n") {
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    conn.disconnect().await.expect("disconnects");
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
    // The same key by the collation, but not by bytes.
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

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_waited_for_and_never_a_difference() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec(TABLES).await;
    source.exec(ROWS).await;
    source.exec("CREATE TABLE d.goes (id INT PRIMARY KEY); INSERT INTO d.goes VALUES (1)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.kill9();
    source
        .exec(
            "USE d; UPDATE t SET s = 'new' WHERE id % 2 = 0; DELETE FROM t WHERE id = 11; \
             INSERT INTO t (id) VALUES (901), (2000); DELETE FROM bag WHERE a = 1 LIMIT 1; \
             INSERT INTO bag VALUES (7, 'c'); UPDATE names SET name = 'zz' WHERE name = 'c'; \
             DROP TABLE goes; CREATE TABLE comes (id INT PRIMARY KEY); \
             INSERT INTO comes VALUES (1); ALTER TABLE by_bytes ADD COLUMN later INT DEFAULT 4",
        )
        .await;
    // Nobody applies it: the output says so, and it is no difference.
    let stalled = verify(&daemon, &["--catch-up-timeout", "2s"]);
    stalled.assert_code(2);
    let error = stalled.json["error"].as_str().expect("an error");
    assert!(error.contains("is channel test running"), "{error}");
    assert!(error.starts_with("comparing d."), "{error}");
    assert_eq!(stalled.differences(), BTreeSet::new());
    for table in ["d.by_bytes", "d.comes", "d.goes", "d.names"] {
        let stalled = verify(&daemon, &["--table", table, "--catch-up-timeout", "1s"]);
        stalled.assert_code(2);
        assert!(stalled.json["error"].to_string().contains(table), "{:#}", stalled.json);
    }

    let late = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(3));
                daemon.start_again();
            });
            verify(&daemon, &[])
        })
    });
    late.assert_code(0);
    let names: Vec<&str> =
        late.tables().iter().filter_map(|table| table["table"].as_str()).collect();
    assert!(names.contains(&"d.comes") && !names.contains(&"d.goes"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_differ_are_said_and_common_columns_compared_on_request() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; USE d; CREATE TABLE wide (id INT PRIMARY KEY, a INT, b VARCHAR(9)); \
             CREATE TABLE gone (id INT PRIMARY KEY); CREATE TABLE keyed (id INT PRIMARY KEY, v INT); \
             INSERT INTO wide VALUES (1,1,'x'),(2,2,'y'); INSERT INTO keyed VALUES (1,1),(2,2)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target
        .exec(
            "USE d; ALTER TABLE wide MODIFY a BIGINT, MODIFY b VARCHAR(9) COLLATE utf8mb4_bin, \
             ADD extra INT; UPDATE wide SET a = 9 WHERE id = 1; DROP TABLE gone; \
             CREATE TABLE odd (id INT PRIMARY KEY); ALTER TABLE keyed DROP PRIMARY KEY, ADD KEY (v)",
        )
        .await;
    let found = verify(&daemon, &[]);
    found.assert_code(1);
    let definition = |table: &str| found.table(table)["definition"].to_string();
    let wide = definition("d.wide");
    for word in
        ["column a is int on the source, bigint", "column b is", "extra is only on the target"]
    {
        assert!(wide.contains(word), "{word} in {wide}");
    }
    assert!(definition("d.gone").contains("missing on the target"));
    assert!(definition("d.odd").contains("only on the target"));
    assert_eq!(found.table("d.wide")["rows"], 0);
    // Without the key on the target its rows are compared as a multiset.
    assert_eq!(found.table("d.keyed")["outcome"], "equal");
    assert_eq!(found.table("d.keyed")["rows"], 2);

    target.exec("UPDATE d.wide SET b = 'z', a = 1").await;
    target.exec("DELETE FROM d.wide WHERE id = 2").await;
    let found = verify(&daemon, &["--table", "d.wide", "--common-columns"]);
    found.assert_code(1);
    assert_eq!(found.differences(), BTreeSet::from(["d.wide id=2 missing_on_target".to_owned()]));
}

/// The library function, with the tables of a channel that filters and renames.
#[tokio::test(flavor = "multi_thread")]
async fn renamed_tables_are_compared_where_they_are() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); \
             INSERT INTO d.t VALUES (1, 1), (2, 2); CREATE DATABASE private; \
             CREATE TABLE private.p (id INT PRIMARY KEY)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target
        .exec(
            "CREATE DATABASE copy; CREATE TABLE copy.t LIKE d.t; \
             INSERT INTO copy.t SELECT * FROM d.t; DROP DATABASE private",
        )
        .await;
    let server = |server: &Server| TargetOptions {
        host: "127.0.0.1".to_owned(),
        port: server.port,
        socket: None,
        user: "admin".to_owned(),
        password: "admin_pw".to_owned().into(),
        tls: TlsOptions::default(),
        connect_timeout: Duration::from_secs(10),
        net_timeout: Duration::from_secs(30),
        gtids: TargetGtids::Own,
        executor: None,
    };
    let options = VerifyOptions::new("test", vec![server(&source)], server(&target));
    let selection = |table: &TableName| match table.schema.as_str() {
        "d" => Some(TableName { schema: "copy".to_owned(), table: table.table.clone() }),
        _ => None,
    };
    let report = csa_daemon::verify::verify(&options, &selection, &|_| ()).await;
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.outcome(), Outcome::Equal, "{report:?}");
    let [table] = &report.tables[..] else { panic!("{report:?}") };
    assert_eq!((table.target.to_string().as_str(), table.rows), ("copy.t", 2));

    target.exec("UPDATE copy.t SET v = 3 WHERE id = 2").await;
    let report = csa_daemon::verify::verify(&options, &selection, &|_| ()).await;
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.outcome(), Outcome::Different);
    let text = report.tables[0].to_string();
    assert!(text.starts_with("d.t (copy.t on the target): DIFFERENT, 2 rows"), "{text}");
    assert!(text.contains("id=2: differs in v"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_midway_ends_the_comparison() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rows: 3_000, ..load_options() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let started = Instant::now();
    let (dead, alive) = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(3));
                target.kill9();
            });
            // 12,000 rows would take 12 seconds.
            let dead = verify(&daemon, &["--max-rate", "1000", "--chunk-rows", "100"]);
            (dead, started.elapsed())
        })
    });
    dead.assert_code(2);
    assert!(alive >= Duration::from_secs(2) && alive < Duration::from_secs(10), "{alive:?}");
    let error = dead.json["error"].as_str().expect("an error");
    assert!(error.contains("comparing sbtest.sbtest"), "{error}");
    assert!(error.contains(&format!("target 127.0.0.1:{}: ", target.port)), "{error}");
    assert!(!error.contains('\n'), "{error}");
    assert_eq!(dead.json["outcome"], Value::Null);
    // The tables finished before are reported.
    assert_eq!(dead.table("sbtest.account")["outcome"], "equal");
    tokio::task::block_in_place(|| target.restart());
    daemon.wait_drained(&source, &target, DRAIN).await;
    verify(&daemon, &[]).assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_to_its_rate_and_lets_the_target_catch_up() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &load_options()).await;
    source.exec("CREATE DATABASE other").await;
    source.exec("CREATE TABLE other.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let timed = |arguments: &[&str]| {
        let started = Instant::now();
        (verify(&daemon, arguments), started.elapsed())
    };
    let table = ["--table", "sbtest.sbtest1", "--chunk-rows", "50"];
    let (quick, time) = timed(&table);
    quick.assert_code(0);
    assert!(time < Duration::from_secs(2), "{time:?}");
    let (slow, time) = timed(&[&table[..], &["--max-rate", "400"]].concat());
    slow.assert_code(0);
    assert!(time > Duration::from_millis(2_400) && time < Duration::from_secs(5), "{time:?}");

    // The source is ahead, but not in the tables compared.
    let mut blocker = target.conn().await;
    blocker.query_drop("LOCK TABLES other.t READ").await.expect("locks");
    source.exec("INSERT INTO other.t VALUES (1)").await;
    let lagging = [&table[..], &["--max-lag", "1s", "--catch-up-timeout", "2s"]].concat();
    verify(&daemon, &table).assert_code(0);
    let waiting = verify(&daemon, &lagging);
    waiting.assert_code(2);
    assert!(waiting.json["error"].to_string().contains("no progress"), "{:#}", waiting.json);
    blocker.query_drop("UNLOCK TABLES").await.expect("unlocks");
    daemon.wait_drained(&source, &target, DRAIN).await;
    verify(&daemon, &lagging).assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_compared_is_refused_with_the_way_on() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let said = |arguments: &[&str]| {
        let arguments = [&["verify"], arguments].concat();
        let said = tokio::task::block_in_place(|| daemon.command(&arguments));
        let (code, stdout, stderr) = (said.code.expect("an exit code"), said.out, said.error);
        let last = stderr.lines().last().unwrap_or_default().to_owned();
        (code, stdout, last)
    };
    let (code, stdout, error) = said(&[]);
    assert_eq!(code, 2, "{stdout}{error}");
    assert!(error.contains("GRANT SELECT ON *.* TO 'repl'@'%'"), "{error}");
    assert!(error.contains("--source-user"), "{error}");
    source.exec("GRANT SELECT ON d.* TO repl@'%'").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // It would have nothing to compare with tables that it can't see.
    assert_eq!(said(&[]).0, 2);
    let (code, stdout, error) = said(&["--schema", "d"]);
    assert_eq!(code, 0, "{stdout}{error}");
    assert!(stdout.contains("d.t: equal, 0 rows compared"), "{stdout}");
    source.exec("GRANT SELECT ON *.* TO repl@'%'").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(said(&[]).0, 0);
    for (arguments, words) in [
        (&["--schema", "typo"][..], "--schema typo"),
        (&["--table", "d.typo"], "--table d.typo"),
        (&["--schema", "mysql"], "--schema mysql"),
        (&["--channel", "typo"], "it has test"),
        (&["--source-user", "x", "--source-password-file", "/nowhere"], "/nowhere"),
    ] {
        let (code, stdout, error) = said(arguments);
        assert_eq!(code, 2, "{arguments:?}: {stdout}{error}");
        assert!(error.contains(words), "{words} in {error}");
    }
    let (code, ..) = said(&["--max-lag", "soon"]);
    assert_eq!(code, 2);
    target.exec("INSERT INTO d.t VALUES (3)").await;
    let (code, stdout, error) = said(&[]);
    assert_eq!(code, 1, "{stdout}{error}");
    assert!(stdout.contains("d.t: DIFFERENT") && stdout.contains("id=3: only on the target"));
    assert!(error.contains("target differs from source"), "{error}");

    daemon.kill9();
    source.exec("SET GLOBAL gtid_mode=ON_PERMISSIVE").await;
    let (code, _, error) = said(&[]);
    assert_eq!(code, 2);
    assert!(error.contains("gtid_mode=ON_PERMISSIVE"), "{error}");
    tokio::task::block_in_place(|| source.stop());
    let (code, _, error) = said(&[]);
    assert_eq!(code, 2);
    assert!(error.contains(&format!("source 127.0.0.1:{}", source.port)), "{error}");
}

/// Modes in which the target's own `gtid_executed` shows its progress, or commits come out of order.
#[tokio::test(flavor = "multi_thread")]
async fn positions_are_known_in_every_mode() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &load_options()).await;
    let load = Load::start(&source, &load_options());
    let modes: [&[(&str, toml::Value)]; 2] = [
        &[("applier.commit", "one-to-one".into()), ("applier.target_gtids", "source".into())],
        &[("applier.preserve_commit_order", false.into())],
    ];
    for settings in modes {
        let mut builder = Daemon::builder(&source, &target);
        for (key, value) in settings {
            builder = builder.set(key, value.clone());
        }
        let daemon = builder.start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        verify(&daemon, &[]).assert_code(0);
        target.exec("INSERT INTO sbtest.account VALUES (-1, 0)").await;
        let found = verify(&daemon, &[]);
        found.assert_code(1);
        let extra = "sbtest.account id=-1 only_on_target".to_owned();
        assert_eq!(found.differences(), BTreeSet::from([extra]));
        target.exec("DELETE FROM sbtest.account WHERE id = -1").await;
        assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    }
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filtered_tables_are_left_out_and_rewritten_ones_compared() {
    let (source, target) = Server::pair(&[], &[]);
    // A statement that names a renamed schema would have to be renamed itself.
    source.exec("SET sql_log_bin = 0; CREATE DATABASE d").await;
    target.exec("CREATE DATABASE kept").await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.replicate_ignore_table", vec!["kept.left_out"])
        .set("applier.replicate_rewrite_db.d", "kept")
        .start();
    source
        .exec(
            "CREATE DATABASE e; USE e; CREATE TABLE t (id INT PRIMARY KEY); \
             USE d; CREATE TABLE t (id INT PRIMARY KEY, v INT); \
             CREATE TABLE left_out (id INT PRIMARY KEY); INSERT INTO t VALUES (1, 1), (2, 2); \
             INSERT INTO left_out VALUES (1)",
        )
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let found = verify(&daemon, &[]);
    found.assert_code(0);
    assert_eq!(found.tables().len(), 2, "{:#}", found.json);
    assert_eq!(found.table("d.t")["target"], "kept.t");
    assert_eq!(found.table("d.t")["rows"], 2);
    target.exec("DELETE FROM kept.t WHERE id = 2; CREATE TABLE kept.more (id INT)").await;
    let found = verify(&daemon, &[]);
    found.assert_code(1);
    assert_eq!(found.differences(), BTreeSet::from(["d.t id=2 missing_on_target".to_owned()]));
    assert_eq!(found.table("kept.more")["definition"], json!(["the table is only on the target"]));
    // Two schemas in one: the origin of a row is unknown.
    let mut conn = source.conn().await;
    let unlogged = "SET sql_log_bin = 0; CREATE DATABASE kept; CREATE TABLE kept.t LIKE d.t";
    conn.query_drop(unlogged).await.expect("creates");
    let found = verify(&daemon, &["--table", "d.t"]);
    found.assert_code(2);
    assert!(found.table("d.t")["left_out"].to_string().contains("kept.t"), "{:#}", found.json);
}

/// Updates row 1 back and forth and counts row 2 up, continuously; reports how often at the end.
struct HotRows {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<u64>,
}

impl HotRows {
    fn start(source: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (id, set) in [(1, "n = 1 - n"), (2, "n = n + 1")] {
            let (stop, opts) = (Arc::clone(&stop), source.opts());
            tasks.spawn(async move {
                let mut conn = mysql_async::Conn::new(opts).await.expect("connects");
                let mut updates = 0;
                while !stop.load(Ordering::Relaxed) {
                    let statement = format!("UPDATE d.t SET {set} WHERE id = {id}");
                    conn.query_drop(statement).await.expect("updates");
                    updates += 1;
                }
                updates
            });
        }
        Self { stop, tasks }
    }

    async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut updates = 0;
        while let Some(ended) = self.tasks.join_next().await {
            updates += ended.expect("a client");
        }
        updates
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_change_all_the_time_are_equal_or_unstable_but_not_different() {
    // With full row images the source would repair the difference.
    // Each commit on the target takes a while: it never holds the source's latest value.
    let (source, target) =
        Server::pair(&["--binlog-row-image=MINIMAL"], &["--binlog-group-commit-sync-delay=150000"]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT, v INT); \
             INSERT INTO d.t VALUES (1, 0, 0), (2, 0, 0), (3, 0, 0)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let hot = HotRows::start(&source);
    let mut unlogged = source.conn().await;
    unlogged.query_drop("SET sql_log_bin = 0").await.expect("unlogged");
    unlogged.query_drop("UPDATE d.t SET v = 5 WHERE id = 3").await.expect("updates");
    for _ in 0..2 {
        let found = verify(&daemon, &[]);
        found.assert_code(1);
        assert_eq!(found.differences(), BTreeSet::from(["d.t id=3 differs v".to_owned()]));
        assert_eq!(found.table("d.t")["unstable"], json!([]));
    }
    // A row that changes and differs at once can't be told from a late one.
    unlogged.query_drop("UPDATE d.t SET v = 0 WHERE id = 3").await.expect("updates");
    unlogged.query_drop("UPDATE d.t SET v = 5 WHERE id = 2").await.expect("updates");
    let found = verify(&daemon, &[]);
    found.assert_code(2);
    assert_eq!(found.differences(), BTreeSet::new());
    assert_eq!(found.table("d.t")["unstable"], json!(["id=2"]));
    assert!(found.stderr.contains("kept changing"), "{}", found.stderr);

    let updates = hot.stop().await;
    assert!(updates > 500, "{updates} updates are no load");
    daemon.wait_drained(&source, &target, DRAIN).await;
    let found = verify(&daemon, &[]);
    found.assert_code(1);
    assert_eq!(found.differences(), BTreeSet::from(["d.t id=2 differs v".to_owned()]));
}
