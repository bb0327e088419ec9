//! Equality of key values: collations of all character sets, padding, prefixes; and keys on
//! columns that are generated, invisible or not there.

use mysql_async::prelude::Queryable as _;

use super::Pair;
use crate::EXECUTORS;
use crate::conflicts::WORDS;

/// Returns the words as SQL, and other strings that a collation may call equal to one of them.
fn word(number: usize) -> String {
    let hex: String = WORDS[number % WORDS.len()].bytes().map(|b| format!("{b:02x}")).collect();
    if hex.is_empty() { "''".to_owned() } else { format!("_utf8mb4 0x{hex}") }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn collations_of_every_character_set() {
    for executor in EXECUTORS {
        every_character_set(executor).await;
    }
}

async fn every_character_set(executor: &str) {
    let relaxed = ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"];
    let pair = Pair::start_with(executor, &relaxed, &relaxed).await;
    let mut conn = pair.source.conn().await;
    let collations: Vec<String> = conn
        .query(
            "SELECT COLLATION_NAME FROM information_schema.COLLATIONS \
             WHERE IS_DEFAULT='Yes' OR COLLATION_NAME LIKE 'utf8mb4\\_0900%' \
             OR COLLATION_NAME REGEXP '_(bin|cs)$' AND ID < 70",
        )
        .await
        .expect("a list");
    assert!(collations.len() > 60, "{collations:?}");
    let create = collations.iter().map(|collation| {
        let charset = collation.split('_').next().unwrap_or_default();
        format!(
            "CREATE TABLE c_{collation} (k VARCHAR(20) PRIMARY KEY, u CHAR(10), v INT, t TEXT, \
             UNIQUE (u), UNIQUE (t(2))) CHARACTER SET {charset} COLLATE {collation}"
        )
    });
    pair.run(create).await;
    let mut writes = vec!["SET sql_mode=''".to_owned()];
    for number in 0..WORDS.len() {
        for collation in &collations {
            let (one, two, three) = (word(number), word(number * 7 + 3), word(number * 5 + 1));
            writes.push(match number % 4 {
                0 | 1 => {
                    format!("REPLACE INTO c_{collation} VALUES ({one},{two},{number},{three})")
                }
                2 => format!("UPDATE IGNORE c_{collation} SET u={one}, v=v+1 WHERE v%3=0 LIMIT 2"),
                _ => format!("DELETE FROM c_{collation} ORDER BY k LIMIT 1"),
            });
        }
    }
    pair.run(writes).await;
    let compared = pair.equal().await;
    assert!(compared.rows as usize > collations.len() * 5, "{compared:?}");
}

/// Values that a key calls equal although their images differ: the padding of the shorter one is in
/// no image. Another kind of event between the two would let the second go first.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn prefixes_of_padded_columns() {
    for executor in EXECUTORS {
        padded_columns(executor).await;
    }
}

