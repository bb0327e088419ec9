//! One power loss, and the checks of what it may and may not take.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use csa_provider::binlog::GtidSet;
use csa_tests::{Server, eventually};
use mysql_async::prelude::Queryable as _;
use rand::Rng as _;
use rand::rngs::StdRng;
use tempfile::TempDir;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::kinds::{Kind, Machine};
use crate::load::Load;
use crate::world::{DRAIN, MODES, Stated, World};

const PATIENCE: Duration = Duration::from_secs(60);
/// A sync of the relay store may begin this much late and take as long, on a busy machine.
const SYNC_SLACK: Duration = Duration::from_millis(1500);

/// The losses of one channel in a round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// Transactions that the target had answered as committed.
    pub(crate) target_lost: u64,
    /// Transactions that the daemon had stated as received, and that no target had.
    pub(crate) relay_lost: u64,
    /// The running daemon noticed that the target had gone back.
    pub(crate) rewound: bool,
    /// The channel stopped, because the source had purged what was lost.
    pub(crate) stopped: bool,
}

/// Returns the outcome of each channel.
pub(crate) async fn run(world: &mut World, kind: &Kind, random: &mut StdRng) -> Vec<Outcome> {
    world.prepare(kind).await;
    let load = Load::start(&world.source);
    sleep(span(random, 700, 2500)).await;
    if kind.machine == Machine::Daemon || kind.purges {
        // From here on only the relay store has what arrives.
        for mode in MODES {
            block_in_place(|| world.daemon.commanded(&["pause", "--channel", mode]));
        }
        sleep(span(random, 300, 1500)).await;
    }
    if random.random_bool(0.5) {
        block_in_place(|| world.write_back());
        sleep(span(random, 100, 700)).await;
    }
    let due = match kind.relay_sync.strip_suffix("ms") {
        Some(interval) => {
            let due = world.stated();
            let interval: u64 = interval.parse().expect("milliseconds");
            sleep(Duration::from_millis(interval) + SYNC_SLACK).await;
            due
        }
        None => Vec::new(),
    };
    let purged = match kind.purges {
        true => Some(Purged::from_now(world).await),
        false => None,
    };
    let stated = world.stated();
    block_in_place(|| world.cut(kind.machine));
    let executed = match kind.machine {
        Machine::Daemon => world.executed().await,
        _ => {
            sleep(span(random, 0, 700)).await;
            world.return_targets(random).await
        }
    };
    let mut is_refused = false;
    let held = match kind.machine {
        Machine::Target => None,
        _ => {
            let held = block_in_place(|| world.return_relay(&executed, random));
            is_refused = is_refused_at_start(world).await;
            Some(held)
        }
    };
    let mut outcomes = Vec::new();
    for (number, mode) in MODES.iter().enumerate() {
        let Stated { applied, received } = &stated[number];
        let mut outcome = Outcome::default();
        let lost = applied.difference(&executed[number]);
        outcome.target_lost = lost.count();
        assert!(!kind.target_is_durable(mode) || lost.is_empty(), "{mode}: the target lost {lost}");
        if let Some(held) = &held {
            let mut kept = held[number].clone();
            kept.union(&executed[number]);
            let lost = received.difference(&kept);
            outcome.relay_lost = lost.count();
            let spared = kind.relay_sync != "transaction" || lost.is_empty();
            assert!(spared, "{mode}: the relay store lost {lost}");
            if let Some(due) = due.get(number) {
                let lost = due.received.difference(&kept);
                assert!(lost.is_empty(), "{mode}: synced long ago and lost: {lost}");
            }
            if let Some(purged) = &purged {
                let gone = purged.transactions.difference(&kept);
                outcome.stopped = !gone.is_empty();
                assert!(outcome.stopped || !is_refused, "refused, and nothing is missing");
                // What no program synced can have the right size and other contents, which only a reader finds.
                if !outcome.stopped && kind.relay_sync == "os" {
                    outcome.stopped = meets_damage(world, mode, &purged.transactions).await;
                }
                if outcome.stopped && !is_refused {
                    stops(world, mode, &gone).await;
                }
            }
        }
        if kind.machine == Machine::Target && outcome.target_lost > 0 {
            let rewinds = || world.view(mode)["applier"]["target_rewinds_total"].as_u64();
            // Without a synced binary log, a target can lose GTIDs and nothing else.
            let restores = || *mode == "source" && world.daemon.log().contains("had lost GTIDs");
            eventually(&format!("{mode}: noticed"), PATIENCE, async || {
                outcome.rewound = block_in_place(rewinds) == Some(1);
                outcome.rewound || restores()
            })
            .await;
        }
        outcomes.push(outcome);
    }
    sleep(Duration::from_millis(300)).await;
    assert!(load.stop().await > 0, "no load");
    if let Some(purged) = purged
        && outcomes.iter().any(|outcome| outcome.stopped)
    {
        purged.put_back(&world.source);
        if is_refused {
            block_in_place(|| world.daemon.start_again());
        } else {
            for (mode, _) in MODES.iter().zip(&outcomes).filter(|(_, outcome)| outcome.stopped) {
                block_in_place(|| world.daemon.commanded(&["restart", "--channel", mode]));
            }
        }
    }
    world.drained_and_equal().await;
    outcomes
}

