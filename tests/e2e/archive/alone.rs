//! Channels that have an archive and no target.

use std::time::Duration;

use csa_tests::{Guide, Load, LoadOptions, Server, compare, eventually, prepare};

use super::*;
use crate::wait_state;

fn busy() -> LoadOptions {
    LoadOptions { rows: 200, tables: 2, clients: 3, rate: Some(100.0), ..LoadOptions::default() }
}

/// Returns a daemon whose channel only archives.
pub(super) fn alone(source: &Server, directory: &Path) -> DaemonBuilder {
    archiving(source, source, directory).unset("target").unset("applier")
}

fn channel(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

/// Gives a restore the account on the target, which a channel without one lacks.
fn with_account<T>(more: &[&str], restore: impl FnOnce(&[&str]) -> T) -> T {
    let folder = folder();
    let password = folder.path().join("csa.pw");
    std::fs::write(&password, "csa_pw\n").expect("written");
    let password = password.display().to_string();
    let account = ["--target-user", "csa", "--target-password-file", &password];
    restore(&[&account, more].concat())
}

/// Restores what a channel without a target has archived.
#[track_caller]
pub(super) fn restored_alone(daemon: &Daemon, server: &Server, more: &[&str]) -> String {
    with_account(more, |arguments| restored(daemon, server, arguments))
}

/// Returns what such a restore says when it must not work.
#[track_caller]
pub(super) fn not_restored_alone(daemon: &Daemon, server: &Server, more: &[&str]) -> String {
    with_account(more, |arguments| not_restored(daemon, server, arguments))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn nothing_is_missing_after_kills_of_the_daemon_and_of_the_source() {
    let source = Server::start("source", &[]);
    let archive = folder();
    // All that the source still has comes first.
    prepare(&source, &busy()).await;
    source.exec("CREATE TABLE sbtest.wide (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)").await;
    let daemon = alone(&source, archive.path()).set("relay.segment_size", "1MiB").start();
    let load = Load::start(&source, &busy());
    for millis in [900, 1700, 300, 2100] {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        for _ in 0..5 {
            source.exec("INSERT INTO sbtest.wide (b) VALUES (REPEAT('x', 300000))").await;
        }
        daemon.kill9();
        daemon.start_again();
    }
    load.stop().await;
    archived(&daemon, &source).await;
    // What is archived has left the relay store.
    let held = channel(&daemon)["relay"]["bytes"].as_u64().expect("a number");
    assert!(held < 3 << 20, "{}", channel(&daemon));

    source.kill9();
    wait_state(&daemon, 0, "waiting_for_source").await;
    assert!(channel(&daemon)["lag_seconds"].is_null(), "{}", channel(&daemon));
    source.restart();
    write_for(&source, &busy(), Duration::from_secs(1)).await;
    archived(&daemon, &source).await;

    // The relay store is lost, with transactions that are not archived; the source still has them.
    daemon.commanded(&["stop"]);
    write_for(&source, &busy(), Duration::from_secs(1)).await;
    daemon.kill9();
    std::fs::remove_dir_all(daemon.state_dir().join("test/relay")).expect("removed");
    daemon.start_again();
    archived(&daemon, &source).await;
    daemon.kill9();
    std::fs::remove_dir_all(daemon.state_dir().join("test")).expect("removed");
    daemon.start_again();
    write_for(&source, &busy(), Duration::from_secs(1)).await;
    archived(&daemon, &source).await;

    // A damaged relay store is cut, and the source sends the rest again.
    daemon.commanded(&["stop"]);
    write_for(&source, &busy(), Duration::from_secs(1)).await;
    daemon.kill9();
    let segments = daemon.relay_segments();
    let last = segments.last().expect("a segment");
    let mut bytes = std::fs::read(last).expect("readable");
    let near_end = bytes.len() - bytes.len() / 8;
    bytes[near_end] ^= 1;
    std::fs::write(last, bytes).expect("writable");
    daemon.start_again();
    archived(&daemon, &source).await;

    assert_eq!(view(&daemon)["missing_transactions_total"], 0);
    history(archive.path());
    daemon.commanded(&["archive", "verify"]);
    let restored_to = Server::start("restored", &[]);
    restored_alone(&daemon, &restored_to, &[]);
    compare(&source, &restored_to).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_daemons_one_archives_and_the_other_says_why_not() {
    let source = Server::start("source", &[]);
    let archive = folder();
    prepare(&source, &busy()).await;
    let one = alone(&source, archive.path()).set("source.server_id", 77).start();
    let load = Load::start(&source, &busy());
    eventually("files", DRAIN, async || view(&one)["files_total"].as_u64() > Some(1)).await;
    // It is the same channel on another host.
    let other = alone(&source, archive.path()).set("source.server_id", 77).start();
    wait_state(&other, 0, "failed").await;
    let error = channel(&other)["last_error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("another daemon writes to it, too"), "{error}");
    assert_eq!(channel(&other)["connection"]["service_state"], "OFF", "it receives no more");
    assert_eq!(channel(&one)["state"], "running", "{}", channel(&one));
    let files = view(&one)["files_total"].as_u64();
    eventually("more files", DRAIN, async || view(&one)["files_total"].as_u64() > files).await;

    // It takes over once the first one is dead, and the first one then stays away.
    one.kill9();
    other.commanded(&["restart"]);
    wait_state(&other, 0, "running").await;
    eventually("its files", DRAIN, async || view(&other)["files_total"].as_u64() > Some(1)).await;
    one.start_again();
    wait_state(&one, 0, "failed").await;
    load.stop().await;
    archived(&other, &source).await;
    assert_eq!(view(&other)["missing_transactions_total"], 0);
    other.commanded(&["archive", "verify"]);
    history(archive.path());
    let restored_to = Server::start("restored", &[]);
    restored_alone(&other, &restored_to, &[]);
    compare(&source, &restored_to).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_away_holds_everything_and_a_purge_makes_a_gap() {
    let source = Server::start("source", &[]);
    let archive = folder();
    source
        .exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)")
        .await;
    // This is not what the source still has.
    source.exec("INSERT INTO d.t (b) VALUES ('gone'); FLUSH BINARY LOGS").await;
    source.exec("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY").await;
    let daemon = alone(&source, archive.path())
        .set("relay.segment_size", "1MiB")
        .set("relay.space_limit", "8MiB")
        .start();
    let row = "INSERT INTO d.t (b) VALUES (REPEAT('x', 200000))";
    source.exec(row).await;
    archived(&daemon, &source).await;
    assert_eq!(view(&daemon)["transactions_total"], 1, "{}", view(&daemon));

    // Without its folder the archive takes nothing, and the relay store lets nothing go.
    let folder = archive.path().join("test");
    let away = archive.path().join("away");
    std::fs::rename(&folder, &away).expect("renamed");
    std::fs::write(&folder, "").expect("written");
    for _ in 0..60 {
        source.exec(row).await;
    }
    wait_state(&daemon, 0, "waiting_for_archive").await;
    eventually("reception waits", DRAIN, async || channel(&daemon)["relay"]["waiting"].is_string())
        .await;
    daemon.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "waiting_for_archive").await;
    std::fs::remove_file(&folder).expect("removed");
    std::fs::rename(&away, &folder).expect("renamed");
    archived(&daemon, &source).await;
    assert_eq!(view(&daemon)["missing_transactions_total"], 0);
    daemon.commanded(&["archive", "verify"]);

    // What the source has purged meanwhile is a gap, and the rest is archived.
    assert!(daemon.terminate().success());
    source.exec(row).await;
    source.exec("FLUSH BINARY LOGS").await;
    source.exec("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY").await;
    source.exec(row).await;
    daemon.start_again();
    archived(&daemon, &source).await;
    assert_eq!(view(&daemon)["missing_transactions_total"], 1, "{}", view(&daemon));

    // A source that was reset is refused, until its channel begins again.
    assert!(daemon.terminate().success());
    source.exec("RESET BINARY LOGS AND GTIDS").await;
    source.exec(row).await;
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    assert!(daemon.terminate().success());
    std::fs::remove_dir_all(daemon.state_dir().join("test")).expect("removed");
    daemon.start_again();
    archived(&daemon, &source).await;
    assert_eq!(files(&folder.join("histories")).len(), 2);
    assert!(daemon.log().contains("begins another history"), "{}", daemon.log_tail());
}

/// The relay store may have the only copy of what an archive that is away did not get.
#[tokio::test(flavor = "multi_thread")]
async fn another_archive_gets_what_waits_in_the_relay_store() {
    let source = Server::start("source", &[]);
    let places = [folder(), folder(), folder()];
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT)").await;
    let row = "INSERT INTO d.t VALUES ()";
    let daemon = alone(&source, places[0].path()).start();
    archived(&daemon, &source).await;
    let five_are_only_received = async |place: &TempDir| {
        let folder = place.path().join("test");
        std::fs::rename(&folder, place.path().join("away")).expect("renamed");
        std::fs::write(&folder, "").expect("written");
        for _ in 0..5 {
            source.exec(row).await;
        }
        wait_state(&daemon, 0, "waiting_for_archive").await;
        let executed = source.gtid_executed().await;
        eventually("they are received", DRAIN, async || {
            channel(&daemon)["received_transaction_set"] == executed.as_str()
        })
        .await;
    };
    let set_place = |place: &TempDir| {
        daemon.set("archive.url", format!("file://{}", place.path().display()));
    };

    five_are_only_received(&places[0]).await;
    assert!(daemon.terminate().success());
    source.exec("FLUSH BINARY LOGS").await;
    source.exec("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY").await;
    source.exec(row).await;
    set_place(&places[1]);
    daemon.start_again();
    archived(&daemon, &source).await;
    let first = view(&daemon)["transactions_total"].as_u64().expect("a number");
    assert!(first >= 6, "{}", view(&daemon));

    // The source has them, and is asked for no more than what comes next.
    five_are_only_received(&places[1]).await;
    set_place(&places[2]);
    daemon.set("applier.start_from", "source");
    daemon.write_config();
    daemon.commanded(&["reload", "--restart"]);
    archived(&daemon, &source).await;
    assert!(view(&daemon)["transactions_total"].as_u64() >= Some(first + 5), "{}", view(&daemon));
    assert_eq!(view(&daemon)["missing_transactions_total"], 0);
    daemon.commanded(&["archive", "verify"]);
    history(places[2].path());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_target_is_refused_and_nothing_is_shown_of_one() {
    let source = Server::start("source", &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let before = source.gtid_executed().await;
    let daemon = alone(&source, archive.path()).set("applier.start_from", before.as_str()).start();
    source.exec("INSERT INTO d.t VALUES (1)").await;
    archived(&daemon, &source).await;
    let executed = source.gtid_executed().await;
    daemon.commanded(&["wait", &executed, "--timeout", "10"]);
    assert_eq!(view(&daemon)["transactions_total"], 1, "it begins after start_from");
    wait_state(&daemon, 0, "running").await;

    for command in [
        &["pause"][..],
        &["resume"],
        &["skip", &format!("{}:1", &before[..36])],
        &["until", "--after-gtids", &executed],
        &["set", "worker_count", "4"],
        &["verify"],
        &["copy", "--plan"],
        &["adopt", "--from", "other"],
        &["restore"],
    ] {
        let said = daemon.command(command);
        assert_ne!(said.code, Some(0), "{command:?}: {said:?}");
        let text = format!("{}{}", said.out, said.error);
        assert!(text.contains("has no [channel.target]"), "{command:?}: {said:?}");
    }
    let checked = daemon.commanded(&["check", "--connect"]);
    assert!(checked.contains("the channel can start"), "{checked}");
    assert!(checked.contains("its last history is"), "{checked}");
    assert!(!checked.contains("target"), "{checked}");

    let shown = channel(&daemon);
    assert_eq!(shown["applier"]["target"], "");
    assert_eq!((&shown["lag_seconds"], &shown["backlog_transactions"]), (&0.0.into(), &0.into()));
    assert_eq!(shown["state_detail"], "has archived everything received, waiting for more");
    let page = daemon.commanded(&["status", "test"]);
    assert!(page.contains("archive") && !page.contains("workers"), "{page}");
    assert!(!page.contains("target"), "{page}");
    daemon.commanded(&["status"]);
    daemon.commanded(&["relay", "dump", "--rows"]);
    let metrics = daemon.metrics();
    let of_channel: Vec<&str> =
        metrics.lines().filter(|line| line.contains("channel=\"test\"")).collect();
    for absent in
        ["csa_applier_", "csa_scheduler_", "csa_end_to_end", "csa_desired_", "csa_bottleneck"]
    {
        let found = of_channel.iter().find(|line| line.starts_with(absent));
        assert_eq!(found, None);
    }
    for present in
        ["csa_lag_seconds", "csa_archive_lag_seconds", "csa_backlog_bytes", "csa_relaystore_bytes"]
    {
        assert!(of_channel.iter().any(|line| line.starts_with(present)), "{present}: {metrics}");
    }
    let schemas = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='csa'";
    assert_eq!(source.value::<u8>(schemas).await, 0);
    daemon.commanded(&["restart", "--receiving"]);
    wait_state(&daemon, 0, "running").await;

    let refused = |builder: DaemonBuilder| builder.start_unless_refused().expect_err("refused");
    let said = refused(alone(&source, archive.path()).unset("archive"));
    assert!(said.contains("target: missing") && said.contains("[channel.archive]"), "{said}");
    let said = refused(alone(&source, archive.path()).set("standby", true));
    assert!(said.contains("standby: needs [channel.target]"), "{said}");
    let said = refused(alone(&source, archive.path()).set("applier.worker_count", 2));
    assert!(said.contains("applier.worker_count: needs [channel.target]"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_without_a_target_works_as_written() {
    let source = Server::start("source", &[]);
    let archive = folder();
    source.exec("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY)").await;
    source.exec("INSERT INTO shop.item VALUES (7)").await;
    let secrets = folder();
    for (side, password) in [("source", "repl_pw\n"), ("target", "csa_pw\n")] {
        std::fs::write(secrets.path().join(format!("{side}.pw")), password).expect("written");
    }
    let secret = secrets.path().display().to_string();
    let mut guide = Guide::section("archive.md", "Without a target");
    let file = guide
        .take("toml")
        .replace("\"db1.example.com\"", &format!("\"127.0.0.1\"\nport = {}", source.port))
        .replace("/etc/csa-daemon", &secret)
        .replace(
            "s3://backups/mysql",
            &format!("file://{}\"\ninterval = \"1s", archive.path().display()),
        );
    let daemon =
        Daemon::builder(&source, &source).without_channels().append(&format!("\n{file}")).start();
    archived(&daemon, &source).await;
    let restored_to = Server::start("restored", &[]);
    let line = guide.take("sh");
    let line = line
        .replace("127.0.0.1:3308", &format!("127.0.0.1:{}", restored_to.port))
        .replace("/etc/csa-daemon", &secret);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[0], "csa-daemon");
    daemon.commanded(&words[1..]);
    compare(&source, &restored_to).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_statement_format_stops_an_archive_that_no_restore_could_pass() {
    let source = Server::start("source", &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = alone(&source, archive.path()).start();
    archived(&daemon, &source).await;
    source.exec("SET SESSION binlog_format=STATEMENT; INSERT INTO d.t VALUES (1)").await;
    wait_state(&daemon, 0, "failed").await;
    let error = channel(&daemon)["last_error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("statement-format change"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_restored_unless_the_command_leaves_them_out() {
    let source = Server::start("source", &[]);
    let archive = folder();
    let daemon = alone(&source, archive.path()).start();
    source.exec("CREATE USER clerk IDENTIFIED BY 'x'").await;
    archived(&daemon, &source).await;
    let users = "SELECT COUNT(*) FROM mysql.user WHERE user = 'clerk'";
    for (arguments, count) in [(&[][..], 1), (&["--accounts=false"][..], 0)] {
        let server = Server::start("restored", &[]);
        restored_alone(&daemon, &server, arguments);
        assert_eq!(server.value::<u8>(users).await, count, "{arguments:?}");
    }
}
