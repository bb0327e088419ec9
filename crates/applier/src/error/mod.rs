//! The errors of the applier, their classes, and their texts without values of rows.

mod class;
pub(crate) mod failing_row;
mod fence;
mod invariant;
pub(crate) mod server_text;
pub(crate) mod transaction;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use csa_provider::binlog::{EventError, Gtid, ParseGtidError};
use csa_provider::seams::Chance;
use csa_provider::server::link::{LinkError, Opening};
use tokio::task::JoinError;
use tokio::time::error::Elapsed;

pub use class::ErrorClass;
pub use fence::Fence;
pub use invariant::Invariant;

use failing_row::FailingRow;
use server_text::{ServerText, without_values};

/// ER_QUERY_INTERRUPTED.
const QUERY_INTERRUPTED: u16 = 1317;
/// ER_LOCK_WAIT_TIMEOUT.
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// The reason why the applier could not continue. As text it holds no values of rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("target {address}: {}", shown(source))]
    Target {
        address: String,
        #[source]
        source: LinkError,
    },
    #[error("target {address}: no answer within {seconds} s")]
    Timeout { address: String, seconds: u64 },
    /// A session waits for an answer that won't come.
    #[error("target {address}: connection {connection} does not answer: {why}")]
    Silent { address: String, connection: u32, why: String },
    /// The server can't be the target for now.
    #[error("target {address}: {why}")]
    Unfit { address: String, why: String },
    /// The server is of a kind that can't be a target.
    #[error("target {address} {why}")]
    Product { address: String, why: String },
    #[error("{what}: {}", shown(source))]
    Server {
        what: Cow<'static, str>,
        #[source]
        source: LinkError,
    },
    /// A session could not be opened: the connection, the login, its settings, or the look whether the channel is
    /// held there. It says nothing about any transaction, whatever its number.
    #[error(transparent)]
    Connecting(Box<Self>),
    /// A statement of our own bookkeeping failed, which no transaction brought.
    #[error("the channel's own tables: {0}")]
    Bookkeeping(#[source] Box<Self>),
    /// A transaction failed on the target; `of` describes it.
    #[error("{}", failed(gtid, of, *code, message, row))]
    Transaction {
        gtid: String,
        of: String,
        code: u16,
        message: ServerText,
        /// The row at which it failed, if it was found.
        row: Option<Box<FailingRow>>,
        /// A part of its rows may be there, which no ROLLBACK restores. The operator has to decide, whatever failed.
        half_way: bool,
    },
    /// Row changes that the target's tables don't take as they are; `code` is that of the server's error
    /// with the same meaning.
    #[error("error {code}: {message}")]
    Rows { code: u16, message: String },
    /// A statement that commits implicitly was begun, and it is unknown whether it took effect.
    #[error(
        "transaction {gtid}: the daemon or the target stopped during its statement, and the target has \
         no record of whether the statement took effect. Compare its definition with the source's. If \
         it took effect, {if_done}; if not, run on the target: {by_hand}DELETE FROM csa.statement WHERE \
         channel='{channel}'. Then start the channel"
    )]
    InDoubt { gtid: String, channel: String, by_hand: &'static str, if_done: String },
    /// Rows that can't be rolled back were being written.
    #[error(
        "transaction {gtid}: the daemon or the target stopped while its rows were written to tables \
         that are not transactional on the target: none, some or all of them may be there. Compare them \
         with those that the source has logged (mysqlbinlog -vv --include-gtids={gtid}), and complete or \
         remove them. If they are complete, {if_done}; if none is there, run on the target: {by_hand}DELETE FROM \
         csa.statement WHERE channel='{channel}'. Then start the channel"
    )]
    HalfDone { gtid: String, channel: String, by_hand: &'static str, if_done: String },
    /// Rows that can't be rolled back ended after a part of them, with which the target has recorded the GTID.
    #[error(
        "transaction {gtid}: its rows failed or were cut off while they were written to tables that are not \
         transactional on the target: some or all of them may be there. The target counts its GTID as executed, so that \
         the others can't be written under it. Compare them with those that the source has logged (mysqlbinlog -vv \
         --include-gtids={gtid}), and complete them. Then {if_done}, and start the channel. csa-daemon skip leaves \
         missing rows out for good"
    )]
    PartlyDone { gtid: String, if_done: String },
    /// Another session holds the channel for now: another daemon's, or one that this daemon left behind.
    #[error("channel {channel}: {what}")]
    Held { channel: String, what: String, by_another: bool },
    /// A session leads to another server than the channel's control session, or to the same server
    /// after a restart.
    #[error(
        "target {address}: this connection reached another server, or the same one after a restart; \
         waiting until the control session has claimed the channel there"
    )]
    Elsewhere { address: String },
    /// The target lacks transactions that it was known to have: it was restored, lost its last ones in a
    /// crash, or is another server that lagged.
    #[error(
        "channel {channel}: target {address} came back older than it was: it lacks {}",
        lacking(missing)
    )]
    Older { channel: String, address: String, missing: String },
    /// Another daemon took the channel over.
    #[error("channel {channel}: {how}")]
    Fenced { channel: String, how: Fence },
    #[error("checkpoint of channel {channel}: {what}")]
    Checkpoint { channel: String, what: String },
    /// A GTID set that the target holds can't be read.
    #[error("{place} is not a GTID set: {source}")]
    GtidSet {
        place: String,
        #[source]
        source: ParseGtidError,
    },
    /// A router or proxy does not pass a command that every server knows.
    #[error(
        "target {address}: error 1047: a router or proxy in between does not know COM_SET_OPTION, with which the target \
         takes a text with a semicolon for one statement; make it pass COM_SET_OPTION, or connect to the target itself"
    )]
    UnknownCommand { address: String },
    /// The target answered a query in an unexpected way.
    #[error("target {address}: unexpected answer about {what}")]
    Answer { address: String, what: String },
    /// A transaction was begun while it was being received, and its end did not come or is not to be waited
    /// for. It is rolled back, and the channel begins again after the checkpoint.
    #[error("transaction {gtid} is applied once all of it is received: {why}")]
    NotWhole { gtid: String, why: String },
    #[error(transparent)]
    Admission(csa_scheduler::error::Error),
    /// The target's definitions, from which conflicts are found, could not be read.
    #[error("transaction {gtid}: reading the keys of its tables on the target: {error}")]
    Keys {
        gtid: Gtid,
        #[source]
        error: Box<Self>,
    },
    #[error("transaction {gtid}: {what}")]
    Unsupported { gtid: String, what: String },
    /// An event of a transaction can't be understood.
    #[error("transaction {gtid}: unreadable {what}: {source}")]
    Unreadable {
        gtid: String,
        what: &'static str,
        #[source]
        source: EventError,
    },
    /// Row changes can't be understood.
    #[error("unreadable row changes: {0}")]
    UnreadableRows(#[source] EventError),
    /// A task of the applier panicked.
    #[error("{task} failed: {source}")]
    Task {
        task: &'static str,
        #[source]
        source: JoinError,
    },
    #[error("the search for the row that failed took too long")]
    SearchTimedOut(#[source] Elapsed),
    /// Nothing is read from the target any more.
    #[error("the channel is stopping")]
    Stopping,
    #[error("internal error, please report it: {0}")]
    Broken(Invariant),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Another daemon has the channel.
    #[must_use]
    pub fn is_held_by_another(&self) -> bool {
        matches!(self, Self::Held { by_another: true, .. })
    }

    pub(crate) fn fenced(channel: &str, how: Fence) -> Self {
        Self::Fenced { channel: channel.to_owned(), how }
    }

    /// Marks an error of the server or the link as one of a session that is being opened.
    pub(crate) fn connecting(self) -> Self {
        match self {
            Self::Target { .. }
            | Self::Server { .. }
            | Self::Timeout { .. }
            | Self::Silent { .. }
            | Self::Product { .. }
            | Self::Answer { .. } => Self::Connecting(Box::new(self)),
            other => other,
        }
    }

    /// Marks an error of the server as one of our bookkeeping.
    pub(crate) fn of_bookkeeping(self) -> Self {
        match self {
            Self::Target { source: LinkError::Server { .. }, .. }
            | Self::Server { source: LinkError::Server { .. }, .. } => {
                Self::Bookkeeping(Box::new(self))
            }
            other => other,
        }
    }

    /// Returns the error without the place where it arose.
    pub(crate) fn plain(&self) -> &Self {
        match self {
            Self::Connecting(error) | Self::Bookkeeping(error) => error,
            other => other,
        }
    }

    /// Returns the link's or the server's part of it.
    fn link(&self) -> Option<&LinkError> {
        match self {
            Self::Target { source, .. } | Self::Server { source, .. } => Some(source),
            Self::Connecting(error) | Self::Bookkeeping(error) | Self::Keys { error, .. } => {
                error.link()
            }
            _ => None,
        }
    }

    /// Returns the pause before the next attempt, where the target refuses sessions and trying soon would do
    /// harm.
    #[must_use]
    pub fn refused_pause(&self, chance: &dyn Chance) -> Option<Duration> {
        self.link().and_then(|error| error.refused_pause(chance))
    }

    /// Returns the pause before the next attempt, where the usual one does not depend on the error.
    #[must_use]
    pub fn pause(&self, usual: Duration, chance: &dyn Chance) -> Duration {
        self.link().map_or(usual, |error| error.pause(usual, chance))
    }

    /// The two sides do not agree on the protection of a link.
    pub(crate) fn is_of_protection(&self) -> bool {
        self.link().is_some_and(LinkError::is_protection)
    }

    /// A link failed, or was not made.
    pub(crate) fn is_of_network(&self) -> bool {
        matches!(self.link(), Some(LinkError::Io(_) | LinkError::Closed))
    }

    /// Returns true if the target has no room for another session.
    pub(crate) fn is_of_room(&self) -> bool {
        matches!(self, Self::Connecting(_))
            && self.link().is_some_and(|error| error.opening() == Opening::Full)
    }

    /// Returns the text with the values that the server quotes: for those who may see rows, not for
    /// logs.
    #[must_use]
    pub fn with_values(&self) -> String {
        match self {
            Self::Target { address, source } => format!("target {address}: {source}"),
            Self::Server { what, source } => format!("{what}: {source}"),
            Self::Connecting(error) => error.with_values(),
            Self::Bookkeeping(error) => {
                format!("the channel's own tables: {}", error.with_values())
            }
            Self::Transaction { gtid, of, code, message, row, .. } => {
                failed(gtid, of, *code, &message.full(), row)
            }
            Self::Keys { gtid, error } => {
                format!(
                    "transaction {gtid}: reading the keys of its tables on the target: {}",
                    error.with_values()
                )
            }
            other => other.to_string(),
        }
    }

    /// Returns the server's text without our words around it.
    pub(crate) fn server_text(&self) -> ServerText {
        match self {
            Self::Target { source: LinkError::Server { code, message }, .. }
            | Self::Server { source: LinkError::Server { code, message }, .. } => {
                ServerText::new(*code, message)
            }
            Self::Connecting(error) | Self::Bookkeeping(error) => error.server_text(),
            Self::Rows { message, .. } => ServerText::own(message.as_str()),
            other => ServerText::own(other.to_string()),
        }
    }

    /// The time for a lock has passed. A session of others will release it some day, and a replica waits for that as
    /// long as it takes; one of ours yields.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.code() == Some(LOCK_WAIT_TIMEOUT)
    }

    /// The statement was ended by KILL QUERY.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.code() == Some(QUERY_INTERRUPTED)
    }

    /// Returns the server's error number, where one was given.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Transaction { code, .. } | Self::Rows { code, .. } => Some(*code),
            _ => self.link().and_then(LinkError::code),
        }
    }

    /// Returns the row at which it failed, where one was found.
    #[must_use]
    pub fn row(&self) -> Option<&FailingRow> {
        match self {
            Self::Transaction { row, .. } => row.as_deref(),
            _ => None,
        }
    }

    /// Returns true for rows of which a part may be there, and that can't be rolled back.
    #[must_use]
    pub fn is_half_way(&self) -> bool {
        matches!(
            self,
            Self::Transaction { half_way: true, .. }
                | Self::HalfDone { .. }
                | Self::PartlyDone { .. }
        )
    }

    /// Returns the GTID of the failed transaction, if a transaction failed.
    #[must_use]
    pub fn gtid(&self) -> Option<Gtid> {
        match self {
            Self::Transaction { gtid, .. }
            | Self::Unsupported { gtid, .. }
            | Self::Unreadable { gtid, .. }
            | Self::InDoubt { gtid, .. }
            // Here as text, but made from a GTID.
            | Self::HalfDone { gtid, .. }
            | Self::PartlyDone { gtid, .. } => gtid.parse().ok(),
            Self::Admission(
                csa_scheduler::error::Error::Unsupported { gtid, .. }
                | csa_scheduler::error::Error::Unreadable { gtid, .. }
                | csa_scheduler::error::Error::Keys { gtid, .. },
            ) => Some(gtid.clone()),
            // The next transaction would meet what the whole server lacks, too.
            Self::Keys { gtid, error } => {
                Some(gtid.clone()).filter(|_| !error.passes_slowly())
            }
            _ => None,
        }
    }
}

