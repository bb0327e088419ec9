//! Two daemons, each with links of its own to source and target, and the faults that befall them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, FaultyProxy, eventually};
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::DRAIN;
use crate::faults::restart;
use crate::load;
use crate::servers::{Servers, kill_sessions};
use crate::takeovers::cost::Cost;
use crate::takeovers::fault::{Fault, Next};
use crate::takeovers::mark::Looks;
use crate::world::quick;

/// Time after which a channel counts as stuck, and a daemon as not back.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between looks at a daemon's state.
const LOOK: Duration = Duration::from_millis(50);

/// A daemon and its links.
struct Host {
    daemon: Daemon,
    target_link: FaultyProxy,
    source_link: FaultyProxy,
}

pub(crate) struct Hosts {
    pub(crate) servers: Arc<Servers>,
    hosts: [Host; 2],
    active: usize,
}

/// The course of a fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// From the fault, or the target's answer after its restart, to the first transaction applied.
    pub(crate) took: Duration,
    /// The other daemon has the channel.
    pub(crate) passed: bool,
}

impl Hosts {
    pub(crate) async fn start(random: &mut StdRng) -> Self {
        let servers = Arc::new(Servers::start(&["source"]));
        let source = servers.primary();
        load::prepare(source).await;
        let gtids = ["own", "own", "mirror"][random.random_range(0..3)];
        let workers: i64 = random.random_range(2..=8);
        println!("target_gtids {gtids}, {workers} workers");
        let mut hosts = Vec::new();
        for _ in 0..2 {
            let target_link = FaultyProxy::start(&servers.target).await;
            let source_link = FaultyProxy::start(source).await;
            let daemon = quick(Daemon::builder(source, &servers.target))
                .set("standby", true)
                .set("source.port", i64::from(source_link.port))
                .set("target.port", i64::from(target_link.port))
                .set("applier.worker_count", workers)
                .set("applier.target_gtids", gtids)
                .start();
            let host = Host { daemon, target_link, source_link };
            let expected = if hosts.is_empty() { "running" } else { "standby" };
            reaches(&host.daemon, expected).await.expect("a start");
            hosts.push(host);
        }
        let Ok(hosts) = <[Host; 2]>::try_from(hosts) else { unreachable!("two were started") };
        hosts[0].daemon.wait_drained(source, &servers.target, DRAIN).await;
        Self { servers, hosts, active: 0 }
    }

    pub(crate) fn active(&self) -> &Daemon {
        &self.hosts[self.active].daemon
    }

    pub(crate) fn daemons(&self) -> impl Iterator<Item = &Daemon> {
        self.hosts.iter().map(|host| &host.daemon)
    }

    /// The cost of the standby in this time, in which nothing fails.
    pub(crate) async fn watch(&self, length: Duration) -> Cost {
        let standby = &self.hosts[1 - self.active];
        let (target, source) = (&standby.target_link, &standby.source_link);
        Cost::of(&standby.daemon, self.active(), target, source, length).await
    }

    /// Lets the fault happen; returns once the channel continues, and the other daemon stands by.
    pub(crate) async fn suffer(
        &mut self,
        fault: Fault,
        random: &mut StdRng,
    ) -> Result<Outcome, String> {
        let servers = Arc::clone(&self.servers);
        let mut looks = Looks::new(&servers.target);
        let before = looks.first(PATIENCE).await?.epoch;
        let mut span = |least, most| Duration::from_millis(random.random_range(least..most));
        let (short, long) = (span(100, 1_500), span(3_000, 8_000));
        let since = self.begin(fault, short, long).await;
        if fault.next() == Next::Same && looks.first(PATIENCE).await?.epoch != before {
            return Err("the channel has changed hands".to_owned());
        }
        let other_than = (fault.next() == Next::Other).then_some(before);
        let (applied, epoch) = looks.applied(other_than, PATIENCE).await?;
        let failed = self.active;
        // A daemon that is stopped can't be asked, and need not be.
        if fault.next() == Next::Other {
            self.active = 1 - failed;
        }
        if fault == Fault::Stalled {
            sleep(short).await;
        }
        self.end(fault, failed);
        self.settle(fault).await?;
        // Whoever came back has changed nothing.
        let now = looks.first(PATIENCE).await?.epoch;
        if now != epoch && fault.next() != Next::Either {
            return Err(format!("epoch {epoch} has become {now} without a fault"));
        }
        Ok(Outcome { took: applied - since, passed: self.active != failed })
    }