fn span(random: &mut StdRng, least: u64, most: u64) -> Duration {
    Duration::from_millis(random.random_range(least..most))
}

/// Starts the daemon. It exits where every channel lacks what the source has purged, and says so.
async fn is_refused_at_start(world: &World) -> bool {
    world.daemon.spawn();
    let begun = Instant::now();
    // It may be up a moment before it exits.
    while !world.daemon.has_exited() {
        let status = block_in_place(|| world.daemon.try_status()).unwrap_or_default();
        let channels = status["channels"].as_array().cloned().unwrap_or_default();
        let are_started = channels.iter().any(|view| view["state"] != "starting");
        if are_started && !channels.is_empty() {
            return false;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", world.daemon.log_tail());
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.daemon.wait_exit(PATIENCE).code(), Some(2), "{}", world.daemon.log_tail());
    let log = world.daemon.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("purged"), "{last}");
    true
}

/// Returns whether the channel fails before it has applied `transactions`.
async fn meets_damage(world: &World, mode: &str, transactions: &GtidSet) -> bool {
    let mut fails = false;
    eventually(&format!("{mode} applies all, or fails"), DRAIN, async || {
        let view = block_in_place(|| world.view(mode));
        fails = view["state"] == "failed";
        let applied = view["applied_transaction_set"].as_str().and_then(|set| set.parse().ok());
        fails || applied.is_some_and(|applied: GtidSet| transactions.is_subset_of(&applied))
    })
    .await;
    assert!(!fails || world.daemon.log().contains("is damaged"), "{}", world.daemon.log_tail());
    fails
}

/// The channel does not begin on top of the gap, and names the reason.
async fn stops(world: &World, mode: &str, gone: &GtidSet) {
    eventually(&format!("{mode} stops, as {gone} is gone"), DRAIN, async || {
        block_in_place(|| world.view(mode))["state"] == "failed"
    })
    .await;
    let view = block_in_place(|| world.view(mode));
    let error = view["last_error"]["message"].as_str().unwrap_or_default();
    assert!(error.contains("purged"), "{mode}: {error}");
}

/// Binary logs that the source has purged, with copies of them.
struct Purged {
    transactions: GtidSet,
    copies: TempDir,
}

impl Purged {
    /// Purges all binary logs, as soon as every channel has received them.
    async fn from_now(world: &World) -> Self {
        let source = &world.source;
        source.exec("FLUSH BINARY LOGS").await;
        let written: GtidSet = source.gtid_executed().await.parse().expect("a GTID set");
        eventually("all channels have received it", PATIENCE, async || {
            let stated = block_in_place(|| world.stated());
            stated.iter().all(|stated| written.is_subset_of(&stated.received))
        })
        .await;
        let copies = TempDir::with_prefix("csa-binlogs-").expect("a temporary directory");
        let all = logs(source).await;
        let (newest, before) = all.split_last().expect("a binary log");
        for log in before {
            copy(source.data_directory().join(log), copies.path().join(log));
        }
        let purge = format!("PURGE BINARY LOGS TO '{newest}'");
        eventually("no dump reads them any more", PATIENCE, async || {
            source.exec(&purge).await;
            logs(source).await.len() == 1
        })
        .await;
        let purged: String = source.value("SELECT @@GLOBAL.gtid_purged").await;
        Self { transactions: purged.parse().expect("a GTID set"), copies }
    }

    /// Gives the source its binary logs back.
    fn put_back(&self, source: &Server) {
        block_in_place(|| {
            source.stop();
            let files = std::fs::read_dir(self.copies.path()).expect("the copies");
            let mut names: Vec<String> = files
                .map(|file| file.expect("a copy").file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            for name in &names {
                copy(self.copies.path().join(name), source.data_directory().join(name));
            }
            let index = source.data_directory().join("binlog.index");
            let rest = std::fs::read_to_string(&index).expect("the index");
            let lines: String = names.iter().map(|name| format!("./{name}\n")).collect();
            std::fs::write(&index, lines + &rest).expect("writing the index");
            source.restart();
        });
    }
}

async fn logs(source: &Server) -> Vec<String> {
    let mut conn = source.conn().await;
    let rows: Vec<mysql_async::Row> = conn.query("SHOW BINARY LOGS").await.expect("a list");
    let _ = conn.disconnect().await;
    rows.iter().map(|row| row.get::<String, _>(0).expect("a name")).collect()
}

fn copy(from: PathBuf, to: PathBuf) {
    std::fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}
