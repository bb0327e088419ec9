//! Passwords and privileges that change while a channel runs: it continues without a person once they fit again.

use std::time::Duration;

use csa_tests::{Daemon, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::{DRAIN, wait_state};

/// Refusals are tried again every half minute; with haste, every three seconds.
const RECOVERY: Duration = Duration::from_secs(40);
const HASTE: &str = "10";
/// A new password in the file is tried within seconds; the pause would last 22 s at least.
const QUICK: Duration = Duration::from_secs(15);

fn channel(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

async fn says(daemon: &Daemon, words: &[&str]) {
    eventually(&format!("the state says {words:?}"), RECOVERY, async || {
        let detail = channel(daemon)["state_detail"].to_string();
        words.iter().all(|word| detail.contains(word))
    })
    .await;
}

/// Ends all sessions of an account.
async fn end_sessions(server: &Server, user: &str) {
    let query = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE USER='{user}'");
    let mut conn = server.conn().await;
    for connection in conn.query::<u64, _>(query).await.expect("rows") {
        // It may have ended on its own.
        let _ = conn.query_drop(format!("KILL {connection}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_password_in_a_file_counts_at_the_next_login() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let builder = Daemon::builder(&source, &target);
    let files = tempfile::tempdir().expect("a folder");
    let file = |side: &str| files.path().join(side);
    let write = |side: &str, password: &str| {
        std::fs::write(file(side), format!("{password}\n")).expect("writable");
    };
    write("source", "repl_pw");
    write("target", "csa_pw");
    let daemon = builder
        .unset("source.password")
        .unset("target.password")
        .set("source.password_file", file("source").display().to_string())
        .set("target.password_file", file("target").display().to_string())
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for (server, side, user, new) in
        [(&target, "target", "csa", "csa_2"), (&source, "source", "repl", "repl_2")]
    {
        server
            .exec(&format!("SET sql_log_bin=0; ALTER USER {user}@'%' IDENTIFIED BY '{new}'"))
            .await;
        end_sessions(server, user).await;
        says(&daemon, &["1045", user]).await;
        source.exec(&format!("INSERT INTO d.t VALUES ({})", new.len())).await;
        // The file is away for a moment, as while it is being replaced.
        std::fs::remove_file(file(side)).expect("removed");
        tokio::time::sleep(Duration::from_secs(1)).await;
        write(side, new);
        eventually("it runs again", QUICK, async || channel(&daemon)["state"] == "running").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
    }
    // A start is refused.
    daemon.commanded(&["stop"]);
    target.exec("SET sql_log_bin=0; ALTER USER csa@'%' IDENTIFIED BY 'csa_3'").await;
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "failed").await;
    write("target", "csa_3");
    eventually("it starts", QUICK, async || channel(&daemon)["state"] == "running").await;
    // Nothing is to be done by a reload either.
    let said = daemon.commanded(&["reload"]);
    assert!(!said.contains("password"), "{said}");
    compare(&source, &target).await;
}

/// Editors on Windows and Kubernetes secrets have more than the password.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_around_a_password_does_not_count() {
    let (source, target) = Server::pair(&[], &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("source.pw");
    std::fs::write(&file, "\u{feff}repl_pw\r\n").expect("writable");
    let daemon = Daemon::builder(&source, &target)
        .unset("source.password")
        .unset("target.password")
        .set("source.password_file", file.display().to_string())
        .set("target.password_env", "CSA_TEST_TARGET_PASSWORD")
        .env("CSA_TEST_TARGET_PASSWORD", "csa_pw\n")
        .start();
    source.exec("CREATE DATABASE d").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_privilege_that_comes_back_needs_no_person() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 1)").await;
    let daemon = Daemon::builder(&source, &target)
        .env("CSA_TEST_HASTE", HASTE)
        .set("applier.executor", "sql")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let grants: Vec<String> =
        target.conn().await.query("SHOW GRANTS FOR csa@'%'").await.expect("grants");
    target.exec("SET sql_log_bin=0; REVOKE UPDATE ON *.* FROM csa@'%'").await;
    // Sessions keep the global privileges with which they began.
    end_sessions(&target, "csa").await;
    source.exec("UPDATE d.t SET v=2").await;
    says(&daemon, &["UPDATE"]).await;
    let view = channel(&daemon);
    assert!(view["next_attempt_seconds"].is_number(), "{view}");
    for grant in grants {
        target.exec(&format!("SET sql_log_bin=0; {grant}")).await;
    }
    eventually("it runs again", RECOVERY, async || channel(&daemon)["state"] == "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // The source takes the right to replicate away, and gives it back.
    source.exec("SET sql_log_bin=0; REVOKE REPLICATION SLAVE ON *.* FROM repl@'%'").await;
    end_sessions(&source, "repl").await;
    says(&daemon, &["REPLICATION SLAVE"]).await;
    source.exec("UPDATE d.t SET v=3").await;
    source.exec("SET sql_log_bin=0; GRANT REPLICATION SLAVE ON *.* TO repl@'%'").await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
