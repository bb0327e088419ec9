//! Copies of every definition and every kind of value.

use csa_tests::{Daemon, Server, compare};
use mysql_async::prelude::Queryable as _;

use crate::DRAIN;

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
    "CREATE LIBRARY shop.`lä``b` COMMENT 'ö' LANGUAGE JAVASCRIPT AS $$ export function f() { return \"ü\" } $$",
    "CREATE SPATIAL REFERENCE SYSTEM 40001 NAME 'of the shop' DEFINITION 'GEOGCS[\"G\",DATUM[\"G\",\
     SPHEROID[\"B\",6377397.155,299.1528128]],PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.017453292519943278],\
     AXIS[\"Lat\",NORTH],AXIS[\"Lon\",EAST]]'",
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

#[tokio::test(flavor = "multi_thread")]
async fn what_show_create_may_lose_is_named() {
    // A default is lost by early versions alone.
    let column = "`shop`.`t`.`c` ";
    may_be_lost(None, "ENUM('😀')", &format!("not copied: the members of {column}")).await;
    let default = "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT '😀'";
    may_be_lost(Some("8.0.15"), default, &format!("not copied: the DEFAULT of {column}")).await;
}

async fn may_be_lost(version: Option<&str>, column: &str, named: &str) {
    let source = || match version {
        Some(version) => Server::start_version("source", version, &[]),
        None => Server::start("source", &[]),
    };
    let (source, target) = Server::both(source, || Server::start("target", &[]));
    let mut session = source.conn().await;
    for statement in [
        "CREATE DATABASE shop",
        &format!("CREATE TABLE shop.t (id INT PRIMARY KEY, c {column}) CHARACTER SET utf8mb4"),
        "SET NAMES latin1",
        "CREATE EVENT shop.`zähler` ON SCHEDULE EVERY 1 HOUR DISABLE DO DELETE FROM shop.t",
    ] {
        session.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let tls = if version.is_some() { "disabled" } else { "preferred" };
    let daemon = Daemon::builder(&source, &target).set("source.tls", tls).build();
    let arguments = super::arguments(&daemon);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    assert_eq!(said.code, Some(0), "{said:?}");
    for left_out in [named, "not copied: event `shop`.`z"] {
        assert!(said.error.contains(left_out), "{left_out}: {said:?}");
    }
    let events = "SELECT COUNT(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA='shop'";
    assert_eq!(target.value::<u64>(events).await, 0);
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
    let arguments = super::arguments(&daemon);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    assert_eq!(said.code, Some(0), "{said:?}");
    let left_out = "not copied: spatial reference system 40001 (of the shop)";
    assert!(said.error.contains(left_out), "{said:?}");
    let libraries = "SELECT CONCAT(LIBRARY_SCHEMA, LIBRARY_NAME, LIBRARY_COMMENT, SQL_MODE, LIBRARY_DEFINITION) \
        FROM information_schema.LIBRARIES";
    let library: String = source.value(libraries).await;
    assert!(library.contains("lä`bö") && library.contains('ü'), "{library}");
    assert_eq!(target.value::<String>(libraries).await, library);
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
async fn what_is_computed_in_a_time_zone_is_named() {
    let (source, target) = Server::pair(&["--default-time-zone=+02:00"], &[]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, at TIMESTAMP, \
             day DATE AS (DATE(at)) STORED, plus INT AS (id+1) STORED, KEY hours ((HOUR(at))), \
             CONSTRAINT late CHECK (YEAR(at) > 1999)); \
             INSERT INTO d.t (id, at) VALUES (1, '2026-03-04 12:00:00')",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).build();
    let named = "not copied: the source's values of column day, key hours, CHECK late in d.t: ";
    let mut arguments = super::arguments(&daemon);
    arguments.push("--plan".to_owned());
    let planned: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = tokio::task::block_in_place(|| daemon.command(&planned));
    assert!(said.code == Some(0) && said.out.contains(named), "{said:?}");
    let copied = &planned[..planned.len() - 1];
    let said = tokio::task::block_in_place(|| daemon.command(copied));
    assert!(said.code == Some(0) && said.error.contains(named), "{said:?}");
}
