//! Channels that come and go while the daemon runs: files in `conf.d`, `[defaults]`, `reload`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, DaemonBuilder, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use crate::check::TRUST;
use crate::{DRAIN, wait_state};

/// A source and a target with the same tables in a schema for each channel.
pub(crate) struct Site {
    pub(crate) source: Server,
    pub(crate) target: Server,
    /// The source's GTIDs of these tables.
    pub(crate) copied: String,
}

pub(crate) fn options(channel: &str) -> LoadOptions {
    LoadOptions {
        schema: channel.to_owned(),
        tables: 2,
        rows: 200,
        clients: 2,
        rate: Some(40.0),
        ..LoadOptions::default()
    }
}

impl Site {
    pub(crate) async fn new(channels: &[&str]) -> Self {
        let (source, target) = Server::pair(&[], &[TRUST]);
        for channel in channels {
            prepare(&source, &options(channel)).await;
            prepare(&target, &options(channel)).await;
        }
        let copied = source.gtid_executed().await;
        Self { source, target, copied }
    }

    /// Returns a daemon with one channel, `test`, in the main file.
    pub(crate) fn builder(&self) -> DaemonBuilder {
        Daemon::builder(&self.source, &self.target)
            .set("applier.replicate_wild_do_table", vec!["test.%"])
            .set("applier.start_from", self.copied.as_str())
            .append(&self.defaults())
    }

    /// A daemon with `test` in the main file, each of `others` in a file of its own, and all running.
    pub(crate) async fn with_files(&self, others: &[&str]) -> Daemon {
        let daemon = self.builder().start();
        self.add_files(&daemon, others).await;
        daemon
    }

    /// Adds a file for each of `others`, and waits until all run.
    pub(crate) async fn add_files(&self, daemon: &Daemon, others: &[&str]) {
        for name in others {
            write(daemon, &format!("{name}.toml"), &self.channel(name, ""));
        }
        daemon.commanded(&["reload"]);
        for channel in 0..=others.len() {
            wait_state(daemon, channel, "running").await;
        }
    }

    /// A file of `conf.d`: what `[defaults]` does not have.
    pub(crate) fn channel(&self, name: &str, applier: &str) -> String {
        let server_id = 1000 + name.bytes().map(u32::from).sum::<u32>();
        format!(
            "[[channel]]\nname = \"{name}\"\n[channel.source]\nserver_id = {server_id}\n\
             [channel.target]\n[channel.applier]\nreplicate_wild_do_table = [\"{name}.%\"]\n{applier}"
        )
    }

    /// Returns `[defaults]` of the main file.
    fn defaults(&self) -> String {
        let (source, target) = (self.source.port, self.target.port);
        let copied = self.copied.replace('\n', "");
        format!(
            "\n[defaults.source]\nhost = \"127.0.0.1\"\nport = {source}\nuser = \"repl\"\n\
             password = \"repl_pw\"\nconnect_retry = \"100ms\"\nheartbeat_interval = \"1s\"\n\
             [defaults.target]\nport = {target}\nuser = \"csa\"\npassword = \"csa_pw\"\n\
             [defaults.relay]\nmin_free_disk = \"0\"\n[defaults.applier]\nstart_from = \"{copied}\"\n"
        )
    }

    pub(crate) async fn drained(&self, daemon: &Daemon, channels: &[&str]) {
        for channel in channels {
            daemon.wait_channel_drained(channel, &self.source, &self.target, DRAIN).await;
        }
    }
}

fn folder(daemon: &Daemon) -> PathBuf {
    daemon.config_path().with_file_name("conf.d")
}

pub(crate) fn write(daemon: &Daemon, file: &str, text: &str) {
    // As operators should: nobody reads half of it.
    let fresh = folder(daemon).join(format!(".{file}.new"));
    fs::create_dir_all(folder(daemon)).expect("created");
    fs::write(&fresh, text).expect("writable");
    fs::rename(&fresh, folder(daemon).join(file)).expect("renamed");
}

fn remove(daemon: &Daemon, file: &str) {
    fs::remove_file(folder(daemon).join(file)).expect("removed");
}

fn names(daemon: &Daemon) -> Vec<String> {
    let status = daemon.status();
    let channels = status["channels"].as_array().expect("channels");
    let name = |view: &serde_json::Value| view["channel_name"].as_str().expect("a name").to_owned();
    channels.iter().map(name).collect()
}

