//! Events that are passed over, and flags that decide nothing.

use super::*;
use crate::binlog::event::EventHeader;

/// Returns an event with a flag set and the checksum that goes with it.
fn flagged(event_type: EventType, flags: u16) -> Vec<u8> {
    let mut bytes = event(event_type, b"whatever").bytes().to_vec();
    let at = EventHeader::FLAGS_OFFSET;
    bytes[at..at + 2].copy_from_slice(&flags.to_le_bytes());
    let covered = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..covered]);
    bytes[covered..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[tokio::test]
async fn events_that_mean_nothing_to_a_replica_are_passed_over_wherever_they_stand() {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    let ignorable = EventHeader::FLAG_IGNORABLE;
    let passed_over = [
        flagged(EventType(99), ignorable),
        flagged(EventType(43), ignorable | EventHeader::FLAG_ARTIFICIAL),
        flagged(EventType::IGNORABLE, ignorable),
        flagged(EventType::TRANSACTION_CONTEXT, 0),
        flagged(EventType::VIEW_CHANGE, ignorable),
    ];
    for gno in 1..=2 {
        for bytes in &passed_over {
            source.event(bytes).await;
        }
        source.event(gtid_event(&gtid(gno), 1).bytes()).await;
        for bytes in &passed_over {
            source.event(bytes).await;
        }
        source.event(query_event("db", "BEGIN").bytes()).await;
        for bytes in &passed_over {
            source.event(bytes).await;
        }
        source.event(event(EventType::XID, &[0; 8]).bytes()).await;
    }
    bench.eventually("both transactions", |view| view.transactions_total == 2).await;
    assert_eq!(bench.status.view().passed_over_events_total, 30);
    assert_eq!(bench.sink.received(), GtidSet::from_iter([gtid(1), gtid(2)]));
    let stored = [EventType::FORMAT_DESCRIPTION, EventType::QUERY, EventType::QUERY];
    assert_eq!(bench.sink.0.lock().events, stored);
    // The flag alone decides about unknown types, and about nothing else.
    source.event(&flagged(EventType(99), EventHeader::FLAG_ARTIFICIAL)).await;
    let text = bench.failure().await.to_string();
    assert!(text.contains("event type 99") && text.contains("090909:2"), "{text}");
}

#[tokio::test]
async fn known_events_count_whatever_their_flags_say() {
    for event_type in [EventType::INCIDENT, EventType::INTVAR, EventType::WRITE_ROWS] {
        let bench = Bench::start(options()).await;
        let (mut source, _) = bench.dump().await;
        source.event(&flagged(event_type, EventHeader::FLAG_IGNORABLE)).await;
        bench.failure().await;
    }
}
