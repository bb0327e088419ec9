//! `csa-daemon verify` between servers whose functions and catalogues differ.

use std::collections::BTreeSet;

use csa_tests::{Compare, Daemon, Server};

use super::older::run;
use super::{Pair, Version};
use crate::DRAIN;
use crate::verify::{repair, verify};

const TABLES: &str = "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci; \
    CREATE TABLE d.t (id INT PRIMARY KEY, s VARCHAR(20), f FLOAT, g DOUBLE, y YEAR, b VARBINARY(9), \
     e ENUM('','x'), ts TIMESTAMP(6) NULL, n DECIMAL(20,10), bits BIT(64), big LONGTEXT); \
    CREATE TABLE d.texts (k VARCHAR(20), v INT, PRIMARY KEY (k)); \
    CREATE TABLE d.bag (a INT, s VARCHAR(10)); \
    CREATE TABLE d.documents (id INT PRIMARY KEY, v INT, doc JSON)";
const ROWS: [&str; 4] = [
    "INSERT INTO d.t VALUES (1,'a',0.1,0.1,1901,'a','x','2024-01-01 00:00:00.5',1,b'1',REPEAT('x',9999)), \
     (2,'b',-1.5e30,1e300,2155,0x00,'','2038-01-19 03:14:07',-1,0,''), \
     (3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
    "INSERT INTO d.texts VALUES ('Ä',1),('b',1),('o''x',1)",
    "INSERT INTO d.bag VALUES (1,'a'),(1,'a'),(NULL,NULL)",
    "INSERT INTO d.documents VALUES (1,1,'{\"a\": [1, 2.5]}'),(2,2,NULL)",
];

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_compared_with_an_old_source_and_with_mariadb() {
    for (source, target) in [
        (Version::V57, Version::Newest),
        (Version::V57, Version::MariaDb),
        (Version::Newest, Version::MariaDb114),
    ] {
        let pair = Pair { source, target };
        let (source, target) = super::start(pair);
        let daemon = super::daemon(pair, &source, &target);
        daemon.start_again();
        source.exec(TABLES).await;
        for rows in ROWS {
            source.exec(rows).await;
        }
        // More than one range.
        source
            .exec(
                "INSERT INTO d.t (id, s) SELECT 3 + a.n + 10 * b.n, 'many' FROM \
            (SELECT 1 n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5) a, \
            (SELECT 1 n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5) b",
            )
            .await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        Compare::contents().run(&source, &target).await.expect("equal");
        is_found(pair, &daemon, &target).await;
    }
}

/// Nothing differs, then all that was changed on the target does.
async fn is_found(pair: Pair, daemon: &Daemon, target: &Server) {
    let keeps_json_as_text = pair.target.is_mariadb();
    let rows = ["--chunk-rows", "7"];
    let equal = verify(daemon, &rows);
    equal.assert_code(if keeps_json_as_text { 2 } else { 0 });
    assert_eq!(equal.table("d.t")["rows"], 28, "{pair}");
    let documents = equal.table("d.documents");
    let left_out = documents["left_out"].as_str().unwrap_or_default();
    assert_eq!(left_out.contains("MariaDB keeps JSON as text: doc"), keeps_json_as_text, "{pair}");
    assert_eq!(documents["rows"], 2, "{pair}: {documents:#}");

    let mut expected = BTreeSet::new();
    for (change, difference) in [
        ("UPDATE d.t SET g = 0.10000000000000002 WHERE id = 1", "d.t id=1 differs g"),
        ("UPDATE d.t SET bits = 1, ts = NULL WHERE id = 2", "d.t id=2 differs ts,bits"),
        ("UPDATE d.t SET s = '' WHERE id = 3", "d.t id=3 differs s"),
        ("DELETE FROM d.t WHERE id = 14", "d.t id=14 missing_on_target"),
        ("INSERT INTO d.t (id) VALUES (900)", "d.t id=900 only_on_target"),
        ("UPDATE d.texts SET v = 7 WHERE k = 'Ä'", "d.texts k='Ä' differs v"),
        ("DELETE FROM d.bag WHERE a = 1 LIMIT 1", "d.bag count 2:1"),
        ("UPDATE d.documents SET v = 9 WHERE id = 1", "d.documents id=1 differs v"),
    ] {
        target.exec(change).await;
        expected.insert(difference.to_owned());
    }
    let changed = verify(daemon, &rows);
    changed.assert_code(1);
    assert_eq!(changed.differences(), expected, "{pair}");
}

