//! Notifications to systemd, received on a socket of the test.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Server, eventually};
use tempfile::TempDir;

use crate::wait_state;

/// All notifications so far, with the time since the socket was opened.
pub(crate) struct Manager {
    directory: TempDir,
    told: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Manager {
    pub(crate) fn listen() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        let told: Arc<Mutex<Vec<(Duration, String)>>> = Arc::default();
        let list = Arc::clone(&told);
        let opened = Instant::now();
        // Ends with the process of the test.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = socket.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let mut list = list.lock().expect("not poisoned");
                list.extend(text.lines().map(|line| (opened.elapsed(), line.to_owned())));
            }
        });
        Self { directory, told }
    }

    pub(crate) fn path(&self) -> String {
        self.directory.path().join("notify").display().to_string()
    }

    fn lines(&self) -> Vec<String> {
        let told = self.told.lock().expect("not poisoned");
        told.iter().map(|(_, line)| line.clone()).collect()
    }

    fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|told| *told == line).count()
    }

    pub(crate) fn has_status(&self, words: &[&str]) -> bool {
        let found = |line: &String| words.iter().all(|word| line.contains(word));
        self.lines().iter().filter(|line| line.starts_with("STATUS=")).any(found)
    }

    pub(crate) async fn until(&self, line: &str, times: usize) {
        eventually(&format!("{line}, {times} times"), Duration::from_secs(30), async || {
            self.count(line) >= times
        })
        .await;
    }
}

