//! The result of a round, and its words.

use serde::{Deserialize, Serialize};

use crate::host::{counted, now_micros, rfc3339};
use crate::observe::view::{DifferingTableView, VerifyResultView};
use crate::verify::{BEYOND_COPIES, Outcome, TableReport, VerifyReport};

/// Tables that the text names.
const SHOWN: usize = 5;

/// The last round that came to its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LastRound {
    /// Microseconds since the epoch.
    pub(super) begun_at: u64,
    pub(super) finished_at: u64,
    /// The time of the last look at tables that differ.
    pub(super) checked_at: u64,
    pub(super) outcome: String,
    pub(super) tables: u64,
    pub(super) rows: u64,
    pub(super) differing: Vec<DifferingTableView>,
}

impl LastRound {
    pub(super) fn view(&self, channel: &str) -> VerifyResultView {
        VerifyResultView {
            outcome: self.outcome.clone(),
            finished: rfc3339(self.finished_at),
            age_seconds: now_micros().saturating_sub(self.finished_at) as f64 / 1e6,
            seconds: self.finished_at.saturating_sub(self.begun_at) as f64 / 1e6,
            tables: self.tables,
            rows: self.rows,
            differing: self.differing.clone(),
            text: text(channel, self),
        }
    }
}

/// Returns the tables that differ, and the command for each.
pub(super) fn differing(channel: &str, report: &VerifyReport) -> Vec<DifferingTableView> {
    let tables = report.tables.iter().filter(|table| table.outcome == Outcome::Different);
    let view = |table: &TableReport| DifferingTableView {
        table: table.table.to_string(),
        rows: table.differences.len() as u64,
        what: what(table),
        command: table.copy_command(channel, report.refuses_copies),
    };
    tables.map(view).collect()
}

fn what(table: &TableReport) -> String {
    let mut rows = counted(table.differences.len() as u64, "row");
    if table.is_beyond_copies() {
        rows += &format!(" that {BEYOND_COPIES}");
    }
    let least = if table.left_out.is_some() { "at least " } else { "" };
    match (table.definition.first(), table.differences.is_empty()) {
        (Some(definition), true) => definition.clone(),
        (Some(definition), false) => format!("{definition}; {least}{rows}"),
        (None, _) => format!("{least}{rows}"),
    }
}

fn text(channel: &str, last: &LastRound) -> String {
    let compared = format!("{}, {}", counted(last.tables, "table"), counted(last.rows, "row"));
    match last.outcome.as_str() {
        "equal" => format!("source and target are equal: {compared}"),
        "unstable" => format!(
            "no difference was found in {compared}; not everything could be compared: csa-daemon verify --channel \
             {channel} says why"
        ),
        _ => {
            let one = |table: &DifferingTableView| {
                let command = table.command.as_ref();
                let command = command.map(|command| format!(": {command}")).unwrap_or_default();
                format!("{} ({}{command})", table.table, table.what)
            };
            let named: Vec<String> = last.differing.iter().take(SHOWN).map(one).collect();
            let more = match last.differing.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {}", counted(more as u64, "other table")),
            };
            format!(
                "the target differs from the source in {}{more}; csa-daemon verify --channel {channel} shows the rows",
                named.join(", ")
            )
        }
    }
}
