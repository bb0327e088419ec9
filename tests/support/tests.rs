//! The support library against real servers: a comparison that overlooks differences proves nothing.

use std::time::Duration;

use mysql_async::prelude::Queryable;

use crate::{Compare, LoadOptions, Server, compare, prepare};
use crate::{Difference, Load};

/// A column of every type.
const EVERY_TYPE: &str = "CREATE DATABASE d; CREATE TABLE d.t (\
    id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT, ti TINYINT, bi BIGINT UNSIGNED, de DECIMAL(30,10), \
    fl FLOAT, dou DOUBLE, bits BIT(33), yr YEAR, da DATE, ti6 TIME(6), dt DATETIME(6), \
    ts TIMESTAMP(3) NULL, ch CHAR(9), vc VARCHAR(99) CHARACTER SET utf16, lat VARCHAR(9) CHARACTER \
    SET latin1, bin BINARY(4), vb VARBINARY(9), tx TEXT, bl LONGBLOB, en ENUM('','a','b'), \
    se SET('x','y'), js JSON, ge GEOMETRY, ve VECTOR(2), \
    gen INT GENERATED ALWAYS AS (ti+1) VIRTUAL, inv INT INVISIBLE)";
const ROW: &str = "INSERT INTO d.t (ti,bi,de,fl,dou,bits,yr,da,ti6,dt,ts,ch,vc,lat,bin,vb,tx,bl,en,\
    se,js,ge,ve,inv) VALUES (1,18446744073709551615,1.5,0.1,-1.0000000000000002e-300,0x1ffffffff,2026,'2026-01-02',\
    '-838:59:58.5','2026-01-02 03:04:05.123456','2026-01-02 03:04:05.123','a ','ä€😀','é',0x0001,\
    0x00ff,REPEAT('t',500),REPEAT(0x00,70000),'a','x,y','{\"a\": [1, 2.5, null]}',\
    ST_GeomFromText('POINT(1 2)', 4326),STRING_TO_VECTOR('[1,2]'),7),\
    (NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,\
    NULL,NULL,NULL,NULL,NULL)";

/// Changes of the first row, each of which the comparison must see.
const CHANGES: [&str; 26] = [
    "ti=2",
    "bi=18446744073709551614",
    "de=1.5000000001",
    "fl=0.10000001",
    "dou=-1.0000000000000004e-300",
    "bits=0x1fffffffe",
    "yr=2025",
    "da='2026-01-03'",
    "ti6='-838:59:58.500001'",
    "dt='2026-01-02 03:04:05.123457'",
    "ts='2026-01-02 03:04:05.124'",
    "ch='A'",
    "vc='ä€😁'",
    "lat='e'",
    "bin=0x0002",
    "vb=0x00ff00",
    "tx=CONCAT(REPEAT('t',499),'u')",
    "bl=CONCAT(REPEAT(0x00,69999),0x01)",
    "en=''",
    "en='b'",
    "se='x'",
    "js='{\"a\": [1, 2.5]}'",
    "ge=ST_GeomFromText('POINT(1 3)', 4326)",
    "ge=ST_GeomFromText('POINT(1 2)', 0)",
    "ve=STRING_TO_VECTOR('[1,3]')",
    "inv=NULL",
];

fn unequal(outcome: Result<crate::Compared, Difference>, change: &str) -> String {
    outcome.expect_err(change).to_string()
}

