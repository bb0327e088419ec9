//! Starts after which the archive lacks nothing that the source still has.

use csa_tests::{Server, compare};

use super::*;
use crate::wait_state;

/// A stopped channel, whose target has more than the archive.
struct Unarchived {
    source: Server,
    target: Server,
    daemon: Daemon,
    _archive: TempDir,
}

impl Unarchived {
    async fn make() -> Self {
        let (source, target) = Server::pair(&[], &[]);
        let archive = folder();
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
        let daemon = archiving(&source, &target, archive.path())
            .set("source.user", "admin")
            .set("source.password", "admin_pw")
            .start();
        archived(&daemon, &source).await;
        assert!(daemon.terminate().success());
        daemon.set("archive.interval", "1h");
        daemon.start_again();
        let of = Self { source, target, daemon, _archive: archive };
        of.insert(0..20).await;
        of.daemon.wait_drained(&of.source, &of.target, DRAIN).await;
        assert!(of.daemon.terminate().success());
        of.daemon.set("archive.interval", "1s");
        of
    }

    async fn insert(&self, ids: std::ops::Range<u32>) {
        for id in ids {
            self.source.exec(&format!("INSERT INTO d.t VALUES ({id})")).await;
        }
    }

    async fn has_no_gap(&self) {
        let Self { source, target, daemon, .. } = self;
        wait_state(daemon, 0, "running").await;
        self.insert(20..25).await;
        daemon.wait_drained(source, target, DRAIN).await;
        compare(source, target).await;
        archived(daemon, source).await;
        let view = view(daemon);
        assert_eq!(view["missing_transactions_total"], 0, "{view}\n{}", daemon.log_tail());
        daemon.commanded(&["archive", "verify"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_copy_into_another_target_leaves_no_gap() {
    let channel = Unarchived::make().await;
    channel.target.exec("DROP DATABASE d; DELETE FROM csa.checkpoint").await;
    channel.daemon.set("applier.start_from", "copy");
    channel.daemon.start_again();
    channel.has_no_gap().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_relay_store_and_source_leaves_no_gap() {
    let channel = Unarchived::make().await;
    let Unarchived { source, daemon, .. } = &channel;
    std::fs::remove_dir_all(daemon.state_dir().join("test/relay")).expect("removed");
    source.stop();
    daemon.start_again();
    wait_state(daemon, 0, "waiting_for_source").await;
    source.restart();
    channel.has_no_gap().await;
}
