//! The reconnecting loop: from the source's dump into a spool.

pub(in crate::source) mod arrivals;
mod end;
mod executed;
pub(in crate::source) mod fitness;
mod following;
mod looks;
mod membership;
mod overlap;
mod round;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::binlog::commit_times::CLOCK_NOTICED;
use crate::binlog::event::{EventType, QueryEvent};
use crate::binlog::gtid::{Gtid, GtidSet};
use crate::seams::backoff::Backoff;
use crate::server::group::{Address, Candidates};
use crate::server::link::LinkError;
use crate::server::link::server_errors::SOURCE_FATAL;
use crate::server::product::Product;
use crate::source::assembler::TransactionAssembler;
use crate::source::cause::{SourceCause, may_pass, passes};
use crate::source::clock_difference::ask;
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::history::SharedForeign;
use crate::source::options::SourceOptions;
use crate::source::semi_sync::Safe;
use crate::source::sink::TransactionSink;
use crate::source::status::SourceStatus;

use end::LinkEnd;
pub use end::{Error, ReceptionEnd};
use executed::{executed, not_under_way};
use following::{Following, LinkedSource};
use looks::LeftServer;
use overlap::Overlap;
use round::Round;

/// Receives a channel's stream until it is stopped.
#[derive(Debug)]
pub struct Provider {
    options: SourceOptions,
    status: Arc<SourceStatus>,
    assembler: TransactionAssembler,
    /// The place at which an event last arrived damaged, or was cut off, and the damage, for each address.
    damaged: BTreeMap<String, String>,
    /// The last received transaction, for each address that refused a dump from it on as purged.
    without_overlap: BTreeMap<String, Gtid>,
    foreign: SharedForeign,
    attempt: Attempt,
    logged: Logged,
    /// `None` unless transactions are acknowledged.
    safe: Option<Safe>,
    /// Whole transactions that the spool was given.
    handed_over: u64,
    left: Option<LeftServer>,
}

/// The last attempt to follow a source.
#[derive(Debug, Default)]
struct Attempt {
    /// `host:port` of the link, or of the last attempt.
    address: String,
    /// It reached the point where the source sends events.
    is_linked: bool,
    /// The reasons why the servers before it were not followed.
    refused: Vec<String>,
    /// Events have arrived since the last pause.
    has_delivered: bool,
}

/// The facts that the log states already.
#[derive(Debug, Default)]
struct Logged {
    /// Types of events that were passed over; each type is logged once.
    passed_over: Vec<EventType>,
    /// No member of a group serves, for a reason that holds until the link is up again.
    has_reason: bool,
    /// The link is lost, until it is up again.
    is_lost: bool,
    /// For each address the reason why it last ended the stream for good.
    ended: BTreeMap<String, String>,
}

impl Provider {
    #[must_use]
    pub fn new(options: SourceOptions, status: Arc<SourceStatus>) -> Self {
        Self {
            options,
            status,
            assembler: TransactionAssembler::new(),
            damaged: BTreeMap::new(),
            without_overlap: BTreeMap::new(),
            foreign: SharedForeign::default(),
            attempt: Attempt::default(),
            logged: Logged::default(),
            safe: None,
            handed_over: 0,
            left: None,
        }
    }

    /// Sets the servers with received transactions that a source need not have.
    #[must_use]
    pub fn with_foreign(self, foreign: SharedForeign) -> Self {
        Self { foreign, ..self }
    }

