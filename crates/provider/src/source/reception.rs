//! The reconnecting loop: from the source's dump into a spool.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::binlog::commit_times::CLOCK_NOTICED;
use crate::binlog::event::{EventError, EventType};
use crate::binlog::gtid::{Gtid, GtidSet};
use crate::seams::backoff::Backoff;
use crate::server::link::LinkError;
use crate::server::link::server_errors::SOURCE_FATAL;
use crate::server::product::Product;
use crate::source::assembler::{Placement, StreamError, TransactionAssembler};
use crate::source::cause::{AFRESH, SourceCause, passes};
use crate::source::clock_difference::{SourceClock, ask};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::history::{Foreign, Known, SharedForeign, lacks, no_foreign};
use crate::source::options::SourceOptions;
use crate::source::semi_sync::{Acknowledgements, Place, Safe};
use crate::source::sink::{SinkError, TransactionSink};
use crate::source::status::SourceStatus;

/// The reason reception ended for good.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream holds something that can't be replicated.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The same event arrived damaged twice: it is damaged on the source.
    #[error("{at}: {source}; it arrived the same way twice, so the source's binary log is damaged")]
    Damaged {
        at: String,
        #[source]
        source: EventError,
    },
    /// The source ends the stream for good: purged transactions that are needed, an anonymous
    /// transaction, an unreadable binary log.
    #[error("source {address} can't continue after {at}: {message}{}", cause.repair())]
    Refused { address: String, at: String, message: String, cause: SourceCause },
    /// Only transactions not yet received were requested: the source's GTIDs have begun again.
    #[error(
        "source {address} sent transaction {gtid} again, which was received before: it has a \
         different history now (RESET BINARY LOGS AND GTIDS?){AFRESH}"
    )]
    Repeated { address: String, gtid: Gtid },
    #[error("relay store: {0}")]
    Sink(#[from] SinkError),
}

impl Error {
    /// Returns true for the contents of the transaction that was being received.
    #[must_use]
    pub const fn is_of_transaction(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Damaged { .. })
    }

    #[must_use]
    pub const fn cause(&self) -> SourceCause {
        match self {
            Self::Stream(_) | Self::Damaged { .. } => SourceCause::Stream,
            Self::Refused { cause, .. } => *cause,
            Self::Repeated { .. } => SourceCause::OtherHistory,
            Self::Sink(_) => SourceCause::Spool,
        }
    }
}

/// Reception's end for good, and the transaction in which it ended.
#[derive(Debug, Clone, thiserror::Error)]
#[error("reception: {error}")]
pub struct ReceptionEnd {
    pub error: Arc<Error>,
    pub gtid: Option<Gtid>,
}

/// The interval at which an idle source is checked for still having the history that was received.
const HISTORY_CHECK: Duration = Duration::from_secs(10);

/// Receives a channel's stream until it is stopped.
#[derive(Debug)]
pub struct Provider {
    options: SourceOptions,
    status: Arc<SourceStatus>,
    assembler: TransactionAssembler,
    /// The place at which an event last arrived damaged, and the damage.
    damaged: Option<String>,
    /// Types of events that were passed over; each type is logged once.
    passed_over: Vec<EventType>,
    foreign: SharedForeign,
    /// `host:port` of the link, or of the last attempt.
    address: String,
    /// The last attempt reached the point where the source sends events.
    is_linked: bool,
    /// Events have arrived since the last pause.
    has_delivered: bool,
    /// `None` unless transactions are acknowledged.
    safe: Option<Safe>,
    /// Whole transactions that the spool was given.
    handed_over: u64,
}

/// The way in which one link ended.
enum LinkEnd {
    Stopped,
    Fault(ConnectionError),
    Fatal(Error),
}

/// Checks that the source still has what was received from it.
///
/// A source that is reset during a dump sends heartbeats and nothing else: its dump waits at the
/// end of a file that no longer exists. It refuses a new dump, though, so the link is then closed
/// to begin one.
struct History {
    checked: Instant,
    lacking: GtidSet,
}

