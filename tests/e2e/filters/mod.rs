//! Filters and renamed schemas, compared with the server's own replica under the same rules.

mod rows;

use std::time::Duration;

use csa_tests::{Compare, Daemon, DaemonBuilder, Load, LoadOptions, Server, compare, prepare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, EXECUTORS, wait_state};

/// Rules in the forms of CHANGE REPLICATION FILTER and of the configuration, and a table that shows
/// their effect: it has rows, or is missing.
struct Rules {
    native: &'static str,
    own: &'static [(&'static str, &'static [&'static str])],
    rewrite: &'static [(&'static str, &'static str)],
    has: &'static str,
    lacks: &'static str,
}

static FILTERS: [Rules; 7] = [
    Rules {
        native: "REPLICATE_DO_DB=(a,d)",
        own: &[("do_db", &["a", "d"])],
        rewrite: &[],
        has: "a.t1",
        lacks: "b.t1",
    },
    Rules {
        native: "REPLICATE_IGNORE_DB=(a)",
        own: &[("ignore_db", &["a"])],
        rewrite: &[],
        has: "b.t1",
        lacks: "a.t1",
    },
    Rules {
        native: "REPLICATE_DO_TABLE=(a.t1,b.t2)",
        own: &[("do_table", &["a.t1", "b.t2"])],
        rewrite: &[],
        has: "a.t1",
        lacks: "a.t2",
    },
    Rules {
        native: "REPLICATE_IGNORE_TABLE=(a.t1,b.t2)",
        own: &[("ignore_table", &["a.t1", "b.t2"])],
        rewrite: &[],
        has: "a.t2",
        lacks: "a.t1",
    },
    Rules {
        native: r"REPLICATE_WILD_DO_TABLE=('a.t_%','c\\_1.%','mysql.%')",
        own: &[("wild_do_table", &["a.t_%", r"c\_1.%", "mysql.%"])],
        rewrite: &[],
        has: "c_1.t1",
        lacks: "cx1.t1",
    },
    Rules {
        native: "REPLICATE_WILD_IGNORE_TABLE=('b.%','mysql.%')",
        own: &[("wild_ignore_table", &["b.%", "mysql.%"])],
        rewrite: &[],
        has: "a.t1",
        lacks: "b.t1",
    },
    Rules {
        native: "REPLICATE_DO_DB=(a,b), REPLICATE_IGNORE_DB=(a), REPLICATE_DO_TABLE=(a.t1), \
                 REPLICATE_IGNORE_TABLE=(a.t1,a.t2), REPLICATE_WILD_DO_TABLE=('%.t%'), \
                 REPLICATE_WILD_IGNORE_TABLE=('b.t2')",
        own: &[
            ("do_db", &["a", "b"]),
            ("ignore_db", &["a"]),
            ("do_table", &["a.t1"]),
            ("ignore_table", &["a.t1", "a.t2"]),
            ("wild_do_table", &["%.t%"]),
            ("wild_ignore_table", &["b.t2"]),
        ],
        rewrite: &[],
        has: "b.t1",
        lacks: "a.t2",
    },
];

static RENAMES: [Rules; 2] = [
    Rules {
        native: "REPLICATE_REWRITE_DB=((a,z))",
        own: &[],
        rewrite: &[("a", "z")],
        has: "z.t1",
        lacks: "a.t1",
    },
    Rules {
        native: "REPLICATE_REWRITE_DB=((a,z),(b,a)), REPLICATE_DO_DB=(z,a), \
                 REPLICATE_IGNORE_TABLE=(a.t2), REPLICATE_WILD_IGNORE_TABLE=('z.t2%','mysql.%')",
        own: &[
            ("do_db", &["z", "a"]),
            ("ignore_table", &["a.t2"]),
            ("wild_ignore_table", &["z.t2%", "mysql.%"]),
        ],
        rewrite: &[("a", "z"), ("b", "a")],
        has: "a.t1",
        lacks: "z.t2",
    },
];

