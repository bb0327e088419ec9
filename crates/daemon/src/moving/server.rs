//! A server of a move: one session, opened again with a look at the journal, and what the server says of itself.

use std::time::Duration;

use csa_applier::{Purpose, Target, TargetLink, prelude};
use csa_provider::binlog::GtidSet;
use csa_provider::server::ask::{TextRow, first, texts};
use csa_provider::server::link::{Limits, NO_TABLE};
use csa_provider::server::{Grants, Vendor};
use csa_provider::sql_text::quote;

use super::decide::life_at;
use super::journal::{JournalCopy, ServerLife};

/// The longest wait for an answer. Only a fence waits longer, for statements that run.
const PATIENCE: Duration = Duration::from_secs(5);
/// Readings of a server's start until one is of a single moment.
const READINGS: usize = 5;
/// ER_LOCK_WAIT_TIMEOUT.
pub(super) const LOCK_WAIT: u16 = 1205;

/// The reason why a server did not do something, on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerError {
    /// `None`: it does not answer, and may have done it.
    pub(crate) code: Option<u16>,
    pub(crate) text: String,
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

pub(crate) type Asked<T> = Result<T, ServerError>;

/// Facts that do not change while a server lives.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerIdentity {
    pub(crate) uuid: String,
    pub(crate) version: String,
    /// It keeps settings over a restart.
    pub(crate) persists: bool,
}

#[derive(Debug)]
pub(crate) struct Server {
    target: Target,
    session: Option<Box<dyn TargetLink>>,
    pub(crate) identity: ServerIdentity,
    /// GET_LOCK of the move is held by every session, which ends after this time without a statement.
    lock: Option<(String, Duration)>,
    /// The reason why there is no session. Another command may have had the lock since, so [`Self::journal`] alone
    /// opens the next one.
    unread: Option<ServerError>,
    /// A session has ended since the journal was last asked for.
    is_lost: bool,
    /// The session is in a transaction, by which [`Server::writing`] tells a new answer from an old one.
    has_begun: bool,
}

