//! Shapes of transactions, and settings that a session or the server may switch in mid-stream.

use std::time::Duration;

use csa_tests::eventually;
use mysql_async::prelude::Queryable as _;

use super::Pair;
use crate::{DRAIN, EXECUTORS};

const ACCOUNTS: &str = "CREATE TABLE account (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, v INT)";

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_every_shape() {
    for executor in EXECUTORS {
        every_shape(executor).await;
    }
}

async fn every_shape(executor: &str) {
    let pair = Pair::start_with(executor, &[], &[]).await;
    let uuid = "11111111-2222-4333-8444-555555555555";
    pair.run([
        ACCOUNTS,
        "INSERT INTO account VALUES (1,'one',1),(2,'two',2),(3,'three',3)",
        // Nothing, rolled back, and under GTIDs given by hand.
        "BEGIN",
        "COMMIT",
        "BEGIN",
        "DELETE FROM account",
        "ROLLBACK",
        &format!("SET gtid_next='{uuid}:7'"),
        "BEGIN",
        "COMMIT",
        &format!("SET gtid_next='{uuid}:blue:1'"),
        "INSERT INTO account VALUES (4,'four',4)",
        "SET gtid_next='AUTOMATIC:green'",
        "INSERT INTO account VALUES (5,'five',5)",
        "CREATE TABLE tagged (a INT PRIMARY KEY)",
        "INSERT INTO tagged VALUES (1)",
        "SET gtid_next='AUTOMATIC'",
        // Savepoints: kept, undone, with the same name again.
        "BEGIN",
        "SAVEPOINT a",
        "UPDATE account SET v=10 WHERE id=1",
        "SAVEPOINT a",
        "UPDATE account SET v=20 WHERE id=2",
        "ROLLBACK TO a",
        "SAVEPOINT `ü ``b`",
        "UPDATE account SET v=30 WHERE id=3",
        "RELEASE SAVEPOINT `ü ``b`",
        "COMMIT",
        // Commits without COMMIT.
        "BEGIN",
        "UPDATE account SET v=v+1",
        "BEGIN",
        "UPDATE account SET v=v+1",
        "COMMIT AND CHAIN",
        "UPDATE account SET v=v+1",
        "CREATE TABLE committing (a INT)",
        "SET autocommit=0",
        "INSERT INTO committing VALUES (1)",
        "LOCK TABLES committing WRITE",
        "INSERT INTO committing VALUES (2)",
        "UNLOCK TABLES",
        "SET autocommit=1",
        // A statement that fails halfway leaves no trace.
        "BEGIN",
        "INSERT INTO account VALUES (10,'ten',1)",
        "INSERT IGNORE INTO account VALUES (11,'eleven',1),(10,'again',1)",
        "COMMIT",
        // Temporary tables concern the source alone.
        "CREATE TEMPORARY TABLE scratch (a INT PRIMARY KEY, b INT)",
        "INSERT INTO scratch VALUES (1,100),(2,200)",
        "BEGIN",
        "UPDATE scratch SET b=b+1",
        "UPDATE account, scratch SET account.v=scratch.b WHERE account.id=scratch.a",
        "CREATE TEMPORARY TABLE more (a INT)",
        "DROP TEMPORARY TABLE more",
        "INSERT INTO account SELECT a+20, CONCAT('t',a), b FROM scratch",
        "COMMIT",
        "DROP TEMPORARY TABLE scratch",
        "DROP TABLE IF EXISTS never_there",
    ])
    .await;
    pair.equal().await;
    let gtids = format!("'{uuid}:7,{uuid}:blue:1'");
    let recorded: u64 = pair
        .target
        .value(&format!("SELECT GTID_SUBSET({gtids}, (SELECT gtid_executed FROM csa.checkpoint ORDER BY sequence DESC LIMIT 1))"))
        .await;
    assert_eq!(recorded, 1, "empty and tagged transactions count as executed");
    let v: String = pair.target.value("SELECT GROUP_CONCAT(v ORDER BY id) FROM c.account").await;
    assert_eq!(v, "101,201,33,7,8,1,1,101,201");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn statements_that_write_many_tables_or_files() {
    for executor in EXECUTORS {
        many_tables_or_files(executor).await;
    }
}

async fn many_tables_or_files(executor: &str) {
    let pair = Pair::start_with(executor, &["--binlog-row-event-max-size=256"], &[]).await;
    let file = pair.source.data_directory().with_file_name("files").join("rows.txt");
    let rows: String = (0..3000).map(|n| format!("{n}\tname {n}\t\\N\n")).collect();
    std::fs::write(&file, rows).expect("writes the file");
    let load = |mode: &str, table: &str| {
        format!("LOAD DATA INFILE '{}' {mode} INTO TABLE {table}", file.display())
    };
    pair.run([
        ACCOUNTS,
        "CREATE TABLE a (id INT PRIMARY KEY, v INT, t TEXT)",
        "CREATE TABLE b (id INT PRIMARY KEY, a_id INT, v INT, FOREIGN KEY (a_id) REFERENCES a (id))",
        "CREATE TABLE log (what VARCHAR(20), id INT)",
        // Statements would fire the triggers again on the target, so only the source gets them then.
        if executor == "sql" { "SET sql_log_bin=0" } else { "SET sql_log_bin=1" },
        "CREATE TRIGGER a_changed AFTER UPDATE ON a FOR EACH ROW INSERT INTO log VALUES ('a', NEW.id)",
        "CREATE TRIGGER b_changed BEFORE UPDATE ON b FOR EACH ROW SET NEW.v = NEW.v + 1000",
        "SET sql_log_bin=1",
        &load("", "account"),
        &load("REPLACE", "account"),
        &load("IGNORE", "account"),
        "INSERT INTO a SELECT id, id, name FROM account WHERE id < 500",
        "INSERT INTO b SELECT id, id, id FROM a WHERE id < 400",
        "UPDATE a JOIN b ON a.id=b.a_id SET a.v=a.v+b.v, b.v=0 WHERE a.id < 300",
        "DELETE a, b FROM b JOIN a ON a.id=b.a_id WHERE a.id BETWEEN 10 AND 20",
        "REPLACE INTO account SELECT id+1, name, 1 FROM account WHERE id % 100 = 0",
        "INSERT INTO account SELECT o.id, o.name, 2 FROM account o WHERE id % 50 = 0 \
         ON DUPLICATE KEY UPDATE v=account.id, name=CONCAT(account.name,'+')",
        "CREATE PROCEDURE many() BEGIN DECLARE n INT DEFAULT 0; \
         WHILE n < 50 DO UPDATE a SET v=n WHERE id=n; SET n=n+1; END WHILE; END",
        "CALL many()",
        "BEGIN",
        "CALL many()",
        "ROLLBACK",
        "UPDATE account SET id=id+10000 ORDER BY id DESC",
        "DELETE FROM account ORDER BY id LIMIT 100",
    ])
    .await;
    if executor == "sql" {
        let triggers = ["DROP TRIGGER a_changed", "DROP TRIGGER b_changed"];
        pair.run(["SET sql_log_bin=0"].into_iter().chain(triggers)).await;
    }
    let compared = pair.equal().await;
    assert!(compared.rows > 3500, "{compared:?}");
}

/// Changes every setting of how transactions are logged, between one and the next.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn settings_that_change_in_mid_stream() {
    for executor in EXECUTORS {
        changing_settings(executor).await;
    }
}

