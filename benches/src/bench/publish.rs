//! `publish`: the table of drains in a document, made of results that `bench` has kept.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

use super::load::Load;
use super::profile::Profile;
use super::shape::Shape;

/// The lines of the table stand between these two of the document.
const BEGIN: &str = "<!-- drains: made by `csa-bench publish` -->";
const END: &str = "<!-- end of drains -->";
/// The number of runs whose lowest ratio is shown.
const LAST_RUNS: usize = 3;
const TABLES: u64 = 8;

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// The Markdown document whose table of drains is replaced.
    #[arg(long, default_value = "docs/performance.md")]
    document: PathBuf,
    /// Results of drains, as `bench` keeps them (target/bench/drain-*.json).
    #[arg(required = true)]
    results: Vec<PathBuf>,
}

/// Replaces the table of the document. A backlog that was drained in several runs has one row, of the last run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut files =
        options.results.iter().map(|path| Kept::read(path)).collect::<Result<Vec<_>>>()?;
    files.sort_by_key(|file| file.unix_time);
    let document = &options.document;
    let text = std::fs::read_to_string(document)
        .with_context(|| format!("reading {}", document.display()))?;
    let text = replaced(&text, &table(&files))
        .with_context(|| format!("{} has no lines {BEGIN} and {END}", document.display()))?;
    std::fs::write(document, text).with_context(|| format!("writing {}", document.display()))
}

/// A file of results, as far as the table needs it.
#[derive(Debug, Deserialize)]
struct Kept {
    unix_time: u64,
    settings: Settings,
    results: Results,
}

#[derive(Debug, Deserialize)]
struct Settings {
    sizes: Sizes,
    csa_keys: Vec<(String, String)>,
    #[serde(default)]
    target_options: Vec<String>,
    #[serde(default)]
    socket: bool,
    #[serde(default)]
    round_trip_milliseconds: f64,
}

#[derive(Debug, Deserialize)]
struct Sizes {
    /// Missing where the backlog was sized by time.
    transactions: Option<u64>,
    tables: u64,
    bulk_rows: u64,
}

#[derive(Debug, Deserialize)]
struct Results {
    drain: Vec<Drain>,
}

#[derive(Debug, Deserialize)]
struct Drain {
    load: Load,
    profile: Profile,
    /// Missing where csa-daemon refused the load.
    measured: Option<Measured>,
}

#[derive(Debug, Deserialize)]
struct Measured {
    mta_best_workers: u32,
    mta_tps: f64,
    csa_tps: f64,
    csa_apply_tps: f64,
    ratio: f64,
    ratio_spread: Spread,
    csa_daemon_cpu_seconds_per_million_rows: f64,
    csa_daemon_page_faults_per_thousand_rows: f64,
    csa_target_cpu_seconds_per_million_rows: f64,
    mta_target_cpu_seconds_per_million_rows: f64,
    daemon_peak_rss_bytes: u64,
    rounds: Vec<Round>,
}

#[derive(Debug, Deserialize)]
struct Spread {
    least: f64,
    most: f64,
}

#[derive(Debug, Deserialize)]
struct Round {
    csa_transactions: u64,
}

impl Kept {
    fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} does not have the results of drains", path.display()))
    }
}

/// Returns the document with another table; `None` if it has no place for one.
fn replaced(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

/// Returns the rows in the order in which their backlogs were first drained. A backlog with a set number of transactions
/// was a quick look, and is left out.
fn table(files: &[Kept]) -> String {
    let mut rows: Vec<(String, Vec<&Measured>)> = Vec::new();
    for file in files.iter().filter(|file| file.settings.sizes.transactions.is_none()) {
        for drain in &file.results.drain {
            let Some(measured) = &drain.measured else { continue };
            let backlog = backlog(drain, &file.settings);
            match rows.iter_mut().find(|(known, _)| *known == backlog) {
                Some((_, runs)) => runs.push(measured),
                None => rows.push((backlog, vec![measured])),
            }
        }
    }
    let mut text = "| backlog | transactions | MTA, trx/s (workers) | csa-daemon, trx/s | ratio | lowest of three runs | \
                    applying, trx/s | target's CPU per row: MTA, csa-daemon | daemon's CPU per row | its page faults \
                    per 1,000 rows | its peak memory |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for (backlog, runs) in rows {
        text.extend(row(&backlog, &runs));
    }
    text
}

fn row(backlog: &str, runs: &[&Measured]) -> Option<String> {
    let last = runs.last()?;
    let considered = &runs[runs.len().saturating_sub(LAST_RUNS)..];
    let lowest = considered.iter().map(|run| run.ratio).fold(f64::INFINITY, f64::min);
    let transactions = last.rounds.iter().map(|round| round.csa_transactions).max()?;
    Some(format!(
        "| {backlog} | {} | {} ({}) | {} | **{:.2}** ({:.2} to {:.2}) | {lowest:.2} | {} | {:.0}, {:.1} µs | {:.1} µs | {} | \
         {:.0} MiB |\n",
        thousands(transactions as f64),
        thousands(last.mta_tps),
        last.mta_best_workers,
        thousands(last.csa_tps),
        last.ratio,
        last.ratio_spread.least,
        last.ratio_spread.most,
        thousands(last.csa_apply_tps),
        last.mta_target_cpu_seconds_per_million_rows,
        last.csa_target_cpu_seconds_per_million_rows,
        last.csa_daemon_cpu_seconds_per_million_rows,
        thousands(last.csa_daemon_page_faults_per_thousand_rows),
        last.daemon_peak_rss_bytes as f64 / f64::from(1 << 20),
    ))
}

