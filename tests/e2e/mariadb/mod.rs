//! A MariaDB target: plain tables by SQL, whatever dies.

mod cut_off;
mod refusals;

use std::time::Duration;

use csa_tests::{Compare, Compared, Daemon, Load, LoadOptions, Server, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use crate::conflicts::{both_ways_comparing, conflicting_on_mariadb, prepare_for_mariadb};
use crate::crash::mid_drain;
use crate::parallel::{Inversion, put_back};
use crate::{DRAIN, wait_state};

/// A source whose default collation MariaDB has too.
const SHARED_COLLATION: [&str; 2] =
    ["--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"];

fn pair(source: &[&str]) -> (Server, Server) {
    let source = || Server::start("source", source);
    Server::both(source, || Server::start_mariadb("target", &[]))
}

pub(crate) async fn equal(source: &Server, target: &Server) -> Compared {
    let compared = Compare::contents().run(source, target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"))
}

/// Waits until the channel has stopped; returns the reason.
async fn failed(daemon: &Daemon) -> String {
    wait_state(daemon, 0, "failed").await;
    let view = &daemon.status()["channels"][0];
    view["last_error"]["message"].as_str().unwrap_or_default().to_owned()
}

const TYPES: &str = "CREATE TABLE d.every (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, ti TINYINT, \
    bi BIGINT UNSIGNED, de DECIMAL(30,10), fl FLOAT, dou DOUBLE, bits BIT(33), yr YEAR, da DATE, \
    ti6 TIME(6), dt DATETIME(6), ts TIMESTAMP(3) NULL, ch CHAR(9), \
    vc VARCHAR(99) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci, \
    lat VARCHAR(9) CHARACTER SET latin1, bin BINARY(4), vb VARBINARY(9), tx TEXT, bl LONGBLOB, \
    en ENUM('a','b'), se SET('x','y'), js JSON, ge POINT, gen INT AS (ti+1) VIRTUAL, \
    sto INT AS (ti+2) STORED, inv INT INVISIBLE, UNIQUE KEY (vc, da))";
const ROWS: &str = r#"INSERT INTO d.every (ti,bi,de,fl,dou,bits,yr,da,ti6,dt,ts,ch,vc,lat,bin,vb,tx,bl,en,se,
    js,ge,inv) VALUES
    (1,18446744073709551615,-12345678901234567890.0123456789,0.1,1e300,0x1ffffffff,2026,'2026-01-02',
     '-838:59:58.5','2026-01-02 03:04:05.654321','2026-01-02 03:04:05.123','a ','ä€😀',_latin1 0xe9,
     0x0001,0x00ff,REPEAT('t',500),REPEAT(0x00ff27,70000),'a','x,y',
     '{"b": [1, -2.5, null, true, 18446744073709551615], "a\\n\\\"": {"": "\\u0001\\t😀"}, "c": 1.0}',
     ST_GeomFromText('POINT(1 2)'),7),
    (-128,0,0.0000000001,1.5e-30,5e-324,0,0,'0000-00-00','838:59:59','0000-00-00 00:00:00',
     '0000-00-00 00:00:00','','','','','','','','','','[]',NULL,NULL),
    (127,1,99999999999999999999.9999999999,-0.5,1.7976931348623157e308,1,2155,'9999-12-31',
     '00:00:00.000001','9999-12-31 23:59:59.499999','2038-01-19 03:14:07','it''s\\','日本 ','\\','a','\'','\0',
     0x1a00,'nonsense','y','"text"',ST_GeomFromText('POINT(-1e10 0)'),1),
    (NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,
     NULL,NULL,NULL)"#;

/// Statements of a source's session, one after the other.
async fn run(source: &Server, statements: &[&str]) {
    let mut conn = source.conn().await;
    for statement in statements {
        let outcome = conn.query_drop(*statement).await;
        outcome.unwrap_or_else(|error| panic!("{error}\n{statement}"));
    }
    conn.disconnect().await.expect("disconnects");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_tables_and_their_definitions_on_mariadb() {
    let (source, target) = pair(&[]);
    // The only collation given is a name that both know.
    run(&source, &["CREATE DATABASE d COLLATE utf8mb4_general_ci", TYPES]).await;
    run(&source, &["SET sql_mode=''", ROWS]).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    let view = &daemon.status()["channels"][0];
    assert_eq!(view["applier"]["executor"], "sql");
    run(
        &source,
        &[
            "SET sql_mode=''",
            "UPDATE d.every SET bi=bi-1, vc='new', js=JSON_OBJECT('k', dou), bl=0xff WHERE id IN (1,3)",
            "DELETE FROM d.every WHERE id=2",
            "ANALYZE TABLE d.every UPDATE HISTOGRAM ON ti WITH 4 BUCKETS",
            "ANALYZE TABLE d.every DROP HISTOGRAM ON ti",
            "CREATE TABLE d.bare (v INT, f DOUBLE, s VARCHAR(9), j JSON, b BLOB)",
            "INSERT INTO d.bare VALUES (1,0,'a','{\"b\": 1}',''),(1,0,'a','{\"b\": 1}',''),\
             (1,0,'A','{\"b\": 2}',0x00),(NULL,-0e0,NULL,NULL,NULL)",
            "DELETE FROM d.bare WHERE s='a' LIMIT 1",
            "UPDATE d.bare SET v=7 WHERE BINARY s='A'",
            "DELETE FROM d.bare WHERE s IS NULL",
            "CREATE TABLE d.pair (a INT, b VARCHAR(9), c INT, PRIMARY KEY (a,b), UNIQUE (c), KEY (b))",
            "INSERT INTO d.pair VALUES (1,'x',1),(1,'y',2),(2,'x',3),(2,'z',NULL),(3,'z',NULL)",
            "UPDATE d.pair SET c=c+10 ORDER BY c DESC",
            "DELETE FROM d.pair WHERE a=2",
            "CREATE TABLE d.child (id INT PRIMARY KEY, a INT, b VARCHAR(9), \
             FOREIGN KEY (a,b) REFERENCES d.pair (a,b) ON DELETE CASCADE)",
            "INSERT INTO d.child VALUES (1,1,'x'),(2,3,'z'),(3,NULL,NULL)",
            "DELETE FROM d.pair WHERE a=3",
            // MySQL rounds; MariaDB does so only with `TIME_ROUND_FRACTIONAL`.
            "ALTER TABLE d.every MODIFY dt DATETIME, ADD more INT NOT NULL DEFAULT 5 AFTER ti",
            "ALTER TABLE d.every ADD at TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), ALGORITHM=COPY",
            "CREATE INDEX late ON d.every (dt)",
            "RENAME TABLE d.pair TO d.couple",
            "SET collation_connection=ucs2_general_ci",
            "CREATE TABLE d.wide (id INT PRIMARY KEY, v VARCHAR(9) DEFAULT 'ä' COMMENT 'ß') -- START TRANSACTION",
            "INSERT INTO d.wide (id) VALUES (1)",
            "ALTER TABLE d.wide ADD w VARCHAR(9) DEFAULT 'ö' COMMENT '/*M!100100 x */'",
            "SET collation_connection=utf8mb4_general_ci",
            "SET time_zone='+05:30', auto_increment_increment=7",
            "ALTER TABLE d.bare ADD id INT AUTO_INCREMENT PRIMARY KEY, \
             ADD t TIMESTAMP DEFAULT '2024-01-01 00:00:00'",
            "INSERT INTO d.bare (v) VALUES (8)",
            "CREATE TABLE d.gone (id INT PRIMARY KEY)",
            "INSERT INTO d.gone VALUES (1)",
            "TRUNCATE TABLE d.gone",
            "DROP TABLE d.gone",
            // MariaDB takes no such zone.
            "SET time_zone='+14:00'",
            "INSERT INTO d.every (ti, ts) VALUES (9, '2026-01-02 03:04:05')",
        ],
    )
    .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = equal(&source, &target).await;
    assert!(compared.tables == 5 && compared.rows >= 11, "{compared:?}");
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);
    assert!(daemon.log().contains("numbers the rows of d.bare"), "{}", daemon.log_tail());
    // The servers' different defaults had no effect.
    let collations = "SELECT GROUP_CONCAT(DISTINCT collation_name ORDER BY collation_name) \
        FROM information_schema.columns WHERE table_schema='d' AND data_type IN ('varchar','char','text')";
    let of_source: String = source.value(collations).await;
    assert_eq!(target.value::<String>(collations).await, of_source);
}

/// A row that came with a dump has the source's text, by which it is found in a table without a key.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_in_json_have_the_text_of_the_source_on_mariadb() {
    let (source, target) = pair(&SHARED_COLLATION);
    let numbers = "[0.00005, 1e-15, 1e-16, 1e14, 1e15, 1234567890123456.8, 1.5e300, -0.0, 1e0]";
    run(
        &source,
        &[
            "CREATE DATABASE d",
            "CREATE TABLE d.bag (n INT, j JSON)",
            &format!("INSERT INTO d.bag VALUES (1, '{numbers}')"),
        ],
    )
    .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let text: String = source.value("SELECT CAST(j AS CHAR) FROM d.bag").await;
    assert_eq!(target.value::<String>("SELECT j FROM d.bag").await, text);
    target.exec(&format!("UPDATE d.bag SET j='{text}'")).await;
    source.exec("UPDATE d.bag SET n=2").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(target.value::<u32>("SELECT n FROM d.bag").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn every_key_in_conflict_on_mariadb() {
    let (source, target) = pair(&SHARED_COLLATION);
    prepare_for_mariadb(&source).await;
    let daemon = Daemon::builder(&source, &target).start();
    let contents = Compare::contents();
    both_ways_comparing(&source, &target, &daemon, conflicting_on_mariadb, &contents).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_on_mariadb_whatever_dies() {
    let options =
        LoadOptions { clients: 4, changes: 3, transfers_percent: 50, ..LoadOptions::default() };
    let (source, target) = pair(&SHARED_COLLATION);
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).set("target.connect_retry", "100ms").start();
    // A definition that is cut off by a crash is for the operator to decide.
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &options);
    for kill in 0..6 {
        assert!(mid_drain(&daemon).await, "kill {kill}\n{}", daemon.log_tail());
        if kill % 3 == 2 {
            target.kill9();
            eventually("the loss is noticed", Duration::from_secs(20), async || {
                daemon.status()["channels"][0]["state"] == "waiting_for_target"
            })
            .await;
            target.restart();
        } else {
            tokio::time::sleep(Duration::from_millis(40 * kill)).await;
            daemon.kill9();
            daemon.start_again();
        }
    }
    let report = load.stop().await;
    assert_eq!(report.errors, 0, "{report:?}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    let counted: u64 = target.value("SELECT CAST(SUM(n) AS UNSIGNED) FROM sbtest.counter").await;
    assert_eq!(counted, report.committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_group_lets_an_earlier_one_pass_on_mariadb() {
    let (source, target) = pair(&SHARED_COLLATION);
    let mut inversion = Inversion::between(source, target).await;
    inversion.first_group().await;
    inversion.transaction(&put_back("t")).await;
    inversion.gap_taken("t").await;
    inversion.release().await;
    inversion.ends_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_group_lets_one_pass_that_waits_for_its_table_on_mariadb() {
    let (source, target) = pair(&SHARED_COLLATION);
    let mut inversion = Inversion::between(source, target).await;
    inversion.first_group().await;
    inversion.transaction("INSERT INTO i.t VALUES (5,50)").await;
    inversion.gap_taken("t").await;
    inversion.table_wanted("t").await;
    // Far less than the daemon's `lock_wait_timeout` of a minute.
    inversion.release_within(Duration::from_secs(10)).await;
    inversion.ends_equal().await;
}
