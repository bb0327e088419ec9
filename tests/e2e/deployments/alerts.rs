//! Every alert rule against a live daemon: the test causes its condition, a Prometheus reports the alert
//! firing, the test removes the condition, and the alert resolves.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Prometheus, Server, compare, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::DRAIN;
use crate::monitoring::{names_of_alerts, read};

/// The rules of config/prometheus/alerts.yml, sped up: only their numbers are replaced. Durations of
/// conditions and windows of rates become seconds; thresholds become values that a test reaches in
/// seconds.
const SHORTER: [(&str, &str); 10] = [
    ("for: 2m\n", "for: 2s\n"),
    ("for: 5m\n", "for: 2s\n"),
    ("for: 10m\n", "for: 2s\n"),
    ("for: 15m\n", "for: 2s\n"),
    ("[5m]", "[10s]"),
    ("[10m]", "[10s]"),
    ("[30m]", "[20s]"),
    ("csa_desired_delay_seconds > 60 ", "csa_desired_delay_seconds > 3 "),
    ("csa_backlog_transactions > 1000\n", "csa_backlog_transactions > 20\n"),
    ("inversions_total[10s]) > 1\n", "inversions_total[10s]) > 0.2\n"),
];

fn shortened(rules: &str) -> String {
    let shorter = SHORTER.iter().fold(rules.to_owned(), |rules, (from, to)| {
        assert!(rules.contains(from), "no rule has {from:?}");
        rules.replace(from, to)
    });
    assert_eq!(shape(&shorter), shape(rules), "only numbers may differ");
    for line in shorter.lines().map(str::trim) {
        assert!(!line.starts_with("for: ") || line == "for: 2s", "{line} is not shortened");
    }
    shorter
}

/// Returns the text without its numbers and their units of time.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_digit() {
            shape.push(letter);
            continue;
        }
        while letters.next_if(|next| next.is_ascii_digit() || *next == '.').is_some() {}
        letters.next_if(|next| matches!(next, 's' | 'm'));
        shape.push('#');
    }
    shape
}

#[test]
fn shapes_differ_in_all_but_numbers() {
    assert_eq!(shape("for: 15m x > 0.8"), shape("for: 2s x > 3"));
    assert_ne!(shape("a > 1"), shape("a < 1"));
    assert_ne!(shape("for: 2h"), shape("for: 2s"), "hours would have to be listed");
}

/// Channels of one daemon, source and target, each with a database of its own.
const HELD: &str = "held";
const FULL: &str = "full";
const BROKEN: &str = "broken";

/// A number that the test chooses with a variable that means nothing to it; at first a good one.
const HEALTH: &str =
    "SELECT CASE @@GLOBAL.max_connect_errors WHEN 70001 THEN 100 WHEN 70002 THEN NULL ELSE 1 END";

async fn define(source: &Server) {
    let mut sql = String::new();
    for name in [HELD, FULL, BROKEN] {
        sql += &format!(
            "CREATE DATABASE {name};\
             CREATE TABLE {name}.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT, b LONGBLOB);\
             INSERT INTO {name}.t (id,v) VALUES (1,0),(2,0),(3,0),(4,0),(5,0),(6,0),(7,0),(8,0),(9,0);"
        );
    }
    for table in gap_tables() {
        sql += &format!(
            "CREATE TABLE {table} (id INT PRIMARY KEY, u INT UNIQUE);\
             INSERT INTO {table} VALUES (1,10),(2,20);"
        );
    }
    source.exec(&sql).await;
}

fn gap_tables() -> Vec<String> {
    (1..=6).map(|number| format!("{HELD}.u{number}")).collect()
}

/// Returns the bytes left where the daemon keeps its state.
fn free_disk() -> i64 {
    let mut df = Command::new("df");
    df.args(["--output=avail", "--block-size=1"]).arg(std::env::temp_dir());
    let shown = String::from_utf8(df.output().expect("running df").stdout).expect("text");
    shown.lines().last().and_then(|free| free.trim().parse().ok()).expect("a number of bytes")
}

struct Site {
    source: Server,
    target: Server,
    daemon: Daemon,
    prometheus: Prometheus,
    /// Alerts that fired and resolved.
    seen: BTreeSet<String>,
    started: Instant,
}

