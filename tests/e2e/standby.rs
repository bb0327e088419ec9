//! Two daemons with the same channel, each on its own host as far as they know: one runs it, the other
//! stands by.

use std::fmt;
use std::time::{Duration, Instant};

use csa_tests::{
    Daemon, DaemonBuilder, FaultyProxy, Load, LoadOptions, Server, compare, eventually, prepare,
};

use crate::{DRAIN, wait_state};

const PATIENCE: Duration = Duration::from_secs(60);
/// Beyond the idle limit of 6 s and a look each second: a start, on a machine that is busy.
const TAKEOVER: Duration = Duration::from_secs(25);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// `kill -9`.
    Dies,
    /// SIGSTOP, and SIGCONT once the other has taken over.
    Hangs,
    /// Its links to the target swallow everything, in both directions.
    CutOff,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Two daemons, each with its own way to the target.
struct Hosts {
    source: Server,
    target: Server,
    hosts: [(Daemon, FaultyProxy); 2],
}

impl Hosts {
    async fn start(options: &LoadOptions, set: impl Fn(DaemonBuilder) -> DaemonBuilder) -> Self {
        let (source, target) = Server::pair(&[], &[]);
        prepare(&source, options).await;
        let mut hosts = Vec::new();
        for _ in 0..2 {
            let proxy = FaultyProxy::start(&target).await;
            let builder = Daemon::builder(&source, &target)
                .set("standby", true)
                .set("target.port", i64::from(proxy.port))
                .set("target.connect_retry", "100ms")
                .set("target.connect_retry_max", "1s")
                .set("target.connect_timeout", "2s")
                .set("target.net_timeout", "2s");
            let daemon = set(builder).start();
            let state = if hosts.is_empty() { "running" } else { "standby" };
            wait_state(&daemon, 0, state).await;
            hosts.push((daemon, proxy));
        }
        let hosts = hosts.try_into().expect("two hosts");
        Self { source, target, hosts }
    }

    fn daemon(&self, host: usize) -> &Daemon {
        &self.hosts[host].0
    }

    /// Makes the one that runs fail, waits for the other, and brings the first back.
    async fn fail(&self, active: usize, fault: Fault) -> Duration {
        let (daemon, proxy) = &self.hosts[active];
        let other = self.daemon(1 - active);
        let before = applied(other);
        let started = Instant::now();
        match fault {
            Fault::Dies => daemon.kill9(),
            Fault::Hangs => daemon.signal("STOP"),
            Fault::CutOff => proxy.black_hole(),
        }
        eventually(&format!("{fault}: the other applies"), PATIENCE, async || {
            state(other) == "running" && applied(other) > before
        })
        .await;
        let took = started.elapsed();
        match fault {
            Fault::Dies => daemon.start_again(),
            Fault::Hangs => daemon.signal("CONT"),
            Fault::CutOff => proxy.heal(),
        }
        // It must not fail, nor take the channel back.
        wait_state(daemon, 0, "standby").await;
        assert_eq!(state(other), "running");
        let left = view(daemon);
        assert!(
            left["lag_seconds"].is_null() && left["backlog_transactions"].is_null(),
            "{left:#}"
        );
        took
    }