impl Default for History {
    fn default() -> Self {
        Self { checked: Instant::now(), lacking: GtidSet::new() }
    }
}

impl History {
    /// A failed check does not count: the link will show if the source is gone. The same
    /// transactions must be missing twice, because once may be a commit under way.
    fn note(&mut self, lacking: Result<GtidSet, ConnectionError>) -> Result<(), ConnectionError> {
        self.checked = Instant::now();
        let lacking = lacking.unwrap_or_default();
        if !lacking.is_empty() && lacking == self.lacking {
            return Err(ConnectionError::Protocol(format!(
                "the source no longer has what it sent, {lacking}; asking again from there"
            )));
        }
        self.lacking = lacking;
        Ok(())
    }
}

impl From<ConnectionError> for LinkEnd {
    fn from(error: ConnectionError) -> Self {
        Self::Fault(error)
    }
}

impl From<Error> for LinkEnd {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

impl Provider {
    #[must_use]
    pub fn new(options: SourceOptions, status: Arc<SourceStatus>) -> Self {
        Self {
            options,
            status,
            assembler: TransactionAssembler::new(),
            damaged: None,
            passed_over: Vec::new(),
            foreign: no_foreign(),
            address: String::new(),
            is_linked: false,
            has_delivered: false,
            safe: None,
            handed_over: 0,
        }
    }

    /// Sets the servers with received transactions that a source need not have.
    #[must_use]
    pub fn with_foreign(self, foreign: SharedForeign) -> Self {
        Self { foreign, ..self }
    }

