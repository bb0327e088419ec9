//! Copies in chunks: what changes meanwhile is applied afterwards, and the end is the source's.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use super::restless::{Restless, make_restless, restless_pair};
use super::{busy, copy_log, ends, ends_well, follows_and_is_equal, start_copying};
use crate::{DRAIN, wait_state};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn rows_that_change_while_chunks_are_read_end_as_on_the_source() {
    let (source, target) = restless_pair().await;
    let load = LoadOptions { rows: 15_000, ..busy() };
    prepare(&source, &load).await;
    let clients = Load::start(&source, &load);
    let restless = Restless::start(&source, 6).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let executed: String = source.value("SELECT @@GLOBAL.gtid_executed").await;
    ends_well(start_copying(&daemon, &["--lanes", "2", "--rows-per-second", "15000"]), &daemon)
        .await;
    let said = copy_log(&daemon);
    assert!(said.contains("its rows were read in chunks"), "{said}");
    // Nothing changes any more once the copy has ended: what is wrong then stays so.
    let changes = restless.stop().await;
    clients.stop().await;
    let during: u64 = source.value(&format!("SELECT @@GLOBAL.gtid_executed <> '{executed}'")).await;
    assert!(during == 1 && changes > 100, "{changes} changes");
    follows_and_is_equal(&daemon, &source, &target).await;
    let left: u64 = target.value("SELECT COUNT(*) FROM csa.copy_range").await;
    assert_eq!(left, 0, "the copy has not ended");
    // From now on, rows are applied strictly.
    target.exec("SET sql_log_bin=0; DELETE FROM restless.keyless; DELETE FROM restless.word").await;
    source.exec("UPDATE restless.word SET body='strict'").await;
    wait_state(&daemon, 0, "failed").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_interrupted_copy_goes_on_where_it_was() {
    let (source, target) = restless_pair().await;
    let load = LoadOptions { rows: 20_000, ..busy() };
    prepare(&source, &load).await;
    let clients = Load::start(&source, &load);
    let restless = Restless::start(&source, 3).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let mut copied = 0;
    for _ in 0..4 {
        let slowly = ["--lanes", "2", "--rows-per-second", "15000"];
        let mut copying = start_copying(&daemon, &slowly);
        another_chunk(&target, copied).await;
        copying.kill().expect("kills");
        copying.wait().expect("ends");
        let rows: u64 =
            target.value("SELECT CAST(SUM(rows_copied) AS UNSIGNED) FROM csa.copy_range").await;
        assert!(rows > copied, "{rows} rows after {copied}: the copy began again");
        copied = rows;
    }
    // Another limit, or other guesses at sizes, do not change how an interrupted copy ends.
    let config = std::fs::read_to_string(daemon.config_path()).expect("readable");
    assert!(config.contains("0MiB"), "{config}");
    std::fs::write(daemon.config_path(), config.replace("0MiB", "1GiB")).expect("writable");
    // The target dies among chunks, too.
    let copying = start_copying(&daemon, &["--lanes", "1", "--rows-per-second", "3000"]);
    another_chunk(&target, copied).await;
    target.kill9();
    target.restart();
    assert!(!ends(copying, DRAIN).await, "it had ended before: {}", copy_log(&daemon));
    let after_crash: u64 = target
        .value("SELECT CAST(COALESCE(SUM(rows_copied), 0) AS UNSIGNED) FROM csa.copy_range")
        .await;
    assert!(after_crash >= copied, "{after_crash} rows after {copied}: chunks are lost");
    ends_well(start_copying(&daemon, &[]), &daemon).await;
    daemon.start_again();
    tokio::time::sleep(Duration::from_secs(1)).await;
    restless.stop().await;
    clients.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Waits until more rows are copied than these.
async fn another_chunk(target: &Server, copied: u64) {
    let more = format!("SELECT COALESCE(SUM(rows_copied), 0) > {copied} FROM csa.copy_range");
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        conn.query_first(&more).await.unwrap_or_default() == Some(1)
    })
    .await;
}

/// They are in no chunk: the stream makes them, while rows of other tables converge.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn tables_that_are_created_from_others_meanwhile_are_filled() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let copying = start_copying(&daemon, &["--lanes", "1", "--rows-per-second", "8000"]);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let more = "SELECT COALESCE(SUM(rows_copied), 0) > 0 FROM csa.copy_range";
        conn.query_first(more).await.unwrap_or_default() == Some(1)
    })
    .await;
    for statement in [
        "UPDATE sbtest.sbtest1 SET k = k + 1 WHERE id <= 10",
        "CREATE TABLE sbtest.filled (PRIMARY KEY (id)) SELECT * FROM sbtest.sbtest1 WHERE id <= 1000",
        "CREATE TABLE sbtest.keyless SELECT id, c FROM sbtest.sbtest1 WHERE id <= 10",
        "UPDATE sbtest.filled SET k = 0 WHERE id <= 10",
    ] {
        source.exec(statement).await;
    }
    ends_well(copying, &daemon).await;
    assert!(copy_log(&daemon).contains("in chunks"), "{}", copy_log(&daemon));
    follows_and_is_equal(&daemon, &source, &target).await;
}

