//! The events of a relayed transaction, decompressed, and the bytes they take.

use csa_provider::binlog::{EventType, Gtid, PayloadEvents, RawEvent, TransactionPayload};
use csa_relaystore::disk::in_place;
use csa_relaystore::read::RelayedTransaction;

use crate::error::{Error, Result};

/// Bytes of a transaction's events as they were received, and the additional bytes of their
/// decompressed form: 0 if they are not compressed.
///
/// # Errors
/// [`Error::Unreadable`] if the bytes can't be read back.
pub fn decompressed_bytes(relayed: &RelayedTransaction) -> Result<(u64, u64)> {
    let size = payload(relayed)?.map_or(0, |payload| payload.uncompressed_size());
    Ok((relayed.event_bytes, size))
}

/// Returns the bytes that a transaction takes while it is read piece by piece: those held of it as received,
/// and its largest event once decompressed. That is known only by decompressing all of it, once more than
/// admission and execution do. A guess would be all of its bytes, which may be more than the memory's limit. Then
/// such a transaction would have the memory of the whole channel for itself. The result is
/// too small where `is_wanted` ended the search.
///
/// # Errors
/// [`Error::Unreadable`] when the bytes can't be read back.
pub fn bytes_at_a_time(relayed: &RelayedTransaction, is_wanted: impl Fn() -> bool) -> Result<u64> {
    let gtid = &relayed.header.gtid;
    let held = relayed.bytes_at_a_time().map_err(|error| unreadable(gtid, error))?;
    let largest = match payload(relayed)? {
        // Seconds of computing for a large one.
        Some(payload) => in_place(|| payload.largest_event(is_wanted))
            .map_err(|error| unreadable(gtid, error))?,
        None => 0,
    };
    Ok(held.saturating_add(largest))
}

/// True if the transaction is one compressed payload, as far as it is known.
pub(crate) fn is_compressed(relayed: &RelayedTransaction) -> Result<bool> {
    Ok(payload(relayed)?.is_some())
}

/// Returns the payload of a compressed transaction, which consists of its GTID and one payload.
fn payload(relayed: &RelayedTransaction) -> Result<Option<TransactionPayload>> {
    let gtid = &relayed.header.gtid;
    let Some(second) = relayed.events().nth(1) else { return Ok(None) };
    let second = second.map_err(|error| unreadable(gtid, error))?;
    if second.event_type() != EventType::TRANSACTION_PAYLOAD {
        return Ok(None);
    }
    TransactionPayload::parse(&second).map(Some).map_err(|error| unreadable(gtid, error))
}

/// Returns the transaction's events, compressed payloads unpacked, one at a time, without those
/// that mean nothing to a replica.
pub fn flattened_events(
    relayed: &RelayedTransaction,
) -> impl Iterator<Item = Result<RawEvent>> + use<> {
    let matters = |event: &Result<RawEvent>| !event.as_ref().is_ok_and(RawEvent::is_passed_over);
    all_events(relayed).filter(matters)
}

fn all_events(relayed: &RelayedTransaction) -> impl Iterator<Item = Result<RawEvent>> + use<> {
    let gtid = relayed.header.gtid.clone();
    let mut outer = relayed.events();
    let mut inner: Option<PayloadEvents> = None;
    std::iter::from_fn(move || {
        loop {
            if let Some(events) = inner.as_mut() {
                if let Some(event) = Iterator::next(events) {
                    return Some(event.map_err(|error| unreadable(&gtid, error)));
                }
                inner = None;
            }
            let event = match outer.next()? {
                Ok(event) => event,
                Err(error) => return Some(Err(unreadable(&gtid, error))),
            };
            if event.event_type() != EventType::TRANSACTION_PAYLOAD {
                return Some(Ok(event));
            }
            match TransactionPayload::parse(&event) {
                Ok(payload) => inner = Some(payload.into_events()),
                Err(error) => return Some(Err(unreadable(&gtid, error))),
            }
        }
    })
}

pub(crate) fn unreadable(
    gtid: &Gtid,
    source: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::Unreadable { gtid: gtid.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use csa_provider::binlog::{ChecksumAlgorithm, EventHeader};
    use csa_provider::test_util::{event, event_bytes, format_description};
    use csa_relaystore::test_util::relayed_events;

    use super::*;

    /// Returns a transaction of one payload with these bodies of events, which are not compressed.
    fn transaction(bodies: &[&[u8]]) -> RelayedTransaction {
        let bytes = |body: &&[u8]| {
            event_bytes(EventType::ROWS_QUERY, body, ChecksumAlgorithm::Off).to_vec()
        };
        let inner: Vec<u8> = bodies.iter().flat_map(bytes).collect();
        let mut body = vec![2, 3, 252, 255, 0, 1, 9, 254];
        body.extend((inner.len() as u64).to_le_bytes());
        body.push(0);
        body.extend(inner);
        let payload = event(EventType::TRANSACTION_PAYLOAD, &body);
        relayed_events(1, &Arc::new(format_description()), &[payload])
    }

    /// The measuring waits for another task of the only thread.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_while_a_transaction_is_measured() {
        let relayed = transaction(&[&[1; 10], &[1; 1_000]]);
        let first = relayed.event_bytes + 10 + EventHeader::LEN as u64;
        let measuring = tokio::spawn(async move {
            let (sender, receiver) = mpsc::channel();
            tokio::spawn(async move { sender.send(()).expect("somebody waits") });
            // The second look finds the sender gone.
            bytes_at_a_time(&relayed, || receiver.recv_timeout(Duration::from_secs(20)).is_ok())
        });
        assert_eq!(measuring.await.expect("no panic").expect("readable"), first);
    }
}
