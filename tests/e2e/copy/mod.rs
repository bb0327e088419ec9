//! `csa-daemon copy`: an empty target becomes a copy, and then follows the source.

mod again;
mod chunks;
mod cloned;
mod moved;
mod pace;
mod privileges;
mod server_facts;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use csa_tests::{Compare, Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, wait_state};

/// Returns the arguments of a copy that reads the source as its administrator.
fn arguments(daemon: &Daemon) -> Vec<String> {
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    ["copy", "--source-user", "admin", "--source-password-file", &password]
        .map(str::to_owned)
        .into()
}

fn copied(daemon: &Daemon) -> String {
    let arguments = arguments(daemon);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tokio::task::block_in_place(|| daemon.commanded(&arguments))
}

/// Returns the error of a copy that is refused.
fn refused(daemon: &Daemon) -> String {
    refused_with(daemon, &[])
}

/// Returns the error of a copy with these arguments, which is refused.
fn refused_with(daemon: &Daemon, more: &[&str]) -> String {
    let arguments = arguments(daemon);
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    assert_eq!(said.code, Some(1), "{said:?}");
    said.error
}

/// Starts a copy with these arguments; [`copy_log`] has what it says.
fn start_copying(daemon: &Daemon, more: &[&str]) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(copy_log_path(daemon))
        .expect("writable");
    Command::new(Daemon::executable())
        .arg("--config")
        .arg(daemon.config_path())
        .args(arguments(daemon))
        .args(more)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file"))
        .stderr(log)
        .spawn()
        .expect("starts")
}

fn copy_log_path(daemon: &Daemon) -> PathBuf {
    daemon.config_path().with_file_name("copy.log")
}

fn copy_log(daemon: &Daemon) -> String {
    std::fs::read_to_string(copy_log_path(daemon)).unwrap_or_default()
}

async fn ends_well(mut copying: Child, daemon: &Daemon) {
    eventually("the copy ends", 3 * DRAIN, async || copying.try_wait().expect("a child").is_some())
        .await;
    assert!(copying.wait().expect("a child").success(), "{}", copy_log(daemon));
}

