//! `copy`: makes the empty target of a channel a copy of its source.

use std::io::{Stderr, stderr};
use std::path::Path;
use std::sync::Arc;

use csa_provider::binlog::GtidSet;
use csa_provider::server::visible::one_line;
use parking_lot::Mutex;

use super::output::say;
use super::screen::{Screen, bar};
use super::verify::{chosen_with_target, reader};
use crate::channel::forget_comparisons;
use crate::cli::arguments::CopyArguments;
use crate::config::{ChannelSettings, Config};
use crate::copy::{
    Cancelled, CopyObserver, CopyOptions, CopyProgress, CopyStep, CopySummary, Pace, PlannedCopy,
    PlannedTable, sources,
};
use crate::host::{Failure, runtime};
use crate::observe::view::MovingTableView;
use crate::verify::{Replicated, abandoned_ended};

/// Copies one channel, or all of the configuration one after the other.
pub(crate) fn copy(
    path: &Path,
    channel: Option<&str>,
    arguments: &CopyArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let runtime = runtime()?;
    for channel in chosen_with_target(&config, channel, "copy")? {
        let options = options(channel, arguments)?;
        let selection = Replicated::new(&channel.filters);
        let failed = |error| Failure::Runtime(format!("channel {:?}: {error}", channel.name));
        if arguments.cancel {
            let cancelled = runtime.block_on(crate::copy::cancel(&options)).map_err(failed)?;
            say!("channel {}: {}", channel.name, told(&cancelled));
            continue;
        }
        if arguments.plan {
            let planned = runtime.block_on(crate::copy::plan(&options, &selection));
            show_plan(&channel.name, &planned.map_err(failed)?);
            continue;
        }
        let screen = CopyScreen::new(arguments.quiet);
        let copied = runtime.block_on(async {
            let copied = crate::copy::copy(&options, &selection, &screen).await;
            // After an error in one table the servers would continue to read the others.
            abandoned_ended().await;
            copied
        });
        screen.clear();
        let copied = copied.map_err(failed)?;
        forget_comparisons(channel.directory());
        finished(channel, &copied, options.compares);
    }
    Ok(())
}

pub(super) fn options(
    channel: &ChannelSettings,
    arguments: &CopyArguments,
) -> Result<CopyOptions, Failure> {
    let user = arguments.source_user.as_deref();
    let source = reader(channel, user, arguments.source_password_file.as_deref())?;
    let mut options = CopyOptions { sources: sources(&source), ..CopyOptions::of(channel) };
    options.lanes = arguments.lanes.unwrap_or(options.lanes);
    options.compares = channel.copy.verify && !arguments.no_verify;
    if let Some(rows_per_second) = arguments.rows_per_second {
        options.pace = Arc::new(Pace::new(rows_per_second));
    }
    Ok(options)
}

fn told(cancelled: &Cancelled) -> String {
    let dropped = match cancelled {
        Cancelled::First(dropped) => *dropped,
        Cancelled::Again(tables) => {
            let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
            return format!(
                "the copy is cancelled. These tables lack rows, unique keys, foreign keys and triggers, if they are still \
                 there: {}. Copy each again with --table before the channel changes it, or drop it",
                tables.join(", ")
            );
        }
    };
    match dropped {
        0 => "there is no unfinished copy".to_owned(),
        1 => "the copy is cancelled, and its table is dropped".to_owned(),
        tables => format!("the copy is cancelled, and its {tables} tables are dropped"),
    }
}