impl Rules {
    fn configure(&self, builder: DaemonBuilder) -> DaemonBuilder {
        let set = |builder: DaemonBuilder, (key, names): &(&str, &[&str])| {
            let names: Vec<toml::Value> = names.iter().map(|name| (*name).into()).collect();
            builder.set(&format!("applier.replicate_{key}"), names)
        };
        // The same option in MySQL's form.
        let builder = builder.set("applier.replicate_accounts", true);
        let builder = self.own.iter().fold(builder, set);
        self.rewrite.iter().fold(builder, |builder, (from, to)| {
            builder.set(&format!("applier.replicate_rewrite_db.{from}"), *to)
        })
    }
}

/// Schemas that exist before anything is replicated.
const SCHEMAS: [&str; 5] = ["a", "b", "c_1", "cx1", "z"];

/// Default database and statement; every statement has tables of one kind only.
const HISTORY: &[(&str, &str)] = &[
    ("a", "CREATE TABLE t1 (id INT PRIMARY KEY, v INT, j JSON, s VARCHAR(99) UNIQUE)"),
    ("a", "CREATE TABLE t2 (id INT PRIMARY KEY, v INT, j JSON, s VARCHAR(99))"),
    ("b", "CREATE TABLE t1 (id INT PRIMARY KEY, v INT)"),
    ("b", "CREATE TABLE t2 (id INT PRIMARY KEY, v INT)"),
    ("c_1", "CREATE TABLE t1 (id INT AUTO_INCREMENT PRIMARY KEY, v INT)"),
    ("cx1", "CREATE TABLE t1 (v INT)"),
    ("a", "INSERT INTO t1 VALUES (1,1,'{\"k\":[1,2,3]}','x'),(2,2,'{}','y'),(3,3,NULL,NULL)"),
    ("b", "INSERT INTO t1 VALUES (1,1),(2,2)"),
    // Several tables in one transaction, and in one statement.
    ("a", "BEGIN"),
    ("a", "INSERT INTO a.t2 SELECT * FROM a.t1"),
    ("a", "INSERT INTO b.t2 SELECT * FROM b.t1"),
    (
        "a",
        "UPDATE t1 x, t2 y, b.t1 z SET x.v=x.v+10, y.v=y.v+20, z.v=z.v+30 \
           WHERE x.id=y.id AND y.id=z.id",
    ),
    ("a", "SAVEPOINT s"),
    ("a", "DELETE FROM a.t2 WHERE id=3"),
    ("a", "ROLLBACK TO s"),
    ("a", "UPDATE a.t1, b.t2 SET a.t1.v=-1, b.t2.v=-2 WHERE a.t1.id=b.t2.id AND a.t1.id=2"),
    ("a", "COMMIT"),
    ("b", "INSERT INTO c_1.t1 (v) SELECT id FROM a.t1"),
    ("b", "INSERT INTO cx1.t1 SELECT id FROM a.t1"),
    // Images without all columns, and partial JSON updates.
    ("a", "SET binlog_row_image=MINIMAL, binlog_row_value_options=PARTIAL_JSON"),
    ("a", "UPDATE t1, t2 SET t1.v=5, t2.v=6 WHERE t1.id=t2.id AND t1.id=1"),
    (
        "a",
        "UPDATE t1, t2 SET t1.j=JSON_SET(t1.j,'$.k[1]',9), t2.j=JSON_SET(t2.j,'$.n',1) \
           WHERE t1.id=t2.id AND t1.id<3",
    ),
    ("a", "DELETE t1, t2 FROM t1 JOIN t2 USING (id) WHERE id=3"),
    ("a", "SET binlog_row_image=FULL, binlog_row_value_options=''"),
    // A trigger writes to another table.
    (
        "a",
        "CREATE TRIGGER on_t1 AFTER INSERT ON t1 FOR EACH ROW INSERT INTO b.t1 VALUES (NEW.id, 0)",
    ),
    ("a", "INSERT INTO t1 (id, v) VALUES (50, 50)"),
    ("a", "DROP TRIGGER on_t1"),
    ("b", "CREATE TRIGGER on_t2 BEFORE INSERT ON t2 FOR EACH ROW SET NEW.v = 1"),
    ("a", "ALTER TABLE t1 ADD w INT DEFAULT 7, RENAME COLUMN s TO u"),
    ("a", "ALTER TABLE t2 ADD w INT DEFAULT 8"),
    ("a", "UPDATE t1, t2 SET t1.w=1, t2.w=2 WHERE t1.id=t2.id"),
    ("a", "CREATE INDEX i ON t1 (v)"),
    ("a", "DROP INDEX i ON t1"),
    ("a", "CREATE TABLE t3 (id INT PRIMARY KEY)"),
    ("a", "CREATE TABLE t30 (id INT PRIMARY KEY)"),
    ("a", "INSERT INTO t3 VALUES (1),(2)"),
    ("a", "TRUNCATE TABLE t3"),
    ("a", "INSERT INTO t3 VALUES (3)"),
    ("a", "RENAME TABLE t3 TO t4, t30 TO t31"),
    ("a", "RENAME TABLE t31 TO t32"),
    ("a", "INSERT INTO t4 VALUES (4)"),
    ("a", "CREATE TABLE t5 (id INT PRIMARY KEY)"),
    ("a", "DROP TABLE t5, t32"),
    ("b", "CREATE VIEW v AS SELECT * FROM t1"),
    ("b", "CREATE VIEW v2 AS SELECT 1 AS one"),
    ("b", "DROP VIEW v, v2"),
    ("a", "CREATE PROCEDURE p() SELECT 1"),
    ("b", "CREATE PROCEDURE p() SELECT 1"),
    ("b", "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1"),
    ("b", "DROP EVENT e"),
    ("b", "CREATE DATABASE d"),
    ("b", "CREATE DATABASE e"),
    ("d", "ALTER DATABASE CHARACTER SET latin1"),
    ("b", "DROP DATABASE e"),
    ("", "CREATE USER u1 IDENTIFIED WITH caching_sha2_password AS ''"),
    ("a", "CREATE USER u2 IDENTIFIED WITH caching_sha2_password AS ''"),
    ("b", "CREATE ROLE r1"),
    ("b", "CREATE USER u3 IDENTIFIED WITH caching_sha2_password AS ''"),
    ("", "GRANT SELECT ON c_1.* TO u1"),
    ("a", "GRANT SELECT ON t1 TO u2"),
    ("b", "GRANT r1 TO u3"),
    ("b", "DROP TABLE t2"),
];