    /// Refuses changes in statement format, except those that `admits` accepts: nobody judges them after reception.
    #[must_use]
    pub fn admitting(self, admits: fn(&QueryEvent<'_>) -> bool) -> Self {
        Self { assembler: TransactionAssembler::admitting(admits), ..self }
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
            self.attempt.has_delivered = false;
            let end = tokio::select! {
                biased;
                () = stop.cancelled() => LinkEnd::Stopped,
                // A stop may drop this in the middle of `append`. The event is then queued whole or
                // not at all, and `abandon` below takes back what is queued of its transaction.
                end = self.any_link(&mut sink) => end,
            };
            let open = self.assembler.in_transaction().cloned();
            if let Err(error) = self.abandon(&mut sink).await {
                // The sink's own failure ends the link, too: without this the source would seem to be away.
                self.status.failed(&error, error.cause(), self.now());
                return Err(ReceptionEnd { error: Arc::new(error), gtid: None });
            }
            let fault = match end {
                LinkEnd::Stopped => {
                    self.status.disconnected();
                    return Ok(());
                }
                LinkEnd::Fatal(error) => {
                    self.status.failed(&error, error.cause(), self.now());
                    return Err(ReceptionEnd::after_rest(error, open, &mut sink, &stop).await);
                }
                LinkEnd::Fault(error) => {
                    // A link that broke says less than the members that are left do afterwards.
                    let is_reason = self.options.group.is_some()
                        && !matches!(error, ConnectionError::Link(_) | ConnectionError::Event(_))
                        && !std::mem::replace(&mut self.logged.has_reason, true);
                    match !std::mem::replace(&mut self.logged.is_lost, true) || is_reason {
                        true => {
                            warn!(address = %self.attempt.address, %error, "link to the source lost")
                        }
                        false => {
                            debug!(address = %self.attempt.address, %error, "link to the source lost")
                        }
                    }
                    self.status.failed(&error, error.cause(), self.now());
                    error
                }
            };
            // A link that delivered events proves the source alive: the back-off starts over.
            if self.attempt.has_delivered {
                backoff.restart();
            }
            let chance = &*self.options.environment.chance;
            let pause = fault.pause(backoff.jittered(0.75..1.25, chance), chance);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = self.options.password.pause(pause) => {}
            }
        }
    }

    /// Tries the source and its alternatives in order, and follows the first that is suitable.
    async fn any_link<S: TransactionSink>(&mut self, sink: &mut S) -> LinkEnd {
        let mut candidates = self.options.candidates();
        self.attempt.refused.clear();
        let mut round = Round::default();
        let logged = (self.logged.is_lost, self.logged.has_reason);
        while let Some((host, port)) = candidates.next() {
            if round.has_ended()
                && let Err(error) = self.abandon(sink).await
            {
                return error.into();
            }
            self.attempt.address = format!("{host}:{port}");
            self.attempt.is_linked = false;
            self.status.update(|view| view.address.clone_from(&self.attempt.address));
            match self.link(&(host, port), &mut candidates, sink).await {
                Ok(never) => match never {},
                // A link that was never up lets the next address have its turn. After a lost one
                // the caller starts again with the first address.
                Err(LinkEnd::Fault(error)) if !self.attempt.is_linked => {
                    self.attempt.refused.push(format!("{}: {error}", self.attempt.address));
                    round.away(&self.attempt.address, error);
                }
                // Another address may have what this one lacks.
                Err(LinkEnd::Fatal(error)) if error.is_of_address() && !self.is_only_source() => {
                    (self.logged.is_lost, self.logged.has_reason) = logged;
                    self.note_ended(&error);
                    round.ended(&self.attempt.address, error, self.handed_over);
                }
                Err(end) => return end,
            }
        }
        round.end(self.handed_over)
    }

    /// Prepares for a new dump, which begins with the transaction that was cut off.
    async fn abandon<S: TransactionSink>(&mut self, sink: &mut S) -> Result<(), Error> {
        self.assembler.reset();
        Ok(sink.abandon().await?)
    }

    /// Notes that an address has ended the stream for good while others may continue it.
    fn note_ended(&mut self, error: &Error) {
        self.status.failed(error, error.cause(), self.now());
        // The pauses grow, whatever it sends before it ends the stream again.
        self.attempt.has_delivered = false;
        let (address, text) = (self.attempt.address.clone(), error.to_string());
        if self.logged.ended.get(&address) != Some(&text) {
            warn!(%error, "this address can't continue the stream; the others have their turn");
            self.logged.ended.insert(address, text);
        }
    }

    async fn link<S: TransactionSink>(
        &mut self,
        address: &Address,
        candidates: &mut Candidates,
        sink: &mut S,
    ) -> Result<std::convert::Infallible, LinkEnd> {
        let (host, port) = (address.0.as_str(), address.1);
        if let Some(safe) = &mut self.safe {
            // The source takes the set that a dump begins after for acknowledged.
            tokio::select! {
                () = safe.reaches(self.handed_over) => {}
                error = sink.failed() => return Err(Error::from(error).into()),
            }
        }
        let mut connection = SourceConnection::connect(&self.options, host, port).await?;
        let version = connection.server_version();
        if let Product::Other(name) = Product::of(version, "") {
            return Err(ConnectionError::Protocol(format!("it is {name} {version}")).into());
        }
        if !self.is_only_source() {
            fitness::check(&mut connection, self.options.server_id).await?;
        }
        let received = sink.received();
        if let Some(group) = &self.options.group {
            membership::check(group, &mut connection, address, candidates, &received).await?;
        }
        let uuid = connection.setting("SELECT @@server_uuid").await?;
        let clock = ask(&mut connection, &*self.options.environment.clock).await?;
        // Read before the dump: the source also sends heartbeats while it skips transactions that
        // were received. They mean that it is idle only once all of this set has been received.
        let asked = Instant::now();
        let executed = executed(&mut connection).await?;
        self.check_history(&mut connection, &received, &executed, &uuid).await?;
        let refused = self.without_overlap.get(&self.attempt.address);
        let last = sink.last().filter(|last| refused != Some(&last.gtid));
        let overlap = Overlap::find(last, &mut connection, &uuid, &executed).await?;
        let known = Arc::new(executed.clone());
        self.status.update(|view| view.executed = Some(known));
        let mut executed = Some(executed);
        executed.take_if(|executed| executed.is_subset_of(&received));
        let begin = overlap.as_ref().map(|overlap| overlap.begin(&received));
        connection.start_dump(&self.options, begin.as_ref().unwrap_or(&received)).await?;
        for why in self.attempt.refused.drain(..) {
            info!(%why, "another source is not followed");
        }
        info!(
            %host, port, version = connection.server_version(),
            connection = connection.connection_id(), received = %received.brief(),
            "receiving from the source"
        );
        let version = connection.server_version().to_owned();
        self.note_clock(host, port, clock.estimate());
        self.attempt.is_linked = true;
        (self.logged.is_lost, self.logged.has_reason) = (false, false);
        self.status.connected(uuid.clone(), clock, executed.is_none().then_some(asked));
        self.status.update(|view| view.server_version = Some(version));
        let link = LinkedSource { connection, host, port, uuid, overlap };
        Following::new(self, sink, link, clock, executed).follow().await
    }

    fn note_clock(&self, host: &str, port: u16, ahead: i64) {
        if ahead.unsigned_abs() > CLOCK_NOTICED {
            let how = if ahead > 0 { "fast" } else { "slow" };
            let seconds = ahead.unsigned_abs() as f64 / 1e6;
            warn!(
                %host, port,
                "the source's clock is {how} by {seconds:.1} s compared with ours; lag and delay allow for it"
            );
        }
    }

    fn begin_semi_sync(&self, is_semi_sync: bool) {
        let address = &self.attempt.address;
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
    async fn check_history(
        &self,
        connection: &mut SourceConnection,
        received: &GtidSet,
        executed: &GtidSet,
        uuid: &str,
    ) -> Result<(), ConnectionError> {
        let missing = self.foreign.lacking(received, executed);
        if self.is_only_source() && missing.of_server(uuid) == missing {
            return Ok(());
        }
        let missing = not_under_way(connection, missing).await?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(ConnectionError::Lacks(missing)),
        }
    }

    fn is_only_source(&self) -> bool {
        self.options.failover.is_empty() && self.options.group.is_none()
    }

    /// A damaged event is requested once more, as the network may have damaged it. An event that is
    /// damaged in a server's binary log arrives from there with the same wrong bytes again. One that is
    /// cut off there may have been about to be written.
    fn link_error(&mut self, error: ConnectionError) -> LinkEnd {
        match error {
            ConnectionError::Event(source) => {
                let at = self.assembler.position();
                self.status.update(|view| view.checksum_failures_total += 1);
                if self.shows_again(format!("{at}: {source}")) {
                    let address = self.attempt.address.clone();
                    return LinkEnd::Fatal(Error::Damaged { address, at, source });
                }
                LinkEnd::Fault(ConnectionError::Event(source))
            }
            ConnectionError::Link(LinkError::Server { code: SOURCE_FATAL, message })
                if !passes(&message) =>
            {
                let at = self.assembler.position();
                if may_pass(&message) && !self.shows_again(format!("{at}: {message}")) {
                    return LinkEnd::Fault(
                        LinkError::Server { code: SOURCE_FATAL, message }.into(),
                    );
                }
                LinkEnd::Fatal(Error::Refused {
                    address: self.attempt.address.clone(),
                    at,
                    cause: SourceCause::of_refusal(&message),
                    message,
                })
            }
            other => LinkEnd::Fault(other),
        }
    }

    /// Notes the damage at a place. Returns true if it is the last that this address has shown, too.
    fn shows_again(&mut self, damage: String) -> bool {
        self.damaged.insert(self.attempt.address.clone(), damage.clone()) == Some(damage)
    }

    /// Returns the microseconds since the epoch.
    fn now(&self) -> u64 {
        self.options.environment.clock.now_micros()
    }

    fn log_passed_over(&mut self, event_type: EventType) {
        if self.logged.passed_over.contains(&event_type) {
            return;
        }
        self.logged.passed_over.push(event_type);
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
}

#[cfg(test)]
pub(in crate::source) mod tests;
