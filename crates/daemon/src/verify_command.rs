//! `verify`: compares the servers of the configured channels and prints what differs.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use csa_daemon::verify::{
    Activity, Event, Outcome, Progress, Report, Scope, TableName, TableReport, TableSelection,
    VerifyOptions, source_servers,
};
use csa_provider::SourceOptions;
use csa_scheduler::{FilterRules, Filters};
use parking_lot::Mutex;
use serde::Serialize;

use crate::cli::output::say;
use crate::cli::{Failure, VerifyArguments};
use crate::config::{ChannelSettings, Config};

/// Width of the bar, and of its line, in cells.
const BAR: usize = 24;
const WIDTH: usize = 79;
/// Time between two updates of it.
const REDRAW: Duration = Duration::from_millis(100);

/// A channel's `replicate_*`, for targets that compare names with case and for others.
#[derive(Debug)]
pub(crate) struct Replicated {
    exact: Filters,
    folding: Filters,
}

impl Replicated {
    pub(crate) fn new(rules: &FilterRules) -> Self {
        let filters = |folds_case| Filters::new(rules.clone(), folds_case);
        Self { exact: filters(false), folding: filters(true) }
    }
}

impl TableSelection for Replicated {
    fn target_of(&self, source: &TableName, folds_case: bool) -> Option<TableName> {
        let filters = if folds_case { &self.folding } else { &self.exact };
        let schema = filters.table(&source.schema, &source.table)?.into_owned();
        Some(TableName { schema, table: source.table.clone() })
    }
}

/// One channel's result as JSON.
#[derive(Debug, Serialize)]
struct Output {
    outcome: Option<Outcome>,
    #[serde(flatten)]
    report: Report,
    /// The reason why it was not finished.
    error: Option<String>,
}

/// Compares one or all channels of the configuration.
pub(crate) fn verify(
    path: &Path,
    channel: Option<&str>,
    arguments: &VerifyArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let channels = chosen(&config, channel)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::NotCompared(format!("starting the runtime: {error}")))?;
    let mut outputs = Vec::new();
    for channel in channels {
        let options = options(channel, arguments)?;
        let selection = Replicated::new(&channel.filters);
        let screen = Screen::new(arguments.json);
        let compared =
            runtime.block_on(csa_daemon::verify::verify(&options, &selection, &|event| {
                screen.show(&event)
            }));
        let finished = screen.finish(&channel.name);
        outputs.push(match compared {
            Ok(report) => Output { outcome: Some(report.outcome()), report, error: None },
            Err(error) => {
                Output { outcome: None, report: finished, error: Some(error.to_string()) }
            }
        });
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&outputs)
            .map_err(|error| Failure::NotCompared(format!("writing JSON: {error}")))?;
        say!("{text}");
    }
    outputs.iter().for_each(|output| summary(output, arguments.json));
    verdict(&outputs)
}

/// The named channel, or all.
pub(crate) fn chosen<'a>(
    config: &'a Config,
    channel: Option<&str>,
) -> Result<Vec<&'a ChannelSettings>, Failure> {
    let Some(name) = channel else { return Ok(config.channels.iter().collect()) };
    let found = config.channels.iter().find(|channel| channel.name == name);
    let known: Vec<&str> = config.channels.iter().map(|channel| channel.name.as_str()).collect();
    let unknown = || {
        Failure::Input(format!(
            "--channel {name}: no such channel in the configuration; it has {}",
            known.join(", ")
        ))
    };
    Ok(vec![found.ok_or_else(unknown)?])
}

fn options(
    channel: &ChannelSettings,
    arguments: &VerifyArguments,
) -> Result<VerifyOptions, Failure> {
    let reader = other_reader(
        channel,
        arguments.source_user.as_deref(),
        arguments.source_password_file.as_deref(),
    )?;
    let source = reader.unwrap_or_else(|| channel.source.clone());
    Ok(VerifyOptions {
        scope: Scope { schemas: arguments.schema.clone(), tables: arguments.table.clone() },
        chunk_rows: arguments.chunk_rows,
        max_rate: arguments.max_rate,
        max_lag: arguments.max_lag,
        common_columns: arguments.common_columns,
        max_differences: arguments.max_differences,
        catch_up_timeout: arguments.catch_up_timeout,
        ..VerifyOptions::new(&channel.name, source_servers(&source), (*channel.target).clone())
    })
}

/// The source with the command line's user, if it names one.
pub(crate) fn other_reader(
    channel: &ChannelSettings,
    user: Option<&str>,
    password_file: Option<&Path>,
) -> Result<Option<SourceOptions>, Failure> {
    let (Some(user), Some(file)) = (user, password_file) else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::Input(format!("--source-password-file: {}: {error}", file.display()))
    })?;
    let password = text.strip_suffix('\n').unwrap_or(&text).into();
    Ok(Some(SourceOptions { user: user.to_owned(), password, ..channel.source.clone() }))
}

/// The last line for a channel.
fn summary(output: &Output, json: bool) {
    let tables = &output.report.tables;
    let rows: u64 = tables.iter().map(|table| table.rows).sum();
    let text = format!(
        "channel {}: {} tables, {rows} rows compared: {}",
        output.report.channel,
        tables.len(),
        match output.outcome {
            Some(Outcome::Equal) => "equal",
            Some(Outcome::Unstable) => "equal as far as it was compared",
            Some(Outcome::Different) => "DIFFERENT",
            None => "not finished",
        }
    );
    if json { eprintln!("{text}") } else { say!("{text}") }
}

