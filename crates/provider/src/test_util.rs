//! Builds well-formed events for tests.

pub mod packets;

use bytes::Bytes;
use mysql_common::constants::ColumnType;
use mysql_common::packets::Column;
use mysql_common::row::{Row, new_row};
use mysql_common::value::Value;

use crate::binlog::event::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, RawEvent,
};
use crate::binlog::gtid::Gtid;

/// Returns one event's bytes, with a correct checksum if the algorithm has one.
#[must_use]
pub fn event_bytes(event_type: EventType, body: &[u8], checksum: ChecksumAlgorithm) -> Bytes {
    flagged_bytes(event_type, 0, body, checksum)
}

fn flagged_bytes(
    event_type: EventType,
    flags: u16,
    body: &[u8],
    checksum: ChecksumAlgorithm,
) -> Bytes {
    let len = EventHeader::LEN + body.len() + checksum.len();
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&1_700_000_000_u32.to_le_bytes());
    bytes.push(event_type.0);
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(len).expect("small").to_le_bytes());
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(body);
    if checksum == ChecksumAlgorithm::Crc32 {
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    bytes.into()
}

/// Returns one event with a checksum.
#[must_use]
pub fn event(event_type: EventType, body: &[u8]) -> RawEvent {
    let checksum = ChecksumAlgorithm::Crc32;
    RawEvent::parse(event_bytes(event_type, body, checksum), checksum).expect("well-formed")
}

/// Returns the same event with these flags.
#[must_use]
pub fn with_flags(event: &RawEvent, flags: u16) -> RawEvent {
    let checksum = ChecksumAlgorithm::Crc32;
    let bytes = flagged_bytes(event.event_type(), flags, event.body(), checksum);
    RawEvent::parse(bytes, checksum).expect("well-formed")
}

/// A GTID event as a MySQL 8.0 source writes it.
#[must_use]
pub fn gtid_event(gtid: &Gtid, commit_timestamp: u64) -> RawEvent {
    gtid_event_of(gtid, commit_timestamp, commit_timestamp)
}

/// Returns the same of a transaction that may have been committed on another server before.
#[must_use]
pub fn gtid_event_of(gtid: &Gtid, original: u64, immediate: u64) -> RawEvent {
    /// The original time follows.
    const MORE: u64 = 1 << 55;
    let mut body = vec![1];
    body.extend_from_slice(gtid.uuid.as_bytes());
    body.extend_from_slice(&gtid.gno.to_le_bytes());
    body.push(2);
    body.extend_from_slice(&[0; 16]);
    let more = if original == immediate { 0 } else { MORE };
    body.extend_from_slice(&(immediate | more).to_le_bytes()[..7]);
    if more != 0 {
        body.extend_from_slice(&original.to_le_bytes()[..7]);
    }
    body.push(100);
    body.extend_from_slice(&80_400_u32.to_le_bytes());
    event(EventType::GTID, &body)
}

/// Returns a query event without status variables.
#[must_use]
pub fn query_event(database: &str, statement: &str) -> RawEvent {
    query_event_in(&[], database, statement)
}

/// Returns the same with status variables.
#[must_use]
pub fn query_event_in(status: &[u8], database: &str, statement: &str) -> RawEvent {
    let mut body = vec![0; 8];
    body.push(u8::try_from(database.len()).expect("short"));
    body.extend_from_slice(&[0; 2]);
    body.extend_from_slice(&u16::try_from(status.len()).expect("short").to_le_bytes());
    body.extend_from_slice(status);
    body.extend_from_slice(database.as_bytes());
    body.push(0);
    body.extend_from_slice(statement.as_bytes());
    event(EventType::QUERY, &body)
}

/// The event that ends the first phase of a distributed transaction; its format is 1.
#[must_use]
pub fn xa_prepare_event(one_phase: bool, global: &[u8], branch: &[u8]) -> RawEvent {
    let mut body = vec![u8::from(one_phase)];
    for number in [1, global.len(), branch.len()] {
        body.extend_from_slice(&u32::try_from(number).expect("short").to_le_bytes());
    }
    body.extend_from_slice(global);
    body.extend_from_slice(branch);
    event(EventType::XA_PREPARE, &body)
}

/// A format description as a source with checksums writes it.
#[must_use]
pub fn format_description() -> FormatDescription {
    format_description_of(b"9.7.4")
}

/// Returns a format description of a source with this version.
///
/// # Panics
/// Never: the bytes are well-formed.
#[must_use]
pub fn format_description_of(name: &[u8; 5]) -> FormatDescription {
    let mut body = 4_u16.to_le_bytes().to_vec();
    let mut version = [0; 50];
    version[..5].copy_from_slice(name);
    body.extend_from_slice(&version);
    body.extend_from_slice(&7_u32.to_le_bytes());
    body.push(19);
    body.extend_from_slice(&[13; 42]);
    body.push(1);
    let bytes = event_bytes(EventType::FORMAT_DESCRIPTION, &body, ChecksumAlgorithm::Crc32);
    FormatDescription::parse(bytes).expect("well-formed")
}

/// Returns a table map of a table with nullable INT columns.
#[must_use]
pub fn int_table_map(table_id: u64, schema: &str, table: &str, columns: u8) -> RawEvent {
    let mut body = table_id.to_le_bytes()[..6].to_vec();
    body.extend_from_slice(&1_u16.to_le_bytes());
    for name in [schema, table] {
        body.push(u8::try_from(name.len()).expect("short"));
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    body.push(columns);
    body.extend(std::iter::repeat_n(3, usize::from(columns)));
    // No column has metadata; all may be NULL.
    body.push(0);
    body.extend(std::iter::repeat_n(0xff, usize::from(columns).div_ceil(8)));
    event(EventType::TABLE_MAP, &body)
}

/// Returns a full row image of INTs.
#[must_use]
pub fn int_image(values: &[Option<i32>]) -> Vec<u8> {
    let mut image = vec![0; values.len().div_ceil(8)];
    for (index, value) in values.iter().enumerate() {
        match value {
            Some(value) => image.extend_from_slice(&value.to_le_bytes()),
            None => {
                let byte = image.get_mut(index / 8).expect("one bit for each");
                *byte |= 1 << (index % 8);
            }
        }
    }
    image
}

/// Returns a rows event with full images of `columns` columns, the last of its statement.
#[must_use]
pub fn rows_event(event_type: EventType, table_id: u64, columns: u8, images: &[u8]) -> RawEvent {
    let mut body = table_id.to_le_bytes()[..6].to_vec();
    body.extend_from_slice(&1_u16.to_le_bytes());
    body.extend_from_slice(&2_u16.to_le_bytes());
    body.push(columns);
    let bitmaps = if event_type == EventType::UPDATE_ROWS { 2 } else { 1 };
    body.extend(std::iter::repeat_n(0xff, bitmaps * usize::from(columns).div_ceil(8)));
    body.extend_from_slice(images);
    event(event_type, &body)
}

/// Returns a row of an answer to a text query.
#[must_use]
pub fn row(values: &[&str]) -> Row {
    row_with_nulls(&values.iter().map(|value| Some(*value)).collect::<Vec<_>>())
}

/// Returns a row of an answer to a text query; `None` is NULL.
#[must_use]
pub fn row_with_nulls(values: &[Option<&str>]) -> Row {
    let columns = values.iter().map(|_| Column::new(ColumnType::MYSQL_TYPE_VAR_STRING)).collect();
    let value = |value: &Option<&str>| value.map_or(Value::NULL, |text| text.as_bytes().into());
    new_row(values.iter().map(value).collect(), columns)
}
