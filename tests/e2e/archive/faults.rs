//! The archive on a bad day: daemons are killed, the store is away, full or damaged, the source is reset.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use csa_tests::{Load, LoadOptions, Server, compare, eventually, prepare};

use super::*;
use crate::wait_state;

/// A table for rows that fill a relay store soon.
const LARGE_ROWS: &str =
    "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)";

fn busy() -> LoadOptions {
    LoadOptions { rows: 200, tables: 2, clients: 3, rate: Some(100.0), ..LoadOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missing_after_kills_of_the_daemon() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    prepare(&source, &busy()).await;
    let daemon = archiving(&source, &target, archive.path()).start();
    let load = Load::start(&source, &busy());
    for millis in [900, 1300, 2100, 500] {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        daemon.kill9();
        daemon.start_again();
    }
    load.stop().await;
    // The relay store is lost, and the source sends again what is archived already.
    daemon.commanded(&["pause"]);
    write_for(&source, &busy(), Duration::from_secs(1)).await;
    archived(&daemon, &source).await;
    daemon.kill9();
    std::fs::remove_dir_all(daemon.state_dir().join("test")).expect("removed");
    daemon.start_again();
    write_for(&source, &busy(), Duration::from_secs(1)).await;
    archived(&daemon, &source).await;
    assert_eq!(view(&daemon)["missing_transactions_total"], 0);
    let checked = daemon.command(&["check", "--connect"]).out;
    assert!(checked.contains("its last history is"), "{checked}");
    let said = daemon.commanded(&["archive", "verify"]);
    let restored_to = Server::start("restored", &[]);
    restored(&daemon, &restored_to, &[]);
    compare(&source, &restored_to).await;

    // Damage is found, and named.
    let folder = history(archive.path());
    let damaged =
        files(&folder).into_iter().find(|file| file.extension().is_some_and(|e| e == "binlog"));
    let damaged = damaged.expect("a file");
    let mut bytes = std::fs::read(&damaged).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, bytes).expect("writable");
    let said_then = daemon.command(&["archive", "verify"]);
    assert_eq!(said_then.code, Some(1), "{said}");
    let name = damaged.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(said_then.out.contains(&name), "{said_then:?}");
}

