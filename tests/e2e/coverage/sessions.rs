//! The session in which a row was written counts where the target computes something from the row.

use csa_tests::{Compare, Daemon, Server};
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedMutRandom as _, IndexedRandom as _};
use rand::{Rng as _, SeedableRng as _};

use crate::DRAIN;

use super::run;

const ZONES: [&str; 4] = ["+00:00", "+03:00", "-08:30", "SYSTEM"];
/// Settings that the server evaluates for each row, not when it opens the table, and settings that
/// could interfere with our own statements.
const MODES: [&str; 4] = [
    "",
    "PAD_CHAR_TO_FULL_LENGTH,TIME_TRUNCATE_FRACTIONAL",
    "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO",
    "ANSI,NO_BACKSLASH_ESCAPES,TIME_TRUNCATE_FRACTIONAL",
];
const LOCALES: [&str; 3] = ["en_US", "de_DE", "ja_JP"];
const COLLATIONS: [&str; 4] =
    ["utf8mb4_0900_ai_ci", "latin1_swedish_ci", "ucs2_general_ci", "utf16_bin"];

/// Tables with a column that records the session that wrote the row, and plain ones.
const TABLES: [&str; 12] = [
    "CREATE TABLE checked (id INT PRIMARY KEY, v INT, c TIMESTAMP NULL, \
     CHECK (c > '2007-01-01 00:00:01'))",
    "CREATE TABLE stamped (id INT PRIMARY KEY, v INT, c TIMESTAMP NULL, \
     s VARCHAR(60) AS (DATE_FORMAT(c, '%Y-%m-%d %H %W %M')) STORED)",
    "CREATE TABLE by_time (id INT, v INT, c TIMESTAMP NOT NULL, PRIMARY KEY (id, c)) \
     PARTITION BY RANGE (UNIX_TIMESTAMP(c)) (PARTITION a VALUES LESS THAN (1167600000), \
     PARTITION b VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE padded (id INT PRIMARY KEY, v INT, c CHAR(10), l INT AS (CHAR_LENGTH(c)) STORED)",
    "CREATE TABLE cut (id INT PRIMARY KEY, v INT, t TIME(6), s TIME AS (t) STORED)",
    // Written once: the server may not find again a value that it computed in another session.
    "CREATE TABLE indexed (id INT PRIMARY KEY, c TIMESTAMP NULL, KEY ((DATE(c))))",
    "CREATE TABLE members (id INT PRIMARY KEY, j JSON, \
     KEY ((CAST(j->'$.d' AS DATE ARRAY))), UNIQUE ((CAST(j->'$.n' AS UNSIGNED ARRAY))))",
    "CREATE TABLE parent (id INT UNSIGNED PRIMARY KEY, v INT)",
    "CREATE TABLE child (id INT PRIMARY KEY, p INT UNSIGNED, b INT UNSIGNED, \
     d BIGINT AS (p + b) VIRTUAL, KEY (d), \
     FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE plain (id INT PRIMARY KEY, v INT, c TIMESTAMP NULL)",
    "CREATE TABLE keyless (v INT, c TIMESTAMP NULL, \
     s VARCHAR(60) AS (DATE_FORMAT(c, '%H %W')) STORED)",
    "CREATE TABLE more (id INT PRIMARY KEY, c TIMESTAMP NULL)",
];

