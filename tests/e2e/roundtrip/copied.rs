//! Tables of every shape as a copy makes them, in chunks and in one snapshot, while their rows change.
//! `CSA_COPY_SHAPES_SEEDS=100-140` copies those of other seeds.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use csa_tests::{Compare, Daemon, Server};
use mysql_async::prelude::Queryable as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::task::JoinHandle;

use super::client::{Client, Shared};
use super::{dml, prepare, servers};
use crate::{DRAIN, seeds_from, wait_state};

/// Seeds of every test run.
const SEEDS: RangeInclusive<u64> = 101..=102;
/// Transactions that fill the tables.
const TRANSACTIONS: u32 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_every_shape_are_copied_while_rows_change() {
    let servers = servers();
    for seed in seeds_from("CSA_COPY_SHAPES_SEEDS", SEEDS) {
        for limit in ["0MiB", "1GiB"] {
            copied(&servers, seed, limit).await;
        }
    }
}

async fn copied(servers: &Arc<(Server, Server)>, seed: u64, limit: &str) {
    let (source, target) = (&servers.0, &servers.1);
    let began = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    let shared = prepare(servers, seed, false, &mut random).await;
    Client::start(Arc::clone(&shared), 0, source).await.work(TRANSACTIONS).await;
    make_json_plain(source, &shared).await;
    let daemon = Daemon::builder(source, target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", limit)
        .set("copy.lanes", 2)
        .build();
    let stop = Arc::new(AtomicBool::new(false));
    let changes = changes(source, &shared, &stop).await;
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    stop.store(true, Ordering::Relaxed);
    let changes = changes.await.expect("ends");
    daemon.wait_drained(source, target, DRAIN).await;
    let compared = Compare::new().run(source, target).await;
    let compared = compared.unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    println!(
        "seed {seed}, snapshots up to {limit}: {} tables, {} rows, {changes} changes, {:.1} s",
        compared.tables,
        compared.rows,
        began.elapsed().as_secs_f32()
    );
    daemon.terminate();
    // The next one begins with an empty target, and its channel with none of this one's rows.
    let schema = shared.with_schema(|schema| schema.name.clone());
    target.exec(&format!("SET sql_log_bin=0; DROP DATABASE {schema}; DROP DATABASE csa")).await;
}

/// JSON is copied as text, in which dates and bytes become strings (docs/provisioning.md).
async fn make_json_plain(source: &Server, shared: &Arc<Shared>) {
    let mut conn = source.conn().await;
    let schema = shared.with_schema(|schema| schema.name.clone());
    let columns = format!(
        "SELECT CONCAT('UPDATE {schema}.', table_name, ' SET ', column_name, '=CAST(CAST(', column_name, \
         ' AS CHAR) AS JSON)') FROM information_schema.columns WHERE table_schema='{schema}' \
         AND data_type='json' AND generation_expression=''"
    );
    let updates: Vec<String> = conn.query(columns).await.expect("a list");
    for update in updates {
        conn.query_drop(&update).await.unwrap_or_else(|error| panic!("{update}: {error}"));
    }
}

/// Changes rows until it is stopped; returns the number of statements that worked.
async fn changes(source: &Server, shared: &Arc<Shared>, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let mut conn = source.conn().await;
    let schema = shared.with_schema(|schema| schema.name.clone());
    for statement in [&format!("USE {schema}"), "SET sql_mode='', innodb_lock_wait_timeout=1"] {
        conn.query_drop(statement).await.expect("runs");
    }
    let (shared, stop) = (Arc::clone(shared), Arc::clone(stop));
    tokio::spawn(async move {
        let mut random = StdRng::seed_from_u64(shared.seed);
        let mut worked = 0;
        while !stop.load(Ordering::Relaxed) {
            for statement in shared.with_schema(|schema| dml::any(schema, &mut random)) {
                // See `make_json_plain`.
                if statement.to_uppercase().contains("JSON") {
                    continue;
                }
                // Duplicates and missing parents are part of it.
                worked += u64::from(conn.query_drop(statement).await.is_ok());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worked
    })
}
