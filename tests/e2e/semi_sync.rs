//! A semi-synchronous source: a client's commit returns once the daemon has the transaction on disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use csa_tests::{Compare, Daemon, DaemonBuilder, Server, compare, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tokio::task::JoinSet;

use crate::DRAIN;

const PATIENCE: Duration = Duration::from_secs(60);
/// Commits wait for ten minutes, and also while there is no replica.
const SEMI_SYNC: [&str; 4] = [
    "--plugin-load-add=semisync_source.so",
    "--rpl-semi-sync-source-enabled=ON",
    "--rpl-semi-sync-source-timeout=600000",
    "--rpl-semi-sync-source-wait-point=AFTER_SYNC",
];

fn acknowledging(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target)
        .set("source.semi_sync", true)
        .set("relay.sync", "transaction")
        .set("target.connect_retry", "100ms")
}

async fn is_semi_sync(daemon: &Daemon, expected: bool) {
    eventually("semi_sync in the status", PATIENCE, async || {
        daemon.try_status().is_some_and(|s| s["channels"][0]["connection"]["semi_sync"] == expected)
    })
    .await;
}

/// Clients that insert, and remember what the source confirmed.
struct Clients {
    stop: Arc<AtomicBool>,
    confirmed: Arc<AtomicU64>,
    tasks: JoinSet<BTreeSet<u64>>,
}

impl Clients {
    async fn start(source: &Server, count: u64) -> Self {
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id BIGINT PRIMARY KEY)").await;
        let (stop, confirmed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for client in 0..count {
            let (opts, stop, confirmed) =
                (source.opts(), Arc::clone(&stop), Arc::clone(&confirmed));
            tasks.spawn(async move {
                let mut own = BTreeSet::new();
                let mut conn = Conn::new(opts).await.expect("connects");
                for n in 0.. {
                    let id = client * 1_000_000 + n;
                    let insert = format!("INSERT INTO d.t VALUES ({id})");
                    // The end of the source is the end of its clients.
                    if stop.load(Ordering::Relaxed) || conn.query_drop(insert).await.is_err() {
                        break;
                    }
                    own.insert(id);
                    confirmed.fetch_add(1, Ordering::Relaxed);
                }
                own
            });
        }
        Self { stop, confirmed, tasks }
    }

    fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    /// More commits are confirmed.
    async fn advance(&self) {
        let before = self.confirmed();
        eventually("commits are confirmed", PATIENCE, async || self.confirmed() > before + 20)
            .await;
    }

    /// Those under way at the call may still be confirmed, and none after them.
    async fn stand_still(&self) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = self.confirmed();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(self.confirmed(), before, "a commit was confirmed that no replica has");
    }

    /// Returns everything that the source confirmed, once the clients have ended.
    async fn end(self) -> BTreeSet<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await.into_iter().flatten().collect()
    }
}

