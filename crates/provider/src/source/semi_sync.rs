//! Acknowledgements of a semi-synchronous source: which of its requests the relay store has made safe.
//!
//! Such a source puts two bytes before each event (a mark, and a flag that requests an acknowledgement). It
//! lets its client wait until a replica has named a place in its binary log at or after the transaction's end
//! (<https://dev.mysql.com/doc/refman/en/replication-semisync.html>). One acknowledgement covers all
//! transactions before that place, so only the last one that is safe is named.

use std::collections::VecDeque;

use tokio::sync::watch;

use crate::binlog::event::{EventType, RawEvent};

/// Marks the two bytes, and an acknowledgement.
const MARK: u8 = 0xef;
const REQUESTED: u8 = 1;
/// Bytes of the mark and the flag.
pub(crate) const HEADER_BYTES: usize = 2;
/// Bytes of the position before the file name in a ROTATE event.
const ROTATE_POSITION_BYTES: usize = 8;
/// Positions in event headers have 32 bits, files may be longer.
const WRAP: u64 = 1 << 32;

/// Returns true if the two bytes before an event request an acknowledgement; `None` if they are no such bytes.
pub(crate) fn requested(head: &[u8]) -> Option<bool> {
    match head {
        [MARK, flags, ..] => Some(flags & REQUESTED != 0),
        _ => None,
    }
}

/// A place in the source's binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BinlogPlace {
    file: String,
    position: u64,
}

impl BinlogPlace {
    /// Returns the packet that acknowledges everything up to here.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(1 + 8 + self.file.len());
        packet.push(MARK);
        packet.extend_from_slice(&self.position.to_le_bytes());
        packet.extend_from_slice(self.file.as_bytes());
        packet
    }
}

/// The requests of one link that were not yet answered.
#[derive(Debug)]
pub(crate) struct Requests {
    at: BinlogPlace,
    /// The count of transactions that have to be safe, and the place to name then.
    open: VecDeque<(u64, BinlogPlace)>,
    /// The last place for which an acknowledgement was or will be sent.
    answered: BinlogPlace,
    is_ahead: bool,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let at = BinlogPlace { file: String::new(), position: 0 };
        Self { answered: at.clone(), at, open: VecDeque::new(), is_ahead: false }
    }

    /// Follows the stream: the source names a file in ROTATE events only.
    pub(crate) fn follow(&mut self, event: &RawEvent) {
        if event.event_type() == EventType::ROTATE {
            let (position, name) =
                event.body().split_at_checked(ROTATE_POSITION_BYTES).unwrap_or_default();
            let position = position.try_into().map(u64::from_le_bytes).unwrap_or_default();
            self.at = BinlogPlace { file: String::from_utf8_lossy(name).into_owned(), position };
            return;
        }
        let low = u64::from(event.header().log_pos);
        if event.event_type() == EventType::HEARTBEAT {
            self.heartbeat(event.body(), low);
            return;
        }
        // Events that the source makes for the dump alone have no place.
        if low == 0 || event.event_type() == EventType::HEARTBEAT_V2 {
            return;
        }
        let (high, last) = (self.at.position & !(WRAP - 1), self.at.position & (WRAP - 1));
        // No event is so long that the 32 bits could decrease by half their range otherwise. A place
        // that is too low makes the source wait; one that is too high would lose transactions.
        let wrapped = low < last && last - low > WRAP / 2;
        self.at.position = (high | low) + if wrapped { WRAP } else { 0 };
    }

    /// A heartbeat names the place up to which the source has sent its binary log, or passed over
    /// transactions received before. It requests nothing, and so is the only sign of those that
    /// were received over an earlier link, whose acknowledgement was lost with it: MySQL 9.7 lets
    /// their clients wait.
    fn heartbeat(&mut self, file: &[u8], low: u64) {
        let place = (self.at.position & !(WRAP - 1)) | low;
        if self.at.file.as_bytes() == file && place > self.at.position {
            self.at.position = place;
        }
        self.is_ahead = self.at != self.answered;
    }

    /// Returns true if the event followed last is a heartbeat at a place that was not acknowledged.
    pub(crate) fn is_unanswered(&mut self) -> bool {
        std::mem::take(&mut self.is_ahead)
    }

    /// The event followed last requests an acknowledgement, due once this many transactions are safe.
    pub(crate) fn add(&mut self, transactions: u64) {
        self.answered.clone_from(&self.at);
        self.open.push_back((transactions, self.at.clone()));
    }

    /// Returns the count of transactions for which the next request waits.
    pub(crate) fn next(&self) -> Option<u64> {
        self.open.front().map(|(transactions, _)| *transactions)
    }

    /// Takes the requests that are answered when this many transactions are safe; returns the last.
    pub(crate) fn safe(&mut self, transactions: u64) -> Option<BinlogPlace> {
        let mut last = None;
        while self.open.front().is_some_and(|(needed, _)| *needed <= transactions) {
            last = self.open.pop_front().map(|(_, place)| place);
        }
        last
    }
}

/// The spool's count of safe transactions.
#[derive(Debug, Clone)]
pub(crate) struct Safe {
    count: watch::Receiver<u64>,
    /// The count before anything was handed over.
    base: u64,
}

