//! Sessions of ours that outlive their connection on the target.

use std::time::Duration;

use csa_tests::{
    Daemon, DaemonBuilder, FaultyProxy, Load, LoadOptions, Server, compare, eventually, prepare,
};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use crate::DRAIN;
use crate::crash::mid_drain;

const PATIENCE: Duration = Duration::from_secs(60);

fn state(daemon: &Daemon) -> (String, String) {
    let view = &daemon.try_status().unwrap_or_default()["channels"][0];
    let text = |key: &str| view[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("state_detail"))
}

fn quick(builder: DaemonBuilder) -> DaemonBuilder {
    builder.set("target.connect_retry", "100ms").set("target.connect_retry_max", "1s")
}

/// Returns a session that keeps definitions of `d.t` from changing on the target.
async fn hold(target: &Server) -> Conn {
    let mut conn = target.conn().await;
    conn.query_drop("BEGIN").await.expect("begins");
    conn.query_drop("SELECT * FROM d.t").await.expect("reads");
    conn
}

async fn wait_altering(target: &Server) {
    eventually("the target alters", PATIENCE, async || {
        let waiting = "SELECT COUNT(*) FROM performance_schema.processlist \
             WHERE STATE='Waiting for table metadata lock' AND INFO LIKE 'ALTER%'";
        target.value::<u64>(waiting).await == 1
    })
    .await;
}