    /// Receives into `sink`, reconnecting as long as it takes; `Ok` when stopped.
    ///
    /// # Errors
    /// Only those that a new attempt can't fix.
    pub async fn run<S: TransactionSink>(
        mut self,
        mut sink: S,
        stop: CancellationToken,
    ) -> Result<(), ReceptionEnd> {
        self.safe = sink.safe().filter(|_| self.options.semi_sync).map(Safe::new);
        let mut backoff = Backoff::new(self.options.connect_retry, self.options.connect_retry_max);
        loop {
            self.has_delivered = false;
            let end = tokio::select! {
                biased;
                () = stop.cancelled() => LinkEnd::Stopped,
                // A stop may drop this in the middle of `append`. The event is then queued whole or
                // not at all, and `abandon` below takes back what is queued of its transaction.
                end = self.any_link(&mut sink) => end,
            };
            let open = self.assembler.in_transaction().cloned();
            self.assembler.reset();
            // The new dump begins with the transaction that was cut off here.
            if let Err(error) = sink.abandon().await {
                return Err(ReceptionEnd { error: Arc::new(error.into()), gtid: None });
            }
            let refused = match end {
                LinkEnd::Stopped => {
                    self.status.disconnected();
                    return Ok(());
                }
                LinkEnd::Fatal(error) => {
                    self.status.failed(&error, error.cause(), self.now());
                    // Everything before it is to be applied, also what a full spool has no room for yet.
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = sink.stored() => {}
                    }
                    let gtid = open.filter(|_| error.is_of_transaction());
                    return Err(ReceptionEnd { error: Arc::new(error), gtid });
                }
                LinkEnd::Fault(error) => {
                    warn!(address = %self.address, %error, "link to the source lost");
                    self.status.failed(&error, error.cause(), self.now());
                    error.refused_pause(&*self.options.environment.chance)
                }
            };
            // A link that delivered events proves the source alive: the back-off starts over.
            if self.has_delivered {
                backoff.restart();
            }
            let pause = backoff.jittered(0.75..1.25, &*self.options.environment.chance);
            let pause = refused.unwrap_or(pause);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Tries the source and its alternatives in order, and follows the first that is suitable.
    async fn any_link<S: TransactionSink>(&mut self, sink: &mut S) -> LinkEnd {
        let addresses: Vec<(String, u16)> =
            self.options.addresses().map(|(host, port)| (host.to_owned(), port)).collect();
        let mut last = LinkError::Closed.into();
        for (host, port) in addresses {
            self.address = format!("{host}:{port}");
            self.is_linked = false;
            self.status.update(|view| view.address.clone_from(&self.address));
            match self.link(&host, port, sink).await {
                Ok(never) => match never {},
                // A link that was never up lets the next address have its turn. After a lost one
                // the caller starts again with the first address.
                Err(LinkEnd::Fault(error)) if !self.is_linked => last = error,
                Err(end) => return end,
            }
        }
        LinkEnd::Fault(last)
    }

    async fn link<S: TransactionSink>(
        &mut self,
        host: &str,
        port: u16,
        sink: &mut S,
    ) -> Result<std::convert::Infallible, LinkEnd> {
        if let Some(safe) = &mut self.safe {
            // The source takes the set that a dump begins after for acknowledged.
            safe.reaches(self.handed_over).await;
        }
        let mut connection = SourceConnection::connect(&self.options, host, port).await?;
        let version = connection.server_version();
        if let Product::Other(name) = Product::of(version, "") {
            return Err(ConnectionError::Protocol(format!("it is {name} {version}")).into());
        }
        let received = sink.received();
        let uuid = connection.setting("SELECT @@server_uuid").await?;
        let clock = ask(&mut connection, &*self.options.environment.clock).await?;
        // Read before the dump: the source also sends heartbeats while it skips transactions that
        // were received. They mean that it is idle only once all of this set has been received.
        let executed = executed(&mut connection).await?;
        self.check_history(&received, &executed, &uuid)?;
        let mut executed = Some(executed);
        executed.take_if(|executed| executed.is_subset_of(&received));
        connection.start_dump(&self.options, &received).await?;
        info!(
            %host, port, version = connection.server_version(),
            connection = connection.connection_id(), received = %received.brief(),
            "receiving from the source"
        );
        let version = connection.server_version().to_owned();
        let clock_ahead = clock.estimate();
        if clock_ahead.unsigned_abs() > CLOCK_NOTICED {
            let how = if clock_ahead > 0 { "fast" } else { "slow" };
            let seconds = clock_ahead.unsigned_abs() as f64 / 1e6;
            warn!(
                %host, port,
                "the source's clock is {how} by {seconds:.1} s versus ours; lag and delay allow for it"
            );
        }
        self.is_linked = true;
        self.status.connected(uuid.clone(), clock, executed.is_none());
        self.status.update(|view| view.server_version = Some(version));
        let mut history = History::default();
        let mut clock = SourceClock::new(clock);
        let mut acknowledgements = Acknowledgements::new(self.safe.clone());
        let mut is_first = true;
        loop {
            let next = tokio::select! {
                biased;
                // First, or a stream without pauses would hold it back.
                place = acknowledgements.due() => {
                    self.acknowledge(&mut connection, &place).await?;
                    continue;
                }
                known = clock.narrowed(&self.options, host, port) => {
                    self.status.update(|view| view.clock = known);
                    continue;
                }
                next = connection.next_event() => next,
            };
            let (event, requested) = match next {
                Ok(next) => next,
                Err(error) => return Err(self.link_error(error)),
            };
            if std::mem::take(&mut is_first) && self.safe.is_some() {
                self.begin_semi_sync(connection.is_semi_sync());
            }
            let was_open = self.assembler.in_transaction().is_some();
            let placement = self.assembler.place(&event).map_err(Error::from)?;
            // Nobody would take the answers of others, which would then be kept for ever.
            if connection.is_semi_sync() {
                let is_open = was_open || self.assembler.in_transaction().is_some();
                acknowledgements.note(&event, requested, self.handed_over + u64::from(is_open));
            }
            if let Placement::Begin(header) = &placement
                && sink.has_received(&header.gtid)
            {
                let (address, gtid) = (self.address.clone(), header.gtid.clone());
                return Err(Error::Repeated { address, gtid }.into());
            }
            let (event_type, bytes) = (event.event_type(), event.len());
            let ends = placement == Placement::End;
            if !ends {
                self.note(&placement, event_type, bytes);
            }
            if placement == Placement::PassedOver {
                self.log_passed_over(event_type);
                continue;
            }
            let wanted = placement != Placement::Outside
                || event.event_type() == EventType::FORMAT_DESCRIPTION;
            let is_idle = matches!(event_type, EventType::HEARTBEAT | EventType::HEARTBEAT_V2);
            if is_idle {
                executed.take_if(|executed| executed.is_subset_of(&sink.received()));
                self.status.update(|view| view.idle = executed.is_none());
            }
            if wanted {
                let mut append = std::pin::pin!(sink.append(event, placement));
                // What is safe is acknowledged also while the spool is full.
                loop {
                    tokio::select! {
                        biased;
                        appended = &mut append => break appended.map_err(Error::from)?,
                        place = acknowledgements.due() => {
                            self.acknowledge(&mut connection, &place).await?;
                        }
                    }
                }
                if ends {
                    self.handed_over += 1;
                    // Only now, when the transaction is on its way into the spool, may others see
                    // it as received.
                    self.note(&Placement::End, event_type, bytes);
                }
            } else if is_idle && history.checked.elapsed() >= HISTORY_CHECK {
                // Over a connection of its own: this one carries nothing but events until the dump
                // ends.
                let lacking = self.lacking(host, port, &uuid, &sink.received(), &mut clock).await;
                history.note(lacking)?;
            }
        }
    }

    async fn acknowledge(
        &self,
        connection: &mut SourceConnection,
        place: &Place,
    ) -> Result<(), ConnectionError> {
        connection.acknowledge(place).await?;
        self.status.update(|view| view.acknowledgements_total += 1);
        Ok(())
    }

    fn begin_semi_sync(&self, is_semi_sync: bool) {
        let address = &self.address;
        match is_semi_sync {
            true => info!(%address, "transactions are acknowledged to the source"),
            false => warn!(
                %address,
                "the source waits for no acknowledgement: it lacks the plugin rpl_semi_sync_source"
            ),
        }
        self.status.update(|view| view.semi_sync = Some(is_semi_sync));
    }

    /// Refuses a source that lacks received transactions. A server compares its own ones itself,
    /// including those being committed, and ends the dump for good. That is avoided if another
    /// address may be better.
    fn check_history(
        &self,
        received: &GtidSet,
        executed: &GtidSet,
        uuid: &str,
    ) -> Result<(), ConnectionError> {
        let foreign = {
            let mut foreign = self.foreign.lock();
            foreign.decide(received, executed);
            Foreign { is_undecided: false, ..foreign.clone() }
        };
        let missing = Known { received: received.clone(), foreign }.lacking(executed);
        if missing.is_empty()
            || (self.options.failover.is_empty() && missing.of_server(uuid) == missing)
        {
            return Ok(());
        }
        Err(ConnectionError::Protocol(format!("this source {}", lacks(&missing))))
    }

    /// Returns the received transactions of this source that it no longer has.
    async fn lacking(
        &self,
        host: &str,
        port: u16,
        uuid: &str,
        received: &GtidSet,
        clock: &mut SourceClock,
    ) -> Result<GtidSet, ConnectionError> {
        let mut connection = SourceConnection::connect(&self.options, host, port).await?;
        let executed = executed(&mut connection).await;
        if let Ok(answer) = ask(&mut connection, &*self.options.environment.clock).await {
            let known = clock.learn(answer);
            self.status.update(|view| view.clock = known);
        }
        connection.quit().await;
        Ok(received.of_server(uuid).difference(&executed?))
    }

    /// A damaged event is requested once more, as the network may have damaged it. An event that is
    /// damaged in a server's binary log arrives from there with the same wrong bytes again.
    fn link_error(&mut self, error: ConnectionError) -> LinkEnd {
        match error {
            ConnectionError::Event(source) => {
                let at = self.assembler.position();
                self.status.update(|view| view.checksum_failures_total += 1);
                let damage = format!("{} {at}: {source}", self.address);
                if self.damaged.as_ref() == Some(&damage) {
                    return LinkEnd::Fatal(Error::Damaged { at, source });
                }
                self.damaged = Some(damage);
                LinkEnd::Fault(ConnectionError::Event(source))
            }
            ConnectionError::Link(LinkError::Server { code: SOURCE_FATAL, message })
                if !passes(&message) =>
            {
                LinkEnd::Fatal(Error::Refused {
                    address: self.address.clone(),
                    at: self.assembler.position(),
                    cause: SourceCause::of_refusal(&message),
                    message,
                })
            }
            other => LinkEnd::Fault(other),
        }
    }

    /// Returns the microseconds since the epoch.
    fn now(&self) -> u64 {
        self.options.environment.clock.now_micros()
    }

    fn log_passed_over(&mut self, event_type: EventType) {
        if self.passed_over.contains(&event_type) {
            return;
        }
        self.passed_over.push(event_type);
        let (code, name, at) = (event_type.0, event_type.name(), self.assembler.position());
        match event_type.is_known() && event_type != EventType::IGNORABLE {
            true => info!(code, name, %at, "event passed over: it means nothing to a replica"),
            false => warn!(
                code, %at,
                "event of a type unknown to this version passed over: the source marks it as \
                 ignorable; later ones are only counted"
            ),
        }
    }

    fn note(&mut self, placement: &Placement, event_type: EventType, bytes: usize) {
        self.has_delivered = true;
        // Heartbeats and ends need the time, other events do not.
        let now = match placement {
            Placement::Begin(_) | Placement::Body | Placement::PassedOver => 0,
            Placement::End | Placement::Outside => self.now(),
        };
        self.status.update(|view| {
            view.last_event = Some(Instant::now());
            view.events_total += 1;
            view.bytes_total += bytes as u64;
            view.queueing_bytes += bytes as u64;
            match placement {
                Placement::Begin(header) => {
                    view.queueing = Some(header.clone());
                    view.queueing_bytes = bytes as u64;
                    view.queueing_since = Some(Instant::now());
                    view.idle = false;
                }
                Placement::End => {
                    view.transactions_total += 1;
                    view.last_queued = view.queueing.take();
                    let clock = view.clock;
                    let last = view.last_queued.as_ref();
                    let delay_by = |ahead| last.and_then(|last| last.since_commit(now, ahead));
                    view.arrival_delay = delay_by(clock.most());
                    if let Some(delay) = delay_by(clock.estimate()) {
                        self.status.reception.note(delay);
                    }
                    if let (Some(last), Some(begun)) = (last, view.queueing_since) {
                        self.status.recorder().received(begun, &last.gtid, view.queueing_bytes);
                    }
                }
                Placement::Outside if event_type == EventType::HEARTBEAT => {
                    view.heartbeats_total += 1;
                    view.last_heartbeat = Some(now);
                }
                Placement::PassedOver => view.passed_over_events_total += 1,
                Placement::Body | Placement::Outside => {}
            }
        });
    }
}

/// Returns the GTIDs that the source has executed.
async fn executed(connection: &mut SourceConnection) -> Result<GtidSet, ConnectionError> {
    let executed = connection.gtids("SELECT @@GLOBAL.gtid_executed").await?;
    executed.parse().map_err(|error| ConnectionError::Protocol(format!("gtid_executed: {error}")))
}

#[cfg(test)]
mod tests;
