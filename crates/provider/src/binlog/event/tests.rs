use std::cell::Cell;

use bytes::Bytes;

use super::*;
use crate::binlog::gtid::{Gtid, Tag, Uuid};
use crate::test_util::{event, event_bytes, format_description, gtid_event, query_event};

fn gtid() -> Gtid {
    Gtid { uuid: Uuid::from_bytes([7; 16]), tag: Tag::untagged(), gno: 42 }
}

#[test]
fn gtid_event_is_read() {
    let header = TransactionHeader::parse(&gtid_event(&gtid(), 1_700_000_000_123_456)).unwrap();
    assert_eq!(header.gtid, gtid());
    assert_eq!(header.original_commit_timestamp, 1_700_000_000_123_456);
    assert_eq!(header.immediate_commit_timestamp, 1_700_000_000_123_456);
    assert_eq!(header.immediate_server_version, 80_400);
}

/// Body of a tagged GTID event, written by the description of the serialization format.
fn tagged_body() -> Vec<u8> {
    let mut fields = vec![0, 2]; // field 0: flags 1
    fields.push(1 << 1);
    fields.extend([7 << 1; 16]);
    fields.extend([2 << 1, 42 << 2]); // transaction number 42: zig-zag, then one byte
    fields.extend([3 << 1, 4 << 1]);
    fields.extend(b"blue");
    fields.extend([6 << 1, 0xfe >> 1]); // timestamp: varint with trailing ones
    fields.extend([0, 0, 0, 0, 0, 0, 1]);
    let mut body = vec![2, 0, 11 << 1];
    body.extend(fields);
    body[1] = u8::try_from(body.len()).unwrap() << 1;
    body
}

#[test]
fn tagged_gtid_event_is_read() {
    let header = TransactionHeader::parse(&event(EventType::GTID_TAGGED, &tagged_body())).unwrap();
    assert_eq!(header.gtid.to_string(), "07070707-0707-0707-0707-070707070707:blue:42");
}

#[test]
fn status_variables_are_read_and_unknown_ones_refused() {
    let mut vars = vec![0];
    vars.extend(0x0400_0000_u32.to_le_bytes());
    vars.push(1);
    vars.extend(0x40_u64.to_le_bytes());
    vars.extend([6, 3, b's', b't', b'd', 3, 2, 0, 1, 0, 4, 255, 0, 45, 0, 8, 0]);
    vars.extend([5, 6]);
    vars.extend(b"SYSTEM");
    vars.extend([12, 2, b'a', 0, b'b', 0, 13, 1, 0, 0, 16, 1, 18, 255, 0, 19, 0, 20, 1]);
    let context = SessionContext::parse(&vars).unwrap();
    assert_eq!(context.flags2, Some(0x0400_0000));
    assert_eq!(context.auto_increment, Some((2, 1)));
    assert_eq!(context.time_zone.as_deref(), Some("SYSTEM"));
    assert_eq!(context.microseconds, Some(1));
    assert_eq!(context.default_table_encryption, Some(true));
    vars.extend([21, 1]);
    assert_eq!(SessionContext::parse(&vars).unwrap(), context, "enable_cascade_triggers");
    vars.push(22);
    assert!(matches!(SessionContext::parse(&vars), Err(EventError::UnknownStatusVariable(22))));
}

#[test]
fn format_description_survives_closing_of_its_file() {
    let description = format_description();
    assert_eq!(description.checksum(), ChecksumAlgorithm::Crc32);
    assert_eq!(description.server_version(), "9.7.4");
    let mut in_use = description.raw().to_vec();
    in_use[EventHeader::FLAGS_OFFSET] |= 1;
    assert!(FormatDescription::parse(in_use.into()).is_ok());
    let off = FormatDescription::parse(description.for_binlog_statement().into()).unwrap();
    assert_eq!(off.checksum(), ChecksumAlgorithm::Off);
    assert_eq!(off.raw().len(), description.raw().len());
}

fn payload_event(inner: &[u8], declared: u64) -> RawEvent {
    let compressed = zstd::encode_all(inner, 3).unwrap();
    let mut body = vec![2, 1, 0];
    body.extend([3, 9, 254]);
    body.extend(declared.to_le_bytes());
    body.extend([1, 9, 254]);
    body.extend((compressed.len() as u64).to_le_bytes());
    body.push(0);
    body.extend(compressed);
    event(EventType::TRANSACTION_PAYLOAD, &body)
}

