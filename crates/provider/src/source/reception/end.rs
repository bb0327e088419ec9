//! The ends of a link, and of reception.

use std::sync::Arc;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::binlog::event::EventError;
use crate::binlog::gtid::Gtid;
use crate::server::link::server_errors::SOURCE_FATAL;
use crate::source::assembler::StreamError;
use crate::source::cause::{AFRESH, SourceCause};
use crate::source::connection::ConnectionError;
use crate::source::sink::{SinkError, TransactionSink};

/// The reason reception ended for good.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream holds something that can't be replicated.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The same event arrived damaged twice: it is damaged on the source.
    #[error(
        "source {address}, {at}: {source}; it arrived the same way twice, so the source's binary \
         log is damaged"
    )]
    Damaged {
        address: String,
        at: String,
        #[source]
        source: EventError,
    },
    /// The source ends the stream for good: purged transactions that are needed, an anonymous
    /// transaction, an unreadable binary log.
    #[error("{}{}", refusal(address, at, message), cause.repair())]
    Refused { address: String, at: String, message: String, cause: SourceCause },
    /// Every address of the source ended the stream for good, each in one of the two ways above.
    #[error("no address of the source can send what comes next: {}", reasons_and_repair(.0))]
    All(Vec<Error>),
    /// Only transactions not yet received were requested: the source's GTIDs have begun again.
    #[error(
        "source {address} sent transaction {gtid} again, which was received before: it has a \
         different history now (RESET BINARY LOGS AND GTIDS?){AFRESH}"
    )]
    Repeated { address: String, gtid: Gtid },
    /// The last received transaction was requested once more, to compare it.
    #[error(
        "source {address} was set back to an earlier state and has used GTIDs again: its transaction {gtid} was committed \
         at another time than the one received before{AFRESH}"
    )]
    SetBack { address: String, gtid: Gtid },
    /// The recording that takes the place of a source can't be read, or lacks transactions.
    #[error("{0}")]
    Recording(String),
    #[error("relay store: {0}")]
    Sink(#[from] SinkError),
    /// Reception itself panicked.
    #[error("the task of reception failed: {0}")]
    Task(#[source] JoinError),
}

impl Error {
    /// Returns true for the contents of the transaction that was being received.
    #[must_use]
    pub fn is_of_transaction(&self) -> bool {
        match self {
            Self::All(errors) => errors.iter().all(Self::is_of_transaction),
            _ => matches!(self, Self::Stream(_) | Self::Damaged { .. }),
        }
    }

    /// Returns true if it may be over at some time. What the stream holds stays, and so does another history with the
    /// GTIDs of the one received: asking the source does not show it.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::All(errors) => errors.iter().any(Self::may_pass),
            Self::Repeated { .. } | Self::SetBack { .. } => false,
            _ => !self.is_of_transaction(),
        }
    }

    /// Returns true for what only this address of the source may lack.
    pub(super) const fn is_of_address(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Damaged { .. } | Self::SetBack { .. })
    }

    /// Returns the error of a source all of whose addresses ended the stream for good.
    pub(super) fn of_all(mut errors: Vec<Self>) -> Self {
        match (errors.len(), errors.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                errors.extend(last);
                Self::All(errors)
            }
        }
    }

    /// Returns the text without what to do.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Refused { address, at, message, .. } => refusal(address, at, message),
            other => other.to_string(),
        }
    }

    #[must_use]
    pub fn cause(&self) -> SourceCause {
        match self {
            Self::All(errors) => errors.first().map_or(SourceCause::Stream, Self::cause),
            Self::Stream(_) | Self::Damaged { .. } => SourceCause::Stream,
            Self::Refused { cause, .. } => *cause,
            Self::Repeated { .. } | Self::SetBack { .. } => SourceCause::OtherHistory,
            Self::Recording(_) => SourceCause::Purged,
            Self::Sink(_) | Self::Task(_) => SourceCause::Spool,
        }
    }

    /// Returns the source's error number, if it sent one; of several addresses that of the first.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::All(errors) => errors.first().and_then(Self::code),
            Self::Refused { .. } => Some(SOURCE_FATAL),
            _ => None,
        }
    }
}

fn refusal(address: &str, at: &str, message: &str) -> String {
    format!("source {address} can't continue after {at}: {message}")
}

/// Returns the reasons of all errors, and what to do about the first.
fn reasons_and_repair(errors: &[Error]) -> String {
    let reasons: Vec<String> = errors.iter().map(Error::reason).collect();
    let repair = errors.first().map_or("", |error| error.cause().repair());
    format!("{}{repair}", reasons.join("; "))
}

/// Reception's end for good, and the transaction in which it ended.
#[derive(Debug, Clone, thiserror::Error)]
#[error("reception: {error}")]
pub struct ReceptionEnd {
    pub error: Arc<Error>,
    pub gtid: Option<Gtid>,
}

impl ReceptionEnd {
    /// Waits until everything before the error is stored, also what a full spool has no room for yet: all of it is to
    /// be applied. `open` is the transaction that was arriving. A stop ends the wait.
    pub(in crate::source) async fn after_rest<S: TransactionSink>(
        error: Error,
        open: Option<Gtid>,
        sink: &mut S,
        stop: &CancellationToken,
    ) -> Self {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = sink.stored() => {}
        }
        let gtid = open.filter(|_| error.is_of_transaction());
        Self { error: Arc::new(error), gtid }
    }

    /// Returns the end of a reception that panicked.
    #[must_use]
    pub fn of_panic(panic: JoinError) -> Self {
        Self { error: Arc::new(Error::Task(panic)), gtid: None }
    }
}

/// The way in which one link ended.
pub(super) enum LinkEnd {
    Stopped,
    Fault(ConnectionError),
    Fatal(Error),
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
