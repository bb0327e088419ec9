//! A recorded stream with every event type. Flipping any of its bits gives an error or the same
//! statements for the target, never a panic, never other rows.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, RawEvent, TransactionHeader,
};
use csa_provider::source::{Placement, TransactionAssembler};
use csa_provider::test_util::event;
use csa_relaystore::test_util::relayed;
use csa_scheduler::admission::Admission;
use csa_scheduler::key_source::{KeySource, KeySourceError};
use csa_scheduler::keys::{KeyClass, KeyPart, TableId, TableKeys, UniqueKey};
use csa_scheduler::sequence::Sequence;

use crate::options::RowImageColumns;
use crate::rows::binlog_statements::{Framing, RowImageCutter, Step};
use crate::rows::dml::{self, SessionSettings};
use crate::rows::merge::merge;
use crate::server::definitions::TableName;
use crate::server::definitions::table::{ColumnRow, TargetTable, UniqueIndex};

/// Made by tests/fixtures/stream/record.
const FILES: [&[u8]; 2] = [
    include_bytes!("../../../../tests/fixtures/stream/binlog.000001"),
    include_bytes!("../../../../tests/fixtures/stream/binlog.000002"),
];
const MAGIC: usize = 4;
const CHECKSUM: usize = 4;
const LIMIT: usize = 1 << 20;

/// Columns of `d.t` as the target describes them: name, type, characters and digits.
const COLUMNS: [(&str, &str, u64); 14] = [
    ("id", "int", 0),
    ("u", "bigint unsigned", 0),
    ("s", "varchar", 20),
    ("n", "decimal", 12),
    ("at", "datetime", 3),
    ("j", "json", 0),
    ("e", "enum", 0),
    ("b", "bit", 9),
    ("f", "float", 0),
    ("g", "double", 0),
    ("o", "time", 2),
    ("y", "year", 0),
    ("l", "blob", 65535),
    ("p", "point", 0),
];

struct Keys;

