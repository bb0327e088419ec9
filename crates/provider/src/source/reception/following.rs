//! One link, from its first event to its end: events go from the dump into the spool, block by block.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::Provider;
use super::arrivals::Arrivals;
use super::end::{Error, LinkEnd};
use super::looks::{Looks, look};
use super::overlap::Overlap;
use crate::binlog::event::{EventType, RawEvent};
use crate::binlog::gtid::GtidSet;
use crate::source::assembler::Placement;
use crate::source::cause::SourceCause;
use crate::source::clock_difference::{ClockDifference, SourceClock};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::semi_sync::{Acknowledgements, BinlogPlace};
use crate::source::side_logins::SideLogins;
use crate::source::sink::TransactionSink;
use crate::source::status::SourceStatus;

/// A link on which the dump has begun.
pub(super) struct LinkedSource<'a> {
    pub(super) connection: SourceConnection,
    pub(super) host: &'a str,
    pub(super) port: u16,
    /// Its `server_uuid`.
    pub(super) uuid: String,
    /// The received transaction that the dump sends once more, until it arrives.
    pub(super) overlap: Option<Overlap>,
}

/// The dump of one link, and the spool that takes it.
pub(super) struct Following<'a, S> {
    provider: &'a mut Provider,
    sink: &'a mut S,
    link: LinkedSource<'a>,
    clock: SourceClock,
    /// The GTIDs that the source had executed when the dump began, until all are received. Before that, a
    /// heartbeat does not mean that it is idle.
    awaited: Option<GtidSet>,
    looks: Looks,
    logins: SideLogins,
    acknowledgements: Acknowledgements,
    arrivals: Arrivals,
    has_begun: bool,
    /// The transaction of the overlap is arriving.
    is_repeated: bool,
}

impl<'a, S: TransactionSink> Following<'a, S> {
    pub(super) fn new(
        provider: &'a mut Provider,
        sink: &'a mut S,
        link: LinkedSource<'a>,
        clock: ClockDifference,
        awaited: Option<GtidSet>,
    ) -> Self {
        Self {
            acknowledgements: Acknowledgements::new(provider.safe.clone()),
            provider,
            sink,
            link,
            clock: SourceClock::new(clock),
            awaited,
            looks: Looks::new(),
            logins: SideLogins::new(),
            arrivals: Arrivals::new(),
            has_begun: false,
            is_repeated: false,
        }
    }

    /// Follows the dump until the link ends.
    pub(super) async fn follow(mut self) -> Result<Infallible, LinkEnd> {
        loop {
            let (event, requested) = self.next().await?;
            self.sink.begin_block();
            let taken = self.take_block(event, requested).await;
            self.sink.end_block();
            // An error is reported after what came before it.
            self.arrivals.show(&self.provider.status, self.clock.known());
            taken?;
        }
    }

    /// Waits for an event, and does what is due meanwhile.
    async fn next(&mut self) -> Result<(RawEvent, bool), LinkEnd> {
        let Self { provider, link, clock, logins, looks, acknowledgements, sink, .. } = self;
        // The source's clients may wait for the spool, and send nothing that would show that it has failed.
        let mut failed = pin!(sink.failed());
        loop {
            tokio::select! {
                biased;
                // First, or a stream without pauses would hold it back.
                place = acknowledgements.due() => {
                    acknowledge(&mut link.connection, &place, &provider.status).await?;
                }
                known = clock.narrowed(
                    logins, &provider.options, (link.host, link.port), &link.uuid,
                ) => {
                    provider.status.update(|view| view.clock = known);
                }
                looked = looks.ended() => {
                    logins.note(&looked, &provider.options, (link.host, link.port));
                    if let Some(answer) = looks.note(looked, &link.uuid, &mut provider.left)? {
                        let known = clock.learn(answer);
                        provider.status.update(|view| view.clock = known);
                    }
                }
                error = &mut failed, if provider.safe.is_some() => return Err(Error::from(error).into()),
                next = link.connection.next_event() => {
                    return next.map_err(|error| end_of_link(provider, link.overlap.as_ref(), error));
                }
            }
        }
    }

    /// Takes an event and those that were read from the socket with it.
    async fn take_block(&mut self, event: RawEvent, requested: bool) -> Result<(), LinkEnd> {
        self.provider.attempt.has_delivered = true;
        self.arrivals.begin_block(self.provider.now());
        let mut next = Some((event, requested));
        while let Some((event, requested)) = next {
            self.take(event, requested).await?;
            let arrived = self.link.connection.arrived_event();
            let overlap = self.link.overlap.as_ref();
            next = arrived.map_err(|error| end_of_link(self.provider, overlap, error))?;
        }
        Ok(())
    }

