//! Events of a channel for a receiver, whatever the receiver does.

mod commands;
pub(crate) mod receiver;

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, DaemonBuilder, Load, LoadOptions, Server, eventually, free_port, prepare};
use serde_json::Value;

use crate::{DRAIN, wait_state};
use receiver::{Manner, Receiver, text};

const SENT: Duration = Duration::from_secs(20);
/// A stop of a channel with nothing to finish, on a machine that is busy.
const STOP: Duration = Duration::from_secs(8);
const TOKEN: &str = "a-token-of-some-length";

async fn servers() -> (Server, Server) {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, s VARCHAR(99))").await;
    (source, target)
}

/// Long before a test ends, unless it says otherwise.
fn builder(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target).set("notify.after", "1s").set("notify.timeout", "1s")
}

fn metric(daemon: &Daemon, name: &str) -> u64 {
    let metrics = daemon.metrics();
    let line = format!("csa_notify_{name}{{channel=\"test\"}} ");
    let value = metrics.lines().find_map(|one| one.strip_prefix(&line));
    value.unwrap_or_else(|| panic!("{line}\n{metrics}")).parse().expect("a number")
}

/// A row of the target is in the way of one of the source.
async fn conflict(daemon: &Daemon, source: &Server, target: &Server, id: u32) {
    target
        .exec(&format!("SET sql_log_bin = 0; INSERT INTO d.t VALUES ({id}, 'target secret')"))
        .await;
    source.exec(&format!("INSERT INTO d.t VALUES ({id}, 'source secret')")).await;
    wait_state(daemon, 0, "failed").await;
}

async fn repair(daemon: &Daemon, target: &Server, id: u32) {
    target.exec(&format!("SET sql_log_bin = 0; DELETE FROM d.t WHERE id = {id}")).await;
    daemon.commanded(&["restart"]);
}

