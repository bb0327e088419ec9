//! Fleets in virtual time: keepers over an engine in memory, and over Leases of an API server in this process, with
//! channels that only write down who runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::claimed_channels::ClaimedChannels;
use super::desired::Shares;
use super::engine::{Engine, EngineError, Member};
use super::keeper::{Handle, Keeper, Options};
use super::kubernetes::Kubernetes;
use super::kubernetes::fake::ApiServer;
use super::memory::{MemoryCluster, MemoryEngine};

const TTL: Duration = Duration::from_secs(15);
const DELAY: Duration = Duration::from_secs(60);
/// The time for the end of a channel that finishes its groups.
const END: Duration = Duration::from_millis(300);

/// A service that keeps the claims of a fleet.
trait Service {
    type Link: Engine;
    /// The longest from the last renewal of a daemon that dies until its channels run elsewhere.
    const DETECTION: Duration;

    fn new() -> Self;
    /// Returns an engine, and the switch that cuts its link.
    fn link(&self) -> (Self::Link, Arc<AtomicBool>);
    fn end_session(&self, member: &str);
    fn holder(&self, channel: &str) -> Option<String>;
}

macro_rules! service {
    ($service:ty, $link:ty, $detection:expr) => {
        impl Service for $service {
            type Link = $link;
            const DETECTION: Duration = $detection;

            fn new() -> Self {
                Self::new(TTL)
            }

            fn link(&self) -> (Self::Link, Arc<AtomicBool>) {
                self.link()
            }

            fn end_session(&self, member: &str) {
                self.end_session(member);
            }

            fn holder(&self, channel: &str) -> Option<String> {
                self.holder(channel)
            }
        }
    };
}

service!(MemoryCluster, MemoryEngine, Duration::from_secs(TTL.as_secs() + 1));
// A tenth more is for clocks that differ.
service!(ApiServer, Kubernetes, Duration::from_secs(TTL.as_secs() * 11 / 10 + 2));

/// The daemons that run each channel, and how often one began.
#[derive(Debug, Default)]
struct Ledger {
    running: BTreeMap<String, BTreeSet<String>>,
    begun: usize,
    /// Channels that two ran at once.
    overlaps: Vec<String>,
    /// The most channels that none ran, of those that some daemon had begun.
    idle: usize,
    /// Channels that an operator has paused or stopped.
    held: BTreeSet<String>,
    /// Channels that an operator stops between the plan of a move and the move.
    held_first: BTreeSet<String>,
}

#[derive(Debug)]
struct Simulated {
    name: String,
    channels: Mutex<BTreeSet<String>>,
    /// How often a channel was removed and added again.
    replaced: Mutex<BTreeMap<String, u64>>,
    ledger: Arc<Mutex<Ledger>>,
    details: Mutex<BTreeMap<String, String>>,
}

impl ClaimedChannels for Arc<Simulated> {
    fn channels(&self) -> BTreeMap<String, u64> {
        let names = self.channels.lock().clone();
        names.into_iter().map(|name| (name.clone(), self.instance(&name))).collect()
    }

    async fn begin(&self, channel: &str, instance: u64) {
        if self.instance(channel) != instance {
            return;
        }
        let mut ledger = self.ledger.lock();
        ledger.begun += 1;
        let running = ledger.running.entry(channel.to_owned()).or_default();
        running.insert(self.name.clone());
        if running.len() > 1 {
            let overlap = format!("{channel}: {running:?}");
            ledger.overlaps.push(overlap);
        }
        self.details.lock().remove(channel);
    }

    async fn end(&self, channel: &str) {
        sleep(END).await;
        let mut ledger = self.ledger.lock();
        let removed = ledger.running.get_mut(channel).is_some_and(|who| who.remove(&self.name));
        assert!(removed, "{channel} does not run on {}", self.name);
        let idle = ledger.running.values().filter(|who| who.is_empty()).count();
        ledger.idle = ledger.idle.max(idle);
    }

    async fn move_away(&self, channel: &str) -> bool {
        let is_held = {
            let mut ledger = self.ledger.lock();
            let is_held = ledger.held_first.contains(channel);
            ledger.held.extend(is_held.then(|| channel.to_owned()));
            is_held
        };
        if !is_held {
            self.end(channel).await;
        }
        !is_held
    }

    fn is_held(&self, channel: &str) -> bool {
        self.ledger.lock().held.contains(channel)
    }

