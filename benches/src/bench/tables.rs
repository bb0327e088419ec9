//! The tables of all loads, filled on the source.

use anyhow::Result;
use csa_tests::{LoadOptions, Server, prepare};
use mysql_async::prelude::Queryable;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::shape::{Shape, WIDE, wide_body};
use super::sizes::Sizes;

/// Wide rows per INSERT.
const WIDE_BATCH: u64 = 100;

/// Creates the tables of the loads; shared ones are made once.
pub(super) async fn fill(source: &Server, sizes: &Sizes, loads: &[Shape]) -> Result<()> {
    let needs = |schema| loads.iter().any(|load| load.schema() == schema);
    if needs("sbtest") {
        let options = LoadOptions {
            tables: sizes.tables,
            rows: sizes.rows,
            clients: 0,
            accounts: 0,
            seed: sizes.seed,
            ..LoadOptions::default()
        };
        prepare(source, &options).await;
    }
    if needs("wide") {
        fill_wide(source, sizes).await?;
    }
    if needs("families") {
        create_families(source).await;
    }
    source
        .exec(
            "CREATE DATABASE pulse; \
             CREATE TABLE pulse.heartbeat (id INT PRIMARY KEY, written BIGINT NOT NULL); \
             CREATE TABLE pulse.single (id INT PRIMARY KEY, n BIGINT NOT NULL); \
             INSERT INTO pulse.heartbeat VALUES (1,0); INSERT INTO pulse.single VALUES (1,0)",
        )
        .await;
    Ok(())
}

async fn fill_wide(source: &Server, sizes: &Sizes) -> Result<()> {
    let table = format!(
        "CREATE DATABASE wide; CREATE TABLE wide.page (id INT PRIMARY KEY, \
         body VARCHAR({WIDE}) CHARACTER SET ascii NOT NULL)"
    );
    source.exec(&table).await;
    let mut random = StdRng::seed_from_u64(sizes.seed);
    let mut conn = source.conn().await;
    for first in (1..=sizes.wide_rows).step_by(WIDE_BATCH as usize) {
        let last = sizes.wide_rows.min(first + WIDE_BATCH - 1);
        let rows: Vec<String> =
            (first..=last).map(|id| format!("({id},'{}')", wide_body(&mut random))).collect();
        conn.query_drop(format!("INSERT INTO wide.page VALUES {}", rows.join(","))).await?;
    }
    conn.disconnect().await?;
    Ok(())
}

async fn create_families(source: &Server) {
    source
        .exec(
            "CREATE DATABASE families; \
             CREATE TABLE families.parent (id BIGINT PRIMARY KEY, n INT NOT NULL, \
             changes INT NOT NULL DEFAULT 0); \
             CREATE TABLE families.child (id BIGINT PRIMARY KEY, parent_id BIGINT NOT NULL, \
             n INT NOT NULL, changes INT NOT NULL DEFAULT 0, CONSTRAINT of_parent FOREIGN KEY \
             (parent_id) REFERENCES families.parent (id) ON DELETE RESTRICT ON UPDATE RESTRICT)",
        )
        .await;
}
