//! Definitions that do more than hold rows, and statements whose meaning depends on the account or
//! server.

use std::time::Duration;

use csa_tests::Compare;
use mysql_async::prelude::Queryable as _;

use super::{Pair, run};
use crate::DRAIN;

#[tokio::test(flavor = "multi_thread")]
async fn checks_partitions_and_relations() {
    let pair = Pair::start(&[], &[]).await;
    pair.run([
        "CREATE TABLE checked (id INT PRIMARY KEY, v INT CHECK (v > 0), w INT, \
         CONSTRAINT late CHECK (w < v) NOT ENFORCED)",
        "INSERT INTO checked VALUES (1,1,5),(2,2,NULL),(3,NULL,NULL)",
        "ALTER TABLE checked DROP CHECK checked_chk_1",
        "UPDATE checked SET v=-v WHERE id < 3",
        "CREATE TABLE by_range (id INT, at DATE, v INT, PRIMARY KEY (id, at)) PARTITION BY RANGE \
         COLUMNS (at) (PARTITION a VALUES LESS THAN ('2026-01-01'), PARTITION b VALUES LESS THAN \
         ('2026-02-01'), PARTITION c VALUES LESS THAN (MAXVALUE))",
        "CREATE TABLE by_list (id INT, v INT, KEY (id)) PARTITION BY LIST (id) SUBPARTITION BY \
         HASH (v) SUBPARTITIONS 2 (PARTITION a VALUES IN (1,2,NULL), PARTITION b VALUES IN (3,4))",
        "CREATE TABLE by_key (k VARCHAR(20) COLLATE latin1_swedish_ci PRIMARY KEY, v INT) \
         PARTITION BY KEY () PARTITIONS 5",
        "CREATE TABLE like_b (id INT, at DATE, v INT, PRIMARY KEY (id, at))",
        "INSERT INTO by_range VALUES (1,'2025-12-31',1),(1,'2026-01-15',2),(1,'2027-01-01',3)",
        "INSERT INTO by_list VALUES (1,1),(1,1),(NULL,2),(3,3),(4,4)",
        "INSERT INTO by_key VALUES ('a',1),('B',2),('é',3)",
        // From one partition to another.
        "UPDATE by_range SET at='2026-01-20' WHERE v=1",
        "UPDATE by_list SET id=4 WHERE id IS NULL",
        "DELETE FROM by_list WHERE id=1 LIMIT 1",
        "REPLACE INTO by_key VALUES ('A',9)",
        "INSERT INTO like_b VALUES (7,'2026-01-07',7)",
        "ALTER TABLE by_range EXCHANGE PARTITION b WITH TABLE like_b",
        "UPDATE like_b SET v=v+10",
        "UPDATE by_range SET v=v+20",
        "ALTER TABLE by_range REORGANIZE PARTITION c INTO (PARTITION c VALUES LESS THAN \
         ('2026-06-01'), PARTITION d VALUES LESS THAN MAXVALUE)",
        "ALTER TABLE by_range TRUNCATE PARTITION a",
        "ALTER TABLE by_list DROP PARTITION a",
        "ALTER TABLE by_key COALESCE PARTITION 3",
        "UPDATE by_key SET v=v+1",
    ])
    .await;
    assert_eq!(pair.equal().await.rows, 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn cascades() {
    let pair = Pair::start(&[], &[]).await;
    pair.run([
        "CREATE TABLE p (id INT PRIMARY KEY, code CHAR(3) UNIQUE, a INT, b INT, UNIQUE (a, b))",
        "CREATE TABLE gone (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) \
         ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE kept (id INT PRIMARY KEY, p INT UNIQUE, FOREIGN KEY (p) REFERENCES p (id) \
         ON DELETE SET NULL ON UPDATE SET NULL)",
        "CREATE TABLE by_code (code CHAR(3), v INT, FOREIGN KEY (code) REFERENCES p (code) \
         ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE pairs (id INT PRIMARY KEY, x INT, y INT, FOREIGN KEY (x, y) \
         REFERENCES p (a, b) ON DELETE SET NULL ON UPDATE CASCADE)",
        "CREATE TABLE below (id INT PRIMARY KEY, g INT, FOREIGN KEY (g) REFERENCES gone (id) \
         ON DELETE CASCADE)",
        "CREATE TABLE self (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES self (id) \
         ON DELETE CASCADE)",
        // A reference to a key that need not be unique, which only an old setting permits.
        "CREATE TABLE loose (id INT PRIMARY KEY, g INT, KEY (g))",
        "SET restrict_fk_on_non_standard_key=OFF",
        "CREATE TABLE of_loose (id INT PRIMARY KEY, g INT, FOREIGN KEY (g) REFERENCES loose (g) \
         ON DELETE CASCADE)",
    ])
    .await;
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        pair.run_as_backlog([
            format!("SET binlog_row_image={image}").as_str(),
            "DELETE FROM p",
            "DELETE FROM self",
            "DELETE FROM of_loose",
            "DELETE FROM loose",
            "DELETE FROM kept",
            "DELETE FROM pairs",
            "DELETE FROM gone",
            "DELETE FROM by_code",
            "INSERT INTO p VALUES (1,'one',1,1),(2,'two',2,2),(3,'thr',3,3),(4,'fou',4,4)",
            "INSERT INTO gone VALUES (1,1),(2,1),(3,2),(4,NULL)",
            "INSERT INTO kept VALUES (1,1),(2,2),(3,NULL)",
            "INSERT INTO by_code VALUES ('one',1),('one',1),('two',2),(NULL,3)",
            "INSERT INTO pairs VALUES (1,1,1),(2,2,2),(3,NULL,9)",
            "INSERT INTO below VALUES (1,1),(2,2),(3,3)",
            "INSERT INTO self VALUES (1,NULL),(2,1),(3,2),(4,3),(5,NULL)",
            "INSERT INTO loose VALUES (1,7),(2,7),(3,8)",
            "INSERT INTO of_loose VALUES (1,7),(2,8)",
            "UPDATE p SET id=10 WHERE id=1",
            "UPDATE p SET code='uno' WHERE id=10",
            "UPDATE p SET a=20 WHERE id=2",
            "BEGIN",
            "DELETE FROM p WHERE id=10",
            "INSERT INTO p VALUES (10,'one',1,1)",
            "INSERT INTO gone VALUES (20,10)",
            "COMMIT",
            "DELETE FROM self WHERE id=2",
            "DELETE FROM loose WHERE g=8",
            "SET foreign_key_checks=0",
            "INSERT INTO gone VALUES (99,99)",
            "DELETE FROM p WHERE id=2",
            "SET foreign_key_checks=1",
            "DELETE FROM gone WHERE id=99",
        ])
        .await;
        let compared = pair.equal().await;
        assert!(compared.rows > 15, "{image}: {compared:?}");
    }
}

/// Triggers and events on the source arrive as rows; those on the target must not fire too.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_and_events_fire_once() {
    let pair = Pair::start(&["--event-scheduler=ON"], &["--event-scheduler=ON"]).await;
    pair.run([
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
        "CREATE TABLE log (what VARCHAR(20), id INT)",
        "CREATE TRIGGER before_insert BEFORE INSERT ON t FOR EACH ROW SET NEW.v = NEW.v + 1",
        "CREATE TRIGGER after_insert AFTER INSERT ON t FOR EACH ROW INSERT INTO log VALUES ('i', NEW.id)",
        "CREATE TRIGGER after_update AFTER UPDATE ON t FOR EACH ROW INSERT INTO log VALUES ('u', NEW.id)",
        "CREATE TRIGGER after_delete AFTER DELETE ON t FOR EACH ROW INSERT INTO log VALUES ('d', OLD.id)",
        "INSERT INTO t (v) VALUES (1),(2),(3)",
        "UPDATE t SET v=v*2",
        "DELETE FROM t WHERE id=2",
        "CREATE TABLE ticks (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20))",
        "CREATE EVENT first ON SCHEDULE EVERY 1 SECOND DO INSERT INTO ticks (what) VALUES ('first')",
        "CREATE EVENT IF NOT EXISTS `do; enable` ON SCHEDULE EVERY 1 SECOND STARTS \
         CURRENT_TIMESTAMP + INTERVAL 1 SECOND ON COMPLETION PRESERVE ENABLE COMMENT 'it''s: DO' \
         DO BEGIN INSERT INTO ticks (what) VALUES ('second'); END",
        "CREATE EVENT third ON SCHEDULE EVERY 1 SECOND DISABLE DO INSERT INTO ticks (what) VALUES ('3')",
        "ALTER EVENT third ENABLE",
        "ALTER EVENT third RENAME TO c.fourth COMMENT 'renamed'",
        "CREATE EVENT once ON SCHEDULE AT CURRENT_TIMESTAMP ON COMPLETION PRESERVE DO \
         INSERT INTO ticks (what) VALUES ('once')",
        "CREATE EVENT dropped ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "DROP EVENT dropped",
    ])
    .await;
    tokio::time::sleep(Duration::from_millis(3500)).await;
    pair.run([
        "ALTER EVENT first DISABLE",
        "ALTER EVENT `do; enable` ON SCHEDULE EVERY 1 DAY",
        "ALTER EVENT fourth DISABLE ON REPLICA",
    ])
    .await;
    let ticks: u64 = pair.source.value("SELECT COUNT(*) FROM c.ticks").await;
    assert!(ticks >= 8, "{ticks}");
    // As on MySQL's own replicas, the target's events exist, to be enabled when it becomes a source.
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let states = "SELECT GROUP_CONCAT(DISTINCT STATUS) FROM information_schema.EVENTS";
    let states: String = pair.target.value(states).await;
    assert_eq!(states, "REPLICA_SIDE_DISABLED");
    let definitions = "SELECT GROUP_CONCAT(CONCAT_WS('|', EVENT_NAME, DEFINER, EVENT_DEFINITION, \
        INTERVAL_VALUE, STARTS, ON_COMPLETION, EVENT_COMMENT, SQL_MODE, TIME_ZONE) \
        ORDER BY EVENT_NAME SEPARATOR '\n') FROM information_schema.EVENTS";
    let expected: String = pair.source.value(definitions).await;
    let found: String = pair.target.value(definitions).await;
    assert_eq!(found, expected);
    pair.equal().await;
}

