//! A channel that a server refuses at its start fails, is tried again, and does not affect the others.

use std::path::PathBuf;
use std::time::Duration;

use csa_tests::{Daemon, Server, compare, eventually};
use serde_json::Value;

use crate::bad_input::refused;
use crate::systemd::Manager;
use crate::{DRAIN, wait_state};

fn view(daemon: &Daemon, name: &str) -> Value {
    let status = daemon.status();
    let channels = status["channels"].as_array().expect("channels");
    channels.iter().find(|view| view["channel_name"] == name).expect("a channel").clone()
}

/// Status, readiness, metrics and log all show the failure.
fn shows_failed(daemon: &Daemon, words: &[&str]) {
    let bad = view(daemon, "bad");
    assert_eq!(bad["state"], "failed", "{bad:#}");
    let ways_on = bad["last_error"]["ways_on"].to_string();
    assert!(ways_on.contains("restart --channel bad"), "{bad:#}");
    let ready = daemon.get("/readyz").expect("an answer");
    assert_eq!(ready.0, 503, "{ready:?}");
    let metrics = daemon.metrics();
    let state = "csa_channel_state{channel=\"bad\",state=\"failed\"} 1\n";
    assert!(metrics.contains(state), "{metrics}");
    let log = daemon.log();
    for word in words {
        let detail = bad["state_detail"].as_str().expect("a text");
        assert!(detail.contains(word), "{word:?} is missing in {bad:#}");
        assert!(ready.1.contains(word) && log.contains(word), "{word:?} is missing in {ready:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn one_refused_channel_leaves_the_others_alone_and_is_tried_again() {
    let (source, target) = Server::pair(&[], &[]);
    for name in ["d", "e"] {
        let table = format!("CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)");
        source.exec(&format!("CREATE DATABASE {name}; USE {name}; {table}")).await;
    }
    // The second channel of a source needs `start_from` with the position of its tables' copy.
    let table = "CREATE TABLE e.t (id INT PRIMARY KEY, v INT)";
    target.exec(&format!("SET sql_log_bin=0; CREATE DATABASE e; {table}")).await;
    let copied = source.gtid_executed().await;
    target.exec("CREATE USER other@'%' IDENTIFIED BY 'changed'").await;
    target.exec("GRANT ALL ON *.* TO other@'%'").await;
    let manager = Manager::listen();
    let daemon = Daemon::builder(&source, &target)
        .set("applier.replicate_do_db", vec!["d"])
        .channel("bad", &source, &target)
        .set("applier.replicate_do_db", vec!["e"])
        .set("applier.start_from", copied.as_str())
        .set("target.user", "other")
        .set("target.password", "other_pw")
        .env("NOTIFY_SOCKET", &manager.path())
        .start();
    wait_state(&daemon, 1, "failed").await;
    source.exec("INSERT INTO d.t VALUES (1, 1); INSERT INTO e.t VALUES (1, 1)").await;
    daemon.wait_channel_drained("test", &source, &target, DRAIN).await;
    shows_failed(&daemon, &["refused user 'other'", "[channel.target]"]);
    manager.until("READY=1", 1).await;
    eventually("the status of the unit", DRAIN, async || {
        manager.has_status(&["bad failed: ", "refused user 'other'", "test running"])
    })
    .await;
    let said =
        daemon.command(&["--channel", "bad", "skip", "3E11FA47-71CA-11E1-9E33-C80AA9429562:5"]);
    said.refused(1, &["did not stop at a transaction"]);
    // The file is now correct: a restart tries at once.
    target.exec("ALTER USER other@'%' IDENTIFIED BY 'other_pw'").await;
    daemon.commanded(&["--channel", "bad", "restart"]);
    daemon.wait_channel_drained("bad", &source, &target, DRAIN).await;
    assert!(view(&daemon, "bad")["last_error"].is_null());
    assert_eq!(daemon.get("/readyz").map(|answer| answer.0), Some(200));

    // At its next start the source refuses it; it recovers on its own after the repair.
    daemon.commanded(&["--channel", "bad", "stop", "--receiving"]);
    source.exec("CREATE USER weak@'%' IDENTIFIED BY 'weak_pw'").await;
    daemon.set("source.user", "weak");
    daemon.set("source.password", "weak_pw");
    daemon.write_config();
    daemon.commanded(&["reload"]);
    daemon.commanded(&["--channel", "bad", "restart"]);
    wait_state(&daemon, 1, "failed").await;
    shows_failed(&daemon, &["GRANT REPLICATION SLAVE ON *.* TO 'weak'@'%'"]);
    daemon.commanded(&["--channel", "bad", "stop"]);
    wait_state(&daemon, 1, "stopped").await;
    daemon.commanded(&["--channel", "bad", "restart"]);
    wait_state(&daemon, 1, "failed").await;
    source.exec("GRANT REPLICATION SLAVE ON *.* TO weak@'%'").await;
    source.exec("INSERT INTO e.t VALUES (2, 2)").await;
    // The first pause is half a minute.
    eventually("it is tried again", Duration::from_secs(90), async || {
        view(&daemon, "bad")["state"] == "running"
    })
    .await;
    daemon.wait_channel_drained("bad", &source, &target, DRAIN).await;
    daemon.wait_channel_drained("test", &source, &target, DRAIN).await;
    target.exec("DROP USER other@'%'").await;
    source.exec("SET sql_log_bin=0; DROP USER weak@'%'").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_with_the_server_uuid_of_its_source_is_refused() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    target.take_uuid_of(&source);
    let uuid: String = source.value("SELECT @@server_uuid").await;
    assert_eq!(target.value::<String>("SELECT @@server_uuid").await, uuid);
    let builder = || Daemon::builder(&source, &target);
    refused(builder(), &target, &["same server_uuid", &uuid, "remove auto.cnf"]).await;
    let copies = builder().set("applier.start_from", "copy");
    refused(copies, &target, &["same server_uuid", &uuid, "remove auto.cnf"]).await;
    let checked = builder().build().command(&["check", "--connect"]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert!(checked.out.contains("position.servers: source and target have"), "{checked:?}");
    target.take_new_uuid();
    let daemon = builder().start();
    source.exec("INSERT INTO d.t VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_dir_that_takes_no_files_is_found_before_the_target_is_touched() {
    let (source, target) = Server::pair(&[], &[]);
    // Root may write anywhere except here.
    let nowhere = PathBuf::from("/proc/csa-daemon");
    let path = nowhere.display().to_string();
    let builder = || Daemon::builder(&source, &target);
    let said = builder().set("daemon.state_dir", path.as_str()).run_expect_exit(2);
    let words = ["daemon.state_dir", "/proc", "not writable"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let schemas = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='csa'";
    assert_eq!(target.value::<u64>(schemas).await, 0, "the target was written to");
    let daemon = builder().set("daemon.state_dir", path.as_str()).build();
    let checked = daemon.command(&["check", "--connect"]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert!(checked.out.contains("not writable"), "{checked:?}");
    assert!(!checked.out.contains("0 MiB free"), "{checked:?}");

    // Where every channel is refused there is nothing to run: each is named.
    let both = builder().set("target.password", "wrong").channel("other", &source, &target);
    let both = both.set("source.password", "wrong");
    refused(both, &target, &["\"test\"", "user 'csa'", "\"other\"", "user 'repl'"]).await;
}
