//! Events beyond the 16 MiB that one packet holds.

use super::*;
use crate::source::connection::fake_source::PACKET_BYTES_FULL;

/// The packet holds a byte before the event.
async fn arrives(packet_bytes: usize) {
    let event = event_of(packet_bytes - 1);
    let sent = event.clone();
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        source.event(&sent).await;
        source.event(&heartbeat()).await;
    })
    .await;
    let arrived = next(&mut connection).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(arrived.bytes() == &event, "an event of {} bytes", event.len());
    let next_event = next(&mut connection).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(next_event.event_type(), EventType::HEARTBEAT, "the packet after it");
    script.await.unwrap();
}

#[tokio::test]
async fn an_event_that_just_fits_and_one_that_just_does_not() {
    arrives(PACKET_BYTES_FULL - 1).await;
    // An empty packet ends a full one.
    arrives(PACKET_BYTES_FULL).await;
    arrives(PACKET_BYTES_FULL + 1).await;
}

#[tokio::test]
async fn an_event_in_several_packets() {
    arrives(2 * PACKET_BYTES_FULL).await;
    arrives(3 * PACKET_BYTES_FULL + 1_000_000).await;
}

#[tokio::test]
async fn a_lost_packet_is_noticed() {
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        let mut packet = vec![0];
        packet.extend_from_slice(&event_of(2 * PACKET_BYTES_FULL));
        let mut chunks = packet.chunks(PACKET_BYTES_FULL);
        let first = source.frame(chunks.next().unwrap());
        source.frame(chunks.next().unwrap());
        let third = source.frame(chunks.next().unwrap());
        source.send_bytes(&first).await;
        source.send_bytes(&third).await;
    })
    .await;
    assert!(matches!(
        next(&mut connection).await,
        Err(ConnectionError::Link(LinkError::Protocol(_)))
    ));
    script.await.unwrap();
}