fn busy() -> LoadOptions {
    LoadOptions {
        tables: 3,
        rows: 30_000,
        clients: 16,
        transfers_percent: 50,
        ..LoadOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_made_while_clients_write_is_followed_without_a_difference() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    source.exec("ANALYZE TABLE sbtest.sbtest1, sbtest.sbtest2, sbtest.sbtest3").await;
    let load = Load::start(&source, &busy());
    let daemon = Daemon::builder(&source, &target).build();
    let said = copied(&daemon);
    assert!(
        said.contains("tables, ")
            && said.contains("it holds the source's transactions")
            && said.contains("all rows equal those of the source's snapshot"),
        "{said}"
    );
    let before = load.committed();
    daemon.start_again();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = load.stop().await;
    assert!(report.committed > before, "nothing was written after the copy");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    // It is the channel's copy now.
    daemon.terminate();
    let error = refused(&daemon);
    assert!(error.contains("the channel's copy already"), "{error}");
}

/// Statements that make one of everything.
const EVERYTHING: &[&str] = &[
    "CREATE DATABASE shop CHARACTER SET latin1",
    "CREATE DATABASE `odd ``name`",
    "CREATE DATABASE vacant",
    "CREATE TABLE shop.customer (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, email VARCHAR(80) \
     CHARACTER SET utf8mb4 NOT NULL COMMENT 'with '' and ), KEY x', born DATE, PRIMARY KEY (id), \
     UNIQUE KEY email (email), KEY born (born) COMMENT 'a (b', KEY expression ((UPPER(email)))) COMMENT='KEY `a` (`b`)'",
    "CREATE TABLE shop.orders (`key` INT NOT NULL, line INT NOT NULL, customer BIGINT UNSIGNED, price DECIMAL(20,4), \
     total DECIMAL(22,4) AS (price*1.19) STORED, computed INT AS (`key`+1), kind ENUM('a','b''c'), tags SET('x','y'), \
     flags BIT(12), hidden INT INVISIBLE DEFAULT 7, at TIMESTAMP(6) NULL, t TIME(3), y YEAR, f FLOAT, d DOUBLE, \
     j JSON, g JSON, b BLOB, v VARBINARY(9), PRIMARY KEY (`key`, line), KEY customer (customer), KEY kind (kind, price DESC), \
     CONSTRAINT positive CHECK (price >= 0 OR (price IS NULL))) \
     PARTITION BY HASH (`key`) PARTITIONS 3",
    "CREATE TABLE shop.article (n INT AUTO_INCREMENT, body TEXT, title VARCHAR(50), KEY (n), \
     FULLTEXT KEY body (body), FULLTEXT KEY title (title)) ROW_FORMAT=DYNAMIC",
    "CREATE TABLE `odd ``name`.`t``b` (`c``d` VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, x INT)",
    "CREATE TABLE shop.keyless (a INT, b TEXT, p POINT SRID 4326)",
    "SET sql_generate_invisible_primary_key=ON",
    "CREATE TABLE shop.hidden_key (a INT)",
    "SET sql_generate_invisible_primary_key=OFF",
    "INSERT INTO shop.hidden_key VALUES (5),(6)",
    "CREATE TABLE shop.void (a INT PRIMARY KEY)",
    "CREATE TABLE shop.child (id INT PRIMARY KEY, parent INT, customer BIGINT UNSIGNED, \
     FOREIGN KEY (parent) REFERENCES child (id), \
     CONSTRAINT of_customer FOREIGN KEY (customer) REFERENCES customer (id) ON DELETE SET NULL ON UPDATE CASCADE)",
    "INSERT INTO shop.customer (id, email, born) VALUES (18446744073709551610,'Zoë \\'x\\' \\\\ \\0\\n','0000-00-00'),(3,'b',NULL)",
    "INSERT INTO shop.orders (`key`,line,customer,price,kind,tags,flags,hidden,at,t,y,f,d,j,g,b,v) VALUES \
     (1,1,3,12.5,'b''c','x,y',b'101',1,'2001-02-03 04:05:06.789',-1.5,2000,0.1,-1e300,'{\"a\": [1, null, \"ü\"]}',NULL,x'00ff27',''),\
     (1,2,NULL,NULL,NULL,'',NULL,2,NULL,'838:59:59',0,NULL,NULL,'null',NULL,'',x'27')",
    "INSERT INTO shop.article (body,title) VALUES ('the quick brown fox','one'),('jumps','two')",
    "INSERT INTO `odd ``name`.`t``b` VALUES ('a',1),('ß',2),('',3),('z ',4)",
    "INSERT INTO shop.keyless VALUES (1,'same',ST_SRID(POINT(1,2),4326)),(1,'same',NULL),(NULL,NULL,NULL)",
    "INSERT INTO shop.child VALUES (1,NULL,3),(2,1,NULL),(3,2,3)",
    "CREATE FUNCTION shop.twice(n INT) RETURNS INT DETERMINISTIC RETURN 2*n",
    "CREATE PROCEDURE shop.`do it`(OUT n INT) COMMENT 'it''s' BEGIN SELECT COUNT(*) INTO n FROM keyless; END",
];

/// Statements that depend on the others.
const DEPENDING: &[&str] = &[
    "CREATE VIEW shop.z_view AS SELECT `key`, line FROM shop.orders",
    "CREATE VIEW shop.a_view AS SELECT z.`key`, shop.twice(z.line) AS n FROM shop.z_view z",
    "CREATE TRIGGER shop.second BEFORE INSERT ON shop.void FOR EACH ROW SET NEW.a = NEW.a + 1",
    "CREATE TRIGGER shop.first BEFORE INSERT ON shop.void FOR EACH ROW PRECEDES second SET NEW.a = NEW.a * 2",
    "CREATE EVENT shop.tick ON SCHEDULE EVERY 1 HOUR DISABLE DO DELETE FROM shop.void",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_definition_and_every_kind_of_value_arrives() {
    everything_arrives("32MiB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_definition_and_every_kind_of_value_arrives_in_chunks() {
    everything_arrives("0MiB").await;
}

async fn everything_arrives(snapshot_limit: &str) {
    let (source, target) = Server::pair(&[], &["--sql-generate-invisible-primary-key=ON"]);
    let mut session = source.conn().await;
    let all = ["SET sql_mode='ALLOW_INVALID_DATES'"].iter().chain(EVERYTHING).chain(DEPENDING);
    for statement in all {
        session.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let daemon =
        Daemon::builder(&source, &target).set("copy.snapshot_limit", snapshot_limit).build();
    copied(&daemon);
    if snapshot_limit != "0MiB" {
        compare(&source, &target).await;
    }
    daemon.start_again();
    source
        .exec(
            "DELETE FROM shop.customer WHERE id=3; INSERT INTO shop.void VALUES (5); \
             UPDATE shop.keyless SET b='other' WHERE a=1 LIMIT 1; INSERT INTO shop.article (body) VALUES ('new')",
        )
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_killed_is_made_again_and_not_taken_for_one() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    let load = Load::start(&source, &busy());
    let daemon = Daemon::builder(&source, &target).build();
    for milliseconds in [0, 100, 200] {
        let begun: String = target.value("SELECT CAST(NOW(6) AS CHAR)").await;
        let noted = format!("SELECT COUNT(*) FROM csa.copy WHERE begun_at > '{begun}'");
        let mut copying = start_copying(&daemon, &["--lanes", "1"]);
        let mut conn = target.conn().await;
        eventually("tables are being copied", DRAIN, async || {
            conn.query_first(&noted).await.unwrap_or_default() > Some(0)
        })
        .await;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        copying.kill().expect("kills");
        copying.wait().expect("ends");
    }
    let begun: u64 = target.value("SELECT COUNT(*) FROM csa.copy").await;
    assert!(begun > 0, "no copy was interrupted");
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    assert!(said.out.contains("was begun and not finished"), "{said:?}");
    assert_eq!(said.code, Some(2), "{said:?}");
    // The target's rows are of several moments.
    daemon.spawn();
    eventually("the channel is refused", DRAIN, async || {
        daemon.log().contains("run csa-daemon copy --channel test again")
    })
    .await;
    daemon.kill9();
    copied(&daemon);
    daemon.start_again();
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_copied_is_named_before_anything_is_made() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); \
             CREATE TABLE d.old (id INT PRIMARY KEY) ENGINE=MyISAM",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).build();
    // The replicating account may read nothing.
    let planned = [&arguments(&daemon)[..], &["--plan".to_owned()]].concat();
    let said = tokio::task::block_in_place(|| daemon.command(&["copy"]));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.error.contains("GRANT SELECT ON *.* TO"), "{}", said.error);
    let error = refused(&daemon);
    assert!(error.contains("d.old") && error.contains("ENGINE=InnoDB"), "{error}");
    source.exec("ALTER TABLE d.old ENGINE=InnoDB; SET GLOBAL binlog_order_commits=OFF").await;
    let error = refused(&daemon);
    assert!(error.contains("SET GLOBAL binlog_order_commits=ON"), "{error}");
    source.exec("SET GLOBAL binlog_order_commits=ON").await;
    let planned: Vec<&str> = planned.iter().map(String::as_str).collect();
    let said = tokio::task::block_in_place(|| daemon.commanded(&planned));
    assert!(said.contains("d.t: about") && said.contains("2 tables"), "{said}");
    target.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT)").await;
    let error = refused(&daemon);
    assert!(error.contains("d.t") && error.contains("start_from"), "{error}");
    let there: u64 =
        target.value("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'").await;
    assert_eq!(there, 1, "something was made");
    // A view of a table that is not replicated can't be made; the rows can.
    target.exec("DROP TABLE d.t").await;
    source.exec("CREATE TABLE d.secret (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)").await;
    source.exec("CREATE VIEW d.v AS SELECT id FROM d.secret").await;
    daemon.set("applier.replicate_ignore_table", vec!["d.secret"]);
    daemon.write_config();
    let planned: Vec<String> = arguments(&daemon);
    let planned: Vec<&str> = planned.iter().map(String::as_str).collect();
    let said = tokio::task::block_in_place(|| daemon.command(&planned));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.error.contains("not copied: ") && said.error.contains("view d.v"), "{said:?}");
    let rows: u64 = target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(rows, 1);
}

