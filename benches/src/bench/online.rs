//! Online mode: the lag of each applier while the source is being written to.
//!
//! The measure is the same for both: the time is written to a row of the source every 50 ms, and read
//! on the target at random moments. An applier without lag has half of that interval as its median.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use csa_tests::Server;
use mysql_async::prelude::Queryable;
use serde::Serialize;
use tokio::task::block_in_place;
use tokio::time::{MissedTickBehavior, interval};

use super::options::Options;
use super::producer::{Produced, Producer};
use super::profile::Profile;
use super::shape::Shape;
use super::stage::{Applier, Stage};
use super::statistics::Distribution;
use crate::topology::Sample;

/// The interval of heartbeats and of samples.
const INTERVAL: Duration = Duration::from_millis(50);

/// The result of a load with one applier.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OnlineResult {
    pub(super) profile: Profile,
    pub(super) load: Shape,
    pub(super) applier: Applier,
    pub(super) mta_workers: Option<u32>,
    pub(super) round: usize,
    pub(super) source: Produced,
    pub(super) source_tps: f64,
    pub(super) lag: Distribution,
    /// As csa-daemon reports it.
    pub(super) reported_lag: Option<Distribution>,
    /// Seconds from the end of the load until nothing was left.
    pub(super) drained_after_seconds: f64,
}

/// Measures one applier after the other, so that neither slows the other.
pub(super) async fn run(
    stage: &Stage,
    load: Shape,
    options: &Options,
) -> Result<Vec<OnlineResult>> {
    stage.source.exec(&stage.profile.durability().statement()).await;
    let mut producer = Producer::new(load, &options.sizes, options.clients);
    let mut results = Vec::new();
    for round in 1..=options.rounds() {
        let mut appliers = [Applier::Mta, Applier::Csa];
        if round % 2 == 0 {
            appliers.reverse();
        }
        for applier in appliers {
            let mut result = follow(stage, applier, load, &mut producer, options).await?;
            result.round = round;
            println!("  {}", result.line());
            results.push(result);
        }
        // Each has missed the writes made for the other.
        for applier in appliers {
            stage.catch_up(applier, options.middle_mta_workers()).await?;
            stage.stop(applier).await?;
        }
        let compared = stage.compare(&[load.schema(), "pulse"]).await?;
        println!("  EQUAL, {} tables, {} rows", compared.tables, compared.rows);
    }
    Ok(results)
}

async fn follow(
    stage: &Stage,
    applier: Applier,
    load: Shape,
    producer: &mut Producer,
    options: &Options,
) -> Result<OnlineResult> {
    let workers = options.middle_mta_workers();
    stage.catch_up(applier, workers).await?;
    let mut lags = Lags::default();
    let length = Duration::from_secs(options.seconds);
    let source = tokio::select! {
        source = producer.write_for(&stage.source, length, options.rate) => source?,
        failure = beat(&stage.source) => return Err(failure),
        failure = sample(stage, applier, &mut lags) => return Err(failure),
    };
    let ended = std::time::Instant::now();
    stage.wait_applied(applier).await?;
    let drained_after_seconds = ended.elapsed().as_secs_f64();
    stage.stop(applier).await?;
    let is_csa = applier == Applier::Csa;
    Ok(OnlineResult {
        profile: stage.profile,
        load,
        applier,
        mta_workers: (!is_csa).then_some(workers),
        round: 0,
        source,
        source_tps: source.rate(),
        lag: Distribution::of(lags.seen),
        reported_lag: is_csa.then(|| Distribution::of(lags.reported)),
        drained_after_seconds,
    })
}

/// Writes the time on the source until it fails.
async fn beat(source: &Server) -> anyhow::Error {
    let mut conn = source.conn().await;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let update = format!("UPDATE pulse.heartbeat SET written={} WHERE id=1", now_micros());
        if let Err(error) = conn.query_drop(update).await {
            return error.into();
        }
    }
}

/// Lags in seconds.
#[derive(Debug, Default)]
struct Lags {
    seen: Vec<f64>,
    reported: Vec<f64>,
}

/// Takes samples until that fails.
async fn sample(stage: &Stage, applier: Applier, lags: &mut Lags) -> anyhow::Error {
    // The first heartbeats have to arrive before their age means anything.
    tokio::time::sleep(INTERVAL * 10).await;
    let mut conn = stage.target(applier).conn().await;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        // In step with the heartbeats, all samples would find them at the same age.
        tokio::time::sleep(INTERVAL.mul_f64(rand::random::<f64>())).await;
        let written = conn.query_first::<u64, _>("SELECT written FROM pulse.heartbeat").await;
        match written {
            Ok(Some(written)) => {
                lags.seen.push(now_micros().saturating_sub(written) as f64 / 1e6);
            }
            Ok(None) => return anyhow::anyhow!("the target has no heartbeat"),
            Err(error) => return error.into(),
        }
        if applier == Applier::Csa {
            let sample = block_in_place(|| Sample::take(&stage.daemon));
            lags.reported.extend(sample.and_then(|sample| sample.lag_seconds));
        }
    }
}

fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}

impl OnlineResult {
    fn line(&self) -> String {
        format!(
            "round {}: {}: source {:.0} TPS, lag p50 {:.3} s, p99 {:.3} s, max {:.3} s; drained \
             {:.1} s after the load",
            self.round,
            self.applier.title(),
            self.source_tps,
            self.lag.p50_seconds,
            self.lag.p99_seconds,
            self.lag.max_seconds,
            self.drained_after_seconds
        )
    }
}
