//! Drain mode: the same backlog for both appliers, in turn.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use csa_tests::Compared;
use serde::Serialize;
use tokio::task::block_in_place;

use super::csa::{self, CsaDrain};
use super::flame::Recording;
use super::load::{Load, Writer};
use super::mta::{self, MtaDrain};
use super::options::Options;
use super::producer::Produced;
use super::profile::{Durability, Profile};
use super::stage::{Applier, Stage};
use super::statistics::{Spread, median};

/// The result of a load under a profile.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DrainResult {
    pub(super) profile: Profile,
    pub(super) load: Load,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The load was refused by csa-daemon with this error.
    Refused(String),
    Measured(Box<Measured>),
}

/// Medians over the rounds beside the best worker count; memory and commits of all rounds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Measured {
    pub(super) mta_best_workers: u32,
    pub(super) mta_tps: f64,
    pub(super) mta_tps_by_workers: BTreeMap<u32, f64>,
    pub(super) csa_tps: f64,
    pub(super) csa_apply_tps: f64,
    pub(super) ratio: f64,
    pub(super) ratio_spread: Spread,
    /// The time from the start of the process until applied transactions first showed.
    pub(super) csa_start_seconds: f64,
    pub(super) csa_daemon_cpu_seconds_per_million_rows: f64,
    pub(super) csa_daemon_page_faults_per_thousand_rows: f64,
    pub(super) csa_target_cpu_seconds_per_million_rows: f64,
    pub(super) mta_target_cpu_seconds_per_million_rows: f64,
    pub(super) daemon_peak_rss_bytes: u64,
    pub(super) target_commits_per_source_transaction: f64,
    pub(super) rounds: Vec<Round>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Turn {
    pub(super) round: usize,
    pub(super) mta_workers: u32,
    pub(super) csa_first: bool,
}

/// One backlog, drained by both.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Round {
    #[serde(flatten)]
    pub(super) turn: Turn,
    pub(super) backlog: Produced,
    pub(super) mta_seconds: f64,
    pub(super) mta_tps: f64,
    pub(super) mta_target_cpu_seconds: f64,
    pub(super) csa_seconds: f64,
    pub(super) csa_tps: f64,
    pub(super) csa_apply_tps: Option<f64>,
    pub(super) csa_start_seconds: Option<f64>,
    pub(super) csa_daemon_cpu_seconds: f64,
    pub(super) csa_daemon_page_faults: f64,
    pub(super) csa_target_cpu_seconds: f64,
    pub(super) csa_daemon_peak_rss_bytes: u64,
    pub(super) csa_transactions: u64,
    pub(super) csa_groups: u64,
    pub(super) tables_compared: u64,
    pub(super) rows_compared: u64,
}

/// Drains a load with every worker count in every round.
pub(super) async fn run(stage: &Stage, load: &Load, options: &Options) -> Result<DrainResult> {
    stage.source.exec(&Durability::NONE.statement()).await;
    let mut writer = load.writer(options);
    let transactions = match options.sizes.transactions {
        Some(_) => load.backlog(&options.sizes),
        None => long_enough(stage, load, &mut writer, options).await?,
    };
    let mut rounds = Vec::new();
    for round in 1..=options.rounds() {
        for (index, workers) in options.mta_workers().iter().enumerate() {
            // The first one alternates, so that a machine that slows down slows both.
            let csa_first = (round + index) % 2 == 0;
            let turn = Turn { round, mta_workers: *workers, csa_first };
            let drained = drain_one(stage, load, &mut writer, transactions, turn).await?;
            println!("  {}", drained.line());
            rounds.push(drained);
        }
    }
    let measured = Box::new(Measured::of(rounds));
    if let Some(folder) = &options.flame {
        let backlog = (transactions, measured.mta_best_workers);
        draw_flames(stage, load, &mut writer, backlog, folder).await?;
    }
    Ok(DrainResult {
        profile: stage.profile,
        load: load.clone(),
        outcome: Outcome::Measured(measured),
    })
}

