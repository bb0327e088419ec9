//! A random load beside replicas of MySQL's own. They and targets of the daemon in several configurations
//! follow one source. Daemon and servers are killed in between, and at the end all have the same contents.
//!
//! Four seeds run at the same time, a round; twenty use the same tables, one round after the other, and
//! forty the same servers, a set. `CSA_BESIDE_SEEDS=1000` (or `100-300`) runs so many seeds. What failed is
//! repeated with the seeds that used the same tables. After a failure the next round has new servers.
//!
//! MySQL logs a few changes that no replica can apply (docs/coverage.md names them). A round in which a replica of
//! its own and the channels stop at the same transaction is counted, and is no failure: the seeds that follow take its
//! place.

mod faults;
mod set;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use csa_tests::Server;
use mysql_async::prelude::Queryable as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

use super::client::{Client, Shared};
use super::schema::Schema;
use super::{drop_triggers, make_tables};
use crate::seeds_from;
use faults::Fault;
use set::{COMMON, NotLevel, SLOTS, Set};

/// Seeds of every test run.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;
/// Seeds that use the same tables.
const SEEDS_OF_TABLES: u64 = 20;
/// Seeds for which one set of servers is used.
const SEEDS_OF_SET: u64 = 40;
const CLIENTS: u32 = 3;
/// Transactions of each client.
const TRANSACTIONS: u32 = 30;

