//! One row change as an operator wants to see it: its values, and the query for the target's row. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{ColumnValue, Field, OldTemporal, RowsEvent, RowsKind, ValueType};
use csa_provider::server::visible::acts;
use csa_scheduler::filter::lower_case_name;

use super::conversion::Strings;
use super::packets::{PacketWriter, SHOW_WARNINGS, Settings};
use super::plan::{PlannedColumn, PlannedKey, TablePlan};
use super::refusal::{Refusal, unreadable};
use super::statements::RowStatements;
use super::{events, last_rows, table_of};
use crate::error::failing_row::FailingColumn;
use crate::server::definitions::TableName;
use crate::server::definitions::table::{TargetTable, TargetType};
use csa_provider::sql_text::identifier;

const DUPLICATE: u16 = 1062;
/// Bytes of a value that are shown.
const SHOWN_MAX: usize = 256;
/// Bytes of the longest statement that anybody would paste.
const REPAIR_MAX: usize = 8192;

/// A row change, and how to find the target's row that it concerns.
pub(crate) struct RowFacts {
    pub(crate) columns: Vec<FailingColumn>,
    /// The index and its columns.
    pub(crate) key: Option<String>,
    /// Asks for the target's row by that key: one text for each of `columns`.
    pub(crate) query: Option<String>,
    pub(crate) repair: Repair,
}

/// Statements that insert the row that is missing, or delete the one in the way.
#[derive(Default)]
pub(crate) struct Repair {
    if_missing: Option<String>,
    if_present: Option<String>,
}

impl Repair {
    pub(crate) fn for_row(self, present: bool) -> Option<String> {
        if present { self.if_present } else { self.if_missing }
    }
}

/// `images`: table maps and a rows event of one row; `code` and `message`: the target's error.
///
/// # Errors
/// The row does not fit the target's table, so there are no names for its values.
pub(crate) fn describe(
    images: &Bytes,
    tables: &HashMap<TableName, Option<Arc<TargetTable>>>,
    code: u16,
    message: &str,
) -> Result<RowFacts, Refusal> {
    let events: Vec<_> = events(images).collect::<Result<_, _>>()?;
    let (map, rows) = last_rows(&events)?;
    // Signs that may not have been logged are the target's, which is enough to show values.
    let plan = TablePlan::new(&map, table_of(&map, tables)?, false)?;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    rows.read_row(&plan.layout, rows.images, &mut before, &mut after).map_err(unreadable)?;

    // For a duplicate the row to look at is the one in the way: it has the key that this change adds.
    let is_duplicate = code == DUPLICATE;
    let image = match is_duplicate || rows.kind == RowsKind::Write {
        true => joined(&before, &after),
        false => before.clone(),
    };
    let key = match is_duplicate {
        true => plan.keys.iter().find(|key| names(message, &plan, key)),
        false => plan.key_for(&image),
    };
    let key = key.filter(|key| key.columns.iter().all(|&at| is_value(image.get(at))));
    let condition = match key {
        Some(key) => {
            let mut out = Vec::new();
            RowStatements::to_look_at(&plan, &rows)?.push_condition(Some(key), &image, &mut out)?;
            Some(String::from_utf8_lossy(&out).into_owned())
        }
        None => None,
    };
    let if_present = condition.as_ref().filter(|_| is_duplicate);
    Ok(RowFacts {
        columns: columns(&plan, &before, &after),
        key: key.map(|key| key.label.clone()),
        query: condition.as_ref().map(|condition| query(&plan, condition)),
        repair: Repair {
            if_missing: (rows.kind != RowsKind::Write)
                .then(|| insert(&plan, &rows, &before))
                .flatten()
                .and_then(|text| to_paste(&plan, text)),
            if_present: if_present.and_then(|condition| {
                to_paste(&plan, format!("DELETE FROM {} WHERE {condition}", plan.quoted))
            }),
        },
    })
}

/// Returns the start of a text that may be long.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
    }
}