async fn changing_settings(executor: &str) {
    let pair = Pair::start_with(executor, &[], &[]).await;
    pair.run([
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, u VARCHAR(20) UNIQUE, b LONGTEXT, j JSON)",
        "INSERT INTO t SELECT n, 0, n, REPEAT('x',3000), JSON_OBJECT('n',n,'s',REPEAT('y',500),'a',\
         JSON_ARRAY(1,2,3)) FROM (WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s \
         WHERE n<40) SELECT n FROM s) s",
    ])
    .await;
    let mut statements = Vec::new();
    for round in 0..6 {
        for (number, setting) in [
            "SET binlog_transaction_compression=ON",
            "SET binlog_row_image=MINIMAL",
            "SET binlog_row_value_options=PARTIAL_JSON",
            "SET GLOBAL binlog_row_metadata=FULL",
            "SET binlog_transaction_compression=OFF",
            "FLUSH BINARY LOGS",
            "SET binlog_row_image=NOBLOB",
            "SET GLOBAL binlog_checksum=NONE",
            "SET binlog_transaction_compression=ON, binlog_transaction_compression_level_zstd=19",
            "SET binlog_row_image=FULL",
            "SET binlog_rows_query_log_events=ON",
            "SET GLOBAL binlog_checksum=CRC32",
            "SET binlog_row_value_options=''",
            "SET GLOBAL binlog_row_metadata=MINIMAL",
            "SET binlog_transaction_compression=OFF, foreign_key_checks=0, unique_checks=0",
            "SET foreign_key_checks=1, unique_checks=1",
        ]
        .iter()
        .enumerate()
        {
            let id = (round * 7 + number * 5) % 40 + 1;
            statements.push((*setting).to_owned());
            statements.push(format!("UPDATE t SET n=n+1, u=CONCAT('u{round}.',id) WHERE id={id}"));
            statements
                .push(format!("UPDATE t SET j=JSON_SET(j,'$.n',n,'$.a[1]','x') WHERE id>{id}"));
            statements.push(format!("UPDATE t SET j=JSON_REMOVE(j,'$.s') WHERE id={id}"));
            statements.push(format!("UPDATE t SET b=REPEAT('{round}',2000), n=n+1 WHERE id<{id}"));
            statements.push(format!("DELETE FROM t WHERE id={id}"));
            statements.push(format!("INSERT INTO t VALUES ({id},{round},{id},'b','{{\"s\":1}}')"));
        }
    }
    let (online, backlog) = statements.split_at(statements.len() / 2);
    pair.run(online).await;
    pair.equal().await;
    pair.run_as_backlog(backlog).await;
    assert_eq!(pair.equal().await.rows, 40);
}

