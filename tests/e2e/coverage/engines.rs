//! Tables that no ROLLBACK restores: MyISAM, MEMORY, CSV, ARCHIVE and MERGE.

use std::time::Duration;

use csa_tests::{Compare, Compared, Daemon, Server, compare, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

use super::{Pair, run};
use crate::versions::Version;
use crate::{DRAIN, wait_state};

const TABLES: [&str; 12] = [
    "CREATE TABLE my (id INT PRIMARY KEY, v INT, t TEXT) ENGINE=MyISAM",
    "CREATE TABLE keyless (id INT, v INT) ENGINE=MyISAM",
    "CREATE TABLE in_memory (id INT PRIMARY KEY, v INT) ENGINE=MEMORY",
    "CREATE TABLE csv (id INT NOT NULL, v VARCHAR(20) NOT NULL) ENGINE=CSV",
    "CREATE TABLE archived (id INT, v VARCHAR(20)) ENGINE=ARCHIVE",
    "CREATE TABLE m1 (id INT, KEY (id)) ENGINE=MyISAM",
    "CREATE TABLE m2 (id INT, KEY (id)) ENGINE=MyISAM",
    "CREATE TABLE merged (id INT, KEY (id)) ENGINE=MERGE UNION=(m1, m2) INSERT_METHOD=LAST",
    "CREATE TABLE hole (id INT) ENGINE=BLACKHOLE",
    "CREATE TABLE checked (id INT PRIMARY KEY, c TIMESTAMP, CHECK (c > '2007-01-01 00:00:01')) \
     ENGINE=MyISAM",
    "CREATE TABLE inno (id INT PRIMARY KEY, v INT)",
    // Tables that have another engine on the targets.
    "CREATE TABLE other (id INT PRIMARY KEY, v INT)",
];

const ROWS: [&str; 26] = [
    "INSERT INTO my VALUES (1,1,'a'),(2,2,REPEAT('b', 20000)),(3,3,NULL)",
    "INSERT INTO inno VALUES (1,1),(2,2)",
    "INSERT INTO keyless VALUES (1,1),(1,1),(2,2)",
    "INSERT INTO in_memory VALUES (1,1),(2,2),(3,3)",
    "INSERT INTO csv VALUES (1,'a\"b'),(2,''),(3,'c')",
    "INSERT INTO archived VALUES (1,'a'),(1,'a'),(NULL,NULL)",
    "INSERT INTO m1 VALUES (1),(2)",
    "INSERT INTO merged VALUES (3),(4)",
    "INSERT INTO hole VALUES (1)",
    "UPDATE my SET v=v+1",
    "DELETE FROM keyless WHERE id=1 LIMIT 1",
    "UPDATE in_memory SET v=9 WHERE id=2",
    "DELETE FROM csv WHERE id=2",
    "UPDATE merged SET id=id+10 WHERE id IN (1,4)",
    "UPDATE my, keyless SET my.v=7, keyless.v=8 WHERE my.id=keyless.id",
    "REPLACE INTO my VALUES (1,5,'e'),(6,6,'f')",
    "INSERT INTO my SELECT id + 100, v, t FROM my",
    "SET time_zone='+03:00'",
    "INSERT INTO checked VALUES (1,'2007-01-01 00:00:02')",
    "SET time_zone='+00:00'",
    "INSERT INTO checked VALUES (2,'2007-01-01 00:00:02')",
    "UPDATE inno SET v=v*2",
    "ALTER TABLE keyless ADD COLUMN w INT DEFAULT 4",
    "INSERT INTO keyless VALUES (5,5,5)",
    "ALTER TABLE m1 COMMENT 'same'",
    "DELETE FROM in_memory WHERE id=3",
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn tables_of_every_engine() {
    let modes = [
        ("grouped", "own", "row-image"),
        ("one-to-one", "source", "row-image"),
        ("grouped", "mirror", "row-image"),
        ("grouped", "own", "sql"),
    ];
    let (source, targets) = std::thread::scope(|scope| {
        let source = scope.spawn(|| Server::start("source", &[]));
        let started = modes.map(|_| scope.spawn(|| Server::start("target", &[])));
        let targets = started.map(|target| target.join().expect("starts").borrowed());
        (source.join().expect("starts").borrowed(), targets)
    });
    let mut builder = Daemon::builder(&source, &targets[0]);
    let names = ["test", "second", "third", "fourth"];
    for ((target, name), (commit, gtids, executor)) in targets.iter().zip(names).zip(modes) {
        if name != "test" {
            builder = builder.channel(name, &source, target);
        }
        builder = builder
            .set("applier.commit", commit)
            .set("applier.target_gtids", gtids)
            .set("applier.executor", executor);
    }
    let daemon = builder.start();
    let drained = async || {
        for (target, name) in targets.iter().zip(names) {
            daemon.wait_channel_drained(name, &source, target, DRAIN).await;
        }
    };
    source.exec("CREATE DATABASE c").await;
    run(&source, TABLES).await;
    drained().await;
    for (target, (_, gtids, _)) in targets.iter().zip(modes) {
        let keeps_gtids = gtids == "source";
        let quietly = if keeps_gtids { "SET sql_log_bin=0;" } else { "" };
        target.exec(&format!("{quietly}ALTER TABLE c.other ENGINE=MyISAM")).await;
    }
    daemon.kill9();
    daemon.start_again();
    run(&source, ROWS).await;
    // Several statements of one GTID.
    run(
        &source,
        [
            "BEGIN",
            "INSERT INTO other VALUES (1,1),(2,2),(3,3)",
            "SAVEPOINT a",
            "UPDATE other SET v=v+1 WHERE id < 3",
            "DELETE FROM other WHERE id=2",
            "COMMIT",
        ],
    )
    .await;
    drained().await;
    let equal = async |target: &Server, what: &str| -> Compared {
        let compared = Compare::contents().run(&source, target).await;
        compared.unwrap_or_else(|difference| panic!("{what}: {difference}"))
    };
    for (target, name) in targets.iter().zip(names) {
        let compared = equal(target, name).await;
        assert!(compared.rows > 25, "{name}: {compared:?}");
        let left: u64 = target.value("SELECT COUNT(*) FROM csa.statement").await;
        assert_eq!(left, 0, "{name}");
    }
    let same = "SELECT @@GLOBAL.gtid_executed";
    assert_eq!(targets[1].value::<String>(same).await, source.value::<String>(same).await);

    // Both kinds in one transaction, which the server accepts only separately.
    run(
        &source,
        [
            "BEGIN",
            "INSERT INTO inno VALUES (10,1)",
            "INSERT INTO other VALUES (10,1),(11,1)",
            "UPDATE inno SET v=2 WHERE id=10",
            "UPDATE other SET v=2 WHERE id=10",
            "COMMIT",
        ],
    )
    .await;
    for place in [0, 2, 3] {
        daemon.wait_channel_drained(names[place], &source, &targets[place], DRAIN).await;
        equal(&targets[place], names[place]).await;
    }
    // Under the source's GTID they can't be separated.
    wait_state(&daemon, 1, "failed").await;
    let why = daemon.status()["channels"][1]["last_error"]["message"].to_string();
    assert!(why.contains("1785") && why.contains("ENGINE=InnoDB"), "{why}");
    targets[1].exec("SET sql_log_bin=0; ALTER TABLE c.other ENGINE=InnoDB").await;
    daemon.commanded(&["restart", "--channel", "second"]);
    drained().await;
    equal(&targets[1], names[1]).await;

    // A source that has lost its MEMORY tables logs that.
    source.restart();
    run(&source, ["INSERT INTO in_memory VALUES (7,7)", "UPDATE in_memory SET v=8"]).await;
    drained().await;
    for (target, name) in targets.iter().zip(names) {
        equal(target, name).await;
    }
    // The target logs its own loss before the next rows.
    source.exec("DELETE FROM c.in_memory").await;
    drained().await;
    targets[1].restart();
    source.exec("INSERT INTO c.in_memory VALUES (8,8)").await;
    drained().await;
    equal(&targets[1], names[1]).await;

    // The GTID of several rows does not show that all of them are there, and that of one row does.
    let mut reader = targets[1].conn().await;
    reader.query_drop("LOCK TABLES c.my READ").await.expect("locks");
    source.exec("INSERT INTO c.my VALUES (50,5,''),(51,5,'')").await;
    eventually("the rows wait", DRAIN, async || waits(&targets[1]).await).await;
    daemon.kill9();
    reader.query_drop("UNLOCK TABLES").await.expect("unlocks");
    let written = "SELECT COUNT(*) FROM c.my WHERE id=51";
    eventually("they are written", DRAIN, async || targets[1].value::<u64>(written).await == 1)
        .await;
    daemon.start_again();
    wait_state(&daemon, 1, "failed").await;
    let why = daemon.status()["channels"][1]["last_error"]["message"].to_string();
    assert!(why.contains("counts its GTID as executed"), "{why}");
    let complete = "UPDATE csa.statement SET executed=1 WHERE channel='second'";
    targets[1].exec(&format!("SET sql_log_bin=0; {complete}")).await;
    daemon.commanded(&["restart", "--channel", "second"]);
    daemon.wait_channel_drained(names[1], &source, &targets[1], DRAIN).await;
    equal(&targets[1], names[1]).await;
    let mut reader = targets[1].conn().await;
    reader.query_drop("LOCK TABLES c.my READ").await.expect("locks");
    source.exec("INSERT INTO c.my VALUES (60,6,'')").await;
    eventually("the row waits", DRAIN, async || waits(&targets[1]).await).await;
    daemon.kill9();
    reader.query_drop("UNLOCK TABLES").await.expect("unlocks");
    let written = "SELECT COUNT(*) FROM c.my WHERE id=60";
    eventually("it is written", DRAIN, async || targets[1].value::<u64>(written).await == 1).await;
    daemon.start_again();
    daemon.wait_channel_drained(names[1], &source, &targets[1], DRAIN).await;
    equal(&targets[1], names[1]).await;
}

/// Returns true if row images wait for a table.
async fn waits(target: &Server) -> bool {
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
        WHERE user='csa' AND state LIKE 'Waiting for table%'";
    target.value::<u64>(waiting).await > 0
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_may_be_half_written_are_for_the_operator_to_decide() {
    let pair = Pair::start(&[], &[]).await;
    let Pair { source, target, daemon } = &pair;
    pair.run(["CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=MyISAM"]).await;
    pair.run(["INSERT INTO t VALUES (1,1),(2,2)"]).await;
    pair.equal().await;
    let failed = async || {
        wait_state(daemon, 0, "failed").await;
        daemon.status()["channels"][0]["last_error"]["message"].to_string()
    };
    let entries = "SELECT COUNT(*) FROM csa.statement";
    for (id, dies, written) in [(10, "daemon", true), (20, "daemon", false), (30, "target", false)]
    {
        let mut reader = target.conn().await;
        reader.query_drop("LOCK TABLES c.t READ").await.expect("locks");
        let before = source.gtid_executed().await;
        pair.run([format!("INSERT INTO t VALUES ({id},1),({},1)", id + 1)]).await;
        let gtid = format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')");
        let gtid: String = source.value(&gtid).await;
        eventually("the rows wait", DRAIN, async || waits(target).await).await;
        if dies == "target" {
            target.kill9();
            target.restart();
        } else {
            daemon.kill9();
            if !written {
                let kill = "SELECT id FROM information_schema.processlist WHERE user='csa' \
                    AND state LIKE 'Waiting for table%'";
                let connection: u64 = target.value(kill).await;
                target.exec(&format!("KILL {connection}")).await;
            }
            eventually("nothing waits", DRAIN, async || written || !waits(target).await).await;
            reader.query_drop("UNLOCK TABLES").await.expect("unlocks");
            let count = format!("SELECT COUNT(*) FROM c.t WHERE id={}", id + 1);
            let expected = u64::from(written);
            eventually("as it was left", DRAIN, async || {
                target.value::<u64>(&count).await == expected
            })
            .await;
            daemon.start_again();
        }
        let why = failed().await;
        for words in [&gtid, "some or all of them", "csa.statement SET executed=1"] {
            assert!(why.contains(words), "{words} is missing in {why}");
        }
        if id == 20 {
            // Whatever engine the table has by now.
            target.exec("ALTER TABLE c.t ENGINE=InnoDB").await;
            daemon.commanded(&["restart"]);
            let why = failed().await;
            assert!(why.contains("some or all of them"), "{why}");
            target.exec("ALTER TABLE c.t ENGINE=MyISAM").await;
        }
        target
            .exec(match written {
                true => "UPDATE csa.statement SET executed=1 WHERE channel='test'",
                false => "DELETE FROM csa.statement WHERE channel='test'",
            })
            .await;
        daemon.commanded(&["restart"]);
        daemon.wait_drained(source, target, DRAIN).await;
        compare(source, target).await;
        assert_eq!(target.value::<u64>(entries).await, 0);
    }

    // A single row is there or not; of several rows, those before the failing one are there.
    run(target, ["INSERT INTO t VALUES (41,9)"]).await;
    pair.run(["INSERT INTO t VALUES (41,1)"]).await;
    let why = failed().await;
    assert!(why.contains("1062") && !why.contains("csa.statement"), "{why}");
    assert_eq!(target.value::<u64>(entries).await, 0);
    run(target, ["DELETE FROM t WHERE id=41"]).await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(source, target, DRAIN).await;
    run(target, ["INSERT INTO t VALUES (51,9)"]).await;
    pair.run(["INSERT INTO t VALUES (50,1),(51,1),(52,1)"]).await;
    let why = failed().await;
    assert!(why.contains("1062") && why.contains("DELETE FROM csa.statement"), "{why}");
    run(target, ["DELETE FROM t WHERE id IN (50,51)"]).await;
    target.exec("DELETE FROM csa.statement WHERE channel='test'").await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;

    // The daemon waits for a lock on the table, and nothing is in doubt.
    let mut reader = target.conn().await;
    reader.query_drop("LOCK TABLES c.t READ").await.expect("locks");
    pair.run(["INSERT INTO t VALUES (60,1),(61,1)"]).await;
    eventually("the rows wait", DRAIN, async || waits(target).await).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    reader.query_drop("UNLOCK TABLES").await.expect("unlocks");
    daemon.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
}

/// The number of the session that waits to remove an entry, or 0.
const REMOVAL: &str = "SELECT COALESCE(MAX(id), 0) FROM information_schema.processlist \
     WHERE info LIKE 'DELETE FROM csa.statement%'";

/// Writes a row of `c.m`, whose entry another session then has locked. It is removed in the transaction that writes the
/// checkpoint, after it.
async fn with_locked_entry(source: &Server, target: &Server, id: u32) -> Conn {
    let mut table = target.conn().await;
    table.query_drop("LOCK TABLES c.m READ").await.expect("locks");
    source.exec(&format!("INSERT INTO c.m VALUES ({id})")).await;
    eventually("the entry of the rows", DRAIN, async || {
        target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await == 1
    })
    .await;
    let mut entry = target.conn().await;
    entry.query_drop("BEGIN").await.expect("begins");
    entry.query_drop("SELECT * FROM csa.statement FOR UPDATE").await.expect("locks");
    table.query_drop("UNLOCK TABLES").await.expect("unlocks");
    eventually("the removal of the entry", DRAIN, async || target.value::<u64>(REMOVAL).await != 0)
        .await;
    entry
}

/// The rows are there, and the daemon knows that: whoever holds their entry, it waits, and so does a stop.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_lock_after_rows_of_another_engine_leaves_no_doubt_about_them() {
    /// Longer than the `innodb_lock_wait_timeout` of the daemon's sessions.
    const ROW_TIMEOUT: Duration = Duration::from_secs(13);
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target).set("applier.transaction_retries", 0).start();
    source.exec("CREATE DATABASE c; CREATE TABLE c.m (id INT PRIMARY KEY) ENGINE=MyISAM").await;
    // Makes the daemon create the table of entries.
    source.exec("INSERT INTO c.m VALUES (0)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut entry = with_locked_entry(&source, &target, 1).await;
    tokio::time::sleep(ROW_TIMEOUT).await;
    entry.query_drop("ROLLBACK").await.expect("gives it up");
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut entry = with_locked_entry(&source, &target, 2).await;
    let release = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(6)).await;
        entry.query_drop("ROLLBACK").await.expect("gives it up");
    });
    tokio::task::block_in_place(|| daemon.commanded(&["stop"]));
    release.await.expect("released");
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_state(&daemon, 0, "running").await;
    let compared = Compare::contents().run(&source, &target).await.expect("equal");
    assert_eq!(compared.rows, 3);
}

