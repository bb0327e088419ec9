//! The progress of a comparison on a terminal, and its finished tables.

use std::io::{Stderr, stderr};
use std::time::{Duration, Instant};

use crate::verify::{Activity, TableReport, VerifyEvent, VerifyProgress, VerifyReport};
use csa_provider::server::visible::one_line;
use parking_lot::Mutex;

use crate::cli::output::say;
use crate::cli::screen::{Screen, bar};

/// Time between two updates of the bar.
const REDRAW: Duration = Duration::from_millis(100);

/// A bar on a terminal, else a line for each table. Finished tables are kept in case the run fails.
pub(super) struct VerifyScreen {
    /// Standard output is for something else.
    is_taken: bool,
    state: Mutex<VerifyScreenState>,
}

struct VerifyScreenState {
    screen: Screen<Stderr>,
    finished: Vec<TableReport>,
    /// The table under comparison, and the time at which that began.
    current: Option<(String, Instant)>,
}

impl VerifyScreen {
    pub(super) fn new(is_taken: bool) -> Self {
        let screen = Screen::new(stderr());
        let state = VerifyScreenState { screen, finished: Vec::new(), current: None };
        Self { is_taken, state: Mutex::new(state) }
    }

    pub(super) fn show(&self, event: &VerifyEvent<'_>) {
        let mut state = self.state.lock();
        match event {
            VerifyEvent::Table(table) => {
                state.screen.clear();
                match (self.is_taken, state.screen.is_terminal) {
                    (false, _) => say!("{table}"),
                    (true, false) => eprintln!("{table}"),
                    (true, true) => {}
                }
                state.finished.push((*table).clone());
            }
            VerifyEvent::Resumed(progress) => {
                state.screen.clear();
                eprintln!(
                    "{}: resuming after {} rows that were compared before the interruption",
                    one_line(&progress.table),
                    progress.rows
                );
            }
            VerifyEvent::Saved(_) => {}
            VerifyEvent::Progress(progress) => {
                let began = match state.current.take() {
                    Some((table, began)) if table == progress.table => began,
                    _ => Instant::now(),
                };
                let elapsed = began.elapsed();
                state.current = Some((progress.table.clone(), began));
                if state.screen.is_terminal && state.screen.rested(REDRAW) {
                    state.screen.draw(&[line(progress, elapsed)]);
                }
            }
        }
    }

    /// Returns the finished tables.
    pub(super) fn finish(self, channel: &str) -> VerifyReport {
        let mut state = self.state.into_inner();
        state.screen.clear();
        let channel = channel.to_owned();
        VerifyReport { channel, tables: state.finished, ..VerifyReport::default() }
    }
}

/// `[####----]  2/7 d.orders: 45000 of about 100000 rows, 9000/s, 6 s left`: rate and time are the
/// table's.
fn line(progress: &VerifyProgress, elapsed: Duration) -> String {
    let share = progress.rows as f64 / progress.rows_estimated.max(progress.rows).max(1) as f64;
    let done = (progress.tables_done as f64 + share) / progress.tables.max(1) as f64;
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
    format!(
        "{} {:>2}/{} {}: {activity}",
        bar(done),
        progress.tables_done,
        progress.tables,
        progress.table
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::screen::fitted;

    #[test]
    fn the_bar_shows_tables_and_rows_and_fits_a_line() {
        let mut progress = VerifyProgress {
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
        assert_eq!(fitted(&line(&progress, Duration::ZERO)).chars().count(), 79);
    }
}
