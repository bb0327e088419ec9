//! Parents whose key is changed to one that the collation calls equal. InnoDB compares bytes: it
//! cascades anyway (before 9.6, and with `innodb_native_foreign_keys`), and does not log the cascade.
//! Without a cascade it refuses the change while a row refers to the key.

use csa_tests::{Compare, Daemon, Server, compare};

use crate::{DRAIN, wait_state};

const NATIVE: [&str; 2] =
    ["--innodb-native-foreign-keys=ON", "--restrict-fk-on-non-standard-key=OFF"];

/// Statements of one group each: their order matters, and no key shows it.
const GROUPS: [&[&str]; 4] = [
    &[
        "INSERT INTO f.child VALUES (3,'de')",
        "UPDATE f.parent SET id='DE' WHERE id='de'",
        "INSERT INTO f.child VALUES (4,'de')",
    ],
    &["INSERT INTO f.lost VALUES (3,'a')", "UPDATE f.coded SET code='a ' WHERE code='a'"],
    &["INSERT INTO f.loose VALUES (3,1)", "UPDATE f.parent SET n=2 WHERE n=1"],
    &["INSERT INTO f.halved VALUES (3,-0e0)", "UPDATE f.numbers SET d=0e0 WHERE id=1"],
];

/// Transactions in which rows let go of a key before it changes. Merged, their updates must keep that order.
const TRANSACTIONS: [&str; 4] = [
    "BEGIN; UPDATE f.bound SET p=NULL WHERE id=1; UPDATE f.strict SET id='DE' WHERE id='de'; \
     UPDATE f.bound SET p='DE' WHERE id=1; COMMIT",
    "BEGIN; UPDATE f.strict SET v=1 WHERE id='it'; UPDATE f.bound SET p='it' WHERE p='fr'; \
     UPDATE f.strict SET id='FR' WHERE id='fr'; COMMIT",
    "BEGIN; UPDATE f.whole SET p=NULL WHERE id=1; UPDATE f.halves SET code='dz' WHERE code='dx'; \
     UPDATE f.whole SET p='dz' WHERE id=1; COMMIT",
    "BEGIN; UPDATE f.loose SET p=NULL WHERE id=1; UPDATE f.fixed SET id=x'02000000'; \
     UPDATE f.loose SET p=x'02000000' WHERE id=1; COMMIT",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_rows_refuse_to_lose_changes_once_they_let_go_of_it() {
    let (source, images) = Server::pair(&NATIVE, &NATIVE);
    let statements = Server::start("target", &NATIVE);
    source.exec("CREATE DATABASE f").await;
    for table in [
        "strict (id VARCHAR(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT)",
        "bound (id INT PRIMARY KEY, p VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, \
         FOREIGN KEY (p) REFERENCES strict (id))",
        // The reference is to the second key: the first one stays when the code changes.
        "halves (id INT PRIMARY KEY, code VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, \
         UNIQUE a (code(1)), UNIQUE b (code))",
        "whole (id INT PRIMARY KEY, p VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, \
         FOREIGN KEY (p) REFERENCES halves (code))",
        // Images leave out the zeros of BINARY only.
        "fixed (id BINARY(4) PRIMARY KEY)",
        "loose (id INT PRIMARY KEY, p VARBINARY(4), FOREIGN KEY (p) REFERENCES fixed (id))",
    ] {
        source.exec(&format!("USE f; CREATE TABLE {table}")).await;
    }
    source.exec("INSERT INTO f.strict VALUES ('de',0), ('fr',0), ('it',0)").await;
    source.exec("INSERT INTO f.bound VALUES (1,'de'), (2,'fr')").await;
    source.exec("INSERT INTO f.halves VALUES (1,'dx'); INSERT INTO f.whole VALUES (1,'dx')").await;
    source
        .exec("INSERT INTO f.fixed VALUES (x'01'); INSERT INTO f.loose VALUES (1,x'01000000')")
        .await;
    let daemon = Daemon::builder(&source, &images)
        .channel("statements", &source, &statements)
        .set("applier.executor", "sql")
        .start();
    for transaction in TRANSACTIONS {
        source.exec(transaction).await;
    }
    for (channel, target) in [("test", &images), ("statements", &statements)] {
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        compare(&source, target).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_changed_to_an_equal_one_cascades_in_the_order_of_the_source() {
    let (source, images) = Server::pair(&NATIVE, &NATIVE);
    let statements = Server::start("target", &NATIVE);
    source.exec("CREATE DATABASE f").await;
    for table in [
        "parent (id VARCHAR(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, n INT, KEY (n))",
        "coded (id INT PRIMARY KEY, code VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE)",
        "numbers (id INT PRIMARY KEY, d DOUBLE UNIQUE)",
        "child (id INT PRIMARY KEY, p VARCHAR(9) COLLATE utf8mb4_0900_ai_ci, \
         FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE CASCADE)",
        "lost (id INT PRIMARY KEY, p VARCHAR(9) COLLATE utf8mb4_general_ci, \
         FOREIGN KEY (p) REFERENCES coded (code) ON UPDATE SET NULL)",
        // Not a unique key, so no key shows the order.
        "loose (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (n) ON UPDATE CASCADE)",
        "halved (id INT PRIMARY KEY, p DOUBLE, \
         FOREIGN KEY (p) REFERENCES numbers (d) ON UPDATE CASCADE)",
    ] {
        source.exec(&format!("USE f; CREATE TABLE {table}")).await;
    }
    source.exec("INSERT INTO f.parent VALUES ('de',1), ('fr',7)").await;
    source.exec("INSERT INTO f.coded VALUES (1,'a'); INSERT INTO f.numbers VALUES (1,-0e0)").await;
    let daemon = Daemon::builder(&source, &images)
        .channel("statements", &source, &statements)
        .set("applier.executor", "sql")
        .start();
    let both = [("test", &images), ("statements", &statements)];
    for (channel, target) in both {
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        daemon.commanded(&["pause", "--channel", channel]);
    }
    for statement in GROUPS.into_iter().flatten() {
        source.exec(statement).await;
    }
    let cascaded = "SELECT CONCAT_WS(' ', (SELECT GROUP_CONCAT(HEX(p) ORDER BY id) FROM f.child), \
         (SELECT COUNT(*) FROM f.lost WHERE p IS NULL), (SELECT p FROM f.loose), \
         (SELECT p FROM f.halved))";
    let expected: String = source.value(cascaded).await;
    assert_eq!(expected, "4445,6465 1 2 0", "the server cascades changes of bytes");
    for (channel, target) in both {
        daemon.commanded(&["resume", "--channel", channel]);
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        assert_eq!(target.value::<String>(cascaded).await, expected, "{channel}");
        compare(&source, target).await;
    }
}

/// A row that a cascade deletes refers to another parent, which is deleted next. While the row is there, the target
/// refuses that, and with `exec_mode = "idempotent"` its server passes over the refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_is_deleted_after_the_cascade_that_lets_go_of_it() {
    let (source, idempotent) = Server::pair(&NATIVE[..1], &NATIVE[..1]);
    let strict = Server::start("target", &NATIVE[..1]);
    source.exec("CREATE DATABASE f; SET GLOBAL cte_max_recursion_depth=10000").await;
    for table in [
        "first (id INT PRIMARY KEY)",
        "second (id INT PRIMARY KEY)",
        "child (id INT PRIMARY KEY, a INT, b INT, \
         FOREIGN KEY (a) REFERENCES first (id) ON DELETE CASCADE, \
         FOREIGN KEY (b) REFERENCES second (id))",
        "filler (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
    ] {
        source.exec(&format!("USE f; CREATE TABLE {table}")).await;
    }
    source.exec("INSERT INTO f.first VALUES (1),(2),(3); INSERT INTO f.second TABLE f.first").await;
    source.exec("INSERT INTO f.child SELECT id, id, id FROM f.first").await;
    let daemon = Daemon::builder(&source, &idempotent)
        .set("applier.exec_mode", "idempotent")
        .channel("strict", &source, &strict)
        .start();
    let both = [("test", &idempotent), ("strict", &strict)];
    for (channel, target) in both {
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        daemon.commanded(&["pause", "--channel", channel]);
    }
    // Two of these do not fit into a group, so the second parent is deleted beside the filler before the first.
    let filler = "INSERT INTO f.filler (v) \
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2500) SELECT i FROM n";
    for id in 1..=3 {
        source.exec(&format!("BEGIN; {filler}; DELETE FROM f.first WHERE id={id}; COMMIT")).await;
        source.exec(&format!("BEGIN; DELETE FROM f.second WHERE id={id}; {filler}; COMMIT")).await;
    }
    for (channel, target) in both {
        daemon.commanded(&["resume", "--channel", channel]);
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        compare(&source, target).await;
    }
    assert_eq!(strict.value::<u32>("SELECT COUNT(*) FROM f.child").await, 0, "nothing cascaded");
    let log = daemon.log();
    let sign = "applying its transactions one by one";
    assert!(!log.contains(sign), "the cascade was not seen\n{}", daemon.log_tail());
}

/// Sources before 9.6 log no cascade. MySQL 9.7 makes it again, above the storage engine, where it fires triggers
/// and misses rows; with row images, InnoDB makes it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn cascades_of_an_older_source_are_followed_or_refused() {
    let (source, images) = Server::both(
        || Server::start_version("source", "8.0.31", &[]),
        || Server::start("target", &[]),
    );
    let (native, statements) =
        (Server::start("target", &NATIVE[..1]), Server::start("target", &[]));
    let targets = [("test", &images), ("native", &native), ("statements", &statements)];
    for (_, target) in targets {
        target.exec("SET GLOBAL enable_cascade_triggers=ON").await;
    }
    let daemon = Daemon::builder(&source, &images)
        .channel("native", &source, &native)
        .set("applier.executor", "sql")
        .channel("statements", &source, &statements)
        .set("applier.executor", "sql")
        .start();
    source.exec("CREATE DATABASE f; CREATE TABLE f.r (id INT PRIMARY KEY)").await;
    let child = |name: &str, parent: &str| {
        format!(
            "CREATE TABLE f.{name} (id INT PRIMARY KEY, p INT, \
             FOREIGN KEY (p) REFERENCES f.{parent} (id) ON DELETE CASCADE ON UPDATE CASCADE)"
        )
    };
    source.exec(&format!("{}; {}", child("m", "r"), child("tg", "m"))).await;
    source
        .exec(
            "INSERT INTO f.r VALUES (1),(2),(3); INSERT INTO f.m VALUES (10,1),(11,1),(20,2),(21,2),(30,3); \
             INSERT INTO f.tg SELECT id*10+n, id FROM f.m, (SELECT 0 n UNION SELECT 1) q",
        )
        .await;
    for (channel, target) in targets {
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        let fires = "CREATE TABLE f.log (id INT PRIMARY KEY); CREATE TRIGGER f.fires AFTER DELETE ON f.m \
            FOR EACH ROW INSERT INTO f.log VALUES (OLD.id)";
        target.exec(fires).await;
    }
    source.exec("DELETE FROM f.r WHERE id=1; UPDATE f.r SET id=4 WHERE id=3").await;
    let equal = async |target: &Server| {
        let compared = Compare::contents().ignore_table("f.log").run(&source, target).await;
        compared.unwrap_or_else(|difference| panic!("{difference}"));
        assert_eq!(target.value::<u32>("SELECT COUNT(*) FROM f.log").await, 0, "no trigger fires");
    };
    for (channel, target) in targets {
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        equal(target).await;
    }
    source.exec(&child("dp", "tg")).await;
    source.exec("INSERT INTO f.dp SELECT id*10, id FROM f.tg").await;
    source.exec("DELETE FROM f.r WHERE id=2").await;
    for (channel, target) in &targets[..2] {
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        equal(target).await;
    }
    wait_state(&daemon, 2, "failed").await;
    let why = daemon.status()["channels"][2]["last_error"]["message"].to_string();
    let password = daemon.config_path().with_file_name("admin.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    let as_admin = ["--source-user", "admin", "--source-password-file", &password];
    let arguments = [&["check", "--connect"], &as_admin[..]].concat();
    let checked = tokio::task::block_in_place(|| daemon.command(&arguments));
    let warning = "a DELETE cascades through three tables or more";
    assert_eq!(checked.out.matches(warning).count(), 1, "{checked:?}");
    for words in ["a DELETE in f.r cascades through m, tg, dp", "innodb_native_foreign_keys=ON"] {
        assert!(why.contains(words), "{why}");
    }
}
