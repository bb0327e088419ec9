//! Sessions that the target refuses while a channel runs: whatever the number of the error, the channel waits, blames
//! no transaction, and continues when the cause is gone.

use std::time::Duration;

use csa_provider::server::link::RULES;
use csa_tests::{At, Compare, Daemon, Gate, Server, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::DRAIN;
use crate::versions::Version;

/// A refusal is tried again every half minute, give or take a quarter, and a failed channel after a minute.
const RECOVERY: Duration = Duration::from_secs(150);
/// Those pauses are so many times shorter where one refusal follows another.
const HASTE: &str = "10";
const TABLES: usize = 8;

/// A running channel whose way to the target leads through a gate.
struct Site {
    version: Version,
    source: Server,
    target: Server,
    gate: Gate,
    daemon: Daemon,
    rows: u32,
}

impl Site {
    async fn start(version: Version, haste: &str, settings: &[(&str, toml::Value)]) -> Self {
        let shared = ["--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"];
        let source = || Server::start("source", &shared);
        let (source, target) = Server::both(source, || version.start("target", &[]));
        // Accounts with these are let in where others are not.
        let more = match version.is_mariadb() {
            true => "SUPER, CONNECTION ADMIN, READ_ONLY ADMIN",
            false => "SUPER, CONNECTION_ADMIN",
        };
        target.exec(&format!("SET sql_log_bin=0; REVOKE {more} ON *.* FROM csa@'%'")).await;
        source.exec("CREATE DATABASE d").await;
        for table in 0..TABLES {
            source.exec(&format!("CREATE TABLE d.t{table} (id INT PRIMARY KEY, v INT)")).await;
        }
        let gate = Gate::to(target.port);
        let mut builder = Daemon::builder(&source, &target)
            .env("CSA_TEST_HASTE", haste)
            .set("target.port", i64::from(gate.port));
        for (key, value) in settings {
            builder = builder.set(key, value.clone());
        }
        let daemon = builder.start();
        let mut site = Self { version, source, target, gate, daemon, rows: 0 };
        site.write(50).await;
        site.equal().await;
        site
    }

    /// Commits so many transactions.
    async fn write(&mut self, transactions: u32) {
        let mut conn = self.source.conn().await;
        for _ in 0..transactions {
            let (id, table) = (self.rows, self.rows as usize % TABLES);
            conn.query_drop(format!("INSERT INTO d.t{table} VALUES ({id}, 1)"))
                .await
                .expect("written");
            if id % 5 == 4 {
                let before = id - 4;
                let table = before as usize % TABLES;
                let update = format!("UPDATE d.t{table} SET v=v+1 WHERE id={before}");
                conn.query_drop(update).await.expect("written");
            }
            self.rows += 1;
        }
    }

    async fn equal(&self) {
        self.daemon.wait_drained(&self.source, &self.target, DRAIN).await;
        let compared = Compare::contents().run(&self.source, &self.target).await;
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }

    fn view(&self) -> Value {
        self.daemon.status()["channels"][0].clone()
    }

    fn metric(&self, name: &str) -> u64 {
        let line = format!("{name}{{channel=\"test\"}} ");
        let metrics = self.daemon.metrics();
        let value = metrics.lines().find_map(|one| one.strip_prefix(&line));
        value.unwrap_or_else(|| panic!("{line}\n{metrics}")).parse().expect("a number")
    }

    fn state(&self) -> (String, String) {
        let view = self.view();
        let text = |key: &str| view[key].as_str().unwrap_or_default().to_owned();
        (text("state"), text("state_detail"))
    }

    /// Ends the daemon's sessions there, as a server does that restarts.
    async fn end_sessions(&self) {
        let mut conn = self.target.conn().await;
        let all = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER='csa'";
        let ids: Vec<u64> = conn.query(all).await.expect("a list");
        for id in ids {
            // It may have ended on its own.
            let _ = conn.query_drop(format!("KILL {id}")).await;
        }
    }

    async fn waits(&self, what: &str, words: &[&str]) {
        // Sooner than the pause after a refusal ends: status says at once why.
        eventually(&format!("{what}: it waits"), Duration::from_secs(20), async || {
            let (state, detail) = self.state();
            assert_ne!(state, "failed", "{what}: {:#}", self.view());
            state == "waiting_for_target" && words.iter().all(|word| detail.contains(word))
        })
        .await;
        let view = self.view();
        assert!(view["last_error"].is_null(), "{what}: {view:#}");
    }

    async fn recovers(&mut self, what: &str) {
        eventually(&format!("{what}: it runs again"), RECOVERY, async || {
            self.state().0 == "running"
        })
        .await;
        self.write(20).await;
        self.equal().await;
        let view = self.view();
        assert!(view["last_error"].is_null(), "{what}: {view:#}");
        assert!(view["next_attempt_seconds"].is_null(), "{what}: {view:#}");
    }

    /// Provokes an error with statements on the target, sees the channel wait, and takes them back.
    async fn provoked(&mut self, what: &str, words: &[&str], provoke: &str, undo: &str) {
        eprintln!("{}: {what}", self.version);
        self.target.exec(&format!("SET sql_log_bin=0; {provoke}")).await;
        self.end_sessions().await;
        self.write(20).await;
        self.waits(what, words).await;
        self.target.exec(&format!("SET sql_log_bin=0; {undo}")).await;
        self.recovers(what).await;
    }

    async fn gated(&mut self, what: &str, at: At, code: u16, text: &str) {
        eprintln!("{}: {what}", self.version);
        self.gate.close(at, code, text);
        self.write(20).await;
        self.waits(what, &[&code.to_string(), text]).await;
        self.gate.open();
        self.recovers(what).await;
    }

    /// All but the session of the account that looks.
    async fn full(&mut self) {
        eprintln!("{}: max_connections", self.version);
        let before: u64 = self.target.value("SELECT @@GLOBAL.max_connections").await;
        let least = if self.version.is_mariadb() { 10 } else { 1 };
        // The statements of one session: the server lets in only one more than the limit, of those with the privilege.
        let mut last = self.target.conn().await;
        last.query_drop(format!("SET GLOBAL max_connections={least}")).await.expect("set");
        let mut all: Vec<Conn> = Vec::new();
        loop {
            let of_daemon = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER='csa'";
            let ids: Vec<u64> = last.query(of_daemon).await.expect("a list");
            if ids.is_empty() && !all.is_empty() {
                break;
            }
            for id in ids {
                let _ = last.query_drop(format!("KILL {id}")).await;
            }
            while let Ok(conn) = Conn::new(self.target.opts()).await {
                all.push(conn);
            }
        }
        self.write(20).await;
        self.waits("max_connections", &["1040"]).await;
        last.query_drop(format!("SET GLOBAL max_connections={before}")).await.expect("set");
        all.push(last);
        for conn in all {
            conn.disconnect().await.expect("ended");
        }
        self.recovers("max_connections").await;
    }

    /// A privilege that is revoked and granted again: nobody restarts the channel.
    async fn revoked(&mut self) {
        eprintln!("{}: REVOKE", self.version);
        let log = "SET sql_log_bin=0";
        self.target.exec(&format!("{log}; REVOKE UPDATE, INSERT ON *.* FROM csa@'%'")).await;
        // A session keeps the global privileges that it had.
        self.end_sessions().await;
        self.write(20).await;
        // At first it waits for the sessions that were ended.
        let mut view = Value::Null;
        eventually("it notices", Duration::from_secs(90), async || {
            view = self.view();
            view.to_string().contains("command denied to user 'csa'")
        })
        .await;
        let ways_on = view["last_error"]["ways_on"].to_string();
        // BINLOG says 1105 where it lacks a privilege, so there the transaction is named, and the privilege looked up.
        let is_named = view["last_error"]["number"] == 1105;
        assert!(is_named || !ways_on.contains("skip"), "{view:#}");
        let message = view["last_error"]["message"].to_string();
        assert!(!is_named || message.contains("command denied to user 'csa'"), "{view:#}");
        self.target
            .exec(&format!("{log}; GRANT UPDATE, INSERT ON *.* TO csa@'%' WITH GRANT OPTION"))
            .await;
        self.recovers("REVOKE").await;
        let tried = self.metric("csa_channel_attempts_after_failure_total");
        assert!(tried > 0 || view["last_error"].is_null(), "who restarted it?");
    }

    async fn walk(&mut self) {
        let is_mariadb = self.version.is_mariadb();
        let locked = if is_mariadb { "4151" } else { "3118" };
        let lock = |what: &str| format!("ALTER USER csa@'%' ACCOUNT {what}");
        self.provoked("locked", &[locked], &lock("LOCK"), &lock("UNLOCK")).await;
        let password = |text: &str| format!("ALTER USER csa@'%' IDENTIFIED BY '{text}'");
        self.provoked("password", &["1045"], &password("rotated"), &password("csa_pw")).await;
        let most = |number: u32| format!("ALTER USER csa@'%' WITH MAX_USER_CONNECTIONS {number}");
        self.provoked("max_user_connections", &["1226"], &most(1), &most(0)).await;
        self.full().await;
        if !is_mariadb {
            let offline = |value: &str| format!("SET GLOBAL offline_mode={value}");
            self.provoked("offline", &["3032"], &offline("ON"), &offline("OFF")).await;
        }
        let variable = if is_mariadb { "read_only" } else { "super_read_only" };
        let undo = format!("SET GLOBAL {variable}=OFF; SET GLOBAL read_only=OFF");
        self.provoked(variable, &["1290"], &format!("SET GLOBAL {variable}=ON"), &undo).await;
        self.gated("router", At::Greeting, 2003, "This router reaches no server").await;
        self.gated("proxy", At::Statement, 9001, "Max connect timeout reached").await;
        self.gated("blocked host", At::Greeting, 1129, "Host is blocked").await;
        self.gated("unknown", At::Greeting, 4999, "No client knows this one").await;
        self.revoked().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_outlives_every_refusal_of_mysql_9_7() {
    Site::start(Version::Newest, HASTE, &[]).await.walk().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_outlives_every_refusal_of_mysql_8_0() {
    let settings =
        [("applier.target_gtids", "source".into()), ("applier.commit", "one-to-one".into())];
    Site::start(Version::V8031, HASTE, &settings).await.walk().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_outlives_every_refusal_of_mariadb() {
    Site::start(Version::MariaDb, HASTE, &[]).await.walk().await;
}

/// With fewer sessions than workers, which are cut again and again: groups commit in order, so whoever has a session
/// may wait for a group that has none.
async fn makes_do(settings: &[(&str, toml::Value)]) {
    let mut site = Site::start(Version::Newest, "1", settings).await;
    site.daemon.commanded(&["pause"]);
    for most in [4, 3, 2] {
        let limit = format!("ALTER USER csa@'%' WITH MAX_USER_CONNECTIONS {most}");
        site.target.exec(&format!("SET sql_log_bin=0; {limit}")).await;
        site.end_sessions().await;
        // The first transaction waits for this one, so the others need more sessions than there are.
        let mut holder = site.target.conn().await;
        let (id, table) = (site.rows, site.rows as usize % TABLES);
        let hold = format!("SET sql_log_bin=0; BEGIN; INSERT INTO d.t{table} VALUES ({id}, 1)");
        holder.query_drop(hold).await.expect("held");
        site.write(600).await;
        site.daemon.commanded(&["resume"]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        holder.query_drop("ROLLBACK").await.expect("released");
        holder.disconnect().await.expect("ended");
        site.end_sessions().await;
        site.equal().await;
        site.write(300).await;
        site.equal().await;
        let view = site.view();
        assert_ne!(view["state"], "failed", "{view:#}");
        site.daemon.commanded(&["pause"]);
    }
    let said = site.daemon.log().matches("making do with these").count();
    assert!((1..=3).contains(&said), "said {said} times");
    assert!(site.metric("csa_applier_refused_sessions_total") > 0, "{}", site.daemon.metrics());
    site.daemon.commanded(&["resume"]);
    site.target.exec("SET sql_log_bin=0; ALTER USER csa@'%' WITH MAX_USER_CONNECTIONS 0").await;
    eventually("all sessions again", RECOVERY, async || {
        site.write(50).await;
        site.view()["applier"]["session_limit"].is_null() && site.state().0 == "running"
    })
    .await;
    site.equal().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_makes_do_with_fewer_sessions_than_workers() {
    makes_do(&[("applier.worker_count", 8.into())]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_channel_makes_do_with_fewer_sessions_one_to_one() {
    makes_do(&[
        ("applier.worker_count", 8.into()),
        ("applier.target_gtids", "source".into()),
        ("applier.commit", "one-to-one".into()),
        ("applier.executor", "row-image".into()),
    ])
    .await;
}

/// The table of server errors has the numbers and names of a server, as far as that knows them.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_errors_has_the_servers_names() {
    let (source, target) = Server::pair(&[], &[]);
    let mut conn = target.conn().await;
    let all = "SELECT ERROR_NUMBER, ERROR_NAME FROM \
        performance_schema.events_errors_summary_global_by_error WHERE ERROR_NUMBER IS NOT NULL";
    let known: Vec<(u16, String)> = conn.query(all).await.expect("a list");
    let mut compared = 0;
    for (code, name) in RULES.iter().flat_map(|rule| rule.errors) {
        // MariaDB's, for which MySQL has another meaning.
        let is_mariadbs = *code == 4151;
        if let Some((_, is)) =
            known.iter().find(|(known, _)| known == code).filter(|_| !is_mariadbs)
        {
            assert_eq!(is, name, "{code}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
    drop(source);
}
