//! A transaction's row changes, found once: where each image is and which keys it touches.

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{EventError, EventHeader, RawEvent, RowsEvent, RowsKind, TableMap};

use crate::keys::{KeyUse, RowEnds, Scratch, TableLayout, TableUse};

/// Row changes in the order they were made.
#[derive(Debug, Default)]
pub struct RowChanges {
    pub blocks: Vec<RowsBlock>,
    pub rows: Vec<RowChange>,
    /// Keys of all rows, row by row.
    pub keys: Vec<KeyUse>,
    /// Tables touched: each use once, the widest use of a table last.
    pub tables: Vec<TableUse>,
    /// Some of its events can't be taken apart into rows: everything must be sent as it was logged.
    pub opaque: bool,
}

/// Rows of one event.
#[derive(Debug)]
pub struct RowsBlock {
    pub layout: Arc<TableLayout>,
    pub kind: RowsKind,
    /// Flags of the session that wrote it, without the end of the statement.
    pub flags: u16,
    /// The server that made the change, and when (seconds since the epoch).
    pub server_id: u32,
    pub timestamp: u32,
    /// Every column is in every image.
    pub full: bool,
    /// The event's body, into which [`RowChange`] points.
    pub body: Bytes,
    /// Column count and bitmaps, as they stand in the body.
    pub columns: (u32, u32),
    /// Its rows in [`RowChanges::rows`].
    pub rows: (u32, u32),
}

/// One row's place in its block's body, and the end of its keys.
#[derive(Debug, Clone, Copy)]
pub struct RowChange {
    pub start: u32,
    /// End of the before image; `start` where there is none.
    pub middle: u32,
    pub end: u32,
    pub keys_end: u32,
}

/// Reads the row events of one transaction after the other.
#[derive(Debug, Default)]
pub(crate) struct ChangesReader {
    scratch: Scratch,
    /// Tables by the source's number, of the open transaction.
    maps: foldhash::HashMap<u64, Option<Arc<TableLayout>>>,
    changes: RowChanges,
    /// The number of tables in `changes` when it last had each only once.
    distinct: usize,
}

/// The longest list of tables that was never sorted.
const TABLES_LISTED: usize = 64;

impl ChangesReader {
    /// Takes a table map; `layout` is `None` for a table whose rows are left out.
    pub(crate) fn map(&mut self, table_id: u64, layout: Option<Arc<TableLayout>>) {
        // Each statement logs its maps again, and the last one with a number counts.
        self.maps.insert(table_id, layout);
    }

    /// Returns the layout of a table; `None` for one whose rows are left out.
    pub(crate) fn layout(&self, table_id: u64) -> Option<&TableLayout> {
        self.maps.get(&table_id)?.as_deref()
    }

    /// Something has to be sent as it was logged.
    pub(crate) fn opaque(&mut self) {
        self.changes.opaque = true;
    }

    /// Takes a rows event.
    ///
    /// # Errors
    /// Malformed bytes.
    pub(crate) fn rows(&mut self, event: &RawEvent) -> Result<(), EventError> {
        let body = event.body();
        let Some(layout) = self.maps.get(&table_id(body)) else {
            return Err(malformed("table map is missing"));
        };
        let Some(layout) = layout else { return Ok(()) };
        let changes = &mut self.changes;
        // An image without columns has no bytes, yet it is a row: INSERT INTO t () VALUES () with
        // binlog_row_image=MINIMAL.
        let plain = RowsEvent::parse(event.event_type(), body)?;
        let Some(rows) = plain.filter(|rows| !rows.images.is_empty()) else {
            changes.opaque = true;
            // Its rows and keys are not read, so it may reach any
            // row here, of children and of parents.
            changes.tables.push(TableUse::Whole(layout.id));
            let reached = layout.keys.cascades_to.iter().chain(&layout.keys.other_parents);
            changes.tables.extend(reached.map(|&table| TableUse::Whole(table)));
            let parents = layout.keys.foreign_keys.iter().map(|key| TableUse::Whole(key.parent));
            changes.tables.extend(parents);
            return Ok(());
        };
        // Positions in the images would name other columns from here on.
        if rows.width != layout.columns.len() {
            return Err(malformed("column count differs from the table map's"));
        }
        let full = rows.has_whole_images();
        let first = changes.rows.len() as u32;
        let mut at = rows.images_at;
        while at < body.len() {
            let bytes = body.get(at..).unwrap_or_default();
            let RowEnds { before, row, keyed } = layout.read_row(
                &rows,
                bytes,
                &mut self.scratch,
                &mut changes.keys,
                &mut changes.tables,
            )?;
            // Images without any column were handled above; here the loop would never end.
            if row == 0 {
                return Err(malformed("row without a length"));
            }
            changes.opaque |= !keyed;
            changes.rows.push(RowChange {
                // No event has more than 1 GiB, so its offsets fit.
                start: at as u32,
                middle: (at + before) as u32,
                end: (at + row) as u32,
                keys_end: changes.keys.len() as u32,
            });
            at += row;
            dedup(&mut changes.tables, &mut self.distinct);
        }
        let columns = (rows.columns_at as u32, rows.images_at as u32);
        changes.blocks.push(RowsBlock {
            layout: Arc::clone(layout),
            kind: rows.kind,
            // Rows of several source statements share one later, whose writer marks its end.
            flags: rows.flags & !RowsEvent::STATEMENT_END,
            server_id: event.header().server_id,
            timestamp: event.header().timestamp,
            full,
            // Shares the event's memory.
            body: event.bytes().slice(EventHeader::LEN..EventHeader::LEN + body.len()),
            columns,
            rows: (first, changes.rows.len() as u32),
        });
        Ok(())
    }

