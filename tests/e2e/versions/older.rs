//! A target older than its source, as for the way back after an upgrade: what it does not know stops the
//! channel by name, and everything else arrives.

use std::time::Duration;

use csa_tests::{Compare, Daemon, Server, eventually};
use mysql_async::prelude::Queryable as _;

use super::{Pair, Version};
use crate::bad_input::refused;
use crate::older_target::lose_binary_logs;
use crate::{DRAIN, wait_state};

/// Statements of the source, words of the error, and what is run on the target instead.
type Step<'a> = (&'a [&'a str], &'a str, &'a str);

/// Statements of a source's session, one after the other.
pub(super) async fn run(source: &Server, statements: &[&str]) {
    let mut conn = source.conn().await;
    for statement in statements {
        let outcome = conn.query_drop(*statement).await;
        outcome.unwrap_or_else(|error| panic!("{error}\n{statement}"));
    }
    conn.disconnect().await.expect("disconnects");
}

/// Each step stops the channel, which resumes after the operator did what it says.
pub(super) async fn each_stops(
    daemon: &Daemon,
    source: &Server,
    target: &Server,
    steps: &[Step<'_>],
) {
    for step in steps {
        daemon.wait_drained(source, target, DRAIN).await;
        run(source, step.0).await;
        stops_at(daemon, target, step).await;
    }
    daemon.wait_drained(source, target, DRAIN).await;
}

/// The operator does what the error says.
async fn stops_at(daemon: &Daemon, target: &Server, (statements, words, by_hand): &Step<'_>) {
    wait_state(daemon, 0, "failed").await;
    let error = &daemon.status()["channels"][0]["last_error"];
    let why = error["message"].as_str().unwrap_or_default().to_owned();
    let gtid = error["transaction"].as_str().expect("named").to_owned();
    assert!(why.contains(words), "{statements:?}: {why}");
    let next = format!("SET gtid_next='{gtid}'");
    match why.contains(&next) {
        true => {
            // A GTID is of one transaction.
            let (before, last) = by_hand.rsplit_once("; ").unwrap_or(("DO 0", by_hand));
            let last = if last == "DO 0" { "BEGIN; COMMIT" } else { last };
            let before = format!("SET sql_log_bin=0; {before}; SET sql_log_bin=1");
            target.exec(&format!("{before}; {next}; {last}; SET gtid_next='AUTOMATIC'")).await;
        }
        false => {
            assert!(why.contains(&format!("csa-daemon skip {gtid}")), "{why}");
            target.exec(by_hand).await;
            daemon.commanded(&["skip", &gtid]);
        }
    }
    if daemon.status()["channels"][0]["state"] == "failed" {
        daemon.commanded(&["restart"]);
    }
}

pub(super) async fn equal(source: &Server, target: &Server, ignored: &[&str]) {
    let compare = ignored.iter().fold(Compare::contents(), |all, table| all.ignore_table(table));
    let compared = compare.run(source, target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

/// The source's default character set and collation are those of 9.7.
#[tokio::test(flavor = "multi_thread")]
async fn what_9_7_has_and_8_0_has_not_stops_the_channel() {
    let pair = Pair { source: Version::Newest, target: Version::V8031 };
    let (source, target) = super::start(pair);
    for executor in ["row-image", "sql"] {
        source.exec("DROP DATABASE IF EXISTS d; CREATE DATABASE d").await;
        let daemon = super::daemon(pair, &source, &target);
        daemon.set("applier.executor", executor);
        daemon.start_again();
        source.exec("CREATE TABLE d.parent (id INT PRIMARY KEY)").await;
        each_stops(&daemon, &source, &target, &[
            (
                &["CREATE TABLE d.vectors (id INT PRIMARY KEY, v VECTOR(3))"],
                "VECTOR(3)",
                "CREATE TABLE d.vectors (id INT PRIMARY KEY, v VARBINARY(12))",
            ),
            (
                &["CREATE VIEW d.seen AS SELECT VECTOR_DIM(v) FROM d.vectors"],
                "VECTOR_DIM",
                "DO 0",
            ),
            (
                &["CREATE TABLE d.child (id INT PRIMARY KEY, p INT REFERENCES d.parent (id))"],
                "REFERENCES",
                "CREATE TABLE d.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES d.parent (id))",
            ),
            (
                &["SET gtid_next='AUTOMATIC:tagged'", "CREATE TABLE d.tagged (id INT PRIMARY KEY)"],
                "tagged",
                "CREATE TABLE d.tagged (id INT PRIMARY KEY)",
            ),
            (
                &["CREATE LIBRARY d.lib LANGUAGE JAVASCRIPT AS $$ export function f() {} $$"],
                "LIBRARY",
                "DO 0",
            ),
            (
                &["CREATE TABLE d.later (id INT PRIMARY KEY /*!80100 , v INT */)"],
                "MySQL 8.0.31 ignores its version comment for MySQL 80100",
                "CREATE TABLE d.later (id INT PRIMARY KEY, v INT)",
            ),
            (
                &[
                    "SET sql_mode='INTERPRET_UTF8_AS_UTF8MB4'",
                    "CREATE TABLE d.moded (id INT PRIMARY KEY, s VARCHAR(9) CHARACTER SET utf8, g INT AS (id + 1))",
                ],
                "the target's version may not know it",
                "CREATE TABLE d.moded (id INT PRIMARY KEY, s VARCHAR(9), g INT AS (id + 1))",
            ),
        ]).await;
        run(
            &source,
            &[
                "SET gtid_next='AUTOMATIC:tagged'",
                "INSERT INTO d.tagged VALUES (1)",
                "SET gtid_next='AUTOMATIC'",
                "INSERT INTO d.parent VALUES (1)",
                "INSERT INTO d.child VALUES (1, 1)",
                "INSERT INTO d.later VALUES (1, 1)",
                "SET sql_mode='INTERPRET_UTF8_AS_UTF8MB4'",
                "INSERT INTO d.moded (id, s) VALUES (1, '😀')",
                "SET sql_mode=DEFAULT",
                "CREATE TABLE d.known (id INT PRIMARY KEY /*!80016 , v INT */ /*!99999 , w INT */)",
                "INSERT INTO d.known VALUES (1, 1)",
            ],
        )
        .await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        equal(&source, &target, &["d.vectors", "d.seen"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_9_7_has_and_5_7_has_not_stops_the_channel() {
    let pair = Pair { source: Version::Newest, target: Version::V57 };
    let (source, target) = super::start(pair);
    let daemon = super::daemon(pair, &source, &target);
    daemon.start_again();
    source.exec("CREATE DATABASE d COLLATE utf8mb4_general_ci").await;
    source.exec("CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)").await;
    each_stops(&daemon, &source, &target, &[
        (
            &["CREATE DATABASE e"],
            "the source's default, utf8mb4_0900_ai_ci, which MySQL 5.7 lacks",
            "CREATE DATABASE e COLLATE utf8mb4_general_ci",
        ),
        (
            &["CREATE TABLE e.named (id INT PRIMARY KEY, s VARCHAR(9) COLLATE utf8mb4_0900_ai_ci)"],
            "error 1273: Unknown collation: 'utf8mb4_0900_ai_ci'",
            "CREATE TABLE e.named (id INT PRIMARY KEY, s VARCHAR(9) COLLATE utf8mb4_unicode_ci)",
        ),
        (
            &["CREATE TABLE e.later (id INT PRIMARY KEY /*!80023 DEFAULT (1) */)"],
            "MySQL 5.7 ignores its version comment for MySQL 80023",
            "CREATE TABLE e.later (id INT PRIMARY KEY DEFAULT 1)",
        ),
        (
            &["CREATE TABLE e.groups_ (id INT PRIMARY KEY)", "ALTER TABLE e.groups_ RENAME COLUMN id TO n"],
            "COLUMN id TO n",
            "ALTER TABLE e.groups_ CHANGE id n INT",
        ),
        (
            &[
                "SET GLOBAL log_bin_trust_function_creators=ON",
                "CREATE FUNCTION e.f(a INT) RETURNS INT RETURN (SELECT COUNT(*) FROM d.t)",
            ],
            "SET GLOBAL log_bin_trust_function_creators=ON on the target",
            "SET GLOBAL log_bin_trust_function_creators=ON; \
             CREATE FUNCTION e.f(a INT) RETURNS INT RETURN (SELECT COUNT(*) FROM d.t)",
        ),
        (
            &["CREATE VIEW e.recursive AS WITH RECURSIVE n (i) AS (SELECT 1) SELECT i FROM n"],
            "RECURSIVE n",
            "DO 0",
        ),
        (
            &["CREATE TABLE e.copied AS SELECT 1 AS id"],
            "CREATE TABLE … SELECT is one transaction only on MySQL 8.0",
            "CREATE TABLE e.copied (id INT NOT NULL); INSERT INTO e.copied VALUES (1)",
        ),
        (
            &["XA START 'x'", "INSERT INTO d.t VALUES (2,NULL)", "XA END 'x'", "XA PREPARE 'x'"],
            "distributed transactions (XA) need a target of MySQL 8.0.29 or newer",
            "INSERT INTO d.t VALUES (2,NULL)",
        ),
        (&["XA COMMIT 'x'"], "no such prepared transaction", "DO 0"),
    ]).await;
    run(
        &source,
        &[
            "INSERT INTO e.named VALUES (1,'ä😀')",
            "INSERT INTO d.t VALUES (3,'{\"a\": [1, 2.5, null, true, \"ä\"], \"b\": -1}')",
            "UPDATE d.t SET j=JSON_SET(j,'$.b',2) WHERE id=3",
            "CREATE TABLE d.checked (id INT PRIMARY KEY, CHECK (id > 0))",
            "INSERT INTO d.checked VALUES (1)",
        ],
    )
    .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target, &["e.recursive"]).await;
}

/// In a session without NO_AUTO_CREATE_USER, as a later source has it, 5.7 would make the account without a password.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_creates_no_account_on_5_7() {
    let pair = Pair { source: Version::Newest, target: Version::V57 };
    let (source, target) = super::start(pair);
    let daemon = super::daemon(pair, &source, &target);
    daemon.set("applier.replicate_accounts", true);
    daemon.start_again();
    source.exec("CREATE DATABASE d COLLATE utf8mb4_general_ci").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    run(
        &source,
        &[
            "SET sql_log_bin=0",
            "CREATE USER app IDENTIFIED BY 'of the source'",
            "SET sql_log_bin=1",
            "GRANT SELECT ON d.* TO app",
        ],
    )
    .await;
    wait_state(&daemon, 0, "failed").await;
    let accounts: u64 = target.value("SELECT COUNT(*) FROM mysql.user WHERE user='app'").await;
    assert_eq!(accounts, 0, "the GRANT made an account");
    let by_hand = "CREATE USER app IDENTIFIED BY 'of the target'; GRANT SELECT ON d.* TO app";
    stops_at(&daemon, &target, &(&[], "error 1133", by_hand)).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
}

/// 5.7 records the GTID of a definition after its effect, so a crash in between leaves the effect alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_whose_gtid_5_7_has_lost_is_not_repeated() {
    let pair = Pair { source: Version::Newest, target: Version::V57 };
    let (source, target) = super::start(pair);
    let daemon = super::daemon(pair, &source, &target);
    daemon.start_again();
    run(
        &source,
        &[
            "CREATE DATABASE d COLLATE utf8mb4_general_ci",
            "CREATE TABLE d.a (id INT PRIMARY KEY)",
            "CREATE TABLE d.b (id INT PRIMARY KEY)",
            "INSERT INTO d.a VALUES (1)",
        ],
    )
    .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // The checkpoint after the definition waits for this.
    let mut holder = target.conn().await;
    holder.query_drop("BEGIN").await.expect("begins");
    holder.query_drop("SELECT * FROM csa.checkpoint FOR UPDATE").await.expect("locks");
    source.exec("RENAME TABLE d.a TO d.c, d.b TO d.a, d.c TO d.b").await;
    let in_b = "SELECT COUNT(*) FROM d.b";
    eventually("renamed", Duration::from_secs(60), async || target.value::<u64>(in_b).await == 1)
        .await;
    daemon.kill9();
    target.kill9();
    lose_binary_logs(&target);
    target.restart();
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let why = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(why.contains("no record of whether the statement took effect"), "{why}");
    assert_eq!(target.value::<u64>(in_b).await, 1, "it was repeated");
    target.exec("UPDATE csa.statement SET executed=1 WHERE channel='test'").await;
    daemon.commanded(&["restart"]);
    run(&source, &["INSERT INTO d.a VALUES (2)"]).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_5_7_can_not_have_are_refused() {
    let pair = Pair { source: Version::V57, target: Version::V57 };
    let (source, target) = super::start(pair);
    let builder = || {
        let builder = Daemon::builder(&source, &target);
        builder.set("source.tls", "disabled").set("target.tls", "disabled")
    };
    let with = |key: &str, value: &str| builder().set(key, value);
    for (builder, words) in [
        (
            with("applier.target_gtids", "mirror"),
            &["applier.target_gtids: \"mirror\" needs MySQL 8.0", "target_gtids = \"own\""][..],
        ),
        (
            with("applier.executor", "row-image"),
            &["applier.executor: \"row-image\" needs MySQL 8.0", "\"sql\" or \"auto\""],
        ),
        (with("applier.exec_mode", "idempotent"), &["applier.exec_mode", "is MySQL 5.7"]),
    ] {
        refused(builder, &target, words).await;
    }
    target.exec("SET GLOBAL super_read_only=ON").await;
    refused(builder(), &target, &["super_read_only"]).await;
}

/// 5.7 logs a statement that ended with an error after it had changed something.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_failed_on_the_source_stops_the_channel_where_its_effect_differs() {
    let pair = Pair { source: Version::V57, target: Version::Newest };
    let (source, target) = super::start(pair);
    let daemon = super::daemon(pair, &source, &target);
    daemon.start_again();
    run(&source, &["CREATE DATABASE d", "CREATE TABLE d.a (id INT PRIMARY KEY)"]).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("CREATE TABLE d.b (id INT PRIMARY KEY)").await;
    let mut conn = source.conn().await;
    conn.query_drop("DROP TABLE d.a, d.b").await.expect_err("there is no d.b");
    wait_state(&daemon, 0, "failed").await;
    let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(error.contains("ended with error 1051 on the source"), "{error}");
    // It is recorded as executed: the next start is after it.
    daemon.commanded(&["restart"]);
    run(&source, &["CREATE TABLE d.c (id INT PRIMARY KEY)"]).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // The same error means something else on each: 5.7 has dropped d.c, the target has dropped nothing.
    let step: Step<'_> = (&[], "ended with error 1051 on the source", "DROP TABLE d.c");
    conn.query_drop("DROP TABLE d.c, d.b").await.expect_err("there is no d.b");
    stops_at(&daemon, &target, &step).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target, &[]).await;
}

/// These servers ignore the comment with which newer ones learn that a replica has disabled it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn events_arrive_disabled_on_older_targets() {
    for version in [Version::V57, Version::V8031, Version::MariaDb] {
        let pair = Pair { source: Version::Newest, target: version };
        let (source, target) = super::start(pair);
        let daemon = super::daemon(pair, &source, &target);
        daemon.start_again();
        run(
            &source,
            &[
                "CREATE DATABASE d COLLATE utf8mb4_general_ci",
                "CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO SET @a = 1",
                "ALTER EVENT d.e ENABLE COMMENT 'altered'",
            ],
        )
        .await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let found: String = target
            .value(
                "SELECT CONCAT(status,' ',event_comment) FROM information_schema.events \
                 WHERE event_schema='d'",
            )
            .await;
        assert_eq!(found, "DISABLED altered", "{pair}");
        daemon.kill9();
    }
}

/// Rows without a key that differ only in what plain comparison does not see: the sign of zero, and the type
/// of a number in JSON.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn rows_that_compare_equal_are_told_apart_on_old_targets() {
    for version in [Version::V57, Version::V8031, Version::Newest] {
        let pair = Pair { source: Version::Newest, target: version };
        let (source, target) = super::start(pair);
        let daemon = super::daemon(pair, &source, &target);
        daemon.set("applier.executor", "sql");
        daemon.start_again();
        run(
            &source,
            &[
                "CREATE DATABASE d CHARACTER SET latin1",
                "CREATE TABLE d.f (f DOUBLE, g FLOAT, KEY (f))",
                "CREATE TABLE d.j (j JSON)",
                "INSERT INTO d.f VALUES (0,0),(-0e0,0),(0,-0e0),(-0e0,-0e0)",
                "INSERT INTO d.j VALUES ('1'),('1.0'),('[1]'),('[1.0]')",
                "DELETE FROM d.f WHERE CONCAT(f)='-0' AND CONCAT(g)='0'",
                "UPDATE d.f SET f=5 WHERE CONCAT(f)='0' AND CONCAT(g)='-0'",
                "DELETE FROM d.j WHERE CAST(j AS CHAR)='1.0'",
                "UPDATE d.j SET j='5' WHERE CAST(j AS CHAR)='[1.0]'",
            ],
        )
        .await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        for rows in [
            "SELECT GROUP_CONCAT(CONCAT(f),'/',CONCAT(g) ORDER BY CONCAT(f), CONCAT(g)) FROM d.f",
            "SELECT GROUP_CONCAT(CAST(j AS CHAR) ORDER BY CAST(j AS CHAR)) FROM d.j",
        ] {
            let (expected, found): (String, String) =
                (source.value(rows).await, target.value(rows).await);
            assert_eq!(found, expected, "{pair}");
        }
        daemon.kill9();
    }
}