impl Site {
    async fn start() -> Self {
        let (source, target) = Server::pair(&[], &[]);
        // A transaction after which every channel may begin: the three share a source, so each names the
        // source's transactions that the target holds.
        source.exec("FLUSH TABLES; SET sql_log_bin=0; GRANT SELECT ON *.* TO repl@'%'").await;
        let start = source.gtid_executed().await;
        define(&source).await;
        let free = free_disk();
        let daemon = Daemon::builder(&source, &target)
            .on_disk()
            .set("name", HELD)
            .set("applier.replicate_wild_do_table", vec![format!("{HELD}.%")])
            .set("applier.start_from", start.clone())
            .set("source.connect_retry_max", "1s")
            .set("target.connect_retry_max", "1s")
            // Each transaction keeps waiting for its own lock.
            .set("applier.commit", "one-to-one")
            .set("applier.transaction_retries", 1000)
            // The alert fires at 7/8 of the space free now, once a quarter of that is taken.
            .set("relay.min_free_disk", free / 12 * 7)
            .set("verify.every", "1s")
            .channel(FULL, &source, &target)
            .set("applier.replicate_wild_do_table", vec![format!("{FULL}.%")])
            .set("applier.start_from", start.clone())
            .set("source.connect_retry_max", "1s")
            .set("target.connect_retry_max", "1s")
            .set("relay.segment_size", "1MiB")
            .set("relay.space_limit", "8MiB")
            .set("throttle_by.query", HEALTH)
            .set("throttle_by.query_limit", 10)
            .channel(BROKEN, &source, &target)
            .set("standby", true)
            .set("applier.replicate_wild_do_table", vec![format!("{BROKEN}.%")])
            .set("applier.start_from", start.clone())
            .set("source.connect_retry_max", "1s")
            .set("target.connect_retry_max", "1s")
            .start();
        let address = daemon.url("").trim_start_matches("http://").to_owned();
        let prometheus =
            Prometheus::start(&address, &shortened(&read("config/prometheus/alerts.yml")));
        let site = Self {
            source,
            target,
            daemon,
            prometheus,
            seen: BTreeSet::new(),
            started: Instant::now(),
        };
        site.drained().await;
        let scraped = async || site.prometheus.query("csa_lag_seconds").len() == 3;
        eventually("every channel is scraped", DRAIN, scraped).await;
        site
    }

    async fn drained(&self) {
        for name in [HELD, FULL, BROKEN] {
            self.daemon.wait_channel_drained(name, &self.source, &self.target, DRAIN).await;
        }
    }

    /// Waits until all of these fire; `None` is the daemon as a whole.
    async fn fires(&self, what: &str, alerts: &[(&str, Option<&str>)]) {
        let wanted: BTreeSet<_> = alerts
            .iter()
            .map(|(name, channel)| (format!("Csa{name}"), channel.map(str::to_owned)))
            .collect();
        self.prometheus
            .wait(&format!("{what}: {wanted:?}"), |firing| firing.is_superset(&wanted))
            .await;
        println!("{:?} {what}: fires {alerts:?}", self.started.elapsed());
    }

    /// Waits until these, of all channels, have resolved.
    async fn resolve(&mut self, what: &str, alerts: &[&str]) {
        let names: Vec<String> = alerts.iter().map(|name| format!("Csa{name}")).collect();
        self.prometheus
            .wait(&format!("{what} is over, resolved {names:?}"), |firing| {
                firing.iter().all(|(name, _)| !names.contains(name))
            })
            .await;
        self.seen.extend(names);
        println!("{:?} {what}: resolved {alerts:?}", self.started.elapsed());
    }

    fn command(&self, channel: &str, arguments: &[&str]) {
        self.daemon.commanded(&[&["--channel", channel], arguments].concat());
    }

    fn view(&self, channel: &str) -> Value {
        let status = self.daemon.status();
        let channels = status["channels"].as_array().expect("channels");
        channels.iter().find(|view| view["channel_name"] == channel).expect("a channel").clone()
    }