fn show_plan(channel: &str, planned: &PlannedCopy) {
    let PlannedCopy { tables, why_in_one_snapshot, not_copied } = planned;
    for PlannedTable { name, rows, bytes, parts, has_key, in_chunks } in tables {
        let ranges = match (has_key, parts) {
            (false, _) => "without a key: read by one query".to_owned(),
            (true, 1) => "in one range".to_owned(),
            (true, parts) => format!("in {parts} ranges side by side"),
        };
        let how = match in_chunks {
            true => format!("in chunks, {ranges}"),
            false => format!("in the snapshot, {ranges}"),
        };
        let size = *bytes as f64 / f64::from(1 << 20);
        say!("{name}: about {rows} rows, {size:.1} MiB, {how}");
    }
    if let Some(why) = why_in_one_snapshot {
        say!("all of them in one snapshot: {why}");
    }
    for what in not_copied {
        say!("not copied: {}", one_line(what));
    }
    let rows: u64 = tables.iter().map(|table| table.rows).sum();
    let bytes: u64 = tables.iter().map(|table| table.bytes).sum();
    say!(
        "channel {channel}: {} tables, about {rows} rows, {:.1} MiB; nothing was copied",
        tables.len(),
        bytes as f64 / f64::from(1 << 20)
    );
}

fn finished(channel: &ChannelSettings, summary: &CopySummary, is_compared: bool) {
    let CopySummary { tables, rows, bytes, elapsed, executed, until, not_made } = summary;
    for refused in not_made {
        eprintln!("not copied: {}", one_line(refused));
    }
    let seconds = elapsed.as_secs_f64().max(1e-3);
    say!(
        "channel {}: {tables} tables, {rows} rows copied in {seconds:.1} s ({:.0} rows/s, {:.1} MiB/s as SQL)",
        channel.name,
        *rows as f64 / seconds,
        *bytes as f64 / seconds / f64::from(1 << 20)
    );
    match until {
        None => {
            say!("it holds the source's transactions {executed}");
            if is_compared {
                say!("all rows equal those of the source's snapshot");
            }
            say!(
                "start the daemon to follow the source from there; csa-daemon verify --channel {} compares both",
                channel.name
            );
        }
        Some(until) => {
            say!("its rows were read in chunks, while the source went from {executed} to {until}");
            say!(
                "start the daemon: it applies what changed in between, adds unique keys and foreign keys, and \
                 follows the source; the channel is \"running\" once the target is a copy"
            );
        }
    }
}

/// A bar for all rows and one for each table that is copied, on a terminal; else a line now and then.
pub(super) struct CopyScreen {
    is_quiet: bool,
    state: Mutex<CopyScreenState>,
}

struct CopyScreenState {
    screen: Screen<Stderr>,
    step: Option<CopyStep>,
}

impl CopyObserver for CopyScreen {
    fn progress(&self, progress: &CopyProgress) {
        if self.is_quiet {
            return;
        }
        let mut state = self.state.lock();
        let is_new = state.step.replace(progress.step) != Some(progress.step);
        match state.screen.is_terminal {
            true => state.screen.draw(&lines(progress)),
            false => state.screen.line(&progress.to_string(), is_new),
        }
    }

    /// The daemon receives what follows, once it runs.
    fn begins_after(&self, _executed: &GtidSet) {}
}

impl CopyScreen {
    pub(super) fn new(is_quiet: bool) -> Self {
        let state = CopyScreenState { screen: Screen::new(stderr()), step: None };
        Self { is_quiet, state: Mutex::new(state) }
    }

    pub(super) fn clear(&self) {
        self.state.lock().screen.clear();
    }
}

/// Returns the progress and its bars.
fn lines(progress: &CopyProgress) -> Vec<String> {
    if progress.step != CopyStep::Rows {
        return vec![progress.to_string()];
    }
    // There may be more rows than the source guesses.
    let bar = |rows: u64, estimated: u64| bar(rows as f64 / estimated.max(rows).max(1) as f64);
    let tables = progress.moving.iter().map(|moving| {
        let MovingTableView { table, rows, rows_estimated } = moving;
        format!("  {} {table}: {rows} of about {rows_estimated} rows", bar(*rows, *rows_estimated))
    });
    let all = format!("{} {progress}", bar(progress.rows, progress.rows_estimated));
    std::iter::once(all).chain(tables).collect()
}
