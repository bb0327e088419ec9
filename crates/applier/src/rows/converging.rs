//! Changes of tables whose rows a copy read while they were changed. Pure.
//!
//! A copy reads such a table in chunks, one after the other, so each row is as it was at some moment between the
//! copy's begin and its end. All changes from the begin to the end are applied then. Each update is a delete of the
//! row before and a write of the row after, in the session mode IDEMPOTENT: a missing row is passed over, an
//! existing one replaced. So the last change of a row decides, and a row without a change is as it was read. At the
//! end the table is what it was on the source. Images must have all columns, and the table no unique key but the
//! primary one.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use csa_provider::binlog::{
    EventHeader, EventType, RawEvent, RowsEvent, RowsKind, TableMap, UpdatedRow,
};

use csa_provider::seams::planted::{Bug, is_planted};

use crate::error::{Error, Invariant, Result};
use crate::options::ConvergingTables;
use crate::rows::binlog_statements::{ROWS_FLAGS, clear_statement_end, set_statement_end};
use crate::rows::dml;

/// Row images of a table.
struct Mapped {
    is_converging: bool,
    is_related: bool,
    map: RawEvent,
}

/// Row images for one BINLOG statement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// They are of tables that converge, and need the session mode IDEMPOTENT; all others need STRICT.
    pub(crate) is_converging: bool,
    pub(crate) events: Vec<u8>,
}

/// Cuts events where those of converging tables begin and end.
#[derive(Debug, Default)]
struct Segments {
    done: Vec<Segment>,
    /// A source statement has begun, and not ended.
    is_open: bool,
    /// Table maps of the last source statement.
    maps: Vec<u8>,
    /// Those of them that no rows have followed yet: maps alone are no statement.
    new_maps: Vec<u8>,
    current: Segment,
    /// Start of the last rows event in the current segment.
    last_rows: Option<usize>,
}

impl Segments {
    fn map(&mut self, event: &RawEvent) {
        if !self.is_open {
            self.maps.clear();
            self.is_open = true;
        }
        event.write_without_checksum(&mut self.maps);
        event.write_without_checksum(&mut self.new_maps);
    }

    /// Returns the events that the rows of this event follow.
    fn rows(&mut self, rows: &RowsEvent<'_>, is_converging: bool) -> &mut Vec<u8> {
        self.is_open = rows.flags & RowsEvent::STATEMENT_END == 0;
        if self.last_rows.is_some() && self.current.is_converging != is_converging {
            self.end();
        }
        match self.last_rows {
            Some(_) => self.current.events.append(&mut self.new_maps),
            None => self.current = Segment { is_converging, events: self.maps.clone() },
        }
        self.new_maps.clear();
        self.last_rows = Some(self.current.events.len());
        &mut self.current.events
    }

    fn end(&mut self) {
        if let Some(rows) = self.last_rows.take() {
            set_statement_end(&mut self.current.events, rows);
            self.done.push(std::mem::take(&mut self.current));
        }
    }
}

impl ConvergingTables {
    /// Makes each update of these tables a delete and a write. `images`: whole events without checksums.
    ///
    /// # Errors
    /// An image lacks columns, or events are malformed.
    pub(crate) fn split(&self, images: Vec<u8>) -> Result<Vec<Segment>> {
        let images = Bytes::from(images);
        let mut maps: HashMap<u64, Mapped> = HashMap::new();
        let mut segments = Segments::default();
        for event in dml::events(&images) {
            let event = event?;
            if event.event_type() == EventType::TABLE_MAP {
                let map = TableMap::parse(event.body()).map_err(Error::UnreadableRows)?;
                let name = dml::name_of(&map);
                let is_converging = self.converging.contains(&name);
                let is_related = self.related.contains(&name);
                maps.insert(map.table_id, Mapped { is_converging, is_related, map: event.clone() });
                segments.map(&event);
                continue;
            }
            let rows = RowsEvent::parse_any(event.event_type(), event.body());
            let rows = rows.map_err(Error::UnreadableRows)?.ok_or_else(|| of_version_1(&event))?;
            let Some(Mapped { is_converging, is_related, map }) = maps.get(&rows.table_id) else {
                // The server would pass over the rows.
                return Err(Error::Broken(Invariant::RowLiesInItsEvent));
            };
            let out = segments.rows(&rows, *is_converging);
            let begin = out.len();
            let last = match is_converging {
                true => write_converging(map, &event, &rows, out)?,
                false => {
                    event.write_without_checksum(out);
                    begin
                }
            };
            if *is_related {
                uncheck_foreign_keys(out, begin);
            }
            segments.last_rows = Some(last);
        }
        segments.end();
        Ok(segments.done)
    }
}