#[tokio::test]
async fn comparison_sees_every_difference() {
    let (source, target) = Server::pair(&[], &[]);
    for server in [&source, &target] {
        server.exec(EVERY_TYPE).await;
        server.exec(ROW).await;
        server.exec("CREATE TABLE d.bag (a INT); INSERT INTO d.bag VALUES (1),(2),(2)").await;
    }
    // Neither the counter of a table nor the creation time of a trigger is content.
    target.exec("INSERT INTO d.t (id) VALUES (50); DELETE FROM d.t WHERE id=50").await;
    let compared = compare(&source, &target).await;
    assert_eq!((compared.tables, compared.rows), (2, 5));

    let mut conn = target.conn().await;
    conn.query_drop("SET explicit_defaults_for_timestamp=ON").await.unwrap();
    conn.query_drop("CREATE TABLE d.copy LIKE d.t").await.unwrap();
    conn.query_drop("DROP TABLE d.copy").await.unwrap();
    for change in CHANGES {
        conn.query_drop(format!("UPDATE d.t SET {change} WHERE id=1")).await.unwrap();
        let text = unequal(Compare::new().run(&source, &target).await, "multiplicity");
        assert!(text.contains("table d.t: 2 rows on the source, 2 on the target"), "{text}");
        assert!(text.contains("source: id=1, ") && !text.contains("id=2"), "{change}: {text}");
        conn.query_drop("DELETE FROM d.t; ALTER TABLE d.t AUTO_INCREMENT=1").await.unwrap();
        conn.query_drop(ROW).await.unwrap();
        compare(&source, &target).await;
    }
    // The tables then hold the same values in other quantities.
    conn.query_drop("UPDATE d.bag SET a=1 WHERE a=2 LIMIT 1").await.unwrap();
    let text = unequal(Compare::new().run(&source, &target).await, "multiplicity");
    assert!(text.contains("d.bag") && text.contains("source: a=2"), "{text}");
    let compared = Compare::new().ignore_table("d.bag").run(&source, &target).await;
    assert_eq!(compared.expect("the rest is equal").tables, 1);
}

#[tokio::test]
async fn comparison_sees_definitions_and_accounts() {
    let (source, target) = Server::pair(&[], &[]);
    let objects = [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT PRIMARY KEY AUTO_INCREMENT, b INT)",
        "CREATE VIEW d.v AS SELECT a FROM d.t",
        "CREATE PROCEDURE d.p() SELECT 1",
        "CREATE FUNCTION d.f() RETURNS INT DETERMINISTIC RETURN 1",
        "CREATE TRIGGER d.g BEFORE INSERT ON d.t FOR EACH ROW SET NEW.b=1",
        "CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY STARTS '2030-01-01 00:00:00' DO SELECT 1",
        "SET GLOBAL log_bin_trust_function_creators=ON",
    ];
    for statement in objects {
        source.exec(statement).await;
        target.exec(statement).await;
    }
    // Events run on a source only.
    target.exec("ALTER EVENT d.e DISABLE ON REPLICA").await;
    compare(&source, &target).await;
    for (change, name) in [
        ("ALTER DATABASE d CHARACTER SET latin1", "schema d:"),
        ("ALTER TABLE d.t ADD KEY (b)", "table d.t:"),
        ("ALTER VIEW d.v AS SELECT b FROM d.t", "view d.v:"),
        ("DROP PROCEDURE d.p", "procedure d.p: only on the source"),
        ("DROP FUNCTION d.f", "function d.f: only on the source"),
        ("DROP TRIGGER d.g", "trigger d.g: only on the source"),
        ("ALTER EVENT d.e COMMENT 'x'", "event d.e:"),
        ("CREATE DATABASE z", "schema z: only on the target"),
    ] {
        target.exec(change).await;
        let text = unequal(Compare::new().run(&source, &target).await, change);
        assert!(text.contains(name), "{name} in {text}");
    }
    source.exec("CREATE USER u@'%' IDENTIFIED BY 'p'; CREATE ROLE r; GRANT r TO u@'%'").await;
    target.exec("CREATE USER u@'%' IDENTIFIED BY 'p'; CREATE ROLE r").await;
    let compared = Compare::new().ignore_schema("d").users().run(&source, &target).await;
    let text = unequal(compared, "a grant");
    assert!(text.contains("grants of 'u'@'%':"), "{text}");
}

