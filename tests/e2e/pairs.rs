//! Two channels in opposite directions between two servers: nothing comes back to where it was made.

use std::time::Duration;

use csa_tests::{Compare, Daemon, DaemonBuilder, Load, LoadOptions, Server, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use crate::archive::{archived, view};
use crate::{DRAIN, wait_state};

/// Returns a channel each way.
fn pair(a: &Server, b: &Server, set: impl Fn(DaemonBuilder) -> DaemonBuilder) -> Daemon {
    let there = set(Daemon::builder(a, b).set("name", "there"));
    set(there.channel("back", b, a)).start()
}

async fn drained(daemon: &Daemon, a: &Server, b: &Server) {
    daemon.wait_channel_drained("there", a, b, DRAIN).await;
    daemon.wait_channel_drained("back", b, a, DRAIN).await;
}

async fn equal(a: &Server, b: &Server) {
    let compared = Compare::contents().run(a, b).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

fn returned(daemon: &Daemon, channel: usize) -> u64 {
    let view = &daemon.status()["channels"][channel]["applier"];
    view["returned_left_out_total"].as_u64().expect("a number")
}

/// Neither server commits anything while nobody writes.
async fn silent(daemon: &Daemon, a: &Server, b: &Server) {
    let mut before = (a.gtid_executed().await, b.gtid_executed().await);
    // The last checkpoint may still be on its way.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = (a.gtid_executed().await, b.gtid_executed().await);
        if now == before {
            return;
        }
        before = now;
    }
    panic!("the channels keep each other busy: {before:?}\n{}", daemon.log_tail());
}

/// Only A is written, then both at once, whatever dies, then only B.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_pair_of_channels_takes_nothing_back() {
    let (a, b) = Server::pair(&["--binlog-transaction-compression=ON"], &[]);
    let daemon = pair(&a, &b, |builder| {
        builder.set("target.connect_retry", "100ms").set("target.connect_retry_max", "1s")
    });
    let options = LoadOptions { rate: Some(100.0), ..LoadOptions::default() };
    prepare(&a, &options).await;
    a.exec("CREATE DATABASE own; CREATE TABLE own.b (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
        .await;
    a.exec(
        "CREATE TABLE own.keyless (v INT); CREATE TABLE own.large (id INT PRIMARY KEY, v LONGBLOB)",
    )
    .await;
    let load = Load::start(&a, &options);
    // Too large to be held as a whole.
    a.exec("INSERT INTO own.large VALUES (1, REPEAT('x', 20000000)), (2, REPEAT('y', 20000000))")
        .await;
    a.exec("INSERT INTO own.keyless VALUES (1), (1), (2)").await;
    a.exec("XA START 'x'; INSERT INTO own.keyless VALUES (3); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'")
        .await;
    drained(&daemon, &a, &b).await;
    load.stop().await;
    drained(&daemon, &a, &b).await;
    equal(&a, &b).await;
    assert!(returned(&daemon, 1) > 10, "{}", returned(&daemon, 1));
    silent(&daemon, &a, &b).await;

    // Both are written, each its own tables; rows of all of them go round.
    let load = Load::start(&a, &options);
    let (mut written, mut definitions) = (0, 0);
    for round in 0..6 {
        match round {
            1 => {
                daemon.kill9();
                daemon.start_again();
            }
            2 => {
                b.kill9();
                b.restart();
            }
            3 => {
                a.exec("ALTER TABLE own.keyless ADD COLUMN added INT").await;
                b.exec("ALTER TABLE own.b ADD COLUMN added INT").await;
                definitions += 1;
            }
            _ => {}
        }
        for _ in 0..50 {
            b.exec("INSERT INTO own.b (v) VALUES (1)").await;
            written += 1;
        }
    }
    load.stop().await;
    drained(&daemon, &a, &b).await;
    // Groups come back, not transactions: these are groups of one each, however full the others were.
    for _ in 0..12 {
        b.exec("INSERT INTO own.b (v) VALUES (1)").await;
        written += 1;
        drained(&daemon, &a, &b).await;
    }
    drained(&daemon, &a, &b).await;
    equal(&a, &b).await;
    assert_eq!(a.value::<u64>("SELECT COUNT(*) FROM own.b").await, written);
    assert_eq!(definitions, 1);
    assert!(returned(&daemon, 0) > 10, "{}", returned(&daemon, 0));
    silent(&daemon, &a, &b).await;

    // The other way alone, as after a cut over.
    assert!(daemon.terminate().success());
    daemon.start_again();
    let load = Load::start(&b, &options);
    b.exec("DROP TABLE own.large; UPDATE own.keyless SET v = v + 1").await;
    load.stop().await;
    drained(&daemon, &a, &b).await;
    equal(&a, &b).await;
    silent(&daemon, &a, &b).await;
}

/// Rows are written on one server and definitions on the other.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_definition_that_comes_back_is_read_again() {
    for settings in [
        &[("applier.executor", "row-image")][..],
        &[("applier.executor", "sql")],
        &[("applier.commit", "one-to-one"), ("applier.target_gtids", "source")],
    ] {
        let (a, b) = Server::pair(&[], &[]);
        let daemon = pair(&a, &b, |builder| {
            settings.iter().fold(builder, |builder, (key, value)| builder.set(key, *value))
        });
        let on_a = async |statement: &str| {
            a.exec(statement).await;
            drained(&daemon, &a, &b).await;
        };
        on_a("CREATE DATABASE d; CREATE TABLE d.t (id INT NOT NULL, part INT NOT NULL, v INT, PRIMARY KEY (id))").await;
        on_a("INSERT INTO d.t VALUES (1, 1, 10)").await;
        b.exec("ALTER TABLE d.t DROP PRIMARY KEY, ADD PRIMARY KEY (id, part)").await;
        drained(&daemon, &a, &b).await;
        on_a("INSERT INTO d.t VALUES (1, 2, 20)").await;
        on_a("UPDATE d.t SET v = 21 WHERE id = 1 AND part = 2").await;
        equal(&a, &b).await;
        b.exec("ALTER TABLE d.t MODIFY v INT AFTER id").await;
        drained(&daemon, &a, &b).await;
        on_a("INSERT INTO d.t (id, part, v) VALUES (7, 8, 9)").await;
        let made = if settings[0].1 == "sql" { "LIKE d.t" } else { "SELECT * FROM d.t" };
        b.exec(&format!("CREATE TABLE d.made {made}; ALTER TABLE d.t ADD UNIQUE KEY (v)")).await;
        drained(&daemon, &a, &b).await;
        on_a(
            "BEGIN; UPDATE d.t SET v = 5 WHERE v = 10; UPDATE d.t SET v = 10 WHERE v = 21; \
              UPDATE d.t SET v = 6 WHERE v = 5; COMMIT",
        )
        .await;
        equal(&a, &b).await;
        assert!(returned(&daemon, 0) >= 4, "{}", returned(&daemon, 0));
        silent(&daemon, &a, &b).await;
    }
}

