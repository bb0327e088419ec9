//! One connection to the target, with our session settings.

mod single;

use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::{FormatDescription, ParseGtidError};
use csa_provider::server::Vendor;
use csa_provider::server::ask::{Ask, TextRow, texts};
use csa_provider::server::link::{FromRow, Limits, Row, rows_as};
use tokio::time::Instant;

use super::prelude::{LOCK_WAITS, Purpose, prelude};
use super::reached::ReachedServer;
use super::row_session;
use super::row_settings::RowSettings;
use crate::error::{Error, Result};
use crate::options::{ExecMode, TargetGtids};
use crate::server::answer::Answer;
use crate::server::as_source;
use crate::server::liveness::Liveness;
use crate::server::port::{HungUp, TargetLink};
use crate::server::processes::{self, Process, ProcessRow};
use crate::server::target::{OccupiedRoom, Target};

#[derive(Debug)]
pub(crate) struct Session {
    link: Box<dyn TargetLink>,
    server: ReachedServer,
    /// The format description that was last sent for row images.
    format: Option<Arc<FormatDescription>>,
    pub(crate) row_settings: RowSettings,
    /// Seconds without a statement after which the server ends the session; `None` for the prelude's.
    idle_limit: Option<u64>,
    /// Its changes are in the server's binary log.
    logs: bool,
    /// See [`Self::wait_briefly`].
    waits_briefly: bool,
    /// See [`Self::run_single`].
    takes_several: bool,
    liveness: Liveness,
    /// The server's number of this connection.
    id: u32,
    /// An answer was given up: the next bytes would be taken for the answer to another statement.
    is_lost: bool,
    /// Last, so that the room is free when the link is closed.
    room: Option<OccupiedRoom>,
}

impl Session {
    /// Connects and sets the session up.
    ///
    /// # Errors
    /// [`Error::Connecting`]: whatever goes wrong here, no transaction was begun.
    pub(crate) async fn connect(target: &Target) -> Result<Self> {
        Self::open(target).await.map_err(Error::connecting)
    }

    async fn open(target: &Target) -> Result<Self> {
        let link = target.connect().await?;
        target.refusals.end();
        // Only now: to connect may find another server.
        let address = target.address();
        let id = link.id();
        let liveness = Liveness::of(target, id);
        let mut session = Self {
            link,
            liveness,
            id,
            is_lost: false,
            server: ReachedServer::at(address),
            format: None,
            row_settings: RowSettings::own(),
            idle_limit: None,
            logs: true,
            waits_briefly: false,
            takes_several: true,
            room: None,
        };
        let said: Option<(String, String, u32)> =
            session.setting("SELECT @@version, @@version_comment, CONNECTION_ID() LIMIT 1").await?;
        let (version, comment, id) = said.unwrap_or_default();
        // Checked before anything is set: other servers know only some of the settings.
        if let Some(why) = csa_provider::server::unsupported_target(&version, &comment) {
            return Err(Error::Product { address: session.server.address, why });
        }
        // The process list, locks and KILL know no other number.
        session.id = id;
        session.liveness = Liveness::of(target, id);
        session.server.vendor = Vendor::of(&version);
        session.server.version = version;
        session.set_up().await?;
        if target.gtids == TargetGtids::Mirror {
            session.log(false).await?;
        }
        let limit = session.setting("SELECT @@SESSION.max_allowed_packet").await?;
        session.server.max_allowed_packet = limit.unwrap_or(usize::MAX);
        Ok(session)
    }

    /// Sets what all of our sessions have.
    pub(crate) async fn set_up(&mut self) -> Result<()> {
        let mut statements = prelude(self.server.vendor, Purpose::Apply);
        let idle = self.idle_limit.map(|seconds| format!("SET SESSION wait_timeout={seconds}"));
        statements.extend(idle);
        (self.waits_briefly, self.row_settings.takes_bytes) = (false, false);
        self.run(statements.join(";")).await.map(drop)
    }

    /// Gives up on a lock of others after a second from now on, or waits as the prelude says: for writes that
    /// the session makes beside others, and that can come later.
    pub(crate) async fn wait_briefly(&mut self, briefly: bool) -> Result<()> {
        if self.waits_briefly != briefly {
            let [rows, tables] = if briefly { [1, 1] } else { LOCK_WAITS };
            let set =
                format!("SET SESSION innodb_lock_wait_timeout={rows}, lock_wait_timeout={tables}");
            self.run(set).await?;
            self.waits_briefly = briefly;
        }
        Ok(())
    }

