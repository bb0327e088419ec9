//! Rows that one event updates more than once. Pure.
//!
//! In a table without a primary key and without a unique key of NOT NULL columns, the server finds the rows of an event
//! by a hash of their columns. After an update it looks for the new row in the hash, and updates it again at once
//! (`Rows_log_event::do_scan_and_update` in sql/log_event.cc). Three mistakes follow, in a BINLOG statement as on a replica
//! of MySQL's own:
//!
//! - The old value of a BLOB, TEXT, JSON, GEOMETRY or VECTOR column lies in the buffer that takes the new value. If both
//!   have the same length, the storage engine sees no change, and the second update is lost without an error.
//! - Of several updates that begin with the same row, it takes any. Where a row returns to what it was and changes
//!   again, the others may then find no row.
//! - By an index it looks for the values that rows have before their updates, each value once and in the index's order
//!   (`next_record_scan`). A value that only another update of the event brings may not be there yet, or no longer:
//!   error 1032.
//!
//! In events of their own all of them arrive.

use std::hash::BuildHasher as _;

use csa_provider::binlog::{
    Column, ColumnType, EventError, Field, RawEvent, RowsEvent, RowsKind, TableMap,
};
use foldhash::{HashMap, HashSet, HashSetExt as _};

/// Rows of an event that can be applied at once.
#[derive(Debug)]
pub(super) struct EventPart {
    pub(super) event: RawEvent,
    /// The number of rows in the parts before.
    pub(super) rows_before: usize,
}

/// One row's images in an event.
struct Update<'a> {
    before: Vec<Field<'a>>,
    /// The image, with the old values of columns that it lacks.
    after: Vec<Field<'a>>,
    /// The end of its images.
    end: usize,
    /// It may change a value that the server keeps outside of the row.
    changes_large: bool,
}

/// Returns an event of updates in parts that the server can apply. The last part alone ends the statement, if the event
/// does. Returns `None` for an event that can stay as it is. `has_index`: the target may have an index by which it looks
/// for the rows.
///
/// # Errors
/// Malformed bytes.
pub(super) fn divided(
    event: &RawEvent,
    map: &TableMap<'_>,
    has_index: bool,
) -> Result<Option<Vec<EventPart>>, EventError> {
    let rows = RowsEvent::parse_any(event.event_type(), event.body())?;
    let Some(rows) = rows.filter(|rows| rows.kind == RowsKind::Update) else { return Ok(None) };
    let columns = map.columns()?;
    if !may_update_again(&columns, &rows)? {
        return Ok(None);
    }
    let updates = updates(&columns, &rows)?;
    let parts = parts(&updates, has_index);
    Ok((parts.len() > 1).then(|| cut(event, &rows, &parts)))
}

/// Returns true if some row before may be another row after. Keeps no row, because hardly any event has one.
fn may_update_again(columns: &[Column], rows: &RowsEvent<'_>) -> Result<bool, EventError> {
    let state = foldhash::fast::FixedState::default();
    let (mut befores, mut afters) = (Vec::new(), HashSet::new());
    if rows.has_whole_images() {
        for (before, after) in rows.updated_rows(columns)? {
            befores.push(state.hash_one(before));
            afters.insert(state.hash_one(after));
        }
    } else {
        let mut may_be_equal = false;
        each_row(columns, rows, |before, after, _| {
            may_be_equal |= after.iter().any(|field| matches!(field, Field::JsonDiff(_)));
            befores.push(state.hash_one(before));
            afters.insert(state.hash_one(after));
        })?;
        if may_be_equal {
            return Ok(befores.len() > 1);
        }
    }
    Ok(befores.len() > 1 && befores.iter().any(|before| afters.contains(before)))
}

fn updates<'a>(columns: &[Column], rows: &RowsEvent<'a>) -> Result<Vec<Update<'a>>, EventError> {
    let mut updates = Vec::new();
    each_row(columns, rows, |before, after, end| {
        let mut values = columns.iter().zip(before).zip(after);
        updates.push(Update {
            changes_large: values.any(|((column, old), new)| is_large(column) && old != new),
            before: before.to_vec(),
            after: after.to_vec(),
            end,
        });
    })?;
    Ok(updates)
}

/// Calls `found` with each row before and after, and the end of its images.
fn each_row<'a>(
    columns: &[Column],
    rows: &RowsEvent<'a>,
    mut found: impl FnMut(&[Field<'a>], &[Field<'a>], usize),
) -> Result<(), EventError> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut end = 0;
    while let Some(rest) = rows.images.get(end..).filter(|rest| !rest.is_empty()) {
        let length = rows.read_row(columns, rest, &mut before, &mut after)?;
        // Images without columns, which no server writes.
        if length == 0 {
            break;
        }
        end += length;
        for (new, old) in after.iter_mut().zip(&before) {
            if *new == Field::Absent {
                *new = *old;
            }
        }
        found(&before, &after, end);
    }
    Ok(())
}

