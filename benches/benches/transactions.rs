//! Transactions for the benches of parts.

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{EventType, Gtid, Tag, TransactionHeader, Uuid};
use csa_provider::test_util::{
    event, format_description, gtid_event, int_image, int_table_map, query_event, rows_event,
};
use csa_relaystore::disk::RelayPosition;
use csa_relaystore::read::{RelayedTransaction, TransactionBody};
use csa_scheduler::admission::{AdmittedTransaction, Verdict};
use csa_scheduler::changes::RowChanges;

/// A transaction of `updates` updates, as the source sends it.
pub(crate) fn relayed(gno: u64, updates: i32) -> RelayedTransaction {
    let gtid = Gtid { uuid: Uuid::from_bytes([5; 16]), tag: Tag::untagged(), gno };
    let begin = gtid_event(&gtid, gno);
    let header = TransactionHeader::parse(&begin).expect("well-formed");
    let mut events = vec![begin, query_event("", "BEGIN")];
    for update in 0..updates {
        let row =
            |value| int_image(&[Some(gno as i32 * updates + update), Some(1), None, Some(value)]);
        events.push(int_table_map(7, "d", "t", 4));
        events.push(rows_event(EventType::UPDATE_ROWS, 7, 4, &[row(1), row(2)].concat()));
    }
    events.push(event(EventType::XID, &[0; 8]));
    let bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes().to_vec()).collect();
    RelayedTransaction {
        header,
        format: Arc::new(format_description()),
        start: RelayPosition { segment: 1, offset: gno },
        end: RelayPosition { segment: 1, offset: gno + 1 },
        ordinal: gno,
        event_bytes: bytes.len() as u64,
        cumulative_bytes: gno,
        body: TransactionBody::Whole(vec![Bytes::from(bytes)]),
    }
}

/// Returns a transaction like the template with another number and these changes.
pub(crate) fn admitted(
    template: &RelayedTransaction,
    gno: u64,
    changes: RowChanges,
) -> AdmittedTransaction {
    let mut relayed = template.clone();
    relayed.header.gtid.gno = gno;
    AdmittedTransaction {
        relayed,
        verdict: Verdict::Rows,
        changes: Some(changes),
        session: None,
        without_accounts: false,
        filters: Arc::default(),
        permit: None,
        bytes: template.event_bytes,
        arrived: None,
    }
}
