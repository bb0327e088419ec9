//! `status` of one channel for people, its bottleneck and progress, `--max-lag` for monitors, and the state of a channel
//! without room.

use std::process::Command;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::control::number;
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

#[tokio::test(flavor = "multi_thread")]
async fn status_says_what_holds_a_channel_up_and_how_far_it_is() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)").await;
    source.exec("CREATE TABLE d.u (id INT PRIMARY KEY)").await;
    // A transaction that is old when the daemon connects is no sign of a slow network.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let daemon =
        Daemon::builder(&source, &target).set("applier.event_memory_limit", "64MiB").start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("idle", DRAIN, async || view(&daemon)["bottleneck"]["cause"] == "source").await;

    // Somebody else's lock: of a row just inserted, which the server shows as the waiter's own, and of
    // a row that was there.
    let mut blocker = target.conn().await;
    let insert = "INSERT INTO d.u VALUES (1)";
    let (lock, delete) = ("SELECT * FROM d.u FOR UPDATE", "DELETE FROM d.u");
    for (workers, held, wanted) in [(10_u64, insert, insert), (11, lock, delete)] {
        blocker.query_drop("BEGIN").await.expect("begins");
        blocker.query_drop(held).await.expect("locks");
        source.exec(wanted).await;
        eventually("a foreign lock", DRAIN, async || {
            let view = view(&daemon);
            view["bottleneck"]["cause"] == "locks"
                && view["applier"]["lock_holders"] == serde_json::json!([blocker.id()])
        })
        .await;
        // New workers start at once, although a worker holds its checkpoint row meanwhile.
        daemon.commanded(&["set", "worker_count", &workers.to_string()]);
        eventually("rows for new workers", Duration::from_secs(2), async || {
            let rows: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
            rows == workers
        })
        .await;
        blocker.query_drop("ROLLBACK").await.expect("rolls back");
        daemon.wait_drained(&source, &target, DRAIN).await;
    }

    // A statement, on the session for statements, waits for a metadata lock.
    blocker.query_drop("BEGIN").await.expect("begins");
    blocker.query_drop("SELECT * FROM d.u").await.expect("reads");
    source.exec("ALTER TABLE d.u ADD COLUMN secret_name INT").await;
    eventually("the statement", DRAIN, async || {
        let statement = view(&daemon)["applier"]["statement"].clone();
        statement["statement"] == "ALTER TABLE" && number(&statement, "seconds") > 1.0
    })
    .await;
    // After `stop --now` the target drops it, and the channel can be taken again at once.
    let altering = "SELECT COUNT(*) FROM performance_schema.processlist WHERE info LIKE 'ALTER%'";
    assert_eq!(target.value::<u64>(altering).await, 1);
    let started = Instant::now();
    daemon.commanded(&["stop", "--now"]);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    eventually("the target gives it up", Duration::from_secs(1), async || {
        target.value::<u64>(altering).await == 0
    })
    .await;
    daemon.commanded(&["restart"]);
    eventually("the statement again", DRAIN, async || target.value::<u64>(altering).await == 1)
        .await;
    blocker.query_drop("ROLLBACK").await.expect("rolls back");
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("the statement is over", Duration::from_secs(2), async || {
        view(&daemon)["applier"]["statement"].is_null()
    })
    .await;

    // Progress inside one large transaction.
    let rows = "WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 100)";
    source.exec(&format!("INSERT INTO d.t {rows} SELECT i, REPEAT('x', 1048576) FROM n")).await;
    let executed = source.gtid_executed().await;
    let mut progress = Vec::new();
    eventually("the large transaction", DRAIN, async || {
        let view = view(&daemon);
        let worker = &view["applier"]["workers"][0];
        if let Some(total) = worker["applying_bytes"].as_f64().filter(|&total| total > 1e8) {
            progress.push(number(worker, "applied_bytes") / total);
        }
        view["applied_transaction_set"] == executed.as_str()
    })
    .await;
    let inside = progress.iter().filter(|share| (0.05..0.95).contains(*share)).count();
    assert!(inside > 0 && progress.is_sorted(), "{progress:?}");
    compare(&source, &target).await;

    // The printed status agrees.
    let table = daemon.commanded(&["status"]);
    assert!(table.contains("HELD UP BY") && table.contains("running"), "{table}");
    let list = daemon.commanded(&["status", "--vertical"]);
    for line in ["1. channel", "channel_name: test", "applier.service_state: ON"] {
        assert!(list.contains(line), "{line:?} is missing in\n{list}");
    }
    let json = daemon.commanded(&["status", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["channels"][0]["channel_name"], "test");
}
