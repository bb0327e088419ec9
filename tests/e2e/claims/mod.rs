//! Daemons that share channels through a real etcd, or through Leases of a real API server.

mod engine;
mod many;
mod service;
mod settings;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use csa_tests::{Clock, Daemon, Etcd, Load, LoadOptions, compare, eventually};
use serde_json::Value;

use crate::DRAIN;
use crate::fleet::{Site, options};
use service::{Leases, Service};

const TTL: Duration = Duration::from_secs(6);
/// The time for the idle limit of a hanging daemon's session on the target, a start, and a busy
/// machine.
const MORE: Duration = Duration::from_secs(25);
const PATIENCE: Duration = Duration::from_secs(90);
/// With `test`, each of three daemons of the names below has some of them. Not all are names that Kubernetes permits.
const OTHERS: [&str; 5] = ["_crm", "pay_", "web", "log", "geo"];
const HOSTS: [&str; 3] = ["db1", "db2", "db3"];

struct Fleet<S> {
    site: Site,
    service: S,
    /// The clock of the first daemon.
    clock: Clock,
    daemons: Vec<Daemon>,
}

/// The daemons that run each channel, by their places in the fleet.
type Placement = BTreeMap<String, Vec<usize>>;

impl<S: Service> Fleet<S> {
    async fn start(service: S) -> Self {
        let mut channels = vec!["test"];
        channels.extend(OTHERS);
        let site = Site::new(&channels).await;
        let mut fleet = Self { site, service, clock: Clock::start(), daemons: Vec::new() };
        for name in HOSTS {
            fleet.join(name);
        }
        fleet
    }

    fn join(&mut self, name: &str) {
        let mut text = String::new();
        for channel in OTHERS {
            text.push_str(&self.site.channel(channel, ""));
        }
        let daemon = self
            .site
            .builder()
            .append(&text)
            .set("claims.name", name)
            .set("claims.ttl", format!("{}s", TTL.as_secs()))
            .set("claims.rebalance_delay", "4s");
        let daemon = self.service.configure(daemon);
        let is_first = self.daemons.is_empty();
        let daemon = if is_first { self.clock.given_to(daemon) } else { daemon };
        self.daemons.push(daemon.start());
    }

    /// As these daemons say: one that hangs would not answer.
    fn placement(&self, hosts: &[usize]) -> Placement {
        let mut placement = Placement::new();
        for host in hosts {
            for view in views(&self.daemons[*host]) {
                let name = view["channel_name"].as_str().unwrap_or_default().to_owned();
                let running = placement.entry(name).or_default();
                if view["state"] == "running" {
                    running.push(*host);
                }
            }
        }
        placement
    }

    /// Waits until each channel runs on one of `hosts`, and each of these has some.
    async fn spread(&self, what: &str, hosts: &[usize]) -> Placement {
        let is_spread = |placement: &Placement| {
            let one = |running: &Vec<usize>| running.len() == 1;
            placement.len() == OTHERS.len() + 1
                && placement.values().all(one)
                && hosts.iter().all(|host| placement.values().any(|running| running[0] == *host))
        };
        eventually(what, PATIENCE, async || is_spread(&self.placement(hosts))).await;
        self.placement(hosts)
    }

    /// The channels of a host run on the others, after this time.
    async fn taken_over(&self, what: &str, lost: usize, before: &Placement) -> Duration {
        let started = Instant::now();
        let others: Vec<usize> = (0..HOSTS.len()).filter(|host| *host != lost).collect();
        let now = self.spread(what, &others).await;
        for (channel, running) in before {
            assert!(running[0] == lost || now[channel] == *running, "{channel} moved for nothing");
        }
        started.elapsed()
    }

    fn applied(&self) -> BTreeMap<String, u64> {
        let mut applied = BTreeMap::new();
        for view in self.daemons.iter().flat_map(views) {
            let name = view["channel_name"].as_str().unwrap_or_default().to_owned();
            let count = view["applied_transactions_total"].as_u64().unwrap_or_default();
            *applied.entry(name).or_default() += count;
        }
        applied
    }
}