async fn padded_columns(executor: &str) {
    let pair = Pair::start_with(executor, &[], &[]).await;
    for (name, column, short, long) in [
        ("fixed", "BINARY(8)", "0x01", "0x0100000005"),
        ("spaces", "CHAR(10) COLLATE utf8mb4_0900_ai_ci", "'ab'", "'ab  x'"),
        ("padded", "CHAR(10) COLLATE utf8mb4_general_ci", "'ab'", "'ab  x'"),
        ("variable", "VARCHAR(10) COLLATE utf8mb4_general_ci", "'ab'", "'ab  x'"),
        ("latin", "CHAR(10) CHARACTER SET latin1", "'ab'", "'ab  x'"),
    ] {
        pair.run([
            format!(
                "CREATE TABLE {name} (id INT PRIMARY KEY, u {column}, v INT, b BLOB, UNIQUE (u(4)))"
            ),
            format!("INSERT INTO {name} VALUES (1,{short},0,'b'),(2,'zz',0,'b'),(3,'yy',0,'b')"),
        ])
        .await;
        pair.run_as_backlog([
            // Puts its row into the same event as the last statement's.
            "SET binlog_row_image=NOBLOB".to_owned(),
            format!("UPDATE {name} SET v=1 WHERE id=3"),
            "SET binlog_row_image=FULL".to_owned(),
            format!("UPDATE {name} SET u='qq' WHERE id=1"),
            "SET binlog_row_image=NOBLOB".to_owned(),
            format!("UPDATE {name} SET u={long} WHERE id=2"),
        ])
        .await;
        pair.equal().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_functional_and_multi_valued_keys() {
    for executor in EXECUTORS {
        computed_keys(executor).await;
    }
}

async fn computed_keys(executor: &str) {
    let pair = Pair::start_with(executor, &[], &[]).await;
    pair.run([
        "CREATE TABLE by_virtual (id INT PRIMARY KEY, a INT, v INT AS (a * 2) VIRTUAL UNIQUE)",
        "CREATE TABLE with_stored (id INT PRIMARY KEY, a INT, v INT AS (a * 2) STORED UNIQUE)",
        "CREATE TABLE by_stored (a INT, v INT AS (a * 2) STORED PRIMARY KEY)",
        "CREATE TABLE only_virtual (a INT, v INT AS (a * 2) VIRTUAL UNIQUE)",
        "CREATE TABLE functional (id INT PRIMARY KEY, a VARCHAR(9), UNIQUE ((LOWER(a))))",
        "CREATE TABLE only_functional (a INT, UNIQUE ((a % 10)))",
        "CREATE TABLE multi (id INT PRIMARY KEY, j JSON, \
         UNIQUE m ((CAST(j->'$.a' AS UNSIGNED ARRAY))), KEY s ((CAST(j->'$.s' AS CHAR(5) ARRAY))))",
        "CREATE TABLE digest (id INT PRIMARY KEY, a TEXT, d BINARY(32) AS (UNHEX(SHA2(a,256))) \
         STORED INVISIBLE, UNIQUE (d))",
    ])
    .await;
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        pair.run_as_backlog([
            format!("SET binlog_row_image={image}").as_str(),
            "DELETE FROM by_virtual",
            "DELETE FROM with_stored",
            "DELETE FROM by_stored",
            "DELETE FROM only_virtual",
            "DELETE FROM functional",
            "DELETE FROM only_functional",
            "DELETE FROM multi",
            "DELETE FROM digest",
            "INSERT INTO by_virtual (id,a) VALUES (1,1),(2,2),(3,NULL)",
            "INSERT INTO with_stored (id,a) VALUES (1,1),(2,2),(3,NULL)",
            "INSERT INTO by_stored (a) VALUES (1),(2)",
            "INSERT INTO only_virtual (a) VALUES (1),(2),(NULL),(NULL)",
            "INSERT INTO functional VALUES (1,'A'),(2,'b')",
            "INSERT INTO only_functional VALUES (1),(12),(NULL)",
            r#"INSERT INTO multi VALUES (1,'{"a":[1,2],"s":["x"]}'),(2,'{"a":[3]}'),(3,NULL)"#,
            "INSERT INTO digest (id,a) VALUES (1,'a'),(2,'b')",
            // Values move from row to row.
            "UPDATE by_virtual SET a=9 WHERE id=1",
            "UPDATE by_virtual SET a=1 WHERE id=2",
            "UPDATE by_virtual SET a=2 WHERE id=3",
            "UPDATE with_stored SET a=9 WHERE id=1",
            "UPDATE with_stored SET a=1 WHERE id=2",
            "UPDATE by_stored SET a=9 WHERE a=1",
            "INSERT INTO by_stored (a) VALUES (1)",
            "UPDATE only_virtual SET a=9 WHERE a=1",
            "UPDATE only_virtual SET a=1 WHERE a=2",
            "DELETE FROM only_virtual WHERE a IS NULL LIMIT 1",
            "UPDATE functional SET a='c' WHERE id=1",
            "UPDATE functional SET a='a' WHERE id=2",
            "UPDATE only_functional SET a=3 WHERE a=1",
            "UPDATE only_functional SET a=21 WHERE a=12",
            r#"UPDATE multi SET j='{"a":[7]}' WHERE id=1"#,
            r#"UPDATE multi SET j='{"a":[1,2],"s":["y","z"]}' WHERE id=2"#,
            "UPDATE digest SET a='c' WHERE id=1",
            "UPDATE digest SET a='a' WHERE id=2",
        ])
        .await;
        let compared = pair.equal().await;
        assert_eq!((compared.tables, compared.rows), (8, 22), "{image}");
    }
}

/// MySQL logs values of other rows, or of none, for virtual columns of these types: one row in ten of this
/// load has a wrong `x` in its image.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_virtual_texts_that_are_logged_wrong() {
    for executor in EXECUTORS {
        wrong_virtual_texts(executor).await;
    }
}