/// The target is so late that the relay store is full all the time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_archive_that_comes_back_gets_files_while_the_relay_store_is_full() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec(LARGE_ROWS).await;
    let daemon = archiving(&source, &target, archive.path())
        .set("archive.interval", "4s")
        .set("relay.segment_size", "1MiB")
        .set("relay.space_limit", "3MiB")
        .start();
    archived(&daemon, &source).await;
    daemon.commanded(&["set", "source_delay", "3s"]);
    let channel = archive.path().join("test");
    close(&channel, true);
    let given_up = || daemon.log().contains("transactions leave the relay store");
    let writes = async {
        loop {
            source.exec("INSERT INTO d.t (b) VALUES (REPEAT('x', 100000))").await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    let looks = async {
        eventually("transactions are given up", DRAIN, async || given_up()).await;
        close(&channel, false);
        let files = view(&daemon)["files_total"].as_u64();
        eventually("files are added", Duration::from_secs(60), async || {
            view(&daemon)["files_total"].as_u64() > files.map(|files| files + 1)
        })
        .await;
    };
    tokio::select! {
        () = looks => {}
        () = writes => {}
    }
    daemon.commanded(&["set", "source_delay", "0s"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Makes a folder writable or not; the tests may run as root, whom nothing else stops.
fn close(folder: &Path, is_closed: bool) {
    let parked = folder.with_extension("away");
    match is_closed {
        true => {
            std::fs::rename(folder, &parked).expect("renamed");
            // A file in its place, so that nothing can be created below it.
            std::fs::write(folder, "").expect("written");
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o400)).expect("set");
        }
        false => {
            std::fs::remove_file(folder).expect("removed");
            std::fs::rename(&parked, folder).expect("renamed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_archive_that_is_away_holds_the_relay_store_or_gets_a_gap() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec(LARGE_ROWS).await;
    let daemon = archiving(&source, &target, archive.path())
        .set("archive.required", true)
        .set("relay.segment_size", "1MiB")
        .set("relay.space_limit", "8MiB")
        .start();
    let row = "INSERT INTO d.t (b) VALUES (REPEAT('x', 200000))";
    source.exec(row).await;
    archived(&daemon, &source).await;
    let channel = archive.path().join("test");
    close(&channel, true);
    for _ in 0..60 {
        source.exec(row).await;
    }
    // All that fits is applied, and kept for the archive.
    eventually("reception waits", DRAIN, async || {
        daemon.status()["channels"][0]["state"] == "waiting_for_space"
            && view(&daemon)["error"].is_string()
    })
    .await;
    let metrics = daemon.metrics();
    assert!(metrics.contains("csa_archive_failing{channel=\"test\"} 1"), "{metrics}");
    // A restart of the daemon forgets nothing of it.
    daemon.kill9();
    daemon.start_again();
    tokio::time::sleep(Duration::from_secs(2)).await;
    close(&channel, false);
    archived(&daemon, &source).await;
    assert_eq!(view(&daemon)["missing_transactions_total"], 0);
    daemon.commanded(&["archive", "verify"]);

    // Now the relay store may let go of them.
    assert!(daemon.terminate().success());
    daemon.set("archive.required", false);
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    source.exec(row).await;
    archived(&daemon, &source).await;
    let before_gap: String = source.gtid_executed().await;
    close(&channel, true);
    for _ in 0..60 {
        source.exec(row).await;
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    close(&channel, false);
    source.exec("DELETE FROM d.t WHERE id < 10").await;
    archived(&daemon, &source).await;
    assert!(view(&daemon)["missing_transactions_total"].as_u64() > Some(0), "{}", view(&daemon));
    compare(&source, &target).await;
    let said = daemon.command(&["archive", "verify"]);
    assert!(said.code == Some(1) && said.out.contains("a gap of"), "{said:?}");
    // A restore ends before the gap, and says so.
    let restored_to = Server::start("restored", &[]);
    let said = not_restored(&daemon, &restored_to, &[]);
    assert!(said.contains("transactions are missing before"), "{said}");
    let said = restored(&daemon, &restored_to, &["--plan"]);
    assert!(said.contains("it lacks"), "{said}");
    let after_gap = source.gtid_executed().await;
    let said =
        not_restored(&daemon, &Server::start("after-the-gap", &[]), &["--until", &after_gap]);
    assert!(said.contains("it lacks") && said.contains("Give an end within"), "{said}");
    restored(&daemon, &restored_to, &["--until", &before_gap]);
}

/// Returns a daemon whose archive lacks what the target has: its relay store keeps several segments for it.
async fn applied_only(source: &Server, target: &Server, archive: &Path) -> Daemon {
    source.exec(LARGE_ROWS).await;
    let daemon = archiving(source, target, archive)
        .set("archive.required", true)
        .set("relay.segment_size", "1MiB")
        .start();
    archived(&daemon, source).await;
    close(&archive.join("test"), true);
    for _ in 0..20 {
        source.exec("INSERT INTO d.t (b) VALUES (REPEAT('x', 200000))").await;
    }
    daemon.wait_drained(source, target, DRAIN).await;
    daemon
}

/// Only the archive still reads what is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn damage_that_the_target_has_passed_is_fetched_again_for_the_archive() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    let daemon = applied_only(&source, &target, archive.path()).await;
    daemon.kill9();
    let segments = daemon.relay_segments();
    assert!(segments.len() > 3, "{segments:?}");
    let mut bytes = std::fs::read(&segments[2]).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segments[2], bytes).expect("writable");
    daemon.start_again();
    close(&archive.path().join("test"), false);
    source.exec("DELETE FROM d.t WHERE id < 5").await;
    archived(&daemon, &source).await;
    assert_eq!(view(&daemon)["missing_transactions_total"], 0);
    assert!(daemon.log().contains("cutting the relay store there"), "{}", daemon.log_tail());
    daemon.commanded(&["archive", "verify"]);
    compare(&source, &target).await;
}

/// Only the archive still needs what is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_file_that_the_target_has_passed_is_fetched_again_for_the_archive() {
    for is_running in [true, false] {
        let (source, target) = Server::pair(&[], &[]);
        let archive = folder();
        let daemon = applied_only(&source, &target, archive.path()).await;
        // Nothing of it is on its way to the archive any more.
        eventually("the archive fails", DRAIN, async || view(&daemon)["error"].is_string()).await;
        if !is_running {
            daemon.kill9();
        }
        let segments = daemon.relay_segments();
        assert!(segments.len() > 3, "{segments:?}");
        // A daemon that runs may have them open, and reads them even so.
        for segment in &segments[1..3] {
            std::fs::remove_file(segment).expect("removed");
        }
        close(&archive.path().join("test"), false);
        if !is_running {
            daemon.start_again();
        }
        source.exec("DELETE FROM d.t WHERE id < 5").await;
        archived(&daemon, &source).await;
        assert_eq!(view(&daemon)["missing_transactions_total"], 0, "{}", daemon.log_tail());
        daemon.commanded(&["archive", "verify"]);
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_whose_mount_goes_under_the_daemon_holds_nothing() {
    let (source, target) = Server::pair(&[], &[]);
    let place = folder();
    let (archive, away) = (place.path().join("archive"), place.path().join("away"));
    std::fs::create_dir(&archive).expect("created");
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = archiving(&source, &target, &archive).set("archive.required", true).start();
    archived(&daemon, &source).await;
    let before = view(&daemon)["archived_transaction_set"].clone();
    std::fs::rename(&archive, &away).expect("renamed");
    std::fs::create_dir(&archive).expect("created");
    source.exec("INSERT INTO d.t VALUES (1)").await;
    eventually("it is noticed", DRAIN, async || {
        view(&daemon)["error"].to_string().contains("is the directory mounted")
    })
    .await;
    // It may take files, which count for nothing.
    assert_eq!(view(&daemon)["archived_transaction_set"], before);
    std::fs::remove_dir_all(&archive).expect("removed");
    std::fs::rename(&away, &archive).expect("renamed");
    archived(&daemon, &source).await;
    let said = daemon.commanded(&["archive", "verify"]);
    assert!(said.contains("with 3 transactions read"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_daemon_has_not_archived_is_archived_or_a_gap() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT)").await;
    let first = archiving(&source, &target, archive.path()).start();
    archived(&first, &source).await;
    let other = archiving(&source, &target, archive.path()).set("archive.interval", "1h").build();
    let row = "INSERT INTO d.t VALUES ()";
    for is_purged in [false, true] {
        assert!(first.terminate().success());
        other.start_again();
        source.exec(row).await;
        source.exec(row).await;
        other.wait_drained(&source, &target, DRAIN).await;
        assert!(other.terminate().success());
        if is_purged {
            source.exec("FLUSH BINARY LOGS").await;
            let name = "SELECT local->>'$.binary_log_file' FROM performance_schema.log_status";
            let name: String = source.value(name).await;
            source.exec(&format!("PURGE BINARY LOGS TO '{name}'")).await;
        }
        // Its relay store ends before these two, which the target has.
        first.start_again();
        source.exec(row).await;
        archived(&first, &source).await;
        let said = first.command(&["archive", "verify"]);
        match is_purged {
            false => assert_eq!(said.code, Some(0), "{said:?}"),
            true => assert!(said.out.contains("a gap of 2 transactions"), "{said:?}"),
        }
        assert_eq!(view(&first)["missing_transactions_total"], if is_purged { 2 } else { 0 });
    }
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_was_reset_begins_another_history() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    source.exec("INSERT INTO d.t VALUES (1); INSERT INTO d.t VALUES (2)").await;
    let daemon = archiving(&source, &target, archive.path()).start();
    archived(&daemon, &source).await;
    assert!(daemon.terminate().success());
    let first = history(archive.path());

    // The same numbers again for other transactions, and the target begins again.
    source.exec("DROP DATABASE d; RESET BINARY LOGS AND GTIDS").await;
    source.exec("CREATE DATABASE d; CREATE TABLE d.other (id INT PRIMARY KEY)").await;
    source.exec("INSERT INTO d.other VALUES (8); INSERT INTO d.other VALUES (9)").await;
    source.exec("INSERT INTO d.other VALUES (10); INSERT INTO d.other VALUES (11)").await;
    target.exec("DROP DATABASE d; DROP DATABASE csa; RESET BINARY LOGS AND GTIDS").await;
    std::fs::remove_dir_all(daemon.state_dir().join("test")).expect("removed");
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    archived(&daemon, &source).await;
    let histories = files(&archive.path().join("test/histories"));
    assert_eq!(histories.len(), 2, "{histories:?}\n{}", daemon.log_tail());
    assert!(daemon.log().contains("begins another history"), "{}", daemon.log_tail());
    let one = Server::start("restored", &[]);
    restored(&daemon, &one, &[]);
    compare(&source, &one).await;
    // The earlier one is still there.
    let other = Server::start("earlier", &[]);
    let name = first.file_name().expect("a name").to_string_lossy().into_owned();
    restored(&daemon, &other, &["--history", &name]);
    assert_eq!(other.value::<u8>("SELECT COUNT(*) FROM d.t").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_files_go_unless_a_backup_needs_them() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = archiving(&source, &target, archive.path()).start();
    archived(&daemon, &source).await;
    let backup = source.gtid_executed().await;
    for id in 0..3 {
        source.exec(&format!("INSERT INTO d.t VALUES ({id})")).await;
        archived(&daemon, &source).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let folder = history(archive.path());
    let count =
        || files(&folder).iter().filter(|f| f.extension().is_some_and(|e| e == "binlog")).count();
    let all = count();
    assert!(all >= 4, "{all}");
    daemon.commanded(&["archive", "pin", "full", "--gtid-set", &backup]);
    let said = daemon.command(&["archive", "pin", "full", "--gtid-set", &backup]);
    assert!(said.error.contains("already"), "{said:?}");
    assert!(daemon.commanded(&["archive", "pins"]).contains("full"));
    // Everything is older than a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(daemon.terminate().success());
    daemon.set("archive.keep", "1s");
    daemon.start_again();
    eventually("what the backup has goes", DRAIN, async || count() < all).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(), 3, "the backup lacks three transactions");
    assert!(daemon.terminate().success());
    daemon.commanded(&["archive", "verify"]);
    // A rule of the store deletes what the backup needs.
    let oldest =
        files(&folder).into_iter().find(|file| file.extension().is_some_and(|e| e == "json"));
    let oldest = oldest.expect("an index");
    let number = oldest.file_stem().expect("a number").to_string_lossy().into_owned();
    for file in files(&folder) {
        if file.file_name().expect("a name").to_string_lossy().starts_with(&number) {
            std::fs::remove_file(file).expect("removed");
        }
    }
    let said = daemon.command(&["archive", "verify"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("pin full: no history follows the backup"), "{said:?}");
    let said = daemon.command(&["archive", "pin", "late", "--gtid-set", &backup]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.error.contains("pin late: no history follows the backup"), "{said:?}");
    daemon.commanded(&["archive", "unpin", "full"]);
    daemon.commanded(&["archive", "verify"]);
    daemon.start_again();
    eventually("all but the last go", DRAIN, async || count() == 1).await;
    source.exec("INSERT INTO d.t VALUES (9)").await;
    archived(&daemon, &source).await;
    daemon.commanded(&["archive", "verify"]);
}