/// The source's GTIDs cut the loop.
#[tokio::test(flavor = "multi_thread")]
async fn a_pair_with_the_sources_gtids_takes_nothing_back() {
    let (a, b) = Server::pair(&[], &[]);
    let daemon = pair(&a, &b, |builder| {
        builder.set("applier.commit", "one-to-one").set("applier.target_gtids", "source")
    });
    a.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)").await;
    for _ in 0..50 {
        a.exec("INSERT INTO d.t (v) VALUES (1); UPDATE d.t SET v = v + 1").await;
    }
    drained(&daemon, &a, &b).await;
    for _ in 0..50 {
        b.exec("INSERT INTO d.t (v) VALUES (1); UPDATE d.t SET v = v + 1").await;
    }
    drained(&daemon, &a, &b).await;
    drained(&daemon, &a, &b).await;
    equal(&a, &b).await;
    assert_eq!(a.value::<u64>("SELECT MIN(v) FROM d.t").await, 2);
    assert_eq!(a.value::<u64>("SELECT MAX(v) FROM d.t").await, 101);
    silent(&daemon, &a, &b).await;
    assert_eq!(a.gtid_executed().await, b.gtid_executed().await);
}

/// Transactions of B are on their way to A, whose archive is to have them, when the channel from A loses its relay store.
#[tokio::test(flavor = "multi_thread")]
async fn the_archive_of_a_pair_gets_what_is_on_its_way_back() {
    let (a, b) = Server::pair(&[], &[]);
    let archive = tempfile::tempdir().expect("a directory");
    let of = |from: &Server, to: &Server, name: &str| {
        Daemon::builder(from, to)
            .set("name", name)
            .set("applier.commit", "one-to-one")
            .set("applier.target_gtids", "source")
    };
    let there = of(&a, &b, "there")
        .set("archive.url", format!("file://{}", archive.path().display()))
        .set("archive.interval", "1s")
        .start();
    let back = of(&b, &a, "back").start();
    let drained = async || {
        there.wait_channel_drained("there", &a, &b, DRAIN).await;
        back.wait_channel_drained("back", &b, &a, DRAIN).await;
    };
    a.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)").await;
    drained().await;
    let row = "INSERT INTO d.t (v) VALUES (1)";
    b.exec(row).await;
    drained().await;
    archived(&there, &a).await;
    assert!(back.terminate().success());
    for _ in 0..10 {
        b.exec(row).await;
    }
    there.kill9();
    std::fs::remove_dir_all(there.state_dir().join("there")).expect("removed");
    there.start_again();
    wait_state(&there, 0, "running").await;
    back.start_again();
    drained().await;
    archived(&there, &a).await;
    // A session that begins again finds no gap either.
    assert!(there.terminate().success());
    there.start_again();
    a.exec(row).await;
    drained().await;
    archived(&there, &a).await;
    assert_eq!(view(&there)["missing_transactions_total"], 0);
    there.commanded(&["--channel", "there", "archive", "verify"]);
    equal(&a, &b).await;
}