async fn status_of(source: &Server, name: &str) -> u64 {
    let query = "SELECT CAST(variable_value AS UNSIGNED) FROM performance_schema.global_status \
                 WHERE variable_name=";
    source.value(&format!("{query}'Rpl_semi_sync_source_{name}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_destroyed_takes_no_confirmed_commit_with_it() {
    let (source, target) = Server::pair(&SEMI_SYNC, &[]);
    let daemon = acknowledging(&source, &target).start();
    is_semi_sync(&daemon, true).await;
    let clients = Clients::start(&source, 8).await;
    clients.advance().await;
    // From here on nothing reaches the target: what is confirmed is in the relay store alone.
    let mut lock: Conn = target.conn().await;
    lock.query_drop("FLUSH TABLES WITH READ LOCK").await.expect("locks");
    for _ in 0..20 {
        clients.advance().await;
    }
    assert_eq!(status_of(&source, "no_tx").await, 0, "a commit did not wait");
    // It counts one for all commits that are synced together.
    assert!(status_of(&source, "yes_tx").await > 0, "no commit waited");
    source.kill9();
    daemon.kill9();
    let confirmed = clients.end().await;
    drop(source);
    daemon.start_again();
    drop(lock);
    let mut conn = target.conn().await;
    eventually("every confirmed commit reaches the target", DRAIN, async || {
        // Its definition may not be there yet.
        let there: Vec<u64> = conn.query("SELECT id FROM d.t").await.unwrap_or_default();
        let there: BTreeSet<u64> = there.into_iter().collect();
        confirmed.is_subset(&there)
    })
    .await;
    assert!(confirmed.len() > 400, "{}", confirmed.len());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn clients_wait_while_the_daemon_is_away_and_continue_with_it() {
    let (source, target) = Server::pair(&SEMI_SYNC, &[]);
    // Below, dumps are killed. MySQL 9.7.4 may then read acknowledgements of the killed dump for ever, and those of
    // no other, if they were encrypted.
    let daemon = acknowledging(&source, &target)
        .set("source.tls", "disabled")
        .set("source.get_public_key", true)
        .start();
    is_semi_sync(&daemon, true).await;
    let clients = Clients::start(&source, 4).await;
    clients.advance().await;
    // The relay's disk, or all of its host, stands still.
    daemon.signal("STOP");
    clients.stand_still().await;
    daemon.signal("CONT");
    clients.advance().await;
    // Places in a file that the source has ended meanwhile.
    for _ in 0..10 {
        source.exec("FLUSH BINARY LOGS").await;
        clients.advance().await;
    }
    daemon.signal("STOP");
    clients.stand_still().await;
    // The source ends a file only when all commits in it have their acknowledgement.
    tokio::join!(source.exec("FLUSH BINARY LOGS"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        daemon.signal("CONT");
    });
    clients.advance().await;
    for _ in 0..3 {
        daemon.kill9();
        clients.stand_still().await;
        daemon.start_again();
        clients.advance().await;
    }
    // Acknowledgements on their way are lost, and the source sends none of these transactions again.
    let dump = "SELECT id FROM performance_schema.processlist WHERE command='Binlog Dump GTID'";
    for _ in 0..15 {
        let dump: u64 = source.value(dump).await;
        source.exec(&format!("KILL {dump}")).await;
        clients.advance().await;
        eventually("one dump", PATIENCE, async || status_of(&source, "clients").await == 1).await;
    }
    // Heartbeats have the two bytes as well.
    let confirmed = clients.end().await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let connection = daemon.status()["channels"][0]["connection"].clone();
    assert!(connection["count_received_heartbeats"].as_u64() > Some(0), "{connection}");
    assert_eq!(connection["semi_sync"], true);
    let metrics = daemon.metrics();
    assert!(metrics.contains("csa_provider_semi_sync{channel=\"test\"} 1\n"), "{metrics}");
    let sent = connection["acknowledgements_total"].as_u64();
    assert!(
        metrics.contains(&format!(
            "acknowledgements_total{{channel=\"test\"}} {}\n",
            sent.unwrap_or(0)
        ))
    );
    assert!(sent > Some(0), "{connection}");
    assert_eq!(status_of(&source, "no_tx").await, 0, "a commit did not wait");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let there: u64 = target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(there, confirmed.len() as u64);
}

/// The source has not executed what waits for an acknowledgement, and yet lacks nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_source_with_an_alternative_is_followed_again_while_its_commits_wait() {
    let (source, target) = Server::pair(&SEMI_SYNC, &[]);
    let nobody = "a = [{ host = \"127.0.0.1\", port = 1 }]";
    let nobody = nobody.parse::<toml::Table>().expect("TOML")["a"].clone();
    // Unencrypted, because dumps are killed, as above.
    let daemon = acknowledging(&source, &target)
        .set("source.failover", nobody)
        .set("source.tls", "disabled")
        .set("source.get_public_key", true)
        .start();
    is_semi_sync(&daemon, true).await;
    let clients = Clients::start(&source, 4).await;
    let dump = "SELECT id FROM performance_schema.processlist WHERE command='Binlog Dump GTID'";
    for _ in 0..15 {
        clients.advance().await;
        let dump: u64 = source.value(dump).await;
        source.exec(&format!("KILL {dump}")).await;
        clients.advance().await;
        eventually("one dump", PATIENCE, async || status_of(&source, "clients").await == 1).await;
    }
    let confirmed = clients.end().await;
    assert_eq!(status_of(&source, "no_tx").await, 0, "a commit did not wait");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let there: u64 = target.value("SELECT COUNT(*) FROM d.t").await;
    assert_eq!(there, confirmed.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_and_compressed_transactions_are_acknowledged_and_others_filtered_too() {
    let options = [&SEMI_SYNC[..], &["--binlog-transaction-compression=ON"]].concat();
    let (source, target) = Server::pair(&options, &[]);
    let daemon = acknowledging(&source, &target)
        .set("applier.replicate_wild_ignore_table", vec!["scratch.%"])
        .start();
    is_semi_sync(&daemon, true).await;
    source
        .exec("CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
        .await;
    source.exec("CREATE DATABASE scratch; CREATE TABLE scratch.t (id INT PRIMARY KEY)").await;
    for mebibytes in [1, 20, 40] {
        let bytes = mebibytes << 20;
        source
            .exec(&format!(
                "SET SESSION binlog_transaction_compression=OFF; \
                 INSERT INTO d.t (b) VALUES (REPEAT('x', {bytes}))"
            ))
            .await;
        source.exec(&format!("INSERT INTO d.t (b) VALUES (REPEAT('y', {bytes}))")).await;
        source.exec(&format!("INSERT INTO scratch.t VALUES ({mebibytes})")).await;
    }
    assert_eq!(status_of(&source, "no_tx").await, 0, "a commit did not wait");
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::new().ignore_schema("scratch").run(&source, &target).await;
    assert_eq!(compared.unwrap_or_else(|difference| panic!("{difference}")).rows, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_plugin_or_the_sync_the_operator_learns_how_to_proceed() {
    let (source, target) = Server::pair(&[], &[]);
    let refusal = acknowledging(&source, &target)
        .set("relay.sync", "1s")
        .start_unless_refused()
        .expect_err("refused");
    assert!(
        refusal.contains("semi_sync") && refusal.contains("sync = \"transaction\""),
        "{refusal}"
    );

    let daemon = acknowledging(&source, &target).start();
    is_semi_sync(&daemon, false).await;
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let found = daemon.command(&["check", "--connect"]).out;
    let install = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; \
                   SET PERSIST rpl_semi_sync_source_enabled=ON;";
    assert!(found.contains(install), "{found}");
    source.exec(install).await;
    // The source looks for the plugin when a dump begins.
    daemon.commanded(&["stop", "--receiving"]);
    daemon.commanded(&["restart"]);
    is_semi_sync(&daemon, true).await;
    source.exec("INSERT INTO d.t VALUES (1)").await;
    eventually("it is acknowledged", PATIENCE, async || status_of(&source, "yes_tx").await == 1)
        .await;
    let found = daemon.command(&["check", "--connect"]).out;
    assert!(!found.contains("INSTALL PLUGIN"), "{found}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
