//! Power losses on real machines: the disk of the target's servers, of the daemon, or of both, loses
//! at a random moment what the kernel has not written to it. Then its processes die, the disk comes
//! back, they start again, and source and target are compared.
//!
//! `CSA_POWER_ROUNDS` is the number of losses of each kind; unset, four kinds occur once. `CSA_POWER_SEED`
//! chooses them, moments and mount options, `CSA_POWER_KINDS` limits the kinds to names separated by
//! semicolons, and `CSA_POWER_REPORT` names a file for the table. A machine that permits no mounts can't
//! run it; then stderr says so.

mod kinds;
mod load;
mod report;
mod rounds;
mod world;

use std::io::Write as _;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::kinds::Kind;
use crate::report::Report;
use crate::world::World;

/// Kinds of one run, where no number of rounds is asked for: each takes some 15 s.
const UNASKED: usize = 4;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
}

/// Returns the kinds that `CSA_POWER_KINDS` names, otherwise all.
fn kinds() -> Vec<&'static Kind> {
    let Ok(names) = std::env::var("CSA_POWER_KINDS") else { return Kind::ALL.iter().collect() };
    let named = |name: &str| {
        let found = Kind::ALL.iter().find(|kind| kind.name == name.trim());
        found.unwrap_or_else(|| panic!("there is no kind named {name:?}"))
    };
    names.split(';').map(named).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow"]
async fn what_is_promised_to_be_durable_survives_a_power_loss_and_the_rest_is_applied_again() {
    let seed = number("CSA_POWER_SEED").unwrap_or_else(|| rand::rng().random_range(0..100_000));
    let rounds = number("CSA_POWER_ROUNDS");
    let mut random = StdRng::seed_from_u64(seed);
    let mut kinds = kinds();
    if rounds.is_none() {
        kinds.shuffle(&mut random);
        kinds.truncate(UNASKED);
    }
    println!("power: seed {seed}, {} rounds", rounds.unwrap_or(1));
    let mut world = match World::start(&mut random).await {
        Ok(world) => world,
        Err(why) => {
            // Not println: the output of a test that passes is not shown.
            let _ = writeln!(
                std::io::stderr(),
                "\nNOT RUN: losses of power (tests/power): this machine permits no ext4 in a loop \
                 device, which needs root: {why}\n"
            );
            return;
        }
    };
    let mut report = Report::new(seed);
    for round in 0..rounds.unwrap_or(1) {
        for kind in &kinds {
            println!("round {round}: {}", kind.name);
            let outcomes = rounds::run(&mut world, kind, &mut random).await;
            report.add(kind, outcomes);
        }
    }
    report.print();
    // A single loss of each kind may take nothing by chance.
    if rounds.is_some() {
        report.check();
    }
}