fn terminate(daemon: &Daemon) {
    let started = Instant::now();
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    assert!(started.elapsed() < STOP, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_sent_with_its_cause_and_its_end_even_after_a_crash() {
    let (source, target) = servers().await;
    let receiver = Receiver::start(Manner::Takes);
    let secrets = tempfile::tempdir().expect("a folder");
    let token = secrets.path().join("token");
    std::fs::write(&token, TOKEN).expect("writable");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("changed");
    let daemon = builder(&source, &target)
        .set("notify.url", receiver.url())
        .set("notify.token_file", token.display().to_string())
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    conflict(&daemon, &source, &target, 7).await;
    let sent = receiver.gets("failed", SENT).await;
    assert_eq!((&sent["channel"], &sent["state"]), (&"test".into(), &"failed".into()), "{sent:#}");
    assert_eq!((&sent["error"]["number"], &sent["error"]["table"]), (&1062.into(), &"d.t".into()));
    let status = daemon.status();
    let shown = &status["channels"][0]["last_error"];
    assert_eq!(sent["error"]["transaction"], shown["transaction"], "{sent:#}");
    assert!(sent["error"]["advice"].to_string().contains("csa-daemon skip"), "{sent:#}");
    assert!(!sent.to_string().contains("secret"), "values stay here: {sent:#}");
    assert_eq!(receiver.authorization(), Some(format!("Bearer {TOKEN}")));
    eventually("it is counted", SENT, async || metric(&daemon, "delivered_total") == 1).await;
    assert_eq!(metric(&daemon, "waiting"), 0);

    // A crash repeats nothing, and loses no end.
    daemon.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(receiver.names(), ["failed"]);
    daemon.kill9();
    target.exec("SET sql_log_bin = 0; DELETE FROM d.t WHERE id = 7").await;
    daemon.start_again();
    let sent = receiver.gets("recovered", SENT).await;
    assert_eq!((&sent["state"], &sent["error"]), (&"running".into(), &Value::Null), "{sent:#}");
    daemon.wait_drained(&source, &target, DRAIN).await;

    daemon.commanded(&["pause"]);
    let sent = receiver.gets("paused", SENT).await;
    assert!(text(&sent, "detail").contains("by tester"), "{sent:#}");
    daemon.commanded(&["resume"]);
    receiver.gets("resumed", SENT).await;
    terminate(&daemon);
    assert_eq!(receiver.names(), ["failed", "recovered", "paused", "resumed"]);
    assert!(!daemon.log().contains("secret-path"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_receiver_that_hangs_fails_or_floods_delays_nothing() {
    let (source, target) = servers().await;
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let receiver = Receiver::start(Manner::Hangs);
    let daemon = builder(&source, &target).set("notify.url", receiver.url()).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["pause"]);
    eventually("an attempt", SENT, async || receiver.attempts() > 0).await;
    daemon.commanded(&["resume"]);
    let load = Load::start(&source, &options);
    eventually("a third attempt", SENT, async || metric(&daemon, "failed_total") >= 3).await;
    let shown = daemon.status()["channels"][0]["notify"].clone();
    assert!(shown["error"].as_str().is_some_and(|why| why.contains("within 1s")), "{shown:#}");
    assert_eq!(daemon.log().matches("an event was not delivered").count(), 1, "once per outage");
    receiver.behave(Manner::Answers500);
    let before = receiver.attempts();
    eventually("it answers", SENT, async || {
        receiver.attempts() > before
            && daemon.status()["channels"][0]["notify"]["error"]
                .as_str()
                .is_some_and(|why| why.contains("answered 500"))
    })
    .await;
    load.stop().await;
    daemon.wait_drained(&source, &target, Duration::from_secs(20)).await;
    receiver.behave(Manner::Headers);
    let before = metric(&daemon, "failed_total");
    eventually("it sends headers", DRAIN, async || metric(&daemon, "failed_total") > before).await;
    // A body without end is not read.
    receiver.behave(Manner::Floods);
    receiver.gets("resumed", DRAIN).await;
    assert_eq!(receiver.names(), ["paused", "resumed"], "in order, and each once");
    eventually("all are counted", SENT, async || metric(&daemon, "delivered_total") == 2).await;
    assert!(daemon.log().contains("events are delivered again"), "{}", daemon.log_tail());
    assert_eq!(metric(&daemon, "dropped_total"), 0);
    receiver.behave(Manner::Hangs);
    let before = receiver.attempts();
    daemon.commanded(&["pause"]);
    eventually("it hangs again", SENT, async || receiver.attempts() > before).await;
    terminate(&daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_away_gets_the_present_state_once_it_is_back() {
    let (source, target) = servers().await;
    let receiver = Receiver::away(free_port());
    let daemon = builder(&source, &target).set("notify.url", receiver.url()).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    conflict(&daemon, &source, &target, 1).await;
    eventually("attempts", SENT, async || metric(&daemon, "failed_total") >= 2).await;
    // What was not delivered before a crash is found again, as it still is so.
    daemon.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    eventually("attempts", SENT, async || metric(&daemon, "failed_total") >= 2).await;
    receiver.appear();
    receiver.gets("failed", DRAIN).await;
    repair(&daemon, &target, 1).await;
    receiver.gets("recovered", SENT).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(receiver.names(), ["failed", "recovered"]);
    terminate(&daemon);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn what_flaps_is_sent_a_few_times_and_waits_when_they_last() {
    let (source, target) = servers().await;
    let receiver = Receiver::start(Manner::Takes);
    let daemon = builder(&source, &target)
        .set("notify.url", receiver.url())
        .set("notify.quiet", "15s")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for _ in 0..8 {
        for command in ["pause", "resume"] {
            daemon.commanded(&[command]);
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    }
    daemon.commanded(&["pause"]);
    eventually("the last state is sent", Duration::from_secs(40), async || {
        receiver.taken().last().is_some_and(|last| {
            last["event"] == "paused" && last["changes"].as_u64().is_some_and(|n| n > 1)
        })
    })
    .await;
    let names = receiver.names();
    assert!((5..=9).contains(&names.len()), "{names:?}");
    daemon.commanded(&["resume"]);
    tokio::time::sleep(Duration::from_secs(16)).await;

    let mut holder = target.conn().await;
    use mysql_async::prelude::Queryable as _;
    holder.query_drop("LOCK TABLES d.t WRITE").await.expect("locks");
    source.exec("INSERT INTO d.t VALUES (5, 'x')").await;
    let sent = receiver.gets("waiting_for_lock", Duration::from_secs(40)).await;
    assert!(text(&sent, "text").contains("d.t"), "{sent:#}");
    holder.query_drop("UNLOCK TABLES").await.expect("unlocks");
    receiver.gets("recovered", SENT).await;
    target.stop();
    receiver.gets("waiting_for_target", Duration::from_secs(40)).await;
    target.restart();
    daemon.wait_drained(&source, &target, DRAIN).await;
    terminate(&daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_is_sent_by_the_daemon_that_takes_over() {
    let (source, target) = servers().await;
    let of = |receiver: &Receiver| {
        builder(&source, &target).set("standby", true).set("notify.url", receiver.url())
    };
    let (one, other) = (Receiver::start(Manner::Takes), Receiver::start(Manner::Takes));
    let first = of(&one).start();
    wait_state(&first, 0, "running").await;
    let second = of(&other).start();
    wait_state(&second, 0, "standby").await;
    // Both were seen as they are.
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.signal("STOP");
    let sent = other.gets("took_over", Duration::from_secs(60)).await;
    assert_eq!(sent["state"], "running", "{sent:#}");
    first.signal("CONT");
    one.gets("standby", Duration::from_secs(60)).await;
    assert_eq!((one.names(), other.names()), (vec!["standby".into()], vec!["took_over".into()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_sent_when_it_is_compared() {
    let (source, target) = servers().await;
    source
        .exec("GRANT SELECT, REPLICATION CLIENT, SHOW VIEW, TRIGGER, EVENT ON *.* TO repl@'%'; INSERT INTO d.t VALUES (1, 'a')")
        .await;
    let receiver = Receiver::start(Manner::Takes);
    let daemon = builder(&source, &target)
        .set("applier.start_from", "copy")
        .set("notify.url", receiver.url())
        .start();
    let sent = receiver.gets("copy_finished", DRAIN).await;
    assert!(text(&sent, "detail").contains("equals the source"), "{sent:#}");
    terminate(&daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_receiver_and_shows_no_secret() {
    let (source, target) = servers().await;
    let receiver = Receiver::start(Manner::Takes);
    let nobody = format!("http://127.0.0.1:{}/secret-path", free_port());
    let daemon = builder(&source, &target).set("notify.url", nobody).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["pause"]);
    eventually("attempts", SENT, async || metric(&daemon, "failed_total") >= 4).await;
    daemon.set("notify.url", receiver.url());
    daemon.write_config();
    let said = daemon.commanded(&["reload"]);
    assert!(said.contains("notify.url") && !said.contains("secret-path"), "{said}");
    // At once, and not after the pause of the one that is away.
    receiver.gets("paused", Duration::from_secs(4)).await;
    // Fewer events: the others are passed over.
    daemon.set("notify.events", vec!["failed".to_owned(), "recovered".to_owned()]);
    daemon.write_config();
    daemon.commanded(&["reload"]);
    daemon.commanded(&["resume"]);
    conflict(&daemon, &source, &target, 3).await;
    receiver.gets("failed", SENT).await;
    assert_eq!(receiver.names(), ["paused", "failed"]);
    daemon.set("notify.events", Vec::<String>::new());
    daemon.write_config();
    daemon.commanded(&["reload"]);
    assert_eq!(daemon.status()["channels"][0]["notify"], Value::Null);
    repair(&daemon, &target, 3).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // States are looked at twice a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(receiver.names(), ["paused", "failed"]);
    assert!(!daemon.log().contains("secret-path"), "{}", daemon.log());
    daemon.set("notify.events", vec!["exploded".to_owned()]);
    daemon.write_config();
    let said = daemon.command(&["reload"]);
    assert!(said.code != Some(0) && said.error.contains("notify.events"), "{said:?}");
}
