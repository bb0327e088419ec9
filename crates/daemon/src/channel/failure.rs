//! What stopped a channel, as an operator needs to see it.

use csa_applier::{FailingColumn, FailingRow, PresentRow};

use super::ChannelError;
use crate::advice::{About, advice};
use crate::view::{ErrorView, FailingColumnView, FailingRowView};

/// Errors that `exec_mode = "idempotent"` passes over.
const IDEMPOTENT: [u16; 2] = [1032, 1062];

/// `timestamp`: when it happened.
pub(super) fn shown(channel: &str, error: &ChannelError, timestamp: String) -> ErrorView {
    let (number, transaction, row) = match error {
        ChannelError::Applier(error) => (error.code().unwrap_or(0), error.gtid(), error.row()),
        _ => (0, None, None),
    };
    let message = error.to_string();
    let mut first = advice(About::Channel, number, &message).to_owned();
    if let Some(repair) = row.and_then(|row| row.repair.as_ref()) {
        first.push_str(&format!(
            " Run there: {repair}; then: csa-daemon restart --channel {channel}"
        ));
    }
    let mut ways_on = vec![first];
    if let Some(gtid) = &transaction {
        ways_on.push(format!(
            "leave the whole transaction out: csa-daemon skip {gtid} --channel {channel}; then see \
             what differs: csa-daemon verify --channel {channel}"
        ));
        if IDEMPOTENT.contains(&number) {
            ways_on.push(format!(
                "pass over missing rows and overwrite those that are there, until it is set back: \
                 exec_mode = \"idempotent\" in the channel's [applier], then: csa-daemon reload; \
                 csa-daemon restart --channel {channel}; verify afterwards"
            ));
        }
    }
    ErrorView { number, message, timestamp, transaction, ways_on, row: row.map(row_view) }
}

fn row_view(row: &FailingRow) -> FailingRowView {
    let (target_row, target_row_detail) = match &row.present {
        PresentRow::Present => ("present", None),
        PresentRow::Missing => ("missing", None),
        PresentRow::Unknown(why) => ("unknown", Some(why.clone())),
    };
    FailingRowView {
        table: row.table.clone(),
        event_type: row.event_type.to_owned(),
        event_number: row.event_number,
        row_number: row.row_number,
        end_log_pos: (row.end_log_pos > 0).then_some(row.end_log_pos),
        key: row.key.clone(),
        target_row: target_row.to_owned(),
        target_row_detail,
        columns: row.columns.iter().map(column_view).collect(),
    }
}

fn column_view(column: &FailingColumn) -> FailingColumnView {
    FailingColumnView {
        name: column.name.clone(),
        source_before: column.before.clone(),
        source_after: column.after.clone(),
        target: column.target.clone(),
    }
}
