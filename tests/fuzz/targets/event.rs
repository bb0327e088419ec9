//! Any bytes as an event: every parser ends with a value or an error.
#![no_main]

use bytes::Bytes;
use csa_provider::binlog::{ChecksumAlgorithm, EventHeader, FormatDescription, QueryEvent, RawEvent, RowsEvent, TableMap, TransactionHeader, TransactionPayload, XaPrepareEvent};
use csa_provider::source::TransactionAssembler;
use csa_provider::sql_text::{Lexer, Statement};
use libfuzzer_sys::fuzz_target;

/// More than any of the recorded events; a payload may state as much and be refused.
const MANY: usize = 10_000;

fn read(event: &RawEvent, depth: u8) {
    let _ = TransactionHeader::parse(event);
    let _ = XaPrepareEvent::parse(event);
    let _ = TransactionAssembler::new().place(event);
    if let Ok(query) = QueryEvent::parse(event.body()) {
        let _ = query.context();
        let (_, dialect) = Statement::read(&query);
        let _ = Lexer::new(query.statement, dialect).map_while(Result::ok).map(|t| dialect.name(&t)).last();
    }
    if let Ok(map) = TableMap::parse(event.body()) {
        let _ = map.columns();
    }
    let _ = RowsEvent::parse(event.event_type(), event.body());
    if depth == 0
        && let Ok(payload) = TransactionPayload::parse(event)
        && payload.uncompressed_size() < 1 << 20
    {
        for inner in payload.into_events().take(MANY).flatten() {
            read(&inner, 1);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = FormatDescription::parse(Bytes::copy_from_slice(data));
    let Some((&event_type, body)) = data.split_first() else { return };
    // A header that fits, so that the fuzzer works on bodies.
    let mut bytes = vec![0; EventHeader::LEN];
    bytes[4] = event_type;
    let size = (EventHeader::LEN + body.len()) as u32;
    bytes[EventHeader::EVENT_SIZE_OFFSET..][..4].copy_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(body);
    if let Ok(event) = RawEvent::trusted(bytes.into(), ChecksumAlgorithm::Off) {
        read(&event, 0);
    }
});
