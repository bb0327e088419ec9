//! What can't be replicated stops its channel, by GTID, and nothing else.

use std::path::PathBuf;

use csa_tests::{Daemon, Server, compare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, wait_state};

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

    /// The bad channel has stopped with `words`; the good one goes on.
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

/// The last binary log file that the source has closed.
async fn closed_binary_log(server: &Server) -> PathBuf {
    let mut conn = server.conn().await;
    let files: Vec<mysql_async::Row> = conn.query("SHOW BINARY LOGS").await.expect("a list");
    let file: String = files[files.len() - 2].get(0).expect("a name");
    server.data_directory.join(file)
}

/// Offset and length of the last event of a type in a binary log file.
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
    target.exec("DELETE FROM d.t WHERE id = 2").await;
    daemon.terminate();
    source.exec("UPDATE d.t SET v = 10 WHERE id = 1").await;
    let before = source.gtid_executed().await;
    source.exec("UPDATE d.t SET v = 20 WHERE id = 2").await;
    let gtid: String =
        source.value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')")).await;
    source.exec("UPDATE d.t SET v = 30 WHERE id = 3").await;
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let error = &daemon.status()["channels"][0]["last_error"];
    assert_eq!(error["number"], 1032, "{error}");
    assert_eq!(error["transaction"], gtid.as_str());
    assert!(error["message"].to_string().contains("d.t"), "{error}");
    let v: u64 = target.value("SELECT v FROM d.t WHERE id = 1").await;
    assert_eq!(v, 10, "the transaction before it is committed");
    // Repaired, it goes on by itself after a restart.
    target.exec("INSERT INTO d.t VALUES (2, 2)").await;
    assert!(!daemon.terminate().success());
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_larger_than_the_targets_packets_stops() {
    let (bad, target) = Server::pair(&[], &["--max-allowed-packet=4M"]);
    let servers = Topology { bad, good: Server::start("good", &[]), target };
    let daemon = servers.daemon();
    servers.bad.exec("CREATE DATABASE d").await;
    servers.bad.exec("CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)").await;
    // Many rows that fit, in one statement that would not.
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
