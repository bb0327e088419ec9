//! The reconnecting loop: from the source's dump into a spool.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rand::Rng as _;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection::{ConnectionError, SourceConnection};
use crate::event::{EventError, EventType, TransactionHeader};
use crate::gtid::{Gtid, GtidSet};
use crate::options::SourceOptions;
use crate::sink::{SinkError, TransactionSink};
use crate::status::SourceStatus;
use crate::transaction::{Placement, StreamError, TransactionAssembler};

/// Why reception ended for good.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream holds what can't be replicated.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The same event arrived damaged twice: it is damaged on the source.
    #[error("{at}: {source}; it arrived so twice, so it is damaged in the source's binary log")]
    Damaged {
        at: String,
        #[source]
        source: EventError,
    },
    /// The source ends the stream for good: purged transactions that are needed, an anonymous
    /// transaction, an unreadable binary log.
    #[error("source {address} can't go on after {at}: {message}{advice}")]
    Refused { address: String, at: String, message: String, advice: &'static str },
    /// What was asked for is all that is not received: the source's GTIDs have begun again.
    #[error(
        "source {address} sent transaction {gtid} again, which was received before: its history is \
         another one (RESET BINARY LOGS AND GTIDS?){AFRESH}"
    )]
    Repeated { address: String, gtid: Gtid },
    #[error("spool: {0}")]
    Sink(#[from] SinkError),
}

const AFRESH: &str =
    "; provision the target again (clone or dump) and start from its gtid_executed";

/// What to do about a refusal, found by what the server's text speaks of.
const ADVICE: [(&str, &str); 3] = [
    ("anonymous", "; set gtid_mode=ON on the source, then provision the target again"),
    ("purged", AFRESH),
    // The source's own are missing there: it was reset, or has lost the end of its binary log.
    ("more GTIDs than the source", AFRESH),
];
/// How often an idle source is asked whether its history is still the one that was received.
const HISTORY_CHECK: Duration = Duration::from_secs(10);
/// Server error: the binary log can't be served.
const SOURCE_FATAL: u16 = 1236;

/// Receives a channel's stream until told to stop.
#[derive(Debug)]
pub struct Provider {
    options: SourceOptions,
    status: Arc<SourceStatus>,
    assembler: TransactionAssembler,
    /// Where an event last arrived damaged, and how.
    damaged: Option<String>,
}

/// How one link ended.
enum LinkEnd {
    Stopped,
    Fault(ConnectionError),
    Fatal(Error),
}

