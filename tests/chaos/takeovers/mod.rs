//! Takeovers: two daemons stand by for each other under load for as long as wanted, while the one that has
//! the channel is killed, stopped, stalled and cut off, and what it stands on fails.
//!
//! `CSA_TAKEOVER_SECONDS` is the length (30), `CSA_CHAOS_SEED` chooses faults, `CSA_TAKEOVER_KINDS` limits
//! them to names separated by commas, and the report is beside that which `CSA_CHAOS_REPORT` names.

mod cost;
mod fault;
mod hosts;
mod mark;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_tests::compare;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::oracle::Oracle;
use crate::takeovers::fault::Fault;
use crate::takeovers::hosts::Hosts;
use crate::takeovers::table::Table;
use crate::{ALONE, DRAIN, history, load, named, number};

/// The time between two faults in which the standby's cost is measured.
const QUIET: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "slow"]
async fn whatever_befalls_the_one_that_has_the_channel_the_other_continues() {
    let _alone = ALONE.lock().await;
    let seed = number("CSA_CHAOS_SEED").unwrap_or_else(|| rand::rng().random_range(0..100_000));
    let length = Duration::from_secs(number("CSA_TAKEOVER_SECONDS").unwrap_or(30));
    println!("takeovers: seed {seed}, {length:?}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut hosts = Hosts::start(&mut random).await;
    let servers = Arc::clone(&hosts.servers);
    let load = load::Load::start(&servers, random.random());
    let oracle = Oracle::start(&servers);
    let mut table = Table::new(seed);

    let started = Instant::now();
    let mut queue: Vec<Fault> = Vec::new();
    while started.elapsed() < length {
        if queue.is_empty() {
            queue = named("CSA_TAKEOVER_KINDS", &Fault::ALL, Fault::name);
            queue.shuffle(&mut random);
        }
        let Some(fault) = queue.pop() else { break };
        table.begin(fault);
        let outcome = hosts.suffer(fault, &mut random).await;
        let outcome =
            outcome.unwrap_or_else(|why| table.ends(&format!("{fault:?}: {why}"), &hosts));
        table.end(fault, outcome);
        table.cost.add(&hosts.watch(QUIET).await);
        if let Some(violation) = oracle.violation() {
            table.ends(&violation, &hosts);
        }
    }

    table.load = load.stop().await;
    assert!(table.load.committed > 5 * length.as_secs(), "{:?}", table.load);
    hosts.active().wait_drained(servers.primary(), &servers.target, DRAIN).await;
    let samples = oracle.stop().await;
    let taken = samples.and_then(|samples| history::of(servers.primary()).check(&samples));
    table.samples = taken.unwrap_or_else(|violation| table.ends(&violation, &hosts));
    compare(servers.primary(), &servers.target).await;
    hosts.end_well().await;
    table.print();
    table.keep_logs(&hosts);
    table.judge();
}
