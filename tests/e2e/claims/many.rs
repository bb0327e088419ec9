//! Many channels of simulated work over several daemons, with the product's keeper and a real etcd or API server. The
//! size is that of a quick test; `CSA_CLAIMS_CHANNELS=1000 CSA_CLAIMS_TTL=15 cargo test --workspace --test e2e -- --include-ignored
//! thousands --nocapture` prints the figures of docs/fleet.md.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_daemon::claims::claimed_channels::ClaimedChannels;
use csa_daemon::claims::keeper::{Handle, Keeper, Options};
use csa_tests::{Etcd, eventually};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::service::{Leases, Service};

const DAEMONS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);
/// Time in which a channel finishes its groups.
const END: Duration = Duration::from_millis(200);

fn setting(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// Stands for the targets: notes who works on which channel, and each moment with two of them.
#[derive(Debug, Default)]
struct Targets {
    workers: BTreeMap<String, Vec<usize>>,
    doubles: Vec<String>,
    starts: usize,
}

#[derive(Debug, Clone)]
struct Host {
    number: usize,
    channels: Arc<BTreeSet<String>>,
    targets: Arc<Mutex<Targets>>,
}

impl Host {
    fn drop_from(&self, channel: &str) {
        let mut targets = self.targets.lock();
        let workers = targets.workers.entry(channel.to_owned()).or_default();
        workers.retain(|worker| *worker != self.number);
    }
}

impl ClaimedChannels for Host {
    fn channels(&self) -> BTreeMap<String, u64> {
        self.channels.iter().map(|channel| (channel.clone(), 0)).collect()
    }

    async fn begin(&self, channel: &str, _: u64) {
        let mut targets = self.targets.lock();
        targets.starts += 1;
        let workers = targets.workers.entry(channel.to_owned()).or_default();
        workers.push(self.number);
        let workers = workers.clone();
        if workers.len() > 1 {
            targets.doubles.push(format!("{channel}: {workers:?}"));
        }
    }

    async fn end(&self, channel: &str) {
        tokio::time::sleep(END).await;
        self.drop_from(channel);
    }

    async fn move_away(&self, channel: &str) -> bool {
        self.end(channel).await;
        true
    }

    fn is_held(&self, _: &str) -> bool {
        false
    }

    fn stands_by(&self, _: &str, _: &str) {}

    fn awaits(&self, _: &str, _: &str) {}
}

struct Running {
    host: Host,
    handle: Handle,
    keeper: JoinHandle<()>,
}

impl Running {
    fn start<S: Service>(host: Host, service: &S, ttl: Duration) -> Self {
        let engine = service.engine(ttl);
        let name = format!("db{}", host.number);
        let options = Options {
            engine: S::NAME,
            id: name.clone(),
            name,
            weight: 100,
            ttl,
            rebalance_delay: Duration::from_secs(5),
        };
        let (keeper, handle) = Keeper::new(engine, host.clone(), options);
        let tokens = (CancellationToken::new(), CancellationToken::new());
        let keeper = tokio::spawn(keeper.run(tokens.0, tokens.1));
        Self { host, handle, keeper }
    }

    /// Like `kill -9`: its work ends with it, its claims do not.
    fn kill(self) {
        self.keeper.abort();
        for channel in self.host.channels.iter() {
            self.host.drop_from(channel);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn thousands_of_channels_are_claimed_again_after_two_of_five_daemons_die() {
    two_of_five_die(&Etcd::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_channels_in_leases_are_claimed_again_after_two_of_five_daemons_die() {
    let Some(leases) = Leases::start() else { return };
    two_of_five_die(&leases).await;
}

async fn two_of_five_die(service: &impl Service) {
    let count = setting("CSA_CLAIMS_CHANNELS", 200) as usize;
    let ttl = Duration::from_secs(setting("CSA_CLAIMS_TTL", 5));
    let channels: Arc<BTreeSet<String>> =
        Arc::new((0..count).map(|number| format!("shard-{number:05}")).collect());
    let targets = Arc::new(Mutex::new(Targets::default()));
    let host =
        |number| Host { number, channels: Arc::clone(&channels), targets: Arc::clone(&targets) };
    let all_run = || {
        let targets = targets.lock();
        targets.workers.values().filter(|workers| workers.len() == 1).count() == count
    };
    let started = Instant::now();
    let mut daemons: Vec<Running> =
        (0..DAEMONS).map(|number| Running::start(host(number), service, ttl)).collect();
    eventually("all channels are claimed", PATIENCE, async || all_run()).await;
    println!(
        "{count} channels, {DAEMONS} daemons, ttl {ttl:?}: all claimed after {:?}",
        started.elapsed()
    );
    let requests = service.requests();
    println!("requests until then: {requests}");
    let shares = |daemons: &[Running]| -> Vec<u64> {
        let views = daemons.iter().map(|daemon| daemon.handle.view());
        views
            .map(|view| view.claims.values().filter(|name| **name == view.name).count() as u64)
            .collect()
    };
    tokio::time::sleep(ttl).await;
    println!("claimed by each: {:?}", shares(&daemons));
    assert_eq!(targets.lock().starts, count, "nothing moved");

    let (idle, since) = (service.requests(), Instant::now());
    tokio::time::sleep(ttl * 2).await;
    let rate = (service.requests() - idle) as f64 / since.elapsed().as_secs_f64();
    println!("idle: {rate:.1} requests a second");

    let lost: u64 = shares(&daemons)[3..].iter().sum();
    let (before, killed) = (service.requests(), Instant::now());
    daemons.drain(3..).for_each(Running::kill);
    eventually("all are claimed again", PATIENCE, async || all_run()).await;
    let took = killed.elapsed();
    println!("two killed with {lost} channels: all claimed again after {took:?}");
    println!("requests in that time: {}", service.requests() - before);
    assert!(took < ttl + ttl / 10 + Duration::from_secs(10), "{took:?}");
    assert_eq!(targets.lock().starts as u64, count as u64 + lost, "only those of the dead moved");

    // A host comes back, and gets its share a few at a time.
    let joined = Instant::now();
    daemons.push(Running::start(host(3), service, ttl));
    eventually("the share of the one that joined", PATIENCE, async || {
        let view = daemons[3].handle.view();
        let own = view.members.iter().find(|member| member.name == view.name);
        all_run() && own.is_some_and(|own| own.claims > 0 && own.claims == own.share)
    })
    .await;
    println!("one joined: it had its share of {:?} after {:?}", shares(&daemons), joined.elapsed());
    assert_eq!(targets.lock().doubles, Vec::<String>::new(), "two daemons worked on one channel");
}