/// Sets up a session at random, starting with one that takes text literally.
fn session(random: &mut StdRng) -> Vec<String> {
    let mut pick = |from: &[&'static str]| *from.choose(random).expect("not empty");
    vec![
        format!("SET time_zone='{}'", pick(&ZONES)),
        format!("SET sql_mode='{}'", pick(&MODES)),
        format!("SET lc_time_names='{}'", pick(&LOCALES)),
        format!("SET collation_connection='{}'", pick(&COLLATIONS)),
    ]
}

/// A statement at random; it need not be possible.
fn statement(random: &mut StdRng) -> String {
    let id = random.random_range(1..30);
    let v = random.random_range(0..9);
    let at = format!("2007-01-01 00:00:0{v}");
    match random.random_range(0..18) {
        0 | 1 => format!("REPLACE INTO checked VALUES ({id}, {v}, '{at}')"),
        2 => format!("UPDATE checked SET v=v+1 WHERE id={id}"),
        3 => format!("REPLACE INTO stamped (id, v, c) VALUES ({id}, {v}, '{at}')"),
        4 => format!("UPDATE stamped SET c=c + INTERVAL {v} HOUR WHERE id={id}"),
        5 => format!("DELETE FROM stamped WHERE id={id}"),
        6 => format!("REPLACE INTO by_time VALUES ({id}, {v}, '{at}')"),
        7 => format!("UPDATE padded SET c=CONCAT(c, 'c') WHERE id={id}"),
        8 => format!("UPDATE cut SET t=t + INTERVAL 0.5 SECOND WHERE id={id}"),
        9 => format!("REPLACE INTO padded (id, v, c) VALUES ({id}, {v}, 'ab ')"),
        10 => format!("REPLACE INTO cut (id, v, t) VALUES ({id}, {v}, '10:00:00.{v}')"),
        11 => format!("INSERT INTO indexed SELECT COUNT(*), '{at}' FROM indexed"),
        12 => format!(
            "REPLACE INTO members VALUES ({id}, '{{\"d\": [\"2020-01-0{}\"], \"n\": [{id}]}}')",
            v + 1
        ),
        13 => format!("INSERT IGNORE INTO parent VALUES ({id}, {v})"),
        14 => format!("REPLACE INTO child (id, p, b) SELECT {id}, id, 20 FROM parent LIMIT 1"),
        15 => format!("UPDATE parent SET id=id + 1 WHERE id={id}"),
        16 => format!("REPLACE INTO plain VALUES ({id}, {v}, '{at}')"),
        _ => format!("INSERT INTO keyless (v, c) VALUES ({v}, '{at}')"),
    }
}

/// Index entries, which rows don't show.
const INDEXES: [&str; 4] = [
    "SELECT COUNT(*) FROM c.indexed WHERE DATE(c)='2006-12-31'",
    "SELECT COUNT(*) FROM c.indexed WHERE DATE(c)='2007-01-01'",
    "SELECT COUNT(*) FROM c.members WHERE CAST('2020-01-03' AS DATE) MEMBER OF (j->'$.d')",
    "SELECT COALESCE(SUM(d), 0) FROM c.child FORCE INDEX (d) WHERE d > 0",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_the_target_computes_from_rows_of_every_session() {
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let random = &mut StdRng::seed_from_u64(seed);
    let source = Server::start("source", &["--event-scheduler=OFF"]);
    let modes = [("grouped", "own"), ("one-to-one", "source"), ("grouped", "mirror")];
    let targets: Vec<Server> = std::thread::scope(|scope| {
        // A zone other than the source's, where a session's zone is not taken over.
        let start = |_| scope.spawn(|| Server::start("target", &["--default-time-zone=+09:00"]));
        let started: Vec<_> = modes.iter().map(start).collect();
        started.into_iter().map(|target| target.join().expect("starts").borrowed()).collect()
    });
    let mut builder = Daemon::builder(&source, &targets[0]);
    for (place, target) in targets.iter().enumerate() {
        if place > 0 {
            builder = builder.channel(&format!("channel{place}"), &source, target);
        }
        let (commit, gtids) = modes[place];
        builder = builder.set("applier.commit", commit).set("applier.target_gtids", gtids);
    }
    let daemon = builder.start();
    let drained = async || {
        for (place, target) in targets.iter().enumerate() {
            let name = if place == 0 { "test".to_owned() } else { format!("channel{place}") };
            daemon.wait_channel_drained(&name, &source, target, DRAIN).await;
        }
    };
    source.exec("CREATE DATABASE c").await;
    run(&source, TABLES).await;
    drained().await;
    for target in &targets {
        // A column that only the target has.
        target.exec("ALTER TABLE c.more ADD COLUMN d DATETIME DEFAULT CURRENT_TIMESTAMP").await;
    }
    // The changes form a backlog, so that sessions share groups.
    daemon.kill9();
    run(
        &source,
        [
            "SET time_zone='+03:00'",
            "INSERT INTO checked VALUES (100, 1, '2007-01-01 00:00:02')",
            "SET time_zone='+05:00', timestamp=1200000000",
            "INSERT INTO more VALUES (1, '2008-01-01 00:00:00')",
            "SET time_zone='-05:00', timestamp=1200000000",
            "INSERT INTO more VALUES (2, '2008-01-01 00:00:00')",
        ],
    )
    .await;
    let mut clients = [source.conn().await, source.conn().await, source.conn().await];
    let (mut done, mut refused) = (0, 0);
    for round in 0..800 {
        if round == 500 {
            daemon.start_again();
        }
        let client = clients.choose_mut(random).expect("a client");
        client.query_drop("USE c").await.expect("the schema is there");
        client.query_drop("SET NAMES utf8mb4").await.expect("a setting");
        for set in session(random).into_iter().filter(|_| random.random_bool(0.7)) {
            client.query_drop(set).await.expect("a setting");
        }
        client.query_drop("BEGIN").await.expect("begins");
        // A session's zone is logged where the transaction's first statement asks for it.
        let first = format!("REPLACE INTO plain VALUES ({round}, 1, '2007-01-01 00:00:09')");
        client.query_drop(first).await.expect("a row");
        for _ in 0..random.random_range(1..4) {
            match client.query_drop(statement(random)).await {
                Ok(()) => done += 1,
                Err(_) => refused += 1,
            }
        }
        client.query_drop("COMMIT").await.expect("commits");
    }
    assert!(done > 500 && refused > 10, "{done} done, {refused} refused");
    drained().await;
    for (target, (commit, gtids)) in targets.iter().zip(modes) {
        let what = format!("{commit}, {gtids}, seed {seed}");
        let compared = Compare::new().ignore_table("c.more").run(&source, target).await;
        let compared = compared.unwrap_or_else(|difference| panic!("{what}: {difference}"));
        assert!(compared.rows > 150, "{what}: {compared:?}");
        for query in INDEXES {
            // In one session everywhere: the target's own zone is another.
            let ask = async |server: &Server| {
                let mut conn = server.conn().await;
                conn.query_drop("SET time_zone='+00:00'").await.expect("a zone");
                conn.query_first::<i64, _>(query).await.expect("answers").expect("a row")
            };
            assert_eq!(ask(target).await, ask(&source).await, "{what}: {query}");
        }
        let more = "SELECT GROUP_CONCAT(d ORDER BY id) FROM c.more";
        let more: String = target.value(more).await;
        assert_eq!(more, "2008-01-11 02:20:00,2008-01-10 16:20:00", "{what}");
    }
    let repaired = daemon.log().contains("applying its transactions one by one");
    assert!(!repaired, "a group met rows of another\n{}", daemon.log_tail());
}