    /// Returns true if the rows read so far change nothing.
    pub(crate) fn has_nothing(&self) -> bool {
        self.changes.rows.is_empty() && !self.changes.opaque
    }

    /// [`RowChanges::held_bytes`] of the rows read so far.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.changes.held_bytes()
    }

    /// Ends the transaction and returns its changes.
    pub(crate) fn finish(&mut self) -> RowChanges {
        self.maps.clear();
        self.distinct = 0;
        let mut changes = std::mem::take(&mut self.changes);
        changes.tables.sort_unstable();
        changes.tables.dedup();
        changes
    }
}

impl RowChanges {
    /// Returns the bytes that this takes in addition to the events, and that sorting it into stages
    /// and finding conflicts will take.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        /// An entry of a stage, and its image's place in an event.
        const STAGED: usize = 160;
        /// Places in the stage's and the conflicts' maps.
        const REMEMBERED: usize = 96;
        let rows = self.rows.len() * (size_of::<RowChange>() + STAGED);
        let keys = self.keys.len() * (size_of::<KeyUse>() + REMEMBERED);
        (rows + keys + self.blocks.len() * size_of::<RowsBlock>()) as u64
    }

    /// The keys of the row with this number.
    #[must_use]
    pub fn keys_of(&self, row: usize) -> &[KeyUse] {
        let start = match row.checked_sub(1) {
            Some(before) => self.rows.get(before).map_or(0, |row| row.keys_end),
            None => 0,
        };
        let end = self.rows.get(row).map_or(start, |row| row.keys_end);
        self.keys.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// Keeps the list of tables short while a transaction with many rows is read. It is sorted only once it has doubled, because
/// each row adds to it.
fn dedup(tables: &mut Vec<TableUse>, distinct: &mut usize) {
    if tables.len() > TABLES_LISTED.max(*distinct * 2) {
        tables.sort_unstable();
        tables.dedup();
        *distinct = tables.len();
    } else if let [.., before, last] = tables.as_slice()
        && before == last
    {
        tables.pop();
    }
}

/// Returns the number of the table with which a table map or a rows event begins.
#[must_use]
pub fn table_id(body: &[u8]) -> u64 {
    let id = body.get(..TableMap::ID_LEN).unwrap_or_default();
    id.iter().rev().fold(0, |id, &byte| id << 8 | u64::from(byte))
}

pub(crate) fn malformed(what: &'static str) -> EventError {
    EventError::Malformed {
        event: "rows",
        source: csa_provider::binlog::Malformed { what, offset: 0 },
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::EventType;
    use csa_provider::test_util::{event, int_image, int_table_map, rows_event};

    use super::*;
    use crate::keys::{KeyClass, KeyPart, TableId, TableKeys, UniqueKey};

    #[test]
    fn a_row_without_columns_is_a_row() {
        let map = int_table_map(7, "d", "t", 1);
        let parsed = TableMap::parse(map.body()).expect("well-formed");
        let keys = Some(Arc::new(TableKeys { columns: 1, ..TableKeys::default() }));
        let layout = TableLayout::new(TableId(1), keys, &parsed, map.body()).expect("well-formed");
        let mut reader = ChangesReader::default();
        reader.map(7, Some(Arc::new(layout)));
        // Table id, flags, no extra data, one column, which is not in the image.
        let body = [7, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 0];
        reader.rows(&event(EventType::WRITE_ROWS, &body)).expect("well-formed");
        let changes = reader.finish();
        assert!(changes.opaque);
        assert_eq!(changes.tables, [TableUse::Whole(TableId(1))]);
    }

    #[test]
    fn rows_of_thousands_of_tables_are_rarely_sorted() {
        const TABLES: u64 = 2_000;
        const ROWS: u64 = 20 * TABLES;
        let part = KeyPart { column: 0, class: KeyClass::Integer };
        let keys = Arc::new(TableKeys {
            columns: 1,
            unique: vec![UniqueKey { parts: vec![part] }],
            ..TableKeys::default()
        });
        let map = int_table_map(7, "d", "t", 1);
        let parsed = TableMap::parse(map.body()).expect("well-formed");
        let mut reader = ChangesReader::default();
        for id in 0..TABLES {
            let keys = Some(Arc::clone(&keys));
            let layout = TableLayout::new(TableId(id as u32), keys, &parsed, map.body());
            reader.map(id, Some(Arc::new(layout.expect("well-formed"))));
        }
        let mut times_shortened = 0;
        for row in 0..ROWS {
            let image = int_image(&[Some(row as i32)]);
            let before = reader.changes.tables.len();
            let event = rows_event(EventType::WRITE_ROWS, row % TABLES, 1, &image);
            reader.rows(&event).expect("well-formed");
            let listed = reader.changes.tables.len();
            times_shortened += u32::from(listed <= before);
            assert!(listed as u64 <= TABLES * 2);
        }
        assert!(times_shortened <= 20, "{times_shortened}");
        let changes = reader.finish();
        assert_eq!((changes.tables.len() as u64, changes.rows.len() as u64), (TABLES, ROWS));
    }
}
