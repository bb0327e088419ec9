//! Statements and settings that MariaDB can't have.

use csa_tests::{Daemon, DaemonBuilder, Server};

use super::{equal, failed, pair, run};
use crate::DRAIN;
use crate::bad_input::refused;

/// The operator runs each statement by hand, or leaves it out, and skips it.
#[tokio::test(flavor = "multi_thread")]
async fn what_mariadb_would_do_otherwise_stops_the_channel() {
    let (source, target) = pair(&["--binlog-row-metadata=FULL"]);
    let accounts = "applier.replicate_accounts";
    let daemon = Daemon::builder(&source, &target).set(accounts, true).start();
    run(&source, &["CREATE DATABASE d COLLATE utf8mb4_general_ci"]).await;
    run(
        &source,
        &["CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)", "INSERT INTO d.t VALUES (1,'[]')"],
    )
    .await;
    // Statements of the source, words of the error, and the statement run by hand instead.
    let steps: [(&[&str], &str, &str); 9] = [
        (
            &["CREATE DATABASE e"],
            "it leaves the collation to the source's default, utf8mb4_0900_ai_ci, which MariaDB lacks",
            "CREATE DATABASE e COLLATE utf8mb4_general_ci",
        ),
        (
            &["CREATE TABLE e.named (id INT PRIMARY KEY, s VARCHAR(9) COLLATE utf8mb4_0900_ai_ci)"],
            "error 1273: Unknown collation: 'utf8mb4_0900_ai_ci'",
            "CREATE TABLE e.named (id INT PRIMARY KEY, s VARCHAR(9) COLLATE utf8mb4_unicode_ci)",
        ),
        (
            &["CREATE TABLE e.open (id INT PRIMARY KEY, s TEXT) CHARSET=utf8mb4"],
            "utf8mb4_0900_ai_ci, which MariaDB lacks",
            "CREATE TABLE e.open (id INT PRIMARY KEY, s TEXT) CHARSET=utf8mb4",
        ),
        (
            &["CREATE TABLE e.more (id INT PRIMARY KEY /*!80023 DEFAULT (1) */)"],
            "MariaDB ignores its version comment for MySQL 80023",
            "CREATE TABLE e.more (id INT PRIMARY KEY DEFAULT 1)",
        ),
        (
            &["CREATE TABLE e.copied AS SELECT 1 AS id"],
            "CREATE TABLE … SELECT is one transaction only on MySQL",
            "CREATE TABLE e.copied AS SELECT 1 AS id",
        ),
        (
            &["XA START 'x'", "INSERT INTO d.t VALUES (2,NULL)", "XA END 'x'", "XA PREPARE 'x'"],
            "distributed transactions (XA) need the GTIDs of MySQL",
            "INSERT INTO d.t VALUES (2,NULL)",
        ),
        (&["XA COMMIT 'x'"], "no such prepared transaction", "DO 0"),
        (
            &["CREATE USER hashed@'%' IDENTIFIED BY 'pw'"],
            "Plugin 'caching_sha2_password' is not loaded",
            "CREATE USER hashed@'%' IDENTIFIED BY 'pw'",
        ),
        (
            &["UPDATE d.t SET j=JSON_ARRAY(CAST('2026-01-02 03:04:05' AS DATETIME)) WHERE id=1"],
            "column j of d.t: a JSON document with a DATETIME in it has no SQL text",
            "UPDATE d.t SET j='[\"2026-01-02 03:04:05.000000\"]' WHERE id=1",
        ),
    ];
    for (statements, words, by_hand) in steps {
        daemon.wait_drained(&source, &target, DRAIN).await;
        run(&source, statements).await;
        let why = failed(&daemon).await;
        assert!(why.contains(words), "{statements:?}: {why}");
        let error = &daemon.status()["channels"][0]["last_error"];
        let gtid = error["transaction"].as_str().expect("named").to_owned();
        assert!(why.contains(&gtid), "{why}");
        target.exec(by_hand).await;
        daemon.commanded(&["skip", &gtid]);
        if daemon.status()["channels"][0]["state"] == "failed" {
            daemon.commanded(&["restart"]);
        }
    }
    run(&source, &["INSERT INTO e.named VALUES (1,'ä😀')", "INSERT INTO e.open VALUES (1,'ä😀')"])
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);

    target.exec("CREATE TRIGGER d.g BEFORE UPDATE ON d.t FOR EACH ROW SET NEW.id=NEW.id").await;
    daemon.commanded(&["restart"]);
    run(
        &source,
        &[
            "SET binlog_row_value_options=PARTIAL_JSON",
            "UPDATE d.t SET j=JSON_ARRAY(REPEAT('long',50),'before') WHERE id=1",
            "UPDATE d.t SET j=JSON_REPLACE(j,'$[1]','short') WHERE id=1",
        ],
    )
    .await;
    let why = failed(&daemon).await;
    assert!(why.contains("trigger g of d.t") && !why.contains("row-image"), "{why}");
    target.exec("DROP TRIGGER d.g").await;
    daemon.commanded(&["restart"]);
    let why = failed(&daemon).await;
    assert!(why.contains("a partial update of a JSON document"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_mariadb_can_not_have_are_refused() {
    let (source, target) = pair(&[]);
    let builder = || Daemon::builder(&source, &target);
    let with = |key: &str, value: &str| builder().set(key, value);
    let cases: [(DaemonBuilder, &[&str]); 4] = [
        (
            with("applier.target_gtids", "mirror"),
            &["applier.target_gtids: \"mirror\"", "is MariaDB", "target_gtids = \"own\""],
        ),
        (
            with("applier.target_gtids", "source").set("applier.commit", "one-to-one"),
            &["applier.target_gtids: \"source\"", "is MariaDB"],
        ),
        (
            with("applier.executor", "row-image"),
            &["applier.executor", "BINLOG", "\"sql\" or \"auto\""],
        ),
        (with("applier.exec_mode", "idempotent"), &["applier.exec_mode", "is MariaDB"]),
    ];
    for (builder, words) in cases {
        refused(builder, &target, words).await;
    }
    let reversed = Daemon::builder(&target, &source);
    refused(reversed, &source, &["source 127.0.0.1:", "is MariaDB", "must be MySQL 5.7"]).await;

    target.exec("CREATE USER weak@'%' IDENTIFIED BY 'weak_pw'").await;
    target.exec("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO weak@'%'").await;
    let weak = || with("target.user", "weak").set("target.password", "weak_pw");
    refused(weak(), &target, &["GRANT TRIGGER, PROCESS ON *.* TO 'weak'@'%'"]).await;
    target.exec("GRANT TRIGGER, PROCESS ON *.* TO weak@'%'; SET GLOBAL read_only=ON").await;
    refused(
        weak(),
        &target,
        &["read_only: read_only=ON", "GRANT READ_ONLY ADMIN ON *.* TO 'weak'@'%'"],
    )
    .await;
    target.exec("SET GLOBAL read_only=OFF, binlog_format=STATEMENT").await;
    refused(builder(), &target, &["SET GLOBAL binlog_format=MIXED"]).await;
    target.exec("SET GLOBAL binlog_format=MIXED").await;

    // It is not known which transactions of the source are in it.
    target.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    refused(builder(), &target, &["applier.start_from", "holds tables"]).await;
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = with("applier.start_from", &source.gtid_executed().await).start();
    source.exec("INSERT INTO d.t VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    drop(daemon);

    for (option, words) in [
        ("--version=10.6.22-MariaDB", &["is MariaDB 10.6.22", "10.11 or newer"][..]),
        ("--secure-timestamp=YES", &["secure_timestamp=YES"]),
    ] {
        let other = Server::start_mariadb("other", &[option]);
        refused(Daemon::builder(&source, &other), &other, words).await;
    }
}