/// Whether the source still has what was received from it.
///
/// One that is reset while it is followed sends heartbeats and nothing else: its dump waits at the end
/// of a file that is no more. A dump that begins is refused, so then it is made to.
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
    /// Whether the source can't be asked the link will tell. Once may be a commit under way.
    fn note(&mut self, lacking: Result<GtidSet, ConnectionError>) -> Result<(), ConnectionError> {
        self.checked = Instant::now();
        let lacking = lacking.unwrap_or_default();
        if !lacking.is_empty() && lacking == self.lacking {
            return Err(ConnectionError::Protocol(format!(
                "the source has no longer what it sent, {lacking}; asking again from there"
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
        Self { options, status, assembler: TransactionAssembler::new(), damaged: None }
    }

    /// Receives into `sink`, reconnecting as long as it takes; `Ok` when stopped.
    ///
    /// # Errors
    /// Only what a new attempt can't cure.
    pub async fn run<S: TransactionSink>(
        mut self,
        mut sink: S,
        stop: CancellationToken,
    ) -> Result<(), Error> {
        let mut pause = self.options.connect_retry;
        loop {
            let before = self.status.view().events_total;
            let end = tokio::select! {
                end = self.any_link(&mut sink) => end,
                () = stop.cancelled() => LinkEnd::Stopped,
            };
            let open = self.assembler.in_transaction().cloned();
            self.assembler.reset();
            sink.abandon().await?;
            match end {
                LinkEnd::Stopped => {
                    self.status.disconnected();
                    return Ok(());
                }
                LinkEnd::Fatal(error) => {
                    self.status.failed(&error);
                    self.status.update(|view| view.stopped_in = open);
                    return Err(error);
                }
                LinkEnd::Fault(error) => {
                    warn!(address = %self.status.view().address, %error, "link to the source lost");
                    self.status.failed(&error);
                }
            }
            if self.status.view().events_total > before {
                pause = self.options.connect_retry;
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(pause)) => {}
                () = stop.cancelled() => return Ok(()),
            }
            pause = (pause * 2).min(self.options.connect_retry_max);
        }
    }

    /// Tries the source and its alternatives in order; follows the first that will do.
    async fn any_link<S: TransactionSink>(&mut self, sink: &mut S) -> LinkEnd {
        let addresses: Vec<(String, u16)> =
            self.options.addresses().map(|(host, port)| (host.to_owned(), port)).collect();
        let mut last = ConnectionError::Closed;
        for (host, port) in addresses {
            self.status.update(|view| view.address = format!("{host}:{port}"));
            match self.link(&host, port, sink).await {
                Ok(never) => match never {},
                Err(LinkEnd::Fault(error)) if !self.status.view().connected => last = error,
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
        let mut connection = SourceConnection::connect(&self.options, host, port).await?;
        let received = sink.received();
        if !self.options.failover.is_empty() {
            covers(&mut connection, &received).await?;
        }
        let uuid = connection.value("SELECT @@server_uuid").await?;
        connection.start_dump(&self.options, &received).await?;
        info!(
            %host, port, version = connection.server_version(),
            connection = connection.connection_id(), received = %received,
            "receiving from the source"
        );
        let version = connection.server_version().to_owned();
        self.status.connected(uuid.clone());
        self.status.update(|view| view.server_version = Some(version));
        let mut history = History::default();
        loop {
            let event = match connection.next_event().await {
                Ok(event) => event,
                Err(error) => return Err(self.link_error(error)),
            };
            let placement = self.assembler.place(&event).map_err(Error::from)?;
            if let Placement::Begin(header) = &placement
                && sink.has_received(&header.gtid)
            {
                let (address, gtid) = (self.status.view().address, header.gtid.clone());
                return Err(Error::Repeated { address, gtid }.into());
            }
            self.note(&placement, event.event_type(), event.len());
            let wanted = placement != Placement::Outside
                || event.event_type() == EventType::FORMAT_DESCRIPTION;
            let is_idle =
                matches!(event.event_type(), EventType::HEARTBEAT | EventType::HEARTBEAT_V2);
            if wanted {
                sink.append(event, placement).await.map_err(Error::from)?;
            } else if is_idle && history.checked.elapsed() >= HISTORY_CHECK {
                let lacking = self.lacking(host, port, &uuid, &sink.received()).await;
                history.note(lacking)?;
            }
        }
    }

    /// Transactions of this source that it does not have any more.
    async fn lacking(
        &self,
        host: &str,
        port: u16,
        uuid: &str,
        received: &GtidSet,
    ) -> Result<GtidSet, ConnectionError> {
        let mut connection = SourceConnection::connect(&self.options, host, port).await?;
        let executed = connection.value("SELECT @@GLOBAL.gtid_executed").await;
        connection.quit().await;
        let executed: GtidSet = executed?
            .parse()
            .map_err(|error| ConnectionError::Protocol(format!("gtid_executed: {error}")))?;
        Ok(received.of_server(uuid).difference(&executed))
    }

    /// A damaged event is asked for once more: the damage may be on the way. What is damaged in the
    /// binary log arrives with the same wrong bytes again.
    fn link_error(&mut self, error: ConnectionError) -> LinkEnd {
        match error {
            ConnectionError::Event(source) => {
                let at = self.assembler.position();
                self.status.update(|view| view.checksum_failures_total += 1);
                let damage = format!("{at}: {source}");
                if self.damaged.as_ref() == Some(&damage) {
                    return LinkEnd::Fatal(Error::Damaged { at, source });
                }
                self.damaged = Some(damage);
                LinkEnd::Fault(ConnectionError::Event(source))
            }
            ConnectionError::Server { code: SOURCE_FATAL, message } => {
                let advice = ADVICE.iter().find(|(word, _)| message.contains(word));
                LinkEnd::Fatal(Error::Refused {
                    address: self.status.view().address,
                    at: self.assembler.position(),
                    message,
                    advice: advice.map_or("", |(_, advice)| advice),
                })
            }
            other => LinkEnd::Fault(other),
        }
    }

    fn note(&self, placement: &Placement, event_type: EventType, bytes: usize) {
        self.status.update(|view| {
            view.last_event = Some(Instant::now());
            view.events_total += 1;
            view.bytes_total += bytes as u64;
            view.queueing_bytes += bytes as u64;
            match placement {
                Placement::Begin(header) => {
                    view.queueing = Some(header.clone());
                    view.queueing_bytes = bytes as u64;
                }
                Placement::End => {
                    view.transactions_total += 1;
                    view.last_queued = view.queueing.take();
                    view.arrival_delay = view.last_queued.as_ref().and_then(age);
                }
                Placement::Outside if event_type == EventType::HEARTBEAT => {
                    view.heartbeats_total += 1;
                    view.last_heartbeat = Some(SystemTime::now());
                }
                Placement::Body | Placement::Outside => {}
            }
        });
    }
}

/// An alternative source must hold everything we have, or its history is another one.
async fn covers(
    connection: &mut SourceConnection,
    received: &GtidSet,
) -> Result<(), ConnectionError> {
    let missing = connection
        .value(&format!("SELECT GTID_SUBTRACT('{received}', @@GLOBAL.gtid_executed)"))
        .await?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(ConnectionError::Protocol(format!(
        "this source lacks transactions we already have: {missing}"
    )))
}

/// Since its commit on the source.
fn age(header: &TransactionHeader) -> Option<Duration> {
    let committed = Duration::from_micros(header.immediate_commit_timestamp);
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + committed).ok()
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.75..1.25))
}

#[cfg(test)]
mod tests;
