//! `collation_map`: definitions of a source on a target that lacks its collations.

use std::time::Duration;

use csa_tests::{Compare, Daemon, DaemonBuilder, Server};
use toml::Table;

use crate::versions::{Version, end, verify};
use crate::{DRAIN, wait_state};

const MAPPED: [(&str, &str); 3] = [
    ("utf8mb4_0900_ai_ci", "utf8mb4_unicode_520_ci"),
    ("utf8mb4_0900_as_cs", "utf8mb4_bin"),
    ("utf8mb4_0900_bin", "utf8mb4_bin"),
];

/// Every place in which a definition names a collation or leaves it to the server.
const DEFINITIONS: [&str; 9] = [
    "CREATE DATABASE d",
    "CREATE DATABASE named CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs",
    "CREATE TABLE d.plain (id INT PRIMARY KEY, a VARCHAR(40), b TEXT CHARACTER SET utf8mb4, \
     c VARCHAR(9) CHARACTER SET latin1) COMMENT 'COLLATE utf8mb4_0900_ai_ci'",
    "CREATE TABLE d.keyed (k VARCHAR(40) COLLATE utf8mb4_0900_as_cs NOT NULL, v INT, PRIMARY KEY (k), \
     KEY (v)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci",
    "CREATE TABLE named.bag (a VARCHAR(20), e ENUM('x','Ä') COLLATE utf8mb4_0900_bin)",
    "CREATE TABLE d.like_plain LIKE d.plain",
    "ALTER TABLE d.plain ADD added VARCHAR(20) CHARSET utf8mb4 COLLATE utf8mb4_0900_ai_ci DEFAULT 'COLLATE', \
     ADD KEY (a)",
    "ALTER TABLE d.like_plain CONVERT TO CHARACTER SET utf8mb4",
    "CREATE VIEW d.seen AS SELECT a COLLATE utf8mb4_0900_bin AS a FROM d.plain",
];

fn channel(source: &Server, target: &Server) -> DaemonBuilder {
    // The TLS of 5.7 has no cipher suite that is still in use.
    Daemon::builder(source, target).set("target.tls", "disabled")
}

fn map(pairs: &[(&str, &str)]) -> Table {
    pairs.iter().map(|&(from, to)| (from.to_owned(), to.into())).collect()
}

