//! The options of the command line.

use std::path::PathBuf;

use clap::builder::RangedI64ValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::profile::Profile;
use super::script::Script;
use super::shape::Shape;
use super::sizes::Sizes;

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// The measurement to make.
    #[arg(long, value_enum, default_value_t = Mode::Drain)]
    pub(super) mode: Mode,
    /// Loads, separated by commas or named by several --load; all of them unless named.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) load: Vec<Shape>,
    /// Profiles, separated by commas or named by several --profile.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "default")]
    pub(super) profile: Vec<Profile>,
    /// Rounds; medians count. Drain mode takes 5, the others 1, unless set.
    #[arg(long)]
    rounds: Option<usize>,
    /// Workers of the server's own applier, tried one after the other; the best result counts.
    /// Online and idle mode take the one in the middle of the list.
    #[arg(long, value_delimiter = ',', default_value = "4,16,64", value_parser = workers())]
    mta_workers: Vec<u32>,
    /// Only 16 workers of the server's own applier.
    #[arg(long)]
    quick: bool,
    /// Another value of a key of csa-daemon's channel, such as applier.worker_count=16.
    #[arg(long = "csa", value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub(super) daemon_keys: Vec<(String, String)>,
    /// An option of mysqld for both targets, such as --target-option=--table-open-cache=40000.
    #[arg(long = "target-option", value_name = "OPTION", allow_hyphen_values = true)]
    pub(super) target_options: Vec<String>,
    /// Time in milliseconds that each round trip between csa-daemon and its target takes longer.
    #[arg(long, default_value_t = 0.0, value_name = "MS", value_parser = up_to(1000.0))]
    pub(super) round_trip: f64,
    /// Also draw a flame graph of one more drain by each applier into this folder (drain mode; needs perf).
    #[arg(long, value_name = "FOLDER")]
    pub(super) flame: Option<PathBuf>,
    /// Let csa-daemon reach its target through the socket of the host.
    #[arg(long, conflicts_with = "round_trip")]
    pub(super) socket: bool,
    #[command(flatten)]
    pub(super) sizes: Sizes,
    /// Seconds that the server's own applier needs at least for a backlog (drain mode).
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = up_to(600.0))]
    pub(super) mta_seconds: f64,
    /// Seconds that csa-daemon needs at least for a backlog (drain mode).
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = up_to(600.0))]
    pub(super) csa_seconds: f64,
    /// Sessions that produce a backlog (drain mode).
    #[arg(long, default_value_t = 16, value_parser = sessions())]
    pub(super) producers: u32,
    /// Sessions that write while the appliers follow (online mode).
    #[arg(long, default_value_t = 64, value_parser = sessions())]
    pub(super) clients: u32,
    /// How long to write to the source for each applier (online mode).
    #[arg(long, default_value_t = 20)]
    pub(super) seconds: u64,
    /// Transactions per second on the source; as fast as possible unless set (online mode).
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Single transactions timed for each applier (idle mode).
    #[arg(long, default_value_t = 200)]
    pub(super) samples: usize,
    /// Pause between two of them in milliseconds (idle mode).
    #[arg(long, default_value_t = 25)]
    pub(super) pause: u64,
    /// Scripts of sysbench instead of the loads, unless there are none.
    #[arg(skip)]
    pub(super) scripts: Vec<Script>,
    /// The program that runs them.
    #[arg(skip)]
    pub(super) sysbench: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// Transactions per second while draining a backlog.
    Drain,
    /// Lag while the source is being written to.
    Online,
    /// Time from a single commit on the source until it shows on the target.
    Idle,
}

impl Mode {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Options {
    pub(super) fn mta_workers(&self) -> &[u32] {
        if self.quick { &[16] } else { &self.mta_workers }
    }

    pub(super) fn middle_mta_workers(&self) -> u32 {
        let workers = self.mta_workers();
        workers.get(workers.len() / 2).copied().unwrap_or(16)
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.mode == Mode::Drain { 5 } else { 1 }).max(1)
    }
}

fn workers() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1024)
}

/// The session counts that the servers of a run accept.
fn sessions() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=300)
}

fn key_and_value(text: &str) -> std::result::Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Returns a parser of numbers from 0 to `most`.
fn up_to(
    most: f64,
) -> impl Fn(&str) -> std::result::Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value: f64 = text.parse().map_err(|error| format!("{error}"))?;
        let is_possible = (0.0..=most).contains(&value);
        is_possible.then_some(value).ok_or_else(|| format!("expected 0 to {most}"))
    }
}
