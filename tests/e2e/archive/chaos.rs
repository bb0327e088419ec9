//! Chaos on both sides of an archive: the servers, the daemons, the relay store and the archive's own place fail under
//! load. At the end, and now and then before it, every file of the archive is read by mysqlbinlog, and holds with the
//! gaps that the archive reports exactly what the source has committed.
//!
//! `CSA_ARCHIVE_CHAOS_SECONDS` is the length (15), `CSA_ARCHIVE_CHAOS_SEED` chooses faults (not their timing), and
//! `CSA_ARCHIVE_CHAOS_KEEP` names a folder for logs and archive after a failure.

mod binlog;
mod faults;
mod judge;
mod store;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::Rng as _;
use rand::seq::SliceRandom as _;

use super::{folder, view};
use faults::Kind;
use judge::judge;
pub(crate) use store::Store;
use world::World;

/// Time between two judgements.
const CHECKPOINT: Duration = Duration::from_secs(300);
/// Rounds after which the source is reset.
const ROUNDS: usize = 3;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn whatever_fails_the_archive_has_everything_or_says_what_it_lacks() {
    run(Store::directory()).await;
}

/// Lets everything fail for a while, and judges.
pub(crate) async fn run(store: Store) {
    let seed =
        number("CSA_ARCHIVE_CHAOS_SEED").unwrap_or_else(|| rand::rng().random_range(0..100_000));
    let length = Duration::from_secs(number("CSA_ARCHIVE_CHAOS_SECONDS").unwrap_or(15));
    println!("archive chaos: seed {seed}, {length:?}");
    let mut world = World::start(store, seed).await;
    world.recovered("the start").await;
    let (begun, mut judged, mut round) = (Instant::now(), Instant::now(), 0);
    let mut queue: Vec<Kind> = Vec::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    while begun.elapsed() < length {
        let Some(kind) = queue.pop() else {
            queue.extend(Kind::ROUND);
            round += 1;
            if round % ROUNDS == 0 {
                queue.push(Kind::Reset);
            }
            queue.shuffle(&mut world.random);
            continue;
        };
        let at = Instant::now();
        let Some(how) = faults::run(&mut world, kind).await else { continue };
        world.recovered(&format!("{kind:?} {how}")).await;
        println!("{:>6.1} {kind:?} {how}: {:.1?}", begun.elapsed().as_secs_f32(), at.elapsed());
        *counts.entry(format!("{kind:?}")).or_default() += 1;
        if judged.elapsed() > CHECKPOINT {
            world.write_no_more().await;
            judge(&mut world, false).await;
            world.write();
            judged = Instant::now();
            println!("{:>6.1} judged: {}", begun.elapsed().as_secs_f32(), world.judge.totals());
        }
        let pause = world.random.random_range(0..700);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    world.write_no_more().await;
    judge(&mut world, true).await;
    let (World { committed, others, exits, judge, .. }, seconds) =
        (&world, begun.elapsed().as_secs());
    println!("{seconds} s: {counts:?}; the daemon ended {exits} times on its own");
    println!("{committed} transactions of the clients, {others} other statements");
    println!("{} judgements, {} restores, {}", judge.judgements, judge.restores, judge.totals());
}
