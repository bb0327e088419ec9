//! The error of a stopped channel, below the table of `status`: the row, and how to proceed.

use super::table;
use crate::observe::view::{ChannelState, ChannelView, FailingRowView};

/// Empty for a channel that has not failed.
pub(super) fn explanation(view: &ChannelView) -> String {
    let Some(error) = view.last_error.as_ref().filter(|_| view.state == ChannelState::Failed)
    else {
        return String::new();
    };
    let mut text = format!("\n{}: {}\n", view.channel_name, error.message);
    if let Some(row) = &error.row {
        text.push_str(&failing_row(row));
    }
    if let Some(seconds) = view.next_attempt_seconds {
        text.push_str(&format!("  next attempt in {seconds:.0} s\n"));
    }
    for (index, way) in error.ways_on.iter().enumerate() {
        text.push_str(&format!("  {}. {way}\n", index + 1));
    }
    text
}

/// Returns the row at which a transaction failed, and its values for those who may see them.
pub(super) fn failing_row(row: &FailingRowView) -> String {
    let by = row.key.as_ref().map(|key| format!(" by {key}")).unwrap_or_default();
    let detail = row.target_row_detail.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let head = ["COLUMN", "SOURCE BEFORE", "SOURCE AFTER", "TARGET NOW"];
    let mut rows = vec![head.map(str::to_owned)];
    let or_dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    for column in &row.columns {
        rows.push([
            column.name.clone(),
            or_dash(&column.source_before),
            or_dash(&column.source_after),
            or_dash(&column.target),
        ]);
    }
    let found = format!("  {}: the target's row{by} is {}{detail}\n", row.table, row.target_row);
    if row.columns.is_empty() {
        return found;
    }
    let lines = table::columns(&rows);
    found + &lines.lines().map(|line| format!("    {line}\n")).collect::<String>()
}