    /// Makes the server end the session after so long without a statement, whatever became of the link.
    pub(crate) async fn end_when_idle(&mut self, limit: Duration) -> Result<()> {
        self.idle_limit = Some(limit.as_secs());
        self.set_up().await
    }

    /// Changes the limit of [`Self::end_when_idle`], and nothing else.
    pub(crate) async fn set_idle_limit(&mut self, limit: Duration) -> Result<()> {
        let seconds = limit.as_secs();
        if self.idle_limit != Some(seconds) {
            self.run(format!("SET SESSION wait_timeout={seconds}")).await?;
            self.idle_limit = Some(seconds);
        }
        Ok(())
    }

    /// Writes to the server's binary log from now on, or not. Not within a transaction.
    pub(crate) async fn log(&mut self, logs: bool) -> Result<()> {
        if self.logs != logs {
            self.run(format!("SET SESSION sql_log_bin={}", u8::from(logs))).await?;
            self.logs = logs;
        }
        Ok(())
    }

    /// Returns true if the session writes to the server's binary log, where there is one.
    pub(crate) fn logs(&self) -> bool {
        self.logs
    }

    /// Occupies room on the target as long as it lives.
    pub(crate) fn occupy(&mut self, room: OccupiedRoom) {
        self.room = Some(room);
    }

    /// Ends the connection, and leaves a session whose every statement fails.
    pub(crate) async fn hang_up(&mut self) {
        std::mem::replace(&mut self.link, Box::new(HungUp)).quit().await;
    }

    /// Returns the server that the session has reached.
    pub(crate) fn server(&self) -> &ReachedServer {
        &self.server
    }

    /// The target's name in messages.
    pub(crate) fn address(&self) -> &str {
        &self.server.address
    }

    pub(crate) fn vendor(&self) -> Vendor {
        self.server.vendor
    }

    /// Returns `@@version`.
    pub(crate) fn version(&self) -> &str {
        &self.server.version
    }

    /// Makes the server take statements as they are from now on, or as UTF-8 again. As UTF-8 it looks at
    /// each character of a BINLOG statement and converts all of it (`get_text`, `TEXT_STRING_sys`).
    /// Names and values in statements have to be ASCII meanwhile.
    pub(crate) async fn use_bytes(&mut self, takes_bytes: bool) -> Result<()> {
        if self.row_settings.takes_bytes != takes_bytes {
            let charset = if takes_bytes { "binary" } else { "utf8mb4" };
            self.run(format!("SET SESSION character_set_client={charset}")).await?;
            self.row_settings.takes_bytes = takes_bytes;
        }
        Ok(())
    }

    /// Restores our own settings.
    pub(crate) async fn leave_now(&mut self) -> Result<()> {
        if let Some(own) = self.row_settings.leave() {
            self.run(own).await?;
            self.row_settings.settled();
        }
        Ok(())
    }

    /// Returns true if the server has executed a transaction with this GTID, whoever sent it.
    pub(crate) async fn has_executed(&mut self, gtid: &str) -> Result<bool> {
        let query = format!("SELECT GTID_SUBSET('{gtid}', @@GLOBAL.gtid_executed)");
        let rows: Vec<bool> = self.rows(&query).await?;
        Ok(rows.first() == Some(&true))
    }

    /// Records a GTID whose transaction changes nothing here.
    pub(crate) async fn consume(&mut self, gtid: &str) -> Result<()> {
        self.run(format!("SET SESSION {}", as_source::gtid_next(&gtid))).await?;
        self.run("BEGIN").await?;
        self.run("COMMIT").await?;
        self.run(as_source::AUTOMATIC).await.map(drop)
    }

    /// Does what [`Self::consume`] does, into the binary log of a session that otherwise writes
    /// nothing there.
    pub(crate) async fn consume_logged(&mut self, gtid: &str) -> Result<()> {
        self.log(true).await?;
        let outcome = self.consume(gtid).await;
        // Also after an error: later writes of this session must not get GTIDs of the target's own.
        self.log(false).await?;
        outcome
    }