    fn stands_by(&self, channel: &str, detail: &str) {
        self.details.lock().insert(channel.to_owned(), detail.to_owned());
    }

    fn awaits(&self, channel: &str, detail: &str) {
        self.details.lock().insert(channel.to_owned(), format!("awaited: {detail}"));
    }
}

struct Host {
    work: Arc<Simulated>,
    handle: Handle,
    is_cut: Arc<AtomicBool>,
    stop: CancellationToken,
    ended: CancellationToken,
    task: JoinHandle<()>,
}

struct Site<S> {
    service: S,
    ledger: Arc<Mutex<Ledger>>,
    channels: BTreeSet<String>,
    hosts: BTreeMap<String, Host>,
}

impl<S: Service> Site<S> {
    /// Without any daemon.
    fn empty(channels: usize) -> Self {
        let channels = (0..channels).map(|number| format!("shard-{number}")).collect();
        Self { service: S::new(), ledger: Arc::default(), channels, hosts: BTreeMap::new() }
    }

    /// Returns the daemons `a`, `b`, …, which have shared the channels among them.
    async fn new(daemons: usize, channels: usize) -> Self {
        let mut site = Self::empty(channels);
        for name in NAMES.iter().take(daemons) {
            site.start(name);
        }
        sleep(Duration::from_secs(5)).await;
        site.check_shares();
        site
    }

    fn start(&mut self, name: &str) {
        let work = Arc::new(Simulated {
            name: name.to_owned(),
            channels: Mutex::new(self.channels.clone()),
            replaced: Mutex::default(),
            ledger: Arc::clone(&self.ledger),
            details: Mutex::default(),
        });
        let (engine, is_cut) = self.service.link();
        let options = Options {
            engine: "memory",
            name: name.to_owned(),
            id: format!("id of {name}"),
            weight: 100,
            ttl: TTL,
            rebalance_delay: DELAY,
        };
        let (keeper, handle) = Keeper::new(engine, Arc::clone(&work), options);
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn(keeper.run(stop.clone(), ended.clone()));
        let host = Host { work, handle, is_cut, stop, ended, task };
        self.hosts.insert(name.to_owned(), host);
    }

    /// Ends the process, politely or not: either way nothing of it runs any more.
    async fn end(&mut self, name: &str, politely: bool) {
        let host = self.hosts.remove(name).expect("a host");
        host.stop.cancel();
        for running in self.ledger.lock().running.values_mut() {
            running.remove(name);
        }
        if politely {
            host.ended.cancel();
            host.task.await.expect("ended");
        } else {
            host.task.abort();
        }
    }

    fn of(&self, name: &str) -> BTreeSet<String> {
        let ledger = self.ledger.lock();
        let own = ledger.running.iter().filter(|(_, running)| running.contains(name));
        own.map(|(channel, _)| channel.clone()).collect()
    }

    fn is_all_running(&self) -> bool {
        let ledger = self.ledger.lock();
        let running = |channel| ledger.running.get(channel).is_some_and(|who| who.len() == 1);
        self.channels.iter().all(running)
    }

    /// Every channel runs where it belongs, and nowhere else.
    fn check_shares(&self) {
        let member = |(name, host): (&String, &Host)| Member {
            name: name.clone(),
            weight: 100,
            draining: host.handle.view().draining,
            channels: host.work.channels.lock().clone(),
            ..Member::default()
        };
        let members: Vec<Member> = self.hosts.iter().map(member).collect();
        let shares = Shares::of(&members);
        let ledger = self.ledger.lock();
        for channel in &self.channels {
            let running = ledger.running.get(channel).cloned().unwrap_or_default();
            let owner = shares.owner(channel).map(str::to_owned);
            assert_eq!(running, owner.into_iter().collect(), "{channel}");
        }
    }

    fn check_no_overlap(&self) {
        assert_eq!(self.ledger.lock().overlaps, Vec::<String>::new());
    }

    fn begun(&self) -> usize {
        self.ledger.lock().begun
    }

    async fn until_all_run(&self, limit: Duration) -> Duration {
        self.until("all run", limit, |site| site.is_all_running()).await
    }

