//! Idle mode: single transactions, of one row or of many, timed from their commit on the source until they show.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mysql_async::prelude::Queryable;
use serde::Serialize;

use super::options::Options;
use super::profile::Profile;
use super::stage::{Applier, Stage};
use super::statistics::Distribution;

/// A transaction that takes longer counts as lost; a large one has more time.
const LOST: Duration = Duration::from_secs(30);
/// The slowest applier that is waited for.
const ROWS_PER_SECOND: u64 = 5_000;

#[derive(Debug, Clone, Serialize)]
pub(super) struct IdleResult {
    pub(super) profile: Profile,
    pub(super) applier: Applier,
    pub(super) mta_workers: Option<u32>,
    pub(super) round: usize,
    pub(super) visible_after: Distribution,
}

/// Measures one applier after the other; the other one is stopped.
pub(super) async fn run(stage: &Stage, options: &Options) -> Result<Vec<IdleResult>> {
    stage.source.exec(&stage.profile.durability().statement()).await;
    let workers = options.middle_mta_workers();
    let mut results = Vec::new();
    let mut n = 0;
    for round in 1..=options.rounds() {
        for applier in [Applier::Mta, Applier::Csa] {
            stage.catch_up(applier, workers).await?;
            let seconds = time_singles(stage, applier, options, &mut n).await?;
            stage.stop(applier).await?;
            let result = IdleResult {
                profile: stage.profile,
                applier,
                mta_workers: (applier == Applier::Mta).then_some(workers),
                round,
                visible_after: Distribution::of(seconds),
            };
            println!("  {}", result.line());
            results.push(result);
        }
        stage.catch_up(Applier::Mta, workers).await?;
        stage.stop(Applier::Mta).await?;
        let schemas = if options.load.is_empty() { &["pulse"][..] } else { &["pulse", "sbtest"] };
        let compared = stage.compare(schemas).await?;
        println!("  EQUAL, {} tables, {} rows", compared.tables, compared.rows);
    }
    Ok(results)
}

/// `n` counts the transactions: the row's value on the source.
async fn time_singles(
    stage: &Stage,
    applier: Applier,
    options: &Options,
    n: &mut u64,
) -> Result<Vec<f64>> {
    let mut source = stage.source.conn().await;
    let mut target = stage.target(applier).conn().await;
    let mut seconds = Vec::with_capacity(options.samples);
    // They change in the same transaction as the row that is looked for.
    let rows = if options.load.is_empty() { 0 } else { options.sizes.bulk_rows };
    let lost = LOST + Duration::from_secs(rows / ROWS_PER_SECOND);
    for _ in 0..options.samples {
        tokio::time::sleep(Duration::from_millis(options.pause)).await;
        *n += 1;
        let single = format!("UPDATE pulse.single SET n={n} WHERE id=1");
        let transaction = match rows {
            0 => single,
            _ => format!(
                "BEGIN; UPDATE sbtest.sbtest1 SET c=CONCAT({n},'-',id) WHERE id<={rows}; {single}; COMMIT"
            ),
        };
        source.query_drop(transaction).await?;
        let committed = Instant::now();
        loop {
            let seen: Option<u64> = target.query_first("SELECT n FROM pulse.single").await?;
            if seen.context("the target has no row")? >= *n {
                break;
            }
            ensure!(committed.elapsed() < lost, "{} does not follow", applier.title());
        }
        seconds.push(committed.elapsed().as_secs_f64());
    }
    source.disconnect().await?;
    target.disconnect().await?;
    Ok(seconds)
}

impl IdleResult {
    fn line(&self) -> String {
        let Distribution { samples, p50_seconds, p99_seconds, max_seconds } = self.visible_after;
        format!(
            "round {}: {}: {samples} transactions visible after p50 {:.1} ms, p99 {:.1} ms, max \
             {:.1} ms",
            self.round,
            self.applier.title(),
            p50_seconds * 1e3,
            p99_seconds * 1e3,
            max_seconds * 1e3
        )
    }
}