/// An INSERT fails for a row that a chunk has brought already.
#[tokio::test(flavor = "multi_thread")]
async fn tables_that_converge_get_no_statements() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    ends_well(start_copying(&daemon, &["--lanes", "1"]), &daemon).await;
    daemon.set("applier.executor", "sql");
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let detail = daemon.status()["channels"][0]["state_detail"].to_string();
    assert!(detail.contains("GRANT REPLICATION_APPLIER"), "{detail}");
    // An error for a row that fits no packet advises this executor.
    assert!(detail.contains("skipped: copy its tables again"), "{detail}");
    daemon.set("applier.executor", "auto");
    daemon.write_config();
    daemon.commanded(&["reload", "--restart"]);
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The child and its key come with the stream. The target would pass over changes of the parent's rows, or delete those of
/// the child with them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_during_which_a_table_gets_a_child_begins_again() {
    for rule in ["RESTRICT", "CASCADE"] {
        let (source, target) = Server::pair(&[], &[]);
        prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
        let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
        let copying = start_copying(&daemon, &["--lanes", "1", "--rows-per-second", "8000"]);
        another_chunk(&target, 0).await;
        source
            .exec(&format!(
                "CREATE TABLE sbtest.child (id INT PRIMARY KEY, parent INT NOT NULL, \
                 FOREIGN KEY (parent) REFERENCES sbtest.sbtest1 (id) ON DELETE {rule})"
            ))
            .await;
        source.exec("INSERT INTO sbtest.child VALUES (1, 7)").await;
        source.exec("UPDATE sbtest.sbtest1 SET k = k + 1 WHERE id = 7").await;
        assert!(!ends(copying, 3 * DRAIN).await, "{}", copy_log(&daemon));
        let said = copy_log(&daemon);
        assert!(said.contains("sbtest.child was made while tables were copied"), "{said}");
        ends_well(start_copying(&daemon, &[]), &daemon).await;
        follows_and_is_equal(&daemon, &source, &target).await;
    }
}

/// A key may name a table that was dropped, or never made, with foreign_key_checks=0.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_child_whose_parent_is_gone_is_copied() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "SET foreign_key_checks=0; CREATE DATABASE d; CREATE TABLE d.child (id INT PRIMARY KEY, parent INT, \
             FOREIGN KEY (parent) REFERENCES d.gone (id)); INSERT INTO d.child VALUES (1, 7)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    ends_well(start_copying(&daemon, &[]), &daemon).await;
    assert!(copy_log(&daemon).contains("in chunks"), "{}", copy_log(&daemon));
    // Foreign keys come once the rows have converged.
    follows_and_is_equal(&daemon, &source, &target).await;
}

