//! `csa-daemon copy --table`: tables are copied again while the channel follows its source.

use std::process::Child;
use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Proxy, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use super::restless::{Restless, restless_pair};
use super::{busy, copy_log, ends, ends_well, follows_and_is_equal, refused_with, start_copying};
use crate::{DRAIN, wait_state};

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_lost_tables_are_copied_again_under_load() {
    let (source, target) = restless_pair().await;
    let load = LoadOptions { rows: 10_000, clients: 3, ..busy() };
    prepare(&source, &load).await;
    source.exec("CREATE TABLE restless.fired (id INT PRIMARY KEY)").await;
    source
        .exec(
            "CREATE TRIGGER restless.fires AFTER INSERT ON restless.person FOR EACH ROW \
             INSERT IGNORE INTO restless.fired VALUES (NEW.id)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let clients = Load::start(&source, &load);
    let restless = Restless::start(&source, 2).await;
    for damage in [
        "UPDATE restless.person SET body='damaged' WHERE id % 3 = 0",
        "DELETE FROM restless.item WHERE id % 2 = 0",
        "DELETE FROM restless.word",
        "DROP TABLE sbtest.sbtest2",
    ] {
        target.exec(&format!("SET sql_log_bin=0; {damage}")).await;
    }
    wait_state(&daemon, 0, "failed").await;
    let tables =
        ["restless.person", "restless.item", "restless.word", "sbtest.sbtest1", "sbtest.sbtest2"];
    let tables: Vec<&str> = tables.into_iter().flat_map(|table| ["--table", table]).collect();
    // The command is killed in a round, and the daemon between two.
    for number in 0..3 {
        let slowly = ["--rows-per-second", "8000"];
        let mut copying = start_copying(&daemon, &[&tables[..], &slowly[..]].concat());
        let mut conn = target.conn().await;
        let mut last = 0;
        eventually("rows are copied", DRAIN, async || {
            let ended = copying.try_wait().expect("a child");
            assert!(ended.is_none(), "{}", copy_log(&daemon));
            let rows = "SELECT CAST(COALESCE(SUM(rows_copied), 0) AS UNSIGNED) FROM csa.copy_range";
            let rows: u64 = conn.query_first(rows).await.ok().flatten().unwrap_or_default();
            std::mem::replace(&mut last, rows) < rows || rows > 25_000
        })
        .await;
        copying.kill().expect("kills");
        copying.wait().expect("ends");
        if number == 1 {
            daemon.kill9();
            daemon.start_again();
        }
    }
    ends_well(start_copying(&daemon, &tables), &daemon).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    restless.stop().await;
    clients.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let left: u64 = target.value("SELECT COUNT(*) FROM csa.copy_state").await;
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_can_not_be_copied_again_are_named() {
    let (source, target) = Server::pair(&[], &[]);
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.keyless (a INT)",
        "CREATE TABLE d.parent (id INT PRIMARY KEY)",
        "CREATE TABLE d.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES d.parent (id) ON DELETE CASCADE)",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO d.t VALUES (1, 1), (2, 2)",
    ] {
        source.exec(statement).await;
    }
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for (table, why) in [
        ("d.keyless", "primary key"),
        ("d.child", "cascades"),
        ("d.parent", "cascades"),
        ("d.none", "no such table is replicated"),
    ] {
        let error = refused_with(&daemon, &["--table", table]);
        assert!(error.contains(table) && error.contains(why), "{error}");
        wait_state(&daemon, 0, "running").await;
    }
    target.exec("SET sql_log_bin=0; ALTER TABLE d.t ADD COLUMN w INT").await;
    let error = refused_with(&daemon, &["--table", "d.t"]);
    assert!(error.contains("column w is only on the target"), "{error}");
    target.exec("SET sql_log_bin=0; ALTER TABLE d.t DROP COLUMN w; DELETE FROM d.t").await;
    // Without a daemon, in one round.
    daemon.terminate();
    ends_well(start_copying(&daemon, &["--table", "d.t"]), &daemon).await;
    assert!(copy_log(&daemon).contains("no daemon answers"), "{}", copy_log(&daemon));
    source.exec("INSERT INTO d.t VALUES (3, 3)").await;
    follows_and_is_equal(&daemon, &source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_named_as_a_source_that_folds_case_reads_it() {
    let folded = ["--lower-case-table-names=1"];
    let (source, target) = Server::pair(&folded, &folded);
    for statement in [
        "CREATE DATABASE Shop",
        "CREATE TABLE Shop.Item (id INT PRIMARY KEY, v INT UNIQUE)",
        "INSERT INTO shop.item VALUES (1, 1), (2, 2)",
    ] {
        source.exec(statement).await;
    }
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("SET sql_log_bin=0; DELETE FROM shop.item").await;
    ends_well(start_copying(&daemon, &["--table", "Shop.Item"]), &daemon).await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Until it has the rules of the file, the channel leaves out what changes meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_copied_once_the_channel_has_the_rules_of_the_file() {
    let (source, target) = Server::pair(&[], &[]);
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO d.t VALUES (1, 1), (2, 2)",
    ] {
        source.exec(statement).await;
    }
    let ignored = "applier.replicate_ignore_table";
    let daemon = Daemon::builder(&source, &target).set(ignored, vec!["d.t"]).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.unset(ignored);
    daemon.write_config();
    let error = refused_with(&daemon, &["--table", "d.t"]);
    assert!(error.contains("csa-daemon reload; csa-daemon restart --channel test"), "{error}");
    wait_state(&daemon, 0, "running").await;
    tokio::task::block_in_place(|| daemon.commanded(&["reload", "--restart"]));
    wait_state(&daemon, 0, "running").await;
    ends_well(start_copying(&daemon, &["--table", "d.t"]), &daemon).await;
    source.exec("UPDATE d.t SET v = 3 WHERE id = 1").await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The target permits DROP, and no CREATE: the table is gone, and the channel must not stop at its next row.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_makes_the_tables_that_an_interrupted_copy_dropped() {
    let (source, target) = Server::pair(&[], &[]);
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v INT UNIQUE)",
        "INSERT INTO d.t VALUES (1, 1), (2, 2)",
    ] {
        source.exec(statement).await;
    }
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target
        .exec("SET sql_log_bin=0; GRANT CREATE ON csa.* TO csa; REVOKE CREATE ON *.* FROM csa")
        .await;
    let error = refused_with(&daemon, &["--table", "d.t"]);
    assert!(error.contains("denied"), "{error}");
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'";
    assert_eq!(target.value::<u64>(tables).await, 0);
    source.exec("INSERT INTO d.t VALUES (3, 3)").await;
    source.exec("UPDATE d.t SET v = v + 10").await;
    target.exec("SET sql_log_bin=0; GRANT CREATE ON *.* TO csa").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let status = daemon.status();
    let view = &status["channels"][0];
    assert_eq!((&view["state"], &view["copy"]["step"]), (&"starting".into(), &"rows_left".into()));
    ends_well(start_copying(&daemon, &["--table", "d.t"]), &daemon).await;
    wait_state(&daemon, 0, "running").await;
    compare(&source, &target).await;
}

/// A round prepares for longer than it was told to copy rows.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_table_is_copied_again_from_a_source_that_is_far_away() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { tables: 1, rows: 5_000, ..busy() }).await;
    let far_away = Proxy::to(source.port);
    let daemon = Daemon::builder(&source, &target)
        .set("source.port", i64::from(far_away.port))
        .set("copy.verify", false)
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("SET sql_log_bin=0; DELETE FROM sbtest.sbtest1 WHERE id % 2 = 0").await;
    far_away.set_latency(Duration::from_millis(50));
    ends_well(start_copying(&daemon, &["--table", "sbtest.sbtest1"]), &daemon).await;
    far_away.set_latency(Duration::ZERO);
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The source's definitions are newer than what the channel has applied, so the new table has them before they come.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn keys_and_triggers_that_are_still_to_come_do_no_harm() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; USE d; CREATE TABLE item (id INT PRIMARY KEY, a INT, b INT, UNIQUE u1 (a)); \
             CREATE TABLE fired (id INT PRIMARY KEY); SET cte_max_recursion_depth=100000; \
             INSERT INTO item WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 30000) \
             SELECT n, n, n FROM n",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).set("copy.rows_per_second", 5_000).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["stop"]);
    for statement in [
        "ALTER TABLE d.item ADD UNIQUE u2 (b)",
        "CREATE TRIGGER d.fires AFTER INSERT ON d.item FOR EACH ROW INSERT INTO d.fired VALUES (NEW.id)",
        "INSERT INTO d.item VALUES (0, 0, 0)",
    ] {
        source.exec(statement).await;
    }
    ends_well(start_copying(&daemon, &["--table", "d.item"]), &daemon).await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let keys = "SELECT GROUP_CONCAT(DISTINCT index_name ORDER BY index_name) FROM information_schema.statistics \
                WHERE table_schema='d' AND table_name='item'";
    assert_eq!(target.value::<String>(keys).await, "PRIMARY,u1,u2");
    let triggers = "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema='d'";
    assert_eq!(target.value::<u8>(triggers).await, 1);
}

/// The table is made as the source has it now, and the channel has yet to apply rows of an older definition.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_table_with_a_definition_that_is_still_to_come_stops_the_channel() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT); \
             INSERT INTO d.t VALUES (1, 1, 1), (2, 2, 2)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).set("copy.verify", false).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("SET sql_log_bin=0; DROP TABLE d.t").await;
    source.exec("UPDATE d.t SET b = 5 WHERE id = 1").await;
    wait_state(&daemon, 0, "failed").await;
    source.exec("ALTER TABLE d.t ADD COLUMN c INT AFTER a").await;
    assert!(!ends(start_copying(&daemon, &["--table", "d.t"]), DRAIN).await);
    wait_state(&daemon, 0, "failed").await;
    let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(error.contains("the target lacked d.t when it was copied"), "{error}");
    let gtid = error.split("gtid_next='").nth(1).and_then(|rest| rest.split('\'').next());
    let gtid = gtid.expect("the statement's GTID");
    target.exec(&format!("SET gtid_next='{gtid}'; BEGIN; COMMIT; SET gtid_next='AUTOMATIC'")).await;
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    target.exec("SET sql_log_bin=0; DROP TABLE d.t").await;
    ends_well(start_copying(&daemon, &["--table", "d.t"]), &daemon).await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Between two rounds the channel makes and fills it, while rows of the table that is copied converge.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_created_from_others_meanwhile_is_filled() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let table = ["--table", "sbtest.sbtest1", "--rows-per-second", "4000"];
    let copying = start_copying(&daemon, &table);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let more = "SELECT COALESCE(SUM(rows_copied), 0) > 0 FROM csa.copy_range";
        conn.query_first(more).await.unwrap_or_default() == Some(1)
    })
    .await;
    source.exec("UPDATE sbtest.sbtest1 SET k = k + 1 WHERE id <= 10").await;
    source.exec("CREATE TABLE sbtest.filled (PRIMARY KEY (id)) SELECT * FROM sbtest.sbtest1").await;
    ends_well(copying, &daemon).await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The next transaction is late all the time, and no reason to wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_delayed_channel_ends() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["set", "source_delay", "3s"]);
    let writes = async {
        loop {
            source.exec("INSERT INTO d.t VALUES ()").await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = ends_well(start_copying(&daemon, &["--table", "d.t"]), &daemon) => {}
        () = writes => {}
    }
    daemon.commanded(&["pause"]);
    let said = refused_with(&daemon, &["--table", "d.t"]);
    assert!(said.contains("is paused"), "{said}");
    daemon.commanded(&["resume"]);
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// A copy whose tables have not converged belongs to the checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_channel_ends_the_copy_of_the_old_one() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, a INT UNIQUE); INSERT INTO d.t VALUES (1, 1), (2, 2)")
        .await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    ends_well(start_copying(&daemon, &[]), &daemon).await;
    source.exec("UPDATE d.t SET a = 3 WHERE id = 1").await;
    daemon.set("name", "renamed");
    let config = std::fs::read_to_string(daemon.config_path()).expect("readable");
    let config = config.replace("name = \"test\"", "name = \"renamed\"");
    std::fs::write(daemon.config_path(), config).expect("writable");
    daemon.commanded(&["adopt", "--from", "test"]);
    follows_and_is_equal(&daemon, &source, &target).await;
    let keys = "SELECT COUNT(*) FROM information_schema.statistics WHERE table_name='t' AND index_name='a'";
    assert_eq!(
        target.value::<u8>(keys).await,
        1,
        "the unique key is added with the end of the copy"
    );
}