/// Partial JSON events and plain ones of the same rows, also within one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn partial_json() {
    let pair = Pair::start(&[], &[]).await;
    pair.run([
        "CREATE TABLE t (id INT PRIMARY KEY, a JSON, b JSON, v INT AS (a->'$.n') VIRTUAL, \
         s INT AS (b->'$.n') STORED, UNIQUE (v), KEY ((CAST(b->'$.n' AS SIGNED))))",
        "CREATE TABLE keyless (a JSON)",
        "CREATE TABLE seen (id INT, FOREIGN KEY (id) REFERENCES t (id) ON DELETE CASCADE)",
    ])
    .await;
    let mut statements = vec![
        "SET binlog_row_value_options=PARTIAL_JSON, binlog_row_image=MINIMAL".to_owned(),
        "INSERT INTO keyless VALUES (JSON_OBJECT('n',1,'s',REPEAT('x',300)))".to_owned(),
        "INSERT INTO keyless SELECT * FROM keyless".to_owned(),
    ];
    for n in 1..=30 {
        statements.push(format!(
            "INSERT INTO t (id,a,b) VALUES ({n},JSON_OBJECT('n',{n},'s',REPEAT('x',400)),\
             JSON_ARRAY({n},JSON_OBJECT('o',REPEAT('y',300))))"
        ));
        statements.push(format!("INSERT INTO seen VALUES ({n})"));
        statements.push("BEGIN".to_owned());
        statements.push(format!("UPDATE t SET a=JSON_SET(a,'$.n',{n}+100) WHERE id={n}"));
        statements.push(format!(
            "UPDATE t SET a=JSON_REPLACE(a,'$.s','short'), b=JSON_SET(b,'$[1].o',{n}) WHERE id>={n}"
        ));
        statements.push(format!("UPDATE t SET b=JSON_REMOVE(b,'$[0]') WHERE id={n}"));
        statements.push(format!("UPDATE t SET b=JSON_SET(b,'$.n',3) WHERE id={n}"));
        statements.push("COMMIT".to_owned());
        // The number moves from one row to the next.
        statements.push(format!("UPDATE t SET a=JSON_REMOVE(a,'$.n') WHERE id={n}"));
        statements.push(format!("UPDATE t SET a=JSON_SET(a,'$.n',{n}+99) WHERE id={n}"));
        statements.push(format!("UPDATE keyless SET a=JSON_SET(a,'$.n',{n}) LIMIT 1"));
        if n % 5 == 0 {
            statements.push(format!("DELETE FROM t WHERE id={n}-2"));
        }
    }
    let (online, backlog) = statements.split_at(statements.len() / 2);
    pair.run(online).await;
    pair.equal().await;
    let again = ["SET binlog_row_value_options=PARTIAL_JSON, binlog_row_image=NOBLOB".to_owned()];
    pair.run_as_backlog(again.iter().chain(backlog)).await;
    pair.equal().await;
    let updates: u64 = pair.target.value("SELECT COUNT(*) FROM c.t WHERE a->>'$.s'='short'").await;
    assert!(updates > 20, "{updates}");
}

/// Definitions and rows around a restart of the source, which also closes its binary log file.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_source_restarts() {
    let pair = Pair::start(&[], &[]).await;
    pair.run([ACCOUNTS, "INSERT INTO account VALUES (1,'one',1)"]).await;
    pair.equal().await;
    for restart in 0..2 {
        match restart {
            0 => pair.source.restart(),
            _ => {
                pair.source.kill9();
                pair.source.restart();
            }
        }
        pair.run([
            format!("INSERT INTO account VALUES (10+{restart},'after {restart}',1)"),
            format!("CREATE TABLE made_{restart} (a INT)"),
            "FLUSH BINARY LOGS".to_owned(),
            "UPDATE account SET v=v+1".to_owned(),
        ])
        .await;
        let compared = pair.equal().await;
        assert_eq!(compared.rows, 2 + restart);
    }
}

/// Two sessions whose transactions overlap; the order in the stream is that of their commits.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_overlap() {
    let pair = Pair::start(&[], &[]).await;
    pair.run([ACCOUNTS, "INSERT INTO account VALUES (1,'one',1),(2,'two',2)"]).await;
    let (mut one, mut two) = (pair.source.conn().await, pair.source.conn().await);
    for (first, statement) in [
        (true, "USE c"),
        (false, "USE c"),
        (true, "BEGIN"),
        (false, "BEGIN"),
        (true, "UPDATE account SET name='x' WHERE id=1"),
        (false, "UPDATE account SET v=20 WHERE id=2"),
        (false, "SAVEPOINT s"),
        (false, "INSERT INTO account VALUES (3,'three',3)"),
        (false, "COMMIT"),
        (true, "UPDATE account SET v=21 WHERE id=2"),
        (true, "COMMIT"),
    ] {
        let conn = if first { &mut one } else { &mut two };
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    assert_eq!(pair.equal().await.rows, 3);
    eventually("no lag", Duration::from_secs(10), async || {
        pair.daemon.status()["channels"][0]["lag_seconds"] == 0.0
    })
    .await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
}
