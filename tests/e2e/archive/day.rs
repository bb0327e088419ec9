//! A day's load, squeezed: hours without a transaction and bursts, batches, definitions, distributed transactions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csa_tests::{Load, LoadOptions, Server, prepare as prepare_load};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::sleep;

use super::others;

/// Schemas with a load of their own.
const SCHEMAS: [&str; 2] = ["sbtest", "night"];

fn options(schema: &str, seed: u64) -> LoadOptions {
    LoadOptions {
        schema: schema.to_owned(),
        rows: 300,
        tables: 2,
        clients: 4,
        rate: Some(200.0),
        seed,
        ..LoadOptions::default()
    }
}

pub(super) async fn prepare(source: &Server) {
    for schema in SCHEMAS {
        prepare_load(source, &options(schema, 1)).await;
    }
    others::prepare(source).await;
}

/// Writes until it is over; returns how often there was which kind of hour.
pub(super) async fn write(
    source: &Server,
    is_over: &AtomicBool,
    seed: u64,
) -> BTreeMap<&'static str, u32> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut hours = BTreeMap::new();
    let mut conn = source.conn().await;
    while !is_over.load(Ordering::Relaxed) {
        let span = Duration::from_millis(random.random_range(100..600));
        let schema = SCHEMAS[random.random_range(0..SCHEMAS.len())];
        let steady = options(schema, random.random());
        let hour = match random.random_range(0..10) {
            0 | 1 => {
                sleep(span).await;
                "idle"
            }
            2 | 3 => {
                Load::run(source, &LoadOptions { rate: None, ..steady }, span / 2).await;
                "burst"
            }
            4..=6 => {
                Load::run(source, &steady, span).await;
                "steady"
            }
            7 => {
                let last = random.random_range(50..250);
                let batch = format!(
                    "BEGIN; UPDATE {schema}.sbtest1 SET k=k+1; DELETE FROM {schema}.sbtest2 WHERE id>{last};\
                     INSERT INTO other.wide (b) VALUES (REPEAT('b', 1500000));\
                     INSERT INTO other.many (n) SELECT id FROM {schema}.sbtest1; COMMIT"
                );
                conn.query_drop(batch).await.expect("a batch");
                "batch"
            }
            8 => {
                for _ in 0..4 {
                    match conn.query_drop(others::statement(&mut random)).await {
                        Err(mysql_async::Error::Server(error)) if others::is_expected(&error) => {}
                        done => done.expect("a statement"),
                    }
                }
                "others"
            }
            _ => {
                distributed(&mut conn, &mut random, span).await;
                "distributed"
            }
        };
        *hours.entry(hour).or_default() += 1;
    }
    let _ = conn.disconnect().await;
    hours
}

/// A branch that is prepared for a while.
async fn distributed(conn: &mut Conn, random: &mut StdRng, span: Duration) {
    let (name, end) = (random.random::<u32>(), ["COMMIT", "ROLLBACK"][random.random_range(0..2)]);
    let row = random.random_range(1..1000);
    let begun = format!(
        "XA START 'b{name}'; INSERT INTO other.many (n) VALUES (1),(2); \
         UPDATE other.many SET n=n+1 WHERE id={row}; XA END 'b{name}'; XA PREPARE 'b{name}'"
    );
    conn.query_drop(begun).await.expect("a branch");
    sleep(span).await;
    conn.query_drop(format!("XA {end} 'b{name}'")).await.expect("the end of a branch");
}