/// A copy whose session for the channel was killed still has sessions that write rows.
#[tokio::test(flavor = "multi_thread")]
async fn two_copies_write_no_row_twice() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.keyless (v INT)").await;
    source.exec("SET SESSION cte_max_recursion_depth=100000; INSERT INTO d.keyless WITH RECURSIVE n AS (SELECT 1 v UNION ALL SELECT v+1 FROM n WHERE v<60000) SELECT v FROM n").await;
    source.exec("ANALYZE TABLE d.keyless").await;
    let daemon = Daemon::builder(&source, &target).build();
    let mut first = start_copying(&daemon, &["--rows-per-second", "1000"]);
    eventually("rows are copied", DRAIN, async || copy_log(&daemon).contains("of about")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(target.value::<u64>("SELECT COUNT(*) FROM d.keyless").await > 0);
    let said = refused(&daemon);
    assert!(said.contains("another daemon holds it on this target (connection "), "{said}");
    let claim: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
    target.exec(&format!("KILL {claim}")).await;
    copied(&daemon);
    eventually("the first copy ends", DRAIN, async || first.try_wait().expect("a child").is_some())
        .await;
    assert!(!first.wait().expect("a child").success());
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Killed in the middle, the daemon begins the copy again, and follows the source once it is made.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_begins_with_a_copy_by_itself() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    source.exec("CREATE DATABASE other; CREATE TABLE other.t (id INT PRIMARY KEY)").await;
    // The target could not begin with the source's first transaction.
    source.exec("FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW()").await;
    let load = Load::start(&source, &busy());
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.start_from", "copy")
        .set("applier.replicate_ignore_db", vec!["other"])
        .build();
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    assert!(said.out.contains("begins with a copy of the source"), "{said:?}");
    assert_eq!(said.code, Some(0), "{said:?}");
    daemon.spawn();
    copies_rows(&daemon).await;
    daemon.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::new().ignore_schema("other").run(&source, &target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
    let other: u64 = target
        .value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='other'")
        .await;
    assert_eq!(other, 0);
    // It has a checkpoint now.
    daemon.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
}

async fn copies_rows(daemon: &Daemon) {
    eventually("it copies", DRAIN, async || {
        daemon.try_status().is_some_and(|status| {
            let detail = status["channels"][0]["state_detail"].to_string();
            let copy = &status["channels"][0]["copy"];
            detail.contains("copying the source") && copy["step"] == "rows"
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_made_whatever_happens_meanwhile() {
    made_whatever_happens("1GiB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_in_chunks_is_made_whatever_happens_meanwhile() {
    made_whatever_happens("0MiB").await;
}

/// Servers that are killed, and definitions that change: the daemon makes the copy again, until it is whole.
async fn made_whatever_happens(snapshot_limit: &str) {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { rows: 80_000, ..busy() }).await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("source.connect_retry", "100ms")
        .set("target.connect_retry", "100ms")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", snapshot_limit)
        .build();
    // A table that is made just before the snapshots is made by no later transaction.
    let opts = source.opts();
    let maker = tokio::spawn(async move {
        let mut conn = Conn::new(opts).await.expect("connects");
        for number in 0..40 {
            let table = format!("sbtest.made{number}");
            conn.query_drop(format!("CREATE TABLE {table} (id INT PRIMARY KEY)"))
                .await
                .expect("makes");
            conn.query_drop(format!("INSERT INTO {table} VALUES (1)")).await.expect("inserts");
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    });
    daemon.spawn();
    maker.await.expect("makes all");
    copies_rows(&daemon).await;
    source.kill9();
    source.restart();
    copies_rows(&daemon).await;
    target.kill9();
    target.restart();
    copies_rows(&daemon).await;
    // DDL does not wait for the copy. A table that is not read yet can't be read any more, and one that was read gets
    // the change from the stream.
    let load = Load::start(&source, &LoadOptions { clients: 4, ..busy() });
    for table in 1..=3 {
        source
            .exec(&format!("ALTER TABLE sbtest.sbtest{table} ADD COLUMN late INT DEFAULT 7"))
            .await;
    }
    source
        .exec("CREATE TABLE sbtest.late (id INT PRIMARY KEY); INSERT INTO sbtest.late VALUES (1)")
        .await;
    eventually("all rows are copied", DRAIN, async || daemon.log().contains("all rows are copied"))
        .await;
    load.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The end of a copy is compared with the snapshot, in which nothing has changed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_somebody_else_changes_is_no_start() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    let daemon = Daemon::builder(&source, &target).build();
    let mut copying = start_copying(&daemon, &["--rows-per-second", "20000", "--lanes", "1"]);
    let mut conn = target.conn().await;
    eventually("a row is there", DRAIN, async || {
        let changed =
            "SET sql_log_bin=0; UPDATE sbtest.sbtest1 SET c='not the source''s' WHERE id=1";
        conn.query_drop(changed).await.is_ok() && conn.affected_rows() > 0
    })
    .await;
    eventually("the copy ends", DRAIN, async || copying.try_wait().expect("a child").is_some())
        .await;
    let said = copy_log(&daemon);
    assert!(said.contains("sbtest.sbtest1 on the target (30000 rows) differs"), "{said}");
    assert!(!copying.wait().expect("a child").success(), "{said}");
    // Nothing begins there.
    let checkpoints: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
    assert_eq!(checkpoints, 0);
    ends_well(start_copying(&daemon, &["--no-verify"]), &daemon).await;
    assert!(!copy_log(&daemon).contains("all rows equal"), "{}", copy_log(&daemon));
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The way back after an upgrade.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_to_an_older_release() {
    let source = Server::start("source", &[]);
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), j JSON, UNIQUE KEY v (v))",
        "CREATE TABLE d.keyless (a INT, b BLOB)",
        "INSERT INTO d.t (v,j) VALUES ('ä','{\"a\":1}'),('b',NULL),('c','[]')",
        "INSERT INTO d.keyless VALUES (1,'x'),(1,'x')",
    ] {
        source.exec(statement).await;
    }
    for limit in ["0MiB", "32MiB"] {
        let target = Server::start_version("target", "8.0.31", &[]);
        let daemon = Daemon::builder(&source, &target)
            .set("target.tls", "disabled")
            .set("target.get_public_key", true)
            .set("copy.snapshot_limit", limit)
            .build();
        let said = copied(&daemon);
        assert_eq!(said.contains("in chunks"), limit == "0MiB", "{said}");
        assert_eq!(said.contains("all rows equal"), limit != "0MiB", "{said}");
        daemon.start_again();
        source
            .exec("UPDATE d.t SET v=CONCAT(v, 'x') WHERE id=2; DELETE FROM d.keyless LIMIT 1")
            .await;
        wait_state(&daemon, 0, "running").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let compared = Compare::contents().run(&source, &target).await;
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// Definitions of MariaDB differ: nothing is made there, and the error names the way.
#[tokio::test(flavor = "multi_thread")]
async fn a_mariadb_target_is_refused_before_the_first_row() {
    let source = Server::start("source", &[]);
    let target = Server::start_mariadb("target", &[]);
    source.exec("CREATE DATABASE d").await;
    source.exec("CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)").await;
    for limit in ["0MiB", "32MiB"] {
        let daemon = Daemon::builder(&source, &target)
            .set("copy.snapshot_limit", limit)
            .set("applier.start_from", "copy")
            .set("source.user", "admin")
            .set("source.password", "admin_pw")
            .build();
        let error = refused(&daemon);
        assert!(error.contains("MariaDB") && error.contains("copy with a dump"), "{error}");
        daemon.spawn();
        eventually("the channel says why", DRAIN, async || {
            let status = daemon.try_status().unwrap_or_default().to_string();
            status.contains("copy with a dump")
        })
        .await;
        daemon.terminate();
        let schemas: u64 = target
            .value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='d'")
            .await;
        assert_eq!(schemas, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_go_between_versions() {
    const STATEMENTS: [&str; 8] = [
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), n DECIMAL(9,3), j JSON, \
         g DECIMAL(9,3) AS (n+1) STORED, KEY v (v))",
        "CREATE TABLE d.keyless (a INT, b BLOB)",
        "CREATE TABLE d.quiet (id INT PRIMARY KEY)",
        "INSERT INTO d.t (v,n,j) VALUES ('ä',1.5,'{\"a\":1}'),('b',NULL,NULL)",
        "INSERT INTO d.keyless VALUES (1,'x'),(1,'x')",
        "CREATE TRIGGER d.tr BEFORE UPDATE ON d.quiet FOR EACH ROW SET NEW.id = NEW.id + 1",
        "CREATE PROCEDURE d.p() SELECT 1",
    ];
    let pairs = [("5.7", None), ("8.0.15", None), ("8.0.31", None), ("5.7", Some("5.7"))];
    for (number, (from, to)) in pairs.into_iter().enumerate() {
        let source = Server::start_version("source", from, &[]);
        let target = match to {
            Some(version) => Server::start_version("target", version, &[]),
            None => Server::start("target", &[]),
        };
        for statement in STATEMENTS {
            source.exec(statement).await;
        }
        // The library of 5.7 knows no TLS that is used today.
        let mut daemon = Daemon::builder(&source, &target);
        for side in ["source", "target"] {
            daemon = daemon
                .set(&format!("{side}.tls"), "disabled")
                .set(&format!("{side}.get_public_key"), true);
        }
        // In chunks where the target can apply what changes meanwhile.
        let limit = if number % 2 == 0 { "0MiB" } else { "32MiB" };
        let daemon = daemon.set("copy.snapshot_limit", limit).build();
        let said = copied(&daemon);
        assert_eq!(said.contains("in chunks"), limit == "0MiB", "{said}");
        daemon.start_again();
        source.exec("UPDATE d.t SET v='c' WHERE id=2; DELETE FROM d.keyless LIMIT 1").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        match to {
            Some(_) => compare(&source, &target).await,
            None => Compare::contents()
                .run(&source, &target)
                .await
                .unwrap_or_else(|why| panic!("{why}")),
        };
        // The versions have different defaults for utf8mb4.
        let collations = "SELECT GROUP_CONCAT(column_name, collation_name ORDER BY 1, 2) \
            FROM information_schema.columns WHERE table_schema='d'";
        let [of_source, of_target]: [String; 2] =
            [source.value(collations).await, target.value(collations).await];
        assert_eq!(of_source, of_target, "{from}");
        let programs: u64 = target
            .value(
                "SELECT (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema='d') + \
                 (SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema='d')",
            )
            .await;
        assert_eq!(programs, 2, "{from}");
    }
}
