//! `csa-daemon copy`: an empty target becomes a copy, and then follows the source.

mod again;
mod chunks;
mod cloned;
mod everything;
mod moved;
mod pace;
mod privileges;
mod range;
mod restless;
mod router;
mod scale;
mod server_facts;
mod versions;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use csa_tests::{Compare, Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, wait_state};

/// Returns the arguments of a copy that reads the source as its administrator.
fn arguments(daemon: &Daemon) -> Vec<String> {
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    ["copy", "--source-user", "admin", "--source-password-file", &password]
        .map(str::to_owned)
        .into()
}

fn copied(daemon: &Daemon) -> String {
    let arguments = arguments(daemon);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tokio::task::block_in_place(|| daemon.commanded(&arguments))
}

/// Returns the error of a copy that is refused.
fn refused(daemon: &Daemon) -> String {
    refused_with(daemon, &[])
}

/// Returns the error of a copy with these arguments, which is refused.
fn refused_with(daemon: &Daemon, more: &[&str]) -> String {
    let arguments = arguments(daemon);
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    assert_eq!(said.code, Some(1), "{said:?}");
    said.error
}

/// Starts a copy with these arguments; [`copy_log`] has what it says.
fn start_copying(daemon: &Daemon, more: &[&str]) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(copy_log_path(daemon))
        .expect("writable");
    Command::new(Daemon::executable())
        .arg("--config")
        .arg(daemon.config_path())
        .args(arguments(daemon))
        .args(more)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file"))
        .stderr(log)
        .spawn()
        .expect("starts")
}

fn copy_log_path(daemon: &Daemon) -> PathBuf {
    daemon.config_path().with_file_name("copy.log")
}

fn copy_log(daemon: &Daemon) -> String {
    std::fs::read_to_string(copy_log_path(daemon)).unwrap_or_default()
}

/// Waits for the end of a copy; returns true if it ended well.
async fn ends(mut copying: Child, within: Duration) -> bool {
    eventually("the copy ends", within, async || copying.try_wait().expect("a child").is_some())
        .await;
    copying.wait().expect("a child").success()
}

async fn ends_well(copying: Child, daemon: &Daemon) {
    assert!(ends(copying, 3 * DRAIN).await, "{}", copy_log(daemon));
}

/// The daemon starts, and applies what has changed since the copy.
async fn follows_and_is_equal(daemon: &Daemon, source: &Server, target: &Server) {
    daemon.start_again();
    wait_state(daemon, 0, "running").await;
    daemon.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
}