    async fn until(&self, what: &str, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Duration {
        let started = Instant::now();
        while !is_so(self) {
            assert!(started.elapsed() < limit, "{what}: not after {limit:?}");
            sleep(Duration::from_millis(20)).await;
        }
        started.elapsed()
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

async fn a_host_that_dies_loses_its_channels_to_the_others_and_no_more_move<S: Service>() {
    let mut site = Site::<S>::new(5, 200).await;
    assert_eq!(site.begun(), 200, "each daemon took its share and nothing else");
    let lost = site.of("b").len() + site.of("d").len();
    site.end("b", false).await;
    site.end("d", false).await;
    let took = site.until_all_run(S::DETECTION).await;
    assert!(took > TTL / 2, "{took:?}: claims ended before their time");
    assert_eq!(site.begun(), 200 + lost);
    site.check_shares();
    // Later than a rebalance: nothing is left to do.
    sleep(DELAY * 2).await;
    assert_eq!(site.begun(), 200 + lost);
    site.check_no_overlap();
}

async fn a_fleet_that_starts_within_the_pause_moves_nothing<S: Service>() {
    let mut site = Site::<S>::empty(200);
    // The first one has seen itself alone for nearly as long as it waits for others.
    for (name, pause) in [("a", 0), ("b", 900), ("c", 900)] {
        sleep(Duration::from_millis(pause)).await;
        site.start(name);
    }
    let details = site.hosts["a"].work.details.lock().clone();
    let ours = |detail: &&String| detail.ends_with("daemon a should claim it");
    assert!(details.values().any(|detail| ours(&detail)), "{details:?}");
    for detail in details.values() {
        assert_eq!(detail.starts_with("awaited: "), ours(&detail), "{detail}");
    }
    site.until_all_run(Duration::from_secs(4)).await;
    site.check_shares();
    sleep(DELAY * 2).await;
    assert_eq!(site.begun(), 200, "nobody took what belongs to one that joined a moment later");
    site.check_no_overlap();
}

async fn a_daemon_that_joins_gets_its_share_after_the_delay_a_few_at_a_time<S: Service>() {
    let mut site = Site::<S>::new(4, 200).await;
    site.start("e");
    sleep(DELAY - Duration::from_secs(1)).await;
    assert_eq!(site.of("e").len(), 0, "it may be one that comes and goes");
    sleep(Duration::from_secs(10)).await;
    site.check_shares();
    let moved = site.of("e").len();
    assert!(moved > 20, "{moved}");
    assert_eq!(site.begun(), 200 + moved);
    let idle = site.ledger.lock().idle;
    assert!(idle <= 4 * 8, "{idle} channels stood still at once");
    site.check_no_overlap();
    let detail = site.hosts["a"].work.details.lock().values().next().cloned();
    assert!(detail.is_some_and(|detail| detail.ends_with("has claimed the channel")));
}

async fn a_restart_within_the_time_to_live_moves_nothing<S: Service>() {
    let mut site = Site::<S>::new(3, 90).await;
    let own = site.of("b");
    for politely in [true, false] {
        let begun = site.begun();
        site.end("b", politely).await;
        sleep(Duration::from_secs(4)).await;
        assert!(!site.is_all_running());
        site.start("b");
        site.until_all_run(Duration::from_secs(1)).await;
        assert_eq!(site.of("b"), own);
        sleep(DELAY * 2).await;
        assert_eq!((site.begun(), site.of("b")), (begun + own.len(), own.clone()));
    }
    // A daemon that crashes again and again has its channels moved away once.
    site.end("b", false).await;
    site.until_all_run(S::DETECTION).await;
    let begun = site.begun();
    for _ in 0..5 {
        site.start("b");
        sleep(Duration::from_secs(20)).await;
        site.end("b", false).await;
        sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(site.begun(), begun);
    site.check_no_overlap();
}

async fn without_the_engine_all_channels_continue<S: Service>() {
    let site = Site::<S>::new(3, 90).await;
    let begun = site.begun();
    for host in site.hosts.values() {
        host.is_cut.store(true, Ordering::Relaxed);
    }
    sleep(TTL * 20).await;
    assert!(site.is_all_running());
    for host in site.hosts.values() {
        let view = host.handle.view();
        assert!(!view.has_session && view.error.is_some(), "{view:?}");
        host.is_cut.store(false, Ordering::Relaxed);
    }
    sleep(TTL).await;
    for host in site.hosts.values() {
        let view = host.handle.view();
        assert!(view.has_session && view.error.is_none(), "{view:?}");
    }
    // All sessions have ended, and everyone claimed again what it runs.
    assert_eq!(site.begun(), begun);
    site.check_shares();
    for channel in &site.channels {
        assert!(site.service.holder(channel).is_some_and(|name| site.of(&name).contains(channel)));
    }
    site.check_no_overlap();
}

async fn a_daemon_that_is_cut_off_gives_up_what_others_have_claimed_meanwhile<S: Service>() {
    let site = Site::<S>::new(3, 90).await;
    let own = site.of("b");
    site.hosts["b"].is_cut.store(true, Ordering::Relaxed);
    sleep(S::DETECTION).await;
    // The target lets one of the two apply; here both say that they try.
    assert_eq!(site.ledger.lock().overlaps.len(), own.len());
    assert_eq!(site.of("b"), own, "its lock on the target may be the only one");
    site.hosts["b"].is_cut.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(site.of("b").len(), 0);
    assert!(site.is_all_running());
    sleep(DELAY + Duration::from_secs(5)).await;
    assert_eq!(site.of("b"), own);
    site.check_shares();
}

async fn a_session_that_ends_is_begun_again_and_keeps_its_channels<S: Service>() {
    let site = Site::<S>::new(1, 30).await;
    site.service.end_session("a");
    sleep(Duration::from_secs(1)).await;
    assert!(site.channels.iter().all(|channel| site.service.holder(channel).is_some()));
    assert_eq!(site.begun(), 30);
    // With others, those whose share it is not can't take it faster than it is given to them.
    let site = Site::<S>::new(3, 90).await;
    site.service.end_session("b");
    site.until_all_run(Duration::from_secs(10)).await;
    sleep(DELAY * 2).await;
    site.check_shares();
}

async fn a_drained_daemon_has_nothing_and_leaves_at_once<S: Service>() {
    let mut site = Site::<S>::new(3, 90).await;
    let (own, begun) = (site.of("b"), site.begun());
    site.hosts["b"].handle.drain(true);
    let is_drained = |site: &Site<S>| site.hosts["b"].handle.view().is_drained();
    site.until("others have its channels", Duration::from_secs(10), is_drained).await;
    assert_eq!(site.hosts["b"].handle.view().unclaimed, Vec::<String>::new());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(site.of("b").len(), 0);
    site.check_shares();
    assert_eq!(site.begun(), begun + own.len());
    // Undone: its share comes back after the delay.
    site.hosts["b"].handle.drain(false);
    sleep(DELAY + Duration::from_secs(10)).await;
    assert_eq!(site.of("b"), own);
    site.hosts["b"].handle.drain(true);
    sleep(Duration::from_secs(10)).await;
    site.end("b", true).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(site.hosts["a"].handle.view().members.len(), 2, "it left at once");
    site.check_no_overlap();
    // The last one keeps its channels: nobody else can take them.
    site.end("c", true).await;
    site.until_all_run(S::DETECTION).await;
    site.hosts["a"].handle.drain(true);
    sleep(Duration::from_secs(10)).await;
    assert!(site.is_all_running());
}

async fn two_daemons_of_one_name_are_refused<S: Service>() {
    let site = Site::<S>::new(1, 3).await;
    let (other, _) = site.service.link();
    let member = Member { name: "a".to_owned(), id: "another".to_owned(), ..Member::default() };
    let refused = other.join(&member).await;
    assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
}

macro_rules! scenarios {
    ($service:ty: $($name:ident)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name::<$service>().await;
            }
        )*
    };
}

macro_rules! in_each_service {
    ($($name:ident)*) => {
        mod in_memory {
            scenarios!(super::MemoryCluster: $($name)*);
        }
        mod in_leases {
            scenarios!(super::ApiServer: $($name)*);
        }
    };
}

in_each_service! {
    a_host_that_dies_loses_its_channels_to_the_others_and_no_more_move
    a_fleet_that_starts_within_the_pause_moves_nothing
    a_daemon_that_joins_gets_its_share_after_the_delay_a_few_at_a_time
    a_restart_within_the_time_to_live_moves_nothing
    without_the_engine_all_channels_continue
    a_daemon_that_is_cut_off_gives_up_what_others_have_claimed_meanwhile
    a_session_that_ends_is_begun_again_and_keeps_its_channels
    a_drained_daemon_has_nothing_and_leaves_at_once
    two_daemons_of_one_name_are_refused
}

mod cost;
// After the macros, which they use.
mod held;
mod replaced;