#[tokio::test(flavor = "multi_thread")]
async fn a_random_load_arrives_as_on_the_servers_own_replicas() {
    let seeds = seeds_from("CSA_BESIDE_SEEDS", SEEDS);
    let mut failed = Vec::new();
    let (mut rounds, mut refused_by_all) = (0, 0);
    let mut current: Option<(u64, Arc<Set>)> = None;
    let mut first = seeds.start() - (seeds.start() - 1) % SLOTS;
    // As many rounds are compared as were asked for.
    while first <= seeds.end() + refused_by_all * SLOTS && refused_by_all <= 1 + rounds / 10 {
        let number = (first - 1) / SEEDS_OF_SET;
        let mut random = StdRng::seed_from_u64(first);
        // Old servers end before new ones start.
        let set = match current.take().filter(|(old, _)| *old == number) {
            Some((_, set)) => set,
            None => Arc::new(Set::start(number, &mut StdRng::seed_from_u64(number)).await),
        };
        let fault = Fault::any(&mut random);
        let last = first + SLOTS - 1;
        let running = tokio::spawn(round(Arc::clone(&set), first, fault)).await;
        match running.unwrap_or_else(|error| Err(NotLevel::Fault(panic_text(error)))) {
            Ok(report) => {
                println!("set {number}, seeds {first}-{last}: {report}");
                current = Some((number, set));
            }
            Err(NotLevel::RefusedByAll(why)) => {
                println!(
                    "set {number}, seeds {first}-{last}: MySQL's own replica stops too: {why}"
                );
                refused_by_all += 1;
            }
            Err(NotLevel::Fault(why)) => {
                let from = first - (first - 1) % SEEDS_OF_TABLES;
                println!(
                    "set {number}, seeds {first}-{last} FAILED ({fault:?}); again: \
                     CSA_BESIDE_SEEDS={from}-{last}\n{why}"
                );
                failed.push((first, why));
            }
        }
        first += SLOTS;
        rounds += 1;
    }
    // Otherwise the load is mostly what nobody can apply.
    assert!(refused_by_all <= 1 + rounds / 10, "{refused_by_all} of {rounds} rounds");
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

/// Runs the seeds from `first` on; returns a line about them.
async fn round(set: Arc<Set>, first: u64, fault: Fault) -> Result<String, NotLevel> {
    let mut schemas = std::mem::take(&mut *set.schemas.lock().expect("the schemas"));
    if (first - 1).is_multiple_of(SEEDS_OF_TABLES) || schemas.is_empty() {
        schemas.clear();
        for slot in 0..SLOTS {
            schemas.push(prepare(&set, first + slot, slot).await);
        }
    }
    let seeds = schemas.into_iter().zip(first..).map(|(schema, seed)| {
        let shared = Shared::new(seed, schema, &set.source, &set.targets[0].server);
        Arc::new(shared.with_common(COMMON))
    });
    let seeds: Arc<Vec<_>> = Arc::new(seeds.collect());
    let running = tokio::spawn(run(Arc::clone(&set), Arc::clone(&seeds), fault));
    let outcome = running.await.unwrap_or_else(|error| Err(NotLevel::Fault(panic_text(error))));
    let left = seeds.iter().map(|shared| shared.schema.lock().expect("a schema").clone());
    *set.schemas.lock().expect("the schemas") = left.collect();
    if outcome.is_err() {
        keep(&set, &seeds, first);
    }
    outcome
}

async fn run(
    set: Arc<Set>,
    seeds: Arc<Vec<Arc<Shared>>>,
    fault: Fault,
) -> Result<String, NotLevel> {
    let started = Instant::now();
    let transactions = load(&set, &seeds, fault).await.map_err(NotLevel::Fault)?;
    let loaded = started.elapsed();
    let level = set.wait_level().await?;
    if set.style.by_statements {
        drop_triggers(&set.source).await;
    }
    let differences = set.differences().await;
    if !differences.is_empty() {
        return Err(NotLevel::Fault(differences.join("\n")));
    }
    let sum = |value: fn(&Shared) -> &AtomicU64| -> u64 {
        seeds.iter().map(|shared| value(shared).load(Ordering::Relaxed)).sum()
    };
    if sum(|shared| &shared.worked) <= 200 {
        return Err(NotLevel::Fault("hardly any statement worked".to_owned()));
    }
    Ok(format!(
        "{fault:?}, {transactions} transactions, {} statements and {} refused, {:.1} s of load, level after \
         {level:.1?} s, {:.1} s in all",
        sum(|shared| &shared.worked),
        sum(|shared| &shared.refused),
        loaded.as_secs_f32(),
        started.elapsed().as_secs_f32()
    ))
}

/// Empties the seed's schema and makes its tables.
async fn prepare(set: &Set, seed: u64, slot: u64) -> Schema {
    let mut random = StdRng::seed_from_u64(seed);
    let name = set.schema(slot);
    let mut conn = set.source.conn().await;
    for statement in left_by_the_last(&set.source, &name).await {
        conn.query_drop(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let schema = Schema::any(&name, set.style, &mut random);
    make_tables(conn, schema, &mut random).await
}

/// Returns the statements that empty a schema without naming it.
async fn left_by_the_last(source: &Server, schema: &str) -> Vec<String> {
    let list = |kind: &str, from: &str| {
        format!(
            "SELECT CONCAT('DROP {kind} `', {from}_name, '`') FROM information_schema.{from}s WHERE {from}_schema='{schema}'"
        )
    };
    let mut conn = source.conn().await;
    let mut statements = vec![format!("USE {schema}"), "SET foreign_key_checks=0".to_owned()];
    for query in [
        format!("{} AND table_type='VIEW'", list("VIEW", "table")),
        format!("{} AND table_type<>'VIEW'", list("TABLE", "table")),
        format!("{} AND routine_type='PROCEDURE'", list("PROCEDURE", "routine")),
        format!("{} AND routine_type='FUNCTION'", list("FUNCTION", "routine")),
    ] {
        statements.extend(conn.query::<String, _>(query).await.expect("a list"));
    }
    let _ = conn.disconnect().await;
    statements
}

/// Runs all clients, and the fault meanwhile; returns the number of transactions.
async fn load(set: &Arc<Set>, seeds: &[Arc<Shared>], fault: Fault) -> Result<u64, String> {
    fault.before(set);
    let mut running = JoinSet::new();
    for shared in seeds {
        for number in 0..CLIENTS {
            let client = Client::start(Arc::clone(shared), number, &set.source).await;
            running.spawn(client.work(TRANSACTIONS));
        }
    }
    let ended = || seeds.iter().map(|shared| shared.ended.load(Ordering::Relaxed)).sum::<u64>();
    let wanted = SLOTS * u64::from(CLIENTS * TRANSACTIONS);
    fault.during(set, &|| ended() * 100 / wanted).await;
    while let Some(client) = running.join_next().await {
        client.map_err(|error| format!("a client: {}", panic_text(error)))?;
    }
    fault.after(set);
    Ok(ended())
}

fn panic_text(error: tokio::task::JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// Keeps what was run, and the daemon's log.
fn keep(set: &Set, seeds: &[Arc<Shared>], first: u64) {
    let kept = std::env::temp_dir().join(format!("csa-beside-{first}"));
    let log = kept.join("daemon.log");
    let all = seeds.iter().try_for_each(|shared| shared.keep(&kept));
    match all.and_then(|()| std::fs::write(&log, set.daemon.log())) {
        Ok(()) => println!("statements, binary logs and the daemon's log: {}", kept.display()),
        Err(error) => println!("keeping what was run in {}: {error}", kept.display()),
    }
}
