//! One session on either server: reads only, every statement a transaction of its own.

use std::time::Duration;

use csa_applier::{Purpose, Target, TargetLink, TargetOptions, UNHURRIED, prelude};
use csa_provider::server::ask::{TextRow, texts};
use csa_provider::server::by_hand::of_account;
use csa_provider::server::link::{
    FromRow, Limits, LinkError, NextRows, Row, RowPart, Side, rows_as,
};
use csa_provider::server::{Grants, Vendor, account_name};

use super::abandoned::RunningQuery;
use super::error::{Result, VerifyError};

/// A row's digest is computed from less than this, however many columns there are.
const PACKET_MIN: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct VerifySession {
    side: Side,
    vendor: Vendor,
    address: String,
    /// `CURRENT_USER()`.
    current_user: String,
    /// The way to the server for another session.
    server: Target,
    link: Box<dyn TargetLink>,
    /// The server's number of this connection.
    connection: u32,
}

impl VerifySession {
    /// Connects to one server, and prepares the session.
    pub(crate) async fn connect(side: Side, server: &TargetOptions) -> Result<Self> {
        Self::open(side, &Target::on(side, server.clone())).await
    }

    /// Connects to a server in its own way, and prepares the session.
    pub(crate) async fn open(side: Side, server: &Target) -> Result<Self> {
        match server.connect().await {
            Ok(link) => Self::new(side, server.clone(), link).await,
            Err(error) => Err(connect_error(side, server, error)),
        }
    }

    async fn new(side: Side, server: Target, link: Box<dyn TargetLink>) -> Result<Self> {
        let (vendor, address) = (Vendor::default(), server.address());
        let (current_user, connection) = (String::new(), link.id());
        let mut session = Self { side, vendor, address, current_user, server, link, connection };
        // Queries contain values that the other server gave.
        let single = session.link.take_several(false).await;
        single.map_err(|error| session.error(error))?;
        let who = format!("SELECT {UNHURRIED} @@version, CONNECTION_ID() LIMIT 1");
        let said: Vec<(String, u32)> = session.rows(&who).await?;
        if let Some((version, connection)) = said.into_iter().next() {
            session.vendor = Vendor::of(&version);
            session.connection = connection;
        }
        if side == Side::Source && session.vendor == Vendor::MariaDb {
            return Err(session.refused("it is MariaDB, which can't be a source"));
        }
        for statement in prelude(session.vendor, Purpose::Compare) {
            session.run(&statement).await?;
        }
        let gtid_mode = match session.vendor {
            Vendor::MySql | Vendor::MySql57 => "@@GLOBAL.gtid_mode",
            Vendor::MariaDb => "''",
        };
        let facts: Vec<(String, String, u64)> = session
            .rows(&format!("SELECT CURRENT_USER(), {gtid_mode}, @@SESSION.max_allowed_packet"))
            .await?;
        let Some((account, gtid_mode, packet)) = facts.into_iter().next() else {
            return Err(session.refused("it names no variables"));
        };
        session.current_user = account;
        if side == Side::Source && gtid_mode != "ON" {
            return Err(session.refused(&format!(
                "gtid_mode={gtid_mode}, so rows that are late look like rows that differ; \
                 set gtid_mode=ON and enforce_gtid_consistency=ON there"
            )));
        }
        if packet < PACKET_MIN {
            return Err(session.refused(&format!(
                "max_allowed_packet={packet} is too small to compute digests of rows; run there: \
                 {} max_allowed_packet=67108864",
                session.vendor.set()
            )));
        }
        Ok(session)
    }

