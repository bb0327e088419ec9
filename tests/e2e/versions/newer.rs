//! A target newer than its source: names that became reserved words, accounts and distributed
//! transactions of old servers.

use csa_tests::Daemon;

use super::older::{each_stops, equal, run};
use super::{Pair, Version, daemon, start};
use crate::DRAIN;
use crate::bad_input::refused;

/// Tables and columns with names that were free in 5.7, in statements without quotes.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_became_reserved_words_stop_definitions_and_no_rows() {
    let pair = Pair { source: Version::V57, target: Version::Newest };
    let (source, target) = start(pair);
    for executor in ["row-image", "sql"] {
        source.exec("DROP DATABASE IF EXISTS d; CREATE DATABASE d").await;
        let daemon = daemon(pair, &source, &target);
        daemon.set("applier.executor", executor);
        daemon.start_again();
        each_stops(
            &daemon,
            &source,
            &target,
            &[
                (
                    &["CREATE TABLE d.rank (id INT PRIMARY KEY, groups INT)"],
                    "the target's version may not know it",
                    "CREATE TABLE d.`rank` (id INT PRIMARY KEY, `groups` INT)",
                ),
                (
                    &["CREATE TABLE d.t (system INT PRIMARY KEY, lateral INT, window INT)"],
                    "error 1064",
                    "CREATE TABLE d.t (`system` INT PRIMARY KEY, `lateral` INT, `window` INT)",
                ),
                (
                    &["ALTER TABLE d.t ADD COLUMN cume_dist INT, ADD KEY (lateral)"],
                    "error 1064",
                    "ALTER TABLE d.t ADD COLUMN `cume_dist` INT, ADD KEY (`lateral`)",
                ),
                (
                    &["CREATE TABLE d.checked (id INT PRIMARY KEY, CHECK (id > 0))"],
                    "CHECK clause, which the source, older than MySQL 8.0.16, has ignored",
                    "CREATE TABLE d.checked (id INT PRIMARY KEY)",
                ),
                // It makes a foreign key there, and none on the source.
                (
                    &["CREATE TABLE d.child (id INT PRIMARY KEY, p INT REFERENCES parent (id))"],
                    "is a foreign key on the target, and on the source",
                    "CREATE TABLE d.child (id INT PRIMARY KEY, p INT)",
                ),
            ],
        )
        .await;
        // The server qualifies and quotes what it logs itself; rows have numbers.
        run(
            &source,
            &[
                "INSERT INTO d.rank VALUES (1,2),(2,3)",
                "UPDATE d.rank SET groups=groups+1",
                "INSERT INTO d.t VALUES (1,2,3,4),(2,3,4,5)",
                "DELETE FROM d.t WHERE system=2",
                "INSERT INTO d.child VALUES (1,7)",
                "INSERT INTO d.checked VALUES (-1)",
                "DROP TABLE d.rank",
            ],
        )
        .await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        equal(&source, &target, &[]).await;
        assert!(daemon.terminate().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn distributed_transactions_of_old_sources() {
    for source in [Version::V57, Version::V8015, Version::V8031] {
        let pair = Pair { source, target: Version::Newest };
        let (source, target) = start(pair);
        let daemon = daemon(pair, &source, &target);
        daemon.start_again();
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
        for (number, end) in [(1, "COMMIT"), (2, "ROLLBACK")] {
            let insert = format!("INSERT INTO d.t VALUES ({number})");
            run(&source, &["XA START 'x'", &insert, "XA END 'x'", "XA PREPARE 'x'"]).await;
            daemon.kill9();
            daemon.start_again();
            run(&source, &[&format!("XA {end} 'x'")]).await;
        }
        run(&source, &["XA START 'y'", "INSERT INTO d.t VALUES (3)", "XA END 'y'"]).await;
        run(
            &source,
            &[
                "XA START 'z'",
                "INSERT INTO d.t VALUES (4)",
                "XA END 'z'",
                "XA COMMIT 'z' ONE PHASE",
            ],
        )
        .await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        equal(&source, &target, &[]).await;
        assert_eq!(target.value::<String>("SELECT GROUP_CONCAT(id) FROM d.t").await, "1,4");
    }
}

/// An account with a plugin that the daemon does not have is refused by name; others log in.
#[tokio::test(flavor = "multi_thread")]
async fn accounts_of_old_servers() {
    let pair = Pair { source: Version::V57, target: Version::V8031 };
    let (source, target) = start(pair);
    source
        .exec(
            "CREATE USER old@'%' IDENTIFIED WITH sha256_password BY 'old_pw'; \
             GRANT REPLICATION SLAVE ON *.* TO old@'%'",
        )
        .await;
    target
        .exec(
            "CREATE USER native@'%' IDENTIFIED WITH mysql_native_password BY 'native_pw'; \
             GRANT ALL ON *.* TO native@'%'; \
             CREATE USER old@'%' IDENTIFIED WITH sha256_password BY 'old_pw'; \
             GRANT ALL ON *.* TO old@'%'",
        )
        .await;
    let builder = || Daemon::builder(&source, &target).set("source.tls", "disabled");
    let words = ["sha256_password is not supported", "mysql_native_password"];
    let of_source = builder().set("source.user", "old").set("source.password", "old_pw");
    refused(of_source, &target, &words).await;
    let of_target = builder().set("target.user", "old").set("target.password", "old_pw");
    refused(of_target, &target, &words).await;
    let daemon = builder().set("target.user", "native").set("target.password", "native_pw").start();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target, &[]).await;
}
