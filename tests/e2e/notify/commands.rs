//! Commands as receivers, and the test event.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use csa_tests::{Daemon, Guide, eventually, free_port, not_run};
use serde_json::Value;

use super::receiver::{Manner, Receiver};
use super::{SENT, builder, metric, servers, terminate};
use crate::DRAIN;

fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("on-event");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("changed");
    path
}

fn is_running(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_events_and_is_killed_when_it_does_not_end() {
    let (source, target) = servers().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (path, events) = (folder.path(), folder.path().join("events"));
    let takes = format!("cat >> {0}; echo >> {0}; env > {1}", events.display(), "env");
    let command = script(path, &format!("cd {}; {takes}", path.display()));
    let daemon = builder(&source, &target)
        .env("DATABASE_PASSWORD", "hunter2")
        .set("notify.command", vec![command.display().to_string(), "an argument".to_owned()])
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["pause"]);
    let taken = || -> Vec<Value> {
        let text = std::fs::read_to_string(&events).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    eventually("an event", SENT, async || taken().iter().any(|one| one["event"] == "paused")).await;
    eventually("it is counted", SENT, async || metric(&daemon, "delivered_total") == 1).await;
    let variables = std::fs::read_to_string(path.join("env")).expect("written");
    assert!(variables.contains("CSA_EVENT=paused\n"), "{variables}");
    assert!(variables.contains("CSA_CHANNEL=test\n"), "{variables}");
    assert!(variables.contains("CSA_TEXT=channel test: paused"), "{variables}");
    assert!(!variables.contains("hunter2"), "{variables}");

    // It sleeps, and so does a child of it.
    let pid = path.join("pid");
    script(path, &format!("sleep 500 & echo $! > {0}.new; mv {0}.new {0}; wait", pid.display()));
    daemon.commanded(&["resume"]);
    eventually("attempts", SENT, async || metric(&daemon, "failed_total") >= 2).await;
    let first = std::fs::read_to_string(&pid).expect("written");
    source.exec("INSERT INTO d.t VALUES (1, 'a')").await;
    daemon.wait_drained(&source, &target, Duration::from_secs(20)).await;
    eventually("the last is started", SENT, async || {
        std::fs::read_to_string(&pid).is_ok_and(|now| now != first && is_running(&now))
    })
    .await;
    assert!(!is_running(&first));
    let last = std::fs::read_to_string(&pid).expect("written");
    terminate(&daemon);
    eventually("nothing is left behind", SENT, async || !is_running(&last)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_event_shows_whether_events_arrive() {
    let (source, target) = servers().await;
    let receiver = Receiver::start(Manner::Takes);
    let daemon = builder(&source, &target).set("notify.url", receiver.url()).build();
    let said = daemon.commanded(&["check", "--notify"]);
    assert!(said.contains("has taken a test event"), "{said}");
    let [sent] = &receiver.taken()[..] else { panic!("{:?}", receiver.taken()) };
    assert_eq!((&sent["event"], &sent["channel"]), (&"test".into(), &"test".into()), "{sent:#}");
    receiver.behave(Manner::Answers500);
    daemon.command(&["check", "--notify"]).refused(2, &["no test event arrived for test"]);
    let said = daemon.command(&["check", "--notify", "--json"]);
    let shown: Value = serde_json::from_str(&said.out).expect("JSON");
    let why = shown["notifications"][0]["error"].as_str().expect("a reason");
    assert!(why.contains("answered 500") && !said.out.contains("secret-path"), "{}", said.out);
    receiver.behave(Manner::Hangs);
    assert_eq!(daemon.command(&["check", "--notify"]).code, Some(2));
    let builder = Daemon::builder(&source, &target);
    let none = builder.build().command(&["check", "--notify"]);
    none.refused(2, &["no channel has a receiver"]);
    let port = free_port();
    for (keys, why) in [
        (vec![("notify.command", "true")], "path of the program"),
        (vec![("notify.url", "https://127.0.0.1/")], "tls_ca"),
    ] {
        let mut builder = Daemon::builder(&source, &target).admin_port(port);
        for (key, value) in keys {
            builder = match key {
                "notify.command" => builder.set(key, vec![value.to_owned()]),
                _ => builder.set(key, value),
            };
        }
        builder.build().command(&["check"]).refused(2, &["notify.", why]);
    }
}

/// Root sees a daemon of another user; who may not give files away is that user.
fn another_user_is_warned(daemon: &Daemon) {
    let files = std::fs::read_dir(daemon.state_dir()).expect("a folder");
    let mut paths = files.map(|entry| entry.expect("an entry").path());
    let token = paths.find(|path| path.extension().is_some_and(|of| of == "token"));
    match chown(token.expect("a token"), Some(65534), None) {
        Ok(()) => {
            let said = daemon.commanded(&["check", "--notify"]);
            assert!(said.contains("warning: --notify: "), "{said}");
        }
        Err(why) => not_run("the warning about another user's daemon", &why.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_works_as_it_is_written() {
    let (source, target) = servers().await;
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().display().to_string();
    let here =
        |text: String| text.replace("/etc/csa-daemon", &root).replace("/var/lib/csa-daemon", &root);
    let mut guide = Guide::section("notifications.md", "Set up");
    let made = Command::new("sh").args(["-ec", &here(guide.take("sh"))]).status().expect("runs");
    assert!(made.success());
    let toml = here(guide.take("toml into=/etc/csa-daemon/csa-daemon.toml"));
    let daemon = Daemon::builder(&source, &target).append(&format!("\n{toml}")).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for line in guide.take("sh").lines() {
        let command = line.split('#').next().unwrap_or_default().trim();
        // The daemon's user is the one of this test.
        let command = command.trim_start_matches("runuser -u csa-daemon -- ");
        let arguments: Vec<&str> = command.split(' ').skip(1).collect();
        let said = daemon.commanded(&arguments);
        assert!(!said.contains("warning: --notify"), "{said}");
    }
    another_user_is_warned(&daemon);
    let written = || std::fs::read_to_string(folder.path().join("events.log")).unwrap_or_default();
    assert!(written().contains("channel test: test: "), "{}", written());
    daemon.commanded(&["pause"]);
    eventually("a line", SENT, async || written().contains("channel test: paused: ")).await;

    let receiver = Receiver::start(Manner::Takes);
    let toml = Guide::section("notifications.md", "A server")
        .take("toml into=/etc/csa-daemon/csa-daemon.toml")
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{}", receiver.port));
    std::fs::write(folder.path().join("notify.token"), super::TOKEN).expect("written");
    let daemon = Daemon::builder(&source, &target).append(&format!("\n{}", here(toml))).build();
    daemon.commanded(&["check", "--notify"]);
    assert_eq!(receiver.names(), ["test"]);
    assert_eq!(receiver.authorization(), Some(format!("Bearer {}", super::TOKEN)));
}
