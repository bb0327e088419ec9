//! Statements that a crash has cut off on MariaDB, and what they leave there.

use csa_tests::{Daemon, eventually};
use mysql_async::prelude::Queryable as _;

use super::{SHARED_COLLATION, equal, failed, pair, run};
use crate::DRAIN;

/// The grants that docs/provisioning.md has.
const GRANT: &str = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, \
    TRIGGER, PROCESS ON *.* TO 'small'@'%'";

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_cut_off_on_mariadb_is_for_the_operator_to_decide() {
    let guide = include_str!("../../../docs/provisioning.md").replace('\n', " ");
    assert!(guide.contains(&GRANT.replace("small", "csa")), "the guide grants something else");
    let (source, target) = pair(&SHARED_COLLATION);
    target.exec("CREATE USER 'small'@'%' IDENTIFIED BY 'small_pw'").await;
    target.exec(GRANT).await;
    let daemon = Daemon::builder(&source, &target)
        .set("target.user", "small")
        .set("target.password", "small_pw")
        .set("target.connect_retry", "100ms")
        .start();
    run(&source, &["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(9))"])
        .await;
    let mut id = 0;
    for (executed, dies) in [(true, "daemon"), (false, "daemon"), (false, "target")] {
        id += 1;
        run(&source, &[&format!("INSERT INTO d.t (id) VALUES ({id})")]).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let mut reader = target.conn().await;
        reader.query_drop("LOCK TABLES d.t READ").await.expect("locks");
        run(&source, &[&format!("ALTER TABLE d.t ADD COLUMN c{id} INT DEFAULT {id}")]).await;
        let waiting = "SELECT IFNULL(MAX(id), 0) FROM information_schema.processlist \
             WHERE user='small' AND info LIKE 'ALTER%'";
        eventually("the statement waits", DRAIN, async || target.value::<u64>(waiting).await > 0)
            .await;
        if dies == "daemon" {
            daemon.kill9();
            if !executed {
                let id: u64 = target.value(waiting).await;
                target.exec(&format!("KILL {id}")).await;
            }
            reader.query_drop("UNLOCK TABLES").await.expect("unlocks");
            eventually("its session ends", DRAIN, async || target.value::<u64>(waiting).await == 0)
                .await;
            daemon.start_again();
        } else {
            target.kill9();
            target.restart();
        }
        let why = failed(&daemon).await;
        assert!(why.contains("UPDATE csa.statement SET executed=1 WHERE channel='test'"), "{why}");
        target
            .exec(match executed {
                true => "UPDATE csa.statement SET executed=1 WHERE channel='test'",
                false => "DELETE FROM csa.statement WHERE channel='test'",
            })
            .await;
        daemon.commanded(&["restart"]);
        daemon.wait_drained(&source, &target, DRAIN).await;
        equal(&source, &target).await;
    }
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);
    // A change of it can't be rolled back together with the checkpoint.
    run(
        &source,
        &[
            "CREATE TABLE d.aside (id INT PRIMARY KEY) ENGINE=MyISAM",
            "INSERT INTO d.aside VALUES (1),(2)",
            "UPDATE d.aside SET id=3 WHERE id=1",
        ],
    )
    .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);
}

/// To repeat it does no harm, and it can take an hour.
#[tokio::test(flavor = "multi_thread")]
async fn maintenance_cut_off_on_mariadb_is_repeated() {
    let (source, target) = pair(&SHARED_COLLATION);
    let daemon = Daemon::builder(&source, &target).set("target.connect_retry", "100ms").start();
    run(&source, &["CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)"]).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut reader = target.conn().await;
    reader.query_drop("LOCK TABLES d.t READ").await.expect("locks");
    run(&source, &["OPTIMIZE TABLE d.t"]).await;
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'OPTIMIZE%'";
    eventually("the statement waits", DRAIN, async || target.value::<u64>(waiting).await > 0).await;
    target.kill9();
    target.restart();
    run(&source, &["INSERT INTO d.t VALUES (1)"]).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    assert_eq!(daemon.status()["channels"][0]["state"], "running");
}

/// A crash left an entry, and the channel begins again on a new copy.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_channel_left_keeps_no_new_one_on_mariadb() {
    let (source, target) = pair(&SHARED_COLLATION);
    let statements = [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY)",
        "INSERT INTO d.t VALUES (1)",
        "CREATE DATABASE e",
    ];
    run(&source, &statements).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let executed = source.gtid_executed().await;
    let (server, numbers) = executed.split_once(':').expect("a set");
    let last = format!("{server}:{}", numbers.rsplit('-').next().expect("a number"));
    let of_another_source = "3e11fa47-71ca-11e1-9e33-c80aa9429562:57";
    let begin_again = async |entry: &str| {
        assert!(daemon.terminate().success());
        std::fs::remove_dir_all(daemon.state_dir().join("test/relay")).expect("removed");
        target
            .exec(&format!(
                "DROP DATABASE d; DELETE FROM csa.checkpoint; \
                 INSERT INTO csa.statement (channel, gtid, started_at) VALUES ('test','{entry}',NOW(6))"
            ))
            .await;
        daemon.start_again();
    };
    target.exec("DROP DATABASE e").await;
    begin_again(of_another_source).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    // Its own source has this transaction, but it is not the turn of its statement, which took effect.
    begin_again(&last).await;
    let (why, skip) = (failed(&daemon).await, format!("csa-daemon skip {last} --channel test"));
    assert!(why.contains(&skip) && !why.contains("SET executed=1"), "{why}");
    daemon.commanded(&["skip", &last]);
    if daemon.status()["channels"][0]["state"] == "failed" {
        daemon.commanded(&["restart"]);
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);
}