/// Chunks before the rename are of another table than those after it, and both have one definition.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_table_that_is_rotated_while_it_is_copied_stops_the_channel() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
    let daemon = Daemon::builder(&source, &target)
        .set("copy.snapshot_limit", "0MiB")
        .set("copy.verify", false)
        .build();
    let copying = start_copying(&daemon, &["--lanes", "1", "--rows-per-second", "8000"]);
    another_chunk(&target, 0).await;
    let rotate = "RENAME TABLE sbtest.sbtest1 TO sbtest.rotated, sbtest.fresh TO sbtest.sbtest1";
    source.exec("CREATE TABLE sbtest.fresh LIKE sbtest.sbtest1").await;
    source.exec(rotate).await;
    ends_well(copying, &daemon).await;
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(error.contains("renames sbtest.sbtest1"), "{error}");
    let gtid = error.split("gtid_next='").nth(1).and_then(|rest| rest.split('\'').next());
    let gtid = gtid.expect("the statement's GTID");
    target.exec(&format!("SET gtid_next='{gtid}'; {rotate}; SET gtid_next='AUTOMATIC'")).await;
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    let tables = ["--table", "sbtest.sbtest1", "--table", "sbtest.rotated"];
    ends_well(start_copying(&daemon, &tables), &daemon).await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The table is in no chunk, and was made before the copy began: the stream does not make it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_interrupted_copy_with_other_rules_begins_again() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { rows: 15_000, ..busy() }).await;
    source
        .exec("CREATE TABLE sbtest.item (id INT PRIMARY KEY); INSERT INTO sbtest.item VALUES (1)")
        .await;
    let daemon = Daemon::builder(&source, &target)
        .set("copy.snapshot_limit", "0MiB")
        .set("applier.replicate_ignore_table", vec!["sbtest.item"])
        .build();
    let mut copying = start_copying(&daemon, &["--lanes", "1", "--rows-per-second", "5000"]);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let more = "SELECT COALESCE(SUM(rows_copied), 0) > 0 FROM csa.copy_range";
        conn.query_first(more).await.unwrap_or_default() == Some(1)
    })
    .await;
    copying.kill().expect("kills");
    copying.wait().expect("ends");
    daemon.set("applier.replicate_ignore_table", vec!["sbtest.another"]);
    daemon.write_config();
    ends_well(start_copying(&daemon, &[]), &daemon).await;
    source.exec("INSERT INTO sbtest.item VALUES (2)").await;
    follows_and_is_equal(&daemon, &source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_an_older_source_end_as_it_does() {
    let source = Server::start_version("source", "8.0.15", &[]);
    let target = Server::start("target", &[]);
    make_restless(&source).await;
    let restless = Restless::start(&source, 4).await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.tls", "disabled")
        .set("source.get_public_key", true)
        .set("copy.snapshot_limit", "0MiB")
        .build();
    ends_well(start_copying(&daemon, &["--lanes", "1"]), &daemon).await;
    assert!(copy_log(&daemon).contains("in chunks"), "{}", copy_log(&daemon));
    daemon.start_again();
    restless.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = csa_tests::Compare::contents().run(&source, &target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

/// The number that the environment gives, so that a night can be longer than a test.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Ten tables under 64 clients. The daemon, which copies, and the target are killed in turn.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn ten_tables_are_copied_while_daemon_and_target_are_killed() {
    let rows = number("CSA_COPY_ROWS", 4_000);
    let pause = Duration::from_secs(number("CSA_COPY_KILL_SECONDS", 1));
    let rate = Some(number("CSA_COPY_RATE", 30) as f64);
    let (source, target) = Server::pair(&[], &[]);
    let load = LoadOptions { tables: 10, rows, clients: 64, rate, ..busy() };
    prepare(&source, &load).await;
    let clients = Load::start(&source, &load);
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("target.connect_retry", "100ms")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", "0MiB")
        // At least five kills: a quick machine copies all in a second.
        .set("copy.rows_per_second", (2 * rows) as i64)
        .set("copy.lanes", 2)
        .build();
    daemon.spawn();
    let mut kills = 0;
    while !daemon.log().contains("all rows are copied") {
        assert!(kills < 40, "the copy begins again and again: {}", daemon.log_tail());
        // Longer and longer: on a busy machine, the begin of a copy takes its time.
        tokio::time::sleep(pause * (1 + kills / 4)).await;
        if kills % 2 == 0 {
            daemon.kill9();
            daemon.spawn();
        } else {
            target.kill9();
            target.restart();
        }
        kills += 1;
    }
    println!("{kills} kills");
    assert!(kills > 1, "nothing was killed while rows were copied");
    clients.stop().await;
    eventually("the copy is whole", Duration::from_secs(900), async || {
        daemon.try_status().is_some_and(|status| status["channels"][0]["state"] == "running")
    })
    .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let again = daemon.log().matches("begins again").count();
    assert_eq!(again, 0, "an interrupted copy began again: {}", daemon.log_tail());
}

/// Ten tables under 64 clients. One is altered, the daemon and the target are killed, and the source dies for good in
/// the middle: the copy begins again, from the replica that takes its place, and is interrupted there too.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_whose_source_fails_over_is_made_from_the_next_one() {
    let rows = number("CSA_COPY_ROWS", 3_000);
    let pause = Duration::from_secs(number("CSA_COPY_KILL_SECONDS", 1));
    let (source, target) = Server::pair(&[], &[]);
    let replica = Server::start("replica", &[]);
    replica.follow(&source).await;
    let rate = Some(number("CSA_COPY_RATE", 30) as f64);
    let load = LoadOptions { tables: 10, rows, clients: 64, rate, ..busy() };
    prepare(&source, &load).await;
    let has_all = async || {
        eventually("the replica has all", Duration::from_secs(600), async || {
            replica.gtid_executed().await == source.gtid_executed().await
        })
        .await;
    };
    has_all().await;
    let failover = format!("a = [{{ host = \"127.0.0.1\", port = {} }}]", replica.port);
    let failover = failover.parse::<toml::Table>().expect("TOML")["a"].clone();
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("source.failover", failover)
        .set("target.connect_retry", "100ms")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", "0MiB")
        // All rows take 50 seconds: the source must die before the last one, on a busy machine too.
        .set("copy.rows_per_second", rows as i64 / 5)
        .build();
    let copied = async |share: f64| {
        let enough = rows as f64 * 10.0 * share;
        eventually("rows are copied", Duration::from_secs(600), async || {
            let Some(status) = daemon.try_status() else { return false };
            let channel = &status["channels"][0];
            assert_ne!(channel["state"], "running", "the copy has ended: {}", daemon.log_tail());
            channel["copy"]["rows"].as_f64().is_some_and(|rows| rows > enough)
        })
        .await;
    };
    let clients = Load::start(&source, &load);
    daemon.start_again();
    copied(0.2).await;
    source.exec("ALTER TABLE sbtest.sbtest3 ADD COLUMN late INT NOT NULL DEFAULT 7").await;
    tokio::time::sleep(pause).await;
    daemon.kill9();
    daemon.start_again();
    tokio::time::sleep(pause).await;
    target.kill9();
    target.restart();
    copied(0.3).await;
    clients.stop().await;
    has_all().await;
    source.kill9();
    replica.exec("STOP REPLICA; RESET REPLICA ALL").await;
    let clients = Load::start(&replica, &load);
    copied(0.1).await;
    daemon.kill9();
    daemon.set("copy.rows_per_second", 10_000.max(rows as i64));
    daemon.start_again();
    tokio::time::sleep(pause).await;
    target.kill9();
    target.restart();
    eventually("the copy is whole", Duration::from_secs(900), async || {
        daemon.try_status().is_some_and(|status| status["channels"][0]["state"] == "running")
    })
    .await;
    clients.stop().await;
    replica.exec("DELETE FROM sbtest.sbtest2 WHERE id % 11 = 0").await;
    daemon.wait_drained(&replica, &target, Duration::from_secs(300)).await;
    compare(&replica, &target).await;
    assert!(daemon.log().contains("the source is another server"), "{}", daemon.log_tail());
}

/// The tables have rows that the next source never had.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_last_changes_were_lost_with_their_source_says_so() {
    let (source, target) = Server::pair(&[], &[]);
    let replica = Server::start("replica", &[]);
    replica.follow(&source).await;
    prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
    let has_all = async || {
        eventually("the replica has all", DRAIN, async || {
            replica.gtid_executed().await == source.gtid_executed().await
        })
        .await;
    };
    has_all().await;
    replica.exec("STOP REPLICA").await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("copy.snapshot_limit", "0MiB")
        .set("copy.rows_per_second", 8_000)
        .build();
    let copying = start_copying(&daemon, &[]);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let rows = "SELECT COUNT(*) FROM csa.copy_range WHERE rows_copied > 0";
        conn.query_first::<u64, _>(rows).await.ok().flatten() > Some(0)
    })
    .await;
    source.exec("DELETE FROM sbtest.sbtest1 WHERE id > 19990").await;
    ends_well(copying, &daemon).await;
    daemon.set("source.port", i64::from(replica.port));
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(
        error.contains("it lacks") && error.contains("docs/provisioning.md#copy-again"),
        "{error}"
    );
    // Nothing was lost: it only was late.
    replica.exec("START REPLICA").await;
    has_all().await;
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&replica, &target, DRAIN).await;
    compare(&replica, &target).await;
}

