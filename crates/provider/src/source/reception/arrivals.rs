//! Events that have arrived, for the status page: counted as they come, shown once for each block of them.

use tokio::time::Instant;

use crate::binlog::event::{EventType, TransactionHeader};
use crate::source::assembler::Placement;
use crate::source::clock_difference::ClockDifference;
use crate::source::status::SourceStatus;

/// The events that the status does not show yet.
#[derive(Debug)]
pub(in crate::source) struct Arrivals {
    /// The time at which the block arrived, by the monotonic clock.
    at: Instant,
    /// The time at which the block arrived, in microseconds since the epoch.
    now: u64,
    events: u64,
    bytes: u64,
    passed_over: u64,
    heartbeats: u64,
    transactions: u64,
    /// The last transaction that arrived whole.
    last: Option<TransactionHeader>,
    open: Option<Arriving>,
    /// The source has nothing else to send, as far as its last event says.
    idle: Option<bool>,
    /// Something has arrived that the source sends only when all before it is sent. What opens a file comes once
    /// more when a dump begins, whatever was committed meanwhile.
    is_news: bool,
}

/// The transaction that is arriving.
#[derive(Debug)]
struct Arriving {
    header: TransactionHeader,
    since: Instant,
    bytes: u64,
    is_shown: bool,
}

impl Arrivals {
    pub(in crate::source) fn new() -> Self {
        Self {
            at: Instant::now(),
            now: 0,
            events: 0,
            bytes: 0,
            passed_over: 0,
            heartbeats: 0,
            transactions: 0,
            last: None,
            open: None,
            idle: None,
            is_news: false,
        }
    }

    /// A block has arrived, `now` microseconds since the epoch.
    pub(in crate::source) fn begin_block(&mut self, now: u64) {
        self.at = Instant::now();
        self.now = now;
    }

    /// Counts an event. A transaction is whole only with [`Self::ended`].
    pub(in crate::source) fn note(
        &mut self,
        placement: &Placement,
        event_type: EventType,
        bytes: u64,
    ) {
        self.events += 1;
        self.bytes += bytes;
        let is_heartbeat = event_type == EventType::HEARTBEAT;
        self.is_news |= is_heartbeat || !matches!(placement, Placement::Outside);
        match placement {
            Placement::Begin(header) => {
                let (header, since) = (header.clone(), self.at);
                self.open = Some(Arriving { header, since, bytes: 0, is_shown: false });
                self.idle = Some(false);
            }
            Placement::PassedOver => self.passed_over += 1,
            Placement::Outside if is_heartbeat => self.heartbeats += 1,
            Placement::Body | Placement::End | Placement::Outside => {}
        }
        if let Some(open) = &mut self.open {
            open.bytes += bytes;
        }
    }

    /// The source has sent a heartbeat.
    pub(in crate::source) fn heard(&mut self, is_idle: bool) {
        (self.idle, self.is_news) = (Some(is_idle), true);
    }

    /// Notes that the transaction that was arriving is whole, and on its way into the spool.
    pub(in crate::source) fn ended(&mut self, status: &SourceStatus, clock: ClockDifference) {
        let Some(Arriving { header, since, bytes, .. }) = self.open.take() else { return };
        if let Some(delay) = header.since_commit(self.now, clock.estimate()) {
            status.reception.note(delay);
        }
        status.recorder().received(since, &header.gtid, bytes);
        self.transactions += 1;
        self.last = Some(header);
    }

    /// Shows everything since the last time.
    pub(in crate::source) fn show(&mut self, status: &SourceStatus, clock: ClockDifference) {
        let take = std::mem::take::<u64>;
        status.update(|view| {
            if std::mem::take(&mut self.is_news) {
                view.last_event = Some(self.at);
            }
            view.events_total += take(&mut self.events);
            view.bytes_total += take(&mut self.bytes);
            view.passed_over_events_total += take(&mut self.passed_over);
            if self.heartbeats > 0 {
                view.heartbeats_total += take(&mut self.heartbeats);
                view.last_heartbeat = Some(self.now);
            }
            view.transactions_total += take(&mut self.transactions);
            if let Some(last) = self.last.take() {
                view.arrival_delay = last.since_commit(self.now, clock.most());
                view.last_queued = Some(last);
                view.queueing = None;
            }
            if let Some(open) = &mut self.open {
                if !std::mem::replace(&mut open.is_shown, true) {
                    view.queueing = Some(open.header.clone());
                    view.queueing_since = Some(open.since);
                }
                view.queueing_bytes = open.bytes;
            }
            if let Some(idle) = self.idle.take() {
                view.idle = idle;
            }
        });
    }
}