    /// Each kind of fault so many times under load, with a definition that changes at each.
    async fn faults(&self, options: &LoadOptions, rounds: usize) {
        let load = Load::start(&self.source, options);
        self.source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
        let mut active = 0;
        for round in 0..rounds {
            for fault in [Fault::Dies, Fault::Hangs, Fault::CutOff] {
                let column = format!("c{round}{}", fault.to_string().to_lowercase());
                self.source.exec(&format!("ALTER TABLE d.t ADD COLUMN {column} INT")).await;
                let took = self.fail(active, fault).await;
                println!("round {round}: {fault}: taken over after {took:?}");
                assert!(took < TAKEOVER, "{fault}: {took:?}");
                active = 1 - active;
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
        }
        assert!(load.stop().await.committed > 500);
        let daemon = self.daemon(active);
        daemon.wait_drained(&self.source, &self.target, DRAIN).await;
        compare(&self.source, &self.target).await;
    }
}

fn view(daemon: &Daemon) -> serde_json::Value {
    daemon.try_status().unwrap_or_default()["channels"][0].clone()
}

fn state(daemon: &Daemon) -> String {
    view(daemon)["state"].as_str().unwrap_or_default().to_owned()
}

fn applied(daemon: &Daemon) -> u64 {
    view(daemon)["applied_transactions_total"].as_u64().unwrap_or_default()
}

fn load() -> LoadOptions {
    LoadOptions { rate: Some(150.0), clients: 4, rows: 300, ..LoadOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_standby_takes_over_from_one_that_dies_hangs_or_is_cut_off() {
    let options = load();
    let hosts = Hosts::start(&options, |builder| builder).await;
    hosts.faults(&options, 3).await;
}

/// The one that comes back must not name transactions as executed that the other has not applied.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn takeovers_keep_the_gtids_of_the_source() {
    let options = load();
    for (gtids, commit) in [("mirror", "grouped"), ("source", "one-to-one")] {
        let set = |builder: DaemonBuilder| {
            builder.set("applier.target_gtids", gtids).set("applier.commit", commit)
        };
        let hosts = Hosts::start(&options, set).await;
        hosts.faults(&options, 1).await;
        let wanted = hosts.source.gtid_executed().await;
        eventually("the target has the source's GTIDs", PATIENCE, async || {
            hosts.target.gtid_executed().await == wanted
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_standby_is_healthy_and_costs_little() {
    let options = load();
    let hosts = Hosts::start(&options, |builder| builder).await;
    let Hosts { source, target, .. } = &hosts;
    let (active, standby) = (hosts.daemon(0), hosts.daemon(1));
    active.wait_drained(source, target, DRAIN).await;

    // Everything that asks after its health knows the state.
    assert_eq!(standby.get("/readyz").map(|answer| answer.0), Some(200));
    assert_eq!(standby.command(&["status"]).code, Some(0));
    let metrics = standby.metrics();
    assert!(
        metrics.contains("csa_channel_state{channel=\"test\",state=\"standby\"} 1\n"),
        "{metrics}"
    );
    assert!(!metrics.contains("csa_lag_seconds{"), "the lag is the other's to know: {metrics}");
    let holder: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
    let detail = view(standby)["state_detail"].to_string();
    assert!(detail.contains(&format!("connection {holder} there from ")), "{detail}");
    // An end by hand would be passed by the other.
    let until = format!(
        "{}-9999",
        source.gtid_executed().await.split('-').take(5).collect::<Vec<_>>().join("-")
    );
    let said = active.command(&["until", "--after-gtids", &until]);
    said.refused(1, &["the daemon that stands by would not know it", "applier.until"]);
    standby.command(&["pause"]).refused(1, &["channel test is standby"]);

    // On the target one session and a query a second, on the source nothing.
    let sessions = "SELECT COUNT(*) FROM performance_schema.processlist WHERE USER='csa'";
    let dumps =
        "SELECT COUNT(*) FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'";
    let questions = "SELECT CAST(VARIABLE_VALUE AS UNSIGNED) FROM performance_schema.global_status \
         WHERE VARIABLE_NAME='Queries'";
    let per_second = async || {
        let (before, started) = (target.value::<u64>(questions).await, Instant::now());
        tokio::time::sleep(Duration::from_secs(10)).await;
        (target.value::<u64>(questions).await - before) as f64 / started.elapsed().as_secs_f64()
    };
    let (both, with) = (target.value::<u64>(sessions).await, per_second().await);
    assert_eq!(source.value::<u64>(dumps).await, 1);
    let memory = |daemon: &Daemon| {
        let status = format!("/proc/{}/status", daemon.pid().expect("a process"));
        let status = std::fs::read_to_string(status).expect("readable");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
        line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).expect("kB") / 1024
    };
    let memory = (memory(standby), memory(active));
    standby.terminate();
    // Later, because the server takes a moment to end a session.
    let without = per_second().await;
    let one = target.value::<u64>(sessions).await;
    println!(
        "a standby: {} session, {:.1} queries a second, {} MiB (the active one {} MiB)",
        both - one,
        with - without,
        memory.0,
        memory.1
    );
    assert_eq!(both - one, 1);
    assert!(with - without < 3.0, "{with} {without}");
    standby.start_again();
    wait_state(standby, 0, "standby").await;

    // Handed over on request, without a pause worth mentioning.
    active.commanded(&["pause"]);
    let started = Instant::now();
    active.commanded(&["stop", "--receiving"]);
    wait_state(standby, 0, "running").await;
    println!("handed over by a stop after {:?}", started.elapsed());
    assert!(started.elapsed() < TAKEOVER);
    assert_eq!(state(active), "stopped");
    active.commanded(&["restart"]);
    wait_state(active, 0, "standby").await;
    // Otherwise it would apply nothing after its next takeover.
    eventually("its pause has ended", PATIENCE, async || {
        view(active)["settings"]["paused"] == false
    })
    .await;
    Load::run(source, &options, Duration::from_secs(1)).await;
    standby.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
}

/// Without its checkpoint the channel would begin as if for the first time.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_does_not_begin_where_the_checkpoint_is_gone() {
    let options = load();
    let hosts = Hosts::start(&options, |builder| builder).await;
    let Hosts { source, target, .. } = &hosts;
    hosts.daemon(0).wait_drained(source, target, DRAIN).await;
    target
        .exec("CREATE TABLE csa.kept AS SELECT * FROM csa.checkpoint; DELETE FROM csa.checkpoint")
        .await;
    Load::run(source, &options, Duration::from_secs(1)).await;
    for daemon in [hosts.daemon(0), hosts.daemon(1)] {
        wait_state(daemon, 0, "failed").await;
        let detail = view(daemon)["state_detail"].to_string();
        assert!(detail.contains("csa.checkpoint"), "{detail}");
    }
    target.exec("INSERT INTO csa.checkpoint SELECT * FROM csa.kept; DROP TABLE csa.kept").await;
    hosts.daemon(1).commanded(&["restart"]);
    wait_state(hosts.daemon(1), 0, "running").await;
    hosts.daemon(0).commanded(&["restart"]);
    wait_state(hosts.daemon(0), 0, "standby").await;
    hosts.daemon(1).wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
}