async fn says(daemon: &Daemon, words: &str) {
    eventually(&format!("the state says {words:?}"), PATIENCE, async || {
        let (state, detail) = state(daemon);
        assert_ne!(state, "failed", "{detail}\n{}", daemon.log_tail());
        state == "waiting_for_target" && detail.contains(words)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_waits_for_the_statement_it_left_behind() {
    let (source, target) = Server::pair(&[], &[]);
    let proxy = FaultyProxy::start(&target).await;
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = quick(Daemon::builder(&source, &target)).start();
    daemon.wait_drained(&source, &target, DRAIN).await;

    // The process dies; the server notices when it sends the answer.
    let holding = hold(&target).await;
    source.exec("ALTER TABLE d.t ADD COLUMN a INT; INSERT INTO d.t VALUES (1,1)").await;
    wait_altering(&target).await;
    daemon.kill9();
    daemon.set("target.port", i64::from(proxy.port));
    daemon.start_again();
    says(&daemon, "an earlier session of this daemon").await;
    drop(holding);
    daemon.wait_drained(&source, &target, DRAIN).await;

    // The link breaks, and the server does not notice.
    let holding = hold(&target).await;
    source.exec("ALTER TABLE d.t ADD COLUMN b INT; INSERT INTO d.t VALUES (2,2,2)").await;
    wait_altering(&target).await;
    proxy.cut();
    says(&daemon, "an earlier session of this daemon").await;
    drop(holding);
    daemon.wait_drained(&source, &target, DRAIN).await;

    // The link is lost again while nothing executes.
    proxy.cut();
    source.exec("INSERT INTO d.t VALUES (3,3,3)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;

    // An operator kills the statement: it runs once more.
    let holding = hold(&target).await;
    source.exec("ALTER TABLE d.t ADD COLUMN c INT; INSERT INTO d.t VALUES (4,4,4,4)").await;
    wait_altering(&target).await;
    proxy.cut();
    says(&daemon, "KILL").await;
    let holder: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
    target.exec(&format!("KILL {holder}")).await;
    wait_altering(&target).await;
    drop(holding);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_are_cut_for_one_end_only_hold_nothing_up() {
    let (source, target) = Server::pair(&[], &[]);
    let proxy = FaultyProxy::start(&target).await;
    let options = LoadOptions { clients: 4, changes: 3, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon =
        quick(Daemon::builder(&source, &target)).set("target.port", i64::from(proxy.port)).start();
    let load = Load::start(&source, &options);
    for cut in 0..6 {
        assert!(mid_drain(&daemon).await, "cut {cut}\n{}", daemon.log_tail());
        tokio::time::sleep(Duration::from_millis(137 * cut)).await;
        // The workers' open transactions stay open there, with their locks.
        proxy.cut();
        let applied = daemon.status()["channels"][0]["applied_transactions_total"].as_u64();
        eventually("it resumes on its own", PATIENCE, async || {
            daemon.status()["channels"][0]["applied_transactions_total"].as_u64() > applied
        })
        .await;
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_target_that_takes_no_writes_is_waited_for_and_said_to_be() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = quick(Daemon::builder(&source, &target)).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for (round, change) in ["INSERT INTO d.t VALUES (1)", "CREATE TABLE d.u (id INT PRIMARY KEY)"]
        .into_iter()
        .enumerate()
    {
        target.exec("SET GLOBAL super_read_only=ON").await;
        let before = daemon.log().len();
        source.exec(change).await;
        says(&daemon, "super-read-only").await;
        let until = std::time::Instant::now() + Duration::from_secs(8);
        while std::time::Instant::now() < until {
            let (state, detail) = state(&daemon);
            assert_eq!(state, "waiting_for_target", "{detail}");
            assert!(detail.contains("super-read-only"), "{detail}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // A single back-off: 0.1, 0.2, 0.4, 0.8 and then 1 s.
        let said = daemon.log().split_off(before);
        let warnings = said.lines().filter(|line| line.contains("WARN")).count();
        assert!(warnings <= 20, "{warnings} warnings\n{said}");
        target.exec("SET GLOBAL super_read_only=OFF; SET GLOBAL read_only=OFF").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        eventually("it says that it runs", PATIENCE, async || state(&daemon).0 == "running").await;
        assert_eq!(
            daemon.status()["channels"][0]["last_error"],
            serde_json::Value::Null,
            "{round}"
        );
    }
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_link_that_swallows_everything_is_noticed_and_the_channel_resumes() {
    let (source, target) = Server::pair(&[], &[]);
    let proxy = FaultyProxy::start(&target).await;
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = quick(Daemon::builder(&source, &target))
        .set("target.port", i64::from(proxy.port))
        .set("target.net_timeout", "1s")
        .set("target.connect_timeout", "1s")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;

    // A statement takes longer than the timeout: the target reports that it still runs.
    let holding = hold(&target).await;
    source.exec("ALTER TABLE d.t ADD COLUMN a INT; INSERT INTO d.t VALUES (1,1)").await;
    wait_altering(&target).await;
    let connects = async || target.value::<u64>("SELECT IS_USED_LOCK('csa:test')").await;
    let before = connects().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(state(&daemon).0, "waiting_for_lock", "{}", daemon.log_tail());
    assert_eq!(connects().await, before);

    // In the middle of the statement, and the answer is lost too.
    proxy.black_hole();
    says(&daemon, "").await;
    drop(holding);
    for _ in 0..100 {
        let (state, detail) = state(&daemon);
        assert_eq!(state, "waiting_for_target", "{detail}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy.heal();
    daemon.wait_drained(&source, &target, DRAIN).await;

    // While nothing executes, with rows that arrive meanwhile.
    for row in 2..5 {
        proxy.black_hole();
        source.exec(&format!("INSERT INTO d.t VALUES ({row},{row})")).await;
        says(&daemon, "").await;
        proxy.heal();
        daemon.wait_drained(&source, &target, DRAIN).await;
        eventually("it says that it runs", PATIENCE, async || state(&daemon).0 == "running").await;
    }
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_whose_host_died_in_the_middle_of_a_group_is_started_again() {
    let (source, target) = Server::pair(&[], &[]);
    let proxy = FaultyProxy::start(&target).await;
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1,1), (2,2)").await;
    let daemon =
        quick(Daemon::builder(&source, &target)).set("target.port", i64::from(proxy.port)).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for round in 0..2 {
        let mut blocker = target.conn().await;
        blocker.query_drop("BEGIN; UPDATE d.t SET v=-1 WHERE id=1").await.expect("locks");
        source.exec("UPDATE d.t SET v=v+1").await;
        eventually("a worker waits for the row", PATIENCE, async || {
            let waiting = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
            target.value::<u64>(waiting).await == 1
        })
        .await;
        proxy.forget();
        daemon.kill9();
        // The worker's session gets its row, and keeps that of the checkpoint locked for nobody.
        blocker.query_drop("ROLLBACK").await.expect("rolls back");
        drop(blocker);
        if round == 1 {
            // The server has ended the control session, which it does after a minute; then nothing
            // shows that the workers were this daemon's.
            let holder: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
            target.exec(&format!("KILL {holder}")).await;
        }
        let started = std::time::Instant::now();
        daemon.start_again();
        daemon.wait_drained(&source, &target, DRAIN).await;
        // One wait for the row's lock takes 10 s. The proxy would keep it for 20 s, a network for hours.
        let limit = Duration::from_secs(16);
        assert!(started.elapsed() < limit, "{:?}\n{}", started.elapsed(), daemon.log_tail());
    }
    compare(&source, &target).await;
}

/// Returns a session that has begun the source's next transaction under its GTID.
async fn owner(target: &Server, gtid: &str) -> Conn {
    let mut conn = target.conn().await;
    conn.query_drop(format!("SET SESSION gtid_next='{gtid}'")).await.expect("sets");
    conn.query_drop("BEGIN").await.expect("begins");
    conn
}

/// Executes a statement on the source; its GTID.
async fn gtid_of(source: &Server, statement: &str) -> String {
    let before: String = source.value("SELECT @@GLOBAL.gtid_executed").await;
    source.exec(statement).await;
    source.value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')")).await
}

/// The server waits for a GTID without a limit, and ends a session whose client is gone after hours.
#[tokio::test(flavor = "multi_thread")]
async fn a_gtid_that_a_session_left_behind_owns_holds_nothing_up() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = quick(Daemon::builder(&source, &target))
        .set("applier.target_gtids", "source")
        .set("applier.commit", "one-to-one")
        .set("applier.worker_count", 4)
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());

    // This session is that of a worker that the next daemon does not have.
    let gtid = gtid_of(&source, "INSERT INTO d.t VALUES (1)").await;
    let mut left = owner(&target, &gtid).await;
    left.query_drop("DO GET_LOCK('csa-worker:3:test', 0)").await.expect("locks");
    daemon.set("applier.worker_count", 1);
    daemon.start_again();
    daemon.wait_drained(&source, &target, PATIENCE).await;
    assert!(left.query_drop("DO 1").await.is_err(), "it was ended");

    // This session is another client's, which is named and left alone.
    let (uuid, number) = gtid.split_once(':').expect("one GTID");
    let gtid = format!("{uuid}:{}", number.parse::<u64>().expect("a number") + 1);
    let mut other = owner(&target, &gtid).await;
    assert_eq!(gtid_of(&source, "INSERT INTO d.t VALUES (2)").await, gtid);
    eventually("it names the owner", PATIENCE, async || {
        daemon.status()["channels"][0]["applier"]["lock_holders"] == serde_json::json!([other.id()])
    })
    .await;
    other.query_drop("ROLLBACK").await.expect("it was left alone");
    daemon.wait_drained(&source, &target, PATIENCE).await;
    compare(&source, &target).await;
}