/// The operator makes another copy in place of one that was interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_given_up_by_hand_leaves_nothing_to_wait_for() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(300))").await;
    source
        .exec(
            "SET SESSION cte_max_recursion_depth=100000; INSERT INTO d.t WITH RECURSIVE n AS \
             (SELECT 1 v UNION ALL SELECT v+1 FROM n WHERE v<60000) SELECT v, REPEAT('x', 200) FROM n",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let mut copying = start_copying(&daemon, &["--rows-per-second", "1000"]);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let some = "SELECT COALESCE(SUM(rows_copied), 0) > 0 FROM csa.copy_range";
        conn.query_first(some).await.unwrap_or_default() == Some(1)
    })
    .await;
    copying.kill().expect("killed");
    copying.wait().expect("ended");
    let error = daemon.start_refused().await;
    for words in ["DELETE FROM csa.copy WHERE channel='test'", "csa-daemon reload"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    // The source's binary logs have all.
    target.exec("DROP DATABASE d; DELETE FROM csa.copy WHERE channel='test'").await;
    follows_and_is_equal(&daemon, &source, &target).await;
    for table in ["copy_state", "copy_range"] {
        let left: u64 = target.value(&format!("SELECT COUNT(*) FROM csa.{table}")).await;
        assert_eq!(left, 0, "{table}");
    }
}
