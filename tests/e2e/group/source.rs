//! A group as source: the channel follows the members that serve, whatever becomes of the others.

use std::time::Duration;

use csa_tests::{Compare, Daemon, Group, Guide, Load, LoadOptions, Server, eventually, prepare};

use crate::{DRAIN, wait_state};

/// A member that is killed is suspected after 5 s; the daemon looks for another within the next seconds.
const FAILOVER: Duration = Duration::from_secs(60);

fn load() -> LoadOptions {
    LoadOptions { tables: 2, rows: 200, clients: 2, rate: Some(40.0), ..LoadOptions::default() }
}

/// Checks that the example has keys that the file takes.
pub(super) fn configured(example: &str, side: &str) {
    let example: toml::Table = example.parse().expect("TOML");
    let section = &example["channel"][side];
    assert_eq!(section["discover"].as_str(), Some("group"));
    assert!(section["failover"].as_array().is_some_and(|servers| servers.len() == 2));
}

/// Returns the member that is followed; empty while there is none.
fn followed(daemon: &Daemon) -> String {
    let connection = &daemon.status()["channels"][0]["connection"];
    match connection["service_state"] == "ON" {
        true => connection["source"].as_str().unwrap_or_default().to_owned(),
        false => String::new(),
    }
}

async fn follows_another(daemon: &Daemon, than: &Server) {
    eventually("another is followed", FAILOVER, async || {
        !["", &of(than)].contains(&followed(daemon).as_str())
    })
    .await;
}

fn of(member: &Server) -> String {
    format!("127.0.0.1:{}", member.port)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn members_take_over_from_each_other_as_source() {
    let (group, target) = std::thread::scope(|scope| {
        // Blocks of GTIDs: each member takes its own numbers, so that the set has gaps.
        let group = scope.spawn(|| {
            Group::start("group", &["--group-replication-gtid-assignment-block-size=10"])
        });
        let target = scope.spawn(|| Server::start("target", &[]));
        (group.join().expect("starts"), target.join().expect("starts").borrowed())
    });
    let [first, second, third] = &group.members[..] else { panic!("three members") };
    prepare(first, &load()).await;
    let daemon = Daemon::builder(first, &target).set("source.discover", "group").build();
    let refused = tokio::task::block_in_place(|| daemon.run_expect_exit(2));
    assert!(
        refused.contains("GRANT SELECT ON performance_schema.replication_group_members"),
        "{refused}"
    );
    let mut guide = Guide::section("group-replication.md", "A group as source");
    first.exec("DROP USER repl").await;
    first.exec(&guide.take("sql on=source").replace("change me", "repl_pw")).await;
    configured(&guide.take("toml into=/etc/csa-daemon/csa-daemon.toml"), "source");
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    let running = Load::start(first, &load());
    eventually("the entry is followed", FAILOVER, async || followed(&daemon) == of(first)).await;

    // A secondary becomes the primary: the old one still receives everything, so the link stays.
    group.make_primary(second);
    running.stop().await;
    let running = Load::start(second, &load());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(followed(&daemon), of(first), "{}", daemon.log_tail());

    // The member that is followed leaves: it stays up, and gets nothing new.
    group.leave(first);
    follows_another(&daemon, first).await;
    assert!(daemon.log().contains("OFFLINE"), "{}", daemon.log_tail());
    group.join(first);

    // The primary is killed, followed or not.
    second.kill9();
    running.stop().await;
    let primary = group.primary(Some(second)).await;
    let running = Load::start(primary, &load());
    follows_another(&daemon, second).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop().await;
    daemon.wait_drained(primary, &target, DRAIN).await;
    Compare::contents().ignore_schema("csa").run(primary, &target).await.expect("equal");

    // The second of three is gone: the last one has no majority, and what it has may be old.
    let rest = [first, third].into_iter().find(|one| one.port != primary.port).expect("another");
    let before = daemon.log().len();
    rest.kill9();
    eventually("the lost majority is named", FAILOVER, async || {
        daemon.log()[before..].contains("no majority")
    })
    .await;
}