fn verdict(outputs: &[Output]) -> Result<(), Failure> {
    let named = |outcome: Option<Outcome>| -> Vec<String> {
        let found = outputs.iter().filter(|output| output.outcome == outcome);
        found
            .map(|Output { report, error, .. }| match error {
                Some(error) => format!("channel {:?}: {error}", report.channel),
                None => format!("channel {:?}", report.channel),
            })
            .collect()
    };
    let failed = named(None);
    let different = named(Some(Outcome::Different));
    let unstable = named(Some(Outcome::Unstable));
    if !failed.is_empty() {
        return Err(Failure::NotCompared(failed.join("; ")));
    }
    if !different.is_empty() {
        return Err(Failure::Different(format!(
            "{}: target differs from source",
            different.join(", ")
        )));
    }
    if !unstable.is_empty() {
        return Err(Failure::NotCompared(format!(
            "{}: not everything could be compared, see above; rows that kept changing may be stable \
             when there is less load",
            unstable.join(", ")
        )));
    }
    Ok(())
}

/// A bar on a terminal, else a line for each table. Finished tables are kept in case the run fails.
struct Screen {
    json: bool,
    is_terminal: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    finished: Vec<TableReport>,
    drawn: Option<Instant>,
    /// The table that is being compared, and the time at which that began.
    current: Option<(String, Instant)>,
}

impl Screen {
    fn new(json: bool) -> Self {
        Self { json, is_terminal: std::io::stderr().is_terminal(), state: Mutex::default() }
    }

    fn show(&self, event: &Event<'_>) {
        let mut state = self.state.lock();
        match event {
            Event::Table(table) => {
                self.clear(&mut state);
                match (self.json, self.is_terminal) {
                    (false, _) => say!("{table}"),
                    (true, false) => eprintln!("{table}"),
                    (true, true) => {}
                }
                state.finished.push((*table).clone());
            }
            Event::Progress(progress) => {
                let began = match state.current.take() {
                    Some((table, began)) if table == progress.table => began,
                    _ => Instant::now(),
                };
                let elapsed = began.elapsed();
                state.current = Some((progress.table.clone(), began));
                let is_due = state.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW);
                if self.is_terminal && is_due {
                    eprint!(
                        "\r{:<WIDTH$}",
                        csa_provider::visible::one_line(&line(progress, elapsed))
                    );
                    let _ = std::io::stderr().flush();
                    state.drawn = Some(Instant::now());
                }
            }
        }
    }

    fn clear(&self, state: &mut State) {
        if state.drawn.take().is_some() {
            eprint!("\r{:<WIDTH$}\r", "");
        }
    }

    /// The finished tables.
    fn finish(self, channel: &str) -> Report {
        let mut state = self.state.into_inner();
        if state.drawn.take().is_some() {
            eprint!("\r{:<WIDTH$}\r", "");
        }
        Report { channel: channel.to_owned(), tables: state.finished }
    }
}

/// `[####----]  2/7 d.orders: 45000 of about 100000 rows, 9000/s, 6 s left`: rate and time are the
/// table's.
fn line(progress: &Progress, elapsed: Duration) -> String {
    let share = progress.rows as f64 / progress.rows_estimated.max(progress.rows).max(1) as f64;
    let done = (progress.tables_done as f64 + share) / progress.tables.max(1) as f64;
    let full = ((done * BAR as f64) as usize).min(BAR);
    let activity = match progress.activity {
        Activity::Comparing => {
            let rate = progress.rows as f64 / elapsed.as_secs_f64();
            // Over less time, a rate would be noise.
            let pace = if elapsed < Duration::from_secs(1) || progress.rows == 0 {
                String::new()
            } else {
                let left = progress.rows_estimated.saturating_sub(progress.rows) as f64 / rate;
                format!(", {rate:.0}/s, {left:.0} s left")
            };
            format!("{} of about {} rows{pace}", progress.rows, progress.rows_estimated)
        }
        Activity::Rechecking { rows } => format!("reading {rows} rows again"),
        Activity::WaitingForLag => "waiting for the target to catch up".to_owned(),
    };
    let text = format!(
        "[{}{}] {:>2}/{} {}: {activity}",
        "#".repeat(full),
        "-".repeat(BAR - full),
        progress.tables_done,
        progress.tables,
        progress.table
    );
    text.chars().take(WIDTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_tables_and_rows_and_fits_a_line() {
        let mut progress = Progress {
            tables: 4,
            tables_done: 1,
            table: "d.t".to_owned(),
            rows: 50,
            rows_estimated: 100,
            activity: Activity::Comparing,
        };
        assert_eq!(
            line(&progress, Duration::ZERO),
            "[#########---------------]  1/4 d.t: 50 of about 100 rows"
        );
        let paced = line(&progress, Duration::from_secs(4));
        assert!(paced.ends_with("50 of about 100 rows, 12/s, 4 s left"), "{paced}");
        // Estimates may be wrong, and tables empty.
        progress.rows = 1000;
        assert!(line(&progress, Duration::ZERO).starts_with("[############------------]"));
        (progress.rows, progress.rows_estimated) = (0, 0);
        assert!(line(&progress, Duration::ZERO).starts_with("[######------"));
        progress.table = "n".repeat(200);
        progress.activity = Activity::Rechecking { rows: 3 };
        assert_eq!(line(&progress, Duration::ZERO).chars().count(), WIDTH);
    }
}
