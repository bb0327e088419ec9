//! Tables that refer to each other, and changes of unique keys while rows change.

use std::time::Duration;

use csa_tests::{Clients, Daemon, Server, compare};
use rand::Rng as _;
use rand::rngs::StdRng;

use crate::DRAIN;
use crate::conflicts::{fill, prepare_filler, row_images};

pub(crate) async fn prepare(source: &Server) {
    source.exec("CREATE DATABASE f").await;
    prepare_filler(source).await;
    for table in [
        "parent (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE, v INT)",
        "firm (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES parent (id))",
        "gone (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES parent (id) \
         ON DELETE CASCADE ON UPDATE CASCADE)",
        "lost (id INT PRIMARY KEY, p INT UNIQUE, v INT, FOREIGN KEY (p) REFERENCES parent (id) \
         ON DELETE SET NULL ON UPDATE CASCADE)",
        "coded (id INT PRIMARY KEY, code VARCHAR(9), v INT, FOREIGN KEY (code) \
         REFERENCES parent (code) ON UPDATE CASCADE)",
        "below_gone (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES gone (id) \
         ON DELETE CASCADE)",
        "below_firm (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES firm (id))",
        // No cycles: MySQL 9.7 logs a row that a cascade comes back to twice, and no replica of it,
        // MySQL's own included, finds the row the second time.
        "tree (id INT PRIMARY KEY, p INT, v INT, CHECK (p < id), FOREIGN KEY (p) \
         REFERENCES tree (id) ON DELETE CASCADE)",
        "simple (id INT PRIMARY KEY, v INT)",
        "simple_child (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES simple (id))",
    ] {
        let mut conn = source.conn().await;
        mysql_async::prelude::Queryable::query_drop(&mut conn, "USE f").await.expect("uses");
        let create = format!("CREATE TABLE {table}");
        mysql_async::prelude::Queryable::query_drop(&mut conn, create).await.expect(table);
    }
}

/// A child leaves its parent, which is then deleted, in row images without the parent's key.
pub(crate) async fn move_away(source: &Server, target: &Server, daemon: &Daemon) {
    for new in ["2", "NULL"] {
        source.exec("INSERT INTO f.simple VALUES (1,0),(2,0)").await;
        source.exec("INSERT INTO f.simple_child VALUES (1,1,0)").await;
        // Nothing in the group shows the reference.
        daemon.wait_drained(source, target, DRAIN).await;
        source
            .exec(&format!(
                "SET binlog_row_image=MINIMAL; BEGIN; UPDATE f.simple_child SET p={new}; \
                 DELETE FROM f.simple WHERE id=1; COMMIT"
            ))
            .await;
        daemon.wait_drained(source, target, DRAIN).await;
        source.exec("DELETE FROM f.simple_child; DELETE FROM f.simple").await;
    }
}

/// A child table and the table it refers to.
const CHILDREN: [(&str, &str); 8] = [
    ("firm", "parent"),
    ("gone", "parent"),
    ("lost", "parent"),
    ("below_gone", "gone"),
    ("below_firm", "firm"),
    ("tree", "tree"),
    ("simple_child", "simple"),
    ("simple_child", "simple"),
];

/// Inserts, moves and deletes parents and children, separately and together.
pub(crate) fn related(_: u32, random: &mut StdRng) -> Vec<String> {
    let mut statements = Vec::new();
    for _ in 0..random.random_range(1..4) {
        change(random, &mut statements);
    }
    fill(random, &mut statements);
    statements
}