/// Under the source's GTID the row for readers is compared after each outage. It is written in a
/// transaction that may not be committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_lost_before_a_checkpoint_is_committed_loses_nothing() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .set("target.connect_retry", "100ms")
        .start();
    source.exec("CREATE DATABASE c; CREATE TABLE c.m (id INT PRIMARY KEY) ENGINE=MyISAM").await;
    // Makes the daemon create the table of entries.
    source.exec("INSERT INTO c.m VALUES (0)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut entry = with_locked_entry(&source, &target, 1).await;
    let id: u64 = target.value(REMOVAL).await;
    target.exec(&format!("KILL {id}")).await;
    entry.query_drop("ROLLBACK").await.expect("gives it up");
    daemon.wait_drained(&source, &target, DRAIN).await;
    source.exec("INSERT INTO c.m VALUES (2)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::contents().run(&source, &target).await.expect("equal");
    assert_eq!(compared.rows, 3);
    assert_eq!(daemon.status()["channels"][0]["state"], "running", "{}", daemon.log_tail());
}

/// Such a table needs the source's version, also in a transaction that is written alone.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_columns_beside_rows_of_another_engine() {
    let pair = Pair::start(&[], &[]).await;
    pair.run([
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "SET sql_generate_invisible_primary_key=ON",
        "CREATE TABLE hidden (a INT, b TEXT, UNIQUE KEY ((CAST(LEFT(b,8) AS CHAR(8)))))",
    ])
    .await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    pair.target.exec("ALTER TABLE c.other ENGINE=MyISAM").await;
    pair.run_as_backlog([
        "BEGIN",
        "INSERT INTO hidden (a, b) VALUES (1, 'one')",
        "INSERT INTO other VALUES (1)",
        "INSERT INTO hidden (a, b) VALUES (2, 'two')",
        "UPDATE hidden SET b = 'three' WHERE a = 1",
        "COMMIT",
    ])
    .await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let compared = Compare::contents().run(&pair.source, &pair.target).await.expect("equal");
    assert_eq!(compared.rows, 3);
}

