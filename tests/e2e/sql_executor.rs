//! Rows written by INSERT, UPDATE and DELETE: statements do the work of the row-image executor.

use std::time::Duration;

use csa_tests::{
    Compare, Daemon, DaemonBuilder, Load, LoadOptions, Server, compare, eventually, prepare,
};
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::conflicts::{both_ways, conflicting};
use crate::crash::mid_drain;
use crate::replicate::run_script;
use crate::{DRAIN, conflicts, distributed, relations};

fn by_statements(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target).set("applier.executor", "sql")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_and_key_by_statements() {
    let (source, target) = Server::pair(&["--binlog-transaction-compression=ON"], &[]);
    let script = include_str!("../fixtures/everything.sql");
    // Triggers on the target would fire again.
    let script: Vec<&str> =
        script.split("\n/\n").filter(|text| !text.starts_with("CREATE TRIGGER")).collect();
    let (first, second) = script.split_at(script.len() / 2);
    run_script(&source, &first.join("\n/\n")).await;
    let accounts = "applier.replicate_accounts";
    let daemon = by_statements(&source, &target).set(accounts, true).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    run_script(&source, &[&["USE everything"], second].concat().join("\n/\n")).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::new().users().run(&source, &target).await;
    let compared = compared.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(compared.tables >= 16 && compared.rows >= 40, "{compared:?}");
    let view = &daemon.status()["channels"][0];
    assert_eq!(view["applier"]["executor"], "sql");
    assert_eq!(view["state"], "running");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn every_key_in_conflict_by_statements() {
    let (source, target) = Server::pair(&[], &[]);
    conflicts::prepare(&source).await;
    relations::prepare(&source).await;
    let daemon = by_statements(&source, &target).start();
    relations::move_away(&source, &target, &daemon).await;
    both_ways(&source, &target, &daemon, |client, random| match client % 2 {
        0 => conflicting(client, random),
        _ => relations::related(client, random),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn killed_in_the_middle_of_a_drain_by_statements() {
    let options =
        LoadOptions { clients: 4, changes: 3, transfers_percent: 50, ..LoadOptions::default() };
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &options).await;
    let load = Load::start(&source, &options);
    let daemon = by_statements(&source, &target).start();
    let mut random = StdRng::seed_from_u64(8);
    for kill in 0..8 {
        assert!(
            mid_drain(&daemon).await,
            "kill {kill} would not hit a drain\n{}",
            daemon.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
        daemon.kill9();
        source.exec(&format!("ALTER TABLE sbtest.sbtest1 ADD COLUMN added_{kill} INT")).await;
        daemon.start_again();
    }
    let report = load.stop().await;
    assert_eq!(report.errors, 0, "{report:?}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let counted: u64 = target.value("SELECT CAST(SUM(n) AS UNSIGNED) FROM sbtest.counter").await;
    assert_eq!(counted, report.committed);
}

/// A target whose account may write rows and definitions, and has no other privilege.
async fn weak(source: &Server, target: &Server) -> DaemonBuilder {
    target
        .exec(
            "CREATE USER weak@'%' IDENTIFIED BY 'weak_pw'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, \
             DROP, ALTER, INDEX, REFERENCES, TRIGGER ON *.* TO weak@'%'",
        )
        .await;
    Daemon::builder(source, target).set("target.user", "weak").set("target.password", "weak_pw")
}

async fn statement_entries(target: &Server) -> u64 {
    target.value("SELECT COUNT(*) FROM csa.statement").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_the_privilege_for_row_images() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = weak(&source, &target).await.start();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("SET auto_increment_increment=7; ALTER TABLE d.t ADD w TIMESTAMP NULL").await;
    source
        .exec("INSERT INTO d.t VALUES (1,1,NOW()),(2,2,NULL); UPDATE d.t SET v=3 WHERE id=2")
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert_eq!(daemon.status()["channels"][0]["applier"]["executor"], "sql");
    assert_eq!(statement_entries(&target).await, 0);

    for (round, answer) in (1..).zip(["executed", "not executed", "skipped"]) {
        // The statement waits on the target, and the daemon dies before it ends.
        let mut reader = target.conn().await;
        reader.query_drop("LOCK TABLES d.t READ").await.expect("locks");
        let alter = format!("ALTER TABLE d.t ADD COLUMN c{round} INT");
        source.exec(&alter).await;
        source.exec(&format!("INSERT INTO d.t (id) VALUES ({})", round + 10)).await;
        let waiting = "SELECT IFNULL(MAX(id), 0) FROM information_schema.processlist \
             WHERE user='weak' AND info LIKE 'ALTER%'";
        eventually("the statement waits", DRAIN, async || target.value::<u64>(waiting).await > 0)
            .await;
        daemon.kill9();
        if answer != "executed" {
            let id: u64 = target.value(waiting).await;
            target.exec(&format!("KILL {id}")).await;
        }
        reader.query_drop("UNLOCK TABLES").await.expect("unlocks");
        eventually("its session ends", DRAIN, async || target.value::<u64>(waiting).await == 0)
            .await;
        daemon.start_again();
        let why = failed(&daemon).await;
        assert!(why.contains("UPDATE csa.statement SET executed=1 WHERE channel='test'"), "{why}");
        match answer {
            "executed" => {
                target.exec("UPDATE csa.statement SET executed=1 WHERE channel='test'").await;
                daemon.commanded(&["restart"]);
            }
            "not executed" => {
                target.exec("DELETE FROM csa.statement WHERE channel='test'").await;
                daemon.commanded(&["restart"]);
            }
            _ => {
                target.exec(&alter).await;
                let error = &daemon.status()["channels"][0]["last_error"];
                daemon.commanded(&["skip", error["transaction"].as_str().expect("named")]);
                // Its entry does not block the next statement.
                source.exec("ALTER TABLE d.t ADD COLUMN last INT").await;
            }
        }
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
        assert_eq!(statement_entries(&target).await, 0, "{answer}");
    }
    // A statement that the target refuses did certainly not take effect.
    source.exec("CREATE VIEW d.view AS SELECT 1").await;
    let why = failed(&daemon).await;
    assert!(why.contains("error 1142"), "{why}");
    assert_eq!(statement_entries(&target).await, 0);
}

/// Waits until the channel has stopped; returns the reason.
async fn failed(daemon: &Daemon) -> String {
    crate::wait_state(daemon, 0, "failed").await;
    let view = &daemon.status()["channels"][0];
    view["last_error"]["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn what_statements_would_not_do_as_the_source_did_stops_the_channel() {
    let (source, target) = Server::pair(&["--binlog-row-metadata=FULL"], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.log (v INT)").await;
    source
        .exec(
            "CREATE TABLE d.t (id INT PRIMARY KEY, v INT, s VARCHAR(9) CHARACTER SET latin1 UNIQUE, \
             b BIGINT UNSIGNED)",
        )
        .await;
    source
        .exec("CREATE TABLE d.e (id INT PRIMARY KEY, e ENUM('a','b','c'), g INT AS (id) VIRTUAL)")
        .await;
    let daemon = by_statements(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    // Definition on the target, change on the source, words of the error, and the repair.
    let mut insert = (1..).map(|id| format!("INSERT INTO d.t VALUES ({id},{id},'s{id}',{id})"));
    let mut insert = || insert.next().expect("endless");
    let steps = [
        (
            "CREATE TRIGGER d.g AFTER INSERT ON d.t FOR EACH ROW INSERT INTO d.log VALUES (NEW.id)",
            insert(),
            "trigger g of d.t",
            "DROP TRIGGER d.g",
        ),
        (
            "ALTER TABLE d.t MODIFY v SMALLINT",
            insert(),
            "column 2 of d.t (v): an integer of 32 bits signed of the source does not fit into",
            "ALTER TABLE d.t MODIFY v BIGINT",
        ),
        (
            "ALTER TABLE d.t MODIFY s VARCHAR(9) CHARACTER SET cp932",
            insert(),
            "column 3 of d.t (s): VARCHAR (9 bytes, latin1)",
            "ALTER TABLE d.t MODIFY s VARCHAR(9) CHARACTER SET utf8mb4",
        ),
        (
            "ALTER TABLE d.t MODIFY b BIGINT UNSIGNED AFTER v",
            insert(),
            "the source has s in this place",
            "ALTER TABLE d.t MODIFY b BIGINT UNSIGNED AFTER s",
        ),
        (
            "ALTER TABLE d.t ADD more INT NOT NULL",
            insert(),
            "the source has no column more",
            "ALTER TABLE d.t ALTER more SET DEFAULT 7",
        ),
        (
            "DELETE FROM d.t WHERE id=1",
            "UPDATE d.t SET v=9 WHERE id=1".to_owned(),
            "error 1032: can't find record: update of d.t by PRIMARY (id): the row is not there",
            "INSERT INTO d.t (id,v,s,b) VALUES (1,1,'s1',1)",
        ),
        (
            "DELETE FROM d.t WHERE id=2",
            "DELETE FROM d.t WHERE id IN (1,2,3)".to_owned(),
            "delete from d.t by PRIMARY (id): 1 of 3 rows are not there",
            "INSERT INTO d.t (id,v,s,b) VALUES (2,2,'s2',2)",
        ),
        (
            "INSERT INTO d.t (id,s) VALUES (100,'secret')",
            "INSERT INTO d.t VALUES (101,1,'secret',1)".to_owned(),
            "error 1062: Duplicate entry 'secret' for key 't.s'",
            "DELETE FROM d.t WHERE id=100",
        ),
        (
            "ALTER TABLE d.t ADD CONSTRAINT few CHECK (v < 1000)",
            "INSERT INTO d.t VALUES (102,1000,NULL,1)".to_owned(),
            "error 3819: Check constraint 'few' is violated",
            "ALTER TABLE d.t DROP CONSTRAINT few",
        ),
        (
            // Statements for d.e, which has a generated column, are not strict.
            "ALTER TABLE d.e MODIFY e ENUM('a','b')",
            "INSERT INTO d.e (id,e) VALUES (1,'b'),(2,'c')".to_owned(),
            "data truncated: insert into d.e, column e (warning 1265)",
            "ALTER TABLE d.e MODIFY e ENUM('a','b','c')",
        ),
        (
            "RENAME TABLE d.log TO d.away",
            "INSERT INTO d.log VALUES (1)".to_owned(),
            "table d.log doesn't exist on the target",
            "RENAME TABLE d.away TO d.log",
        ),
    ];
    for (before, change, words, mend) in steps {
        daemon.kill9();
        target.exec(before).await;
        daemon.start_again();
        source.exec(&change).await;
        let why = failed(&daemon).await;
        assert!(why.contains(words), "{before}: {why}");
        let gtid: String = source.gtid_executed().await;
        let gno = gtid.rsplit('-').next().unwrap_or_default();
        assert!(why.contains(&format!(":{gno} (row changes of d.")), "{gtid}: {why}");
        // Readers without the token see no value either, and the log has none.
        let shown = daemon.request("GET", "/status", &[], "").1 + &daemon.log();
        assert!(!shown.contains("secret"), "{shown}");
        target.exec(mend).await;
        daemon.kill9();
        daemon.start_again();
        daemon.wait_drained(&source, &target, DRAIN).await;
    }
    // A definition from the source does so without a restart.
    source.exec(&insert()).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    source.exec("CREATE TRIGGER d.late BEFORE UPDATE ON d.t FOR EACH ROW SET NEW.b=NEW.b+1").await;
    source.exec("UPDATE d.t SET v=5 WHERE id=5").await;
    let why = failed(&daemon).await;
    assert!(why.contains("trigger late of d.t"), "{why}");
    target.exec("DROP TRIGGER d.late").await;
    daemon.kill9();
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let sum = "SELECT CONCAT_WS('/', COUNT(*), SUM(id), SUM(v), SUM(CRC32(s)), SUM(b)) FROM d.t";
    assert_eq!(target.value::<String>(sum).await, source.value::<String>(sum).await);
    let members = "SELECT GROUP_CONCAT(id, e ORDER BY id) FROM d.e";
    assert_eq!(target.value::<String>(members).await, "1b,2c");
    // The column that only the target has received its default.
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM d.t WHERE more=7 AND id>100").await, 2);
}

/// A primary key that only the target generates is no column of the source.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_keys_and_columns_that_set_themselves() {
    let (source, target) = Server::pair(&[], &[]);
    let options = "SET sql_generate_invisible_primary_key=ON;";
    let define = "CREATE DATABASE d; CREATE TABLE d.bare (v INT, w INT);";
    source.exec(define).await;
    target.exec(&format!("{options} {define}")).await;
    let start = source.gtid_executed().await;
    let daemon = by_statements(&source, &target).set("applier.start_from", start).start();
    source
        .exec("INSERT INTO d.bare VALUES (1,1),(1,1),(2,2); DELETE FROM d.bare WHERE v=1 LIMIT 1")
        .await;
    source
        .exec(
            "CREATE TABLE d.self (id INT PRIMARY KEY, v INT, h INT INVISIBLE, z INT NOT NULL, \
             e ENUM('x','y') NOT NULL, k TIMESTAMP NULL, s TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)",
        )
        .await;
    source
        .exec(
            "SET sql_mode='', binlog_row_image=MINIMAL; INSERT INTO d.self (id,h) VALUES (1,5),(2,6); \
             UPDATE d.self SET v=1, s='2001-01-01' WHERE id=1; UPDATE d.self SET v=2, s=s WHERE id=1; \
             UPDATE d.self SET v=3 WHERE id=2",
        )
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // Only the target's column would set itself.
    target.exec("ALTER TABLE d.self MODIFY k TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP").await;
    daemon.kill9();
    daemon.start_again();
    source.exec("SET binlog_row_image=MINIMAL; UPDATE d.self SET v=4").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("ALTER TABLE d.self MODIFY k TIMESTAMP NULL").await;
    Compare::new().ignore_table("d.bare").run(&source, &target).await.expect("equal");
    let bare: String = target.value("SELECT GROUP_CONCAT(v, w ORDER BY v) FROM d.bare").await;
    assert_eq!(bare, "11,22");
}

/// Under the source's GTIDs, including distributed transactions, whatever dies.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn one_to_one_by_statements() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { clients: 3, ..LoadOptions::default() };
    prepare(&source, &options).await;
    distributed::schema(&source).await;
    let daemon = by_statements(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .set("target.connect_retry", "100ms")
        .start();
    let load = Load::start(&source, &options);
    let mut random = StdRng::seed_from_u64(3);
    // Settings of the source's session that must not affect the values.
    let mut conn = source.conn().await;
    distributed::run(&mut conn, &["SET time_zone='+05:30', sql_mode='ANSI_QUOTES'".to_owned()])
        .await;
    source.exec("ALTER TABLE x.wide ADD at TIMESTAMP DEFAULT '2024-01-01 00:00:00'").await;
    for number in 0..9_u32 {
        let xid = format!("X'00ff{number:02x}27',X'5c',3");
        distributed::prepare_branch(
            &mut conn,
            &xid,
            &[
                format!("INSERT INTO x.log (branch, v) VALUES ({number}, {number})"),
                format!("INSERT INTO x.wide (id, c) VALUES ({number}, 'ü')"),
                format!("UPDATE x.counter SET n=n+1 WHERE id={}", random.random_range(0..7)),
            ],
        )
        .await;
        match number {
            2 | 6 => {
                assert!(mid_drain(&daemon).await, "{}", daemon.log_tail());
                daemon.kill9();
                daemon.start_again();
            }
            4 => {
                target.kill9();
                target.restart();
            }
            _ => {}
        }
        let end = if number % 3 == 0 { "ROLLBACK" } else { "COMMIT" };
        distributed::run(&mut conn, &[format!("XA {end} {xid}")]).await;
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let executed = "SELECT @@GLOBAL.gtid_executed";
    assert_eq!(target.value::<String>(executed).await, source.value::<String>(executed).await);
    // Its rows belong to a definition that accepts only row images.
    source.exec("CREATE TABLE x.copy AS SELECT * FROM x.log").await;
    let why = failed(&daemon).await;
    assert!(why.contains("CREATE TABLE … SELECT is one transaction only with row images"), "{why}");
    daemon.kill9();
    daemon.set("applier.executor", "row-image");
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
