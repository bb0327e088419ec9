//! `status` of one channel for people, `--max-lag` for monitors, and the state of a channel without room.

use std::process::Command;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Server, compare, eventually};
use serde_json::Value;

use crate::fleet::Site;
use crate::{DRAIN, wait_state};

async fn shop() -> (Server, Server) {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY)").await;
    (source, target)
}

fn view(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_channel_is_shown_in_the_order_of_the_questions() {
    let site = Site::new(&["test", "shard_1"]).await;
    let daemon = site.with_files(&["shard_1"]).await;
    site.source.exec("INSERT INTO test.counter VALUES (100, 1)").await;
    site.drained(&daemon, &["test"]).await;

    let by_name = daemon.commanded(&["status", "test"]);
    let labels: Vec<&str> = by_name
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split("  ").next())
        .filter(|label| !label.is_empty())
        .collect();
    let order = [
        "channel",
        "state",
        "why",
        "what to do",
        "lag",
        "backlog",
        "rates",
        "time to drain",
        "bottleneck",
        "source",
        "target",
        "relay store",
        "event memory",
        "workers",
    ];
    assert_eq!(labels, order, "{by_name}");
    assert!(by_name.lines().count() <= 30, "{by_name}");
    assert!(by_name.contains("state          running\n"), "{by_name}");
    assert!(by_name.contains("what to do     nothing\n"), "{by_name}");
    assert!(by_name.contains("backlog        0 transactions"), "{by_name}");
    let by_option = daemon.commanded(&["--channel", "test", "status"]);
    assert!(by_option.starts_with("channel        test\n"), "{by_option}");
    // A pattern gives a table, and the list for programs has every value.
    assert!(daemon.commanded(&["status", "t*"]).starts_with("CHANNEL"));
    assert!(daemon.commanded(&["status"]).starts_with("CHANNEL"));
    assert!(daemon.commanded(&["status", "test", "--vertical"]).contains("applied_groups_total"));
    daemon.command(&["status", "nobody"]).refused(2, &["no channel \"nobody\"", "test, shard_1"]);

    daemon.commanded(&["--channel", "test", "pause"]);
    let said = daemon.command(&["status", "test"]);
    assert!(said.out.contains("state          paused\n"), "{said:?}");
    let fix = "what to do     csa-daemon --channel test resume\n";
    assert!(said.out.contains(fix), "{said:?}");
    said.refused(1, &["not well: test ("]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_monitor_asks_for_the_lag() {
    let site = Site::new(&["test", "shard_1"]).await;
    let daemon = site.with_files(&["shard_1"]).await;
    site.drained(&daemon, &["test", "shard_1"]).await;
    eventually("a known lag", DRAIN, async || {
        daemon.command(&["status", "--max-lag", "30s"]).code == Some(0)
    })
    .await;
    assert_eq!(daemon.commanded(&["status", "--max-lag", "30s"]), "");
    let said = daemon.command(&["status", "--max-lag", "30"]);
    assert!(said.code == Some(2) && said.error.contains("like \"500ms\""), "{said:?}");

    daemon.commanded(&["--channel", "shard_1", "pause"]);
    let said = daemon.command(&["status", "--max-lag", "30s"]);
    assert!(said.out.starts_with("shard_1: paused: paused, 0 transactions to go"), "{said:?}");
    assert_eq!(said.out.lines().count(), 1, "{said:?}");
    said.refused(1, &["30s", "shard_1"]);
    assert_eq!(daemon.commanded(&["status", "test", "--max-lag", "30s"]), "");

    // Held back by a lock, it lags by more than a moment.
    let mut lock = site.target.conn().await;
    let read = "FLUSH TABLES WITH READ LOCK";
    mysql_async::prelude::Queryable::query_drop(&mut lock, read).await.expect("locks");
    site.source.exec("INSERT INTO test.counter VALUES (100, 1)").await;
    eventually("the lag", DRAIN, async || {
        let said = daemon.command(&["status", "test", "--max-lag", "1s"]);
        said.code == Some(1) && said.out.starts_with("test: lag ")
    })
    .await;
    drop(lock);
    eventually("no lag", DRAIN, async || {
        daemon.command(&["status", "test", "--max-lag", "1s"]).code == Some(0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_takes_seconds_with_and_without_a_unit() {
    let (source, target) = shop().await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let done = source.gtid_executed().await;
    for timeout in ["10", "10s", "2m"] {
        assert_eq!(daemon.commanded(&["wait", &done, "--timeout", timeout]), "applied\n");
    }
    daemon.commanded(&["pause"]);
    source.exec("INSERT INTO shop.item VALUES (1)").await;
    let wanted = source.gtid_executed().await;
    for timeout in ["0.5", "500ms"] {
        let begun = Instant::now();
        let said = daemon.command(&["wait", &wanted, "--timeout", timeout]);
        said.refused(1, &["not applied in time"]);
        assert!(begun.elapsed() < Duration::from_secs(5), "{timeout}: {:?}", begun.elapsed());
    }
    let said = daemon.command(&["wait", &wanted, "--timeout", "soon"]);
    assert!(said.code == Some(2) && said.error.contains("like \"500ms\""), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_without_room_on_the_disk_does_not_run() {
    let (source, target) = shop().await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.terminate();
    daemon.set("relay.min_free_disk", "900TiB");
    daemon.start_again();
    source.exec("INSERT INTO shop.item VALUES (1)").await;
    wait_state(&daemon, 0, "waiting_for_space").await;
    let view = view(&daemon);
    let detail = view["state_detail"].as_str().expect("a sentence");
    assert!(detail.starts_with("waiting for free disk: "), "{detail}");
    assert!(detail.contains(" MiB left, min_free_disk is 943718400.0 MiB"), "{detail}");
    let state = "csa_channel_state{channel=\"test\",state=\"waiting_for_space\"} 1";
    assert!(daemon.metrics().contains(state), "{}", daemon.metrics());
    assert_eq!(daemon.get("/readyz").map(|answer| answer.0), Some(503));
    daemon.command(&["status"]).refused(1, &["not well: test ("]);
    let said = daemon.command(&["status", "test"]);
    assert!(said.out.contains("what to do     free space on the disk"), "{said:?}");

    daemon.set("relay.min_free_disk", "0");
    daemon.write_config();
    daemon.commanded(&["reload", "--restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_state(&daemon, 0, "running").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bash_completes_channels_and_settings() {
    let site = Site::new(&["test", "shard_1", "shard_2"]).await;
    let daemon = site.with_files(&["shard_1", "shard_2"]).await;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let generated = Command::new(Daemon::executable()).arg("generate").arg(folder.path()).status();
    assert!(generated.expect("runs").success());
    let script = folder.path().join("completions/csa-daemon.bash");
    let (program, config) = (Daemon::executable(), daemon.config_path());
    let completed = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let text = format!(
            "source '{}'; COMP_WORDS=('{}' --config '{}' {}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _csa_daemon_names \"${{COMP_WORDS[0]}}\" \"${{COMP_WORDS[COMP_CWORD]}}\" \
             \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[*]}}\"",
            script.display(),
            program.display(),
            config.display(),
            words.join(" ")
        );
        let output = Command::new("bash").args(["-c", &text]).output().expect("runs");
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said.trim().to_owned()
    };
    assert_eq!(completed(&["--channel", ""]), "test shard_1 shard_2");
    assert_eq!(completed(&["--channel", "sh"]), "shard_1 shard_2");
    assert_eq!(completed(&["status", "t"]), "test");
    assert_eq!(completed(&["set", "worker"]), "worker_count");
    assert!(completed(&["status", "--ver"]).contains("--vertical"));
}