/// Statements that name schemas stop a replica that renames them.
const NAMING_SCHEMAS: [&str; 2] = ["on_t1", "GRANT SELECT ON t1"];

async fn write_history(source: &Server, left_out: &[&str]) {
    let mut conn = source.conn().await;
    let mut database = "";
    for (wanted, statement) in HISTORY {
        if left_out.iter().any(|words| statement.contains(words)) {
            continue;
        }
        if *wanted != database {
            // A session can't unset its default database.
            conn = source.conn().await;
            if !wanted.is_empty() {
                conn.query_drop(format!("USE {wanted}")).await.expect(wanted);
            }
            database = wanted;
        }
        if let Err(error) = conn.query_drop(*statement).await {
            panic!("{statement}: {error}");
        }
    }
}

/// Resets the server to its provisioned state, with nothing executed but `provisioned`.
async fn reset(server: &Server, provisioned: &str) {
    server.exec("SET sql_log_bin=0; DROP USER IF EXISTS u1, u2, u3; DROP ROLE IF EXISTS r1").await;
    for schema in SCHEMAS.iter().chain(&["d", "e", "csa"]) {
        server.exec(&format!("DROP DATABASE IF EXISTS {schema}")).await;
    }
    for schema in SCHEMAS {
        server.exec(&format!("CREATE DATABASE {schema}")).await;
    }
    server.exec("RESET BINARY LOGS AND GTIDS").await;
    server.exec(&format!("SET GLOBAL gtid_purged='{provisioned}'")).await;
}

