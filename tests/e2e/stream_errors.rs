//! A transaction that can't be replicated stops its own channel, names its GTID, and stops nothing else.

use std::path::PathBuf;

use csa_tests::{Daemon, Server, compare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, EXECUTORS, wait_state};

struct Topology {
    bad: Server,
    good: Server,
    target: Server,
}

impl Topology {
    /// Channel `test` from the bad source, channel `good` from the good one.
    fn start() -> Self {
        let (bad, target) = Server::pair(&[], &[]);
        Self { bad, good: Server::start("good", &[]), target }
    }

    fn daemon(&self) -> Daemon {
        Daemon::builder(&self.bad, &self.target).channel("good", &self.good, &self.target).start()
    }

    /// The bad channel has stopped with `words`; the good one continues.
    async fn stopped_with(&self, daemon: &Daemon, words: &[&str]) {
        wait_state(daemon, 0, "failed").await;
        let message = daemon.status()["channels"][0]["last_error"]["message"].to_string();
        for word in words {
            assert!(message.contains(word), "{word:?} is missing in {message}");
        }
        self.good.exec("CREATE DATABASE IF NOT EXISTS fine").await;
        self.good.exec("CREATE TABLE fine.t (id INT PRIMARY KEY)").await;
        self.good.exec("INSERT INTO fine.t VALUES (1), (2)").await;
        daemon.wait_channel_drained("good", &self.good, &self.target, DRAIN).await;
        let rows: u64 = self.target.value("SELECT COUNT(*) FROM fine.t").await;
        assert_eq!(rows, 2);
        assert_eq!(daemon.status()["channels"][1]["state"], "running");
        assert_eq!(daemon.get("/readyz").map(|answer| answer.0), Some(503));
        assert_eq!(daemon.get("/healthz").map(|answer| answer.0), Some(200));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_format_stops_after_everything_before_it() {
    let servers = Topology::start();
    let daemon = servers.daemon();
    servers.bad.exec("CREATE DATABASE d").await;
    servers.bad.exec("CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)").await;
    servers.bad.exec("INSERT INTO d.t (v) VALUES (1)").await;
    let before = servers.bad.gtid_executed().await;
    let mut conn = servers.bad.conn().await;
    conn.query_drop("SET SESSION binlog_format=STATEMENT").await.expect("allowed");
    conn.query_drop("INSERT INTO d.t (v) VALUES (2)").await.expect("inserts");
    let gtid: String = servers
        .bad
        .value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')"))
        .await;
    servers.stopped_with(&daemon, &[&gtid, "statement-format", "binlog_format=ROW"]).await;
    let applied: u64 = servers.target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(applied, 1, "everything before the failing transaction is applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_made_from_a_query_in_mixed_format_stops() {
    let servers = Topology::start();
    let daemon = servers.daemon();
    servers.bad.exec("CREATE DATABASE d").await;
    servers.bad.exec("CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    servers.bad.exec("INSERT INTO d.t VALUES (1, 1)").await;
    let mut conn = servers.bad.conn().await;
    conn.query_drop("SET SESSION binlog_format=MIXED").await.expect("allowed");
    conn.query_drop("CREATE TABLE d.copied AS SELECT * FROM d.t").await.expect("creates");
    servers.stopped_with(&daemon, &["statement-format", "binlog_format=ROW"]).await;
    let copied = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name='copied'";
    let made: u64 = servers.target.value(copied).await;
    assert_eq!(made, 0, "the query must not run on the target");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anonymous_transaction_stops() {
    let servers = Topology::start();
    let daemon = servers.daemon();
    servers.bad.exec("CREATE DATABASE d").await;
    servers.bad.exec("CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    daemon.wait_drained(&servers.bad, &servers.target, DRAIN).await;
    servers.bad.exec("SET GLOBAL gtid_mode=ON_PERMISSIVE").await;
    let mut conn = servers.bad.conn().await;
    conn.query_drop("SET gtid_next='ANONYMOUS'").await.expect("allowed");
    conn.query_drop("INSERT INTO d.t VALUES (1)").await.expect("inserts");
    let uuid: String = servers.bad.value("SELECT @@server_uuid").await;
    servers.stopped_with(&daemon, &["anonymous", &uuid, "gtid_mode=ON"]).await;
}

/// Returns the last binary log file that the source has closed.
async fn closed_binary_log(server: &Server) -> PathBuf {
    let mut conn = server.conn().await;
    let files: Vec<mysql_async::Row> = conn.query("SHOW BINARY LOGS").await.expect("a list");
    let file: String = files[files.len() - 2].get(0).expect("a name");
    server.data_directory().join(file)
}

/// Returns the offset and length of the last event of a type in a binary log file.
fn find_event(file: &[u8], event_type: u8) -> (usize, usize) {
    let mut found = None;
    let mut at = 4;
    while at + 19 <= file.len() {
        let size =
            u32::from_le_bytes(file[at + 9..at + 13].try_into().expect("four bytes")) as usize;
        if file[at + 4] == event_type {
            found = Some((at, size));
        }
        at += size;
    }
    found.expect("the event is in the file")
}

/// Writes transactions, closes their file, and changes the last event of a type in it.
async fn damage(server: &Server, event_type: u8, change: impl FnOnce(&mut [u8])) -> String {
    server.exec("CREATE DATABASE d").await;
    server.exec("CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(50))").await;
    server.exec("INSERT INTO d.t VALUES (1, 'whole')").await;
    let before = server.gtid_executed().await;
    server.exec("INSERT INTO d.t VALUES (2, 'to be damaged')").await;
    let gtid =
        server.value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')")).await;
    server.exec("FLUSH BINARY LOGS").await;
    let path = closed_binary_log(server).await;
    let mut file = std::fs::read(&path).expect("readable");
    let (at, len) = find_event(&file, event_type);
    change(&mut file[at..at + len]);
    std::fs::write(&path, file).expect("writable");
    gtid
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_byte_stops() {
    let servers = Topology::start();
    let gtid = damage(&servers.bad, 30, |event| event[event.len() - 10] ^= 1).await;
    let daemon = servers.daemon();
    servers.stopped_with(&daemon, &[&gtid, "checksum", "damaged"]).await;
    let applied: u64 = servers.target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(applied, 1, "everything before the damaged transaction is applied");
}

/// Changes events of one type, in a binary log file that the source has closed, to other types.
async fn change_types(server: &Server, from: u8, into: &[u8]) {
    server.exec("FLUSH BINARY LOGS").await;
    let path = closed_binary_log(server).await;
    let mut file = std::fs::read(&path).expect("readable");
    for &event_type in into.iter().rev() {
        let (at, len) = find_event(&file, from);
        file[at + 4] = event_type;
        let covered = at + len - 4;
        let checksum = crc32fast::hash(&file[at..covered]);
        file[covered..covered + 4].copy_from_slice(&checksum.to_le_bytes());
    }
    std::fs::write(&path, file).expect("writable");
}

/// Rows-query events have the ignorable flag: turned into unknown types they are events of a newer
/// source, and turned into those of Group Replication events of an older one.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_a_replica_may_pass_over_do_not_stop() {
    let (source, target) = Server::pair(&["--binlog-rows-query-log-events=ON"], &[]);
    source.exec("CREATE DATABASE d").await;
    source.exec("CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let types = [99, 36, 37, 28, 99];
    for id in 0..types.len() {
        source.exec(&format!("INSERT INTO d.t VALUES ({id})")).await;
    }
    change_types(&source, 29, &types).await;
    source.exec("INSERT INTO d.t VALUES (100)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(compare(&source, &target).await.rows, types.len() as u64 + 1);
    let metric = "csa_provider_passed_over_events_total{channel=\"test\"} 5";
    assert!(daemon.metrics().contains(metric), "{}", daemon.metrics());
    let logged = |code: &str| daemon.log().matches(&format!("code={code}")).count();
    assert_eq!((logged("99"), logged("28"), logged("37")), (1, 1, 1), "{}", daemon.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_event_type_stops() {
    let servers = Topology::start();
    let gtid = damage(&servers.bad, 30, |event| {
        event[4] = 99;
        let covered = event.len() - 4;
        let checksum = crc32fast::hash(&event[..covered]);
        event[covered..].copy_from_slice(&checksum.to_le_bytes());
    })
    .await;
    let daemon = servers.daemon();
    servers.stopped_with(&daemon, &[&gtid, "event type 99"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_not_on_the_target_stops_at_its_transaction() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d").await;
    source.exec("CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for executor in EXECUTORS {
        target.exec("DELETE FROM d.t WHERE id = 2").await;
        daemon.terminate();
        daemon.set("applier.executor", executor);
        let there: u64 = source.value("SELECT v FROM d.t WHERE id = 2").await;
        source.exec("UPDATE d.t SET v = v + 10 WHERE id = 1").await;
        let before = source.gtid_executed().await;
        source.exec("UPDATE d.t SET v = v + 20 WHERE id = 2").await;
        let gtid: String = source
            .value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')"))
            .await;
        source.exec("UPDATE d.t SET v = v + 30 WHERE id = 3").await;
        daemon.start_again();
        wait_state(&daemon, 0, "failed").await;
        let error = &daemon.status()["channels"][0]["last_error"];
        assert_eq!(error["number"], 1032, "{executor}: {error}");
        assert_eq!(error["transaction"], gtid.as_str());
        assert!(error["message"].to_string().contains("d.t"), "{error}");
        let first = "SELECT v FROM d.t WHERE id = 1";
        let (expected, v): (u64, u64) = (source.value(first).await, target.value(first).await);
        assert_eq!(v, expected, "the transaction before it is committed");
        // Repaired, it resumes on its own after a restart.
        target.exec(&format!("INSERT INTO d.t VALUES (2, {there})")).await;
        assert!(!daemon.terminate().success());
        daemon.start_again();
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
    }
}

/// A change that the target refuses, and the expected explanation.
struct Failing {
    /// Run on the target beforehand.
    spoil: &'static str,
    change: &'static str,
    number: u16,
    /// Event, row and table.
    at: &'static str,
    key: Option<&'static str>,
    target_row: &'static str,
    /// Column, before, after, on the target; `-` for none.
    columns: &'static [[&'static str; 4]],
    /// Words of the statement offered.
    repair: Option<&'static str>,
}

const FAILING: [Failing; 7] = [
    Failing {
        spoil: "DELETE FROM d.t WHERE id = 2",
        change: "UPDATE d.t SET v = 'later secret' WHERE id IN (1, 2, 3)",
        number: 1032,
        at: "row 2 of rows event 1 (Update_rows of d.t, end_log_pos ",
        key: Some("PRIMARY (id)"),
        target_row: "missing",
        columns: &[
            ["id", "2", "2", "-"],
            ["u", "20", "20", "-"],
            ["v", "secret 2", "later secret", "-"],
            ["at", "2026-01-02 03:04:05", "2026-01-02 03:04:05", "-"],
        ],
        repair: Some("INSERT INTO `d`.`t`"),
    },
    Failing {
        spoil: "UPDATE d.t SET u = 99, v = 'target\\'s own secret' WHERE id = 3",
        change: "INSERT INTO d.other VALUES (1, NULL); INSERT INTO d.t VALUES \
                 (8, 98, 'secret 8', '2026-01-01'), (9, 99, NULL, '2026-01-01')",
        number: 1062,
        at: "row 2 of rows event 2 (Write_rows of d.t, end_log_pos ",
        key: Some("u (u)"),
        target_row: "present",
        columns: &[
            ["id", "-", "9", "3"],
            ["u", "-", "99", "99"],
            ["v", "-", "NULL", "target's own secret"],
            ["at", "-", "2026-01-01 00:00:00", "2026-01-02 03:04:05"],
        ],
        repair: Some("DELETE FROM `d`.`t` WHERE `u`=99"),
    },
    // The row is there, but not under the key that the source has.
    Failing {
        spoil: "UPDATE d.t SET id = 400 WHERE id = 4",
        change: "DELETE FROM d.t WHERE id = 4",
        number: 1032,
        at: "row 1 of rows event 1 (Delete_rows of d.t, end_log_pos ",
        key: Some("PRIMARY (id)"),
        target_row: "missing",
        columns: &[
            ["id", "4", "-", "-"],
            ["u", "40", "-", "-"],
            ["v", "secret 4", "-", "-"],
            ["at", "2026-01-02 03:04:05", "-", "-"],
        ],
        // The other row has its unique value.
        repair: None,
    },
    Failing {
        spoil: "DELETE FROM d.keyless WHERE a = 1",
        change: "DELETE FROM d.keyless WHERE a = 1",
        number: 1032,
        at: "row 1 of rows event 1 (Delete_rows of d.keyless, end_log_pos ",
        key: None,
        target_row: "unknown",
        columns: &[["a", "1", "-", "-"], ["b", "0x62FF", "-", "-"], ["c", "1", "-", "-"]],
        repair: Some("INSERT INTO `d`.`keyless`"),
    },
    // An event that is sent in two parts, because it updates a row twice; it fails in the second.
    Failing {
        spoil: "DELETE FROM d.texts WHERE a = 2",
        change: "INSERT INTO d.other VALUES (2, NULL); DO d.update_texts()",
        number: 1032,
        at: "row 3 of rows event 2 (Update_rows of d.texts, end_log_pos ",
        key: None,
        target_row: "unknown",
        columns: &[["a", "2", "2", "-"], ["b", "x", "z", "-"]],
        repair: Some("INSERT INTO `d`.`texts`"),
    },
    Failing {
        spoil: "DELETE FROM d.parent WHERE id = 1",
        change: "SET SESSION binlog_row_image=MINIMAL; UPDATE d.parent SET v = 'x' WHERE id = 1",
        number: 1032,
        at: "row 1 of rows event 1 (Update_rows of d.parent, end_log_pos ",
        key: Some("PRIMARY (id)"),
        target_row: "missing",
        columns: &[["id", "1", "-", "-"], ["v", "-", "x", "-"]],
        repair: None,
    },
    // A session with the server's own sql_mode takes neither the number nor the date.
    Failing {
        spoil: "DELETE FROM d.numbered",
        change: "UPDATE d.numbered SET v = 1",
        number: 1032,
        at: "row 1 of rows event 1 (Update_rows of d.numbered, end_log_pos ",
        key: Some("PRIMARY (id)"),
        target_row: "missing",
        columns: &[
            ["id", "0", "0", "-"],
            ["day", "0000-00-00", "0000-00-00", "-"],
            ["v", "NULL", "1", "-"],
        ],
        repair: Some("INSERT INTO `d`.`numbered`"),
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_row_explains_itself() {
    failing_rows("row-image").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_row_explains_itself_by_statements() {
    failing_rows("sql").await;
}

async fn failing_rows(executor: &str) {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; USE d; SET time_zone='+00:00'; CREATE TABLE t (id INT PRIMARY KEY, \
             u INT UNIQUE, v VARCHAR(30), at TIMESTAMP); CREATE TABLE other (id INT PRIMARY KEY, \
             v INT); CREATE TABLE keyless (a INT, b VARBINARY(9), c INT AS (a) VIRTUAL INVISIBLE); CREATE TABLE parent (id INT \
             PRIMARY KEY, v VARCHAR(9)); CREATE TABLE texts (a INT, b TEXT); INSERT INTO texts VALUES \
             (1, 'x'), (2, 'x'); CREATE FUNCTION update_texts() RETURNS INT DETERMINISTIC MODIFIES SQL DATA \
             BEGIN UPDATE texts SET b='y' WHERE a=1; UPDATE texts SET b='z'; RETURN 0; END; INSERT INTO keyless VALUES (1, x'62ff'), (2, NULL); \
             INSERT INTO parent VALUES (1, 'a'); INSERT INTO t SELECT n, n * 10, CONCAT('secret ', \
             n), '2026-01-02 03:04:05' FROM (SELECT 1 n UNION SELECT 2 UNION SELECT 3 UNION \
             SELECT 4) numbers; SET sql_mode='NO_AUTO_VALUE_ON_ZERO'; CREATE TABLE numbered (id INT AUTO_INCREMENT \
             PRIMARY KEY, day DATE, v INT); INSERT INTO numbered VALUES (0, '0000-00-00', NULL)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).set("applier.executor", executor).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for failing in &FAILING {
        target.exec(failing.spoil).await;
        let before = source.gtid_executed().await;
        let mut conn = source.conn().await;
        conn.query_drop(format!("BEGIN; SET time_zone='+00:00'; {}; COMMIT", failing.change))
            .await
            .expect("changes");
        let gtid: String = source
            .value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')"))
            .await;
        wait_state(&daemon, 0, "failed").await;
        check(&daemon, failing, &gtid, executor);
        repair(&daemon, failing, &gtid, &target).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
    }
    assert!(!daemon.log().contains("secret "), "row values are not for logs");
    // Empties the tables, which differ by skipped transactions and repairs.
    source.exec("TRUNCATE d.t; TRUNCATE d.parent").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Checks the error in the status and in the output of the command.
fn check(daemon: &Daemon, failing: &Failing, gtid: &str, executor: &str) {
    let error = &daemon.status()["channels"][0]["last_error"];
    assert_eq!((&error["number"], &error["transaction"]), (&failing.number.into(), &gtid.into()));
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(failing.at), "{:?} is missing in {error:#}", failing.at);
    let row = &error["row"];
    assert_eq!(
        (&row["key"], &row["target_row"]),
        (&failing.key.into(), &failing.target_row.into())
    );
    let columns = row["columns"].as_array().expect("columns").iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let columns: Vec<_> = columns
        .map(|column| ["name", "source_before", "source_after", "target"].map(|k| text(&column[k])))
        .collect();
    assert_eq!(columns, failing.columns, "{error:#}");
    let ways_on = error["ways_on"].as_array().expect("next steps");
    let table = error["row"]["table"].as_str().expect("a table");
    let copy = format!("csa-daemon copy --channel test --table {table}");
    let mut expected = vec!["", "csa-daemon skip"];
    // Neither is possible where rows are written as SQL.
    if executor == "row-image" {
        expected.extend(["exec_mode", &copy]);
    }
    if failing.number == 1062 {
        expected.push("DELETE FROM csa.checkpoint");
    }
    assert_eq!(ways_on.len(), expected.len(), "{error:#}");
    for (way, words) in ways_on.iter().zip(expected) {
        assert!(way.as_str().is_some_and(|way| way.contains(words)), "{words}: {error:#}");
    }
    let shown = daemon.command(&["status"]);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    for way in ways_on {
        assert!(shown.out.contains(way.as_str().expect("a text")), "{shown:?}");
    }
    for cell in columns.iter().flatten() {
        assert!(shown.out.contains(cell.as_str()), "{cell} is missing in {shown:?}");
    }
}

/// Follows one of the next steps offered.
async fn repair(daemon: &Daemon, failing: &Failing, gtid: &str, target: &Server) {
    let ways_on = daemon.status()["channels"][0]["last_error"]["ways_on"].clone();
    let first = ways_on[0].as_str().expect("a text");
    let offered = first.split_once("Run there").and_then(|(_, rest)| rest.split_once("): "));
    let offered = offered.and_then(|(_, rest)| rest.split_once("; then: "));
    match failing.repair {
        Some(repair) => {
            let (statement, _) = offered.expect("a statement");
            assert!(statement.contains(repair), "{statement}");
            target.exec(statement).await;
            daemon.commanded(&["restart"]);
        }
        None => {
            assert!(ways_on[1].as_str().is_some_and(|way| way.contains(&format!("skip {gtid}"))));
            daemon.commanded(&["skip", gtid]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_larger_than_the_targets_packets_stops() {
    let (bad, target) = Server::pair(&[], &["--max-allowed-packet=4M"]);
    let servers = Topology { bad, good: Server::start("good", &[]), target };
    let daemon = servers.daemon();
    servers.bad.exec("CREATE DATABASE d").await;
    servers.bad.exec("CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)").await;
    // Rows that each fit, in one statement that does not.
    servers.bad.exec("INSERT INTO d.t VALUES (1,REPEAT('a',1500000)),(2,REPEAT('b',1500000)),(3,REPEAT('c',1500000))").await;
    daemon.wait_drained(&servers.bad, &servers.target, DRAIN).await;
    let before = servers.bad.gtid_executed().await;
    servers.bad.exec("INSERT INTO d.t VALUES (4, REPEAT('d', 8000000))").await;
    let gtid: String = servers
        .bad
        .value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')"))
        .await;
    servers.stopped_with(&daemon, &[&gtid, "d.t", "max_allowed_packet"]).await;
    let applied: u64 = servers.target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(applied, 3);
}
