//! The event that begins a transaction, in both of its forms.

use super::{EventError, EventType, RawEvent};
use crate::binlog::bytes_reader::{Malformed, Reader};
use crate::binlog::gtid::{Gtid, Tag, Uuid, read_tag};

/// The source's description of a transaction, before its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionHeader {
    pub gtid: Gtid,
    /// Commit on the server on which the transaction was first
    /// executed; microseconds since the epoch.
    pub original_commit_timestamp: u64,
    /// Commit on our source; microseconds since the epoch. From a source that logs no commit times
    /// (MySQL before 8.0.1) the time of the event, in whole seconds.
    pub immediate_commit_timestamp: u64,
    /// Bytes of all events of the transaction including this one; 0 if unknown.
    pub transaction_length: u64,
    /// Logical clock of the source; restarts at each of its binary log files.
    pub last_committed: i64,
    pub sequence_number: i64,
    /// [`Self::UNKNOWN_VERSION`] if the source does not know it.
    pub original_server_version: u32,
    pub immediate_server_version: u32,
}

/// Commit timestamps have 55 bits; the 56th is set if the original one follows.
const TIMESTAMP_MASK: u64 = (1 << 55) - 1;
const TIMESTAMP_MORE: u64 = 1 << 55;
/// Versions have 31 bits; the 32nd is set if the original one follows.
const VERSION_MASK: u64 = (1 << 31) - 1;
const VERSION_MORE: u64 = 1 << 31;
const LOGICAL_CLOCK: u8 = 2;

impl TransactionHeader {
    /// `UNDEFINED_SERVER_VERSION`: a version that the source does not know.
    pub const UNKNOWN_VERSION: u32 = 999_999;

    /// Reads a GTID or tagged GTID event.
    ///
    /// # Errors
    /// Malformed bytes, or another type of event.
    pub fn parse(event: &RawEvent) -> Result<Self, EventError> {
        let event_type = event.event_type();
        let parsed = match event_type {
            EventType::GTID => untagged(event.body()),
            EventType::GTID_TAGGED => tagged(event.body()),
            _ => Err(Malformed { what: "not a GTID event", offset: 0 }),
        };
        let mut header =
            parsed.map_err(|source| EventError::Malformed { event: event_type.name(), source })?;
        // Before 8.0.1 no commit times are logged; every event has the time of its statement.
        if header.immediate_commit_timestamp == 0 {
            header.immediate_commit_timestamp = u64::from(event.header().timestamp) * 1_000_000;
        }
        Ok(header)
    }
}

/// Parses the event as libs/mysql/binlog/event/control_events.cpp does (`Gtid_event::Gtid_event`).
fn untagged(body: &[u8]) -> Result<TransactionHeader, Malformed> {
    let mut reader = Reader::new(body);
    reader.u8("flags")?;
    let uuid = read_uuid(reader.take(16, "UUID")?);
    let gno = reader.u64("transaction number")?;
    check_gno(gno, &reader)?;
    let mut header = TransactionHeader {
        gtid: Gtid { uuid, tag: Tag::untagged(), gno },
        original_commit_timestamp: 0,
        immediate_commit_timestamp: 0,
        transaction_length: 0,
        last_committed: 0,
        sequence_number: 0,
        original_server_version: TransactionHeader::UNKNOWN_VERSION,
        immediate_server_version: TransactionHeader::UNKNOWN_VERSION,
    };
    if reader.is_empty() || reader.u8("logical clock")? != LOGICAL_CLOCK {
        return Ok(header);
    }
    header.last_committed = reader.u64("last_committed")? as i64;
    header.sequence_number = reader.u64("sequence_number")? as i64;
    if reader.is_empty() {
        return Ok(header);
    }
    let immediate = reader.uint(7, "immediate commit timestamp")?;
    header.immediate_commit_timestamp = immediate & TIMESTAMP_MASK;
    header.original_commit_timestamp = if immediate & TIMESTAMP_MORE != 0 {
        reader.uint(7, "original commit timestamp")?
    } else {
        header.immediate_commit_timestamp
    };
    if reader.is_empty() {
        return Ok(header);
    }
    header.transaction_length = reader.length_encoded("transaction length")?;
    if reader.is_empty() {
        return Ok(header);
    }
    let immediate = u64::from(reader.u32("immediate server version")?);
    header.immediate_server_version = (immediate & VERSION_MASK) as u32;
    header.original_server_version = if immediate & VERSION_MORE != 0 {
        reader.u32("original server version")?
    } else {
        header.immediate_server_version
    };
    // A commit group ticket of eight bytes may follow; it means nothing outside its group.
    Ok(header)
}

