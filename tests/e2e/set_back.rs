//! A source that is restored to an earlier state, and gives the GTIDs that it lost to other transactions.

use csa_tests::{At, Daemon, Gate, Server, compare, eventually};

use crate::{DRAIN, wait_state};

async fn insert(source: &Server, ids: std::ops::Range<u32>) {
    for id in ids {
        source.exec(&format!("INSERT INTO d.t (id) VALUES ({id})")).await;
    }
}

/// Takes the source to what [`Server::save_data`] kept, and on beyond all that the daemon has received, unseen by it.
async fn set_back(source: &Server, gate: &Gate) {
    gate.close(At::Greeting, 1040, "Too many connections");
    let received: u64 = source.value("SELECT COUNT(*) FROM d.t").await;
    source.stop();
    source.put_back_data();
    source.restart();
    insert(source, 1000..1100).await;
    let now: u64 = source.value("SELECT COUNT(*) FROM d.t").await;
    assert!(now > received);
    gate.open();
}

/// Has twenty rows applied, and the source saved after ten of them. Returns the source's GTID set.
async fn saved_in_between(daemon: &Daemon, source: &Server, target: &Server) -> String {
    insert(source, 0..10).await;
    daemon.wait_drained(source, target, DRAIN).await;
    saved(source).await;
    insert(source, 10..20).await;
    daemon.wait_drained(source, target, DRAIN).await;
    source.gtid_executed().await
}

async fn saved(source: &Server) {
    source.stop();
    source.save_data();
    source.restart();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_source_that_was_set_back_and_went_on_is_not_followed() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let gate = Gate::to(source.port);
    let daemon = Daemon::builder(&source, &target)
        .set("source.port", i64::from(gate.port))
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("relay.sync", "transaction")
        .start();
    let last = saved_in_between(&daemon, &source, &target).await;
    set_back(&source, &gate).await;
    // While it runs, and when it starts again with what its relay store has.
    for starts in 0..2 {
        wait_state(&daemon, 0, "failed").await;
        let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
        let gno = last.rsplit('-').next().expect("a number");
        for words in ["was set back", "docs/provisioning.md#copy-again", &format!(":{gno} ")] {
            assert!(error.contains(words), "{words}: {error}");
        }
        let rows: u64 = target.value("SELECT COUNT(*) FROM d.t WHERE id < 20").await;
        let others: u64 = target.value("SELECT COUNT(*) FROM d.t WHERE id >= 20").await;
        assert_eq!((rows, others), (20, 0), "the old history is there, and nothing else");
        if starts == 0 {
            daemon.kill9();
            daemon.start_again();
        }
    }
    // The way that the error names.
    daemon.commanded(&["stop", "--receiving"]);
    target.exec("DROP DATABASE d; DELETE FROM csa.checkpoint").await;
    tokio::task::block_in_place(|| daemon.commanded(&["copy", "--channel", "test"]));
    daemon.commanded(&["restart"]);
    insert(&source, 2000..2010).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The target keeps up, so that no transaction is in the relay store. Reception ends while the source has fewer
/// transactions, and begins again once it has given their GTIDs to others.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_source_that_was_set_back_is_not_followed_once_reception_begins_again() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let gate = Gate::to(source.port);
    let daemon = Daemon::builder(&source, &target)
        .set("source.port", i64::from(gate.port))
        .env("CSA_TEST_HASTE", "20")
        .start();
    saved_in_between(&daemon, &source, &target).await;
    gate.close(At::Greeting, 1040, "Too many connections");
    source.stop();
    source.put_back_data();
    source.restart();
    insert(&source, 1000..1005).await;
    gate.open();
    eventually("reception ends", DRAIN, async || {
        daemon.log().contains("more GTIDs than the source")
    })
    .await;
    insert(&source, 2000..2030).await;
    eventually("the other history is noticed", DRAIN, async || {
        let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
        error.contains("was set back")
    })
    .await;
    let others: u64 = target.value("SELECT COUNT(*) FROM d.t WHERE id >= 20").await;
    assert_eq!(others, 0, "nothing of it is applied");
}

/// A server that is started again, or restored to what was received, has the same transactions.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_source_that_was_restored_to_all_that_was_received_is_followed() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let gate = Gate::to(source.port);
    let daemon = Daemon::builder(&source, &target).set("source.port", i64::from(gate.port)).start();
    insert(&source, 0..10).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    saved(&source).await;
    gate.close(At::Greeting, 1040, "Too many connections");
    insert(&source, 10..20).await;
    set_back(&source, &gate).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The source has fewer transactions than were received, and then other ones in their place. The channel begins again