/// Rows by several clients, with values that the collations order differently.
async fn write(source: &Server, from: u32) {
    let mut clients = tokio::task::JoinSet::new();
    let opts = source.opts();
    for client in 0..3 {
        let opts = opts.clone();
        clients.spawn(async move {
            use mysql_async::prelude::Queryable as _;
            let mut conn = mysql_async::Conn::new(opts).await.expect("connects");
            for number in from..from + 60 {
                let id = number * 3 + client;
                let text = ["a", "Ä", "ß", "ss", "😀", "Z "][(id % 6) as usize];
                for statement in [
                    format!("INSERT INTO d.plain VALUES ({id},'{text}{id}',REPEAT('{text}',9),'é','{text}')"),
                    format!("INSERT INTO d.keyed VALUES ('{text}{id}',{id})"),
                    format!("INSERT INTO named.bag VALUES ('{text}','x')"),
                    format!("UPDATE d.keyed SET v=v+1, k='Ü{id}' WHERE v={} LIMIT 1", id.saturating_sub(7)),
                    format!("UPDATE d.plain SET a=NULL WHERE id={}", id.saturating_sub(11)),
                    format!("DELETE FROM d.plain WHERE id={}", id.saturating_sub(20)),
                ] {
                    conn.query_drop(&statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
                }
            }
            conn.disconnect().await.expect("disconnects");
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_lacks_the_collations_gets_others() {
    for (of_source, of_target) in
        [(Version::Newest, Version::V57), (Version::V8031, Version::MariaDb)]
    {
        let (source, target) =
            Server::both(|| of_source.start("source", &[]), || of_target.start("target", &[]));
        let daemon = channel(&source, &target).build();
        daemon.start_again();
        source.exec(DEFINITIONS[0]).await;
        wait_state(&daemon, 0, "failed").await;
        let view = daemon.status();
        let why = view["channels"][0]["last_error"]["message"].as_str().expect("why").to_owned();
        for word in ["utf8mb4_0900_ai_ci", "applier.collation_map", "csa-daemon reload"] {
            assert!(why.contains(word), "{word} is missing: {why}");
        }
        // The key resumes the channel at the statement that stopped it.
        daemon.set("applier.collation_map", map(&MAPPED[..2]));
        daemon.write_config();
        daemon.commanded(&["reload"]);
        daemon.commanded(&["restart"]);
        for definition in &DEFINITIONS[1..4] {
            source.exec(definition).await;
        }
        daemon.wait_drained(&source, &target, DRAIN).await;
        // One that the map lacks: the server's own error.
        source.exec(DEFINITIONS[4]).await;
        wait_state(&daemon, 0, "failed").await;
        let view = daemon.status();
        let why = view["channels"][0]["last_error"]["message"].as_str().expect("why").to_owned();
        assert!(why.contains("1273") && why.contains("applier.collation_map"), "{why}");
        daemon.set("applier.collation_map", map(&MAPPED));
        daemon.write_config();
        daemon.commanded(&["reload"]);
        daemon.commanded(&["restart"]);
        for definition in &DEFINITIONS[5..] {
            source.exec(definition).await;
        }
        daemon.wait_drained(&source, &target, DRAIN).await;

        tokio::join!(write(&source, 10), end(&daemon, Duration::from_millis(500), true));
        tokio::join!(write(&source, 100), end(&daemon, Duration::from_millis(300), true));
        daemon.wait_drained(&source, &target, DRAIN).await;
        let compared = Compare::contents().run(&source, &target).await;
        let compared = compared.unwrap_or_else(|difference| panic!("{difference}"));
        assert!(compared.rows > 500, "{compared:?}");
        let collation = |column: &str| {
            format!("SELECT COLLATION_NAME FROM information_schema.COLUMNS WHERE {column}")
        };
        for (column, expected) in [
            (
                "TABLE_SCHEMA='d' AND TABLE_NAME='plain' AND COLUMN_NAME='a'",
                "utf8mb4_unicode_520_ci",
            ),
            (
                "TABLE_SCHEMA='d' AND TABLE_NAME='plain' AND COLUMN_NAME='added'",
                "utf8mb4_unicode_520_ci",
            ),
            ("TABLE_SCHEMA='d' AND TABLE_NAME='plain' AND COLUMN_NAME='c'", "latin1_swedish_ci"),
            ("TABLE_SCHEMA='d' AND TABLE_NAME='keyed' AND COLUMN_NAME='k'", "utf8mb4_bin"),
            ("TABLE_SCHEMA='named' AND TABLE_NAME='bag' AND COLUMN_NAME='a'", "utf8mb4_bin"),
        ] {
            assert_eq!(target.value::<String>(&collation(column)).await, expected, "{column}");
        }
        // The text in the comment and in the default is none of a collation's.
        let comment =
            "SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_NAME='plain'";
        assert_eq!(target.value::<String>(comment).await, "COLLATE utf8mb4_0900_ai_ci");
        verify(&daemon, false);
        is_found(&source, &target, &daemon).await;
        assert!(daemon.terminate().success());
    }
}

/// `verify` finds a difference, and two values that only the target's collation takes for one stop the
/// channel.
async fn is_found(source: &Server, target: &Server, daemon: &Daemon) {
    target.exec("UPDATE d.keyed SET v=-1 ORDER BY k LIMIT 1").await;
    let password = daemon.config_path().with_file_name("source.pw");
    let password = password.display().to_string();
    let arguments = [
        "verify",
        "--source-user",
        "admin",
        "--source-password-file",
        &password,
        "--table",
        "d.keyed",
    ];
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.error);
    source.exec("CREATE TABLE d.twins (k VARCHAR(9) PRIMARY KEY)").await;
    // The collations of Unicode 9.0 count trailing spaces, those before do not.
    source.exec("INSERT INTO d.twins VALUES ('a'), ('a ')").await;
    wait_state(daemon, 0, "failed").await;
    let view = daemon.status();
    let why = view["channels"][0]["last_error"]["message"].as_str().expect("why").to_owned();
    assert!(why.contains("1062"), "{why}");
    target.exec("ALTER TABLE d.twins DROP PRIMARY KEY").await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(source, target, DRAIN).await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM d.twins").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_the_target_can_not_follow_is_refused() {
    let (source, target) =
        Server::both(|| Version::Newest.start("source", &[]), || Version::V57.start("target", &[]));
    for (to, words) in [
        ("utf8mb4_0900_bin", "has no collation utf8mb4_0900_bin of utf8mb4"),
        ("latin1_bin", "not of the same character set"),
        ("utf8mb4 bin", "is not the name of a collation"),
    ] {
        let builder = || {
            let pairs = map(&[("utf8mb4_0900_ai_ci", to)]);
            channel(&source, &target).set("applier.collation_map", pairs)
        };
        let daemon = builder().build();
        let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
        said.refused(2, &[]);
        let all = format!("{}{}", said.out, said.error);
        assert!(all.contains("applier.collation_map") && all.contains(words), "{all}");
    }
}