/// Statements refer to the account that runs them; on the target that is another one.
#[tokio::test(flavor = "multi_thread")]
async fn statements_about_the_account_that_runs_them() {
    let pair = Pair::start_set(&[("applier.replicate_accounts", true.into())]).await;
    pair.run([
        "CREATE USER boss@'%' IDENTIFIED BY 'boss_pw'",
        "GRANT ALL ON *.* TO boss@'%' WITH GRANT OPTION",
        "CREATE ROLE helper, other",
        "CREATE EVENT nightly ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "CREATE TABLE t (id INT PRIMARY KEY)",
    ])
    .await;
    let before: String = grants_of_the_daemon(&pair).await;
    let boss = pair.source.opts_as("boss", "boss_pw");
    let mut conn = mysql_async::Conn::new(boss).await.expect("connects");
    for statement in [
        "USE c",
        "ALTER EVENT nightly COMMENT 'changes hands'",
        "GRANT helper, other TO CURRENT_USER()",
        "ALTER USER CURRENT_USER DEFAULT ROLE helper",
        "REVOKE other FROM current_user /* who */ ()",
        "GRANT SELECT ON c.t TO CURRENT_USER()",
        "REVOKE UPDATE ON *.* FROM CURRENT_USER()",
        "ALTER DEFINER=CURRENT_USER() EVENT nightly ENABLE",
        "CREATE VIEW mine AS SELECT CURRENT_USER() AS who",
        "CREATE PROCEDURE own() SELECT CURRENT_USER()",
        "CREATE FUNCTION one() RETURNS INT DETERMINISTIC RETURN 1",
        "CREATE TRIGGER added BEFORE INSERT ON t FOR EACH ROW SET @a = CURRENT_USER()",
        "SET PASSWORD = 'boss_pw2'",
        "RENAME USER CURRENT_USER() TO 'chief`s'@localhost",
        "CREATE USER boss@'%' IDENTIFIED BY 'boss_pw'",
    ] {
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    drop(conn);
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    assert_eq!(grants_of_the_daemon(&pair).await, before);
    let compared = Compare::new().users().run(&pair.source, &pair.target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
    let definer: String = pair.target.value("SELECT DEFINER FROM information_schema.EVENTS").await;
    assert_eq!(definer, "boss@%");

    // The most dangerous of them.
    pair.run(["GRANT CREATE USER ON *.* TO boss@'%'"]).await;
    let boss = pair.source.opts_as("boss", "boss_pw");
    let mut conn = mysql_async::Conn::new(boss).await.expect("connects");
    conn.query_drop("DROP USER CURRENT_USER()").await.expect("drops itself");
    drop(conn);
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let boss: u64 = pair.target.value("SELECT COUNT(*) FROM mysql.user WHERE user='boss'").await;
    let csa: u64 = pair.target.value("SELECT COUNT(*) FROM mysql.user WHERE user='csa'").await;
    assert_eq!((boss, csa), (0, 1));
}

async fn grants_of_the_daemon(pair: &Pair) -> String {
    let mut conn = pair.target.conn().await;
    let grants: Vec<String> = conn.query("SHOW GRANTS FOR csa").await.expect("grants");
    grants.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_every_kind() {
    let pair = Pair::start(&[], &[]).await;
    pair.run([
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), j JSON, g GEOMETRY NOT NULL SRID 0)",
        "INSERT INTO t VALUES (1,1,'one','{\"a\":1}',POINT(1,1)),(2,2,'two',NULL,POINT(2,2))",
        "ALTER TABLE t ADD SPATIAL KEY (g)",
        "ALTER TABLE t ADD COLUMN instant INT DEFAULT 5 FIRST, ALGORITHM=INSTANT",
        "ALTER TABLE t DROP COLUMN a, ALGORITHM=INSTANT",
        "ALTER TABLE t ADD FULLTEXT words (s)",
        "INSERT INTO t (id,s,g) VALUES (3,'three',POINT(3,3))",
        "UPDATE t SET instant=id",
        "ALTER TABLE t ADD COLUMN stamp TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6)",
        "ALTER TABLE t ADD COLUMN v INT AS (instant * 2) VIRTUAL, ADD KEY (v)",
        "ALTER TABLE t RENAME INDEX v TO vv",
        "ALTER TABLE t ALTER INDEX vv INVISIBLE",
        "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE t MODIFY s VARCHAR(30) CHARACTER SET utf8mb4 AFTER id, COMMENT 'ünï'",
        "UPDATE t SET s='😀' WHERE id=1",
        "CREATE TABLE copy LIKE t",
        "INSERT INTO copy (id,s,g) SELECT id, s, g FROM t",
        "RENAME TABLE t TO swap, copy TO t, swap TO copy",
        "DELETE FROM t WHERE id=2",
        "CREATE DATABASE other CHARACTER SET latin1 COLLATE latin1_german1_ci",
        "RENAME TABLE copy TO other.copy",
        "ALTER DATABASE other COLLATE utf8mb4_bin",
        "CREATE TABLE other.plain (a VARCHAR(10))",
        "INSERT INTO other.plain VALUES ('ä')",
        "CREATE INDEX a ON other.plain (a)",
        "CREATE UNIQUE INDEX f ON t ((UPPER(s)))",
        "TRUNCATE other.plain",
        "ANALYZE TABLE t UPDATE HISTOGRAM ON s WITH 4 BUCKETS",
        "OPTIMIZE TABLE t",
        "CHECK TABLE t",
        "FLUSH TABLES",
        "FLUSH PRIVILEGES",
        "CREATE SPATIAL REFERENCE SYSTEM 990001 NAME 'round' DEFINITION 'GEOGCS[\"round\",\
         DATUM[\"round\",SPHEROID[\"round\",6378137,298]],PRIMEM[\"Greenwich\",0],\
         UNIT[\"degree\",0.017453292519943278],AXIS[\"Lat\",NORTH],AXIS[\"Lon\",EAST]]'",
        "DROP SPATIAL REFERENCE SYSTEM 990001",
        "CREATE VIEW seen AS SELECT id, s FROM t WHERE id > 1 WITH CHECK OPTION",
        "ALTER VIEW seen AS SELECT id FROM t",
        "UPDATE seen SET id=id+10",
        "DROP VIEW IF EXISTS seen, never_there",
        "CREATE PROCEDURE p() COMMENT 'x' BEGIN CREATE TEMPORARY TABLE x (a INT); \
         INSERT INTO x VALUES (9); INSERT INTO other.plain SELECT a FROM x; DROP TEMPORARY TABLE x; END",
        "CALL p()",
        "CREATE PROCEDURE begins() START TRANSACTION",
        "ALTER PROCEDURE p COMMENT 'y' SQL SECURITY INVOKER",
        "CREATE FUNCTION writes(n INT) RETURNS INT DETERMINISTIC BEGIN \
         INSERT INTO other.plain VALUES (n); RETURN n; END",
        "SELECT writes(5), writes(6)",
        "UPDATE t SET instant=writes(id) WHERE id=3",
        "CREATE TABLE drop1 (a INT)",
        "CREATE TABLE drop2 (a INT)",
        "DROP TABLE drop1, drop2",
        "CREATE TABLE IF NOT EXISTS t (z INT)",
        "SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "CREATE TABLE \"quo`ted\" (\"a\"\"b\" VARCHAR(10) DEFAULT 'a\\' PRIMARY KEY)",
        "INSERT INTO \"quo`ted\" VALUES ('\\'), (DEFAULT)",
    ])
    .await;
    let compared = pair.equal().await;
    assert!(compared.tables == 4 && compared.rows == 10, "{compared:?}");
}

/// The default database of a statement may be gone before the statement arrives.
#[tokio::test(flavor = "multi_thread")]
async fn default_databases_that_come_and_go() {
    let pair = Pair::start(&[], &[]).await;
    let mut conn = pair.source.conn().await;
    for statement in [
        "CREATE DATABASE brief",
        "USE brief",
        "CREATE TABLE t (a INT)",
        "CREATE DATABASE `ünï`",
        "CREATE TABLE `ünï`.t (a INT)",
        "DROP DATABASE brief",
        "USE `ünï`",
        "INSERT INTO t VALUES (1)",
        "DROP TABLE t",
        "CREATE TABLE t (b INT)",
        "DROP DATABASE `ünï`",
        "CREATE TABLE c.last (a INT PRIMARY KEY)",
    ] {
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    run(&pair.source, ["INSERT INTO last VALUES (1)"]).await;
    assert_eq!(pair.equal().await.rows, 1);
}