/// Returns what was drained, in words.
fn backlog(drain: &Drain, settings: &Settings) -> String {
    let mut text = match &drain.load {
        Load::Shape(shape) => words(*shape, settings),
        Load::Script { sysbench } => format!("sysbench's `{}`", sysbench.stem()),
    };
    text.push_str(match drain.profile {
        Profile::Default => "",
        Profile::Relaxed => ", relaxed durability",
        Profile::Mirror => ", `target_gtids = \"mirror\"`",
        Profile::Nologs => ", no binary log, no redo log",
        Profile::Compressed => ", the source compresses",
        Profile::OneToOne => ", one-to-one in order",
        Profile::OneToOneRelaxed => ", one-to-one in order, relaxed durability",
        Profile::OneToOneUnordered => ", one-to-one, out of order (both), 32 workers",
        Profile::OneToOneNobinlog => ", one-to-one in order, no binary log",
        Profile::OneToOneNologs => {
            ", one-to-one in order (MTA out of order), no binary log, no redo log"
        }
    });
    if settings.sizes.tables != TABLES {
        text.push_str(&format!(", {} tables", thousands(settings.sizes.tables as f64)));
    }
    for option in &settings.target_options {
        text.push_str(&format!(", targets with `{}`", option.trim_start_matches('-')));
    }
    if settings.socket {
        text.push_str(", through the target's socket");
    }
    if settings.round_trip_milliseconds > 0.0 {
        text.push_str(&format!(", round trips of {} ms more", settings.round_trip_milliseconds));
    }
    for (key, value) in &settings.csa_keys {
        text.push_str(&format!(", `{key} = {value}`"));
    }
    text
}

fn words(shape: Shape, settings: &Settings) -> String {
    let words = match shape {
        Shape::Updates1 => "1 update",
        Shape::Updates10 => "10 updates",
        Shape::WriteOnly => "write-only mix",
        Shape::InsertOnly => "inserts",
        Shape::HotRow => "16 hot rows",
        Shape::WideRow => "rows of 4 KiB",
        Shape::Bulk => {
            return format!("1 update of {} rows", thousands(settings.sizes.bulk_rows as f64));
        }
        Shape::Fk => "parents and children",
    };
    words.to_owned()
}

/// Returns a rounded number with commas between thousands.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let first = digits.len() % 3;
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BEGIN, END, Kept, replaced, table, thousands};

    fn run(time: u64, ratio: f64) -> Kept {
        let measured = json!({
            "mta_best_workers": 64, "mta_tps": 1234.4, "csa_tps": 12345.0, "csa_apply_tps": 13000.0,
            "ratio": ratio, "ratio_spread": {"least": ratio - 0.5, "most": ratio + 0.5},
            "csa_daemon_cpu_seconds_per_million_rows": 3.12,
            "csa_daemon_page_faults_per_thousand_rows": 1093.2,
            "csa_target_cpu_seconds_per_million_rows": 11.2,
            "mta_target_cpu_seconds_per_million_rows": 71.4,
            "daemon_peak_rss_bytes": 145 << 20,
            "rounds": [{"csa_transactions": 30000}, {"csa_transactions": 40000}],
        });
        let file = json!({
            "unix_time": time,
            "settings": {"sizes": {"tables": 10000, "bulk_rows": 1}, "csa_keys": []},
            "results": {"drain": [
                {"load": "updates-10", "profile": "mirror", "measured": measured},
                {"load": {"sysbench": "oltp_insert"}, "profile": "one-to-one", "refused": "why"},
            ]},
        });
        serde_json::from_value(file).expect("a file of results")
    }

    #[test]
    fn a_row_has_the_last_run_and_the_lowest_ratio_of_three() {
        let mut files: Vec<Kept> =
            [1.0, 5.0, 4.0, 6.0].iter().zip(1..).map(|(r, t)| run(t, *r)).collect();
        let mut quick = run(5, 0.5);
        quick.settings.sizes.transactions = Some(15_000);
        files.push(quick);
        let text = table(&files);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 10 updates, `target_gtids = \"mirror\"`, 10,000 tables | 40,000 | 1,234 (64) | 12,345 | \
              **6.00** (5.50 to 6.50) | 4.00 | 13,000 | 71, 11.2 µs | 3.1 µs | 1,093 | 145 MiB |"
            ]
        );
    }

    #[test]
    fn only_the_table_of_a_document_changes() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = replaced(&document, "| new |\n").expect("has a table");
        assert_eq!(new, format!("before\n{BEGIN}\n\n| new |\n\n{END}\nafter\n"));
        assert_eq!(replaced(&new, "| new |\n").as_deref(), Some(new.as_str()));
        assert_eq!(replaced("before\nafter\n", "| new |\n"), None);
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!(
            [7.4, 999.0, 1000.0, 1234567.0].map(thousands),
            ["7", "999", "1,000", "1,234,567"]
        );
    }
}