/// Writes rows of a converging table. Returns the place of the last event.
fn write_converging(
    map: &RawEvent,
    event: &RawEvent,
    rows: &RowsEvent<'_>,
    out: &mut Vec<u8>,
) -> Result<usize> {
    let map = TableMap::parse(map.body()).map_err(Error::UnreadableRows)?;
    check_columns(&map, rows)?;
    match rows.kind {
        RowsKind::Update if !is_planted(Bug::ConvergingUpdateKept) => {
            write_update(&map, event, rows, out)
        }
        RowsKind::Update | RowsKind::Write | RowsKind::Delete => {
            let begin = out.len();
            event.write_without_checksum(out);
            Ok(begin)
        }
    }
}

/// Sets the flag of `foreign_key_checks=0` in all events from `begin` on.
fn uncheck_foreign_keys(events: &mut [u8], begin: usize) {
    let mut at = begin;
    while let Some(Ok(header)) =
        events.get(at..).filter(|rest| !rest.is_empty()).map(EventHeader::parse)
    {
        if let Some(flags) = events.get_mut(at + ROWS_FLAGS) {
            *flags |= RowsEvent::NO_FOREIGN_KEY_CHECKS as u8;
        }
        at += header.event_size as usize;
    }
}

/// Refuses an event whose rows can't be told apart.
fn of_version_1(event: &RawEvent) -> Error {
    Error::Rows {
        code: dml::codes::UNSUPPORTED,
        message: format!(
            "{} event while tables were copied in chunks: only events of version 2 can be applied then; turn \
             log_bin_use_v1_row_events off on the source and copy again, or provision the target in another way",
            event.event_type().name()
        ),
    }
}

/// Refuses images from which the row can't be made as a whole.
fn check_columns(map: &TableMap<'_>, rows: &RowsEvent<'_>) -> Result<()> {
    if rows.has_whole_images() {
        return Ok(());
    }
    let (schema, table) = dml::name_of(map);
    Err(Error::Rows {
        code: dml::codes::CONVERSION,
        message: format!(
            "{schema}.{table} was changed with incomplete row images while it was copied in chunks; let each \
             session on the source have binlog_row_image=FULL and binlog_row_value_options='', and copy again"
        ),
    })
}

/// Writes a delete of all rows before, and a write of all rows after. Where a row is changed twice, each change
/// is written before the next. Returns the place of the last event.
fn write_update(
    map: &TableMap<'_>,
    event: &RawEvent,
    rows: &RowsEvent<'_>,
    out: &mut Vec<u8>,
) -> Result<usize> {
    let columns = map.columns().map_err(Error::UnreadableRows)?;
    let updated = rows.updated_rows(&columns).map_err(Error::UnreadableRows)?;
    let written: HashSet<&[u8]> = updated.iter().map(|(_, after)| *after).collect();
    let is_changed_twice =
        updated.iter().any(|(before, after)| before != after && written.contains(before));
    let at_once = if is_changed_twice { 1 } else { updated.len().max(1) };
    let ends_statement = rows.flags & RowsEvent::STATEMENT_END != 0;
    let mut last = out.len();
    for some in updated.chunks(at_once) {
        for kind in [RowsKind::Delete, RowsKind::Write] {
            last = out.len();
            write_rows(event, rows, kind, some, out);
            clear_statement_end(out, last);
        }
    }
    if ends_statement {
        set_statement_end(out, last);
    }
    Ok(last)
}