#[test]
fn payload_is_opened_event_by_event_and_never_beyond_its_size() {
    let mut inner = Vec::new();
    for n in 1..=3 {
        inner.extend(event_bytes(EventType::ROWS_QUERY, &[n; 10], ChecksumAlgorithm::Off));
    }
    let parse = |declared| {
        let payload = TransactionPayload::parse(&payload_event(&inner, declared)).unwrap();
        payload.into_events().collect::<Result<Vec<_>, _>>()
    };
    let events = parse(inner.len() as u64).unwrap();
    assert_eq!(events.iter().map(|e| e.body()[0]).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(parse(inner.len() as u64 - 29).is_err(), "more inside than declared");
    assert!(parse(inner.len() as u64 + 29).is_err(), "less inside than declared");
}

/// Small payloads are decompressed at once, larger ones as a stream; nobody sees a difference, whatever is wrong.
#[test]
fn payloads_of_any_size_are_read_alike() {
    for len in [10, 1_000, 20_000, 30_000, 70_000] {
        let event = event_bytes(EventType::ROWS_QUERY, &vec![7; len], ChecksumAlgorithm::Off);
        let inner = [&event[..], &event, &event].concat();
        let (size, exact) = (event.len() as u64, inner.len() as u64);
        let read = |inner: &[u8], declared| {
            let payload = TransactionPayload::parse(&payload_event(inner, declared)).unwrap();
            let lengths =
                payload.clone().into_events().map(|event| event.map(|event| event.len() as u64));
            (lengths.collect::<Vec<_>>(), payload.largest_event(|| true))
        };
        let (events, largest) = read(&inner, exact);
        assert_eq!(events.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [size; 3]);
        assert_eq!(largest.unwrap(), size);
        // All but the last event are read before it is seen that it is not there, not whole or not the last.
        for (inner, declared, whole) in [
            (&inner[..], exact - size, 2),
            (&inner[..], exact - 1, 2),
            (&inner[..], exact + 1, 3),
            (&inner[..], exact + size, 3),
            (&inner[..inner.len() - 1], exact, 2),
            (&inner[..inner.len() - 1], exact - 1, 2),
            (&inner[..event.len() * 2 + 5], exact - size + 5, 2),
        ] {
            let (events, largest) = read(inner, declared);
            let case = format!("{len} bytes, {declared} declared: {events:?}");
            assert_eq!(events.len(), whole + 1, "{case}");
            assert!(events[..whole].iter().all(Result::is_ok) && events[whole].is_err(), "{case}");
            assert!(largest.is_err(), "{case}");
        }
    }
}

#[test]
fn the_largest_event_of_a_payload_is_found() {
    let bodies = [10, 3 << 20, 100];
    let inner: Vec<u8> = bodies
        .iter()
        .flat_map(|&len| {
            event_bytes(EventType::ROWS_QUERY, &vec![1; len], ChecksumAlgorithm::Off).to_vec()
        })
        .collect();
    let parse = |declared| TransactionPayload::parse(&payload_event(&inner, declared)).unwrap();
    let payload = parse(inner.len() as u64);
    assert_eq!(payload.largest_event(|| true).unwrap(), (3 << 20) + EventHeader::LEN as u64);
    let looks = Cell::new(0);
    let is_wanted = || looks.replace(looks.get() + 1) < 1;
    let first = payload.largest_event(is_wanted).unwrap();
    assert_eq!((first, looks.get()), (10 + EventHeader::LEN as u64, 2), "it reads on for nobody");
    let lengths = payload.into_events().map(|event| event.unwrap().body().len());
    assert_eq!(lengths.collect::<Vec<_>>(), bodies);
    assert!(parse(inner.len() as u64 - 29).largest_event(|| true).is_err());
    assert!(parse(inner.len() as u64 + 29).largest_event(|| true).is_err());
}

/// A few bytes on the wire that claim a length that would take all memory.
#[test]
fn an_embedded_event_has_at_most_1_gib_and_takes_what_really_comes() {
    let claiming = |size: u32| {
        let mut inner =
            event_bytes(EventType::ROWS_QUERY, &[1; 10], ChecksumAlgorithm::Off).to_vec();
        inner[9..13].copy_from_slice(&size.to_le_bytes());
        TransactionPayload::parse(&payload_event(&inner, 8 << 30)).unwrap()
    };
    for size in [u32::MAX, (1 << 30) + 1] {
        let error = claiming(size).into_events().next().unwrap().expect_err("too long");
        assert!(matches!(error, EventError::EmbeddedTooLong(_)), "{error}");
        let largest = claiming(size).largest_event(|| true);
        assert!(matches!(largest, Err(EventError::EmbeddedTooLong(_))));
    }
    let error = claiming(1 << 30).into_events().next().unwrap().expect_err("nothing comes");
    assert!(matches!(error, EventError::Decompress(_)), "{error}");
    assert!(claiming(1 << 30).largest_event(|| true).is_err());
}

/// Every parser, with every single byte damaged: an error or a value, never a panic.
#[test]
fn one_flipped_byte_is_an_error_on_the_wire_and_never_a_panic_behind_it() {
    let inner = event_bytes(EventType::ROWS_QUERY, &[1; 10], ChecksumAlgorithm::Off);
    let events = [
        gtid_event(&gtid(), 5),
        event(EventType::GTID_TAGGED, &tagged_body()),
        query_event("db", "CREATE TABLE t (a INT)"),
        payload_event(&inner, inner.len() as u64),
    ];
    for event in events {
        for at in 0..event.len() {
            for bit in 0..8 {
                let mut bytes = event.bytes().to_vec();
                bytes[at] ^= 1 << bit;
                let bytes = Bytes::from(bytes);
                assert!(
                    RawEvent::parse(bytes.clone(), ChecksumAlgorithm::Crc32).is_err(),
                    "{:?} byte {at} bit {bit}",
                    event.event_type()
                );
                let Ok(damaged) = RawEvent::trusted(bytes, ChecksumAlgorithm::Crc32) else {
                    continue;
                };
                let _ = TransactionHeader::parse(&damaged);
                if let Ok(query) = QueryEvent::parse(damaged.body()) {
                    let _ = query.context();
                }
                if let Ok(payload) = TransactionPayload::parse(&damaged) {
                    payload.into_events().for_each(drop);
                }
            }
        }
    }
}

#[test]
fn damaged_format_description_is_refused() {
    let raw = format_description().raw().clone();
    for at in 0..raw.len() {
        let mut bytes = raw.to_vec();
        bytes[at] ^= 0x10;
        assert!(FormatDescription::parse(bytes.into()).is_err(), "byte {at}");
    }
}