impl Safe {
    pub(crate) fn new(count: watch::Receiver<u64>) -> Self {
        let base = *count.borrow();
        Self { count, base }
    }

    /// Returns once so many of the transactions handed over are safe.
    pub(crate) async fn reaches(&mut self, transactions: u64) {
        let wanted = self.base + transactions;
        if self.count.wait_for(|count| *count >= wanted).await.is_err() {
            // The spool has failed, which it reports itself.
            std::future::pending::<()>().await;
        }
    }

    fn transactions(&self) -> u64 {
        self.count.borrow().saturating_sub(self.base)
    }
}

/// The requests of one link, and the safety for which they wait.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    requests: Requests,
    safe: Option<Safe>,
}

impl Acknowledgements {
    pub(crate) fn new(safe: Option<Safe>) -> Self {
        Self { requests: Requests::new(), safe }
    }

    /// Notes an event, and what it requests: `needed` transactions have to be safe.
    pub(crate) fn note(&mut self, event: &RawEvent, requested: bool, needed: u64) {
        self.requests.follow(event);
        if self.requests.is_unanswered() || requested {
            self.requests.add(needed);
        }
    }

    /// Returns the next place to acknowledge; pending while there is none. Nothing is lost when
    /// this future is dropped.
    pub(crate) async fn due(&mut self) -> BinlogPlace {
        if let (Some(safe), Some(needed)) = (&mut self.safe, self.requests.next()) {
            safe.reaches(needed).await;
            if let Some(place) = self.requests.safe(safe.transactions()) {
                return place;
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binlog::event::ChecksumAlgorithm;
    use crate::test_util::{event, event_bytes};

    fn ending_at(event_type: EventType, position: u32) -> RawEvent {
        let checksum = ChecksumAlgorithm::Off;
        let mut bytes = event_bytes(event_type, &[0; 8], checksum).to_vec();
        bytes[13..17].copy_from_slice(&position.to_le_bytes());
        RawEvent::parse(bytes.into(), checksum).unwrap()
    }

    fn beat(file: &str, position: u32) -> RawEvent {
        let checksum = ChecksumAlgorithm::Off;
        let mut bytes = event_bytes(EventType::HEARTBEAT, file.as_bytes(), checksum).to_vec();
        bytes[13..17].copy_from_slice(&position.to_le_bytes());
        RawEvent::parse(bytes.into(), checksum).unwrap()
    }

    fn rotate(file: &str, position: u64) -> RawEvent {
        event(EventType::ROTATE, &[&position.to_le_bytes()[..], file.as_bytes()].concat())
    }

    /// Returns the place after these events.
    fn place(events: &[RawEvent]) -> (String, u64) {
        let mut requests = Requests::new();
        events.iter().for_each(|event| requests.follow(event));
        (requests.at.file, requests.at.position)
    }

    #[test]
    fn places_follow_the_stream_and_never_lead_it() {
        let [first, second] = ["a.000001", "a.000002"];
        let begin = rotate(first, 4);
        let xid = |position| ending_at(EventType::XID, position);
        assert_eq!(place(&[begin.clone(), xid(500)]), (first.to_owned(), 500));
        // An event without a place, and a heartbeat at an earlier one, or in another file.
        let none = ending_at(EventType::FORMAT_DESCRIPTION, 0);
        let events = [begin.clone(), xid(500), none, beat(first, 200), beat(second, 800)];
        assert_eq!(place(&events), (first.to_owned(), 500));
        assert_eq!(place(&[begin.clone(), beat(first, 800)]), (first.to_owned(), 800));
        assert_eq!(place(&[begin.clone(), xid(500), rotate(second, 4)]), (second.to_owned(), 4));
        // Files of more than 4 GiB.
        let long = [begin.clone(), xid(u32::MAX - 10), xid(90), xid(95)];
        assert_eq!(place(&long), (first.to_owned(), WRAP + 95));
        assert_eq!(place(&[begin, xid(500), xid(400)]), (first.to_owned(), 400));
    }

    #[test]
    fn a_heartbeat_is_answered_once() {
        let mut requests = Requests::new();
        requests.follow(&rotate("a.000001", 4));
        requests.follow(&beat("a.000001", 700));
        assert!(requests.is_unanswered());
        requests.add(0);
        assert_eq!(
            requests.safe(0),
            Some(BinlogPlace { file: "a.000001".to_owned(), position: 700 })
        );
        requests.follow(&beat("a.000001", 700));
        assert!(!requests.is_unanswered());
        requests.follow(&beat("a.000001", 900));
        assert!(requests.is_unanswered());
    }

    #[test]
    fn an_acknowledgement_is_mark_position_and_file() {
        let place = BinlogPlace { file: "b.000009".to_owned(), position: 0x0102 };
        assert_eq!(place.packet(), [&[0xef, 2, 1, 0, 0, 0, 0, 0, 0][..], b"b.000009"].concat());
        assert_eq!(requested(&[0xef, 1, 9]), Some(true));
        assert_eq!(requested(&[0xef, 0, 9]), Some(false));
        assert_eq!(requested(&[0, 1, 9]), None);
        assert_eq!(requested(&[0xef]), None);
    }
}