async fn wrong_virtual_texts(executor: &str) {
    let pair = Pair::start_with(executor, &[], &[]).await;
    pair.run(["CREATE TABLE texts (id INT PRIMARY KEY, a INT, \
         x TEXT AS (CONCAT('x', a)) VIRTUAL, s CHAR(9) AS (LEFT(x, 9)) VIRTUAL, \
         UNIQUE (x(20)), UNIQUE (s))"])
        .await;
    // Few values, so that they move between rows all the time.
    let value = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let writes = (0..400).flat_map(|number| {
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|part| value(number * 5 + part) % 40);
        [
            format!("REPLACE INTO texts (id, a) VALUES ({a}, {b}), ({c}, {d})"),
            format!("DELETE FROM texts WHERE id = {e}"),
        ]
    });
    pair.run_as_backlog(writes).await;
    assert!(pair.equal().await.rows > 5);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn keys_that_are_hidden_partial_or_missing() {
    for executor in EXECUTORS {
        partial_keys(executor).await;
    }
}

async fn partial_keys(executor: &str) {
    let pair = Pair::start_with(executor, &[], &[]).await;
    let tables = [
        "invisible (id INT AUTO_INCREMENT PRIMARY KEY INVISIBLE, a INT, b INT INVISIBLE DEFAULT 5)",
        "prefixed (a TEXT, b BLOB, c INT, PRIMARY KEY (a(3), b(2)))",
        "composite (a VARCHAR(9), b DATETIME(2), c INT, PRIMARY KEY (b, a DESC))",
        "nullable (a INT, b INT, c INT, UNIQUE (a, b))",
        "several (a INT NOT NULL, b INT, c INT, UNIQUE (b), UNIQUE (a), UNIQUE (c, b))",
        "keyless (a INT, b TEXT, c DOUBLE)",
        "only_index (a INT, b INT, c INT, KEY (a))",
        "unseen_index (a INT PRIMARY KEY, b INT, c INT, UNIQUE (b) INVISIBLE)",
    ];
    pair.run(tables.map(|table| format!("CREATE TABLE {table}"))).await;
    pair.run([
        "SET sql_generate_invisible_primary_key=ON",
        "CREATE TABLE hidden (a INT, b INT)",
        "CREATE TABLE hidden_later (a INT, b INT)",
        // Hidden columns on both ends.
        "CREATE TABLE hidden_functional (a INT, b TEXT, UNIQUE KEY ((CAST(LEFT(b,8) AS CHAR(8)))))",
    ])
    .await;
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        pair.run_as_backlog([
            format!("SET binlog_row_image={image}").as_str(),
            "INSERT INTO invisible (a) VALUES (1),(1),(2)",
            "INSERT INTO invisible (id,a,b) VALUES (50,1,1) ON DUPLICATE KEY UPDATE a=a+1",
            "UPDATE invisible SET a=3 WHERE a=1 ORDER BY id LIMIT 1",
            "DELETE FROM invisible WHERE a=2",
            "REPLACE INTO prefixed VALUES ('abcd','xyz',1),('abce','xz',2),('ABCd','xyw',3)",
            "UPDATE IGNORE prefixed SET a='abd' WHERE c=3",
            "UPDATE IGNORE prefixed SET a='abcx' WHERE c=2",
            "REPLACE INTO composite VALUES ('a','2026-01-01 00:00:00.25',1),('A ','2026-01-02',2)",
            "UPDATE IGNORE composite SET b='2026-01-03' WHERE a='a' AND c=1",
            "INSERT IGNORE INTO nullable VALUES (1,1,1),(1,NULL,1),(1,NULL,1),(NULL,NULL,1)",
            "UPDATE nullable SET c=2 WHERE a=1 LIMIT 2",
            "UPDATE nullable SET b=NULL WHERE b=1",
            "DELETE FROM nullable WHERE b IS NULL LIMIT 1",
            "REPLACE INTO several VALUES (1,1,1),(2,NULL,1),(3,3,NULL)",
            "UPDATE several SET b=NULL WHERE a=1",
            "UPDATE several SET b=1, c=1 WHERE a=3",
            "INSERT INTO keyless () VALUES ()",
            "INSERT INTO only_index () VALUES ()",
            "INSERT INTO keyless VALUES (1,'a',0.1),(1,'a',0.1),(1,'a',-0e0),(NULL,NULL,NULL)",
            "INSERT INTO keyless SELECT * FROM keyless",
            "UPDATE keyless SET b='b' WHERE a=1 LIMIT 1",
            "DELETE FROM keyless WHERE a=1 AND b='a' LIMIT 2",
            "UPDATE keyless SET c=NULL WHERE a IS NULL LIMIT 1",
            "INSERT INTO only_index VALUES (1,1,1),(1,1,1),(1,2,1),(2,2,2)",
            "UPDATE only_index SET b=3 WHERE a=1 AND b=1 LIMIT 1",
            "DELETE FROM only_index WHERE a=1 LIMIT 1",
            "REPLACE INTO unseen_index VALUES (1,1,1),(2,2,2)",
            "UPDATE unseen_index SET b=NULL WHERE a=1",
            "UPDATE unseen_index SET b=1 WHERE a=2",
            "INSERT INTO hidden VALUES (1,1),(1,1),(2,2)",
            "UPDATE hidden SET b=9 WHERE a=1 LIMIT 1",
            "DELETE FROM hidden WHERE a=1 AND b=1 LIMIT 1",
            "INSERT INTO hidden_later (a,b) VALUES (1,1),(1,1)",
            "UPDATE hidden_later SET b=2 LIMIT 1",
            "REPLACE INTO hidden_functional (a,b) VALUES (1,'one'),(2,'two'),(3,NULL)",
            "UPDATE hidden_functional SET b='three' WHERE a=3 LIMIT 1",
            "DELETE FROM hidden_functional WHERE a=1",
        ])
        .await;
        let compared = pair.equal().await;
        assert!(compared.tables == 11 && compared.rows > 27, "{image}: {compared:?}");
        if image == "FULL" {
            pair.run(["ALTER TABLE hidden_later ALTER COLUMN my_row_id SET VISIBLE"]).await;
        }
    }
}

/// Row images identify columns by position only, so no column may be added in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_would_generate_keys_itself() {
    let pair = Pair::start(&[], &["--sql-generate-invisible-primary-key=ON"]).await;
    pair.run([
        "CREATE TABLE keyless (a BIGINT UNSIGNED, b INT)",
        "INSERT INTO keyless VALUES (1,1),(1,1),(2,2)",
        "UPDATE keyless SET b=3 LIMIT 1",
        "DELETE FROM keyless WHERE a=2",
        "SET sql_generate_invisible_primary_key=ON",
        "CREATE TABLE hidden (a INT)",
        "INSERT INTO hidden VALUES (1),(1)",
        "DELETE FROM hidden LIMIT 1",
    ])
    .await;
    assert_eq!(pair.equal().await.rows, 3);
}
