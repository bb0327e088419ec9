//! Faults of daemon and servers, and commands of an operator, while a round runs.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::set::{Set, Target};

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Nothing,
    /// The daemon is killed once this much of the load, in percent, has run, and again after as much more.
    DaemonKilled {
        after: u64,
        times: u64,
    },
    /// It is stopped in order, and started again once the load has ended: all is applied from the relay store.
    DaemonStopped {
        after: u64,
    },
    /// A target is killed.
    TargetKilled {
        target: usize,
        after: u64,
    },
    /// Both at once.
    BothKilled {
        target: usize,
        after: u64,
    },
    /// All channels are paused until the load has ended, so that everything merges.
    Paused,
    /// The source is killed before the load.
    SourceKilled,
    /// An operator gives commands as the dice of this seed decide.
    Operated {
        seed: u64,
    },
}

impl Fault {
    pub(super) fn any(random: &mut StdRng) -> Self {
        let after = random.random_range(5..60);
        let target = random.random_range(0..3);
        match random.random_range(0..24) {
            0..7 => Self::DaemonKilled { after, times: random.random_range(1..4) },
            7..9 => Self::DaemonStopped { after },
            9 => Self::TargetKilled { target, after },
            10 => Self::BothKilled { target, after },
            11..15 => Self::Paused,
            15 => Self::SourceKilled,
            16..20 => Self::Operated { seed: random.random_range(0..u64::MAX) },
            _ => Self::Nothing,
        }
    }

    pub(super) fn before(self, set: &Set) {
        match self {
            Self::Paused => {
                set.daemon.commanded(&["pause", "--all"]);
            }
            Self::SourceKilled => {
                set.source.kill9();
                set.source.restart();
            }
            _ => {}
        }
    }

    /// `ran`: how much of the load has run, in percent.
    pub(super) async fn during(self, set: &Arc<Set>, ran: &(dyn Fn() -> u64 + Sync)) {
        let reached = async |percent: u64| {
            while ran() < percent {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let blocking = async |what: fn(&Set, usize), target: usize| {
            let set = Arc::clone(set);
            tokio::task::spawn_blocking(move || what(&set, target)).await.expect("a fault");
        };
        match self {
            Self::DaemonKilled { after, times } => {
                for time in 1..=times {
                    reached((after * time).min(95)).await;
                    set.daemon.kill9();
                    // A backlog builds up.
                    tokio::time::sleep(Duration::from_millis(after * 5)).await;
                    set.daemon.start_again();
                }
            }
            Self::DaemonStopped { after } => {
                reached(after).await;
                blocking(stop_daemon, 0).await;
            }
            Self::TargetKilled { target, after } => {
                reached(after).await;
                blocking(kill_target, target).await;
            }
            Self::BothKilled { target, after } => {
                reached(after).await;
                set.daemon.kill9();
                blocking(kill_target, target).await;
                set.daemon.start_again();
            }
            Self::Operated { seed } => {
                let mut random = StdRng::seed_from_u64(seed);
                while ran() < 95 {
                    let action = Action::any(&mut random);
                    let set = Arc::clone(set);
                    let done = tokio::task::spawn_blocking(move || action.run(&set));
                    done.await.expect("a command");
                    tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
                }
            }
            Self::Nothing | Self::Paused | Self::SourceKilled => {}
        }
    }

    pub(super) fn after(self, set: &Set) {
        match self {
            Self::Paused => {
                set.daemon.commanded(&["resume", "--all"]);
            }
            Self::DaemonStopped { .. } => set.daemon.start_again(),
            Self::Operated { .. } => {
                for Target { kind, .. } in &set.targets {
                    let run = |words: &[&str]| {
                        set.daemon.commanded(&[&["--channel", kind.name], words].concat())
                    };
                    run(&["restart"]);
                    run(&["resume"]);
                    run(&["until", "--clear"]);
                    run(&["set", "source_delay", "0s"]);
                    run(&["set", "throttle", "0"]);
                }
            }
            _ => {}
        }
    }
}

/// A command of an operator to one channel.
#[derive(Debug)]
struct Action {
    target: usize,
    words: &'static [&'static str],
    /// The end of `until` is what the source has executed now.
    until: bool,
    /// The file changes before it is read again.
    changes: bool,
}

impl Action {
    fn any(random: &mut StdRng) -> Self {
        const COMMANDS: [&[&str]; 18] = [
            &["pause"],
            &["resume"],
            &["resume"],
            &["stop"],
            &["stop", "--now"],
            &["stop", "--receiving"],
            &["restart"],
            &["restart"],
            &["set", "worker_count", "1"],
            &["set", "worker_count", "13"],
            &["set", "event_memory_limit", "64MiB"],
            &["set", "source_delay", "300ms"],
            &["set", "source_delay", "0s"],
            &["set", "throttle", "40"],
            &["set", "throttle", "0"],
            &["until", "--clear"],
            &["relay", "dump", "--rows"],
            &["wait", "--timeout", "0.2", "00000000-0000-0000-0000-000000000001:1"],
        ];
        let target = random.random_range(0..3);
        let (until, changes) = (random.random_bool(0.1), random.random_bool(0.1));
        let words = *COMMANDS.choose(random).expect("commands");
        Self { target, words, until, changes }
    }

    /// A command may be refused: nothing is paused twice, and an end may be past.
    fn run(&self, set: &Set) {
        let daemon = &set.daemon;
        let channel = ["--channel", set.targets[self.target].kind.name];
        let end;
        let words = if self.changes {
            let number = self.words.len() as i64;
            daemon.set("applier.worker_count", number);
            daemon.set("applier.row_image", ["full", "minimal"][self.target % 2]);
            daemon.write_config();
            &["reload", "--restart"][..]
        } else if self.until {
            let view = daemon.status()["channels"][self.target]["received_transaction_set"].clone();
            end = view.as_str().unwrap_or_default().to_owned();
            &["until", "--after-gtids", &end][..]
        } else {
            self.words
        };
        let all = if self.changes { words.to_vec() } else { [&channel, words].concat() };
        let said = daemon.command(&all);
        assert!(said.code.is_some_and(|code| code < 3), "{all:?}: {said:?}");
        assert!(!said.error.contains("panic"), "{all:?}: {said:?}");
    }
}

fn kill_target(set: &Set, target: usize) {
    let server = &set.targets[target].server;
    server.kill9();
    server.restart();
}

fn stop_daemon(set: &Set, _: usize) {
    let status = set.daemon.terminate();
    assert!(status.success(), "{status}");
}