    /// The server's number of this connection, as the server itself has it.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Runs one packet of statements and reads every result; matched rows of each statement.
    ///
    /// Nothing may follow a BINLOG statement in such a packet: its OK lacks the more-results flag.
    pub(crate) async fn run(&mut self, statements: impl AsRef<[u8]> + Send) -> Result<Vec<u64>> {
        let answers = self.run_at_least(0, statements).await?;
        Ok(answers.into_iter().map(|answer| answer.rows).collect())
    }

    /// Does what [`Self::run`] does, for a packet in which statements follow a BINLOG statement: so
    /// many in all. Returns the moment at which the last began, if it is known.
    pub(crate) async fn run_counted(
        &mut self,
        count: usize,
        statements: impl AsRef<[u8]> + Send,
    ) -> Result<Option<Instant>> {
        let answers = self.run_at_least(count, statements).await?;
        Ok(answers.iter().find_map(|answer| answer.at))
    }

    /// As [`Self::run`]; calls `sent` before it waits for the answer.
    pub(crate) async fn run_noting(&mut self, statement: &str, sent: impl FnOnce()) -> Result<()> {
        self.exchange(0, statement, sent).await.map(drop)
    }

    /// Does what [`Self::run_counted`] does, and returns the answers: among them the warning count of each statement and
    /// the rows of a `SHOW WARNINGS`.
    pub(crate) async fn run_at_least(
        &mut self,
        least: usize,
        statements: impl AsRef<[u8]> + Send,
    ) -> Result<Vec<Answer>> {
        self.exchange(least, statements, || ()).await
    }

    async fn exchange(
        &mut self,
        least: usize,
        statements: impl AsRef<[u8]> + Send,
        sent: impl FnOnce(),
    ) -> Result<Vec<Answer>> {
        let text = statements.as_ref();
        self.server
            .check_packet(text.len())
            .map_err(|source| Error::Target { address: self.server.address.clone(), source })?;
        let liveness = self.liveness()?;
        // Not watched while sending: TCP notices a peer that takes nothing.
        let begun = self.link.begin(text).await;
        begun.map_err(|source| Error::Target { address: self.server.address.clone(), source })?;
        sent();
        let address = self.server.address.clone();
        let answers = async {
            let answers = self.link.answers(answers_to(text.len()), least).await;
            answers.map_err(|source| Error::Target { address, source })
        };
        let answers = liveness.watch(answers).await;
        self.note(answers)
    }

    fn liveness(&self) -> Result<Liveness> {
        match self.is_lost {
            true => Err(self.liveness.silent("an answer was given up")),
            false => Ok(self.liveness.clone()),
        }
    }

    fn note<T>(&mut self, answer: Result<T>) -> Result<T> {
        self.is_lost |= matches!(answer, Err(Error::Silent { .. }));
        answer
    }

    /// Returns the rows of one query, up to the limits of a list.
    pub(crate) async fn rows<R: FromRow>(&mut self, query: &str) -> Result<Vec<R>> {
        self.rows_within(query, Limits::LIST).await
    }

    /// Returns the first row of a query that returns one short row.
    pub(crate) async fn setting<R: FromRow>(&mut self, query: &str) -> Result<Option<R>> {
        Ok(self.rows_within(query, Limits::SETTING).await?.into_iter().next())
    }

    async fn rows_within<R: FromRow>(&mut self, query: &str, limits: Limits) -> Result<Vec<R>> {
        let address = self.server.address.clone();
        let liveness = self.liveness()?;
        let found = async {
            let found = self.link.query(query, limits).await;
            found
                .and_then(|rows| rows_as(query, rows))
                .map_err(|source| Error::Target { address, source })
        };
        let found = liveness.watch(found).await;
        self.note(found)
    }

    /// Returns the line of a connection in the process list. Without PROCESS the server hides sessions of other accounts.
    pub(crate) async fn process(&mut self, connection: u64) -> Result<Option<Process>> {
        let row: Option<ProcessRow> = self.setting(&processes::query(connection)).await?;
        Ok(row.map(Process::from))
    }