/// Replicates everything natively.
async fn replicate_natively(source: &Server, replica: &Server, filter: &str) {
    let port = source.port;
    replica
        .exec(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, \
             SOURCE_USER='repl', SOURCE_PASSWORD='repl_pw', SOURCE_AUTO_POSITION=1, \
             GET_SOURCE_PUBLIC_KEY=1"
        ))
        .await;
    replica.exec(&format!("CHANGE REPLICATION FILTER {filter}")).await;
    replica.exec("START REPLICA").await;
    let executed = source.gtid_executed().await;
    let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', 60)");
    if replica.value::<u8>(&wait).await != 0 {
        let why: String = replica
            .value(
                "SELECT COALESCE(MAX(last_error_message), '') FROM \
                 performance_schema.replication_applier_status_by_worker",
            )
            .await;
        panic!("the server's own replica with {filter} stopped: {why}");
    }
    replica.exec("STOP REPLICA; RESET REPLICA ALL").await;
    replica
        .exec(
            "CHANGE REPLICATION FILTER REPLICATE_DO_DB=(), REPLICATE_IGNORE_DB=(), \
             REPLICATE_DO_TABLE=(), REPLICATE_IGNORE_TABLE=(), REPLICATE_WILD_DO_TABLE=(), \
             REPLICATE_WILD_IGNORE_TABLE=(), REPLICATE_REWRITE_DB=()",
        )
        .await;
}

async fn exists(server: &Server, table: &str) -> bool {
    let (schema, table) = table.split_once('.').expect("schema.table");
    let query = format!(
        "SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema='{schema}' AND table_name='{table}'"
    );
    server.value::<u64>(&query).await == 1
}

async fn same_as_the_servers_own_replica(
    source_options: &[&str],
    left_out: &[&str],
    rules: impl IntoIterator<Item = &'static Rules>,
    executors: &[&str],
) {
    let (source, target) = Server::pair(source_options, &[]);
    let replica = Server::start("replica", &[]);
    for schema in SCHEMAS {
        source.exec(&format!("CREATE DATABASE {schema}")).await;
    }
    let provisioned = source.gtid_executed().await;
    write_history(&source, left_out).await;
    for rules in rules {
        println!("{}", rules.native);
        reset(&replica, &provisioned).await;
        replicate_natively(&source, &replica, rules.native).await;
        for &executor in executors {
            reset(&target, &provisioned).await;
            let builder = Daemon::builder(&source, &target).set("applier.executor", executor);
            let daemon = rules.configure(builder).start();
            daemon.wait_drained(&source, &target, DRAIN).await;
            assert!(daemon.terminate().success());
            let what = format!("{} by {executor}", rules.native);
            let compared = Compare::new().users().run(&replica, &target).await;
            compared.unwrap_or_else(|difference| panic!("{what}: {difference}"));
            let rows: u64 = target.value(&format!("SELECT COUNT(*) FROM {}", rules.has)).await;
            assert!(rows > 0, "{what}: {}", rules.has);
            assert!(!exists(&target, rules.lacks).await, "{what}: {}", rules.lacks);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_servers_own_replica_ends_up_with_the_same() {
    same_as_the_servers_own_replica(&[], &[], &FILTERS, &EXECUTORS[..1]).await;
}

/// Everything except the trigger, which would fire a second time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_servers_own_replica_ends_up_with_the_same_by_statements() {
    same_as_the_servers_own_replica(&[], &["on_t1"], &FILTERS, &EXECUTORS[1..]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_with_renamed_schemas_and_compressed_transactions() {
    let compressed = ["--binlog-transaction-compression=ON"];
    let rules = RENAMES.iter().chain(&FILTERS[6..]);
    same_as_the_servers_own_replica(&compressed, &NAMING_SCHEMAS, rules, &EXECUTORS).await;
}
