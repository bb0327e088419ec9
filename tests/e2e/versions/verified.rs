//! `csa-daemon verify` between servers whose functions and catalogues differ.

use std::collections::BTreeSet;

use csa_tests::{Compare, Daemon, Server};

use super::{Pair, Version};
use crate::DRAIN;
use crate::verify::verify;

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