/// Clients write all the time, and leave the processors to the copy.
fn busy() -> LoadOptions {
    LoadOptions {
        tables: 3,
        rows: 30_000,
        clients: 8,
        rate: Some(40.0),
        transfers_percent: 50,
        ..LoadOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_made_while_clients_write_is_followed_without_a_difference() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    source.exec("ANALYZE TABLE sbtest.sbtest1, sbtest.sbtest2, sbtest.sbtest3").await;
    let load = Load::start(&source, &busy());
    let daemon = Daemon::builder(&source, &target).build();
    let said = copied(&daemon);
    assert!(
        said.contains("tables, ")
            && said.contains("it holds the source's transactions")
            && said.contains("all rows equal those of the source's snapshot"),
        "{said}"
    );
    let before = load.committed();
    daemon.start_again();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = load.stop().await;
    assert!(report.committed > before, "nothing was written after the copy");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    // It is the channel's copy now.
    daemon.terminate();
    let error = refused(&daemon);
    assert!(error.contains("the channel's copy already"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_that_was_killed_is_made_again_and_not_taken_for_one() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    let load = Load::start(&source, &busy());
    let daemon = Daemon::builder(&source, &target).build();
    for milliseconds in [0, 100, 200] {
        let begun: String = target.value("SELECT CAST(NOW(6) AS CHAR)").await;
        let noted = format!("SELECT COUNT(*) FROM csa.copy WHERE begun_at > '{begun}'");
        let mut copying = start_copying(&daemon, &["--lanes", "1", "--rows-per-second", "20000"]);
        let mut conn = target.conn().await;
        eventually("tables are being copied", DRAIN, async || {
            conn.query_first(&noted).await.unwrap_or_default() > Some(0)
        })
        .await;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        copying.kill().expect("kills");
        copying.wait().expect("ends");
    }
    let begun: u64 = target.value("SELECT COUNT(*) FROM csa.copy").await;
    assert!(begun > 0, "no copy was interrupted");
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    assert!(said.out.contains("was begun and not finished"), "{said:?}");
    assert_eq!(said.code, Some(2), "{said:?}");
    // The target's rows are of several moments.
    daemon.spawn();
    eventually("the channel is refused", DRAIN, async || {
        daemon.log().contains("run csa-daemon copy --channel test again")
    })
    .await;
    daemon.kill9();
    copied(&daemon);
    daemon.start_again();
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_copied_is_named_before_anything_is_made() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); \
             CREATE TABLE d.old (id INT PRIMARY KEY) ENGINE=MyISAM",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).build();
    // The replicating account may read nothing.
    let planned = [&arguments(&daemon)[..], &["--plan".to_owned()]].concat();
    let said = tokio::task::block_in_place(|| daemon.command(&["copy"]));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.error.contains("GRANT SELECT ON *.* TO"), "{}", said.error);
    let error = refused(&daemon);
    assert!(error.contains("d.old") && error.contains("ENGINE=InnoDB"), "{error}");
    source.exec("ALTER TABLE d.old ENGINE=InnoDB; SET GLOBAL binlog_order_commits=OFF").await;
    let error = refused(&daemon);
    assert!(error.contains("SET GLOBAL binlog_order_commits=ON"), "{error}");
    source.exec("SET GLOBAL binlog_order_commits=ON").await;
    let long_ago = toml::Value::from("2020-01-01T00:00:00Z");
    let until = toml::Table::from_iter([("sql_before_time".to_owned(), long_ago)]);
    daemon.set("applier.until", until);
    daemon.write_config();
    let error = refused(&daemon);
    assert!(error.contains("applier.until") && error.contains("2020-01-01"), "{error}");
    daemon.unset("applier.until");
    daemon.write_config();
    let planned: Vec<&str> = planned.iter().map(String::as_str).collect();
    let said = tokio::task::block_in_place(|| daemon.commanded(&planned));
    assert!(said.contains("d.t: about") && said.contains("2 tables"), "{said}");
    target.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT)").await;
    let error = refused(&daemon);
    assert!(error.contains("d.t") && error.contains("start_from"), "{error}");
    let there: u64 =
        target.value("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'").await;
    assert_eq!(there, 1, "something was made");
    target.exec("DROP TABLE d.t; ALTER DATABASE d COLLATE latin1_bin").await;
    let error = refused(&daemon);
    let fix = "ALTER DATABASE `d` COLLATE utf8mb4_0900_ai_ci";
    assert!(error.contains("latin1_bin") && error.contains(fix), "{error}");
    target.exec(fix).await;
    // A view of a table that is not replicated can't be made; the rows can.
    source.exec("CREATE TABLE d.secret (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)").await;
    source.exec("CREATE VIEW d.v AS SELECT id FROM d.secret").await;
    daemon.set("applier.replicate_ignore_table", vec!["d.secret"]);
    daemon.write_config();
    let planned: Vec<String> = arguments(&daemon);
    let planned: Vec<&str> = planned.iter().map(String::as_str).collect();
    let said = tokio::task::block_in_place(|| daemon.command(&planned));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.error.contains("not copied: ") && said.error.contains("view d.v"), "{said:?}");
    let rows: u64 = target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(rows, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_passes_the_end_while_a_copy_begins_is_refused() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    // The copy waits for its end, for some seconds.
    source.exec("XA START 'x'; INSERT INTO d.t VALUES (1); XA END 'x'; XA PREPARE 'x'").await;
    let daemon = Daemon::builder(&source, &target).build();
    let end = toml::Value::from(source.gtid_executed().await);
    daemon.set("applier.until", toml::Table::from_iter([("sql_after_gtids".to_owned(), end)]));
    daemon.write_config();
    let copying = start_copying(&daemon, &[]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    source.exec("XA COMMIT 'x'").await;
    assert!(!ends(copying, DRAIN).await, "it was copied");
    assert!(copy_log(&daemon).contains("applier.until"), "{}", copy_log(&daemon));
    let query = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'";
    assert_eq!(target.value::<u64>(query).await, 0, "something was made");
}

/// A copy whose session for the channel was killed still has sessions that write rows.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn two_copies_write_no_row_twice() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.keyless (v INT)").await;
    source.exec("SET SESSION cte_max_recursion_depth=100000; INSERT INTO d.keyless WITH RECURSIVE n AS (SELECT 1 v UNION ALL SELECT v+1 FROM n WHERE v<60000) SELECT v FROM n").await;
    source.exec("ANALYZE TABLE d.keyless").await;
    let daemon = Daemon::builder(&source, &target).build();
    let first = start_copying(&daemon, &["--rows-per-second", "1000"]);
    eventually("rows are copied", DRAIN, async || copy_log(&daemon).contains("of about")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(target.value::<u64>("SELECT COUNT(*) FROM d.keyless").await > 0);
    let said = refused(&daemon);
    assert!(said.contains("another daemon holds it on this target (connection "), "{said}");
    let claim: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
    target.exec(&format!("KILL {claim}")).await;
    copied(&daemon);
    assert!(!ends(first, DRAIN).await);
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Killed in the middle, the daemon begins the copy again, and follows the source once it is made.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_begins_with_a_copy_by_itself() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    source.exec("CREATE DATABASE other; CREATE TABLE other.t (id INT PRIMARY KEY)").await;
    // The target could not begin with the source's first transaction.
    source.exec("FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW()").await;
    let load = Load::start(&source, &busy());
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.start_from", "copy")
        .set("applier.replicate_ignore_db", vec!["other"])
        .build();
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    assert!(said.out.contains("begins with a copy of the source"), "{said:?}");
    assert_eq!(said.code, Some(0), "{said:?}");
    daemon.spawn();
    copies_rows(&daemon).await;
    daemon.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::new().ignore_schema("other").run(&source, &target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
    let other: u64 = target
        .value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='other'")
        .await;
    assert_eq!(other, 0);
    // It has a checkpoint now.
    daemon.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
}

async fn copies_rows(daemon: &Daemon) {
    eventually("it copies", DRAIN, async || {
        daemon.try_status().is_some_and(|status| {
            let detail = status["channels"][0]["state_detail"].to_string();
            let copy = &status["channels"][0]["copy"];
            detail.contains("copying the source") && copy["step"] == "rows"
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_is_made_whatever_happens_meanwhile() {
    made_whatever_happens("1GiB").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_in_chunks_is_made_whatever_happens_meanwhile() {
    made_whatever_happens("0MiB").await;
}

/// Servers that are killed, and definitions that change: the daemon makes the copy again, until it is whole.
async fn made_whatever_happens(snapshot_limit: &str) {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { rows: 20_000, ..busy() }).await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("source.connect_retry", "100ms")
        .set("target.connect_retry", "100ms")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", snapshot_limit)
        // The servers must die while rows are copied.
        .set("copy.rows_per_second", 8_000)
        .build();
    // A table that is made just before the snapshots is made by no later transaction.
    let opts = source.opts();
    let maker = tokio::spawn(async move {
        let mut conn = Conn::new(opts).await.expect("connects");
        for number in 0..40 {
            let table = format!("sbtest.made{number}");
            conn.query_drop(format!("CREATE TABLE {table} (id INT PRIMARY KEY)"))
                .await
                .expect("makes");
            conn.query_drop(format!("INSERT INTO {table} VALUES (1)")).await.expect("inserts");
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    });
    daemon.spawn();
    maker.await.expect("makes all");
    copies_rows(&daemon).await;
    source.kill9();
    source.restart();
    copies_rows(&daemon).await;
    target.kill9();
    target.restart();
    copies_rows(&daemon).await;
    // DDL does not wait for the copy. A table that is not read yet can't be read any more, and one that was read gets
    // the change from the stream.
    let load = Load::start(&source, &LoadOptions { clients: 4, ..busy() });
    for table in 1..=3 {
        source
            .exec(&format!("ALTER TABLE sbtest.sbtest{table} ADD COLUMN late INT DEFAULT 7"))
            .await;
    }
    source
        .exec("CREATE TABLE sbtest.late (id INT PRIMARY KEY); INSERT INTO sbtest.late VALUES (1)")
        .await;
    eventually("all rows are copied", DRAIN, async || daemon.log().contains("all rows are copied"))
        .await;
    load.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The end of a copy is compared with the snapshot, in which nothing has changed meanwhile.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_that_somebody_else_changes_is_no_start() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    let daemon = Daemon::builder(&source, &target).build();
    let copying = start_copying(&daemon, &["--rows-per-second", "20000", "--lanes", "1"]);
    let mut conn = target.conn().await;
    eventually("a row is there", DRAIN, async || {
        let changed =
            "SET sql_log_bin=0; UPDATE sbtest.sbtest1 SET c='not the source''s' WHERE id=1";
        conn.query_drop(changed).await.is_ok() && conn.affected_rows() > 0
    })
    .await;
    let ended_well = ends(copying, DRAIN).await;
    let said = copy_log(&daemon);
    assert!(said.contains("sbtest.sbtest1 on the target (30000 rows) differs"), "{said}");
    assert!(!ended_well, "{said}");
    // Nothing begins there.
    let checkpoints: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
    assert_eq!(checkpoints, 0);
    ends_well(start_copying(&daemon, &["--no-verify"]), &daemon).await;
    assert!(!copy_log(&daemon).contains("all rows equal"), "{}", copy_log(&daemon));
    follows_and_is_equal(&daemon, &source, &target).await;
}

/// Transactions that an earlier copy received, and the source has lost since, would seem to follow from the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_begins_with_an_empty_relay_store() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).set("relay.sync", "transaction").start();
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["pause"]);
    source.exec("INSERT INTO d.t VALUES (1)").await;
    let segments = || daemon.relay_segments().len();
    eventually("it is received", DRAIN, async || segments() > 0).await;
    daemon.commanded(&["stop"]);
    let forget = "DROP DATABASE d; DELETE FROM csa.checkpoint";
    target.exec(forget).await;
    let error = refused(&daemon);
    assert!(error.contains("csa-daemon stop --receiving"), "{error}");
    daemon.commanded(&["stop", "--receiving"]);
    assert!(segments() > 0);
    copied(&daemon);
    assert_eq!(segments(), 0);
    daemon.commanded(&["restart"]);
    daemon.commanded(&["resume"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Rules name each of its tables: one that is made later is replicated.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_whose_tables_are_all_left_out_is_made() {
    let (source, target) = Server::pair(&[], &[]);
    for statement in [
        "CREATE DATABASE app",
        "CREATE TABLE app.sessions (id INT PRIMARY KEY)",
        "CREATE PROCEDURE app.purge() DO 1",
        "CREATE DATABASE other",
        "CREATE TABLE other.t (id INT PRIMARY KEY)",
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY)",
    ] {
        source.exec(statement).await;
    }
    let daemon = Daemon::builder(&source, &target)
        .set("applier.replicate_ignore_table", vec!["app.sessions"])
        .set("applier.replicate_wild_ignore_table", vec!["other.%"])
        .build();
    copied(&daemon);
    daemon.start_again();
    source.exec("CREATE TABLE app.x (id INT PRIMARY KEY); INSERT INTO app.x VALUES (1)").await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM app.x").await, 1);
    let routines = "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema='app'";
    assert_eq!(target.value::<u64>(routines).await, 1);
    let there =
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema IN ('app', 'other')";
    assert_eq!(target.value::<u64>(there).await, 1);
    let other = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='other'";
    assert_eq!(target.value::<u64>(other).await, 0);
}