const ALIVE: &str = "WATCHDOG=1";
const READY: &str = "READY=1";
const MORE_TIME: &str = "EXTEND_TIMEOUT_USEC=30000000";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn ready_comes_with_the_channel_and_life_is_shown_until_the_stop() {
    let (source, target) = Server::pair(&[], &[]);
    let manager = Manager::listen();
    target.stop();
    let daemon = Daemon::builder(&source, &target)
        .set("target.connect_retry", "100ms")
        .env("NOTIFY_SOCKET", &manager.path())
        .env("WATCHDOG_USEC", "600000")
        .start();
    wait_state(&daemon, 0, "waiting_for_target").await;
    // The start takes as long as the target's, and reports it.
    manager.until(MORE_TIME, 5).await;
    manager.until(ALIVE, 5).await;
    assert_eq!(manager.count(READY), 0, "{:?}", manager.lines());
    assert!(manager.has_status(&["test waiting for target", "127.0.0.1"]), "{:?}", manager.lines());

    target.restart();
    manager.until(READY, 1).await;
    wait_state(&daemon, 0, "running").await;
    source.exec("CREATE DATABASE d").await;
    eventually("the status", Duration::from_secs(30), async || {
        manager.has_status(&["test running, lag 0.0 s, backlog 0 transactions"])
    })
    .await;
    // Ready only once, even when the source goes down and comes back.
    source.stop();
    eventually("the status", Duration::from_secs(30), async || {
        manager.has_status(&["test waiting for source"])
    })
    .await;
    source.restart();
    wait_state(&daemon, 0, "running").await;

    // A stopped process sends nothing for three intervals of the watchdog.
    daemon.signal("STOP");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stopped = manager.count(ALIVE);
    tokio::time::sleep(Duration::from_millis(1800)).await;
    assert_eq!(manager.count(ALIVE), stopped);
    daemon.signal("CONT");
    manager.until(ALIVE, stopped + 10).await;

    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    let lines = manager.lines();
    assert_eq!(manager.count(READY), 1, "{lines:?}");
    assert_eq!(manager.count("STOPPING=1"), 1, "{lines:?}");
    let stopping = lines.iter().position(|line| line == "STOPPING=1").expect("counted");
    assert!(lines[stopping + 1].starts_with("STATUS=stopping: "), "{lines:?}");
    let states: Vec<_> =
        lines[stopping + 2..].iter().filter(|l| l.starts_with("STATUS=")).collect();
    assert!(states.is_empty(), "the last word is the stop's: {states:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signs_of_life_continue_while_a_stop_drains() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let manager = Manager::listen();
    let daemon = Daemon::builder(&source, &target)
        .set("daemon.stop_timeout", "4s")
        .env("NOTIFY_SOCKET", &manager.path())
        .env("WATCHDOG_USEC", "600000")
        .start();
    manager.until(READY, 1).await;
    daemon.wait_drained(&source, &target, crate::DRAIN).await;
    let mut lock = target.conn().await;
    let run = async |conn: &mut mysql_async::Conn, sql| {
        mysql_async::prelude::Queryable::query_drop(conn, sql).await.expect("runs");
    };
    run(&mut lock, "LOCK TABLES d.t WRITE").await;
    source.exec("INSERT INTO d.t VALUES (1)").await;
    eventually("a transaction waits", Duration::from_secs(30), async || {
        !daemon.status()["channels"][0]["applier"]["applying_transaction"].is_null()
    })
    .await;
    let extended = manager.count(MORE_TIME);
    daemon.signal("TERM");
    manager.until("STOPPING=1", 1).await;
    let alive = manager.count(ALIVE);
    manager.until(ALIVE, alive + 8).await;
    manager.until(MORE_TIME, extended + 8).await;
    run(&mut lock, "UNLOCK TABLES").await;
    let status = daemon.wait_exit(Duration::from_secs(20));
    assert!(status.success(), "{status}\n{}", daemon.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_the_last_status() {
    let (source, target) = Server::pair(&[], &[]);
    let manager = Manager::listen();
    let builder = Daemon::builder(&source, &target).env("NOTIFY_SOCKET", &manager.path());
    let said = builder.set("source.password", "wrong").run_expect_exit(2);
    assert!(said.contains("refused user 'repl'"), "{said}");
    eventually("the reason", Duration::from_secs(10), async || {
        manager.has_status(&["refused user 'repl'", "[channel.source]"])
    })
    .await;
    assert_eq!(manager.count(READY), 0);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn unit(name: &str) -> String {
    let path = root().join("config/systemd").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_template_is_the_unit_with_an_instance_in_it() {
    let (service, template) = (unit("csa-daemon.service"), unit("csa-daemon@.service"));
    let body: Vec<_> = template.lines().filter(|line| !line.starts_with("# One daemon")).collect();
    let expected = service
        .replace("replica of MySQL\n", "replica of MySQL (%i)\n")
        .replace("csa-daemon/csa-daemon.toml", "csa-daemon/%i.toml");
    let body: Vec<_> =
        body.into_iter().filter(|line| !line.starts_with("# channels have")).collect();
    assert_eq!(body, expected.lines().collect::<Vec<_>>());
}

/// Returns the settings of the unit, without comments.
fn settings(unit: &str) -> Vec<&str> {
    unit.lines().filter(|line| !line.starts_with('#') && line.contains('=')).collect()
}

/// In a user namespace of its own the kernel names another user to the daemon than the one that gave a command.
#[test]
fn the_unit_leaves_the_users_of_clients_known() {
    let unit = unit("csa-daemon.service");
    let hiding: Vec<_> =
        settings(&unit).into_iter().filter(|line| line.starts_with("PrivateUsers=")).collect();
    assert!(hiding.is_empty(), "{hiding:?} hides who gives a command");
}

/// The daemon gives its socket to `admin_socket_group`; of several filters the later one counts.
#[test]
fn the_unit_permits_what_the_socket_of_a_group_needs() {
    let unit = unit("csa-daemon.service");
    let mut filters =
        settings(&unit).into_iter().filter_map(|l| l.strip_prefix("SystemCallFilter="));
    let last = filters.rfind(|filter| {
        let named: Vec<&str> = filter.trim_start_matches('~').split(' ').collect();
        named.contains(&"@chown") || named.contains(&"@privileged")
    });
    assert_eq!(last, Some("@chown"));
}

/// The signal of a reload has no answer, so another command of the unit gives it.
#[test]
fn a_reload_of_the_unit_fails_for_a_wrong_file() {
    let unit = unit("csa-daemon.service");
    let commands = settings(&unit).into_iter().filter_map(|l| l.strip_prefix("ExecReload="));
    let told = commands.rev().find_map(|command| command.strip_prefix("/usr/bin/csa-daemon "));
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let file = scratch.path().join("csa-daemon.toml");
    let here = file.display().to_string();
    let words = told.expect("a command that reads the file");
    let words = words.replace("/etc/csa-daemon/csa-daemon.toml", &here);
    let reload = |text: &str| {
        std::fs::write(&file, text).expect("writable");
        let mut command = Command::new(Daemon::executable());
        command.args(words.split(' ')).output().expect("runs").status.success()
    };
    assert!(reload("[daemon]\nallow_no_channels = true\n"), "{words}");
    assert!(!reload("[daemon]\nallow_no_chanels = true\n"), "{words}");
}

/// A removal of the RPM package runs this where systemd runs: here it gets the links of another root.
#[test]
fn a_removal_leaves_no_instance_enabled() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let units = scratch.path().join("usr/lib/systemd/system");
    std::fs::create_dir_all(&units).expect("created");
    for name in ["csa-daemon.service", "csa-daemon@.service"] {
        std::fs::write(units.join(name), unit(name)).expect("writable");
    }
    let wanted = scratch.path().join("etc/systemd/system/multi-user.target.wants");
    let links = || std::fs::read_dir(&wanted).map_or(0, |links| links.count());
    let systemctl = |words: &str| {
        let mut command = Command::new("systemctl");
        let words = words.replace(['\'', '"'], "");
        command.arg("--root").arg(scratch.path()).args(words.split_whitespace());
        let output = command.output().expect("runs");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    systemctl("enable csa-daemon.service csa-daemon@one.service csa-daemon@two.service");
    assert_eq!(links(), 3);
    let spec = std::fs::read_to_string(root().join("config/rpm/csa-daemon.spec")).expect("a file");
    let mut commands = spec.lines().filter_map(|line| line.trim().strip_prefix("systemctl "));
    let removal = commands.find(|words| words.contains(" disable ")).expect("a removal");
    systemctl(removal.strip_suffix(" || :").expect("an error that is passed over"));
    assert_eq!(links(), 0, "{removal}");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let missing = Command::new("systemd-analyze").arg("--version").output().is_err();
    assert!(!missing, "systemd-analyze is missing: install the package systemd");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    for name in ["csa-daemon.service", "csa-daemon@.service"] {
        // The program and the manual page are installed elsewhere here.
        let text = unit(name)
            .replace("/usr/bin/csa-daemon", &Daemon::executable().display().to_string())
            .replace("Documentation=man:csa-daemon(8) man:csa-daemon.toml(5)\n", "");
        let path = scratch.path().join(name);
        std::fs::write(&path, text).expect("writable");
        let instance = scratch.path().join(name.replace('@', "@one"));
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&instance)
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&verified.stderr);
        let ours: Vec<_> = said.lines().filter(|line| line.contains("csa-daemon")).collect();
        assert!(verified.status.success() && ours.is_empty(), "{name}: {said}");
        // 2.0 of 10 is its "OK"; the exposure left is the network and the state folder.
        let exposed = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", "--threshold=15"])
            .arg(&instance)
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&exposed.stdout);
        assert!(exposed.status.success(), "{name}: {said}");
    }
}

/// A first copy counts as a start, and a stop does not wait for the keys that end it.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_copy_is_ready_at_once_and_stops_while_keys_are_added() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT UNIQUE)").await;
    source
        .exec(
            "INSERT INTO d.t WITH RECURSIVE n AS \
             (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<1000) SELECT i, i FROM n",
        )
        .await;
    let manager = Manager::listen();
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", "0MiB")
        .set("copy.rows_per_second", 100)
        .set("daemon.stop_timeout", "1s")
        .env("NOTIFY_SOCKET", &manager.path())
        .build();
    daemon.spawn();
    manager.until(READY, 1).await;
    assert!(!daemon.status()["channels"][0]["copy"].is_null(), "{}", daemon.log_tail());

    // A client reads the table, so its keys can't be added.
    eventually("the copied table", Duration::from_secs(30), async || {
        target
            .value::<u64>("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'")
            .await
            == 1
    })
    .await;
    let mut reader = target.conn().await;
    let read = "BEGIN; SELECT COUNT(*) FROM d.t";
    mysql_async::prelude::Queryable::query_drop(&mut reader, read).await.expect("runs");
    eventually("keys wait for the reader", Duration::from_secs(60), async || {
        let waiting = "SELECT COUNT(*) FROM performance_schema.processlist \
                       WHERE state LIKE 'Waiting for table metadata lock%' AND info LIKE 'ALTER TABLE%'";
        target.value::<u64>(waiting).await == 1
    })
    .await;
    let asked = Instant::now();
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(10), "the stop waited {took:?} for the keys");

    drop(reader);
    daemon.start_again();
    daemon.wait_drained(&source, &target, crate::DRAIN).await;
    eventually("the key", Duration::from_secs(30), async || {
        target
            .value::<u64>(
                "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema='d'",
            )
            .await
            == 2
    })
    .await;
    csa_tests::compare(&source, &target).await;
}