impl Server {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            session: None,
            identity: ServerIdentity::default(),
            lock: None,
            unread: None,
            is_lost: false,
            has_begun: false,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.target.address()
    }

    pub(crate) fn host(&self) -> (&str, u16) {
        (&self.target.host, self.target.port)
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Returns true if the session has lasted since it was opened.
    pub(crate) fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// Returns true if the lock was lost since the journal was last asked for.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    fn error(&self, code: Option<u16>, text: impl std::fmt::Display) -> ServerError {
        let text = format!("{}: {text}", self.address()).replace('\n', " ");
        ServerError { code, text }
    }

    pub(crate) async fn ask(&mut self, query: &str) -> Asked<Vec<TextRow>> {
        self.ask_within(query, PATIENCE).await
    }

    pub(crate) async fn ask_within(&mut self, query: &str, most: Duration) -> Asked<Vec<TextRow>> {
        if self.session.is_none() {
            if let Some(error) = &self.unread {
                return Err(error.clone());
            }
            let opened = tokio::time::timeout(PATIENCE, self.open()).await;
            let opened = opened.map_err(|_| self.error(None, "no answer"))?;
            self.session = Some(opened?);
        }
        let Some(mut session) = self.session.take() else {
            return Err(self.error(None, "no session"));
        };
        match tokio::time::timeout(most, session.query(query, Limits::LIST)).await {
            Ok(Ok(rows)) => {
                self.session = Some(session);
                Ok(rows.into_iter().map(texts).collect())
            }
            Ok(Err(error)) => {
                let code = error.code();
                // The server ends a session with some errors, too, which the next question shows.
                if code.is_some() {
                    self.session = Some(session);
                    return Err(self.error(code, error));
                }
                Err(self.lost(self.error(None, error)))
            }
            // Its answer may still come, so the session is of no use.
            Err(_) => {
                let seconds = most.as_secs();
                let text = format!("no answer within {seconds} s: {query}");
                Err(self.lost(self.error(None, text)))
            }
        }
    }

    /// Remembers that the session has ended, and the lock with it.
    fn lost(&mut self, error: ServerError) -> ServerError {
        self.is_lost = true;
        self.unread = Some(error.clone());
        error
    }

    async fn open(&mut self) -> Asked<Box<dyn TargetLink>> {
        let connected = self.target.connect().await;
        let mut session = connected.map_err(|error| {
            let text = error.to_string();
            let address = self.address();
            // Its own words begin with the address.
            self.error(None, text.strip_prefix(&format!("{address}: ")).unwrap_or(&text))
        })?;
        let version = "SELECT @@version, @@GLOBAL.server_uuid";
        let said = session.query(version, Limits::SETTING).await;
        let said = said.map_err(|error| self.error(error.code(), error))?;
        let mut said = said.into_iter().flat_map(texts).map(Option::unwrap_or_default);
        let (version, uuid) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
        let vendor = Vendor::of(&version);
        if vendor == Vendor::MariaDb {
            return Err(
                self.error(Some(0), "it is MariaDB, which can't be a source on the way back")
            );
        }
        if !self.identity.uuid.is_empty() && self.identity.uuid != uuid {
            return Err(self.error(Some(0), format!("another server answers: {uuid}")));
        }
        self.has_begun = false;
        let persists = match vendor {
            Vendor::MySql57 | Vendor::MariaDb => false,
            Vendor::MySql => {
                let query = "SELECT @@GLOBAL.persisted_globals_load";
                let said = session.query(query, Limits::SETTING).await;
                let said = said.map_err(|error| self.error(error.code(), error))?;
                first(said.into_iter().map(texts).collect()).as_deref() == Some("1")
            }
        };
        self.identity = ServerIdentity { uuid, persists, version };
        let mut setup = prelude(vendor, Purpose::Apply);
        // A fence that waits for a statement keeps all later ones waiting.
        setup.push("SET SESSION lock_wait_timeout = 2".to_owned());
        setup.push("SET SESSION sql_log_bin = 0".to_owned());
        for statement in setup {
            let done = session.query(&statement, Limits::SETTING).await;
            done.map_err(|error| self.error(error.code(), format!("{error}: {statement}")))?;
        }
        if let Some((lock, idle)) = &self.lock {
            let lock = quote(lock);
            let query = format!("SELECT GET_LOCK({lock}, 3), IS_USED_LOCK({lock})");
            let got = session.query(&query, Limits::SETTING).await;
            let got = got.map_err(|error| self.error(error.code(), error))?;
            let mut got = got.into_iter().flat_map(texts).map(Option::unwrap_or_default);
            if got.next().as_deref() != Some("1") {
                let holder = got.next().unwrap_or_default();
                let text = format!(
                    "another csa-daemon move of this pair runs, in session {holder} here; wait for its end. If its host is \
                     gone, its session ends after {} s of silence, or with KILL {holder}",
                    idle.as_secs()
                );
                return Err(self.error(Some(0), text));
            }
            // Not before: a host that is gone would keep the lock until its connection is given up, hours later.
            let statement = format!("SET SESSION wait_timeout = {}", idle.as_secs());
            let done = session.query(&statement, Limits::SETTING).await;
            done.map_err(|error| self.error(error.code(), error))?;
        }
        Ok(session)
    }

    /// Lets every session take the lock of the move of a pair. A session that asks nothing for `idle` loses it.
    pub(crate) fn lock(&mut self, name: &str, idle: Duration) {
        self.lock = Some((name.to_owned(), idle));
    }

    /// Runs statements one after the other.
    pub(crate) async fn run<S: AsRef<str>>(&mut self, statements: &[S]) -> Asked<()> {
        for statement in statements {
            self.ask(statement.as_ref()).await?;
        }
        Ok(())
    }

    pub(crate) async fn executed(&mut self) -> Asked<GtidSet> {
        let said = first(self.ask("SELECT @@GLOBAL.gtid_executed").await?).unwrap_or_default();
        said.parse().map_err(|error| self.error(Some(0), format!("gtid_executed: {error}")))
    }

    /// Returns all that a channel has applied here, with what the server has executed itself.
    pub(crate) async fn applied(&mut self, channel: &str) -> Asked<GtidSet> {
        // Neither states too much, so their union does not, although they are read one after the other.
        let mut all = self.executed().await?;
        let channel = quote(channel);
        let query = format!("SELECT gtid_executed FROM csa.checkpoint WHERE channel={channel}");
        for text in self.ask(&query).await?.into_iter().flatten().flatten() {
            let set: GtidSet = text
                .parse()
                .map_err(|error| self.error(Some(0), format!("checkpoint: {error}")))?;
            all.union(&set);
        }
        Ok(all)
    }

    /// Returns how long it has been up, and since when.
    ///
    /// # Errors
    /// It does not answer, or too slowly to say so. A move then does not begin, and one that has begun takes it for a
    /// server that may have restarted.
    pub(crate) async fn life(&mut self) -> Asked<ServerLife> {
        let mut before = self.time_of_day().await?;
        for _ in 0..READINGS {
            let said = self.ask("SHOW GLOBAL STATUS LIKE 'Uptime'").await?;
            let seconds = said.into_iter().flatten().flatten().nth(1);
            // An answer that can't be read is like that of a server that has just been started.
            let uptime = seconds.and_then(|text| text.parse().ok()).unwrap_or_default();
            let after = self.time_of_day().await?;
            if let Some(life) = life_at(before, uptime, after) {
                return Ok(life);
            }
            before = after;
        }
        Err(self.error(None, "it answers too slowly to say when it started; run the command again"))
    }

    /// Returns the server's clock, in seconds since the epoch.
    async fn time_of_day(&mut self) -> Asked<i64> {
        let now = first(self.ask("SELECT UNIX_TIMESTAMP()").await?);
        let now = now.and_then(|text| text.parse().ok());
        now.ok_or_else(|| self.error(None, "its clock can't be read"))
    }

    pub(crate) async fn is_on(&mut self, variable: &str) -> Asked<bool> {
        let said = first(self.ask(&format!("SELECT @@GLOBAL.{variable}")).await?);
        Ok(said.is_some_and(|said| said == "1" || said == "ON"))
    }

    pub(crate) async fn grants(&mut self) -> Asked<Grants> {
        let account = first(self.ask("SELECT CURRENT_USER()").await?).unwrap_or_default();
        let lines = self.ask("SHOW GRANTS").await?;
        let lines: Vec<String> = lines.into_iter().flatten().flatten().collect();
        Ok(Grants::parse(&account, &lines))
    }

    /// Returns the prepared branches of distributed transactions. No fence keeps them from being committed.
    pub(crate) async fn prepared(&mut self) -> Asked<Vec<String>> {
        let rows = self.ask("XA RECOVER").await?;
        let name = |row: TextRow| row.into_iter().next_back().flatten();
        Ok(rows.into_iter().filter_map(name).collect())
    }

    /// Returns the sessions whose transactions have changed something, except those of the channels' account: they
    /// try again and again, change rows by BINLOG, and can't commit. `None` while the server shows an older state.
    ///
    /// INNODB_TRX is a copy that is renewed only when nobody has read it for 0.1 s (`can_cache_be_updated`). So this
    /// session begins a transaction before one look and ends it before the next, and each copy has to show that.
    pub(crate) async fn writing(&mut self) -> Asked<Option<Vec<String>>> {
        let has_begun = !self.has_begun;
        self.ask(if has_begun { "START TRANSACTION WITH CONSISTENT SNAPSHOT" } else { "COMMIT" })
            .await?;
        self.has_begun = has_begun;
        let query = "SELECT IF(t.trx_mysql_thread_id = CONNECTION_ID(), 0, t.trx_mysql_thread_id) \
                     FROM information_schema.INNODB_TRX t \
                     LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id \
                     WHERE t.trx_mysql_thread_id = CONNECTION_ID() \
                     OR (t.trx_rows_modified > 0 AND t.trx_mysql_thread_id <> 0 \
                     AND COALESCE(p.USER, '') <> SUBSTRING_INDEX(CURRENT_USER(), '@', 1))";
        let rows = self.ask(query).await?;
        let found: Vec<String> = rows.into_iter().flatten().flatten().collect();
        let (own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|session| session == "0");
        Ok((own.is_empty() != has_begun && self.has_begun == has_begun).then_some(others))
    }

    /// Ends a session, which may have ended on its own.
    pub(crate) async fn kill(&mut self, session: &str) -> Asked<()> {
        /// ER_NO_SUCH_THREAD.
        const GONE: u16 = 1094;
        match self.ask(&format!("KILL {session}")).await {
            Err(error) if error.code != Some(GONE) => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets no other server answer than the one with this UUID. Does nothing where one has answered, or for an
    /// empty UUID.
    pub(crate) fn expect(&mut self, uuid: &str) {
        if self.identity.uuid.is_empty() {
            uuid.clone_into(&mut self.identity.uuid);
        }
    }

    /// Returns the journal of a pair that is kept here, also over a new session.
    pub(crate) async fn journal(&mut self, channel: &str) -> Asked<Option<JournalCopy>> {
        // This table is in no binary log, so replicas of the server don't have it.
        let deletion = format!(
            "on {}: SET sql_log_bin=0; DELETE FROM csa.move WHERE channel={}",
            self.address(),
            quote(channel)
        );
        let query = csa_applier::read_move(channel);
        let had_session = self.session.is_some();
        self.unread = None;
        let mut asked = self.ask(&query).await;
        if had_session && self.session.is_none() {
            // Its end shows only now.
            self.unread = None;
            asked = self.ask(&query).await;
        }
        self.is_lost = false;
        if self.session.is_none() {
            self.unread = asked.as_ref().err().cloned();
        }
        match asked {
            Ok(rows) => Ok(first(rows).map(|text| JournalCopy { text, deletion })),
            Err(error) if error.code.is_some_and(|code| NO_TABLE.contains(&code)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