/// The source drops the table in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_can_not_go_on_is_given_up() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { tables: 2, rows: 20_000, ..busy() }).await;
    let daemon = Daemon::builder(&source, &target).set("copy.rows_per_second", 4_000).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut copying = start_copying(&daemon, &["--table", "sbtest.sbtest1"]);
    let mut conn = target.conn().await;
    eventually("rows are copied", DRAIN, async || {
        let rows = "SELECT COUNT(*) FROM csa.copy_range WHERE rows_copied > 0";
        conn.query_first::<u64, _>(rows).await.ok().flatten() > Some(0)
    })
    .await;
    copying.kill().expect("kills");
    copying.wait().expect("ends");
    source.exec("DROP TABLE sbtest.sbtest1").await;
    let mut said = String::new();
    eventually("the session of the killed copy ends", DRAIN, async || {
        said = refused_with(&daemon, &["--table", "sbtest.sbtest1"]);
        said.contains("it has no table sbtest.sbtest1")
    })
    .await;
    assert!(said.contains("csa-daemon copy --channel test --cancel"), "{said}");
    let said = refused_with(&daemon, &["--table", "sbtest.sbtest2"]);
    let steps = "give it up: csa-daemon stop --channel test, if it runs, then csa-daemon copy --channel test --cancel";
    assert!(said.contains(steps), "{said}");
    // The command that was killed had stopped the channel.
    let said = daemon.commanded(&["copy", "--cancel"]);
    assert!(said.contains("These tables lack rows") && said.contains("sbtest.sbtest1"), "{said}");
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// A copy that stands at a request of its first chunk.
struct Standing {
    source: Server,
    target: Server,
    daemon: Daemon,
    proxy: Proxy,
    copying: Child,
}

