//! The start position of a channel: it never goes back in time, skips nothing, and follows no source
//! with another history.

use std::net::TcpListener;
use std::time::Duration;

use csa_tests::{Daemon, FakeServer, Server, compare, eventually};
use serde_json::Value;

use crate::fleet::Site;
use crate::{DRAIN, wait_state};

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in {text}");
    }
}

/// Returns the findings of `check --connect` that are not ok, by name.
fn check(daemon: &Daemon) -> Vec<(String, String)> {
    let said = daemon.command(&["check", "--connect", "--json"]);
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let channels = json["channels"].as_array().expect("channels").iter();
    let findings = channels.flat_map(|channel| channel["findings"].as_array().expect("findings"));
    findings
        .filter(|finding| finding["level"] != "ok")
        .map(|finding| (finding["check"].as_str().expect("a name").to_owned(), finding.to_string()))
        .collect()
}

#[track_caller]
fn finds(found: &[(String, String)], check: &str, words: &[&str]) {
    let text = found.iter().find(|(name, _)| name == check);
    says(&text.unwrap_or_else(|| panic!("no {check} in {found:?}")).1, words);
}

/// Rows that show immediately when something is applied a second time.
async fn write_history(source: &Server) {
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("CREATE TABLE d.keyless (v INT); INSERT INTO d.t VALUES (1, 0)").await;
    for v in [100, 200, 300] {
        source.exec(&format!("UPDATE d.t SET v={v}; INSERT INTO d.keyless VALUES ({v})")).await;
        source.exec(&format!("CREATE TABLE d.made_{v} (id INT PRIMARY KEY)")).await;
    }
    source.exec("UPDATE d.t SET v=400; INSERT INTO d.keyless VALUES (400)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_needs_a_word_where_nothing_shows_a_copy() {
    let (source, target) = Server::pair(&[], &[]);
    write_history(&source).await;
    let daemon = Daemon::builder(&source, &target).unset("applier.start_from").build();
    let ways = ["none of the source's", "start_from", "copy", "GTID set", "target"];
    says(&daemon.start_refused().await, &ways);
    finds(&check(&daemon), "channel.start", &ways);
    // An account that sees no table can't tell that there is none.
    source.exec("DROP DATABASE d; REVOKE SELECT ON *.* FROM repl@'%'").await;
    says(&daemon.start_refused().await, &ways);
    source.exec("GRANT SELECT ON *.* TO repl@'%'").await;
    // A source without tables needs no copy.
    let daemon = Daemon::builder(&source, &target).unset("applier.start_from").start();
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    write_history(&source).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // The checkpoint is word enough.
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_without_a_checkpoint_never_goes_back_in_time() {
    let (source, target) = Server::pair(&[], &[]);
    write_history(&source).await;
    let early: String = source.value("SELECT CONCAT(@@server_uuid, ':1-4')").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());

    // The channel is renamed, with the default start and with a `start_from` left in the file.
    let adopt = "csa-daemon adopt --from test --channel renamed";
    daemon.set("name", "renamed");
    says(&daemon.start_refused().await, &[adopt, "second time", "start_from", "channel \"test\""]);
    finds(&check(&daemon), "channel.start", &[adopt]);
    daemon.set("applier.start_from", early.as_str());
    says(&daemon.start_refused().await, &["both write the same tables", adopt]);
    daemon.set("applier.start_from", "target");
    compare(&source, &target).await;

    // `adopt` is refused while a daemon has the channel, or the configuration still names the old one.
    let running = Daemon::builder(&source, &target).start();
    wait_state(&running, 0, "running").await;
    daemon.command(&["adopt", "--from", "test"]).refused(1, &["another daemon holds it"]);
    assert!(running.terminate().success());
    running.command(&["adopt", "--from", "test"]).refused(2, &["take it out"]);
    daemon.command(&["adopt", "--from", "nobody"]).refused(1, &["nobody", "nothing to adopt"]);
    // A version that did not record whose transactions a channel follows left the target like this.
    target.exec("DROP TABLE csa.channel").await;
    says(&daemon.start_refused().await, &[adopt]);
    let said = daemon.commanded(&["adopt", "--from", "test"]);
    says(&said, &["channel renamed has the checkpoint of channel test", "is now"]);
    assert!(daemon.state_dir().join("renamed/relay").is_dir());
    let audit = "SELECT CONCAT_WS('|', channel, action, gtid, `by`, detail) FROM csa.audit WHERE action='adopt'";
    assert_eq!(target.value::<String>(audit).await, "renamed|adopt||tester|from test");
    daemon.set("applier.replicate_do_db", vec!["d"]);
    daemon.start_again();
    source.exec("UPDATE d.t SET v=500; INSERT INTO d.keyless VALUES (500)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let followed: String = target.value("SELECT source_uuids FROM csa.channel").await;
    assert_eq!(followed, source.value::<String>("SELECT @@server_uuid").await);
    // A start under the old name would now go back in time.
    says(&running.start_refused().await, &["channel \"renamed\"", "second time"]);

    // A second channel has tables of its own, and starts after their copy.
    let copied = source.gtid_executed().await;
    source.exec("CREATE DATABASE e; USE e; CREATE TABLE t (v INT); INSERT INTO t VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let beside = Daemon::builder(&source, &target)
        .set("name", "beside")
        .set("applier.replicate_do_db", vec!["e"])
        .build();
    says(&beside.start_refused().await, &["on tables of their own", "start_from"]);
    beside.set("applier.start_from", copied.as_str());
    beside.start_again();
    source.exec("INSERT INTO e.t VALUES (2); INSERT INTO d.keyless VALUES (600)").await;
    let own_tables = check(&beside);
    assert!(!own_tables.iter().any(|(name, _)| name == "target.same_tables"), "{own_tables:?}");
    let both = Daemon::builder(&source, &target)
        .set("name", "beside")
        .set("applier.replicate_do_db", vec!["e", "f"])
        .channel("third", &source, &target)
        .set("applier.replicate_do_db", vec!["f", "d"])
        .build();
    let found = check(&both);
    finds(&found, "target.same_tables", &["\"error\"", "channel \\\"third\\\"", "writes f."]);
    let known: Vec<_> = found.iter().filter(|(name, _)| name == "target.same_tables").collect();
    assert!(known.iter().any(|(_, text)| text.contains("renamed") && text.contains("writes d.")));
    for (daemon, channel) in [(&daemon, "renamed"), (&beside, "beside")] {
        daemon.wait_channel_drained(channel, &source, &target, DRAIN).await;
    }
    compare(&source, &target).await;
    // What it leaves out would count as executed for the other two.
    let mirroring = Daemon::builder(&source, &target)
        .set("name", "mirroring")
        .set("applier.replicate_do_db", vec!["g"])
        .set("applier.target_gtids", "mirror")
        .set("applier.start_from", copied.as_str())
        .build();
    says(&mirroring.start_refused().await, &["share a source", "target_gtids = \"own\""]);
    assert!(daemon.terminate().success() && beside.terminate().success());

    // Everything known of channels is gone: the received transactions show it, or else the holes.
    target.exec("DROP SCHEMA csa").await;
    let fresh = Daemon::builder(&source, &target).set("name", "renamed").build();
    for daemon in [&daemon, &fresh] {
        says(&daemon.start_refused().await, &["csa was dropped", "second time", "start_from"]);
    }
    daemon.set("applier.start_from", "source");
    says(&daemon.start_refused().await, &["csa dropped", "passed over", "relay store"]);
    let executed = source.gtid_executed().await;
    daemon.set("applier.start_from", executed.as_str());
    daemon.start_again();
    source.exec("INSERT INTO d.keyless VALUES (700)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Another channel keeps the daemon up, which makes the folder of the new name before it refuses the start.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_received_follows_a_channel_whose_start_was_refused() {
    let site = Site::new(&["test", "two"]).await;
    let daemon = site.builder().append(&site.channel("two", "")).start();
    site.source.exec("CREATE TABLE test.early (v INT); INSERT INTO test.early VALUES (1)").await;
    site.drained(&daemon, &["test", "two"]).await;
    daemon.commanded(&["--channel", "test", "pause"]);
    site.source.exec("CREATE TABLE test.late (v INT); INSERT INTO test.late VALUES (1)").await;
    let executed = site.source.gtid_executed().await;
    eventually("it is received", DRAIN, async || {
        let channels = daemon.status()["channels"].clone();
        (0..2).all(|channel| channels[channel]["received_transaction_set"] == executed.as_str())
    })
    .await;
    assert!(daemon.terminate().success());
    daemon.set("name", "renamed");
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let adopt = ["--channel", "renamed", "adopt", "--from", "test"];
    let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(error.contains("csa-daemon adopt --from test --channel renamed"), "{error}");
    assert!(daemon.state_dir().join("renamed").is_dir());
    eventually("the source has purged it", DRAIN, async || {
        site.source.exec("FLUSH BINARY LOGS").await;
        site.source.exec("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY").await;
        site.source.value::<String>("SELECT @@GLOBAL.gtid_purged").await == executed
    })
    .await;
    says(&daemon.commanded(&adopt), &["channel renamed has the checkpoint", "relay is now"]);
    daemon.commanded(&["--channel", "renamed", "restart"]);
    wait_state(&daemon, 0, "running").await;
    site.drained(&daemon, &["renamed", "two"]).await;
    compare(&site.source, &site.target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_set_back_and_sources_with_gaps_lose_nothing() {
    let (source, target) = Server::pair(&[], &[]);
    let replica = Server::start("replica", &[]);
    replica.follow(&source).await;
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());

    // Data and checkpoint saved now, and restored later while the GTIDs stay.
    target
        .exec(
            "SET sql_log_bin=0; CREATE DATABASE keep; CREATE TABLE keep.t LIKE d.t; \
             INSERT INTO keep.t SELECT * FROM d.t; CREATE TABLE keep.checkpoint LIKE csa.checkpoint; \
             INSERT INTO keep.checkpoint SELECT * FROM csa.checkpoint",
        )
        .await;
    let kept = target.gtid_executed().await;
    source.exec("TRUNCATE d.t; ALTER TABLE d.t ADD c INT; INSERT INTO d.t VALUES (4, 4, 4)").await;
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    target
        .exec(
            "SET sql_log_bin=0; DROP TABLE d.t; RENAME TABLE keep.t TO d.t; \
             TRUNCATE csa.checkpoint; INSERT INTO csa.checkpoint SELECT * FROM keep.checkpoint; \
             DROP DATABASE keep",
        )
        .await;
    let words = ["2 transactions", "restored from a backup", "gtid_purged", "start_from"];
    says(&daemon.start_refused().await, &words);
    finds(&check(&daemon), "channel.start", &words);
    target.exec(&format!("RESET BINARY LOGS AND GTIDS; SET GLOBAL gtid_purged='{kept}'")).await;
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;

    // The address leads to a replica that lags, and has a transaction of its own.
    let level = source.gtid_executed().await;
    eventually("the replica is level", DRAIN, async || replica.gtid_executed().await == level)
        .await;
    replica.exec("STOP REPLICA").await;
    source.exec("UPDATE d.t SET v=5; INSERT INTO d.t VALUES (5, 5, 5)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    replica.exec("CREATE TABLE d.own (v INT); INSERT INTO d.own VALUES (1)").await;
    daemon.set("source.port", i64::from(replica.port));
    daemon.start_again();
    let lacking: String =
        source.value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{level}')")).await;
    eventually("the lack is named", Duration::from_secs(60), async || {
        let error = daemon.status()["channels"][0]["connection"]["last_error_message"].to_string();
        error.contains("lacks transactions we already have") && error.contains(&lacking)
    })
    .await;
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'";
    assert_eq!(target.value::<u64>(tables).await, 1, "nothing of another history is applied");
    finds(&check(&daemon), "position.history", &[&lacking]);
    compare(&source, &target).await;
    replica.exec("START REPLICA").await;
    daemon.wait_drained(&replica, &target, DRAIN).await;
    eventually("the replica is level", DRAIN, async || {
        replica.value::<u64>("SELECT COUNT(*) FROM d.t WHERE id=5").await == 1
    })
    .await;
    daemon.wait_drained(&replica, &target, DRAIN).await;
    compare(&replica, &target).await;

    // The source may have purged what is already received.
    daemon.commanded(&["pause"]);
    replica.exec("INSERT INTO d.own VALUES (2); INSERT INTO d.own VALUES (3)").await;
    eventually("it is received", DRAIN, async || {
        daemon.status()["channels"][0]["backlog_transactions"] == 2
    })
    .await;
    assert!(daemon.terminate().success());
    // What the daemon's last session reads is not purged, and that session ends a moment after the daemon.
    eventually("all is purged", DRAIN, async || {
        replica.exec("FLUSH BINARY LOGS").await;
        replica.exec("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY").await;
        let purged: String = replica.value("SELECT @@GLOBAL.gtid_purged").await;
        purged == replica.value::<String>("SELECT @@GLOBAL.gtid_executed").await
    })
    .await;
    assert_eq!(check(&daemon).iter().filter(|(name, _)| name == "channel.start").count(), 0);
    daemon.start_again();
    replica.exec("INSERT INTO d.own VALUES (4)").await;
    daemon.wait_drained(&replica, &target, DRAIN).await;
    compare(&replica, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_claims_to_be_mysql_is_refused_by_name() {
    let (source, target) = Server::pair(&[], &[]);
    for (version, comment, name) in [
        ("8.0.11-TiDB-v7.5.1", "TiDB Server (Apache License 2.0)", "TiDB"),
        ("8.0.30-Vitess", "Version: 18.0.2", "Vitess"),
        ("8.0.33", "Dolt", "Dolt"),
    ] {
        let fake = FakeServer::start(version, comment);
        for side in ["source", "target"] {
            let daemon = Daemon::builder(&source, &target)
                .set(&format!("{side}.port"), i64::from(fake.port))
                .build();
            let words = [side, &format!("is {name} ("), version];
            says(&daemon.start_refused().await, &words);
            finds(&check(&daemon), &format!("{side}.version"), &words);
        }
    }
    // A server that hides its name is recognised by the features it lacks.
    let fake = FakeServer::start("8.0.40", "Source distribution");
    for side in ["source", "target"] {
        let daemon = Daemon::builder(&source, &target)
            .set(&format!("{side}.port"), i64::from(fake.port))
            .build();
        says(&daemon.start_refused().await, &[side, "MySQL 5.7", "nknown system variable"]);
    }
    for side in ["source", "target"] {
        let (version, needed) = ("5.6.51-log", "MySQL 5.7 or newer");
        let old = FakeServer::start(version, "MySQL Community Server (GPL)");
        let daemon = Daemon::builder(&source, &target)
            .set(&format!("{side}.port"), i64::from(old.port))
            .build();
        says(&daemon.start_refused().await, &[version, needed]);
        finds(&check(&daemon), &format!("{side}.version"), &[version, needed]);
    }
}

/// The daemon's own check of its channels is the first step of their start.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_asks_each_server_once() {
    let (source, target) = Server::pair(&[], &[]);
    for server in [&source, &target] {
        server.exec("SET GLOBAL log_output='TABLE', general_log=ON").await;
    }
    let daemon = Daemon::builder(&source, &target).start();
    source.exec("CREATE DATABASE d").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    for server in [&source, &target] {
        let asked = "SELECT COUNT(*) FROM mysql.general_log WHERE argument='SHOW GRANTS'";
        assert_eq!(server.value::<u64>(asked).await, 1);
    }
    compare(&source, &target).await;
}

/// The first process of a container gets no signal that it does not listen for; any other one would end with the status of
/// the signal.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_a_server_does_not_answer_is_orderly() {
    let (source, target) = Server::pair(&[], &[]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("binds");
    silent.set_nonblocking(true).expect("set");
    let port = silent.local_addr().expect("an address").port();
    let daemon = Daemon::builder(&source, &target)
        .set("source.port", i64::from(port))
        .set("source.connect_timeout", "60s")
        .build();
    daemon.spawn();
    let mut asked = None;
    eventually("the source is asked", DRAIN, async || {
        asked = silent.accept().ok();
        asked.is_some()
    })
    .await;
    daemon.signal("TERM");
    let status = daemon.wait_exit(Duration::from_secs(20));
    assert!(status.success(), "{status}\n{}", daemon.log_tail());
}

/// A later version may add columns to our tables.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_a_later_version_do_no_harm() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).set("applier.worker_count", 2).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    let tables: String = target
        .value("SELECT GROUP_CONCAT(TABLE_NAME) FROM information_schema.TABLES WHERE TABLE_SCHEMA='csa'")
        .await;
    for table in tables.split(',') {
        target.exec(&format!("ALTER TABLE csa.{table} ADD COLUMN later INT NULL")).await;
    }
    daemon.set("applier.worker_count", 5);
    daemon.start_again();
    source.exec("INSERT INTO d.t VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(!daemon.log().contains("can't be written"), "{}", daemon.log());
}
