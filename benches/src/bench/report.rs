//! The report at the end of a run, and the files with its results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::chart;
use super::drain::{DrainResult, Measured, Outcome};
use super::idle::IdleResult;
use super::load::Load;
use super::online::OnlineResult;
use super::options::{Mode, Options};
use super::profile::{Durability, Profile};
use super::stage::Versions;
use super::table::Table;

/// Everything that was measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Results {
    pub(super) versions: Option<Versions>,
    /// Profiles that csa-daemon refuses, and why.
    pub(super) refused: Vec<(Profile, String)>,
    /// Rows of every table, at the end.
    pub(super) source_rows: Vec<(Profile, BTreeMap<String, u64>)>,
    pub(super) drain: Vec<DrainResult>,
    pub(super) online: Vec<OnlineResult>,
    pub(super) idle: Vec<IdleResult>,
}

impl Results {
    pub(super) fn print(&self, options: &Options) {
        let tables = [
            (!self.drain.is_empty()).then(|| drain_table(&self.drain)),
            (!self.online.is_empty()).then(|| online_table(&self.online)),
            (!self.idle.is_empty()).then(|| idle_table(&self.idle)),
        ];
        for table in tables.into_iter().flatten() {
            println!("\n{table}\n{}", measure(options));
        }
        for (profile, why) in &self.refused {
            println!("{}: refused: {why}", profile.name());
        }
    }

    /// Writes the files and prints their paths.
    pub(super) fn save(&self, options: &Options, loads: &[Load]) -> Result<()> {
        let directory = directory()?;
        std::fs::create_dir_all(&directory)?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let stem = format!("{}-{seconds}", options.mode.name());
        let mut text = serde_json::to_string_pretty(&self.json(options, loads, seconds))?;
        text.push('\n');
        save(&directory.join(format!("{stem}.json")), &text)?;
        if self.drain.iter().any(|result| result.outcome.measured().is_some()) {
            save(&directory.join(format!("{stem}.svg")), &chart::ratios(&self.drain))?;
        }
        Ok(())
    }

    fn json(&self, options: &Options, loads: &[Load], seconds: u64) -> Value {
        let mut settings = json!({
            "mode": options.mode,
            "sizes": options.sizes,
            "loads": loads,
            "profiles": options.profile,
            "rounds": options.rounds(),
            "mta_workers": options.mta_workers(),
            "csa_keys": options.daemon_keys,
            "target_options": options.target_options,
            "socket": options.socket,
            "round_trip_milliseconds": options.round_trip,
        });
        let more = match options.mode {
            Mode::Drain => json!({
                "mta_seconds": options.mta_seconds,
                "csa_seconds": options.csa_seconds,
                "producers": options.producers,
                "source_durability_while_producing": Durability::NONE,
            }),
            Mode::Online => json!({
                "clients": options.clients,
                "seconds": options.seconds,
                "rate": options.rate,
            }),
            Mode::Idle => json!({
                "samples": options.samples,
                "pause_milliseconds": options.pause,
            }),
        };
        if let (Some(settings), Value::Object(more)) = (settings.as_object_mut(), more) {
            settings.extend(more);
        }
        json!({
            "unix_time": seconds,
            "machine": machine(),
            "settings": settings,
            "results": self,
        })
    }
}

fn machine() -> Value {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory = read("/proc/meminfo");
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model.map(|(_, name)| name),
        "memory": total.map(str::trim),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}

/// Returns `bench`, next to the build profile's directory that holds this program.
fn directory() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.parent().and_then(Path::parent).context("this program lies nowhere")?;
    Ok(target.join("bench"))
}

fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    let here = std::env::current_dir().unwrap_or_default();
    println!("{}", path.strip_prefix(here).unwrap_or(path).display());
    Ok(())
}