/// Types of a key, and values at their edges.
const KEYS: [(&str, &str); 34] = [
    ("YEAR", "0|1901|1970|2000|2001|2155"),
    ("INT(5) ZEROFILL", "0|7|100000|4294967295"),
    ("BIGINT UNSIGNED ZEROFILL", "0|7|9223372036854775808|18446744073709551615"),
    ("DECIMAL(6,2) ZEROFILL", "0|1.5|9999.99"),
    (
        "DECIMAL(65,30) ZEROFILL",
        "0|1.5|99999999999999999999999999999999999.999999999999999999999999999999",
    ),
    ("DOUBLE ZEROFILL", "0|1.5|1e300"),
    ("TINYINT", "-128|0|127"),
    ("BIGINT", "-9223372036854775808|-1|0|9223372036854775807"),
    ("BIGINT UNSIGNED", "0|9223372036854775807|9223372036854775808|18446744073709551615"),
    (
        "DECIMAL(65,30)",
        "-99999999999999999999999999999999999.999999999999999999999999999999|-0.5|0|1e-30",
    ),
    ("FLOAT", "-1.5e30|-0e0|0.1|1.17549e-38|16777216"),
    (
        "DOUBLE",
        "-1.7976931348623157e308|-1.2345678901234568e-10|-1.2345678901234568e-300|-0e0|5e-324|\
         1.2345678901234568e-10|0.1|1e15|1e16|1.7976931348623157e308",
    ),
    ("BIT(1)", "0|1"),
    ("BIT(64)", "0|1|9223372036854775808|18446744073709551615"),
    ("ENUM('b','','a')", "'b'|''|'a'|'none'"),
    ("SET('b','a')", "''|'a'|'a,b'"),
    ("DATE", "'0000-00-00'|'1000-01-01'|'2024-00-00'|'2024-02-31'|'9999-12-31'"),
    ("TIME", "'-838:59:59'|'-00:00:01'|'00:00:00'|'00:00:01'|'838:59:59'"),
    ("TIME(3)", "'-838:59:58.999'|'-00:00:00.5'|'-00:00:00.001'|'00:00:00'|'00:00:00.001'"),
    ("DATETIME", "'0000-00-00'|'2024-00-00'|'2024-02-31 23:59:59'|'9999-12-31 23:59:59'"),
    ("DATETIME(6)", "'0000-00-00'|'2024-03-31 02:30:00.000001'|'2024-03-31 02:30:00.000002'"),
    (
        "TIMESTAMP DEFAULT '2000-01-01'",
        "'0000-00-00'|'1970-01-01 00:00:01'|'2024-03-31 01:00:00'|'2024-10-27 00:30:00'|\
         '2024-10-27 01:30:00'|'2038-01-19 03:14:07'",
    ),
    (
        "TIMESTAMP(3) DEFAULT '2000-01-01'",
        "'0000-00-00'|'1970-01-01 00:00:01.001'|'2038-01-19 03:14:07.999'",
    ),
    ("CHAR(5) CHARACTER SET latin1", r"''|'a'|'é'|''''|'\\'"),
    ("CHAR(5) CHARACTER SET utf8 COLLATE utf8_bin", "''|'A'|'a'|'ä'|'€'"),
    ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "''|'a'|'B '|'ß'|'😀'"),
    ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", r"''|'A'|'a'|'a\t'|'%'|'_'"),
    ("VARCHAR(9) CHARACTER SET ucs2", "''|'a'|'é'"),
    ("VARCHAR(9) CHARACTER SET utf16le", "''|'a'|'😀'"),
    ("VARCHAR(9) CHARACTER SET cp932", "''|'a'|'表'|'ソ'"),
    ("VARCHAR(9) CHARACTER SET binary", "''|'a'|x'00'|x'0000'|x'ff'"),
    ("BINARY(3)", "''|'a'|x'00ff'|'a '"),
    ("VARBINARY(9)", "''|x'00'|x'0000'|'a'|'a '|x'ff5c27'"),
    ("YEAR NOT NULL, z INT(3) ZEROFILL NOT NULL DEFAULT 7", "0|1901|2000"),
];

/// Conditions by a key, at the ends of chunks of one row and in statements of `--repair`, mean the value
/// that they were made from.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn keys_of_every_type_are_compared_and_repaired() {
    let mut pairs = vec![
        (Version::Newest, Version::Newest),
        (Version::V57, Version::Newest),
        (Version::Newest, Version::MariaDb114),
    ];
    if std::env::var_os("CSA_VERSIONS").is_some() {
        pairs.extend([Version::V8031, Version::V57].map(|target| (Version::Newest, target)));
    }
    for (source, target) in pairs {
        let pair = Pair { source, target };
        let (source, target) = super::start(pair);
        let daemon = super::daemon(pair, &source, &target);
        daemon.start_again();
        let mut statements = vec![
            "CREATE DATABASE d CHARACTER SET latin1".to_owned(),
            "SET sql_mode='ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone='+00:00'"
                .to_owned(),
            "SET NAMES utf8mb4".to_owned(),
        ];
        for (number, (key_type, values)) in KEYS.iter().enumerate() {
            let key = if key_type.contains(", z ") { "k, z" } else { "k" };
            statements.push(format!(
                "CREATE TABLE d.k{number} (k {key_type}, v INT, PRIMARY KEY ({key}))"
            ));
            statements.extend(
                values
                    .split('|')
                    .map(|value| format!("INSERT INTO d.k{number} (k, v) VALUES ({value}, 1)")),
            );
        }
        let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
        run(&source, &statements).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let chunks = ["--chunk-rows", "1"];
        verify(&daemon, &chunks).assert_code(0);
        // All rows differ, the last of each table because it is missing.
        for number in 0..KEYS.len() {
            target.exec(&format!("UPDATE d.k{number} SET v=2")).await;
            target.exec(&format!("DELETE FROM d.k{number} ORDER BY k DESC LIMIT 1")).await;
        }
        let (code, text) = repair(&daemon, &chunks);
        assert_eq!(code, Some(1));
        for (number, (key_type, values)) in KEYS.iter().enumerate() {
            // Nothing finds rows by a SET: the digests of both sides count.
            let counted = if key_type.starts_with("SET") { 2 } else { 0 };
            let rows = values.split('|').count() + counted;
            let line = format!("-- d.k{number}: {rows} rows differ\n");
            assert!(text.contains(&line), "{pair}, {key_type}: {line} is missing in {text}");
        }
        assert!(!text.contains("left out"), "{pair}: {text}");
        target.exec(&text).await;
        let compared = Compare::contents().run(&source, &target).await;
        compared.unwrap_or_else(|difference| panic!("{pair}: {difference}\n{text}"));
        verify(&daemon, &chunks).assert_code(0);
    }
}