/// Returns true if the server keeps a pointer to the value in its row.
const fn is_large(column: &Column) -> bool {
    matches!(
        column.column_type,
        ColumnType::Blob(_) | ColumnType::Json(_) | ColumnType::Geometry(_) | ColumnType::Vector(_)
    )
}

/// Returns the number of rows in each part, and where it ends in the images.
fn parts(updates: &[Update<'_>], has_index: bool) -> Vec<(usize, usize)> {
    let compared = compared(updates);
    let (mut parts, mut last) = (Vec::new(), (0, 0));
    let mut part = Part::new(has_index);
    for update in updates {
        let (before, after) = (key(&update.before, &compared), key(&update.after, &compared));
        if !part.takes(&before, &after, update.changes_large) {
            parts.push(std::mem::take(&mut last));
            part = Part::new(has_index);
            part.takes(&before, &after, update.changes_large);
        }
        last = (last.0 + 1, update.end);
    }
    parts.push(last);
    parts
}

/// Updates that the server can make in any order: it takes any that it finds in the hash. So no row changes its large
/// values by a second update, and none becomes again what it was. With an index none has a second update: that costs
/// events, but none of them a scan of the table.
struct Part<'a> {
    has_index: bool,
    numbers: HashMap<Vec<Field<'a>>, usize>,
    rows: Vec<KnownRow>,
}

/// A row as it is before or after an update.
#[derive(Default)]
struct KnownRow {
    becomes: Vec<usize>,
    is_after: bool,
    /// An update changes its large values.
    changes_large: bool,
}

impl<'a> Part<'a> {
    /// A search through more rows costs more than another event.
    const STEPS_MAX: usize = 1000;

    fn new(has_index: bool) -> Self {
        Self { has_index, numbers: HashMap::default(), rows: Vec::new() }
    }

    /// Takes an update; returns `false` and takes nothing if it needs a part of its own. An empty part takes anything.
    fn takes(&mut self, before: &[Field<'a>], after: &[Field<'a>], changes_large: bool) -> bool {
        let (from, to) = (self.number(before), self.number(after));
        let row = |number: usize| self.rows.get(number);
        let is_second = row(from).is_some_and(|row| row.is_after);
        if row(to).is_some_and(|row| row.changes_large)
            || is_second && (self.has_index || changes_large || self.may_become(to, from))
        {
            return false;
        }
        if let Some(row) = self.rows.get_mut(from) {
            row.becomes.push(to);
            row.changes_large |= changes_large;
        }
        if let Some(row) = self.rows.get_mut(to) {
            row.is_after = true;
        }
        true
    }

    fn number(&mut self, row: &[Field<'a>]) -> usize {
        if let Some(&number) = self.numbers.get(row) {
            return number;
        }
        self.rows.push(KnownRow::default());
        self.numbers.insert(row.to_vec(), self.rows.len() - 1);
        self.rows.len() - 1
    }

    fn may_become(&self, from: usize, to: usize) -> bool {
        let mut seen = HashSet::new();
        let mut next = vec![from];
        while let Some(number) = next.pop() {
            if number == to || seen.len() > Self::STEPS_MAX {
                return true;
            }
            if seen.insert(number) {
                next.extend(self.rows.get(number).iter().flat_map(|row| &row.becomes));
            }
        }
        false
    }
}

/// Returns which columns tell rows apart: not those with changes of JSON documents, whose outcome is not known.
fn compared(updates: &[Update<'_>]) -> Vec<bool> {
    let width = updates.first().map_or(0, |update| update.after.len());
    let is_known = |column| {
        let after = updates.iter().map(|update| update.after.get(column));
        !after.flatten().any(|field| matches!(field, Field::JsonDiff(_)))
    };
    (0..width).map(is_known).collect()
}

fn key<'a>(row: &[Field<'a>], compared: &[bool]) -> Vec<Field<'a>> {
    row.iter().zip(compared).filter(|(_, compared)| **compared).map(|(field, _)| *field).collect()
}

fn cut(event: &RawEvent, rows: &RowsEvent<'_>, parts: &[(usize, usize)]) -> Vec<EventPart> {
    let body = event.body();
    let head = body.get(..rows.images_at).unwrap_or_default();
    let (mut rows_before, mut start) = (0, 0);
    let part = |&(count, end): &(usize, usize)| {
        let images = rows.images.get(start..end).unwrap_or_default();
        let mut body = [head, images].concat();
        if end < rows.images.len()
            && let Some(flags) = body.get_mut(TableMap::ID_LEN)
        {
            *flags &= !(RowsEvent::STATEMENT_END as u8);
        }
        let part = EventPart { event: event.with_body(&body), rows_before };
        (rows_before, start) = (rows_before + count, end);
        part
    };
    parts.iter().map(part).collect()
}

#[cfg(test)]
mod tests;