/// Returns the row after the change; columns that the image leaves out did not change.
fn joined<'a>(before: &[Field<'a>], after: &[Field<'a>]) -> Vec<Field<'a>> {
    let old = |place: usize| before.get(place).copied().unwrap_or(Field::Absent);
    let new = after.iter().enumerate();
    new.map(|(place, field)| if *field == Field::Absent { old(place) } else { *field }).collect()
}

fn is_value(field: Option<&Field<'_>>) -> bool {
    matches!(field, Some(Field::Bytes(_)))
}

/// Returns true if the server's message is about this key: it has `for key 'table.index'`, where a target with
/// `lower_case_table_names` has the table's name in lower case.
fn names(message: &str, plan: &TablePlan<'_>, key: &PlannedKey) -> bool {
    const BEFORE: &str = "for key '";
    let Some(at) = message.rfind(BEFORE) else { return false };
    let named = message.get(at + BEFORE.len()..).unwrap_or_default();
    let tables = [&plan.table.name, &lower_case_name(&plan.table.name)];
    let is = |index: &str| {
        identifier(index) == key.index
            && (tables.iter().any(|table| named.starts_with(&format!("{table}.{index}'")))
                || named.starts_with(&format!("{index}'")))
    };
    plan.table.unique.iter().any(|index| is(&index.name))
}

fn columns(plan: &TablePlan<'_>, before: &[Field<'_>], after: &[Field<'_>]) -> Vec<FailingColumn> {
    let text = |column: &PlannedColumn<'_>, field: Option<&Field<'_>>| match field? {
        Field::Absent => None,
        Field::Null => Some("NULL".to_owned()),
        Field::Bytes(bytes) => Some(shown(&value(column, bytes))),
        Field::JsonDiff(_) => Some("(changes of the document)".to_owned()),
    };
    let columns = plan.columns.iter().enumerate();
    columns
        .map(|(place, column)| FailingColumn {
            name: column.target.name.clone(),
            before: text(column, before.get(place)),
            after: text(column, after.get(place)),
            target: None,
        })
        .collect()
}

/// Returns the value in the form in which [`query`] makes the server return it, as far as that is
/// known here.
fn value(column: &PlannedColumn<'_>, bytes: &[u8]) -> String {
    match ColumnValue::read(column.value_type, column.unsigned, bytes) {
        Ok(value) => value.shown(matches!(column.strings, Strings::Text(..)), SHOWN_MAX),
        Err(error) => format!("({error})"),
    }
}

fn query(plan: &TablePlan<'_>, condition: &str) -> String {
    let text = |column: &PlannedColumn<'_>| {
        let name = &column.quoted;
        match column.target.target_type {
            TargetType::Enum | TargetType::Set | TargetType::Bit { .. } => format!("{name}+0"),
            TargetType::Binary { .. } | TargetType::Geometry | TargetType::Vector => {
                format!("CONCAT('0x',HEX(LEFT({name},{SHOWN_MAX})))")
            }
            TargetType::Text { .. } | TargetType::Json => {
                format!("LEFT(CONVERT({name} USING utf8mb4),{})", SHOWN_MAX + 1)
            }
            _ => name.clone(),
        }
    };
    let columns: Vec<String> = plan.columns.iter().map(text).collect();
    format!("SELECT {} FROM {} WHERE {condition} LIMIT 1", columns.join(","), plan.quoted)
}

/// An INSERT of the row as it was on the source before the change, where its image has all of it.
fn insert(plan: &TablePlan<'_>, rows: &RowsEvent<'_>, before: &[Field<'_>]) -> Option<String> {
    if before.contains(&Field::Absent) {
        return None;
    }
    let mut write = *rows;
    (write.kind, write.before, write.after) = (RowsKind::Write, &[], rows.before);
    write.flags = 0;
    let mut writer = PacketWriter::new(usize::MAX, Some(settings(plan)));
    let statements = RowStatements::to_look_at(plan, &write).ok()?;
    statements.insert(before, &mut writer).ok()?;
    let (packets, _) = writer.finish();
    let [packet] = packets.as_slice() else { return None };
    let text = String::from_utf8(packet.text.clone()).ok()?;
    // A SET before it means that the row has values that only a lenient session takes.
    let alone = text.strip_suffix(SHOW_WARNINGS).unwrap_or(&text);
    text.starts_with("INSERT").then(|| alone.to_owned())
}

fn settings(plan: &TablePlan<'_>) -> Settings {
    let strict = plan.computed.is_none();
    Settings { foreign_key_checks: true, unique_checks: true, strict }
}

/// Makes the statement independent of the session's `sql_mode` and time zone; `None` if it is too long, or has
/// characters that are shown as escapes which SQL does not read.
fn to_paste(plan: &TablePlan<'_>, statement: String) -> Option<String> {
    let is_timestamp = |column: &PlannedColumn<'_>| {
        use ValueType::{Old, Timestamp};
        matches!(column.value_type, Timestamp { .. } | Old(OldTemporal::Timestamp))
    };
    let zone = match plan.columns.iter().any(is_timestamp) {
        true => "time_zone='+00:00', ",
        false => "",
    };
    let mode = settings(plan).sql_mode();
    let reads_as_shown = !statement.contains(|c| acts(c) && !matches!(c, '\n' | '\r' | '\t'));
    (statement.len() <= REPAIR_MAX && reads_as_shown)
        .then(|| format!("SET {zone}sql_mode='{mode}'; {statement}"))
}