/// Returns the transactions of a backlog that takes both appliers long enough, from two trials that also warm the
/// targets. The second one is larger, because the start of a process is most of a short drain.
async fn long_enough(
    stage: &Stage,
    load: &Load,
    writer: &mut Writer,
    options: &Options,
) -> Result<u64> {
    let turn = Turn { round: 0, mta_workers: options.middle_mta_workers(), csa_first: false };
    let mut transactions = load.backlog(&options.sizes).div_ceil(4);
    for share in [4, 1] {
        let trial = drain_one(stage, load, writer, transactions, turn).await?;
        println!("  trial, {}", trial.line());
        transactions = (trial.long_enough(options) / share).max(1);
    }
    Ok(transactions)
}

/// In a binary log of its own: a source reads its log from the beginning to find where a replica resumes, and
/// that takes the longer the more backlogs are in it.
async fn write_backlog(stage: &Stage, writer: &mut Writer, transactions: u64) -> Result<Produced> {
    stage.source.exec("FLUSH BINARY LOGS").await;
    writer.backlog(&stage.source, transactions).await
}

/// One more backlog, drained by each applier while the processors are sampled.
async fn draw_flames(
    stage: &Stage,
    load: &Load,
    writer: &mut Writer,
    (transactions, mta_workers): (u64, u32),
    folder: &Path,
) -> Result<()> {
    write_backlog(stage, writer, transactions).await?;
    let servers = [
        (stage.source.pid(), "source"),
        (stage.mta.pid(), "target of the server's own applier"),
        (stage.csa.pid(), "target"),
    ];
    for applier in [Applier::Mta, Applier::Csa] {
        let mut roles = BTreeMap::from(servers);
        let recording = block_in_place(|| Recording::start(folder))?;
        let applier = match applier {
            Applier::Mta => {
                mta::drain(stage, mta_workers).await?;
                "mta"
            }
            Applier::Csa => {
                roles.insert(csa::drain(stage).await?.daemon, "csa-daemon");
                "csa-daemon"
            }
        };
        let name = format!("{}-{}-{applier}", load.name(), stage.profile.name());
        let path = block_in_place(|| recording.finish(&name, &roles))?;
        println!("  {}", path.display());
    }
    stage.compare(&[load.schema()]).await.map(drop)
}

async fn drain_one(
    stage: &Stage,
    load: &Load,
    writer: &mut Writer,
    transactions: u64,
    turn: Turn,
) -> Result<Round> {
    let backlog = write_backlog(stage, writer, transactions).await?;
    let (mta, csa) = if turn.csa_first {
        let csa = csa::drain(stage).await?;
        (mta::drain(stage, turn.mta_workers).await?, csa)
    } else {
        (mta::drain(stage, turn.mta_workers).await?, csa::drain(stage).await?)
    };
    // A transaction that changes nothing never reaches the appliers.
    ensure!(
        csa.transactions == backlog.transactions,
        "{} transactions were written and {} applied",
        backlog.transactions,
        csa.transactions
    );
    let compared = stage.compare(&[load.schema()]).await?;
    Ok(Round::of(turn, backlog, mta, csa, compared))
}

impl Round {
    fn of(turn: Turn, backlog: Produced, mta: MtaDrain, csa: CsaDrain, compared: Compared) -> Self {
        let transactions = backlog.transactions as f64;
        Self {
            turn,
            backlog,
            mta_seconds: mta.seconds,
            mta_tps: transactions / mta.seconds,
            mta_target_cpu_seconds: mta.target_cpu_seconds,
            csa_seconds: csa.seconds,
            csa_tps: transactions / csa.seconds,
            csa_apply_tps: csa.apply_rate,
            csa_start_seconds: csa.start_seconds,
            csa_daemon_cpu_seconds: csa.daemon_cpu_seconds,
            csa_daemon_page_faults: csa.daemon_page_faults,
            csa_target_cpu_seconds: csa.target_cpu_seconds,
            csa_daemon_peak_rss_bytes: csa.daemon_peak_rss_bytes,
            csa_transactions: csa.transactions,
            csa_groups: csa.groups,
            tables_compared: compared.tables,
            rows_compared: compared.rows,
        }
    }