    async fn take(&mut self, event: RawEvent, requested: bool) -> Result<(), LinkEnd> {
        let is_semi_sync = self.link.connection.is_semi_sync();
        let provider = &mut *self.provider;
        if !std::mem::replace(&mut self.has_begun, true) {
            provider.without_overlap.remove(&provider.attempt.address);
            if provider.safe.is_some() {
                provider.begin_semi_sync(is_semi_sync);
            }
        }
        let was_open = provider.assembler.in_transaction().is_some();
        let placement = provider.assembler.place(&event).map_err(Error::from)?;
        if let (Placement::Begin(header), Some(overlap)) = (&placement, &self.link.overlap)
            && overlap.matches(header, &provider.attempt.address)?
        {
            (self.link.overlap, self.is_repeated) = (None, true);
        }
        let is_repeated = self.is_repeated;
        // Nobody would take the answers of others, which would then be kept for ever.
        if is_semi_sync {
            let is_open = was_open || provider.assembler.in_transaction().is_some();
            let needed = provider.handed_over + u64::from(is_open && !is_repeated);
            self.acknowledgements.note(&event, requested, needed);
        }
        if is_repeated {
            // What the spool has already. A format description may precede it, and never comes within it.
            self.is_repeated = placement != Placement::End;
            return Ok(());
        }
        if let Placement::Begin(header) = &placement {
            if self.sink.has_received(&header.gtid) {
                let (address, gtid) = (provider.attempt.address.clone(), header.gtid.clone());
                return Err(Error::Repeated { address, gtid }.into());
            }
            provider.foreign.follow(header.gtid.uuid);
        }
        let event_type = event.event_type();
        self.arrivals.note(&placement, event_type, event.len() as u64);
        match placement {
            Placement::PassedOver => {
                provider.log_passed_over(event_type);
                Ok(())
            }
            Placement::Outside if event_type != EventType::FORMAT_DESCRIPTION => {
                self.pass_by(event_type);
                Ok(())
            }
            Placement::End => {
                self.append(event, placement).await?;
                // Only now, when the transaction is on its way into the spool, may others see it as received.
                self.provider.handed_over += 1;
                // The other one serves.
                self.provider.left.take_if(|left| left.uuid != self.link.uuid);
                self.arrivals.ended(&self.provider.status, self.clock.known());
                Ok(())
            }
            Placement::Begin(_) | Placement::Body | Placement::Outside => {
                self.append(event, placement).await
            }
        }
    }

    /// Hands an event to the spool. What is safe is acknowledged also while the spool is full.
    async fn append(&mut self, event: RawEvent, placement: Placement) -> Result<(), LinkEnd> {
        let mut append = pin!(self.sink.append(event, placement));
        // Mostly there is room.
        if let Poll::Ready(appended) =
            poll_fn(|context| Poll::Ready(append.as_mut().poll(context))).await
        {
            return Ok(appended.map_err(Error::from)?);
        }
        self.arrivals.show(&self.provider.status, self.clock.known());
        loop {
            tokio::select! {
                biased;
                appended = &mut append => return Ok(appended.map_err(Error::from)?),
                place = self.acknowledgements.due() => {
                    acknowledge(&mut self.link.connection, &place, &self.provider.status).await?;
                }
            }
        }
    }

    /// Passes an event by that belongs to no transaction. A heartbeat says that the source is idle.
    fn pass_by(&mut self, event_type: EventType) {
        if !matches!(event_type, EventType::HEARTBEAT | EventType::HEARTBEAT_V2) {
            return;
        }
        self.awaited.take_if(|awaited| awaited.is_subset_of(&self.sink.received()));
        self.arrivals.heard(self.awaited.is_none());
        let options = &self.provider.options;
        if self.looks.is_due(options, &self.logins) {
            // Before the source's sets, which then have all of it.
            let sets = (self.sink.received(), self.awaited.clone().unwrap_or_default());
            let (options, foreign) = (options.clone(), self.provider.foreign.clone());
            let address = (self.link.host.to_owned(), self.link.port);
            self.looks.begin(look(options, address, self.link.uuid.clone(), sets, foreign));
        }
    }
}

/// Returns the end of a link. If the overlap has not arrived, its transaction may have been purged just before the
/// dump began: the next dump begins after it, and shows whether others are missing.
fn end_of_link(
    provider: &mut Provider,
    overlap: Option<&Overlap>,
    error: ConnectionError,
) -> LinkEnd {
    match (provider.link_error(error), overlap) {
        (
            LinkEnd::Fatal(Error::Refused { cause: SourceCause::Purged, message, address, .. }),
            Some(overlap),
        ) => {
            provider.without_overlap.insert(address, overlap.gtid().clone());
            LinkEnd::Fault(ConnectionError::Protocol(message))
        }
        (end, _) => end,
    }
}

async fn acknowledge(
    connection: &mut SourceConnection,
    place: &BinlogPlace,
    status: &SourceStatus,
) -> Result<(), ConnectionError> {
    connection.acknowledge(place).await?;
    status.update(|view| view.acknowledgements_total += 1);
    Ok(())
}