/// while the relay store is still open, for a reception that has ended.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_new_copy_of_a_source_that_was_set_back_has_nothing_of_the_old_history() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let gate = Gate::to(source.port);
    let daemon = Daemon::builder(&source, &target)
        .set("source.port", i64::from(gate.port))
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("relay.sync", "transaction")
        .set("applier.start_from", "copy")
        .start();
    insert(&source, 0..10).await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    saved(&source).await;
    daemon.commanded(&["pause"]);
    insert(&source, 10..20).await;
    let last = source.gtid_executed().await;
    eventually("all is received", DRAIN, async || {
        daemon.status()["channels"][0]["received_transaction_set"] == last.as_str()
    })
    .await;
    gate.close(At::Greeting, 1040, "Too many connections");
    source.stop();
    source.put_back_data();
    source.restart();
    insert(&source, 1000..1005).await;
    gate.open();
    eventually("reception ends", DRAIN, async || {
        daemon.log().contains("more GTIDs than the source")
    })
    .await;
    daemon.commanded(&["stop"]);
    target.exec("DROP DATABASE d; DELETE FROM csa.checkpoint").await;
    daemon.commanded(&["restart"]);
    daemon.commanded(&["resume"]);
    eventually("all is copied", DRAIN, async || {
        daemon.log().matches("all rows are copied").count() > 1
    })
    .await;
    // It passes the end of the old history.
    insert(&source, 2000..2030).await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The source has fewer transactions than were received, and the copy is made without the daemon.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_by_other_means_gets_nothing_of_the_history_that_its_source_lost() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).set("relay.sync", "transaction").start();
    let last = saved_in_between(&daemon, &source, &target).await;
    assert!(daemon.terminate().success());
    source.stop();
    source.put_back_data();
    source.restart();
    // As a clone or a dump does it.
    target.exec("DROP DATABASE d; DROP DATABASE csa; RESET BINARY LOGS AND GTIDS").await;
    let rows = (0..10).map(|id| format!("({id})")).collect::<Vec<_>>().join(",");
    let copied = source.gtid_executed().await;
    target
        .exec(&format!(
            "SET sql_log_bin=0; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); \
             INSERT INTO d.t VALUES {rows}; SET GLOBAL gtid_purged='{copied}'"
        ))
        .await;
    let error = daemon.start_refused().await;
    let gno = last.rsplit('-').next().expect("a number");
    for words in ["10 transactions", &format!("-{gno}"), "set back", "state_dir/test/relay"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let rows: u64 = target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(rows, 10, "nothing of the old history is there");
    // The way that the error names.
    std::fs::remove_dir_all(daemon.state_dir().join("test/relay")).expect("removed");
    daemon.start_again();
    insert(&source, 2000..2030).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The target has executed definitions under GTIDs that a source gives again once it was reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_source_that_was_reset_passes_over_no_definition() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .start();
    insert(&source, 0..5).await;
    source.exec("ALTER TABLE d.t ADD c INT DEFAULT 1").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let altered = source.gtid_executed().await;
    let number =
        |set: &str| set.rsplit(['-', ':']).next().and_then(|last| last.parse::<u32>().ok());
    let number = number(&altered).expect("a number");
    assert!(daemon.terminate().success());
    source.exec("RESET BINARY LOGS AND GTIDS").await;
    insert(&source, 10..11).await;
    target.exec("DROP DATABASE d; DELETE FROM csa.checkpoint").await;
    daemon.set("applier.start_from", "copy");
    let (reset, last) = ("RESET BINARY LOGS AND GTIDS", format!(":{number}"));
    let refused = daemon.start_refused().await;
    let copy = || tokio::task::block_in_place(|| daemon.command(&["copy", "--channel", "test"]));
    let said = copy();
    assert_eq!(said.code, Some(1), "{said:?}");
    for error in [refused, said.error] {
        for words in ["not given yet", reset, "copy-again", &last] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }
    let made = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='d'";
    assert_eq!(target.value::<u64>(made).await, 0, "nothing is copied");
    // The way that the errors name; the source has been a target of an earlier channel.
    let uuid: String = source.value("SELECT @@GLOBAL.server_uuid").await;
    target.exec(reset).await;
    target.exec(&format!("INSERT INTO csa.target_server VALUES ('test', '{uuid}')")).await;
    let said = copy();
    assert_eq!(said.code, Some(0), "{said:?}");
    let targets = format!("SELECT COUNT(*) FROM csa.target_server WHERE server_uuid='{uuid}'");
    assert_eq!(target.value::<u64>(&targets).await, 0, "it is none of this channel");
    daemon.start_again();
    // One transaction was there before.
    insert(&source, 100..100 + number - 2).await;
    source.exec("TRUNCATE d.t").await;
    let now = source.gtid_executed().await;
    assert_eq!(now, altered, "it has the number of the ALTER TABLE");
    insert(&source, 0..3).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