/// A server sends a transaction to replicas before it has committed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_comes_back_before_its_commit_is_waited_for() {
    let (a, b) = Server::pair(&[], &[]);
    let daemon = pair(&a, &b, |builder| builder);
    a.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    drained(&daemon, &a, &b).await;
    // Nobody acknowledges it, so it waits after the sync for three seconds.
    a.exec("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'").await;
    a.exec(
        "SET GLOBAL rpl_semi_sync_source_timeout = 3000, GLOBAL rpl_semi_sync_source_enabled = ON",
    )
    .await;
    let mut conn = a.conn().await;
    let commit = tokio::spawn(async move { conn.query_drop("INSERT INTO d.t VALUES (1)").await });
    eventually("it is on B", Duration::from_secs(3), async || {
        b.value::<u64>("SELECT COUNT(*) FROM d.t").await == 1
    })
    .await;
    assert_eq!(a.value::<u64>("SELECT COUNT(*) FROM d.t").await, 0);
    commit.await.expect("the client").expect("commits");
    drained(&daemon, &a, &b).await;
    equal(&a, &b).await;
    silent(&daemon, &a, &b).await;
}

/// Returns the settings of the two ways, each `target_gtids`.
fn builder_of(a: &Server, b: &Server, there: &str, back: &str) -> DaemonBuilder {
    let set = |builder: DaemonBuilder, gtids: &str| {
        let commit = if gtids == "source" { "one-to-one" } else { "grouped" };
        builder.set("applier.target_gtids", gtids).set("applier.commit", commit)
    };
    let builder = set(Daemon::builder(a, b).set("name", "there"), there);
    set(builder.channel("back", b, a), back)
}

/// Statements, steps of distributed transactions and rows: all that B may have under A's GTIDs.
async fn write_all_kinds(a: &Server, round: usize) {
    a.exec(&format!(
        "CREATE TABLE d.made{round} (id INT PRIMARY KEY); ALTER TABLE d.made{round} ADD v INT; \
         CREATE TABLE d.copy{round} SELECT * FROM d.keyless"
    ))
    .await;
    a.exec(&format!(
        "XA START 'x{round}'; INSERT INTO d.keyless VALUES ({round}); XA END 'x{round}'; \
         XA PREPARE 'x{round}'; XA COMMIT 'x{round}'"
    ))
    .await;
    a.exec("INSERT INTO d.keyless VALUES (7); UPDATE d.t SET v=1; UPDATE d.t SET v=2").await;
}