    /// Returns a session on the target that holds rows 1 to 8 of the channel's table.
    async fn lock(&self, channel: &str) -> Conn {
        let mut holder = self.target.conn().await;
        holder.query_drop("BEGIN").await.expect("begins");
        let rows = format!("SELECT id FROM {channel}.t WHERE id <= 8 FOR UPDATE");
        holder.query_drop(rows).await.expect("locks");
        holder
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_alert_fires_and_resolves_on_a_live_daemon() {
    let mut site = Site::start().await;
    // Rates and restarts fall off while the next condition is caused.
    lock_inversions(&mut site).await;
    the_daemon_away(&mut site).await;
    everything_at_once(&mut site).await;
    site.resolve("lock inversions", &["LockInversionsHigh"]).await;
    rows_differ(&mut site).await;
    a_file_refused(&mut site).await;
    another_daemon(&mut site).await;
    the_target_unwell(&mut site).await;
    servers_away(&mut site).await;
    site.resolve("killed again and again", &["DaemonRestarting"]).await;
    site.resolve("rows locked", &["RetriesHigh"]).await;
    compare(&site.source, &site.target).await;
    let none = |firing: &BTreeSet<_>| firing.is_empty();
    site.prometheus.wait("nothing fires in the end", none).await;
    // Archives and copies that differ are those of tests/e2e/archive and tests/e2e/copy; promtool tests these rules.
    let elsewhere =
        ["CsaArchiveFailing", "CsaArchiveGap", "CsaCopyDiffers", "CsaSourceLinkUnstable"];
    let all: BTreeSet<String> =
        names_of_alerts().into_iter().filter(|name| !elsewhere.contains(&name.as_str())).collect();
    assert_eq!(site.seen, all, "alerts without a condition in this test, or without a rule");
}

/// The first transaction waits for a row, and needs gaps that later ones lock meanwhile.
async fn lock_inversions(site: &mut Site) {
    let (source, target) = (&site.source, &site.target);
    let tables = gap_tables();
    let mut holder = site.lock(HELD).await;
    let inserts: String =
        tables.iter().map(|table| format!("INSERT INTO {table} VALUES (3,15);")).collect();
    source.exec(&format!("BEGIN; UPDATE {HELD}.t SET v=1 WHERE id=1; {inserts} COMMIT")).await;
    let waits = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
    eventually("the first one waits", DRAIN, async || target.value::<u64>(waits).await > 0).await;
    for table in &tables {
        let put_back = format!("DELETE FROM {table} WHERE id=1; INSERT INTO {table} VALUES (4,10)");
        source.exec(&format!("BEGIN; {put_back}; COMMIT")).await;
    }
    let parked = "SELECT COUNT(DISTINCT OBJECT_NAME) FROM performance_schema.data_locks WHERE \
                  OBJECT_SCHEMA='held' AND INDEX_NAME='u' AND LOCK_MODE LIKE 'S%' AND \
                  LOCK_STATUS='GRANTED'";
    eventually("the later ones are applied", Duration::from_secs(8), async || {
        target.value::<u64>(parked).await == tables.len() as u64
    })
    .await;
    holder.query_drop("ROLLBACK").await.expect("releases");
    site.drained().await;
    site.fires("lock inversions", &[("LockInversionsHigh", Some(HELD))]).await;
}

/// Each channel has its own problem.
async fn everything_at_once(site: &mut Site) {
    let disk = site.daemon.state_dir().join("filler");
    let quarter = site.view(HELD)["relay"]["free_disk_bytes"].as_u64().expect("a number") / 4;
    let mut fill = Command::new("fallocate");
    let filled = fill.arg("-l").arg(quarter.to_string()).arg(&disk).status().expect("runs");
    assert!(filled.success(), "{fill:?}");
    let mut holder = site.lock(HELD).await;
    site.command(FULL, &["pause"]);
    site.target.exec(&format!("SET sql_log_bin=0; DELETE FROM {BROKEN}.t WHERE id=1")).await;
    let mut source = site.source.conn().await;
    let update = format!("UPDATE {BROKEN}.t SET v=1 WHERE id=1");
    source.query_drop(update).await.expect("updates");
    for number in 0..32 {
        let id = number % 8 + 1;
        let update = format!("UPDATE {HELD}.t SET v=v+1 WHERE id={id}");
        source.query_drop(update).await.expect("updates");
    }
    for _ in 0..60 {
        let fill = format!("INSERT INTO {FULL}.t (v,b) VALUES (1,REPEAT('x',262144))");
        source.query_drop(fill).await.expect("inserts");
    }
    site.fires(
        "a row gone, a channel paused and full, rows locked, a disk nearly full",
        &[
            ("ChannelFailed", Some(BROKEN)),
            ("ChannelStopped", Some(FULL)),
            ("RelayNearLimit", Some(FULL)),
            ("ReceptionWaiting", Some(FULL)),
            ("LagHigh", Some(HELD)),
            ("BacklogNotDraining", Some(HELD)),
            ("RetriesHigh", Some(HELD)),
            ("DiskLow", Some(HELD)),
        ],
    )
    .await;
    assert_eq!(site.view(FULL)["state"], "paused");
    let healthy: BTreeSet<_> = site.prometheus.firing();
    for absent in ["CsaDaemonDown", "CsaSourceUnreachable", "CsaTargetUnreachable"] {
        assert!(healthy.iter().all(|(name, _)| name != absent), "{healthy:?}");
    }

    holder.query_drop("ROLLBACK").await.expect("releases");
    site.command(FULL, &["resume"]);
    let row = format!("SET sql_log_bin=0; INSERT INTO {BROKEN}.t (id,v) VALUES (1,0)");
    site.target.exec(&row).await;
    site.command(BROKEN, &["restart"]);
    std::fs::remove_file(disk).expect("removable");
    site.drained().await;
    site.resolve(
        "all of it",
        &[
            "ChannelFailed",
            "ChannelStopped",
            "RelayNearLimit",
            "ReceptionWaiting",
            "LagHigh",
            "BacklogNotDraining",
            "DiskLow",
        ],
    )
    .await;
}

async fn servers_away(site: &mut Site) {
    site.source.kill9();
    // The comparisons of one channel wait meanwhile.
    let of_each = ["SourceUnreachable", "ReceptionDown", "ChannelNotRunning", "LagUnknown"];
    let all = |alert: &'static str| [HELD, FULL, BROKEN].map(|name| (alert, Some(name)));
    let mut alerts: Vec<_> = of_each.into_iter().flat_map(all).collect();
    alerts.push(("VerifyOverdue", Some(HELD)));
    site.fires("the source killed", &alerts).await;
    site.source.restart();
    site.resolve("the source killed", &[&of_each[..], &["VerifyOverdue"]].concat()).await;

    // The target refuses writes, then is down; a stop on request is another state.
    site.target.exec("SET GLOBAL super_read_only=ON").await;
    site.source.exec(&format!("UPDATE {HELD}.t SET v=v+1 WHERE id=9")).await;
    site.fires("the target read-only", &[("TargetUnreachable", Some(HELD))]).await;
    site.target.exec("SET GLOBAL read_only=OFF").await;
    site.resolve("the target read-only", &["TargetUnreachable"]).await;
    site.command(BROKEN, &["stop"]);
    site.target.kill9();
    site.fires(
        "the target killed and a channel stopped",
        &[
            ("TargetUnreachable", Some(HELD)),
            ("TargetUnreachable", Some(FULL)),
            ("ChannelStopped", Some(BROKEN)),
        ],
    )
    .await;
    site.target.restart();
    site.command(BROKEN, &["restart"]);
    site.resolve("the target killed", &["TargetUnreachable", "ChannelStopped"]).await;
    site.drained().await;
}

/// A file with an error is in the folder, and whoever has sent the signal gets no answer.
async fn a_file_refused(site: &mut Site) {
    let folder = site.daemon.config_path().with_file_name("conf.d");
    std::fs::create_dir_all(&folder).expect("creates");
    std::fs::write(folder.join("wrong.toml"), "wrong = 1\n").expect("writable");
    site.daemon.signal("HUP");
    site.fires("a file refused", &[("ConfigNotReloaded", None)]).await;
    std::fs::remove_dir_all(&folder).expect("removable");
    site.daemon.signal("HUP");
    site.resolve("a file refused", &["ConfigNotReloaded"]).await;
}

/// A row of the target is another one, and nothing changes it.
async fn rows_differ(site: &mut Site) {
    site.target.exec(&format!("SET sql_log_bin=0; UPDATE {HELD}.t SET v=77 WHERE id=9")).await;
    site.fires("a row that differs", &[("VerifyDiffers", Some(HELD))]).await;
    site.target.exec(&format!("SET sql_log_bin=0; UPDATE {HELD}.t SET v=0 WHERE id=9")).await;
    site.resolve("a row that differs", &["VerifyDiffers"]).await;
}

/// A daemon that Prometheus does not know holds a channel.
async fn another_daemon(site: &mut Site) {
    site.command(BROKEN, &["stop"]);
    let mut holder = site.target.conn().await;
    holder.query_drop(format!("DO GET_LOCK('csa:{BROKEN}', 10)")).await.expect("takes the lock");
    site.command(BROKEN, &["restart"]);
    site.fires("another daemon", &[("NoActiveDaemon", Some(BROKEN))]).await;
    holder.disconnect().await.expect("ends");
    site.resolve("another daemon", &["NoActiveDaemon"]).await;
    site.drained().await;
}

async fn the_target_unwell(site: &mut Site) {
    for (errors, alert) in [(70001, "Throttled"), (70002, "ThrottleUnanswered")] {
        site.target.exec(&format!("SET GLOBAL max_connect_errors={errors}")).await;
        site.fires("the target unwell", &[(alert, Some(FULL))]).await;
        site.target.exec("SET GLOBAL max_connect_errors=1000").await;
        site.resolve("the target unwell", &[alert]).await;
    }
}

async fn the_daemon_away(site: &mut Site) {
    // Without the token Prometheus gets no figures either.
    let secrets = tempfile::tempdir().expect("a temporary directory");
    let token = secrets.path().join("token");
    std::fs::write(&token, "a-token-of-some-length").expect("writable");
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("permitted");
    site.daemon.set("daemon.admin_token_file", token.display().to_string());
    site.daemon.write_config();
    site.daemon.commanded(&["reload"]);
    site.fires("a token it lacks", &[("DaemonDown", None)]).await;
    std::fs::copy(&token, site.prometheus.token_file()).expect("writable");
    site.resolve("a token it lacks", &["DaemonDown"]).await;
    site.daemon.unset("daemon.admin_token_file");
    site.daemon.write_config();
    site.daemon.commanded(&["reload", "--token-file", &token.display().to_string()]);

    site.daemon.kill9();
    site.fires("the daemon killed", &[("DaemonDown", None)]).await;
    let mut last = None;
    for round in 0..4 {
        if round > 0 {
            site.daemon.kill9();
        }
        site.daemon.start_again();
        eventually("the start is scraped", DRAIN, async || {
            // The metric is in whole seconds: two starts within one second count as one.
            let all = site.prometheus.query("process_start_time_seconds");
            let at = all.first().map(|sample| sample["value"][1].to_string());
            let is_new = at.is_some() && at != last;
            last = at.or(last.take());
            is_new
        })
        .await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    site.fires("killed again and again", &[("DaemonRestarting", None)]).await;

    // In a fleet whose engine does not answer.
    site.daemon.set("claims.engine", "etcd");
    site.daemon.set("claims.endpoints", vec!["http://127.0.0.1:1"]);
    site.daemon.kill9();
    site.daemon.start_again();
    let alerts = [("ClaimsSessionLost", None), ("NoActiveDaemon", Some(BROKEN))];
    site.fires("no engine of claims", &alerts).await;
    site.daemon.unset("claims.engine");
    site.daemon.unset("claims.endpoints");
    site.daemon.kill9();
    site.daemon.start_again();
    site.resolve("no engine of claims", &["ClaimsSessionLost", "NoActiveDaemon"]).await;
    eventually("the disk is measured again", DRAIN, async || {
        site.view(HELD)["relay"]["free_disk_bytes"].is_u64()
    })
    .await;
    site.resolve("the daemon killed", &["DaemonDown"]).await;
}
