//! A table map followed by rows: keys are found, or the bytes are refused.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::test_util::{event, format_description, gtid_event, query_event};
use csa_provider::binlog::{
    EventType, Gtid, RawEvent, Tag, TemporalType, TransactionHeader, Uuid,
};
use csa_relaystore::disk::RelayPosition;
use csa_relaystore::read::{RelayedTransaction, TransactionBody};
use csa_scheduler::admission::Admission;
use csa_scheduler::key_source::{KeySource, KeySourceError};
use csa_scheduler::keys::{KeyClass, KeyPart, TableId, TableKeys, UniqueKey};
use libfuzzer_sys::fuzz_target;

/// Every table has these keys: each class meets each type of column.
struct SameKeys(Arc<TableKeys>);

impl KeySource for SameKeys {
    async fn table(
        &mut self,
        _: &[u8],
        _: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        Ok((TableId(1), Some(Arc::clone(&self.0))))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

fn keys(columns: usize, selector: u8) -> TableKeys {
    let classes = [
        KeyClass::Integer,
        KeyClass::Float,
        KeyClass::Double,
        KeyClass::Decimal,
        KeyClass::Year,
        KeyClass::Temporal(TemporalType::Date),
        KeyClass::Temporal(TemporalType::Time),
        KeyClass::Temporal(TemporalType::DateTime),
        KeyClass::Temporal(TemporalType::Timestamp),
        KeyClass::Enum,
        KeyClass::Set,
        KeyClass::Bit,
        KeyClass::Unknown,
    ];
    let part = |column: usize| KeyPart {
        column,
        class: classes[(column + usize::from(selector)) % classes.len()].clone(),
    };
    let unique =
        (0..columns.min(4)).map(|column| UniqueKey { parts: vec![part(column)] }).collect();
    TableKeys { columns, unique, foreign_key_rank: Some(0), ..TableKeys::default() }
}

fn transaction(events: &[RawEvent]) -> RelayedTransaction {
    let gtid = Gtid { uuid: Uuid::from_bytes([5; 16]), tag: Tag::untagged(), gno: 1 };
    let begin = gtid_event(&gtid, 1);
    let header = TransactionHeader::parse(&begin).expect("well-formed");
    let bytes: Vec<u8> =
        std::iter::once(&begin).chain(events).flat_map(|event| event.bytes().to_vec()).collect();
    let at = RelayPosition { segment: 1, offset: 0 };
    RelayedTransaction {
        header,
        format: Arc::new(format_description()),
        start: at,
        end: at,
        ordinal: 1,
        event_bytes: bytes.len() as u64,
        cumulative_bytes: 0,
        body: TransactionBody::Whole(vec![Bytes::from(bytes)]),
    }
}

// Layout: selector, rows event type, columns, length of the table map's body, its body, rows body.
fuzz_target!(|data: &[u8]| {
    let &[selector, kind, columns, map_len, ref rest @ ..] = data else { return };
    let Some((map, rows)) = rest.split_at_checked(usize::from(map_len)) else { return };
    let kinds = [
        EventType::WRITE_ROWS,
        EventType::UPDATE_ROWS,
        EventType::DELETE_ROWS,
        EventType::PARTIAL_UPDATE_ROWS,
    ];
    let events = [
        query_event("", "BEGIN"),
        event(EventType::TABLE_MAP, map),
        event(kinds[usize::from(kind) % kinds.len()], rows),
        event(EventType::XID, &[0; 8]),
    ];
    let source = SameKeys(Arc::new(keys(usize::from(columns), selector)));
    if let Ok(admitted) = Admission::new(source).admit_now(transaction(&events), None, true)
        && let Some(changes) = &admitted.changes
    {
        let ends = changes.rows.last().map_or(0, |row| row.end as usize);
        assert!(ends <= rows.len());
    }
});