    /// Sends the format description of the row images to come, unless the server has it.
    ///
    /// The statement leaves `gtid_next` undetermined, hence the SET after it.
    pub(crate) async fn use_format(
        &mut self,
        format: &Arc<FormatDescription>,
        mode: ExecMode,
    ) -> Result<()> {
        if self.format.as_ref().is_some_and(|known| known.raw() == format.raw()) {
            return Ok(());
        }
        // Unknown until all of this has succeeded.
        self.format = None;
        self.leave_now().await?;
        // A GTID left in gtid_next by an ended transaction would make the BINLOG statement fail.
        self.run(as_source::AUTOMATIC).await?;
        let mut statement = Vec::new();
        push_binlog(&mut statement, &format.for_binlog_statement());
        self.run(statement).await?;
        self.run(as_source::AUTOMATIC).await?;
        let collation = "SHOW SESSION VARIABLES LIKE 'default_collation_for_utf8mb4'";
        let collation: Vec<(String, String)> = self.rows(collation).await?;
        self.row_settings.default_collation =
            collation.first().and_then(|(_, name)| row_session::default_collation(name));
        // Both: `init_connect` can set it.
        self.run(mode.set()).await?;
        self.format = Some(Arc::clone(format));
        Ok(())
    }

    /// Sets the session up for statements made of row values, unless it is.
    pub(crate) async fn use_statements(&mut self, set_up: &[&str]) -> Result<()> {
        if !self.row_settings.for_statements {
            for statement in set_up {
                self.run(statement).await?;
            }
            self.row_settings.for_statements = true;
        }
        Ok(())
    }

    /// Ends the connection with COM_QUIT; an error no longer matters.
    pub(crate) async fn close(self) {
        self.link.quit().await;
    }
}

/// Limits for the answers to so many bytes of statements: an OK to each, and warnings to some.
fn answers_to(bytes: usize) -> Limits {
    Limits { bytes: (16 << 20) + bytes.saturating_mul(4), ..Limits::LIST }
}

impl Ask for Session {
    type Error = Error;

    async fn ask(&mut self, query: &str, limits: Limits) -> Result<Vec<TextRow>> {
        let rows: Vec<Row> = self.rows_within(query, limits).await?;
        Ok(rows.into_iter().map(texts).collect())
    }

    fn unreadable(&self, variable: &str, source: ParseGtidError) -> Error {
        Error::GtidSet { place: format!("{variable} of target {}", self.server.address), source }
    }
}

/// Room for the statements after a BINLOG statement in its packet.
const END_BYTES: usize = 1 << 10;

/// Appends a BINLOG statement for whole events without checksums.
pub(crate) fn push_binlog(statement: &mut Vec<u8>, events: &[u8]) {
    // What ends the transaction comes after it, and should not make the text grow, which copies it.
    statement.reserve(base64_simd::STANDARD.encoded_length(events.len()) + END_BYTES);
    statement.extend_from_slice(b"BINLOG '");
    base64_simd::STANDARD.encode_append(events, statement);
    statement.push(b'\'');
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::SessionContext;

    use super::*;
    use crate::server::scripted::Scripted;

    /// A router greets with the number 0.
    #[tokio::test]
    async fn the_number_of_a_session_is_the_one_that_the_server_gave() {
        let target = Scripted::default().target();
        for number in 1..=2 {
            let session = Session::connect(&target).await.expect("connects");
            assert_eq!((session.link.id(), session.id()), (0, number));
        }
    }

    #[tokio::test]
    async fn settings_that_were_not_sent_are_set_again() {
        let mut session = Session::connect(&Scripted::default().target()).await.expect("connects");
        session.row_settings.default_collation = Some(255);
        let wanted = |collation| {
            let default_collation_for_utf8mb4 = Some(collation);
            Arc::new(SessionContext { default_collation_for_utf8mb4, ..SessionContext::default() })
        };
        let (one, other) = (wanted(255), wanted(45));
        assert!(session.row_settings.leave().is_none(), "nothing has been set");
        session.row_settings.enter(Some(&one)).expect("to be set");
        session.row_settings.settled();
        assert!(
            session.row_settings.enter(Some(&one)).is_none()
                && session.row_settings.enter(None).is_none()
        );
        // A packet with it is too long, so the server has not seen it.
        session.row_settings.enter(Some(&other)).expect("to be set");
        let again = session.row_settings.enter(Some(&other)).expect("to be set");
        assert!(again.ends_with(",default_collation_for_utf8mb4=45"), "{again}");
        assert_eq!(session.row_settings.leave().as_deref(), Some(row_session::OWN));
        assert_eq!(
            session.row_settings.leave().as_deref(),
            Some(row_session::OWN),
            "not sent either"
        );
        session.leave_now().await.expect("sent");
        assert!(session.row_settings.leave().is_none());
    }
}