fn views(daemon: &Daemon) -> Vec<Value> {
    let status = daemon.try_status().unwrap_or_default();
    status["channels"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn channels_follow_the_daemons_of_a_fleet() {
    follow(Etcd::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_follow_the_daemons_of_a_fleet_in_kubernetes() {
    let Some(leases) = Leases::start() else { return };
    follow(leases).await;
}

async fn follow<S: Service>(service: S) {
    let fleet = Fleet::start(service).await;
    let mut placement = fleet.spread("all channels run", &[0, 1, 2]).await;
    println!("shared as {placement:?}");
    let mut channels = vec!["test"];
    channels.extend(OTHERS);
    // They run for more than a minute, and need no more.
    let load = |name: &&str| {
        Load::start(&fleet.site.source, &LoadOptions { rate: Some(6.0), ..options(name) })
    };
    let loads: Vec<Load> = channels.iter().map(load).collect();

    // A clock that jumps, by more than any claim lasts. The certificate of the servers is valid from an hour before it
    // was made.
    for seconds in [7200, -3000, 0] {
        fleet.clock.step(seconds);
        tokio::time::sleep(TTL / 2).await;
        assert!(fleet.daemons[0].metrics().contains("\ncsa_claims_session_lost 0\n"));
    }
    assert_eq!(fleet.spread("a clock that jumps", &[0, 1, 2]).await, placement);

    // A restart moves nothing.
    fleet.daemons[1].terminate();
    fleet.daemons[1].start_again();
    assert_eq!(fleet.spread("after a restart", &[0, 1, 2]).await, placement);

    // One dies, and comes back: its share follows once the fleet is quiet.
    fleet.daemons[0].kill9();
    let took = fleet.taken_over("the channels of one that died", 0, &placement).await;
    println!("kill -9: its channels run elsewhere after {took:?} (ttl {TTL:?})");
    assert!(took < TTL + MORE, "{took:?}");
    fleet.daemons[0].start_again();
    assert_eq!(fleet.spread("its share is back", &[0, 1, 2]).await, placement);

    // One hangs: the target ends its lock, and when it wakes up it has nothing.
    fleet.daemons[2].signal("STOP");
    let took = fleet.taken_over("the channels of one that hangs", 2, &placement).await;
    println!("SIGSTOP: its channels run elsewhere after {took:?}");
    assert!(took < TTL + MORE, "{took:?}");
    fleet.daemons[2].signal("CONT");
    assert_eq!(fleet.spread("its share is back", &[0, 1, 2]).await, placement);

    // Without the engine replication continues, for longer than any claim lasts.
    fleet.service.kill9();
    tokio::time::sleep(TTL * 2).await;
    let metrics = fleet.daemons[1].metrics();
    assert!(metrics.contains("\ncsa_claims_session_lost 1\n"), "{metrics}");
    let said = fleet.daemons[1].command(&["fleet"]);
    said.refused(1, &[&format!("{} does not answer", S::NAME)]);
    let before = fleet.applied();
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (channel, count) in fleet.applied() {
        assert!(count > before[&channel], "{channel} stands still without {}", S::NAME);
    }
    assert_eq!(fleet.placement(&[0, 1, 2]), placement);
    fleet.service.start_again();
    eventually("all have a session again", PATIENCE, async || {
        let lost = |daemon: &Daemon| daemon.metrics().contains("\ncsa_claims_session_lost 1\n");
        !fleet.daemons.iter().any(lost)
    })
    .await;
    assert_eq!(fleet.spread("the engine is back", &[0, 1, 2]).await, placement);

    // Maintenance. A pause ends with the move, and is not there when the channel comes back.
    let paused = placement.iter().find(|(_, running)| running[0] == 1).expect("it has some").0;
    fleet.daemons[1].commanded(&["--channel", paused, "pause"]);
    let started = Instant::now();
    assert_eq!(fleet.daemons[1].commanded(&["drain"]), "drained: this daemon has no channel\n");
    println!("drained after {:?}", started.elapsed());
    fleet.taken_over("the channels of one that drains", 1, &placement).await;
    let shown = fleet.daemons[0].commanded(&["fleet"]);
    assert!(shown.contains("db2         100     0      0        draining\n"), "{shown}");
    let standby = views(&fleet.daemons[1]);
    assert_eq!(standby.len(), 6, "{standby:#?}");
    for view in &standby {
        assert_eq!(view["state"], "standby", "{view:#}");
        let detail = view["state_detail"].as_str().unwrap_or_default();
        assert!(detail.starts_with("daemon db") && detail.ends_with("has claimed the channel"));
    }
    let never = ["wait", "00000000-0000-0000-0000-000000000001:1"];
    for command in [&["restart"][..], &["set", "throttle", "7"], &never] {
        let said = fleet.daemons[1].command(&[&["--channel", "test"][..], command].concat());
        said.refused(1, &["has claimed the channel", "csa-daemon fleet"]);
    }
    // A command for all is one for those that this daemon has: here none.
    for command in [&["pause", "--all"][..], &["set", "throttle", "7", "--all"]] {
        let said = fleet.daemons[1].commanded(command);
        assert!(said.ends_with("6 channels: 0 done, 0 failed, 6 elsewhere\n"), "{said}");
    }
    for command in ["pause", "resume"] {
        let said = fleet.daemons[0].commanded(&[command, "--all"]);
        assert!(said.contains("elsewhere: daemon db3 has it"), "{said}");
        assert!(!said.contains(": 0 done") && said.contains(" 0 failed, "), "{said}");
    }
    let said = fleet.daemons[1].commanded(&["drain", "--undo"]);
    assert!(said.contains("claims.rebalance_delay"), "{said}");
    placement = fleet.spread("its share is back", &[0, 1, 2]).await;
    // Much later: its row would be written after the answer.
    let told = "SELECT COUNT(*) FROM csa.audit WHERE action = 'set'";
    assert_eq!(fleet.site.target.value::<u64>(told).await, 0, "nothing was set");

    for load in loads {
        let report = load.stop().await;
        assert!(report.committed > 100, "{report:?}");
    }
    for channel in channels {
        let daemon = &fleet.daemons[placement[channel][0]];
        let Site { source, target, .. } = &fleet.site;
        daemon.wait_channel_drained(channel, source, target, DRAIN).await;
    }
    compare(&fleet.site.source, &fleet.site.target).await;
}
