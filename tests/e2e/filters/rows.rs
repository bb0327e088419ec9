//! Filtered and renamed rows: in parts of a transaction, in parallel, merged; and statements that can not be
//! decided.

use super::*;

/// Streamed from the relay store: filtered rows must not reach the target, the others must.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn half_of_a_large_transaction_is_left_out() {
    for executor in EXECUTORS {
        half_of_it_is_left_out(executor).await;
    }
}

async fn half_of_it_is_left_out(executor: &str) {
    let (source, target) = Server::pair(&["--binlog-row-image=MINIMAL"], &[]);
    for schema in ["a", "b"] {
        source.exec(&format!("CREATE DATABASE {schema}")).await;
    }
    target.exec("CREATE DATABASE renamed").await;
    let provisioned = source.gtid_executed().await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.start_from", provisioned)
        .set("applier.executor", executor)
        .set("applier.event_memory_limit", "64MiB")
        .set("applier.replicate_rewrite_db.a", "renamed")
        .set("applier.replicate_ignore_table", vec![toml::Value::from("renamed.dropped")])
        .set("applier.replicate_wild_ignore_table", vec![toml::Value::from("b.%")])
        .start();
    let mut conn = source.conn().await;
    conn.query_drop("USE a").await.expect("uses");
    for compression in ["OFF", "ON"] {
        for statement in [
            &format!("SET binlog_transaction_compression={compression}"),
            "CREATE TABLE kept (id INT PRIMARY KEY, v INT, b LONGBLOB)",
            "CREATE TABLE dropped LIKE kept",
            "CREATE TABLE b.dropped LIKE kept",
            "SET cte_max_recursion_depth=100000",
            "BEGIN",
            "INSERT INTO kept WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i+1 FROM n \
             WHERE i<20000) SELECT i, i, REPEAT(SHA2(i,256),16) FROM n",
            "INSERT INTO dropped SELECT * FROM kept",
            // One statement, rows of three tables in turn.
            "UPDATE kept, dropped, b.dropped AS other SET kept.v=-kept.id, dropped.v=1, other.v=1 \
             WHERE kept.id=dropped.id AND other.id=dropped.id",
            "INSERT INTO b.dropped SELECT * FROM kept",
            "UPDATE kept, dropped SET kept.v=kept.v-1, dropped.v=7 WHERE kept.id=dropped.id",
            "DELETE kept, dropped FROM kept JOIN dropped USING (id) WHERE id % 2 = 0",
            "COMMIT",
        ] {
            conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        daemon.wait_drained(&source, &target, DRAIN).await;
        let digest = |schema: &str| {
            format!("SELECT CONCAT(COUNT(*),' ',SUM(v),' ',SUM(CRC32(b))) FROM {schema}.kept")
        };
        let expected: String = source.value(&digest("a")).await;
        assert!(expected.starts_with("10000 "), "{expected}");
        assert_eq!(target.value::<String>(&digest("renamed")).await, expected);
        for table in ["renamed.dropped", "b.dropped", "a.kept"] {
            assert!(!exists(&target, table).await, "{table}");
        }
        conn.query_drop("DROP TABLE kept").await.expect("drops");
        conn.query_drop("DROP TABLE dropped, b.dropped").await.expect("drops");
    }
    let peak = daemon.status()["channels"][0]["event_memory"]["peak_bytes"].as_u64();
    assert!(peak.is_some_and(|peak| peak <= 64 << 20), "{peak:?}");
}

/// Keys come from the target's table, whatever its schema is called on the source.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_renamed_schema_is_applied_in_parallel() {
    for executor in EXECUTORS {
        is_applied_in_parallel(executor).await;
    }
}

async fn is_applied_in_parallel(executor: &str) {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rows: 50, ..LoadOptions::default() };
    prepare(&source, &options).await;
    prepare(&target, &LoadOptions { schema: "copy".into(), ..options.clone() }).await;
    let provisioned = source.gtid_executed().await;
    Load::run(&source, &options, Duration::from_secs(2)).await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.executor", executor)
        .set("applier.start_from", provisioned)
        .set("applier.replicate_rewrite_db.sbtest", "copy")
        .start();
    let report = Load::run(&source, &options, Duration::from_secs(4)).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(report.committed > 100, "{report:?}");
    let log = daemon.log();
    assert!(!log.contains("one by one"), "conflicts were not seen\n{}", daemon.log_tail());
    assert!(daemon.terminate().success());
    target.exec("CREATE DATABASE sbtest").await;
    let tables = (1..=options.tables).map(|table| format!("sbtest{table}"));
    for table in tables.chain(["account".to_owned(), "counter".to_owned()]) {
        target.exec(&format!("RENAME TABLE copy.{table} TO sbtest.{table}")).await;
    }
    target.exec("DROP DATABASE copy").await;
    compare(&source, &target).await;
}