/// A server is used again by other tests only if nothing is left of the one before.
#[tokio::test]
async fn a_server_is_as_fresh_after_a_reset_or_is_not_used_again() {
    let server = Server::start("reset", &[]);
    let fresh = crate::reset::fingerprint(&server).expect("a server to look at");
    let undone = [
        "CREATE DATABASE `d``x`; CREATE TABLE `d``x`.t (id INT PRIMARY KEY)",
        "CREATE USER u@'%' IDENTIFIED BY 'p'; GRANT ALL ON *.* TO u@'%'; CREATE ROLE r",
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1'",
        "FLUSH BINARY LOGS",
    ];
    for statements in undone {
        server.exec(statements).await;
    }
    let mut holder = server.conn().await;
    holder.query_drop("BEGIN; INSERT INTO `d``x`.t VALUES (1)").await.expect("a row lock");
    crate::reset::reset(&server, &fresh).expect("all is undone");
    holder.query_drop("SELECT 1").await.expect_err("no session is left");
    assert_eq!(server.gtid_executed().await, "");
    mysql_async::Conn::new(server.opts_as("u", "p")).await.expect_err("the account is gone");

    for (change, name) in CHANGES_TO_UNDO {
        server.exec(&format!("SET sql_log_bin=0; {change}")).await;
        let now = crate::reset::fingerprint(&server).expect("a server to look at");
        let reason = fresh.compare(&now).expect_err(change).to_string();
        assert!(reason.starts_with(&format!("other {name}: ")), "{change}: {reason}");
        crate::reset::reset(&server, &fresh).expect(change);
    }
    for (user, password) in [("repl", "repl_pw"), ("csa", "csa_pw")] {
        let opts = server.opts_as(user, password);
        let conn = mysql_async::Conn::new(opts).await.expect("the account as it was");
        conn.disconnect().await.expect("an end");
    }
    for (left, back, name) in CHANGES_TO_FIND {
        server.exec(left).await;
        let reason = crate::reset::reset(&server, &fresh).expect_err(left);
        assert!(reason.starts_with(&format!("other {name}: ")), "{left}: {reason}");
        server.exec(back).await;
        crate::reset::reset(&server, &fresh).expect(back);
    }
    let file = server.log.with_file_name("files").join("left");
    std::fs::write(&file, "").expect("a file");
    let reason = crate::reset::reset(&server, &fresh).expect_err("a file");
    assert!(reason.starts_with("other files: "), "{reason}");
    std::fs::remove_file(&file).expect("removing it");
    // Its instruments stay where they were.
    server.exec("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'").await;
    server.exec("UNINSTALL PLUGIN rpl_semi_sync_source").await;
    let reason = crate::reset::reset(&server, &fresh).expect_err("a plugin");
    assert!(reason.starts_with("other instruments: "), "{reason}");
}

/// A server that has started once more is as fresh after a reset as one that has started once.
#[tokio::test]
async fn a_server_is_as_fresh_after_a_restart_and_a_reset() {
    let server = Server::start("restarted", &[]);
    let fresh = crate::reset::fingerprint(&server).expect("a server to look at");
    let table = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT); \
        INSERT INTO d.t VALUES (7)";
    server.exec(table).await;
    server.exec("SET PERSIST event_scheduler=OFF; SET GLOBAL read_only=ON").await;
    server.restart();
    crate::reset::reset(&server, &fresh).expect("a shutdown and a start");

    server.exec(table).await;
    let mut holder = server.conn().await;
    holder.query_drop("BEGIN; DELETE FROM d.t WHERE id = 7").await.expect("a transaction");
    server.exec("XA START 'x'; INSERT INTO d.t VALUES (8); XA END 'x'; XA PREPARE 'x'").await;
    server.kill9();
    server.restart();
    let reason = crate::reset::reset(&server, &fresh).expect_err("a branch is left");
    assert!(reason.starts_with("other branches: "), "{reason}");
    server.exec("XA ROLLBACK 'x'").await;
    crate::reset::reset(&server, &fresh).expect("a kill and a start");
    server.stop();
    crate::reset::reset(&server, &fresh).expect_err("a server that does not run");
}

