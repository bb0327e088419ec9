//! Reception without a source: a recording of its binary log goes into the spool.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::binlog::event::{EventType, RawEvent};
use crate::binlog::gtid::GtidSet;
use crate::seams::backoff::Backoff;
use crate::seams::{Clock, SystemChance, SystemClock};
use crate::source::assembler::{Placement, TransactionAssembler};
use crate::source::cause::SourceCause;
use crate::source::clock_difference::ClockDifference;
use crate::source::reception::arrivals::Arrivals;
use crate::source::reception::{Error, ReceptionEnd};
use crate::source::sink::TransactionSink;
use crate::source::status::SourceStatus;

/// Events between two moments at which the status shows them.
const SHOWN_AFTER: u32 = 256;
/// The pause before a recording that has ended is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The reason a recording can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A later attempt may succeed: the place that keeps it does not answer.
    #[error("{0}")]
    Away(String),
    /// The recording is damaged or lacks transactions, and the text says how to proceed.
    #[error("{0}")]
    Final(String),
}

/// Transactions that a source has written, in its order.
pub trait Recording: Send {
    /// Returns the recording's name for people: a URL or a directory.
    fn name(&self) -> String;

    /// Returns `server_uuid` and version of the server that wrote it, as far as they are known.
    fn server(&self) -> (String, String);

    /// Goes to a place from which all transactions follow that `received` lacks.
    fn open(
        &mut self,
        received: &GtidSet,
    ) -> impl Future<Output = Result<(), RecordingError>> + Send;

    /// Returns the next event; `None` at the end of what is recorded so far.
    fn next(&mut self) -> impl Future<Output = Result<Option<RawEvent>, RecordingError>> + Send;
}

/// Receives a channel's stream from a recording until it is stopped.
#[derive(Debug)]
pub struct RecordedProvider<R> {
    recording: R,
    /// The transactions that it must have at its end.
    end: GtidSet,
    status: Arc<SourceStatus>,
    assembler: TransactionAssembler,
}

/// The way in which one reading ended.
enum ReadingEnd {
    Away(String),
    Fatal(Error),
}

impl From<RecordingError> for ReadingEnd {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::Away(why) => Self::Away(why),
            RecordingError::Final(why) => Self::Fatal(Error::Recording(why)),
        }
    }
}

impl<R: Recording> RecordedProvider<R> {
    /// Makes a provider that fails if the recording ends before all of `end` is received.
    #[must_use]
    pub fn new(recording: R, end: GtidSet, status: Arc<SourceStatus>) -> Self {
        let assembler = TransactionAssembler::new();
        Self { recording, end, status, assembler }
    }

    /// Receives into `sink`, beginning again as long as it takes; `Ok` when stopped.
    ///
    /// # Errors
    /// Only those that a new attempt can't fix.
    pub async fn run<S: TransactionSink>(
        mut self,
        mut sink: S,
        stop: CancellationToken,
    ) -> Result<(), ReceptionEnd> {
        let name = self.recording.name();
        self.status.update(|view| view.address.clone_from(&name));
        let mut pauses = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        loop {
            let end = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.status.disconnected();
                    return Ok(());
                }
                end = self.read(&mut sink, &mut pauses) => end,
            };
            let open = self.assembler.in_transaction().cloned();
            self.assembler.reset();
            if let Err(error) = sink.abandon().await {
                return Err(ReceptionEnd { error: Arc::new(error.into()), gtid: None });
            }
            let now = SystemClock.now_micros();
            match end {
                ReadingEnd::Away(why) => {
                    warn!(recording = %name, error = %why, "the recording can't be read; trying again");
                    self.status.failed(&why, SourceCause::Unreachable, now);
                }
                ReadingEnd::Fatal(error) => {
                    self.status.failed(&error, error.cause(), now);
                    return Err(ReceptionEnd::after_rest(error, open, &mut sink, &stop).await);
                }
            }
            let pause = pauses.jittered(0.75..1.25, &SystemChance);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reads from the first transaction that the sink lacks, until something fails.
    async fn read<S: TransactionSink>(&mut self, sink: &mut S, pauses: &mut Backoff) -> ReadingEnd {
        match self.try_read(sink, pauses).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn try_read<S: TransactionSink>(
        &mut self,
        sink: &mut S,
        pauses: &mut Backoff,
    ) -> Result<std::convert::Infallible, ReadingEnd> {
        self.recording.open(&sink.received()).await?;
        let (uuid, version) = self.recording.server();
        let clock = ClockDifference::default();
        self.status.connected(uuid, clock, None);
        self.status.update(|view| view.server_version = Some(version));
        let mut arrivals = Arrivals::new();
        let outcome = self.follow(sink, &mut arrivals, pauses).await;
        // What came before the end counts.
        arrivals.show(&self.status, clock);
        outcome
    }

    async fn follow<S: TransactionSink>(
        &mut self,
        sink: &mut S,
        arrivals: &mut Arrivals,
        pauses: &mut Backoff,
    ) -> Result<std::convert::Infallible, ReadingEnd> {
        let clock = ClockDifference::default();
        let mut unshown = 0;
        loop {
            let Some(event) = self.recording.next().await? else {
                self.require_end(&sink.received())?;
                arrivals.heard(true);
                arrivals.show(&self.status, clock);
                unshown = 0;
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            };
            if unshown == 0 {
                arrivals.begin_block(SystemClock.now_micros());
            }
            self.take(event, sink, arrivals).await?;
            pauses.restart();
            unshown += 1;
            if unshown >= SHOWN_AFTER {
                arrivals.show(&self.status, clock);
                unshown = 0;
            }
        }
    }

    /// Returns an error at the end of a recording that lacks what it had when its end was looked for: nobody would ever
    /// send it.
    fn require_end(&self, received: &GtidSet) -> Result<(), ReadingEnd> {
        let missing = self.end.difference(received);
        if missing.is_empty() {
            return Ok(());
        }
        Err(ReadingEnd::Fatal(Error::Recording(format!(
            "{} does not have all of the transactions that its last file ends with: it lacks {}. A file is missing, or was \
             deleted while it was read; complete the recording, or begin with a later copy of the data",
            self.recording.name(),
            missing.brief()
        ))))
    }

    async fn take<S: TransactionSink>(
        &mut self,
        event: RawEvent,
        sink: &mut S,
        arrivals: &mut Arrivals,
    ) -> Result<(), ReadingEnd> {
        let placement = self.assembler.place(&event).map_err(Error::from);
        let placement = placement.map_err(ReadingEnd::Fatal)?;
        if let Placement::Begin(header) = &placement
            && sink.has_received(&header.gtid)
        {
            // Before its content is judged: what a backup has need not be fit for a channel.
            self.assembler.leave_out();
            return Ok(());
        }
        let event_type = event.event_type();
        let is_outside = match &placement {
            Placement::PassedOver => true,
            Placement::Outside => event_type != EventType::FORMAT_DESCRIPTION,
            Placement::Begin(_) | Placement::Body | Placement::End => false,
        };
        if is_outside {
            return Ok(());
        }
        arrivals.note(&placement, event_type, event.len() as u64);
        let is_end = placement == Placement::End;
        sink.append(event, placement).await.map_err(|error| ReadingEnd::Fatal(error.into()))?;
        if is_end {
            arrivals.ended(&self.status, ClockDifference::default());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