/// B has statements and rows under A's own GTIDs, and the way back has not read them when the daemon ends.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_pair_starts_again_whatever_of_its_own_is_on_the_way_back() {
    for (there, back) in
        [("own", "own"), ("source", "own"), ("own", "source"), ("source", "source")]
    {
        let (a, b) = Server::pair(&[], &[]);
        let daemon = builder_of(&a, &b, there, back).start();
        a.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
        a.exec("CREATE TABLE d.keyless (v INT); INSERT INTO d.t VALUES (1, 0), (2, 0)").await;
        drained(&daemon, &a, &b).await;
        for (round, is_killed) in [(0, true), (1, false)] {
            // What one server made stays on the other while the way back is paused.
            let (paused, free, from, to) =
                if round == 0 { ("back", "there", &a, &b) } else { ("there", "back", &b, &a) };
            daemon.commanded(&["--channel", paused, "pause"]);
            write_all_kinds(from, round).await;
            daemon.wait_channel_drained(free, from, to, DRAIN).await;
            match is_killed {
                true => daemon.kill9(),
                false => assert!(daemon.terminate().success()),
            }
            daemon.start_again();
            drained(&daemon, &a, &b).await;
            drained(&daemon, &a, &b).await;
            equal(&a, &b).await;
        }
        b.exec("INSERT INTO d.keyless VALUES (8); UPDATE d.t SET v=3 WHERE id=1").await;
        drained(&daemon, &a, &b).await;
        a.exec("UPDATE d.t SET v=4 WHERE id=1").await;
        drained(&daemon, &a, &b).await;
        equal(&a, &b).await;
        silent(&daemon, &a, &b).await;
    }
}

/// Transactions of A are still on their way back when a replica of it, with another `server_uuid`, takes over.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_pair_starts_again_after_one_of_its_servers_was_replaced_by_a_replica() {
    for there in ["own", "source"] {
        let (a, b) = Server::pair(&[], &[]);
        let replica = Server::start("replica", &[]);
        replica.follow(&a).await;
        let daemon = builder_of(&a, &b, there, "own").start();
        a.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
        a.exec("CREATE TABLE d.keyless (v INT); INSERT INTO d.t VALUES (1, 0), (2, 0)").await;
        drained(&daemon, &a, &b).await;
        daemon.commanded(&["--channel", "back", "pause"]);
        write_all_kinds(&a, 0).await;
        daemon.wait_channel_drained("there", &a, &b, DRAIN).await;
        daemon.kill9();
        let level = a.gtid_executed().await;
        eventually("it is level", DRAIN, async || replica.gtid_executed().await == level).await;
        a.kill9();
        replica.exec("STOP REPLICA; RESET REPLICA ALL").await;
        let daemon = builder_of(&replica, &b, there, "own").start();
        drained(&daemon, &replica, &b).await;
        drained(&daemon, &replica, &b).await;
        equal(&replica, &b).await;
        write_all_kinds(&replica, 1).await;
        drained(&daemon, &replica, &b).await;
        b.exec("INSERT INTO d.keyless VALUES (8); UPDATE d.t SET v=3 WHERE id=1").await;
        drained(&daemon, &replica, &b).await;
        equal(&replica, &b).await;
        silent(&daemon, &replica, &b).await;
    }
}

/// A daemon on each side of a pair must never apply what the other one keeps on its target.
#[test]
fn every_table_that_the_daemon_makes_is_its_own() {
    fn names(folder: &std::path::Path, found: &mut std::collections::BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                names(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                for rest in text.split("EXISTS csa.").skip(1) {
                    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
                    let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
                    found.extend((end > 0).then(|| rest[..end].to_owned()));
                }
            }
        }
    }
    let mut found = std::collections::BTreeSet::new();
    names(&csa_tests::repository().join("crates/applier/src"), &mut found);
    assert!(found.len() >= 9, "{found:?}");
    for name in found {
        assert!(
            csa_scheduler::filter::is_own(b"csa", name.as_bytes()),
            "csa.{name} is not left out"
        );
    }
}