/// Writes an event of this kind with the rows' images before, or those after.
fn write_rows(
    event: &RawEvent,
    rows: &RowsEvent<'_>,
    kind: RowsKind,
    updated: &[UpdatedRow<'_>],
    out: &mut Vec<u8>,
) {
    /// No extra data, a length that counts itself: what an update has there may be about two partitions.
    const NO_EXTRA_DATA: [u8; 2] = 2_u16.to_le_bytes();
    let (event_type, bitmap) = match kind {
        RowsKind::Delete => (EventType::DELETE_ROWS, rows.before),
        RowsKind::Write | RowsKind::Update => (EventType::WRITE_ROWS, rows.after),
    };
    let source = event.body();
    let mut body = Vec::with_capacity(source.len());
    body.extend_from_slice(source.get(..TableMap::ID_LEN + 2).unwrap_or_default());
    body.extend_from_slice(&NO_EXTRA_DATA);
    let width_ends = rows.images_at - 2 * bitmap.len();
    body.extend_from_slice(source.get(rows.columns_at..width_ends).unwrap_or_default());
    body.extend_from_slice(bitmap);
    for (before, after) in updated {
        body.extend_from_slice(if kind == RowsKind::Delete { before } else { after });
    }
    let start = out.len();
    event.with_body(&body).write_without_checksum(out);
    if let Some(at) = out.get_mut(start + EventHeader::EVENT_TYPE_OFFSET) {
        *at = event_type.0;
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::test_util::{int_image, int_table_map, rows_event};

    use super::*;

    const TABLE_ID: u64 = 7;
    const COPIED: &str = "t";

    fn image(values: [i32; 2]) -> Vec<u8> {
        int_image(&values.map(Some))
    }

    /// A statement with one rows event, as it is sent.
    fn statement(table: &str, event_type: EventType, rows: &[[i32; 2]]) -> Vec<u8> {
        let images = rows.iter().flat_map(|row| image(*row)).collect::<Vec<u8>>();
        let mut all = Vec::new();
        int_table_map(TABLE_ID, "d", table, 2).write_without_checksum(&mut all);
        let start = all.len();
        rows_event(event_type, TABLE_ID, 2, &images).write_without_checksum(&mut all);
        set_statement_end(&mut all, start);
        all
    }

    fn segments(images: Vec<u8>) -> Result<Vec<Segment>> {
        let tables = ConvergingTables::new([("d".to_owned(), COPIED.to_owned())], []);
        tables.split(images)
    }

    fn split(images: Vec<u8>) -> Result<Vec<u8>> {
        Ok(segments(images)?.into_iter().flat_map(|segment| segment.events).collect())
    }

    /// The changes as a server makes them in the session mode IDEMPOTENT: kinds and rows, in order.
    fn changes(images: Vec<u8>) -> Vec<(EventType, bool, Vec<u8>)> {
        let events = dml::events(&Bytes::from(images)).map(|event| event.unwrap());
        events
            .filter(|event| event.event_type() != EventType::TABLE_MAP)
            .map(|event| {
                let rows = dml::rows_of(&event).unwrap();
                let is_end = rows.flags & RowsEvent::STATEMENT_END != 0;
                (event.event_type(), is_end, rows.images.to_vec())
            })
            .collect()
    }

    #[test]
    fn an_update_becomes_a_delete_and_a_write() {
        let rows = [[1, 10], [1, 11], [2, 20], [3, 20]];
        let split = split(statement(COPIED, EventType::UPDATE_ROWS, &rows)).unwrap();
        let both = |a, b| [image(a), image(b)].concat();
        assert_eq!(
            changes(split),
            [
                (EventType::DELETE_ROWS, false, both([1, 10], [2, 20])),
                (EventType::WRITE_ROWS, true, both([1, 11], [3, 20])),
            ]
        );
    }

    #[test]
    fn a_row_that_is_changed_twice_keeps_its_order() {
        let rows = [[1, 10], [2, 10], [2, 10], [3, 10]];
        let split = split(statement(COPIED, EventType::UPDATE_ROWS, &rows)).unwrap();
        assert_eq!(
            changes(split),
            [
                (EventType::DELETE_ROWS, false, image([1, 10])),
                (EventType::WRITE_ROWS, false, image([2, 10])),
                (EventType::DELETE_ROWS, false, image([2, 10])),
                (EventType::WRITE_ROWS, true, image([3, 10])),
            ]
        );
    }

    #[test]
    fn other_changes_and_other_tables_stay_as_they_are() {
        for (table, event_type) in [
            (COPIED, EventType::WRITE_ROWS),
            (COPIED, EventType::DELETE_ROWS),
            ("other", EventType::UPDATE_ROWS),
        ] {
            let images = statement(table, event_type, &[[1, 10], [1, 11]]);
            assert_eq!(split(images.clone()).unwrap(), images, "{table} {event_type:?}");
        }
    }

    /// A change of two tables at once, and another statement after it.
    #[test]
    fn rows_of_other_tables_stay_strict() {
        let rows = |table_id, event_type, is_end| {
            let mut bytes = Vec::new();
            rows_event(event_type, table_id, 2, &image([1, 2])).write_without_checksum(&mut bytes);
            if is_end {
                set_statement_end(&mut bytes, 0);
            }
            bytes
        };
        let map = |table_id, table| {
            let mut bytes = Vec::new();
            int_table_map(table_id, "d", table, 2).write_without_checksum(&mut bytes);
            bytes
        };
        let both = [map(1, "other"), map(2, COPIED)].concat();
        let (write, delete) = (EventType::WRITE_ROWS, EventType::DELETE_ROWS);
        let found = segments(
            [
                both.clone(),
                rows(1, write, false),
                rows(2, write, false),
                rows(1, delete, true),
                map(1, "other"),
                rows(1, write, true),
                map(2, COPIED),
                rows(2, delete, true),
                both.clone(),
                rows(1, write, false),
                rows(2, write, true),
            ]
            .concat(),
        )
        .unwrap();
        let segment =
            |is_converging, events: &[Vec<u8>]| Segment { is_converging, events: events.concat() };
        assert_eq!(
            found,
            [
                segment(false, &[both.clone(), rows(1, write, true)]),
                segment(true, &[both.clone(), rows(2, write, true)]),
                segment(
                    false,
                    &[both.clone(), rows(1, delete, true), map(1, "other"), rows(1, write, true)]
                ),
                segment(true, &[map(2, COPIED), rows(2, delete, true)]),
                segment(false, &[both.clone(), rows(1, write, true)]),
                segment(true, &[both, rows(2, write, true)]),
            ]
        );
    }

    #[test]
    fn foreign_keys_of_related_tables_are_not_checked() {
        let name = |table: &str| ("d".to_owned(), table.to_owned());
        let tables = ConvergingTables::new([name(COPIED)], [name(COPIED), name("child")]);
        let flags = |table, event_type| {
            let images = statement(table, event_type, &[[1, 10], [1, 11]]);
            let segments = tables.split(images).unwrap();
            let events = segments.into_iter().flat_map(|segment| segment.events);
            let events: Vec<_> =
                dml::events(&Bytes::from(events.collect::<Vec<u8>>())).flatten().collect();
            let rows = events.iter().filter(|event| event.event_type().is_rows());
            rows.map(|event| dml::rows_of(event).unwrap().flags).collect::<Vec<u16>>()
        };
        assert_eq!(flags(COPIED, EventType::UPDATE_ROWS), [2, 3]);
        assert_eq!(flags("child", EventType::UPDATE_ROWS), [3]);
        assert_eq!(flags("other", EventType::DELETE_ROWS), [1]);
    }

    #[test]
    fn rows_of_version_1_are_refused_with_the_setting_to_change() {
        let mut images = Vec::new();
        int_table_map(TABLE_ID, "d", COPIED, 2).write_without_checksum(&mut images);
        let start = images.len();
        rows_event(EventType::WRITE_ROWS, TABLE_ID, 2, &image([1, 10]))
            .write_without_checksum(&mut images);
        images[start + EventHeader::EVENT_TYPE_OFFSET] = EventType::WRITE_ROWS_V1.0;
        let error = split(images).unwrap_err().to_string();
        assert!(error.contains("log_bin_use_v1_row_events") && !error.contains("sql"), "{error}");
    }

    #[test]
    fn incomplete_images_are_refused() {
        let mut images = statement(COPIED, EventType::UPDATE_ROWS, &[[1, 10], [1, 11]]);
        let bitmap = images.len() - image([1, 10]).len() * 2 - 1;
        images[bitmap] = 0b01;
        let error = split(images).unwrap_err().to_string();
        assert!(error.contains("d.t") && error.contains("binlog_row_image=FULL"), "{error}");
    }
}
