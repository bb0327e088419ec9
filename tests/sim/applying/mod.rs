//! The applier on the simulated target: daemons that are killed and started again, one or two at a time,
//! while links, statements and the server fail.

pub(crate) mod daemon;
mod regressions;
pub(crate) mod renaming;

use std::sync::Arc;

use csa_provider::binlog::Uuid;
use daemon::Settings;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Duration, sleep, timeout};

use crate::faults::Chaos;
use crate::history::{History, TABLES};
use crate::oracle::Oracle;
use crate::seeds::Case;
use crate::target::{Conflicts, NoFaults, Server};
use crate::{faults, operator, oracle, seeds};

pub(crate) const TARGET: Uuid = Uuid::from_bytes([0x7a; 16]);

/// The things that go wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Calm,
    /// Links, statements, sessions, daemons and the server fail.
    Faults,
    /// Nothing but the server, which restarts again and again and loses its last commits, while two daemons
    /// take the channel in turn: each of its lives numbers the same connections alike.
    Restarts,
    /// The target has room for fewer sessions than the daemon has workers, and ends some now and then.
    Full,
}

impl Mood {
    fn ends_sessions(self) -> bool {
        matches!(self, Self::Faults | Self::Full)
    }

    /// Longer than all faults of a run together: what takes longer is stuck.
    fn patience(self) -> Duration {
        match self {
            Self::Full => Duration::from_secs(6 * 3600),
            Self::Calm | Self::Faults | Self::Restarts => Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// One run, in its own thread's time; returns the digest of all that happened.
pub(crate) fn run(case: Case, mood: Mood) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let world = World::new(case, mood);
    runtime.block_on(async {
        let server = world.server();
        let done = async {
            tokio::select! {
                biased;
                () = server.broken() => panic!("a promise is broken"),
                never = faults::end_sessions(&server, case), if mood.ends_sessions() => match never {},
                () = world.daemon(&server, "one", 0) => {}
                () = world.daemon(&server, "two", 1), if world.daemons == 2 => {}
            }
        };
        timeout(mood.patience(), Box::pin(done)).await.expect("stuck");
        let (applied, contents) =
            server.with_state(|state| (oracle::applied(state), oracle::contents(state)));
        assert_eq!(applied, Some(world.history.transactions.len()));
        assert_eq!(Some(&contents), world.history.states.last());
        if mood == Mood::Calm {
            // What the keys did not predict shows here, before retries repair it.
            assert_eq!(server.conflicts(), Conflicts::default());
        }
        server.digest()
    })
}

/// The parts of a run that its seed decides.
struct World {
    case: Case,
    mood: Mood,
    history: Arc<History>,
    may_lose: usize,
    daemons: usize,
    /// The times that each daemon is killed.
    kills: usize,
    settings: Settings,
}

impl World {
    fn new(case: Case, mood: Mood) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed);
        let settings = Settings::of(case.seed, &mut random);
        Self {
            case,
            mood,
            history: Arc::new(History::of(case, settings.kinds())),
            may_lose: match mood {
                Mood::Calm | Mood::Full => 0,
                Mood::Faults if random.random_bool(0.7) => 0,
                Mood::Faults | Mood::Restarts => 4,
            },
            daemons: match mood {
                Mood::Calm | Mood::Full => 1,
                Mood::Faults => random.random_range(1..3),
                Mood::Restarts => 2,
            },
            kills: match mood {
                Mood::Faults => random.random_range(0..5).min(case.kills),
                Mood::Calm | Mood::Restarts | Mood::Full => 0,
            },
            settings,
        }
    }

    fn server(&self) -> Server {
        let oracle = Oracle::new(Arc::clone(&self.history), self.settings.in_order);
        let server = match self.mood {
            Mood::Calm => Server::new(TARGET, 0, NoFaults, oracle),
            Mood::Faults => {
                let chaos = Chaos::of(self.case, self.may_lose);
                Server::new(TARGET, self.may_lose, chaos, oracle)
            }
            Mood::Full => Server::new(TARGET, 0, Chaos::full(self.case), oracle),
            Mood::Restarts => {
                let chaos = Chaos::restarts(self.case, self.may_lose);
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
        let mut random = StdRng::seed_from_u64(self.case.seed ^ (number + 1) << 32);
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
                Ok(Ok(())) if server.with_state(oracle::applied) == Some(all) => return,
                // A crash took back what was committed last.
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    operator::repair(server, &self.history, &error, self.may_lose > 0).await;
                }
                Err(_) => kills -= 1,
            }
            sleep(pause(&mut random)).await;
        }
    }
}

#[test]
fn a_calm_world_is_a_prefix_of_its_source_throughout() {
    seeds::each("calm_world", 0..100, |case| {
        run(case, Mood::Calm);
    });
}

#[test]
fn a_world_of_faults_is_a_prefix_of_its_source_throughout() {
    seeds::each("world_of_faults", 0..100, |case| {
        run(case, Mood::Faults);
    });
}

#[test]
#[ignore = "slow"]
fn more_worlds_with_faults_are_too() {
    seeds::each("world_of_faults", 100..500, |case| {
        run(case, Mood::Faults);
    });
}

#[test]
#[ignore = "slow"]
fn a_target_with_too_little_room_is_a_prefix_of_its_source_throughout() {
    seeds::each("too_little_room", 0..200, |case| {
        run(case, Mood::Full);
    });
}

#[test]
#[ignore = "slow"]
fn a_target_that_restarts_again_and_again_is_a_prefix_of_its_source_throughout() {
    seeds::each("restarts_again", 0..200, |case| {
        run(case, Mood::Restarts);
    });
}

/// Runs of 8,000,000 and later seeds that failed once.
#[test]
fn runs_that_once_failed() {
    // A silent session's number was another's after a restart, which used it all the time.
    run(Case::of(8_000_872), Mood::Faults);
}

#[test]
fn a_seed_repeats_its_run() {
    for case in (0..20).map(Case::of) {
        assert_eq!(run(case, Mood::Faults), run(case, Mood::Faults), "{case:?}");
    }
}