impl Standing {
    async fn at(request: &str) -> Self {
        let (source, target) = Server::pair(&[], &[]);
        source
            .exec(
                "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); \
                 INSERT INTO d.t VALUES (1, 1), (2, 1), (3, 1)",
            )
            .await;
        let daemon = Daemon::builder(&source, &target)
            .set("target.tls", "disabled")
            .set("target.get_public_key", true)
            .start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        // Only the copy goes through it: the daemon does not read its file again.
        let proxy = Proxy::to(target.port);
        daemon.set("target.port", i64::from(proxy.port));
        daemon.write_config();
        proxy.hold(Some(request));
        let copying = start_copying(&daemon, &["--table", "d.t"]);
        eventually("the copy stands", DRAIN, async || proxy.is_holding()).await;
        Self { source, target, daemon, proxy, copying }
    }

    /// The session of the copy's claim ends. The channel starts, and applies a change of the chunk's rows.
    async fn is_overtaken(&self) {
        let Self { source, target, daemon, .. } = self;
        let claim: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
        target.exec(&format!("KILL {claim}")).await;
        source.exec("UPDATE d.t SET v = 2").await;
        daemon.commanded(&["restart"]);
        daemon.wait_drained(source, target, DRAIN).await;
    }

    /// Lets the copy continue, which fails; the channel is in `state` then. The same command again ends well.
    async fn fails_in(self, state: &str, words: &[&str]) {
        let Self { source, target, daemon, proxy, copying } = self;
        proxy.hold(None);
        assert!(!ends(copying, DRAIN).await, "{}", copy_log(&daemon));
        let said = copy_log(&daemon);
        for word in words {
            assert!(said.contains(word), "{word} is missing in {said}");
        }
        wait_state(&daemon, 0, state).await;
        ends_well(start_copying(&daemon, &["--table", "d.t"]), &daemon).await;
        wait_state(&daemon, 0, "running").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
    }
}

/// The chunk is read, and its transaction has yet to lock its range.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_of_a_copy_that_has_lost_the_channel_is_not_written() {
    let copy = Standing::at("SELECT 1 FROM csa.copy_range WHERE").await;
    copy.is_overtaken().await;
    copy.fails_in("starting", &["the channel was started", "copy again"]).await;
}

/// The chunk's transaction is open, as that of a copy whose host is gone.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_chunk_that_was_left_behind_does_not_keep_the_channel_from_starting() {
    let copy = Standing::at("UPDATE csa.copy_range SET left_to_copy=").await;
    copy.is_overtaken().await;
    let log = copy.daemon.log();
    assert!(log.contains("table csa.copy_range"), "{log}");
    copy.fails_in("starting", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_that_is_stopped_during_a_round_stays_so() {
    for (command, code) in [(&["stop"][..], 1), (&["stop", "--receiving"], 0)] {
        let copy = Standing::at("UPDATE csa.copy_range SET left_to_copy=").await;
        let said = copy.daemon.command(command);
        assert_eq!(said.code, Some(code), "{said:?}");
        let words = ["another command has stopped it since", "run the same command again"];
        copy.fails_in("stopped", &words).await;
    }
}