/// Sources before 5.7.32 and 8.0.22 log DELETE for such a table when it is first used after a restart, whatever
/// `binlog_format` is; later ones log TRUNCATE.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn memory_tables_that_a_restart_of_the_source_has_emptied() {
    for (version, executor) in
        [(Version::V57, "sql"), (Version::V8015, "row-image"), (Version::Newest, "row-image")]
    {
        let (source, target) =
            Server::both(|| version.start("source", &[]), || Server::start("target", &[]));
        let tls = if version == Version::Newest { "preferred" } else { "disabled" };
        let daemon = Daemon::builder(&source, &target)
            .set("source.tls", tls)
            .set("applier.executor", executor)
            .set("applier.replicate_ignore_table", vec!["c.left_out"])
            .start();
        source.exec("CREATE DATABASE c").await;
        for name in ["`in memory`", "ä", "left_out"] {
            let table = format!("c.{name} (id INT PRIMARY KEY, v INT) ENGINE=MEMORY");
            source.exec(&format!("CREATE TABLE {table}")).await;
            source.exec(&format!("INSERT INTO c.{name} VALUES (1,1),(2,2)")).await;
        }
        daemon.wait_drained(&source, &target, DRAIN).await;
        source.restart();
        // The session's character set is not that of the server's own statement. Its quotes are, but TRUNCATE states the
        // server's sql_mode beside them, so that a replica fails as well.
        let mode = if version == Version::Newest { "" } else { "ANSI_QUOTES" };
        let used = format!(
            "SET @used='SELECT * FROM c.ä'; SET NAMES latin1; PREPARE used FROM @used; EXECUTE used; \
             SET sql_mode='{mode}'; SELECT * FROM c.left_out; INSERT INTO c.`in memory` VALUES (2,3)"
        );
        source.exec(&used).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let compared = Compare::contents().ignore_table("c.left_out").run(&source, &target).await;
        let compared = compared.unwrap_or_else(|difference| panic!("{version}: {difference}"));
        assert_eq!(compared.rows, 1, "{version}: {compared:?}");
    }
}