    fn line(&self) -> String {
        format!(
            "round {}: {} transactions; server's own applier, {} workers: {:.0} TPS; csa-daemon: \
             {:.0} TPS; EQUAL, {} tables, {} rows",
            self.turn.round,
            self.backlog.transactions,
            self.turn.mta_workers,
            self.mta_tps,
            self.csa_tps,
            self.tables_compared,
            self.rows_compared
        )
    }

    /// Returns the transactions of a backlog that would have taken both appliers long enough.
    fn long_enough(&self, options: &Options) -> u64 {
        let mta = self.mta_tps * options.mta_seconds;
        let csa = self.csa_tps * options.csa_seconds;
        mta.max(csa) as u64
    }

    fn per_million_rows(&self, figure: f64) -> f64 {
        figure * 1e6 / self.backlog.row_changes as f64
    }
}

impl Measured {
    fn of(rounds: Vec<Round>) -> Self {
        let mta_tps_by_workers = tps_by_workers(&rounds);
        let (mta_best_workers, mta_tps) = mta_tps_by_workers
            .iter()
            .map(|(workers, tps)| (*workers, *tps))
            .max_by(|left, right| left.1.total_cmp(&right.1))
            .unwrap_or_default();
        let of_best = || rounds.iter().filter(|round| round.turn.mta_workers == mta_best_workers);
        // Both medians are over the same rounds, so that the ratio lies within its spread.
        let over = |figure: fn(&Round) -> f64| median(of_best().map(figure));
        let csa_tps = over(|round| round.csa_tps);
        let groups: u64 = rounds.iter().map(|round| round.csa_groups).sum();
        let transactions: u64 = rounds.iter().map(|round| round.csa_transactions).sum();
        Self {
            mta_best_workers,
            mta_tps,
            mta_tps_by_workers,
            csa_tps,
            csa_apply_tps: median(of_best().filter_map(|round| round.csa_apply_tps)),
            ratio: csa_tps / mta_tps,
            ratio_spread: Spread::of(of_best().map(|round| round.csa_tps / round.mta_tps)),
            csa_start_seconds: median(of_best().filter_map(|round| round.csa_start_seconds)),
            csa_daemon_cpu_seconds_per_million_rows: over(|round| {
                round.per_million_rows(round.csa_daemon_cpu_seconds)
            }),
            csa_daemon_page_faults_per_thousand_rows: over(|round| {
                round.per_million_rows(round.csa_daemon_page_faults) / 1e3
            }),
            csa_target_cpu_seconds_per_million_rows: over(|round| {
                round.per_million_rows(round.csa_target_cpu_seconds)
            }),
            mta_target_cpu_seconds_per_million_rows: over(|round| {
                round.per_million_rows(round.mta_target_cpu_seconds)
            }),
            daemon_peak_rss_bytes: rounds
                .iter()
                .map(|round| round.csa_daemon_peak_rss_bytes)
                .max()
                .unwrap_or_default(),
            target_commits_per_source_transaction: groups as f64 / transactions.max(1) as f64,
            rounds,
        }
    }
}

/// Returns the median of each worker count.
fn tps_by_workers(rounds: &[Round]) -> BTreeMap<u32, f64> {
    let tps = |workers| {
        let same = rounds.iter().filter(|round| round.turn.mta_workers == workers);
        median(same.map(|round| round.mta_tps))
    };
    let workers = rounds.iter().map(|round| round.turn.mta_workers);
    workers.map(|workers| (workers, tps(workers))).collect()
}