/// A change that a reset undoes, and the name of the comparison before it.
const CHANGES_TO_UNDO: [(&str, &str); 17] = [
    ("ALTER USER csa@'%' WITH MAX_USER_CONNECTIONS 9", "accounts"),
    ("ALTER USER repl@'%' IDENTIFIED BY 'another' REQUIRE SSL ACCOUNT LOCK", "accounts"),
    ("ALTER USER csa@'%' IDENTIFIED BY 'another' RETAIN CURRENT PASSWORD", "accounts"),
    ("REVOKE SUPER ON *.* FROM csa@'%'", "accounts"),
    ("DROP USER repl@'%', csa@'%'", "accounts"),
    ("SET GLOBAL partial_revokes=ON; REVOKE SELECT ON mysql.* FROM csa@'%'", "accounts"),
    ("GRANT SELECT ON mysql.* TO repl@'%'", "rights on schemata"),
    ("GRANT SELECT ON mysql.user TO repl@'%'", "rights on tables"),
    ("GRANT SELECT (User) ON mysql.user TO repl@'%'", "rights on columns"),
    ("GRANT EXECUTE ON FUNCTION sys.list_add TO repl@'%'", "rights on routines"),
    ("REVOKE CONNECTION_ADMIN ON *.* FROM csa@'%'", "dynamic rights"),
    ("GRANT csa@'%' TO repl@'%'", "roles"),
    ("GRANT csa@'%' TO repl@'%'; ALTER USER repl@'%' DEFAULT ROLE csa@'%'", "default roles"),
    (
        "SET PERSIST_ONLY sort_buffer_size=65536; SET PERSIST event_scheduler=OFF",
        "persisted variables",
    ),
    ("SET GLOBAL cte_max_recursion_depth=7, log_bin_trust_function_creators=ON", "variables"),
    (
        "SET GLOBAL gtid_mode=ON_PERMISSIVE; SET GLOBAL gtid_mode=OFF_PERMISSIVE; \
         SET GLOBAL gtid_mode=OFF; SET GLOBAL enforce_gtid_consistency=OFF",
        // Each step begins a binary log.
        "files",
    ),
    ("SET GLOBAL super_read_only=ON", "variables"),
];

/// A change, its undoing, and the name of the comparison that must show it.
const CHANGES_TO_FIND: [(&str, &str, &str); 6] = [
    ("SET GLOBAL lock_wait_timeout=7", "SET GLOBAL lock_wait_timeout=DEFAULT", "variables"),
    ("XA START 'x'; XA END 'x'; XA PREPARE 'x'", "XA ROLLBACK 'x'", "branches"),
    ("CREATE TABLE mysql.left_over (a INT)", "DROP TABLE mysql.left_over", "tables"),
    ("CREATE TABLESPACE s ADD DATAFILE 's.ibd'", "DROP TABLESPACE s", "tablespaces"),
    ("CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h')", "DROP SERVER s", "servers"),
    (
        "UPDATE performance_schema.setup_consumers SET ENABLED='YES' WHERE NAME='events_waits_current'",
        "UPDATE performance_schema.setup_consumers SET ENABLED='NO' WHERE NAME='events_waits_current'",
        "instruments",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_counts_what_it_commits_and_survives_a_restart() {
    let server = Server::start("load", &[]);
    let options = LoadOptions { rate: Some(200.0), ..LoadOptions::default() };
    prepare(&server, &options).await;
    let load = Load::start(&server, &options);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let early = load.committed();
    assert!((200..=450).contains(&early), "{early} transactions in 2 s at 200 per second");
    tokio::task::block_in_place(|| {
        server.kill9();
        server.restart();
    });
    crate::eventually("the load continues", Duration::from_secs(10), async || {
        load.committed() > early + 100
    })
    .await;
    let report = load.stop().await;
    let counted: u64 = server.value("SELECT SUM(n) FROM sbtest.counter").await;
    // Only the server counts a commit whose answer was lost.
    assert!((report.committed..=report.committed + 4).contains(&counted), "{report:?} {counted}");
    assert!(report.errors > 0);
    let money: u64 = server.value("SELECT SUM(balance) FROM sbtest.account").await;
    assert_eq!(money, options.accounts * 1_000);
    assert!(server.gtid_executed().await.contains(":1-"));
    let tls: String = {
        let mut conn = server.conn().await;
        let row: Option<(String, String)> =
            conn.query_first("SHOW GLOBAL STATUS LIKE 'Ssl_server_not_after'").await.unwrap();
        row.unwrap().1
    };
    assert!(!tls.is_empty(), "the sandbox's servers offer TLS");
}