impl From<csa_scheduler::error::Error> for Error {
    fn from(error: csa_scheduler::error::Error) -> Self {
        use csa_scheduler::error::Error as Refusal;

        match error {
            // The catalogue of a channel's target (definitions/catalogue.rs) answers with our own errors.
            Refusal::Keys { gtid, source } => match source.downcast() {
                Ok(error) => Self::Keys { gtid, error },
                Err(source) => Self::Admission(Refusal::Keys { gtid, source }),
            },
            other => Self::Admission(other),
        }
    }
}

fn lacking(missing: &str) -> String {
    match missing {
        "" => {
            "no transaction, but is a copy from before this daemon claimed the channel".to_owned()
        }
        missing => format!("{missing}, which were committed there"),
    }
}

fn failed(
    gtid: &str,
    of: &str,
    code: u16,
    message: &dyn fmt::Display,
    row: &Option<Box<FailingRow>>,
) -> String {
    format!("transaction {gtid} ({of}) failed on the target: error {code}: {message}{}", at(row))
}

/// Returns the error's text without values.
fn shown(error: &LinkError) -> String {
    match error {
        LinkError::Server { code, message } => {
            let message = without_values(*code, message).into_owned();
            LinkError::Server { code: *code, message }.to_string()
        }
        other => other.to_string(),
    }
}

