//! Splits a rows event into events of one row each. Pure.

use bytes::Bytes;
use csa_provider::binlog::{EventError, EventType, Field, Malformed, RowsEvent, TableMap};

use crate::error::{Error, Result};
use crate::rows::binlog_statements::set_statement_end;
use crate::rows::dml;

/// The rows of an event, each after the table maps that stood before the event.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) table: String,
    pub(super) event_type: EventType,
    pub(super) end_log_pos: u32,
    pub(super) rows: Vec<Vec<u8>>,
}

impl Split {
    /// `images`: table maps and one rows event, without checksums.
    ///
    /// # Errors
    /// Malformed events.
    pub(super) fn new(images: &Bytes) -> Result<Self> {
        let events: Vec<_> = dml::events(images).collect::<std::result::Result<_, _>>()?;
        let (map, rows) = dml::last_rows(&events)?;
        let Some(event) = events.last() else { return Err(malformed("no event", 0)) };
        let (schema, table) = dml::name_of(&map);
        let head = event.body().get(..rows.images_at).unwrap_or_default();
        let maps = images.get(..images.len() - event.len()).unwrap_or_default();
        let single = |row: &[u8]| {
            let mut single = maps.to_vec();
            event.with_body(&[head, row].concat()).write_without_checksum(&mut single);
            set_statement_end(&mut single, maps.len());
            single
        };
        Ok(Self {
            table: format!("{schema}.{table}"),
            event_type: event.event_type(),
            end_log_pos: event.header().log_pos,
            rows: split(&map, &rows, usize::MAX)?.into_iter().map(single).collect(),
        })
    }
}

/// Returns true if the events have one row altogether. `images` may be a whole transaction, so it is split no further than its second row.
///
/// # Errors
/// Malformed events.
pub(crate) fn is_one_row(images: &Bytes) -> Result<bool> {
    let events: Vec<_> = dml::events(images).collect::<std::result::Result<_, _>>()?;
    if events.iter().filter(|event| event.event_type().is_rows()).count() != 1 {
        return Ok(false);
    }
    let (map, rows) = dml::last_rows(&events)?;
    Ok(split(&map, &rows, 2)?.len() == 1)
}

/// Returns the images of the first rows, `most` at most.
fn split<'a>(map: &TableMap<'_>, rows: &RowsEvent<'a>, most: usize) -> Result<Vec<&'a [u8]>> {
    let layout = map.columns().map_err(Error::UnreadableRows)?;
    let (mut before, mut after): (Vec<Field<'_>>, Vec<Field<'_>>) = (Vec::new(), Vec::new());
    let (mut found, mut rest) = (Vec::new(), rows.images);
    while !rest.is_empty() && found.len() < most {
        let len =
            rows.read_row(&layout, rest, &mut before, &mut after).map_err(Error::UnreadableRows)?;
        let Some((row, remaining)) = rest.split_at_checked(len).filter(|_| len > 0) else {
            return Err(malformed("row image cut short", rows.images.len() - rest.len()));
        };
        found.push(row);
        rest = remaining;
    }
    Ok(found)
}

fn malformed(what: &'static str, offset: usize) -> Error {
    let source = Malformed { what, offset };
    Error::UnreadableRows(EventError::Malformed { event: "rows", source })
}

#[cfg(test)]
mod tests {
    use csa_provider::test_util::{int_image, int_table_map, rows_event};

    use super::*;

    const TABLE_ID: u64 = 7;

    #[test]
    fn each_row_stands_behind_the_maps_and_ends_its_statement() {
        let rows: Vec<Vec<u8>> = [[Some(1), None], [None, Some(2)], [Some(3), Some(4)]]
            .iter()
            .map(|row| int_image(row))
            .collect();
        let mut maps = Vec::new();
        int_table_map(9, "d", "other", 3).write_without_checksum(&mut maps);
        int_table_map(TABLE_ID, "d", "t", 2).write_without_checksum(&mut maps);
        let images = |rows: &[u8]| {
            let mut images = maps.clone();
            let start = images.len();
            rows_event(EventType::WRITE_ROWS, TABLE_ID, 2, rows)
                .write_without_checksum(&mut images);
            (images, start)
        };
        let split = Split::new(&images(&rows.concat()).0.into()).expect("well-formed");
        assert_eq!((split.table.as_str(), split.event_type), ("d.t", EventType::WRITE_ROWS));
        let single = |row: &Vec<u8>| {
            let (mut images, start) = images(row);
            set_statement_end(&mut images, start);
            images
        };
        assert_eq!(split.rows, rows.iter().map(single).collect::<Vec<_>>());
    }

    #[test]
    fn rows_are_counted_over_all_events() {
        let images = |events: &[&[i32]]| {
            let mut images = Vec::new();
            int_table_map(TABLE_ID, "d", "t", 1).write_without_checksum(&mut images);
            for rows in events {
                let rows: Vec<Vec<u8>> = rows.iter().map(|row| int_image(&[Some(*row)])).collect();
                rows_event(EventType::WRITE_ROWS, TABLE_ID, 1, &rows.concat())
                    .write_without_checksum(&mut images);
            }
            Bytes::from(images)
        };
        let cases: [(&[&[i32]], bool); 5] = [
            (&[&[1]], true),
            (&[&[1, 2]], false),
            (&[&[1], &[2]], false),
            (&[&[1, 2], &[3]], false),
            (&[], false),
        ];
        for (events, expected) in cases {
            assert_eq!(is_one_row(&images(events)).expect("well-formed"), expected, "{events:?}");
        }
    }

    #[test]
    fn half_a_row_is_an_error() {
        let mut images = Vec::new();
        int_table_map(TABLE_ID, "d", "t", 2).write_without_checksum(&mut images);
        let row = int_image(&[Some(1), Some(2)]);
        rows_event(EventType::WRITE_ROWS, TABLE_ID, 2, &row[..row.len() - 1])
            .write_without_checksum(&mut images);
        assert!(Split::new(&images.into()).is_err());
    }
}