impl KeySource for Keys {
    async fn table(
        &mut self,
        _: &[u8],
        table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let unique =
            |column| UniqueKey { parts: vec![KeyPart { column, class: KeyClass::Integer }] };
        let keys = match table {
            b"t" => TableKeys {
                columns: COLUMNS.len(),
                unique: vec![unique(0), unique(1)],
                foreign_key_rank: Some(0),
                ..TableKeys::default()
            },
            _ => TableKeys { columns: 1, foreign_key_rank: Some(0), ..TableKeys::default() },
        };
        Ok((TableId(u32::from(table == b"t")), Some(Arc::new(keys))))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

fn target_tables() -> HashMap<TableName, Option<Arc<TargetTable>>> {
    let column = |&(name, column_type, size): &(&str, &str, u64)| {
        let data_type = column_type.split(' ').next().unwrap_or_default().to_owned();
        let is_text = data_type == "varchar";
        ColumnRow {
            name: name.to_owned(),
            data_type,
            column_type: column_type.to_owned(),
            charset: is_text.then(|| "utf8mb4".to_owned()),
            max_chars: Some(size),
            max_bytes: Some(if is_text { size * 4 } else { size }),
            precision: Some(size),
            scale: Some(4),
            fraction: Some(size),
            nullable: name != "id",
            ..ColumnRow::default()
        }
        .into()
    };
    let table = |name: &str, columns: &[(&str, &str, u64)], unique| TargetTable {
        schema: "d".to_owned(),
        name: name.to_owned(),
        columns: columns.iter().map(column).collect(),
        unique,
        ..TargetTable::default()
    };
    let primary = UniqueIndex { name: "PRIMARY".to_owned(), columns: vec![0] };
    let tables = [table("t", &COLUMNS, vec![primary]), table("c", &COLUMNS[..1], Vec::new())];
    tables
        .into_iter()
        .map(|table| ((table.schema.clone(), table.name.clone()), Some(Arc::new(table))))
        .collect()
}

/// Returns the packets of a dump, without the leading status byte.
fn packets() -> Vec<Bytes> {
    let mut packets = Vec::new();
    for file in FILES {
        let mut rest = &file[MAGIC..];
        while !rest.is_empty() {
            let size = EventHeader::parse(rest).expect("a header").event_size as usize;
            let (packet, remaining) = rest.split_at(size);
            packets.push(Bytes::from_static(packet));
            rest = remaining;
        }
    }
    // These are in dumps, but not in files.
    packets.push(event(EventType::HEARTBEAT, b"binlog.000002").bytes().clone());
    packets.push(event(EventType::HEARTBEAT_V2, &[1, 2, 0xf9, 1, 0]).bytes().clone());
    packets.push(event(EventType::INCIDENT, &[1, 0, 3, b'w', b'h', b'y']).bytes().clone());
    packets
}

/// Returns the statements of both executors for the target, and every error on the way.
fn sent(packets: &[Bytes]) -> Vec<String> {
    let mut sent = Vec::new();
    let mut format = None;
    let mut assembler = TransactionAssembler::new();
    let mut open: Option<(TransactionHeader, Vec<u8>)> = None;
    for packet in packets {
        let event = match RawEvent::parse(packet.clone(), ChecksumAlgorithm::Crc32) {
            Ok(event) => event,
            Err(error) => {
                sent.push(format!("error: {error}"));
                return sent;
            }
        };
        if event.event_type() == EventType::FORMAT_DESCRIPTION {
            match FormatDescription::parse(packet.clone()) {
                Ok(description) => format = Some(Arc::new(description)),
                Err(error) => sent.push(format!("error: {error}")),
            }
        }
        let placed = assembler.place(&event);
        if let Ok(Placement::Begin(header)) = &placed {
            open = Some((header.clone(), Vec::new()));
        }
        match placed {
            Err(error) => sent.push(format!("error: {error}")),
            Ok(Placement::Outside | Placement::PassedOver) => {}
            Ok(placement) => {
                let Some((_, bytes)) = &mut open else { continue };
                bytes.extend_from_slice(packet);
                if placement == Placement::End
                    && let (Some((header, bytes)), Some(format)) = (open.take(), &format)
                {
                    sent.extend(transaction(header, bytes, format));
                }
            }
        }
    }
    sent
}

fn transaction(
    header: TransactionHeader,
    bytes: Vec<u8>,
    format: &Arc<FormatDescription>,
) -> Vec<String> {
    let gtid = header.gtid.clone();
    let relayed = relayed(1, header, format, bytes);
    let admitted = match Admission::new(Keys).admit_now(relayed, None, true) {
        Ok(admitted) => admitted,
        Err(error) => return vec![format!("error: {error}")],
    };
    let mut steps = Vec::new();
    if admitted.is_keyed() {
        let merged = merge(
            std::slice::from_ref(&admitted),
            Sequence::new(1),
            LIMIT,
            RowImageColumns::Full,
            |_| None,
        );
        steps.extend(merged.expect("whole rows").free.into_iter().map(Step::RowImages));
    } else {
        let mut cutter = RowImageCutter::new(LIMIT, Framing::Own);
        for event in admitted.events() {
            let pushed = event
                .map_err(crate::Error::from)
                .and_then(|event| cutter.push(&gtid, &event, &mut steps));
            if let Err(error) = pushed {
                return vec![format!("error: {error}")];
            }
        }
        cutter.finish(&mut steps);
    }
    let mut sent = vec![format!("{gtid} {:?}", admitted.verdict)];
    for step in steps {
        if let Step::RowImages(images) = &step {
            let images = Bytes::from(images.events.clone());
            let tables = target_tables();
            let made =
                dml::statements(&images, &tables, LIMIT, SessionSettings::default(), None, true);
            sent.push(match made {
                Ok((packets, _)) => packets
                    .iter()
                    .map(|packet| String::from_utf8_lossy(&packet.text).into_owned())
                    .collect(),
                Err(refusal) => format!("error: {refusal:?}"),
            });
        }
        sent.push(match step {
            Step::Statement(text) => String::from_utf8_lossy(&text).into_owned(),
            images @ Step::RowImages(_) => format!("{images:?}"),
        });
    }
    sent
}

#[test]
fn the_recorded_stream_has_every_event_and_is_understood() {
    let packets = packets();
    let types: Vec<u8> = packets.iter().map(|packet| packet[4]).collect();
    for wanted in [
        EventType::FORMAT_DESCRIPTION,
        EventType::PREVIOUS_GTIDS,
        EventType::GTID,
        EventType::GTID_TAGGED,
        EventType::QUERY,
        EventType::TABLE_MAP,
        EventType::WRITE_ROWS,
        EventType::UPDATE_ROWS,
        EventType::DELETE_ROWS,
        EventType::PARTIAL_UPDATE_ROWS,
        EventType::ROWS_QUERY,
        EventType::TRANSACTION_PAYLOAD,
        EventType::XID,
        EventType::XA_PREPARE,
        EventType::ROTATE,
        EventType::STOP,
        EventType::HEARTBEAT,
        EventType::HEARTBEAT_V2,
        EventType::INCIDENT,
    ] {
        assert!(types.contains(&wanted.0), "{wanted:?} is not in the recorded stream");
    }
    let sent = sent(&packets);
    let errors: Vec<_> = sent.iter().filter(|line| line.starts_with("error")).collect();
    assert_eq!(errors.len(), 1, "only the incident: {errors:?}");
    assert!(errors[0].contains("Incident") || errors[0].contains("incident"), "{errors:?}");
    for part in ["INSERT INTO `d`.`t`", "UPDATE `d`.`t`", "DELETE", "JSON_REPLACE(", "XA PREPARE"] {
        assert!(sent.iter().any(|line| line.contains(part)), "{part} is missing in {sent:#?}");
    }
}

#[test]
fn any_flipped_bit_is_an_error_or_changes_nothing() {
    let packets = packets();
    let whole = sent(&packets);
    let mut unchanged = 0;
    for (place, packet) in packets.iter().enumerate() {
        for at in 0..packet.len() {
            for bit in 0..8 {
                let flipped = flip(packet, at, bit);
                if RawEvent::parse(flipped.clone(), ChecksumAlgorithm::Crc32).is_err() {
                    continue;
                }
                unchanged += 1;
                let mut packets = packets.clone();
                packets[place] = flipped;
                assert_eq!(sent(&packets), whole, "packet {place} byte {at} bit {bit}");
            }
        }
    }
    // The checksum leaves out one flag of each format description, which is cleared when the file
    // is closed.
    assert_eq!(unchanged, FILES.len());
}

/// As from a source without checksums: changed rows can't be detected then, but nothing may panic.
#[test]
fn any_flipped_bit_behind_the_checksum_is_survived() {
    let packets = packets();
    let begins =
        |packet: &Bytes| [EventType::GTID.0, EventType::GTID_TAGGED.0].contains(&packet[4]);
    let starts: Vec<usize> = (0..packets.len()).filter(|&at| begins(&packets[at])).collect();
    let whole = sent(&packets);
    let mut same = 0;
    for (place, packet) in packets.iter().enumerate() {
        // The description, and the transaction it is in.
        let start = starts.iter().rev().find(|&&start| start <= place).copied().unwrap_or(0);
        let end = starts.iter().find(|&&start| start > place).copied().unwrap_or(packets.len());
        for at in 0..packet.len() - CHECKSUM {
            for bit in [0, 3, 7] {
                let mut flipped = flip(packet, at, bit).to_vec();
                let covered = flipped.len() - CHECKSUM;
                let checksum = crc32fast::hash(&flipped[..covered]);
                flipped[covered..].copy_from_slice(&checksum.to_le_bytes());
                let mut some = vec![packets[0].clone()];
                some.extend_from_slice(&packets[start..end]);
                some[1 + place - start] = flipped.into();
                same += usize::from(sent(&some).iter().all(|line| whole.contains(line)));
            }
        }
    }
    assert!(same > 100, "positions and times change no row: {same}");
}

fn flip(packet: &Bytes, at: usize, bit: u8) -> Bytes {
    let mut bytes = packet.to_vec();
    bytes[at] ^= 1 << bit;
    bytes.into()
}