fn at(row: &Option<Box<FailingRow>>) -> String {
    row.as_ref().map(|row| format!("; at {row}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_text_an_error_has_no_values() {
        let server = |code, text: &str| LinkError::Server { code, message: text.to_owned() };
        for (code, text) in [
            (1062, "Duplicate entry 'secret for key x' for key 't.u'"),
            (1366, "Incorrect string value: 'secret' for column 'c' at row 1"),
            (1064, "You have an error in your SQL syntax near 'secret' at line 1"),
        ] {
            let target = Error::Target { address: "t".to_owned(), source: server(code, text) };
            let of = Error::Server { what: "what".into(), source: server(code, text) };
            let transaction = Error::Transaction {
                gtid: "g:1".to_owned(),
                of: "row changes".to_owned(),
                code,
                message: target.server_text(),
                row: None,
                half_way: false,
            };
            for error in [target, of, transaction] {
                let (shown, full) = (error.to_string(), error.with_values());
                assert!(!shown.contains("secret") && shown.contains(&code.to_string()), "{shown}");
                assert!(full.contains(text), "{full}");
            }
        }
    }

    #[test]
    fn statements_to_run_by_hand_are_logged_as_our_own_are() {
        for (is_logged, beginning) in [(true, ""), (false, "SET sql_log_bin=0; ")] {
            let by_hand = crate::ownership::bookkeeping::by_hand(is_logged);
            let (gtid, channel) = ("g:1".to_owned(), "c".to_owned());
            let if_done = crate::ownership::intent::if_done(&channel, by_hand);
            let in_doubt = Error::InDoubt {
                gtid: gtid.clone(),
                channel: channel.clone(),
                by_hand,
                if_done: if_done.clone(),
            };
            let partly_done = Error::PartlyDone { gtid: gtid.clone(), if_done: if_done.clone() };
            let told =
                format!(": {beginning}UPDATE csa.statement SET executed=1 WHERE channel='c'");
            assert!(partly_done.to_string().contains(&told), "{told}: {partly_done}");
            let half_done = Error::HalfDone { gtid, channel, by_hand, if_done };
            for text in [in_doubt.to_string(), half_done.to_string()] {
                for statement in
                    ["UPDATE csa.statement SET executed=1", "DELETE FROM csa.statement"]
                {
                    let told = format!(": {beginning}{statement} WHERE channel='c'");
                    assert!(text.contains(&told), "{told}: {text}");
                }
            }
        }
    }
}
