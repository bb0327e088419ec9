//! The record of the servers that a channel follows, where these change while it runs or had no transactions
//! when it began. Another name does not repeat its history or pass over a part of it.

use std::time::Duration;

use csa_tests::{Compare, Daemon, DaemonBuilder, Server, compare, eventually};

use crate::{DRAIN, wait_state};

const FOLLOWED: &str = "SELECT source_uuids FROM csa.channel WHERE channel='test'";

async fn uuid(server: &Server) -> String {
    server.value("SELECT @@server_uuid").await
}

fn builder(source: &Server, target: &Server, gtids: &str) -> DaemonBuilder {
    let commit = if gtids == "source" { "one-to-one" } else { "grouped" };
    let builder = Daemon::builder(source, target).set("applier.target_gtids", gtids);
    builder.set("applier.commit", commit)
}

/// Returns a running channel whose source has executed nothing yet.
async fn begun_on_nothing(builder: DaemonBuilder, source: &Server) -> Daemon {
    assert_eq!(source.gtid_executed().await, "");
    let daemon = builder.start();
    wait_state(&daemon, 0, "running").await;
    daemon
}

/// Rows that show immediately when something is applied a second time, or not at all.
async fn write_history(source: &Server) {
    source.exec("CREATE DATABASE d; CREATE TABLE d.keyless (v INT)").await;
    source.exec("INSERT INTO d.keyless VALUES (11), (12)").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_that_began_on_an_empty_source_keeps_its_history_under_another_name() {
    // Where the target's GTIDs are the checkpoint, or level with it, a start with them continues.
    for (gtids, start, is_refused) in [
        ("own", "target", true),
        ("own", "source", true),
        ("mirror", "target", false),
        ("source", "source", true),
    ] {
        let (source, target) = Server::pair(&[], &[]);
        let daemon = builder(&source, &target, gtids).set("applier.start_from", start);
        let daemon = begun_on_nothing(daemon, &source).await;
        write_history(&source).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        assert!(daemon.terminate().success());
        source.exec("INSERT INTO d.keyless VALUES (13)").await;
        daemon.set("name", "renamed");
        match is_refused {
            true => {
                let why = daemon.start_refused().await;
                let adopt = "csa-daemon adopt --from test --channel renamed";
                assert!(why.contains(adopt), "{gtids} {start}: {why}");
                daemon.commanded(&["adopt", "--from", "test"]);
                daemon.start_again();
            }
            false => daemon.start_again(),
        }
        source.exec("INSERT INTO d.keyless VALUES (14)").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
    }
}

/// An earlier version wrote no servers at all where the source had no transactions.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_servers_says_nothing_about_whom_a_channel_follows() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = begun_on_nothing(builder(&source, &target, "own"), &source).await;
    write_history(&source).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    target.exec("UPDATE csa.channel SET source_uuids=''").await;
    daemon.set("name", "renamed");
    let why = daemon.start_refused().await;
    assert!(why.contains("csa-daemon adopt --from test --channel renamed"), "{why}");
    compare(&source, &target).await;
    // Under its own name it continues, and the record is whole again.
    daemon.set("name", "test");
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    assert_eq!(target.value::<String>(FOLLOWED).await, uuid(&source).await);
    source.exec("INSERT INTO d.keyless VALUES (13)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_names_a_server_before_its_first_transaction_is_there() {
    for gtids in ["own", "source"] {
        let (source, target) = Server::pair(&[], &[]);
        let peer = Server::start("peer", &[]);
        peer.follow(&source).await;
        let failover = format!("a = [{{ host = \"127.0.0.1\", port = {} }}]", peer.port);
        let failover = failover.parse::<toml::Table>().expect("TOML")["a"].clone();
        let daemon = builder(&source, &target, gtids).set("source.failover", failover);
        let daemon = begun_on_nothing(daemon, &source).await;
        write_history(&source).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        assert_eq!(target.value::<String>(FOLLOWED).await, uuid(&source).await, "{gtids}");

        // The peer takes over, and the channel with it, without a start.
        let (level, first_server) = (source.gtid_executed().await, uuid(&source).await);
        eventually("the peer is level", DRAIN, async || peer.gtid_executed().await == level).await;
        source.kill9();
        peer.exec("STOP REPLICA; RESET REPLICA ALL").await;
        // Not only rows: a definition runs on another session, under its own GTID.
        let (first, then) =
            ("CREATE TABLE d.new (id INT PRIMARY KEY)", "INSERT INTO d.keyless VALUES (13)");
        peer.exec(if gtids == "own" { then } else { first }).await;
        peer.exec(if gtids == "own" { first } else { then }).await;
        daemon.wait_drained(&peer, &target, DRAIN).await;
        compare(&peer, &target).await;
        let followed: String = target.value(FOLLOWED).await;
        for server in [first_server, uuid(&peer).await] {
            assert!(followed.contains(&server), "{gtids}: {server} is missing in {followed}");
        }
    }
}

/// The target came from a copy of a replica that has a transaction of its own, which no other server has.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_copied_and_became_the_source_is_no_longer_foreign() {
    let (source, target) = Server::pair(&[], &[]);
    let (peer, third) = Server::both(|| Server::start("peer", &[]), || Server::start("third", &[]));
    peer.exec("CREATE DATABASE own").await;
    target.exec(&format!("SET GLOBAL gtid_purged='+{}'", peer.gtid_executed().await)).await;
    for replica in [&peer, &third] {
        replica.follow(&source).await;
    }
    let address = |server: &Server| format!("{{ host = \"127.0.0.1\", port = {} }}", server.port);
    let failover = format!("a = [{}, {}]", address(&peer), address(&third));
    let failover = failover.parse::<toml::Table>().expect("TOML")["a"].clone();
    let daemon = builder(&source, &target, "own").set("source.failover", failover);
    let daemon = begun_on_nothing(daemon, &source).await;
    write_history(&source).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let foreign = "SELECT foreign_uuids FROM csa.channel WHERE channel='test'";
    assert_eq!(target.value::<String>(foreign).await, uuid(&peer).await);
    let level = source.gtid_executed().await;
    let is_level = format!("SELECT GTID_SUBSET('{level}', @@GLOBAL.gtid_executed)");
    for replica in [&peer, &third] {
        let is_level = async || replica.value::<u64>(&is_level).await == 1;
        eventually("the replica is level", DRAIN, is_level).await;
    }

    source.kill9();
    for (server, row) in [(&peer, 13), (&third, 99)] {
        server.exec("STOP REPLICA; RESET REPLICA ALL").await;
        server.exec(&format!("INSERT INTO d.keyless VALUES ({row})")).await;
    }
    daemon.wait_drained(&peer, &target, DRAIN).await;
    assert_eq!(target.value::<String>(foreign).await, "");
    let peer_uuid = uuid(&peer).await;
    peer.kill9();
    // Without a start of the daemon, and after one.
    for starts in 0..2 {
        let lacks = format!("lacks transactions we already have: {peer_uuid}:1-2");
        let is_refused = async || daemon.status().to_string().contains(&lacks);
        eventually("the third server is refused", DRAIN, is_refused).await;
        let of_third: u64 = target.value("SELECT COUNT(*) FROM d.keyless WHERE v=99").await;
        assert_eq!(of_third, 0);
        if starts == 0 {
            daemon.kill9();
            daemon.start_again();
        }
    }
    peer.restart();
    peer.exec("INSERT INTO d.keyless VALUES (14)").await;
    daemon.wait_drained(&peer, &target, DRAIN).await;
    let compared = Compare::contents().ignore_schema("own").run(&peer, &target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

/// A channel's own source need not have the transactions that another channel brought, whoever made them.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_need_not_have_what_another_channel_brought_from_a_source_that_was_empty() {
    let (one, two) = Server::pair(&[], &[]);
    let target = Server::start("target", &[]);
    let both = builder(&one, &target, "source").set("name", "one").channel("two", &two, &target);
    let both = both.set("applier.commit", "one-to-one").set("applier.target_gtids", "source");
    one.exec("CREATE DATABASE a; CREATE TABLE a.t (v INT)").await;
    let daemon = both.start();
    daemon.wait_channel_drained("one", &one, &target, DRAIN).await;
    wait_state(&daemon, 1, "running").await;
    two.exec("CREATE DATABASE b; CREATE TABLE b.t (v INT); INSERT INTO b.t VALUES (1)").await;
    daemon.wait_channel_drained("two", &two, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    daemon.start_again();
    one.exec("INSERT INTO a.t VALUES (1)").await;
    daemon.wait_channel_drained("one", &one, &target, Duration::from_secs(40)).await;
    for (source, of_other) in [(&one, "b"), (&two, "a")] {
        let compared = Compare::contents().ignore_schema(of_other).run(source, &target).await;
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }
}