fn change(random: &mut StdRng, statements: &mut Vec<String>) {
    let mut number = || random.random_range(1..25);
    let (id, p, other, v) = (number(), number(), number(), number());
    let (child, parent) = CHILDREN[random.random_range(0..CHILDREN.len())];
    // No two equal values: cascading from one to the other stops MySQL's own replicas too.
    let code = ["a", "b", "c", "d", "e", "f", "g", "h", "ä b", "ß"][random.random_range(0..10)];
    let mut add = |statement| statements.push(statement);
    match random.random_range(0..16) {
        0 | 1 => add(format!("INSERT INTO f.{parent} (id,v) VALUES ({p},{v})")),
        2 | 3 => add(format!("INSERT INTO f.{child} (id,p,v) VALUES ({id},{p},{v})")),
        4 => {
            add(format!("INSERT INTO f.{parent} (id,v) VALUES ({p},{v})"));
            add(format!("INSERT INTO f.{child} (id,p,v) VALUES ({id},{p},{v})"));
        }
        5 => add(format!("UPDATE f.{child} SET p={other} WHERE p={p} LIMIT 2")),
        6 => add(format!("UPDATE f.{child} SET p=NULL WHERE id={id}")),
        7 => add(format!("UPDATE f.{child} SET v={v} WHERE id={id}")),
        8 => add(format!("UPDATE f.{parent} SET v={v} WHERE id={p}")),
        9 => add(format!("UPDATE f.{parent} SET id={other} WHERE id={p}")),
        10 => add(format!("DELETE FROM f.{child} WHERE id={id}")),
        11 => add(format!("DELETE FROM f.{parent} WHERE id={p}")),
        12 => {
            // All children of a parent, and then the parent.
            for (child, _) in CHILDREN.iter().filter(|(_, of)| *of == parent) {
                add(format!("DELETE FROM f.{child} WHERE p={p}"));
            }
            add(format!("DELETE FROM f.{parent} WHERE id={p}"));
        }
        13 => {
            add(format!("UPDATE f.{child} SET p={other} WHERE p={p}"));
            add(format!("DELETE FROM f.{parent} WHERE id={p}"));
        }
        14 => add(format!("UPDATE f.parent SET code='{code}' WHERE id={p}")),
        _ => add(format!(
            "INSERT INTO f.coded VALUES ({id},'{code}',{v}) ON DUPLICATE KEY UPDATE code='{code}'"
        )),
    }
}

/// Starts a channel for a table of tokens that are unique by chance.
async fn with_tokens() -> (Server, Server, Daemon) {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE o").await;
    source.exec("CREATE TABLE o.t (id INT PRIMARY KEY, token VARCHAR(9))").await;
    source.exec("CREATE TABLE o.wide (id INT PRIMARY KEY AUTO_INCREMENT, c TEXT)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    (source, target, daemon)
}

/// A client's token moves from row to row; wide rows make many groups.
fn pass_on(client: u32, random: &mut StdRng) -> Vec<String> {
    let id = client * 100 + random.random_range(0..100);
    vec![
        format!("DELETE FROM o.t WHERE token='T{client}'"),
        "COMMIT".to_owned(),
        "INSERT INTO o.wide (c) VALUES (REPEAT('x',20000))".to_owned(),
        "BEGIN".to_owned(),
        format!("INSERT INTO o.t VALUES ({id},'t{client}')"),
    ]
}

async fn pass_tokens_on(source: &Server) {
    let passed = Clients::run(source, 6, |_| "DO 1", pass_on, Duration::from_millis(2500)).await;
    assert!(passed > 100, "{passed}");
}

const TAKEN_APART: &str = "applying its transactions one by one";

/// The target forbids what the source only happens to avoid.
#[tokio::test(flavor = "multi_thread")]
async fn a_unique_index_that_only_the_target_has_keeps_the_order() {
    let (source, target, daemon) = with_tokens().await;
    daemon.kill9();
    target.exec("ALTER TABLE o.t ADD UNIQUE (token)").await;
    pass_tokens_on(&source).await;
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("ALTER TABLE o.t DROP INDEX token").await;
    compare(&source, &target).await;
    let log = daemon.log();
    for sign in ["trying again", TAKEN_APART] {
        assert!(!log.contains(sign), "{sign}: the index was not seen\n{}", daemon.log_tail());
    }
}

/// Nothing tells the channel of the index but the groups that the target refuses for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_unique_index_added_on_the_target_is_seen_after_the_refusals_that_it_causes() {
    let (source, target, daemon) = with_tokens().await;
    source.exec("INSERT INTO o.t VALUES (-1,'known')").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("ALTER TABLE o.t ADD UNIQUE (token)").await;
    let taken_apart = || daemon.log().matches(TAKEN_APART).count();
    let pass_on = async || {
        daemon.commanded(&["pause"]);
        pass_tokens_on(&source).await;
        daemon.commanded(&["resume"]);
        daemon.wait_drained(&source, &target, DRAIN).await;
    };
    // Mostly in the first round: a group may also meet the lock of the row instead.
    for _ in 0..20 {
        pass_on().await;
        if taken_apart() > 0 {
            break;
        }
    }
    let before = taken_apart();
    pass_on().await;
    let after = taken_apart();
    target.exec("ALTER TABLE o.t DROP INDEX token").await;
    compare(&source, &target).await;
    let log = daemon.log();
    assert!(log.contains("reading the target's definitions again"), "{}", daemon.log_tail());
    assert!(before > 0, "the index was in nobody's way");
    assert_eq!(before, after, "it was not seen\n{}", daemon.log_tail());
}