    pub(crate) fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// The side and the server, as an operator would call them.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.side, self.address)
    }

    /// Lets the session see the sizes of tables and the times of their last changes as they are now. Those that it sees
    /// otherwise may be a day old.
    pub(crate) async fn look_afresh(&mut self) -> Result<()> {
        match self.vendor {
            Vendor::MySql => self.run("SET SESSION information_schema_stats_expiry=0").await,
            Vendor::MySql57 | Vendor::MariaDb => Ok(()),
        }
    }

    /// Returns the tables that the account may read.
    pub(crate) async fn grants(&mut self) -> Result<Grants> {
        let lines: Vec<String> = self.rows("SHOW GRANTS").await?;
        Ok(Grants::parse(&self.current_user, &lines))
    }

    /// Returns an error of one line about this server.
    pub(crate) fn refused(&self, why: &str) -> VerifyError {
        VerifyError::Refused(format!("{}: {why}", self.name()))
    }

    /// Returns an error that names the missing privilege.
    pub(crate) fn may_not_read(&self, what: &str) -> VerifyError {
        let other = match self.side {
            Side::Source => ", or name another account: --source-user, --source-password-file",
            Side::Target => "",
        };
        let account = account_name(&self.current_user);
        self.refused(&format!(
            "{account} may not read everything that is compared; run there: {}{other}",
            of_account(&format!("GRANT SELECT ON {what} TO {account}"))
        ))
    }

    /// Returns an error that names a missing global privilege.
    pub(crate) fn may_not(&self, privilege: &str, purpose: &str) -> VerifyError {
        let account = account_name(&self.current_user);
        self.refused(&format!(
            "{account} needs {privilege} to {purpose}; run there: {}",
            of_account(&format!("GRANT {privilege} ON *.* TO {account}"))
        ))
    }

    /// Runs a statement that returns no rows.
    pub(crate) async fn run(&mut self, statement: &str) -> Result<()> {
        self.rows_within::<Row>(statement, Limits::SETTING).await.map(drop)
    }

    /// Returns the rows of one query.
    pub(crate) async fn rows<R: FromRow>(&mut self, query: &str) -> Result<Vec<R>> {
        self.rows_within(query, Limits::LIST).await
    }

    async fn rows_within<R: FromRow>(&mut self, query: &str, limits: Limits) -> Result<Vec<R>> {
        let rows = self.link.query(query, limits).await;
        rows.and_then(|rows| rows_as(query, rows)).map_err(|error| self.error(error))
    }

    /// Returns the rows of any number of columns, as text.
    pub(crate) async fn texts(&mut self, query: &str) -> Result<Vec<TextRow>> {
        let rows: Vec<Row> = self.rows(query).await?;
        Ok(rows.into_iter().map(texts).collect())
    }

    /// Sends a query whose rows [`Self::next_texts`] returns, part by part.
    pub(crate) async fn begin(&mut self, query: &str) -> Result<()> {
        self.link.begin(query.as_bytes()).await.map_err(|error| self.error(error))
    }

    /// Returns the next rows of the query that was begun, and whether more may follow.
    pub(crate) async fn next_texts(&mut self, part: RowPart) -> Result<(Vec<TextRow>, bool)> {
        let next = self.link.next_rows(part).await.map_err(|error| self.error(error))?;
        let NextRows { rows, has_more } = next;
        Ok((rows.into_iter().map(texts).collect(), has_more))
    }

    /// Returns the rows of a query that may read a whole table. Dropped before the answer, it ends the query on the server.
    pub(crate) async fn rows_at_length<R: FromRow>(&mut self, query: &str) -> Result<Vec<R>> {
        let running = RunningQuery::new(&self.server, self.connection, query);
        let rows = self.link.query(query, Limits::LIST).await;
        running.answered();
        rows.and_then(|rows| rows_as(query, rows)).map_err(|error| self.error(error))
    }

    /// Returns the rows of any number of columns without NULL; see [`Self::rows_at_length`].
    pub(super) async fn values(&mut self, query: &str) -> Result<Vec<Vec<String>>> {
        let rows: Vec<Row> = self.rows_at_length(query).await?;
        let values: Option<Vec<Vec<String>>> =
            rows.into_iter().map(|row| texts(row).into_iter().collect()).collect();
        values.ok_or_else(|| self.no_digest())
    }

    /// Returns the error for a digest that the server could not compute, so that it returned NULL.
    pub(super) fn no_digest(&self) -> VerifyError {
        self.refused(&format!(
            "it can't compute the digest of a row that is larger than max_allowed_packet; run there: \
             {} max_allowed_packet=1073741824",
            self.vendor.set()
        ))
    }

    fn error(&self, source: LinkError) -> VerifyError {
        const DENIED: [u16; 3] = [1044, 1142, 1143];
        match source.code() {
            Some(code) if DENIED.contains(&code) => self.may_not_read("*.*"),
            _ => VerifyError::Server { side: self.side, address: self.address.clone(), source },
        }
    }

    pub(crate) async fn close(self) {
        self.link.quit().await;
    }
}

pub(crate) fn connect_error(
    side: Side,
    server: &TargetOptions,
    error: csa_applier::Error,
) -> VerifyError {
    let address = server.address();
    match error {
        csa_applier::Error::Target { source, .. } => {
            match source.refusal(side, &address, &server.user) {
                Some(why) => VerifyError::Refused(why),
                None => VerifyError::Server { side, address, source },
            }
        }
        csa_applier::Error::Timeout { seconds, .. } => {
            let source = LinkError::Timeout(Duration::from_secs(seconds));
            VerifyError::Server { side, address, source }
        }
        other => VerifyError::Refused(format!("{side} {address}: {other}")),
    }
}