/// How the figures were measured.
fn measure(options: &Options) -> String {
    let rounds = options.rounds();
    match options.mode {
        Mode::Drain => format!(
            "Medians of {rounds} round(s), in parentheses the smallest and the largest ratio of a \
             round. MTA is the server's own applier at its best of {:?} workers; its relay log is complete before its clock starts. The clock of csa TPS and \
             of the ratio starts with the process: reception and spooling included; apply alone \
             counts from the first transaction that shows as applied, and start is the time until then. \
             CPU includes reception on \
             both sides. Backlogs were produced with sync_binlog=0 and \
             innodb_flush_log_at_trx_commit=0 on the source.",
            options.mta_workers()
        ),
        Mode::Online => format!(
            "Lag is the age of a row written on the source every 50 ms, read on the target at \
             random moments (25 ms in the median without any lag); {} \
             sessions wrote for {} s beside each applier, with the durability of the profile on \
             the source too.",
            options.clients, options.seconds
        ),
        Mode::Idle => "From the answer to COMMIT on the source until a session that polls the \
                       target without pause sees the row."
            .into(),
    }
}

fn drain_table(results: &[DrainResult]) -> Table {
    let mut table = Table::new(&[
        "load",
        "profile",
        "MTA TPS (workers)",
        "csa TPS",
        "ratio",
        "csa TPS, apply alone",
        "csa start, s",
        "CPU s per 1M rows: MTA mysqld",
        "csa mysqld",
        "csa-daemon",
        "its page faults per 1,000 rows",
        "csa-daemon peak RSS",
        "target commits per transaction",
    ]);
    for DrainResult { profile, load, outcome } in results {
        let start = vec![load.name(), profile.name()];
        table.row([start, outcome.cells()].concat());
    }
    table
}

impl Outcome {
    pub(super) fn measured(&self) -> Option<&Measured> {
        match self {
            Self::Refused(_) => None,
            Self::Measured(measured) => Some(measured),
        }
    }

    fn cells(&self) -> Vec<String> {
        let Some(measured) = self.measured() else { return vec!["refused".into()] };
        vec![
            format!("{:.0} ({})", measured.mta_tps, measured.mta_best_workers),
            format!("{:.0}", measured.csa_tps),
            format!(
                "{:.2} ({:.2} to {:.2})",
                measured.ratio, measured.ratio_spread.least, measured.ratio_spread.most
            ),
            format!("{:.0}", measured.csa_apply_tps),
            format!("{:.2}", measured.csa_start_seconds),
            format!("{:.1}", measured.mta_target_cpu_seconds_per_million_rows),
            format!("{:.1}", measured.csa_target_cpu_seconds_per_million_rows),
            format!("{:.1}", measured.csa_daemon_cpu_seconds_per_million_rows),
            format!("{:.1}", measured.csa_daemon_page_faults_per_thousand_rows),
            format!("{:.0} MiB", measured.daemon_peak_rss_bytes as f64 / f64::from(1 << 20)),
            format!("{:.4}", measured.target_commits_per_source_transaction),
        ]
    }
}

fn online_table(results: &[OnlineResult]) -> Table {
    let mut table = Table::new(&[
        "load",
        "profile",
        "applier",
        "round",
        "source TPS",
        "lag p50 s",
        "p99 s",
        "max s",
        "by /status p50 / p99 / max s",
        "drained after s",
    ]);
    for result in results {
        let reported = result.reported_lag;
        table.row(vec![
            result.load.name(),
            result.profile.name(),
            applier(result.applier.title(), result.mta_workers),
            result.round.to_string(),
            format!("{:.0}", result.source_tps),
            format!("{:.3}", result.lag.p50_seconds),
            format!("{:.3}", result.lag.p99_seconds),
            format!("{:.3}", result.lag.max_seconds),
            reported.map_or_else(String::new, |lag| {
                format!("{:.3} / {:.3} / {:.3}", lag.p50_seconds, lag.p99_seconds, lag.max_seconds)
            }),
            format!("{:.1}", result.drained_after_seconds),
        ]);
    }
    table
}

fn idle_table(results: &[IdleResult]) -> Table {
    let mut table = Table::new(&["profile", "applier", "round", "p50 ms", "p99 ms", "max ms"]);
    for result in results {
        let milliseconds = |seconds: f64| format!("{:.1}", seconds * 1e3);
        table.row(vec![
            result.profile.name(),
            applier(result.applier.title(), result.mta_workers),
            result.round.to_string(),
            milliseconds(result.visible_after.p50_seconds),
            milliseconds(result.visible_after.p99_seconds),
            milliseconds(result.visible_after.max_seconds),
        ]);
    }
    table
}

fn applier(title: &str, mta_workers: Option<u32>) -> String {
    mta_workers.map_or_else(|| title.to_owned(), |workers| format!("{title}, {workers} workers"))
}
