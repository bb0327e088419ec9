//! The GTIDs of the target, groups of one transaction, and the meaning of a missing row.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::Row;
use mysql_async::prelude::Queryable as _;

use crate::crash::mid_drain;
use crate::{DRAIN, wait_state};

/// The target's GTIDs are exactly the source's.
pub(crate) async fn same_gtids(source: &Server, target: &Server) {
    let query = "SELECT @@GLOBAL.gtid_executed";
    let expected: String = source.value(query).await;
    assert_eq!(target.value::<String>(query).await, expected);
}

/// Every kind of transaction that has a GTID.
async fn one_of_each(source: &Server) {
    source.exec("CREATE DATABASE g").await;
    source.exec("CREATE TABLE g.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO g.t VALUES (1,1),(2,2)").await;
    source.exec("CREATE TABLE g.copy (PRIMARY KEY (id)) SELECT * FROM g.t").await;
    source.exec("CREATE USER g IDENTIFIED BY 'g'; GRANT SELECT ON g.* TO g").await;
    source
        .exec("BEGIN; SAVEPOINT a; UPDATE g.t SET v=3; ROLLBACK TO a; DELETE FROM g.t; COMMIT")
        .await;
    source
        .exec(
            "XA START 'x'; INSERT INTO g.t VALUES (5,5); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
        )
        .await;
    let uuid: String = source.value("SELECT @@server_uuid").await;
    // Empty, and with a gap before it.
    source.exec(&format!("SET gtid_next='{uuid}:100000'; BEGIN; COMMIT")).await;
    source.exec("SET gtid_next='AUTOMATIC:tagged'; INSERT INTO g.t VALUES (6,6)").await;
    source
        .exec("SET SESSION binlog_transaction_compression=ON; INSERT INTO g.t VALUES (7,7)")
        .await;
    source.exec("CREATE TEMPORARY TABLE g.gone (id INT); INSERT INTO g.gone VALUES (1)").await;
    source.exec("ANALYZE TABLE g.t; DROP TABLE g.copy").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn one_to_one_gives_the_target_the_sources_gtids() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { clients: 3, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .set("target.connect_retry", "100ms")
        .start();
    let load = Load::start(&source, &options);
    one_of_each(&source).await;
    for kill in 0..6 {
        assert!(mid_drain(&daemon).await, "kill {kill}\n{}", daemon.log_tail());
        if kill % 3 == 2 {
            target.kill9();
            target.restart();
        } else {
            daemon.kill9();
            if kill == 3 {
                daemon.set("applier.preserve_commit_order", false);
            }
            daemon.start_again();
        }
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    same_gtids(&source, &target).await;
    // Tools read the checkpoint in every mode.
    let expected: String = source.value("SELECT @@GLOBAL.gtid_executed").await;
    eventually("the checkpoint follows", Duration::from_secs(10), async || {
        target.value::<String>("SELECT gtid_executed FROM csa.checkpoint WHERE worker=65535").await
            == expected
    })
    .await;

    // The target logs exactly what a replica of it needs: nothing of ours, and the source's times.
    let below = Server::start("below", &[]);
    below.follow(&target).await;
    eventually("the target's replica follows", DRAIN, async || {
        below.value::<String>("SELECT @@GLOBAL.gtid_executed").await == expected
    })
    .await;
    compare(&source, &below).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    source.exec("INSERT INTO g.t VALUES (8,8)").await;
    let (original, immediate): (String, String) = {
        eventually("the row arrives", DRAIN, async || {
            below.value::<u64>("SELECT COUNT(*) FROM g.t WHERE id=8").await == 1
        })
        .await;
        let mut conn = below.conn().await;
        conn.query_first(
            "SELECT MAX(LAST_APPLIED_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP), \
             MAX(LAST_APPLIED_TRANSACTION_IMMEDIATE_COMMIT_TIMESTAMP) \
             FROM performance_schema.replication_applier_status_by_worker",
        )
        .await
        .expect("queries")
        .expect("a row")
    };
    assert!(original < immediate, "{original} {immediate}");
    let schemas: u64 = below
        .value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='csa'")
        .await;
    assert_eq!(schemas, 0, "the checkpoint must stay out of the target's binary log");
}

/// In every mode, and with a target that dies.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_target_without_a_binary_log() {
    for (commit, gtids) in [("grouped", "own"), ("grouped", "mirror"), ("one-to-one", "source")] {
        let (source, target) = Server::pair(&[], &["--skip-log-bin", "--log-replica-updates=OFF"]);
        let options = LoadOptions { clients: 3, ..LoadOptions::default() };
        prepare(&source, &options).await;
        let daemon = Daemon::builder(&source, &target)
            .set("applier.commit", commit)
            .set("applier.target_gtids", gtids)
            .set("target.connect_retry", "100ms")
            .start();
        let load = Load::start(&source, &options);
        source.exec("CREATE DATABASE g; CREATE TABLE g.t (id INT PRIMARY KEY)").await;
        source.exec("INSERT INTO g.t VALUES (1)").await;
        for _ in 0..2 {
            assert!(mid_drain(&daemon).await, "{gtids}\n{}", daemon.log_tail());
            target.kill9();
            target.restart();
        }
        load.stop().await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
        if gtids != "own" {
            same_gtids_soon(&source, &target).await;
        }
        // Nothing of it is there: the server would give its GTID to the empty table.
        source.exec("CREATE TABLE g.copy (PRIMARY KEY (id)) SELECT * FROM g.t").await;
        wait_state(&daemon, 0, "failed").await;
        let detail = daemon.status()["channels"][0]["state_detail"].to_string();
        assert!(detail.contains("binary log") && detail.contains("SET gtid_next"), "{detail}");
        let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='g'";
        assert_eq!(target.value::<u64>(tables).await, 1);
    }
}

/// A COMMIT that is sent early waits on the target for the one before it, so none passes a transaction that fails.
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_are_under_way_together_end_at_the_transaction_that_fails() {
    let (source, target) = Server::pair(&[], &[]);
    // Its rows come with the settings of the session that wrote them, so each has a COMMIT of its own.
    source
        .exec("CREATE DATABASE w; CREATE TABLE w.t (id INT PRIMARY KEY, n INT, m INT AS (n+1))")
        .await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .set("applier.worker_count", 8)
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.terminate();
    let mut executed = String::new();
    for id in 1..=300 {
        source.exec(&format!("INSERT INTO w.t (id, n) VALUES ({id}, 0)")).await;
        if id == 249 {
            executed = source.value("SELECT @@GLOBAL.gtid_executed").await;
        }
    }
    target.exec("SET sql_log_bin=0; INSERT INTO w.t (id, n) VALUES (250, 1)").await;
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let rows = "SELECT GROUP_CONCAT(id) FROM w.t WHERE id >= 248";
    assert_eq!(target.value::<String>(rows).await, "248,249,250");
    assert_eq!(target.value::<String>("SELECT @@GLOBAL.gtid_executed").await, executed);
    target.exec("SET sql_log_bin=0; DELETE FROM w.t WHERE id=250").await;
    daemon.terminate();
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    same_gtids(&source, &target).await;
}

/// Returns the GTIDs in the order of a server's binary log.
pub(crate) async fn logged_gtids(server: &Server) -> Vec<String> {
    let mut conn = server.conn().await;
    let mut gtids = Vec::new();
    let files: Vec<Row> = conn.query("SHOW BINARY LOGS").await.expect("its logs");
    for file in files {
        let file: String = file.get(0).expect("a name");
        let events: Vec<Row> =
            conn.query(format!("SHOW BINLOG EVENTS IN '{file}'")).await.expect("its events");
        let infos =
            events.iter().filter(|event| event.get::<String, _>(2).as_deref() == Some("Gtid"));
        gtids.extend(infos.filter_map(|event| event.get::<String, _>(5)));
    }
    conn.disconnect().await.expect("a clean end");
    gtids
}

/// A COMMIT that is sent before the one before it is answered waits for it on the target. Whatever becomes of that
/// one, it must not pass.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn no_commit_passes_the_one_before_it_whoever_is_killed() {
    const ROWS: u32 = 5_000;
    const MOST_KILLED: usize = 20;
    let (source, target) = Server::pair(&[], &[]);
    // Its rows come with the settings of the session that wrote them.
    source
        .exec("CREATE DATABASE w; CREATE TABLE w.t (id INT PRIMARY KEY, n INT, m INT AS (n+1))")
        .await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .set("applier.worker_count", 8)
        .set("target.connect_retry", "100ms")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.terminate();
    let insert = |ids: std::ops::Range<u32>| {
        let rows = ids.map(|id| format!(";INSERT INTO w.t (id, n) VALUES ({id}, 0)"));
        format!("SET collation_connection=utf16_general_ci{}", rows.collect::<String>())
    };
    source.exec("SET GLOBAL sync_binlog=0; SET GLOBAL innodb_flush_log_at_trx_commit=0").await;
    source.exec(&insert(0..ROWS)).await;
    daemon.start_again();
    // Every second one is a session that waits in its COMMIT, the others are whoever commits now.
    let mut killed = [0, 0];
    let mut conn = target.conn().await;
    for kill in 0.. {
        let applied: u64 =
            conn.query_first("SELECT COUNT(*) FROM w.t").await.expect("rows").expect("one");
        if applied == u64::from(ROWS) || killed[0] + killed[1] >= MOST_KILLED {
            break;
        }
        let condition = match kill % 2 {
            0 => "STATE='Waiting for GTID to be committed'",
            _ => "INFO='COMMIT'",
        };
        let found: Option<u64> = conn
            .query_first(format!(
                "SELECT ID FROM performance_schema.processlist WHERE USER='csa' AND {condition}"
            ))
            .await
            .expect("sessions");
        if let Some(id) = found {
            // It may be gone already.
            let ended = conn.query_drop(format!("KILL {id}")).await;
            killed[kill % 2] += usize::from(ended.is_ok());
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }
    assert!(killed[0] >= 3, "{killed:?} killed: no COMMIT waited\n{}", daemon.log_tail());
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    same_gtids(&source, &target).await;
    assert_eq!(logged_gtids(&target).await, logged_gtids(&source).await);
    assert_eq!(daemon.status()["channels"][0]["applier"]["commit_inversions_total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_mode_can_be_changed_between_two_starts() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { clients: 2, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    let modes = [
        ("grouped", "mirror"),
        ("one-to-one", "source"),
        ("grouped", "mirror"),
        ("one-to-one", "own"),
        ("grouped", "own"),
    ];
    for (commit, gtids) in modes {
        let load = Load::start(&source, &options);
        assert!(mid_drain(&daemon).await, "{gtids}\n{}", daemon.log_tail());
        load.stop().await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        // The mirror catches up within a second.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        daemon.kill9();
        daemon.set("applier.commit", commit);
        daemon.set("applier.target_gtids", gtids);
        daemon.start_again();
    }
    let load = Load::start(&source, &options);
    assert!(mid_drain(&daemon).await, "{}", daemon.log_tail());
    // The target's own GTIDs don't show the source's: that must not be taken for an empty target.
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    daemon.set("applier.commit", "one-to-one");
    daemon.set("applier.target_gtids", "source");
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let detail = daemon.status()["channels"][0]["state_detail"].to_string();
    let (_, fix) = detail.split_once("run there: ").expect("a fix");
    let (fix, _) = fix.split_once(", then").expect("its end");
    target.exec(fix).await;
    // The daemon retried it until the stop, which is orderly.
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    daemon.start_again();
    let load = Load::start(&source, &options);
    assert!(mid_drain(&daemon).await, "{}", daemon.log_tail());
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Like the server's `replica_exec_mode=IDEMPOTENT`, compared with a native replica.
#[tokio::test(flavor = "multi_thread")]
async fn idempotent_does_what_the_servers_mode_does() {
    let (source, target) = Server::pair(&[], &[]);
    let native = Server::start("native", &[]);
    source.exec("CREATE DATABASE i").await;
    source.exec("CREATE TABLE i.t (id INT PRIMARY KEY, u INT UNIQUE, v INT)").await;
    let daemon = Daemon::builder(&source, &target).set("applier.exec_mode", "idempotent").start();
    native.exec("SET GLOBAL replica_exec_mode=IDEMPOTENT").await;
    native.follow(&source).await;
    let expected = async || source.value::<String>("SELECT @@GLOBAL.gtid_executed").await;
    let follow = async || {
        let expected = expected().await;
        eventually("the native replica follows", DRAIN, async || {
            native.value::<String>("SELECT @@GLOBAL.gtid_executed").await == expected
        })
        .await;
        daemon.wait_drained(&source, &target, DRAIN).await;
    };
    source.exec("INSERT INTO i.t SELECT n, n, n FROM JSON_TABLE('[1,2,3,4,5,6,7,8,9,10,11,12]', '$[*]' COLUMNS (n INT PATH '$')) j").await;
    follow().await;
    for server in [&target, &native] {
        server
            .exec(
                "SET sql_log_bin=0; DELETE FROM i.t WHERE id IN (1,2,3,4); \
                 INSERT INTO i.t VALUES (20,20,-1),(21,21,-1),(22,99,-1); \
                 UPDATE i.t SET v=-5 WHERE id=5",
            )
            .await;
    }
    source
        .exec(
            "BEGIN; UPDATE i.t SET v=100 WHERE id=1; DELETE FROM i.t WHERE id=2; \
             DELETE FROM i.t WHERE id=3; INSERT INTO i.t VALUES (3,3,300); \
             INSERT INTO i.t VALUES (20,20,200); INSERT INTO i.t VALUES (21,21,210); \
             UPDATE i.t SET v=211 WHERE id=21; INSERT INTO i.t VALUES (22,22,220); \
             DELETE FROM i.t WHERE id=22; UPDATE i.t SET v=500 WHERE id=5; COMMIT",
        )
        .await;
    follow().await;
    let rows = "SELECT GROUP_CONCAT(CONCAT_WS(',', id, u, v) ORDER BY id SEPARATOR ';') FROM i.t";
    let of_native: String = native.value(rows).await;
    assert_eq!(target.value::<String>(rows).await, of_native);
    // The daemon set to strict stops where the native applier would.
    assert!(daemon.terminate().success());
    daemon.set("applier.exec_mode", "strict");
    daemon.start_again();
    source.exec("UPDATE i.t SET v=44 WHERE id=4").await;
    wait_state(&daemon, 0, "failed").await;
    let detail = daemon.status()["channels"][0]["state_detail"].to_string();
    assert!(detail.contains("1032") && detail.contains("i.t"), "{detail}");
}

/// The channel's session writes the source's statements to the binary log, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_leaves_no_gtid_of_the_targets_own() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE g; CREATE TABLE g.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    same_gtids(&source, &target).await;
    target.exec("SET sql_log_bin=0; DROP TABLE g.t").await;
    let before = target.gtid_executed().await;
    source.exec("ALTER TABLE g.t ADD v INT").await;
    wait_state(&daemon, 0, "failed").await;
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "failed").await;
    assert_eq!(target.gtid_executed().await, before, "nothing is logged for the failed statement");
    target.exec("SET sql_log_bin=0; CREATE TABLE g.t (id INT PRIMARY KEY)").await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    same_gtids(&source, &target).await;
    compare(&source, &target).await;
}

/// As two channels that level the same target at the same time: one finds what it adds taken.
#[tokio::test(flavor = "multi_thread")]
async fn gtids_that_another_session_has_taken_are_waited_for() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).set("applier.target_gtids", "mirror").start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    same_gtids_soon(&source, &target).await;
    for (round, end) in ["ROLLBACK", "COMMIT"].into_iter().enumerate() {
        let uuid: String = source.value("SELECT @@server_uuid").await;
        let executed: String = source.value("SELECT @@GLOBAL.gtid_executed").await;
        let last: u64 = executed.rsplit(['-', ':']).next().expect("a number").parse().expect("one");
        let mut other = target.conn().await;
        let next = format!("SET gtid_next='{uuid}:{}'", last + 1);
        for statement in [next.as_str(), "BEGIN"] {
            other.query_drop(statement).await.expect("owns the GTID");
        }
        source.exec(&format!("INSERT INTO d.t VALUES ({round})")).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(daemon.status()["channels"][0]["state"], "running", "{}", daemon.log_tail());
        other.query_drop(end).await.expect("gives it up");
        same_gtids_soon(&source, &target).await;
    }
    compare(&source, &target).await;
}

async fn same_gtids_soon(source: &Server, target: &Server) {
    let query = "SELECT @@GLOBAL.gtid_executed";
    let expected: String = source.value(query).await;
    eventually("the target's GTIDs are level", DRAIN, async || {
        target.value::<String>(query).await == expected
    })
    .await;
}
