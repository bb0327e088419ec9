//! A group as target: the channel follows the primary, whatever becomes of it, and loses and repeats nothing.

use std::time::Duration;

use csa_tests::{
    Compare, Daemon, Gate, Group, Guide, Load, LoadOptions, Server, eventually, prepare,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::source::configured;
use crate::{DRAIN, wait_state};

/// A member that is killed or frozen is suspected after 5 s; then the others elect.
const FAILOVER: Duration = Duration::from_secs(60);
/// Several groups of transactions have committed.
const MEANWHILE: Duration = Duration::from_secs(1);

fn load() -> LoadOptions {
    LoadOptions { tables: 2, rows: 200, clients: 2, rate: Some(40.0), ..LoadOptions::default() }
}

fn target(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0]["applier"]["target"].clone()
}

fn of(member: &Server) -> String {
    format!("127.0.0.1:{}", member.port)
}

fn signal(server: &Server, signal: Signal) {
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("signalled");
}

async fn follows(daemon: &Daemon, member: &Server) {
    eventually("the primary is followed", FAILOVER, async || target(daemon) == of(member)).await;
    wait_state(daemon, 0, "running").await;
}

/// A port that leads elsewhere is noticed by what the server says about itself.
fn router_is_named(source: &Server, primary: &Server) {
    let gate = Gate::to(primary.port);
    let daemon = Daemon::builder(source, primary).set("target.port", i64::from(gate.port)).build();
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    for part in ["a mapped port is between", "discover = \"group\""] {
        assert!(said.out.contains(part), "{part} is missing in {}", said.out);
    }
}

/// Without a choice of targets, a secondary is refused with the name of the primary.
fn secondary_is_refused(source: &Server, primary: &Server, secondary: &Server) {
    let daemon = Daemon::builder(source, secondary).build();
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    assert_eq!(said.code, Some(2), "{said:?}");
    for part in [
        "it is a secondary of its group",
        "discover = \"group\"",
        &format!("port = {}", primary.port),
    ] {
        assert!(said.out.contains(part), "{part} is missing in {}", said.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_primary_of_a_group_is_the_target() {
    let (group, source) = std::thread::scope(|scope| {
        // A new primary then answers before it has applied what the old one has committed.
        let group =
            scope.spawn(|| Group::start("group", &["--group-replication-consistency=EVENTUAL"]));
        let source = scope.spawn(|| Server::start("source", &[]));
        (group.join().expect("starts"), source.join().expect("starts").borrowed())
    });
    let [first, second, third] = &group.members[..] else { panic!("three members") };
    secondary_is_refused(&source, first, second);
    router_is_named(&source, first);
    let mut guide = Guide::section("group-replication.md", "A group as target");
    configured(&guide.take("toml into=/etc/csa-daemon/csa-daemon.toml"), "target");
    // The entry is a secondary.
    let daemon = Daemon::builder(&source, third)
        .set("target.discover", "group")
        .set("target.connect_retry", "100ms")
        .set("target.net_timeout", "2s")
        .set("target.connect_timeout", "2s")
        .start();
    follows(&daemon, first).await;
    prepare(&source, &load()).await;
    let running = Load::start(&source, &load());
    tokio::time::sleep(MEANWHILE).await;

    group.make_primary(second);
    follows(&daemon, second).await;
    tokio::time::sleep(MEANWHILE).await;

    // It hangs with groups in flight, and comes back when another has taken its place.
    signal(second, Signal::STOP);
    let next = group.primary(Some(second)).await;
    follows(&daemon, next).await;
    signal(second, Signal::CONT);
    tokio::time::sleep(MEANWHILE).await;
    group.leave(second);
    group.join(second);

    next.kill9();
    let last = group.primary(Some(next)).await;
    follows(&daemon, last).await;
    tokio::time::sleep(MEANWHILE).await;
    next.restart();
    group.join(next);
    running.stop().await;
    daemon.wait_drained(&source, last, DRAIN).await;
    for member in &group.members {
        eventually("the member has caught up", DRAIN, async || {
            member.gtid_executed().await == last.gtid_executed().await
        })
        .await;
        Compare::contents().ignore_schema("csa").run(&source, member).await.expect("equal");
    }

    refusals(&source, last, &daemon).await;
}

/// Names what a group refuses, with the way to proceed.
async fn refusals(source: &Server, primary: &Server, daemon: &Daemon) {
    let limit = "group_replication_transaction_size_limit";
    primary.exec(&format!("SET GLOBAL {limit}=100000")).await;
    source.exec("CREATE TABLE sbtest.large (id INT PRIMARY KEY, b LONGBLOB)").await;
    source.exec("INSERT INTO sbtest.large VALUES (1, REPEAT('x', 1000000))").await;
    let error = || daemon.status()["channels"][0]["last_error"].to_string();
    eventually("the limit is named", DRAIN, async || error().contains(limit)).await;
    primary.exec(&format!("SET GLOBAL {limit}=150000000")).await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(source, primary, DRAIN).await;

    source
        .exec("CREATE TABLE sbtest.keyless (id INT); INSERT INTO sbtest.keyless VALUES (1)")
        .await;
    eventually("the key is named", DRAIN, async || error().contains("INVISIBLE PRIMARY KEY")).await;
    let key = "my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY";
    primary.exec(&format!("ALTER TABLE sbtest.keyless ADD COLUMN {key}")).await;
    daemon.commanded(&["restart"]);
    source
        .exec("UPDATE sbtest.keyless SET id = 2; INSERT INTO sbtest.keyless VALUES (3), (3)")
        .await;
    daemon.wait_drained(source, primary, DRAIN).await;
    assert_eq!(primary.value::<u32>("SELECT SUM(id) FROM sbtest.keyless").await, 8);
}