/// `mysql::serialization`: a header of three integers (version, size, last id that must not be
/// ignored), then fields as id and value in ascending order, without absent ones.
fn tagged(body: &[u8]) -> Result<TransactionHeader, Malformed> {
    let mut reader = Reader::new(body);
    let version = reader.varint("serialization version")?;
    if version != 1 {
        return Err(reader.malformed("serialization version other than 1"));
    }
    let size = reader.varint("serialized size")?;
    if size != body.len() as u64 {
        return Err(reader.malformed("serialized size"));
    }
    let last_required = reader.varint("last non-ignorable field")?;
    let mut uuid = None;
    let mut tag = Tag::untagged();
    let mut gno = None;
    let mut last_committed = 0;
    let mut sequence_number = 0;
    let mut immediate = 0;
    let mut original = None;
    let mut length = 0;
    let mut immediate_version = TransactionHeader::UNKNOWN_VERSION;
    let mut original_version = None;
    while !reader.is_empty() {
        match reader.varint("field id")? {
            0 => drop(reader.varint("flags")?),
            1 => uuid = Some(varint_uuid(&mut reader)?),
            2 => gno = Some(reader.varint_signed("transaction number")? as u64),
            3 => tag = read_tag(&mut reader)?,
            4 => last_committed = reader.varint_signed("last_committed")?,
            5 => sequence_number = reader.varint_signed("sequence_number")?,
            6 => immediate = reader.varint("immediate commit timestamp")?,
            7 => original = Some(reader.varint("original commit timestamp")?),
            8 => length = reader.varint("transaction length")?,
            9 => immediate_version = reader.varint("immediate server version")? as u32,
            10 => original_version = Some(reader.varint("original server version")? as u32),
            11 => drop(reader.varint("commit group ticket")?),
            // Fields have no length, so nothing after an unknown one can be read; by the format,
            // fields that may be ignored come last.
            unknown if unknown > last_required => break,
            _ => return Err(reader.malformed("unknown field that may not be ignored")),
        }
    }
    let (Some(uuid), Some(gno)) = (uuid, gno) else {
        return Err(reader.malformed("no GTID in it"));
    };
    check_gno(gno, &reader)?;
    Ok(TransactionHeader {
        gtid: Gtid { uuid, tag, gno },
        original_commit_timestamp: original.unwrap_or(immediate),
        immediate_commit_timestamp: immediate,
        transaction_length: length,
        last_committed,
        sequence_number,
        original_server_version: original_version.unwrap_or(immediate_version),
        immediate_server_version: immediate_version,
    })
}

fn check_gno(gno: u64, reader: &Reader<'_>) -> Result<(), Malformed> {
    if gno == 0 || gno >= i64::MAX as u64 {
        return Err(reader.malformed("transaction number out of range"));
    }
    Ok(())
}

fn read_uuid(bytes: &[u8]) -> Uuid {
    Uuid::from_slice(bytes).unwrap_or_default()
}

/// Reads a UUID: fixed-size byte arrays are serialised as one variable-length integer per byte.
fn varint_uuid(reader: &mut Reader<'_>) -> Result<Uuid, Malformed> {
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = u8::try_from(reader.varint("UUID")?).map_err(|_| reader.malformed("UUID"))?;
    }
    Ok(Uuid::from_bytes(bytes))
}