fn starts(daemon: &Daemon, channel: &str) -> usize {
    let log = daemon.log();
    let started = |line: &&str| {
        line.contains("channel started") && line.contains(&format!("channel=\"{channel}\""))
    };
    log.lines().filter(started).count()
}

async fn is_locked(site: &Site, channel: &str) -> bool {
    let used: Option<u64> =
        site.target.value(&format!("SELECT IS_USED_LOCK('csa:{channel}')")).await;
    used.is_some()
}

/// The server ends some of them with a deadlock: they create the same tables.
#[tokio::test(flavor = "multi_thread")]
async fn many_channels_begin_together_on_an_empty_target() {
    const CHANNELS: usize = 16;
    let site = Site::new(&["test"]).await;
    for _ in 0..4 {
        let name = |number: usize| site.channel(&format!("channel_{number}"), "");
        let others: String = (1..CHANNELS).map(name).collect();
        let daemon = site.builder().append(&others).start();
        for channel in 0..CHANNELS {
            wait_state(&daemon, channel, "running").await;
        }
        let log = daemon.log();
        assert!(!log.contains("trying again"), "{log}");
        daemon.kill9();
        site.target.exec("DROP DATABASE csa").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_come_change_and_go_under_load() {
    let site = Site::new(&["test", "two", "three"]).await;
    let Site { source, target, .. } = &site;
    let daemon = site.builder().start();
    let loads = ["test", "two", "three"].map(|name| Load::start(source, &options(name)));
    wait_state(&daemon, 0, "running").await;
    assert_eq!(daemon.commanded(&["reload"]), "nothing has changed\n");

    // Added; a dry run only says so.
    write(&daemon, "two.toml", &site.channel("two", ""));
    write(&daemon, "three.toml", &site.channel("three", "throttle = 50\n"));
    let said = daemon.commanded(&["reload", "--dry-run"]);
    assert_eq!(said, "channel \"three\": would be added\nchannel \"two\": would be added\n");
    assert_eq!(names(&daemon), ["test"]);
    let said = daemon.commanded(&["reload"]);
    assert_eq!(said, "channel \"three\": added\nchannel \"two\": added\n");
    assert_eq!(names(&daemon), ["test", "three", "two"], "in the order of the files");
    for channel in [1, 2] {
        wait_state(&daemon, channel, "running").await;
    }
    assert!(daemon.metrics().contains("channel=\"two\""));
    assert!(is_locked(&site, "two").await);

    // Changed: what can change at once does, and only a channel with other changes restarts.
    let faster = "throttle = 0\nworker_count = 3\nnet_timeout = 1\n";
    write(&daemon, "three.toml", &site.channel("three", faster));
    write(&daemon, "two.toml", &site.channel("two", "worker_count = 2\n"));
    let said = daemon.command(&["reload"]);
    said.refused(
        2,
        &["conf.d/three.toml: line 10: channel \"three\": applier.net_timeout: unknown key"],
    );
    let workers = |name: &str| {
        let status = daemon.status();
        let channels = status["channels"].as_array().cloned().unwrap_or_default();
        let view = channels.into_iter().find(|view| view["channel_name"] == name);
        view.map(|view| view["settings"]["worker_count"].clone()).expect("the channel")
    };
    let adopted =
        |ok: u8| daemon.metrics().contains(&format!("\ncsa_config_last_reload_ok {ok}\n"));
    assert!(adopted(0), "{}", daemon.metrics());
    assert_eq!(workers("two"), 8, "a file with an error changes nothing, in no channel");
    let changed = "throttle = 0\nworker_count = 3\ntransaction_retries = 7\n";
    write(&daemon, "three.toml", &site.channel("three", changed));
    let said = daemon.commanded(&["reload"]);
    for line in [
        "channel \"three\": applier.throttle: 50 -> 0\n",
        "channel \"three\": applier.worker_count: 8 -> 3\n",
        "channel \"two\": applier.worker_count: 8 -> 2\n",
        "channel \"three\": applier.transaction_retries has changed and needs a restart of the channel\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!((workers("two"), workers("three")), (2.into(), 3.into()));
    assert!(adopted(1), "{}", daemon.metrics());
    let before = ["test", "two", "three"].map(|name| starts(&daemon, name));
    assert_eq!(before, [1, 1, 1]);
    let restart = "restarted for applier.transaction_retries\n";
    let said = daemon.commanded(&["reload", "--restart", "--dry-run"]);
    assert_eq!(said, format!("channel \"three\": would be {restart}"));
    assert_eq!(daemon.commanded(&["reload", "--restart"]), format!("channel \"three\": {restart}"));
    eventually("three starts again", DRAIN, async || starts(&daemon, "three") == 2).await;
    assert_eq!([starts(&daemon, "test"), starts(&daemon, "two")], [1, 1]);
    // Stopped by an operator: it stays so, and takes the file at its next start.
    daemon.commanded(&["--channel", "three", "stop"]);
    write(&daemon, "three.toml", &site.channel("three", "transaction_retries = 8\n"));
    let said = daemon.commanded(&["reload", "--restart"]);
    assert!(said.contains("transaction_retries has changed and needs a restart"), "{said}");
    wait_state(&daemon, 1, "stopped").await;
    daemon.commanded(&["--channel", "three", "restart"]);
    assert_eq!(daemon.commanded(&["reload"]), "nothing has changed\n");

    // Mistakes that only all files together show.
    write(&daemon, "copy.toml", &site.channel("two", ""));
    let twice = ["conf.d/two.toml: line 2: channel \"two\": name: used twice", "conf.d/copy.toml"];
    daemon.command(&["reload"]).refused(2, &twice);
    daemon.command(&["check"]).refused(2, &twice);
    write(&daemon, "copy.toml", "[daemon]\nlog_filter = \"info\"\n");
    daemon.command(&["reload"]).refused(2, &["conf.d/copy.toml: line 1: daemon: only [[channel]]"]);
    remove(&daemon, "copy.toml");

    // Removed: it ends, its state remains, and nothing shows it any more.
    let set = format!("{}:1-9999999", site.copied.split(':').next().unwrap_or_default());
    let wait = ["--channel", "two", "wait", &set, "--timeout", "50"];
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let started = Instant::now();
            (daemon.command(&wait).code, started.elapsed())
        });
        std::thread::sleep(Duration::from_millis(500));
        remove(&daemon, "two.toml");
        let said = daemon.commanded(&["reload"]);
        assert!(said.starts_with("channel \"two\": removed; its relay store"), "{said}");
        waiting.join().expect("a command")
    });
    assert!(waiting.0 == Some(1) || waiting.0 == Some(2), "{waiting:?}");
    assert!(waiting.1 < Duration::from_secs(20), "{waiting:?}");
    assert_eq!(names(&daemon), ["test", "three"]);
    assert!(!daemon.metrics().contains("channel=\"two\""));
    eventually("its past is forgotten", DRAIN, async || {
        daemon.get("/history").is_some_and(|(code, body)| code == 200 && !body.contains("\"two\""))
    })
    .await;
    assert!(!is_locked(&site, "two").await);
    let known = "SELECT GROUP_CONCAT(DISTINCT channel ORDER BY channel) FROM csa.checkpoint";
    assert_eq!(target.value::<String>(known).await, "test,three,two");
    assert!(daemon.state_dir().join("two/relay").is_dir());
    daemon.command(&["--channel", "two", "restart"]).refused(2, &["no channel \"two\""]);
    let audited =
        "SELECT GROUP_CONCAT(detail) FROM csa.audit WHERE channel = 'two' AND action = 'reload'";
    let audited: String = target.value(audited).await;
    assert!(audited.contains("added") && audited.contains("removed"), "{audited}");

    // It comes back where it was, by a signal.
    write(&daemon, "two.toml", &site.channel("two", ""));
    daemon.signal("HUP");
    eventually("two is back", DRAIN, async || names(&daemon) == ["test", "three", "two"]).await;
    // All of it may have taken less time than so many transactions do at the rate of the loads.
    eventually("each load has written", DRAIN, async || {
        loads.iter().all(|load| load.committed() > 100)
    })
    .await;
    for load in loads {
        assert!(load.stop().await.committed > 100);
    }
    site.drained(&daemon, &["test", "three", "two"]).await;
    compare(source, target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_whose_groups_do_not_finish_is_removed_in_time() {
    let site = Site::new(&["test", "two"]).await;
    let daemon = site.builder().set("daemon.stop_timeout", "1s").start();
    write(&daemon, "two.toml", &site.channel("two", ""));
    daemon.commanded(&["reload"]);
    let load = Load::start(&site.source, &options("two"));
    eventually("two applies", DRAIN, async || {
        daemon.status()["channels"][1]["applied_transactions_total"].as_u64() > Some(20)
    })
    .await;
    let mut session = site.target.conn().await;
    let lock = "BEGIN; SELECT * FROM two.counter FOR UPDATE";
    session.query_drop(lock).await.expect("locks the rows");
    tokio::time::sleep(Duration::from_millis(500)).await;
    remove(&daemon, "two.toml");
    let started = Instant::now();
    let said = daemon.commanded(&["reload"]);
    assert!(said.contains("channel \"two\": removed"), "{said}");
    let took = started.elapsed();
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(names(&daemon), ["test"]);
    // Added again while its old sessions may still wait there.
    write(&daemon, "two.toml", &site.channel("two", ""));
    daemon.commanded(&["reload"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    session.query_drop("ROLLBACK").await.expect("rolls back");
    load.stop().await;
    site.drained(&daemon, &["test", "two"]).await;
    compare(&site.source, &site.target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_at_once_and_commands_between_them_leave_what_the_files_say() {
    let site = Site::new(&["test", "two", "three"]).await;
    let daemon = site.builder().start();
    let loads = ["test", "two", "three"].map(|name| Load::start(&site.source, &options(name)));
    for round in 0..6 {
        match round % 2 {
            0 => write(&daemon, "two.toml", &site.channel("two", "")),
            _ => remove(&daemon, "two.toml"),
        }
        match round % 3 {
            0 => write(&daemon, "three.toml", &site.channel("three", "")),
            1 => {
                let retries = format!("transaction_retries = {}\n", 20 + round);
                write(&daemon, "three.toml", &site.channel("three", &retries));
            }
            _ => remove(&daemon, "three.toml"),
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| daemon.commanded(&["reload", "--restart"]));
                // It may find the channel, or none of its name, or one that is being removed.
                scope.spawn(|| daemon.command(&["--channel", "two", "restart"]));
            }
            daemon.signal("HUP");
        });
        let mut wanted = vec!["test"];
        wanted.extend((round % 3 != 2).then_some("three"));
        wanted.extend((round % 2 == 0).then_some("two"));
        eventually("the channels of the files", DRAIN, async || names(&daemon) == wanted).await;
        eventually("no other has its lock", DRAIN, async || {
            let mut expected = true;
            for name in ["three", "two"] {
                expected &= wanted.contains(&name) || !is_locked(&site, name).await;
            }
            expected
        })
        .await;
    }
    write(&daemon, "two.toml", &site.channel("two", ""));
    write(&daemon, "three.toml", &site.channel("three", ""));
    daemon.commanded(&["reload"]);
    for load in loads {
        load.stop().await;
    }
    site.drained(&daemon, &["test", "three", "two"]).await;
    compare(&site.source, &site.target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_during_a_reload_starts_with_what_the_files_say() {
    let site = Site::new(&["test", "two", "three"]).await;
    let daemon = site.builder().start();
    let loads = ["test", "two", "three"].map(|name| Load::start(&site.source, &options(name)));
    write(&daemon, "three.toml", &site.channel("three", ""));
    for round in 0..8_u64 {
        let adds = round % 2 == 0;
        let retries = format!("transaction_retries = {}\n", 20 + round);
        write(&daemon, "three.toml", &site.channel("three", &retries));
        match adds {
            true => write(&daemon, "two.toml", &site.channel("two", "")),
            false => remove(&daemon, "two.toml"),
        }
        std::thread::scope(|scope| {
            // Killed at the latest when all is done.
            scope.spawn(|| daemon.command(&["reload", "--restart"]));
            std::thread::sleep(Duration::from_millis(15 + 35 * round));
            daemon.kill9();
        });
        daemon.start_again();
        let wanted: &[&str] = if adds { &["test", "three", "two"] } else { &["test", "three"] };
        assert_eq!(names(&daemon), wanted);
        eventually("all run", DRAIN, async || {
            daemon.get("/readyz").is_some_and(|(code, _)| code == 200)
        })
        .await;
    }
    write(&daemon, "two.toml", &site.channel("two", ""));
    daemon.commanded(&["reload"]);
    for load in loads {
        load.stop().await;
    }
    site.drained(&daemon, &["test", "three", "two"]).await;
    compare(&site.source, &site.target).await;
}
