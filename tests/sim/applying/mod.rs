//! The applier on the simulated target: daemons that are killed and started again, one or two at a time,
//! while links, statements and the server fail.

mod chaos;
mod daemon;
mod history;
mod oracle;
mod regressions;

use std::sync::Arc;

use chaos::Chaos;
use csa_applier::{Error, TargetGtids};
use csa_provider::Uuid;
use csa_scheduler::GroupLimits;
use daemon::Settings;
use history::{History, TABLES};
use oracle::Oracle;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Duration, sleep, timeout};

use crate::seeds;
use crate::target::{NoFaults, Server};

/// Longer than all faults of a run together: what takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);
const TARGET: Uuid = Uuid::from_bytes([0x7a; 16]);

/// One run, in its own thread's time; returns the digest of all that happened.
fn run(seed: u64, is_calm: bool) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let world = World::new(seed, is_calm);
    runtime.block_on(async {
        let server = world.server();
        let done = async {
            tokio::select! {
                biased;
                () = server.broken() => panic!("a promise is broken"),
                () = world.daemon(&server, "one", 0) => {}
                () = world.daemon(&server, "two", 1), if world.daemons == 2 => {}
            }
        };
        timeout(PATIENCE, Box::pin(done)).await.expect("stuck");
        let (applied, contents) =
            server.with_state(|state| (oracle::checkpoint(state), oracle::contents(state)));
        assert_eq!(applied, Some(world.history.transactions.len()));
        assert_eq!(Some(&contents), world.history.states.last());
        server.digest()
    })
}

/// The parts of a run that its seed decides.
struct World {
    seed: u64,
    is_calm: bool,
    history: Arc<History>,
    may_lose: usize,
    daemons: usize,
    /// The times that each daemon is killed.
    kills: usize,
    settings: Settings,
}

impl World {
    fn new(seed: u64, is_calm: bool) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let gtids = match random.random_bool(0.3) {
            true => TargetGtids::Source,
            false => TargetGtids::Own,
        };
        let is_source = gtids == TargetGtids::Source;
        let limits = GroupLimits {
            transactions: if is_source { 1 } else { random.random_range(1..8) },
            rows: random.random_range(1..40),
            ..GroupLimits::default()
        };
        let settings = Settings {
            workers: random.random_range(1..6),
            limits,
            gtids,
            statement_gtids: is_source || random.random_bool(0.7),
            seed,
        };
        Self {
            seed,
            is_calm,
            history: Arc::new(History::of(seed)),
            may_lose: if is_calm || random.random_bool(0.7) { 0 } else { 4 },
            daemons: if is_calm { 1 } else { random.random_range(1..3) },
            kills: if is_calm { 0 } else { random.random_range(0..5) },
            settings,
        }
    }

    fn server(&self) -> Server {
        let oracle = Oracle::new(Arc::clone(&self.history));
        let server = match self.is_calm {
            true => Server::new(TARGET, 0, NoFaults, oracle),
            false => {
                let chaos = Chaos::of(self.seed, self.may_lose);
                Server::new(TARGET, self.may_lose, chaos, oracle)
            }
        };
        server.provision(&TABLES);
        if std::env::var_os("CSA_SIM_TRACE").is_some() {
            server.trace();
        }
        server
    }

    /// A daemon's lives, until it has applied everything.
    async fn daemon(&self, server: &Server, identity: &str, number: u64) {
        let mut random = StdRng::seed_from_u64(self.seed ^ (number + 1) << 32);
        let (mut kills, all) = (self.kills, self.history.transactions.len());
        let pause = |random: &mut StdRng| Duration::from_millis(random.random_range(0..3_000));
        if number > 0 {
            sleep(pause(&mut random)).await;
        }
        loop {
            let life = daemon::run(server, &self.history, identity, &self.settings);
            let outcome = match kills {
                0 => Ok(life.await),
                _ => {
                    let range = [50, 1_000, 100_000][random.random_range(0..3)];
                    let length = Duration::from_millis(random.random_range(0..range));
                    timeout(length, life).await
                }
            };
            match outcome {
                Ok(Ok(())) if server.with_state(oracle::checkpoint) == Some(all) => return,
                // A crash took back what was committed last.
                Ok(Ok(())) => {}
                // The daemon begins again at the checkpoint.
                Ok(Err(Error::Older { .. } | Error::Fenced { .. })) => {}
                // The server lost rows of ours in a crash. The daemon can't know that nothing else is missing,
                // so it leaves that to an operator, who finds it so.
                Ok(Err(Error::Checkpoint { what, .. }))
                    if self.may_lose > 0
                        && (what.contains("are gone") || what.contains("lost transactions")) => {}
                Ok(Err(Error::InDoubt { .. })) => self.decide(server).await,
                Ok(Err(error)) => panic!("{identity} stopped: {}", error.with_values()),
                Err(_) => kills -= 1,
            }
            sleep(pause(&mut random)).await;
        }
    }

    /// Does what an operator does about a statement in doubt.
    async fn decide(&self, server: &Server) {
        let (applied, contents) = server.with_state(|state| {
            (oracle::checkpoint(state).unwrap_or_default(), oracle::contents(state))
        });
        let statement = match self.history.states.get(applied + 1) == Some(&contents) {
            true => "UPDATE csa.statement SET executed=1 WHERE channel='c'",
            false => "DELETE FROM csa.statement WHERE channel='c'",
        };
        while !server.operate(statement) {
            sleep(Duration::from_secs(1)).await;
        }
    }
}

#[test]
fn a_calm_world_is_a_prefix_of_its_source_throughout() {
    for seed in 0..20 {
        run(seed, true);
    }
}

#[test]
fn a_world_of_faults_is_a_prefix_of_its_source_throughout() {
    seeds::each("world_of_faults", 0..100, |seed| {
        run(seed, false);
    });
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..20 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}
