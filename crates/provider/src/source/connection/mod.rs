//! A connection to the source: queries before the dump, and the dump of its binary log.

mod dump;
#[cfg(test)]
pub(crate) mod fake_source;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::binlog::event::{ChecksumAlgorithm, EventError};
use crate::binlog::gtid::{GtidSet, ParseGtidError};
use crate::seams::chance::Chance;
use crate::server::ask::{Ask, TextRow, first, texts};
use crate::server::link::server_errors::SOURCE_FATAL;
use crate::server::link::{Limits, Link, LinkError, Row};
use crate::source::cause::SourceCause;
use crate::source::history::lacks;
use crate::source::options::SourceOptions;

/// The reason a connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("protocol: {0}")]
    Protocol(String),
    #[error(transparent)]
    Event(#[from] EventError),
    /// The source does not have these transactions, which were received.
    #[error("this source {}", lacks(.0))]
    Lacks(GtidSet),
    /// Addresses ended the stream for good, and others may serve later. The text names them all.
    #[error("{ended}; waiting for the other addresses: {others}")]
    OthersMayServe {
        ended: String,
        /// The reason of the first that ended it.
        cause: SourceCause,
        others: String,
        /// The error of the others that says most.
        away: Option<Box<ConnectionError>>,
    },
}

impl ConnectionError {
    /// Returns the server's error number, if it sent one.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Link(error) => error.code(),
            _ => None,
        }
    }
}

impl ConnectionError {
    /// Returns [`LinkError::pause`] of the link's error, if there is one.
    #[must_use]
    pub fn pause(&self, usual: Duration, chance: &dyn Chance) -> Duration {
        match self {
            Self::Link(error) => error.pause(usual, chance),
            // No shorter, because those that answer are asked again as well.
            Self::OthersMayServe { away: Some(error), .. } => error.pause(usual, chance).max(usual),
            _ => usual,
        }
    }

    /// Returns [`LinkError::refused_pause`] of the link's error, if there is one.
    pub(crate) fn refused_pause(&self, chance: &dyn Chance) -> Option<Duration> {
        match self {
            Self::Link(error) => error.refused_pause(chance),
            _ => None,
        }
    }

    #[must_use]
    pub fn cause(&self) -> SourceCause {
        match self {
            Self::Link(error) if error.is_account() => SourceCause::Account,
            Self::Link(error) if error.is_protection() => SourceCause::Protection,
            Self::Link(LinkError::Server { code: SOURCE_FATAL, message }) => {
                SourceCause::of_refusal(message)
            }
            Self::Lacks(_) => SourceCause::OtherHistory,
            Self::OthersMayServe { cause, .. } => *cause,
            _ => SourceCause::Unreachable,
        }
    }
}

/// One connection to the source.
#[derive(Debug)]
pub struct SourceConnection {
    link: Link,
    /// The checksum of the dump's events.
    checksum: ChecksumAlgorithm,
    /// A source that is silent for longer counts as gone.
    dead_after: Duration,
    semi_sync: SemiSync,
    /// The dump has sent something.
    has_begun: bool,
}

/// The two bytes of a semi-synchronous source before each event of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SemiSync {
    /// They were not requested.
    Off,
    /// The first event shows whether the source has the plugin that writes them.
    Asked,
    On,
}

impl SourceConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// Any error of the network, of TLS or of the server's login.
    pub async fn connect(
        options: &SourceOptions,
        host: &str,
        port: u16,
    ) -> Result<Self, ConnectionError> {
        let link = Link::connect(&options.link(host, port)).await?;
        Ok(Self::over(link, options))
    }

    fn over(link: Link, options: &SourceOptions) -> Self {
        Self {
            link,
            checksum: ChecksumAlgorithm::Off,
            dead_after: options.dead_after(),
            semi_sync: SemiSync::Off,
            has_begun: false,
        }
    }

    /// Returns the source's id of this connection.
    #[must_use]
    pub const fn connection_id(&self) -> u32 {
        self.link.connection_id()
    }

    /// Returns the source's version text.
    #[must_use]
    pub fn server_version(&self) -> &str {
        self.link.server_version()
    }

    /// Runs one statement and returns its rows, if any.
    pub(crate) async fn query(
        &mut self,
        sql: &str,
        limits: Limits,
    ) -> Result<Vec<TextRow>, ConnectionError> {
        let rows: Vec<Row> = self.link.query(sql, limits).await?;
        Ok(rows.into_iter().map(texts).collect())
    }

    /// Returns a short setting: first column of the first row.
    pub(crate) async fn setting(&mut self, sql: &str) -> Result<String, ConnectionError> {
        self.first(sql, Limits::SETTING).await
    }

    /// Returns a GTID set: first column of the first row.
    pub(crate) async fn gtids(&mut self, sql: &str) -> Result<String, ConnectionError> {
        self.first(sql, Limits::GTIDS).await
    }

    /// `sql_select_limit` of the server counts only where a query has no limit of its own.
    async fn first(&mut self, sql: &str, limits: Limits) -> Result<String, ConnectionError> {
        let rows = self.query(&format!("{sql} LIMIT 1"), limits).await?;
        Ok(first(rows).unwrap_or_default())
    }

    /// Sends a goodbye and closes the connection; errors are ignored.
    pub(crate) async fn quit(self) {
        self.link.quit().await;
    }
}

impl Ask for SourceConnection {
    type Error = ConnectionError;

    async fn ask(&mut self, query: &str, limits: Limits) -> Result<Vec<TextRow>, ConnectionError> {
        self.query(query, limits).await
    }

    fn unreadable(&self, variable: &str, why: ParseGtidError) -> ConnectionError {
        ConnectionError::Protocol(format!("{variable} can't be read: {why}"))
    }
}