/// The server names the schema in the statement, which nobody can write otherwise.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn memory_tables_of_a_renamed_schema_that_a_restart_has_emptied() {
    for (version, executor) in [(Version::V8015, "row-image"), (Version::Newest, "sql")] {
        let (source, target) =
            Server::both(|| version.start("source", &[]), || Server::start("target", &[]));
        let tls = if version == Version::Newest { "preferred" } else { "disabled" };
        let daemon = Daemon::builder(&source, &target)
            .set("source.tls", tls)
            .set("applier.executor", executor)
            .set("applier.replicate_rewrite_db.c", "z")
            .start();
        source.exec("SET sql_log_bin=0; CREATE DATABASE c").await;
        target.exec("CREATE DATABASE z; CREATE DATABASE c; CREATE TABLE c.m (id INT)").await;
        target.exec("INSERT INTO c.m VALUES (1)").await;
        source.exec("USE c; CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MEMORY").await;
        source.exec("INSERT INTO c.m VALUES (1),(2)").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        source.restart();
        source.exec("INSERT INTO c.m VALUES (3)").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let rows: String = target.value("SELECT GROUP_CONCAT(id ORDER BY id) FROM z.m").await;
        assert_eq!(rows, "3", "{version}");
        let others: u64 = target.value("SELECT COUNT(*) FROM c.m").await;
        assert_eq!(others, 1, "{version}: the target's own schema of the old name");
    }
}
