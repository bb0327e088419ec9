//! A session that only reads, and gives up on queries that take long.

use std::time::Duration;

use csa_applier::{Purpose, TargetOptions, prelude};
use csa_provider::binlog::ParseGtidError;
use csa_provider::server::ask::{Ask, TextRow, first, texts};
use csa_provider::server::link::{Limits, Link, Side};
use csa_provider::server::{Vendor, unsupported_source, unsupported_target};

use crate::verify::connect_error;

/// A little more than the server's own limit.
const PATIENCE: Duration = Duration::from_secs(40);

pub(super) struct CheckSession {
    link: Link,
    address: String,
}

/// The reason why a server can't be checked, on one line.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It does not answer, or refuses the login.
    Login(String),
    /// Its kind or version can be neither source nor target.
    Product(String),
}

impl Unusable {
    pub(super) fn text(self) -> String {
        match self {
            Self::Login(text) | Self::Product(text) => text,
        }
    }
}

/// A server's error on a query, on one line.
#[derive(Debug)]
pub(super) struct QueryError {
    pub(super) code: Option<u16>,
    pub(super) text: String,
}

impl CheckSession {
    /// Logs in; an error says why not, on one line.
    pub(super) async fn connect(side: Side, server: &TargetOptions) -> Result<Self, Unusable> {
        let link = csa_applier::connect(server, side)
            .await
            .map_err(|error| connect_error(side, server, error).to_string().replace('\n', " "))
            .map_err(Unusable::Login)?;
        let mut session = Self { link, address: server.address() };
        let vendor = session.check_product(side).await?;
        for statement in prelude(vendor, Purpose::Inspect) {
            // Without a server's error number, the link itself has failed.
            if let Err(QueryError { code: None, text }) = session.rows(&statement).await {
                return Err(Unusable::Login(format!("{side} {text}")));
            }
        }
        Ok(session)
    }

    /// Comes before all other queries, which another product may not understand.
    async fn check_product(&mut self, side: Side) -> Result<Vendor, Unusable> {
        let said =
            self.ask_within("SELECT @@version, @@version_comment LIMIT 1", Limits::SETTING).await;
        let said = said.map_err(|refusal| Unusable::Login(format!("{side} {}", refusal.text)))?;
        let mut said = said.into_iter().flatten().map(Option::unwrap_or_default);
        let (version, comment) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
        let why = match side {
            Side::Source => unsupported_source(&version, &comment),
            Side::Target => unsupported_target(&version, &comment),
        };
        match why {
            Some(why) => Err(Unusable::Product(format!("{side} {} {why}", self.address))),
            None => Ok(Vendor::of(&version)),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn rows(&mut self, query: &str) -> Result<Vec<TextRow>, QueryError> {
        self.ask_within(query, Limits::LIST).await
    }

    async fn ask_within(
        &mut self,
        query: &str,
        limits: Limits,
    ) -> Result<Vec<TextRow>, QueryError> {
        let asked = self.link.query(query, limits);
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(rows)) => Ok(rows.into_iter().map(texts).collect()),
            Ok(Err(error)) => {
                let text = format!("{}: {error}", self.address).replace('\n', " ");
                Err(QueryError { code: error.code(), text })
            }
            // The rest of the answer makes the link unusable, so all later questions fail at once.
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let text = format!("{}: no answer within {seconds} s", self.address);
                Err(QueryError { code: None, text })
            }
        }
    }

    /// Returns the first column of the first row; `None` for NULL and no row.
    pub(super) async fn value(&mut self, query: &str) -> Result<Option<String>, QueryError> {
        Ok(first(self.rows(query).await?))
    }

    /// Returns true if the greeting had another number than the server's for this connection.
    pub(super) async fn was_renumbered(&mut self) -> bool {
        // Not the number alone: a proxy may answer that question itself.
        match self.rows("SELECT @@version, CONNECTION_ID()").await.as_deref() {
            Ok([row]) => {
                let greeted = self.link.connection_id().to_string();
                matches!(row.as_slice(), [_, Some(number)] if *number != greeted)
            }
            _ => false,
        }
    }

    pub(super) async fn close(self) {
        self.link.quit().await;
    }
}

impl Ask for CheckSession {
    type Error = QueryError;

    async fn ask(&mut self, query: &str, limits: Limits) -> Result<Vec<TextRow>, QueryError> {
        self.ask_within(query, limits).await
    }

    fn unreadable(&self, variable: &str, why: ParseGtidError) -> QueryError {
        QueryError {
            code: None,
            text: format!("{}: {variable} can't be read: {why}", self.address),
        }
    }
}
