//! Targets that differ from their source.

use std::time::Duration;

use csa_tests::{Compare, Server, eventually};
use mysql_async::prelude::Queryable as _;

use super::{Pair, run};
use crate::{DRAIN, EXECUTORS, wait_state};

async fn values(server: &Server, query: &str) -> String {
    server.value::<String>(&format!("SELECT COALESCE(({query}),'none')")).await
}

/// Columns after those of the source get their defaults; the source's updates leave them unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn more_columns_and_unique_keys() {
    for executor in EXECUTORS {
        more_of_everything(executor).await;
    }
}

async fn more_of_everything(executor: &str) {
    let pair = Pair::start_with(executor, &[], &[]).await;
    pair.run([
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
        "CREATE TABLE keyless (a INT)",
    ])
    .await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    run(
        &pair.target,
        [
            "ALTER TABLE t ADD COLUMN seen TIMESTAMP NULL, ADD COLUMN note VARCHAR(20) \
             DEFAULT 'new', ADD COLUMN twice INT AS (a*2) VIRTUAL, ADD UNIQUE (b), ADD KEY (twice)",
            "ALTER TABLE keyless ADD COLUMN n INT NOT NULL DEFAULT 3",
        ],
    )
    .await;
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        pair.run_as_backlog([
            format!("SET binlog_row_image={image}").as_str(),
            "DELETE FROM t",
            "INSERT INTO t VALUES (1,1,'one'),(2,2,'two'),(3,3,NULL)",
            "UPDATE t SET b='moved' WHERE id=1",
            "UPDATE t SET b='one' WHERE id=2",
            "INSERT INTO keyless VALUES (1),(1),(2)",
            "DELETE FROM keyless WHERE a=1 LIMIT 1",
            "UPDATE keyless SET a=5 WHERE a=2",
            "DELETE FROM keyless",
        ])
        .await;
        pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
        let rows =
            "SELECT GROUP_CONCAT(id,a,b,note,twice ORDER BY id) FROM c.t WHERE b IS NOT NULL";
        assert_eq!(values(&pair.target, rows).await, "11movednew2,22onenew4", "{image}");
        let rows: u64 = pair.target.value("SELECT COUNT(*) FROM c.keyless").await;
        assert_eq!(rows, 0, "{image}");
    }
    run(&pair.target, ["UPDATE t SET note='kept' WHERE id=1"]).await;
    pair.run(["UPDATE t SET a=7 WHERE id=1"]).await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let rows = "SELECT CONCAT(a,note,twice) FROM c.t WHERE id=1";
    assert_eq!(values(&pair.target, rows).await, "7kept14");
    let repaired = pair.daemon.log().contains("applying its transactions one by one");
    assert!(!repaired, "{}", pair.daemon.log_tail());
}

/// The daemon fills wider columns where the target allows conversions, and names them where it does not.
#[tokio::test(flavor = "multi_thread")]
async fn wider_columns() {
    for executor in EXECUTORS {
        in_wider_columns(executor).await;
    }
}

async fn in_wider_columns(executor: &str) {
    let pair = Pair::start_with(executor, &[], &["--replica-type-conversions=ALL_NON_LOSSY"]).await;
    pair.run([
        "CREATE TABLE t (id INT PRIMARY KEY, a TINYINT, b VARCHAR(20) UNIQUE, c CHAR(5), d FLOAT, \
         e DECIMAL(5,2), f VARBINARY(5), g TEXT, h BIT(5))",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id) \
         ON DELETE CASCADE)",
    ])
    .await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    run(
        &pair.target,
        [
            "ALTER TABLE child DROP FOREIGN KEY child_ibfk_1",
            "ALTER TABLE t MODIFY id BIGINT, MODIFY a INT, MODIFY b VARCHAR(300), \
             MODIFY c CHAR(30), MODIFY d DOUBLE, MODIFY e DECIMAL(20,5), MODIFY f VARBINARY(500), \
             MODIFY g LONGTEXT, MODIFY h BIT(50)",
            "ALTER TABLE child MODIFY id BIGINT, MODIFY p BIGINT, ADD FOREIGN KEY (p) \
             REFERENCES t (id) ON DELETE CASCADE",
        ],
    )
    .await;
    pair.run_as_backlog([
        "INSERT INTO t VALUES (1,-1,'one','c',1.5,-1.25,'f','g',21),(2,-128,'two','',0,9,'','',1)",
        "INSERT INTO t VALUES (3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
        "INSERT INTO child VALUES (-1,1),(2,2)",
        "UPDATE t SET a=127, c='ünï' WHERE id=1",
        "UPDATE t SET b='new' WHERE id=2",
        "UPDATE t SET b='two' WHERE id=3",
        "UPDATE child SET p=3 WHERE id=2",
        "DELETE FROM t WHERE id=2",
    ])
    .await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let rows = "SELECT GROUP_CONCAT(CONCAT_WS('|',id,a,b,c,d,e+0,f,g,h+0) ORDER BY id) FROM c.t";
    let wide = values(&pair.target, rows).await;
    assert_eq!(wide, "1|127|one|ünï|1.5|-1.25000|f|g|21,3|two");
    let rows = "SELECT GROUP_CONCAT(id,'>',p ORDER BY id) FROM c.child";
    assert_eq!(values(&pair.target, rows).await, "-1>1,2>3");

    if executor == "sql" {
        // No setting of the target has an effect.
        return;
    }
    pair.target.exec("SET GLOBAL replica_type_conversions=''").await;
    let before = pair.source.gtid_executed().await;
    pair.run(["UPDATE t SET a=1 WHERE id=1"]).await;
    wait_state(&pair.daemon, 0, "failed").await;
    let gtid: String = pair
        .source
        .value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')"))
        .await;
    let message = pair.daemon.status()["channels"][0]["last_error"]["message"].to_string();
    for word in [gtid.as_str(), "c.t", "replica_type_conversions"] {
        assert!(message.contains(word), "{word:?} is missing in {message}");
    }
}