/// Two schemas become one: their rows meet in the same tables.
#[tokio::test(flavor = "multi_thread")]
async fn two_schemas_are_merged_into_one() {
    let (source, target) = Server::pair(&[], &[]);
    for schema in ["a", "b"] {
        source.exec(&format!("CREATE DATABASE {schema}")).await;
        source.exec(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)")).await;
    }
    target.exec("CREATE DATABASE one; CREATE TABLE one.t (id INT PRIMARY KEY, v INT)").await;
    let provisioned = source.gtid_executed().await;
    let mut conn = source.conn().await;
    for id in 0..300 {
        for statement in [
            "BEGIN".to_owned(),
            format!("INSERT INTO a.t VALUES ({id}, 1)"),
            format!("INSERT INTO b.t VALUES ({}, 2)", id + 1000),
            "COMMIT".to_owned(),
            // Both schemas change the same row of the target.
            format!("DELETE FROM a.t WHERE id={id} AND id%3=0"),
            format!("INSERT INTO b.t SELECT {id}, 3 FROM DUAL WHERE {id}%3=0"),
        ] {
            conn.query_drop(&statement).await.expect("runs");
        }
    }
    let digest = "SELECT CONCAT(COUNT(*),' ',SUM(CRC32(CONCAT(id,' ',v)))) FROM";
    let union = format!("{digest} (SELECT * FROM a.t UNION ALL SELECT * FROM b.t) x");
    let expected: String = source.value(&union).await;
    assert!(expected.starts_with("600 "), "{expected}");
    for executor in EXECUTORS {
        target.exec("TRUNCATE TABLE one.t; DROP DATABASE IF EXISTS csa").await;
        let daemon = Daemon::builder(&source, &target)
            .set("applier.executor", executor)
            .set("applier.start_from", provisioned.as_str())
            .set("applier.replicate_rewrite_db.a", "one")
            .set("applier.replicate_rewrite_db.b", "one")
            .start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        assert_eq!(target.value::<String>(&format!("{digest} one.t")).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_cant_be_decided_stops_and_the_next_steps_work() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE old; CREATE DATABASE other").await;
    target.exec("CREATE DATABASE new; CREATE DATABASE other").await;
    let provisioned = source.gtid_executed().await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.start_from", provisioned)
        .set("applier.replicate_rewrite_db.old", "new")
        .set("applier.replicate_ignore_table", vec![toml::Value::from("other.left")])
        .start();
    let mut conn = source.conn().await;
    conn.query_drop("USE other").await.expect("uses");
    for (before, statement, words, on_target) in [
        (
            "CREATE TABLE kept (id INT PRIMARY KEY)",
            "CREATE TABLE old.t (id INT PRIMARY KEY)",
            "names schema old, which replicate_rewrite_db renames",
            "CREATE TABLE new.t (id INT PRIMARY KEY)",
        ),
        (
            "CREATE TABLE `left` (id INT PRIMARY KEY)",
            "DROP TABLE kept, `left`",
            "table other.kept, which is replicated, and other.left, which is not",
            "DROP TABLE other.kept",
        ),
        (
            "INSERT INTO old.t VALUES (1)",
            "CREATE DATABASE IF NOT EXISTS old",
            "names schema old",
            "BEGIN; COMMIT",
        ),
    ] {
        conn.query_drop(before).await.expect(before);
        let executed = source.gtid_executed().await;
        conn.query_drop(statement).await.expect(statement);
        let gtid: String = source
            .value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{executed}')"))
            .await;
        wait_state(&daemon, 0, "failed").await;
        let error = &daemon.status()["channels"][0]["last_error"];
        assert_eq!(error["transaction"], gtid.as_str());
        let message = error["message"].to_string();
        for words in [words, &gtid, "SET gtid_next=", "BEGIN; COMMIT"] {
            assert!(message.contains(words), "{words:?} is missing in {message}");
        }
        assert!(!daemon.terminate().success());
        let by_hand = format!("SET gtid_next='{gtid}'; {on_target}; SET gtid_next='AUTOMATIC'");
        target.exec(&by_hand).await;
        daemon.start_again();
        daemon.wait_drained(&source, &target, DRAIN).await;
    }
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM new.t").await, 1);
    for table in ["other.kept", "other.left", "old.t"] {
        assert!(!exists(&target, table).await, "{table}");
    }
}
