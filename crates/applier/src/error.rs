use std::borrow::Cow;

use crate::failing_row::FailingRow;

/// What a failed group or statement means for the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Deadlock or lock wait timeout: roll back and try again.
    Retry,
    /// The target is away or refuses writes for now: wait for it, then find out what was committed.
    Unavailable,
    /// Nothing a repetition would cure: the channel stops.
    Stop,
}

/// Why the applier could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("target {address}: {source}")]
    Target {
        address: String,
        #[source]
        source: mysql_async::Error,
    },
    #[error("target {address}: no answer within {seconds} s")]
    Timeout { address: String, seconds: u64 },
    #[error("{what}: {source}")]
    Server {
        what: Cow<'static, str>,
        #[source]
        source: mysql_async::Error,
    },
    /// A transaction failed on the target; `of` says what it was about.
    #[error("transaction {gtid} ({of}) failed on the target: error {code}: {message}{}", at(row))]
    Transaction {
        gtid: String,
        of: String,
        code: u16,
        message: String,
        /// Where it was found.
        row: Option<Box<FailingRow>>,
    },
    /// Row changes that the target's tables don't take as they are; `code` after the server's error of
    /// the same meaning.
    #[error("error {code}: {message}")]
    Rows { code: u16, message: String },
    /// A statement that commits by itself was begun, and whether it took effect can't be known.
    #[error(
        "transaction {gtid}: its statement was under way when the daemon or the target went away, and \
         this target has no record of whether it took effect; look there, then run, if it did: UPDATE \
         csa.statement SET executed=1 WHERE channel='{channel}', if not: DELETE FROM csa.statement \
         WHERE channel='{channel}', and start the channel again"
    )]
    InDoubt { gtid: String, channel: String },
    /// Another daemon owns the channel, or took it over.
    #[error("channel {channel}: {what}")]
    Fenced { channel: String, what: String },
    #[error("checkpoint of channel {channel}: {what}")]
    Checkpoint { channel: String, what: String },
    #[error(transparent)]
    Admission(#[from] csa_scheduler::Error),
    #[error("transaction {gtid}: {what}")]
    Unsupported { gtid: String, what: String },
    #[error("reading the relay store: {0}")]
    Relay(String),
    /// Nothing more will come from the source; everything that came is committed.
    #[error("reception: {what}")]
    Reception {
        what: String,
        /// The transaction in which it ended, where it is known.
        gtid: Option<String>,
    },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Target { source, .. } | Self::Server { source, .. } => class_of(source),
            Self::Timeout { .. } => ErrorClass::Unavailable,
            _ => ErrorClass::Stop,
        }
    }

    /// A wait would cure it: no reason to stop a channel.
    pub(crate) fn is_passing(&self) -> bool {
        self.class() != ErrorClass::Stop
    }

    /// The server's text without the driver's words around it.
    pub(crate) fn server_message(&self) -> String {
        match self {
            Self::Target { source: mysql_async::Error::Server(server), .. }
            | Self::Server { source: mysql_async::Error::Server(server), .. } => {
                server.message.clone()
            }
            Self::Rows { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// The server's error number, where one was given.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Target { source, .. } | Self::Server { source, .. } => server_code(source),
            Self::Transaction { code, .. } | Self::Rows { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The row at which it failed, where one was found.
    #[must_use]
    pub fn row(&self) -> Option<&FailingRow> {
        match self {
            Self::Transaction { row, .. } => row.as_deref(),
            _ => None,
        }
    }

    /// The GTID of the transaction that failed, where it is one.
    #[must_use]
    pub fn gtid(&self) -> Option<String> {
        match self {
            Self::Transaction { gtid, .. }
            | Self::Unsupported { gtid, .. }
            | Self::InDoubt { gtid, .. } => Some(gtid.clone()),
            Self::Reception { gtid, .. } => gtid.clone(),
            Self::Admission(
                csa_scheduler::Error::Unsupported { gtid, .. }
                | csa_scheduler::Error::Unreadable { gtid, .. }
                | csa_scheduler::Error::Keys { gtid, .. },
            ) => Some(gtid.to_string()),
            _ => None,
        }
    }
}

fn at(row: &Option<Box<FailingRow>>) -> String {
    row.as_ref().map(|row| format!("; at {row}")).unwrap_or_default()
}

/// The number of a server error.
pub(crate) fn server_code(error: &mysql_async::Error) -> Option<u16> {
    match error {
        mysql_async::Error::Server(server) => Some(server.code),
        _ => None,
    }
}

pub(crate) fn class_of(error: &mysql_async::Error) -> ErrorClass {
    match server_code(error) {
        Some(code) => class_of_code(code),
        None => match error {
            mysql_async::Error::Io(_) | mysql_async::Error::Driver(_) => ErrorClass::Unavailable,
            _ => ErrorClass::Stop,
        },
    }
}

/// What a server error means.
pub(crate) const fn class_of_code(code: u16) -> ErrorClass {
    match code {
        // Lock wait timeout, deadlock.
        1205 | 1213 => ErrorClass::Retry,
        // Too many connections, shutdown in progress, query interrupted, session killed, read-only
        // modes, idle disconnect.
        1040 | 1053 | 1317 | 1290 | 1836 | 1927 | 3169 | 4031 => ErrorClass::Unavailable,
        _ => ErrorClass::Stop,
    }
}
