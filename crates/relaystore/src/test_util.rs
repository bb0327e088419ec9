//! Builds transactions as a reader returns them, for tests.

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{FormatDescription, Gtid, RawEvent, Tag, TransactionHeader, Uuid};
use csa_provider::test_util::gtid_event;

use crate::disk::RelayPosition;
use crate::read::{RelayedTransaction, TransactionBody};

/// Bytes from one position to the next.
const STEP: u64 = 1000;

/// Returns a transaction of these bytes; its ordinal says where it is in the relay store.
#[must_use]
pub fn relayed(
    ordinal: u64,
    header: TransactionHeader,
    format: &Arc<FormatDescription>,
    bytes: Vec<u8>,
) -> RelayedTransaction {
    let at = |offset| RelayPosition { segment: 1, offset };
    RelayedTransaction {
        header,
        format: Arc::clone(format),
        start: at(ordinal * STEP),
        end: at((ordinal + 1) * STEP),
        ordinal,
        event_bytes: bytes.len() as u64,
        cumulative_bytes: ordinal * STEP,
        body: TransactionBody::Whole(vec![Bytes::from(bytes)]),
    }
}

/// Returns a transaction of an event with its GTID, and these.
#[must_use]
pub fn relayed_events(
    gno: u64,
    format: &Arc<FormatDescription>,
    events: &[RawEvent],
) -> RelayedTransaction {
    let gtid = Gtid { uuid: Uuid::from_bytes([5; 16]), tag: Tag::untagged(), gno };
    let begin = gtid_event(&gtid, gno);
    let header = TransactionHeader::parse(&begin).expect("well-formed");
    let all = std::iter::once(&begin).chain(events);
    relayed(gno, header, format, all.flat_map(|event| event.bytes().to_vec()).collect())
}