    /// Returns the time from which the channel can continue.
    async fn begin(&self, fault: Fault, short: Duration, long: Duration) -> Instant {
        let [host, standby] = [&self.hosts[self.active], &self.hosts[1 - self.active]];
        let now = Instant::now();
        match fault {
            Fault::Killed => host.daemon.kill9(),
            Fault::Stalled => host.daemon.signal("STOP"),
            Fault::Terminated => host.daemon.signal("TERM"),
            Fault::HandedOver => {
                let said = block_in_place(|| host.daemon.command(&["stop", "--receiving"]));
                // On a busy machine a group may take longer than a stop waits.
                let is_stopped = said.code == Some(0) || said.error.contains("were given up");
                assert!(is_stopped, "{said:?}\n{}", host.daemon.log_tail());
            }
            Fault::LinkSwallows => host.target_link.black_hole(),
            Fault::LinkReset => host.target_link.reset(),
            Fault::LinkHalfOpen => host.target_link.forget(),
            Fault::SessionsKilled => kill_sessions(&self.servers.target, "user='csa'").await,
            Fault::TargetKilled => {
                restart(&self.servers.target, short / 4).await;
                return Instant::now();
            }
            Fault::KilledWithTarget => {
                host.daemon.kill9();
                restart(&self.servers.target, short / 4).await;
                return Instant::now();
            }
            Fault::TargetKilledMeanwhile => {
                host.daemon.kill9();
                sleep(short).await;
                restart(&self.servers.target, short / 4).await;
                return Instant::now();
            }
            Fault::SourceLinkSwallows => {
                host.source_link.black_hole();
                sleep(long).await;
                host.source_link.heal();
                return Instant::now();
            }
            Fault::StandbyKilled => {
                standby.daemon.kill9();
                return Instant::now();
            }
        }
        now
    }

    /// Brings back what failed.
    fn end(&self, fault: Fault, failed: usize) {
        let [host, standby] = [&self.hosts[failed], &self.hosts[1 - failed]];
        match fault {
            Fault::Killed | Fault::KilledWithTarget | Fault::TargetKilledMeanwhile => {
                block_in_place(|| host.daemon.start_again());
            }
            Fault::Terminated => block_in_place(|| {
                assert!(host.daemon.wait_exit(PATIENCE).success(), "{}", host.daemon.log_tail());
                host.daemon.start_again();
            }),
            Fault::Stalled => host.daemon.signal("CONT"),
            Fault::HandedOver => {
                block_in_place(|| host.daemon.commanded(&["restart"]));
            }
            Fault::LinkSwallows | Fault::LinkReset => host.target_link.heal(),
            Fault::StandbyKilled => block_in_place(|| standby.daemon.start_again()),
            Fault::LinkHalfOpen
            | Fault::SessionsKilled
            | Fault::TargetKilled
            | Fault::SourceLinkSwallows => {}
        }
    }

    /// Waits until one has the channel and the other stands by.
    async fn settle(&mut self, fault: Fault) -> Result<(), String> {
        if fault.next() == Next::Either {
            let started = Instant::now();
            self.active = loop {
                let states = [0, 1].map(|host| state(&self.hosts[host].daemon));
                match states.each_ref().map(String::as_str) {
                    ["running", "standby"] => break 0,
                    ["standby", "running"] => break 1,
                    _ if started.elapsed() > PATIENCE => return Err(format!("{states:?}")),
                    _ => sleep(LOOK).await,
                }
            };
        }
        reaches(self.active(), "running").await?;
        reaches(&self.hosts[1 - self.active].daemon, "standby").await
    }

    /// Neither leaves a session or an open transaction.
    pub(crate) async fn end_well(&self) {
        for daemon in self.daemons() {
            assert!(block_in_place(|| daemon.terminate()).success(), "{}", daemon.log_tail());
        }
        let target = &self.servers.target;
        let sessions = "SELECT COUNT(*) FROM performance_schema.processlist WHERE user='csa'";
        eventually("no session is left", PATIENCE, async || {
            target.value::<u64>(sessions).await == 0
        })
        .await;
        let open = "SELECT COUNT(*) FROM information_schema.innodb_trx";
        assert_eq!(target.value::<u64>(open).await, 0, "open transactions");
    }
}

fn state(daemon: &Daemon) -> String {
    let status = block_in_place(|| daemon.try_status()).unwrap_or_default();
    status["channels"][0]["state"].as_str().unwrap_or_default().to_owned()
}

async fn reaches(daemon: &Daemon, wanted: &str) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let found = state(daemon);
        if found == wanted {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("{found:?} instead of {wanted}\n{}", daemon.log_tail()));
        }
        sleep(LOOK).await;
    }
}
