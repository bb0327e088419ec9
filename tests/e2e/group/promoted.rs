//! A replica of the target that is promoted takes over, if `target.failover` names it.

use csa_tests::{Compare, Daemon, Load, LoadOptions, Server, eventually, prepare};
use toml::Table;

use crate::{DRAIN, wait_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_takes_over_as_target() {
    let (source, (target, spare)) = std::thread::scope(|scope| {
        let source = scope.spawn(|| Server::start("source", &[]));
        let targets = scope.spawn(|| Server::pair(&[], &["--read-only", "--super-read-only"]));
        (source.join().expect("starts"), targets.join().expect("starts"))
    });
    let (source, target, spare) = (source.borrowed(), target.borrowed(), spare.borrowed());
    let load = LoadOptions {
        tables: 1,
        rows: 100,
        clients: 2,
        rate: Some(40.0),
        ..LoadOptions::default()
    };
    spare.follow(&target).await;
    let mut other = Table::new();
    other.insert("host".to_owned(), "127.0.0.1".into());
    other.insert("port".to_owned(), i64::from(spare.port).into());
    let daemon = Daemon::builder(&source, &target)
        .set("target.failover", vec![other])
        .set("target.connect_retry", "100ms")
        .start();
    prepare(&source, &load).await;
    let running = Load::start(&source, &load);
    wait_state(&daemon, 0, "running").await;
    target.kill9();
    // It takes no writes, so it is no target yet.
    wait_state(&daemon, 0, "waiting_for_target").await;
    let received = "SELECT WAIT_FOR_EXECUTED_GTID_SET(RECEIVED_TRANSACTION_SET, 60) FROM \
         performance_schema.replication_connection_status";
    assert_eq!(spare.value::<u32>(received).await, 0);
    spare.exec("STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF").await;
    eventually("the replica is the target", DRAIN, async || {
        let view = &daemon.status()["channels"][0];
        view["applier"]["target"] == format!("127.0.0.1:{}", spare.port)
            && view["state"] == "running"
    })
    .await;
    running.stop().await;
    daemon.wait_drained(&source, &spare, DRAIN).await;
    Compare::contents().ignore_schema("csa").run(&source, &spare).await.expect("equal");
}
