//! The target's knowledge of the channel: its checkpoint, and the daemon that has it.

use csa_applier::{PROGRESS_ROW, lock_name};
use csa_provider::binlog::GtidSet;
use csa_provider::server::ask::Ask as _;
use csa_provider::server::{Finding, Place};
use csa_provider::sql_text::quote;

use super::check_session::{CheckSession, QueryError};
use super::options::CheckOptions;

/// The target's knowledge of the channel.
#[derive(Debug, Default)]
pub(super) struct TargetKnowledge {
    pub(super) checkpoint: Option<GtidSet>,
    /// The connection there that holds the channel's lock.
    pub(super) held_by: Option<String>,
    /// The target's `gtid_executed` was its checkpoint when the channel last ran.
    pub(super) was_source: bool,
    /// Tables of a copy that was begun and not finished.
    pub(super) copied_in_part: usize,
}

pub(super) async fn channel_state(
    session: &mut CheckSession,
    channel: &str,
) -> Result<TargetKnowledge, QueryError> {
    /// No such schema, no such table, or none that this account sees.
    const NO_TABLE: [u16; 4] = [1049, 1146, 1044, 1142];
    let held = format!("SELECT IS_USED_LOCK({})", quote(&lock_name(channel)));
    let held_by = session.value(&held).await?;
    let columns = "gtid_executed, worker";
    let rows = format!("SELECT {columns} FROM csa.checkpoint WHERE channel={}", quote(channel));
    let (mut checkpoint, mut was_source) = (None, false);
    match session.rows(&rows).await {
        Ok(rows) => {
            for row in rows {
                let mut row = row.into_iter().map(Option::unwrap_or_default);
                let (text, worker) = (row.next().unwrap_or_default(), row.next());
                let executed =
                    text.parse().map_err(|error| session.unreadable("csa.checkpoint", error))?;
                checkpoint.get_or_insert_with(GtidSet::new).union(&executed);
                was_source |= worker == Some(PROGRESS_ROW.to_string());
            }
        }
        Err(refusal) if refusal.code.is_some_and(|code| NO_TABLE.contains(&code)) => {}
        Err(refusal) => return Err(refusal),
    }
    let noted = format!("SELECT table_name FROM csa.copy WHERE channel={}", quote(channel));
    let copied_in_part = match session.rows(&noted).await {
        Ok(rows) => rows.len(),
        Err(refusal) if refusal.code.is_some_and(|code| NO_TABLE.contains(&code)) => 0,
        Err(refusal) => return Err(refusal),
    };
    Ok(TargetKnowledge { checkpoint, held_by, was_source, copied_in_part })
}

pub(super) fn taken(state: &TargetKnowledge, options: &CheckOptions<'_>) -> Finding {
    const CHECK: &str = "target.channel";
    if state.checkpoint.is_none() && state.held_by.is_none() && state.copied_in_part > 0 {
        let text = format!("a copy of {} tables was begun and not finished", state.copied_in_part);
        if options.channel.copies_first {
            return Finding::warning(CHECK, format!("{text}; the next start makes it again"));
        }
        let copy = format!("csa-daemon copy --channel {}", options.channel.name);
        return Finding::error(CHECK, text).fix(Place::Operator, copy);
    }
    match (&state.held_by, &state.checkpoint) {
        (Some(connection), _) => Finding::warning(
            CHECK,
            format!(
                "a daemon has the channel (connection {connection} there); another can't start"
            ),
        ),
        (None, Some(_)) => Finding::ok(CHECK, "it has a checkpoint, and no daemon has it"),
        (None, None) => Finding::ok(CHECK, "it has no checkpoint yet"),
    }
}
