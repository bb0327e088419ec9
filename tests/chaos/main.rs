//! Chaos on real servers: two sources that take over from each other, a target, two daemons and proxies
//! between them, under load, with faults one after another and at the same time.
//!
//! `CSA_CHAOS_SECONDS` is the length (60), `CSA_CHAOS_ROUNDS` how often each kind of fault occurs at
//! least (0), `CSA_CHAOS_SEED` chooses faults, `CSA_CHAOS_KINDS` limits them to names separated by
//! commas, and `CSA_CHAOS_REPORT` names a file for the report. `takeovers` describes those of the other test.

mod faults;
mod history;
mod load;
mod oracle;
mod report;
mod servers;
mod takeovers;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_tests::compare;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::Mutex;

use crate::faults::Kind;
use crate::oracle::Oracle;
use crate::report::Report;
use crate::world::World;

/// The tests of this file run one after the other: each keeps the machine busy, and measures times.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Enough for the backlog of any fault on a slow machine.
const DRAIN: Duration = Duration::from_secs(120);

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
}

/// Those of `all` that the variable names, otherwise all.
fn named<K: Copy>(variable: &str, all: &[K], name: fn(K) -> &'static str) -> Vec<K> {
    let Ok(names) = std::env::var(variable) else { return all.to_vec() };
    let find = |wanted: &str| {
        let found = all.iter().copied().find(|kind| name(*kind) == wanted.trim());
        found.unwrap_or_else(|| panic!("there is no fault named {wanted:?}"))
    };
    names.split(',').map(find).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow"]
async fn whatever_fails_the_target_is_a_prefix_of_the_source_and_catches_up() {
    let seed = number("CSA_CHAOS_SEED").unwrap_or_else(|| rand::rng().random_range(0..100_000));
    let length = Duration::from_secs(number("CSA_CHAOS_SECONDS").unwrap_or(60));
    let rounds = number("CSA_CHAOS_ROUNDS").unwrap_or(0);
    println!("chaos: seed {seed}, {length:?}, at least {rounds} rounds");
    let mut random = StdRng::seed_from_u64(seed);
    let _alone = ALONE.lock().await;
    let world = Arc::new(World::start(&mut random).await);
    let mut report = Report::new(seed);
    let servers = Arc::clone(&world.servers);
    let load = load::Load::start(&servers, random.random());
    let oracle = Oracle::start(&servers);

    let started = Instant::now();
    let mut round = 0;
    let mut queue: Vec<Kind> = Vec::new();
    while started.elapsed() < length || round < rounds || (rounds > 0 && !queue.is_empty()) {
        if queue.is_empty() {
            let kinds = named("CSA_CHAOS_KINDS", &Kind::ALL, Kind::name);
            queue = kinds.into_iter().filter(|kind| report.permits(*kind, &world)).collect();
            queue.shuffle(&mut random);
            round += 1;
        }
        let step = take_step(&mut queue, &mut random);
        report.begin(&step);
        let outcome = faults::run(&world, &step, &mut random).await;
        report.end(&step, outcome, &world);
        if let Some(violation) = oracle.violation() {
            report.ends(&violation, &world);
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..500))).await;
    }

    report.load = load.stop().await;
    let written = report.load;
    assert!(written.committed > 5 * length.as_secs(), "{written:?}");
    // Some 20 definitions and 6 large transactions a minute, fewer while the source is away.
    assert!(written.definitions.min(written.large) >= length.as_secs() / 60, "{written:?}");
    world.daemon().wait_drained(world.primary(), &servers.target, DRAIN).await;
    let samples = oracle.stop().await;
    let taken = samples.and_then(|samples| history::of(world.primary()).check(&samples));
    report.samples = taken.unwrap_or_else(|violation| report.ends(&violation, &world));
    compare(world.primary(), &servers.target).await;
    world.ends_well(&mut report).await;
    report.exits = world.exits();
    report.print();
    report.keep_logs(&world);
}

/// Returns one to three faults that can happen at the same time.
fn take_step(queue: &mut Vec<Kind>, random: &mut StdRng) -> Vec<Kind> {
    let wanted = [1, 1, 2, 2, 3][random.random_range(0..5)];
    let mut step: Vec<Kind> = queue.pop().into_iter().collect();
    let mut at = queue.len();
    while at > 0 && step.len() < wanted {
        at -= 1;
        if step.iter().all(|kind| kind.is_apart_from(queue[at])) {
            step.push(queue.remove(at));
        }
    }
    step
}