/// A target has its own defaults for sessions; replicated statements don't depend on them.
#[tokio::test(flavor = "multi_thread")]
async fn other_defaults() {
    for executor in EXECUTORS {
        with_other_defaults(executor).await;
    }
}

async fn with_other_defaults(executor: &str) {
    let pair = Pair::start_with(
        executor,
        &[],
        &[
            "--sql-require-primary-key=ON",
            "--explicit-defaults-for-timestamp=OFF",
            "--character-set-server=latin1",
            "--default-time-zone=+03:00",
            "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
            "--transaction-isolation=SERIALIZABLE",
            "--completion-type=CHAIN",
            "--binlog-row-image=MINIMAL",
            "--binlog-row-value-options=PARTIAL_JSON",
            "--log-bin-trust-function-creators=ON",
            "--innodb-lock-wait-timeout=1",
            "--event-scheduler=ON",
            "--auto-increment-increment=7",
        ],
    )
    .await;
    pair.daemon.kill9();
    // These can't be set as options.
    pair.target.exec("SET GLOBAL foreign_key_checks=OFF, sql_safe_updates=ON").await;
    pair.daemon.start_again();
    pair.run([
        "CREATE TABLE plain (a INT)",
        "CREATE TABLE stamped (id INT AUTO_INCREMENT PRIMARY KEY, t TIMESTAMP, u TIMESTAMP, \
         v TIMESTAMP DEFAULT '2026-01-01 00:00:00', s VARCHAR(9) DEFAULT \"it's\")",
        "INSERT INTO plain VALUES (1),(1)",
        "DELETE FROM plain LIMIT 1",
        "INSERT INTO stamped (t) VALUES ('2026-01-01 00:00:00'),(NULL)",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) \
         ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1),(2)",
        "INSERT INTO child VALUES (1,1),(2,2)",
        "DELETE FROM parent WHERE id=1",
        "CREATE TABLE words (k VARCHAR(20) DEFAULT 'ü😀' PRIMARY KEY COMMENT 'bäck\\\\slash')",
        "INSERT INTO words VALUES ('😀'),('\\\\')",
        "CREATE DATABASE d",
        "CREATE TABLE d.t (c CHAR(5))",
        "INSERT INTO d.t VALUES ('😀')",
        "ALTER TABLE stamped ADD COLUMN w DATETIME DEFAULT CURRENT_TIMESTAMP",
    ])
    .await;
    assert_eq!(pair.equal().await.rows, 8);
}

/// Somebody reads the checkpoints with locks and keeps the transaction open.
#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_that_are_locked_are_waited_for() {
    let pair = Pair::start(&[], &[]).await;
    pair.run(["CREATE TABLE t (id INT PRIMARY KEY)"]).await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let mut reader = pair.target.conn().await;
    reader.query_drop("BEGIN").await.expect("begins");
    reader.query_drop("SELECT COUNT(*) FROM csa.checkpoint FOR UPDATE").await.expect("locks");
    pair.run(["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"]).await;
    eventually("the lock wait timeout", Duration::from_secs(30), async || {
        let retries = &pair.daemon.status()["channels"][0]["applier"]["count_transactions_retries"];
        retries.as_u64().is_some_and(|retries| retries > 0)
    })
    .await;
    reader.query_drop("ROLLBACK").await.expect("lets go");
    assert_eq!(pair.equal().await.rows, 2);
}

/// A table that exists on the target only, alongside replicated ones.
#[tokio::test(flavor = "multi_thread")]
async fn tables_that_only_the_target_has() {
    let pair = Pair::start(&[], &[]).await;
    pair.run(["CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)"]).await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    run(
        &pair.target,
        [
            "CREATE TABLE own (id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES t (id) \
             ON DELETE SET NULL ON UPDATE CASCADE)",
            "INSERT INTO own VALUES (1,1)",
        ],
    )
    .await;
    pair.run(["UPDATE t SET v=2", "INSERT INTO t VALUES (2,2)", "UPDATE t SET id=9 WHERE id=2"])
        .await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let compared = Compare::new().ignore_table("c.own").run(&pair.source, &pair.target).await;
    assert_eq!(compared.unwrap_or_else(|difference| panic!("{difference}")).rows, 2);
    let own: u64 = pair.target.value("SELECT v FROM c.own").await;
    assert_eq!(own, 1);
}

/// The server's error for these types is no more than "Unknown error" (1105).
#[tokio::test(flavor = "multi_thread")]
async fn a_vector_in_a_column_of_another_type() {
    for executor in EXECUTORS {
        let pair = Pair::start_with(executor, &[], &[]).await;
        pair.run(["CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3))"]).await;
        pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
        run(&pair.target, ["ALTER TABLE t MODIFY v VARCHAR(300)"]).await;
        pair.run(["INSERT INTO t VALUES (1, STRING_TO_VECTOR('[1,2,3]'))"]).await;
        wait_state(&pair.daemon, 0, "failed").await;
        let view = pair.daemon.status();
        let why = view["channels"][0]["last_error"]["message"].as_str().expect("why").to_owned();
        for words in ["column 2 of c.t (v): VECTOR of the source", "VARCHAR"] {
            assert!(why.contains(words), "{executor}: {why}");
        }
        run(&pair.target, ["ALTER TABLE t MODIFY v VECTOR(3)"]).await;
        pair.daemon.commanded(&["restart"]);
        pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
        let there: String = pair.target.value("SELECT VECTOR_TO_STRING(v) FROM c.t").await;
        assert!(there.starts_with("[1.0"), "{executor}: {there}");
    }
}
