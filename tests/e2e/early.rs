//! A large transaction is applied while it is still being received, and leaves nothing if its end does
//! not come. `CSA_EARLY_MIB` is the size of the transaction, `CSA_EARLY_RATE` the limit of the link in MiB/s
//! (0 for none); with `CSA_EARLY_ROUNDS` the comparison with `begin_early = 0` alternates that often, and
//! prints its figures with `--nocapture`.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, DaemonBuilder, Proxy, Server, compare, eventually, peak_memory};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::{DRAIN, wait_state};

const MIB: u64 = 1 << 20;
/// The limit of event memory, and an allowance for everything else in the process.
const MEMORY: u64 = (64 + 64) * MIB;
/// The size of a row of the transaction.
const ROW_BYTES: u64 = 8_000;

fn of_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn channel(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

struct Pair {
    source: Server,
    target: Server,
    proxy: Proxy,
    mib: u64,
}

impl Pair {
    async fn start() -> Self {
        Self::start_with(32).await
    }

    /// Starts servers for a transaction of the size.
    async fn start_with(mib: u64) -> Self {
        let large = "--max-binlog-cache-size=8G";
        let (source, target) = Server::pair(
            &["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", large],
            &["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", large],
        );
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)").await;
        source.exec("INSERT INTO d.t VALUES (0, 'first')").await;
        let proxy = Proxy::to(source.port);
        Self { source, target, proxy, mib: of_environment("CSA_EARLY_MIB", mib) }
    }

    fn builder(&self) -> DaemonBuilder {
        Daemon::builder(&self.source, &self.target)
            .set("source.port", i64::from(self.proxy.port))
            .set("applier.event_memory_limit", "64MiB")
    }

    /// Commits a transaction on the source that changes row 0 first. Returns its GTID.
    async fn commit(&self) -> String {
        let before = self.source.gtid_executed().await;
        let mut conn = self.source.conn().await;
        let rows = self.mib * MIB / ROW_BYTES;
        for sql in [
            "SET cte_max_recursion_depth=10000000".to_owned(),
            "BEGIN".to_owned(),
            "UPDATE d.t SET v=CONCAT(v, '+') WHERE id=0".to_owned(),
            "DELETE FROM d.t WHERE id>0".to_owned(),
            format!(
                "INSERT INTO d.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE \
                 i<{rows}) SELECT i, REPEAT(CHAR(65+i%26), {ROW_BYTES}) FROM n"
            ),
            "COMMIT".to_owned(),
        ] {
            conn.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        let text = format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')");
        self.source.value(&text).await
    }

    /// Returns true if a session on the target has changed row 0 and not committed.
    async fn is_locked(&self) -> bool {
        let mut conn = self.target.conn().await;
        let locked = "SELECT id FROM d.t WHERE id=0 FOR UPDATE NOWAIT";
        match conn.query_drop(locked).await {
            Ok(()) => false,
            Err(mysql_async::Error::Server(error)) if error.code == 3572 => true,
            Err(error) => panic!("{error}"),
        }
    }

    async fn has(&self, gtid: &str) -> bool {
        let text = format!("SELECT GTID_SUBSET('{gtid}', gtid_executed) FROM csa.checkpoint");
        let found: Vec<Option<bool>> =
            self.target.conn().await.query(&text).await.unwrap_or_default();
        let own = format!("SELECT GTID_SUBSET('{gtid}', @@GLOBAL.gtid_executed)");
        found.contains(&Some(true)) || self.target.value::<bool>(&own).await
    }

    /// The part of it that is applied is there and locked; nobody can see it, and nothing counts it.
    async fn wait_until_begun(&self, daemon: &Daemon, gtid: &str) {
        eventually("its first row is changed", DRAIN, async || self.is_locked().await).await;
        let view = channel(daemon);
        assert_eq!(view["connection"]["queueing_transaction"], *gtid, "{view:#}");
        let received = view["received_transaction_set"].as_str().unwrap_or_default();
        let is_received = format!("SELECT GTID_SUBSET('{gtid}', '{received}')");
        assert!(!self.source.value::<bool>(&is_received).await, "{received}");
        assert!(view["lag_seconds"].as_f64() != Some(0.0), "{view:#}");
        assert!(!self.has(gtid).await);
    }

    async fn wait_until_nothing_is_left(&self, before: &(String, u64), gtid: &str) {
        eventually("it is rolled back", DRAIN, async || !self.is_locked().await).await;
        assert_eq!(self.contents().await, *before);
        assert!(!self.has(gtid).await);
    }

    async fn contents(&self) -> (String, u64) {
        let row = "SELECT v FROM d.t WHERE id=0";
        (self.target.value(row).await, self.target.value("SELECT COUNT(*) FROM d.t").await)
    }

    /// Cuts the daemon's link in the middle of whatever passes.
    async fn cut(&self) {
        let dump =
            "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
        let id: u64 = self.source.value(dump).await;
        self.source.exec(&format!("KILL {id}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_transaction_that_does_not_come_to_its_end_leaves_nothing() {
    cut_off("own", "row-image").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_transaction_that_does_not_come_to_its_end_leaves_nothing_in_statements() {
    cut_off("mirror", "sql").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_transaction_that_does_not_come_to_its_end_leaves_its_gtid() {
    cut_off("source", "row-image").await;
}

/// Whatever ends reception in the middle, nothing remains, and the transaction is applied when it comes.
async fn cut_off(gtids: &str, executor: &str) {
    let pair = Pair::start().await;
    // It takes some seconds to come.
    let rate = pair.mib * MIB / 8;
    let mut builder = pair.builder().set("applier.target_gtids", gtids);
    if gtids == "source" {
        builder = builder.set("applier.commit", "one-to-one");
    }
    let builder = builder.set("applier.executor", executor).set("applier.begin_early", "1MiB");
    let daemon = builder.start();
    daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    let before = pair.contents().await;
    pair.proxy.set_rate(Some(rate));
    let gtid = pair.commit().await;
    pair.wait_until_begun(&daemon, &gtid).await;
    // The link is lost, and the next one too slow to bring enough. What the proxy and the system still hold comes so slowly that
    // the daemon takes the source for gone.
    pair.proxy.set_rate(Some(1_000));
    pair.cut().await;
    pair.wait_until_nothing_is_left(&before, &gtid).await;
    pair.proxy.set_rate(Some(rate));
    pair.wait_until_begun(&daemon, &gtid).await;
    // A pause and a stop do not wait for a source.
    daemon.commanded(&["pause"]);
    pair.wait_until_nothing_is_left(&before, &gtid).await;
    daemon.commanded(&["resume"]);
    pair.cut().await;
    pair.wait_until_begun(&daemon, &gtid).await;
    let stopping = Instant::now();
    assert!(daemon.terminate().success());
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
    pair.wait_until_nothing_is_left(&before, &gtid).await;
    daemon.start_again();
    pair.wait_until_begun(&daemon, &gtid).await;
    daemon.kill9();
    pair.wait_until_nothing_is_left(&before, &gtid).await;
    daemon.start_again();
    pair.wait_until_begun(&daemon, &gtid).await;
    pair.proxy.set_rate(None);
    daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    compare(&pair.source, &pair.target).await;
    let peak = peak_memory(daemon.pid().expect("running")).expect("running");
    println!("{gtids}, {executor}: peak RSS {} MiB", peak / MIB);
    assert!(peak <= MEMORY, "peak RSS {} MiB", peak / MIB);
    assert!(daemon.terminate().success());
}

/// To begin it and give it up at once would end the pipeline, for as long as the transaction arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_channel_begins_nothing_that_is_not_whole() {
    let pair = Pair::start().await;
    let daemon = pair.builder().set("applier.begin_early", "1MiB").start();
    daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    daemon.commanded(&["pause"]);
    let epoch = async || pair.target.value::<u64>("SELECT MAX(epoch) FROM csa.checkpoint").await;
    let before = epoch().await;
    pair.proxy.set_rate(Some(pair.mib * MIB / 8));
    let gtid = pair.commit().await;
    let arrives = || channel(&daemon)["connection"]["queueing_transaction"] == *gtid;
    eventually("it arrives", DRAIN, async || arrives()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(arrives(), "too small to be still arriving");
    assert_eq!(channel(&daemon)["state"], "paused");
    assert_eq!(epoch().await, before, "{}", daemon.log_tail());
    daemon.commanded(&["resume"]);
    pair.wait_until_begun(&daemon, &gtid).await;
    pair.proxy.set_rate(None);
    daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    compare(&pair.source, &pair.target).await;
}

/// The other daemon takes the channel while a part of the transaction is applied and the rest is still to
/// come, to the one that dies, or hangs and comes back.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_standby_takes_over_in_the_middle_of_a_transaction() {
    for (gtids, commit, executor) in [
        ("own", "grouped", "row-image"),
        ("source", "one-to-one", "row-image"),
        ("mirror", "grouped", "sql"),
    ] {
        let pair = Pair::start().await;
        let rate = pair.mib * MIB / 16;
        let daemons = [pair.proxy.port, pair.source.port].map(|port| {
            let builder = pair.builder().set("source.port", i64::from(port)).set("standby", true);
            builder
                .set("target.net_timeout", "2s")
                .set("applier.target_gtids", gtids)
                .set("applier.commit", commit)
                .set("applier.executor", executor)
                .set("applier.begin_early", "1MiB")
                .build()
        });
        let [slow, other] = &daemons;
        for hangs in [false, true] {
            slow.start_again();
            slow.wait_drained(&pair.source, &pair.target, DRAIN).await;
            other.start_again();
            wait_state(other, 0, "standby").await;
            let before = pair.contents().await;
            pair.proxy.set_rate(Some(rate));
            let gtid = pair.commit().await;
            pair.wait_until_begun(slow, &gtid).await;
            match hangs {
                true => slow.signal("STOP"),
                false => slow.kill9(),
            }
            other.wait_drained(&pair.source, &pair.target, DRAIN).await;
            assert_ne!(pair.contents().await, before);
            pair.proxy.set_rate(None);
            if hangs {
                slow.signal("CONT");
                wait_state(slow, 0, "standby").await;
                // What it still receives of the transaction is nothing to it.
                pair.source.exec("UPDATE d.t SET v='last' WHERE id=1").await;
                other.wait_drained(&pair.source, &pair.target, DRAIN).await;
                assert!(slow.terminate().success());
            }
            compare(&pair.source, &pair.target).await;
            assert!(other.terminate().success());
        }
    }
}

/// The time from the last byte until the commit is visible is less
/// than half of what it is without.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_commit_follows_shortly_after_the_end() {
    let pair = Pair::start_with(48).await;
    let mib_per_second = of_environment("CSA_EARLY_RATE", pair.mib / 8);
    let rate = (mib_per_second > 0).then_some(mib_per_second * MIB);
    let mut after_end = [Vec::new(), Vec::new()];
    let daemon = pair.builder().start();
    for round in 0..of_environment("CSA_EARLY_ROUNDS", 1) {
        for (place, early) in ["16MiB", "0"].into_iter().enumerate() {
            assert!(daemon.terminate().success());
            daemon.set("applier.begin_early", early);
            daemon.start_again();
            daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
            let before = pair.contents().await;
            pair.proxy.set_rate(rate);
            let gtid = pair.commit().await;
            let committed = Instant::now();
            let is_received = async || {
                let last = &channel(&daemon)["connection"]["last_queued_transaction"];
                last.as_str() == Some(&*gtid)
            };
            eventually("it is received", DRAIN * 5, is_received).await;
            let received = committed.elapsed();
            let is_visible = async || pair.contents().await.0 != before.0;
            eventually("it is visible", DRAIN * 5, is_visible).await;
            let visible = committed.elapsed();
            after_end[place].push((visible - received).as_secs_f64());
            println!(
                "round {round}: {} MiB, link {mib_per_second} MiB/s, begin_early {early}: received after \
                 {:.2} s, visible after {:.2} s",
                pair.mib,
                received.as_secs_f64(),
                visible.as_secs_f64()
            );
            daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
            compare(&pair.source, &pair.target).await;
            pair.proxy.set_rate(None);
        }
    }
    let [on, off] = after_end.map(|times| times.iter().sum::<f64>());
    assert!(rate.is_none() || on < off / 2.0, "{on:.2} s after the end, and {off:.2} s without");
}