/// The keys by which two rows conflict change while the rows change.
#[tokio::test(flavor = "multi_thread")]
async fn keys_change_in_the_middle_of_a_load() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE a").await;
    source.exec("CREATE TABLE a.t (id INT PRIMARY KEY, u VARCHAR(9), v INT)").await;
    let daemon = Daemon::builder(&source, &target).start();
    let changing = |_, random: &mut StdRng| {
        let mut number = || random.random_range(1..40);
        let (id, other, v) = (number(), number(), number());
        let u = ["a", "A", "á", "b", "B", "c", "C", "d", "e", "f"][random.random_range(0..10)];
        vec![match random.random_range(0..6) {
            0 => format!("DELETE FROM a.t WHERE id={id}"),
            1 => format!("DELETE FROM a.t WHERE u='{u}'"),
            2 => format!("UPDATE a.t SET id={other} WHERE id={id}"),
            3 => format!("UPDATE a.t SET u='{u}' WHERE id={id}"),
            _ => format!("REPLACE INTO a.t (id,u,v) VALUES ({id},'{u}',{v})"),
        }]
    };
    let clients = Clients::start(&source, 4, row_images, changing);
    let empty = "DELETE FROM a.t";
    for round in 0..12 {
        for statement in [
            empty,
            "ALTER TABLE a.t ADD UNIQUE u (u)",
            "ALTER TABLE a.t MODIFY u VARCHAR(9) COLLATE utf8mb4_bin",
            "ALTER TABLE a.t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
            empty,
            "ALTER TABLE a.t DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
            "ALTER TABLE a.t ADD UNIQUE prefix (u(1))",
            "ALTER TABLE a.t MODIFY u VARCHAR(9) COLLATE utf8mb4_0900_ai_ci",
            "ALTER TABLE a.t DROP INDEX u",
            "ALTER TABLE a.t DROP INDEX prefix",
            "RENAME TABLE a.t TO a.moved; RENAME TABLE a.moved TO a.t",
        ] {
            try_statement(&source, statement).await;
        }
        if round == 6 {
            daemon.kill9();
            daemon.start_again();
        }
    }
    let committed = clients.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(committed > 200, "{committed}");
    let log = daemon.log();
    println!(
        "{committed} transactions, {} statements since the kill, {} groups taken apart",
        daemon.status()["channels"][0]["applied_statements_total"],
        log.matches("applying its transactions one by one").count()
    );
}

/// Fails if the load has created duplicates; the next round tries again.
async fn try_statement(server: &Server, statement: &str) {
    let mut conn = server.conn().await;
    let outcome = mysql_async::prelude::Queryable::query_drop(&mut conn, statement).await;
    if let Err(error) = outcome {
        assert!(matches!(error, mysql_async::Error::Server(_)), "{statement}: {error}");
    }
    let _ = conn.disconnect().await;
    tokio::time::sleep(Duration::from_millis(15)).await;
}
