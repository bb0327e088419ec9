//! Executes statements that commit implicitly exactly once: definitions, accounts, CREATE TABLE … SELECT
//! with its rows, and the steps of distributed transactions.
//!
//! Each runs under `gtid_next = <its source GTID>`: the target records the GTID together with the
//! statement's effect, so after a crash its own `gtid_executed` shows whether it took effect
//! (<https://dev.mysql.com/doc/refman/en/replication-options-gtids.html>). Where that is not permitted
//! or not known, an entry in `csa.statement` at least records that it was begun.

mod not_transactional;

use std::sync::Arc;
use std::time::Duration;

use csa_provider::{
    Dialect, EventType, Gtid, Lexer, QueryEvent, SessionContext, Statement, XaVerb, first_words,
};
use csa_scheduler::{Group, GroupKind, flattened_events};
use tracing::{info, warn};

use super::mariadb;
use crate::error::server_text::ServerText;
use crate::options::{ApplierOptions, TargetGtids, TargetOptions};
use crate::ownership::checkpoint;
use crate::ownership::control::{ControlSession, fenced};
use crate::ownership::intent::{self, Intent};
use crate::rows::executor::RowExecutor;
use crate::rows::image::Step;
use crate::rows::steps::Steps;
use crate::statement::context::{self, Restricted, RestrictedRow};
use crate::statement::progress;
use crate::statement::text;
use crate::status::{ApplierStatus, Party};
use crate::target::as_source;
use crate::target::definitions::tables::TargetTables;
use crate::target::retry;
use crate::target::session::Session;
use crate::target::sql::identifier;
use crate::{Error, ErrorClass, Result, Vendor};

/// The checkpoint row that statements write: worker 0's, which no group uses while a statement runs.
const WORKER: u16 = 0;
/// Unknown database: a default database that the statement does not need may be gone by now.
const UNKNOWN_DATABASE: u16 = 1049;
const DENIED_SCHEMA: u16 = 1044;
const DENIED: u16 = 1045;
const DENIED_TABLE: u16 = 1142;
const DENIED_PRIVILEGE: u16 = 1227;
const UNKNOWN_VARIABLE: u16 = 1193;
/// `XAER_NOTA`: no such distributed transaction.
const UNKNOWN_XID: u16 = 1397;

#[derive(Debug)]
pub(crate) struct StatementExecutor {
    control: ControlSession,
    target: TargetOptions,
    options: ApplierOptions,
    status: Arc<ApplierStatus>,
    tables: Arc<TargetTables>,
}

/// A transaction's first statement with its session on the source.
struct SourceStatement {
    gtid: String,
    kind: Statement,
    /// Its first words, for the status.
    words: String,
    /// Default database, by its name on the target.
    database: String,
    /// The xid of an XA START.
    xid: Option<String>,
    /// The text to run instead of its own.
    changed: Option<Vec<u8>>,
    /// The reason why MariaDB would execute it differently.
    objection: Option<String>,
    context: SessionContext,
    timestamp: u32,
    /// Error the statement ended with on the source; 0 for none.
    error_code: u16,
    /// The reason why it must neither be executed nor left out.
    refusal: Option<String>,
}

impl StatementExecutor {
    pub(crate) fn new(
        control: ControlSession,
        target: TargetOptions,
        options: ApplierOptions,
        status: Arc<ApplierStatus>,
        tables: Arc<TargetTables>,
    ) -> Self {
        Self { control, target, options, status, tables }
    }

    /// Executes the group's one transaction and writes the checkpoint.
    ///
    /// # Errors
    /// Errors that stop the channel.
    pub(crate) async fn apply(&mut self, group: &Arc<Group>) -> Result<()> {
        let statement = match group.kind {
            GroupKind::NotTransactional => not_transactional::read(group)?,
            _ => read(group)?,
        };
        self.status.statement_started(&statement.gtid, statement.words.clone());
        let outcome = self.execute_once(group, &statement).await;
        self.status.statement_ended();
        if group.kind == GroupKind::Statement || outcome.is_err() {
            self.tables.forget();
        }
        outcome
    }

    async fn execute_once(
        &mut self,
        group: &Arc<Group>,
        statement: &SourceStatement,
    ) -> Result<()> {
        let mut retries = 0;
        let mut pause = self.options.connect_retry;
        loop {
            let error = match self.attempt(group, statement).await {
                Ok(()) => {
                    self.status.target_reached(Party::Control);
                    return Ok(());
                }
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Retry if retries < self.options.transaction_retries => {
                    retries += 1;
                    self.status.retried();
                    info!(gtid = %statement.gtid, retries, %error, "statement failed, trying again");
                    tokio::time::sleep(retry::pause(retries)).await;
                }
                ErrorClass::Unavailable => {
                    self.status.target_lost(Party::Control, &error);
                    warn!(gtid = %statement.gtid, %error, "target unavailable, waiting for it");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(self.options.connect_retry_max);
                    self.reopen(&mut pause).await?;
                }
                _ => return Err(named(statement, error, self.control.session.vendor())),
            }
        }
    }

    /// Keeps the lock: pings the session, and opens it again if it was lost.
    pub(crate) async fn keep_alive(&mut self) -> Result<()> {
        match self.control.ping().await {
            Ok(()) => Ok(()),
            Err(error) if error.class() == ErrorClass::Unavailable => self.regain(&error).await,
            Err(error) if error.is_passing() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Finds out whether the target takes writes, and waits until it does.
    pub(crate) async fn look_writable(&mut self) -> Result<()> {
        match self.control.probe().await {
            Err(error) if error.class() == ErrorClass::Unavailable => self.regain(&error).await,
            Err(error) if error.is_passing() => Ok(()),
            other => other,
        }
    }

    async fn regain(&mut self, error: &Error) -> Result<()> {
        self.status.target_lost(Party::Control, error);
        warn!(%error, "control session lost, opening it again");
        let mut pause = self.options.connect_retry;
        self.reopen(&mut pause).await
    }

    /// The daemon's identity, by which its sessions on the target are recognised.
    pub(crate) fn identity(&self) -> &str {
        &self.control.identity
    }

    /// For queries about the server; a failed one is repeated later.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.control.session
    }

    /// Brings the target's GTIDs level with the checkpoint, or the checkpoint level with them.
    pub(crate) async fn level(&mut self) -> Result<()> {
        // On a server that may lack some of it, nothing may be stated as executed.
        if !self.control.is_held {
            return Ok(());
        }
        match self.target.gtids {
            TargetGtids::Own => Ok(()),
            TargetGtids::Mirror => self.control.mirror(&self.status.executed()).await,
            TargetGtids::Source => {
                let (sequence, executed) = self.status.progress();
                self.control.note_progress(sequence, &executed).await
            }
        }
    }

    /// The transaction in `csa.statement`: it was begun, and can't be rolled back.
    pub(crate) async fn begun(&mut self) -> Result<Option<Gtid>> {
        loop {
            match intent::begun(&mut self.control.session, &self.options.channel).await {
                Err(error) if error.is_passing() => self.keep_alive().await?,
                other => return other,
            }
        }
    }

    /// Adds checkpoint rows until so many workers have one.
    pub(crate) async fn add_workers(&mut self, workers: u16) -> Result<()> {
        loop {
            match self.control.add_workers(workers).await {
                Err(error) if error.is_passing() => self.look_writable().await?,
                other => return other,
            }
        }
    }

    pub(crate) async fn close(self) {
        self.control.close().await;
    }

    async fn reopen(&mut self, pause: &mut Duration) -> Result<()> {
        loop {
            let status = Arc::clone(&self.status);
            match self.control.reopen(&self.target, || status.executed()).await {
                Ok(()) => {
                    info!(
                        connection = self.control.session.id(),
                        "the channel is held on the target again"
                    );
                    self.status.target_reached(Party::Control);
                    return Ok(());
                }
                Err(error) if error.is_passing() => {
                    self.status.target_lost(Party::Control, &error);
                    warn!(%error, "target unavailable, trying again in {pause:?}");
                    tokio::time::sleep(*pause).await;
                    *pause = (*pause * 2).min(self.options.connect_retry_max);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn attempt(&mut self, group: &Arc<Group>, statement: &SourceStatement) -> Result<()> {
        if group.kind == GroupKind::NotTransactional {
            return self.attempt_rows(group, &statement.gtid).await;
        }
        if !self.options.statement_gtids {
            return self.attempt_announced(group, statement).await;
        }
        let rows = RowExecutor::new(&self.options, Arc::clone(&self.tables));
        let session = &mut self.control.session;
        let hidden = self.target.gtids.hides_bookkeeping();
        if !session.has_executed(&statement.gtid).await? {
            if let Some(refusal) = &statement.refusal {
                return Err(refused(&statement.gtid, refusal));
            }
            // The server records a statement and its GTID together only with the binary log, so
            // statements are logged even where the rest is kept out of it.
            if hidden {
                session.run("SET SESSION sql_log_bin=1").await?;
            }
            let connection = session.id();
            let outcome = tokio::select! {
                outcome = execute(session, group, statement, rows, true) => outcome,
                never = progress::follow(&self.target, connection, &self.status) => match never {},
            };
            leave(session, true).await?;
            outcome?;
            // A statement that failed as on the source, or changed nothing, leaves its GTID unused.
            if !session.has_executed(&statement.gtid).await? {
                session.consume(&statement.gtid).await?;
            }
            if hidden {
                session.run("SET SESSION sql_log_bin=0").await?;
            }
        }
        // A crash before this finds the GTID in gtid_executed, and only this is left to do.
        self.write_checkpoint(group).await
    }

    /// For targets that don't record the source's GTID with a statement.
    async fn attempt_announced(
        &mut self,
        group: &Arc<Group>,
        statement: &SourceStatement,
    ) -> Result<()> {
        let channel = self.options.channel.clone();
        let rows = RowExecutor::new(&self.options, Arc::clone(&self.tables));
        let session = &mut self.control.session;
        let executed = &group.executed_after;
        let known = intent::find(session, &channel, &statement.gtid, executed).await?;
        if known == Intent::None {
            if let Some(refusal) = &statement.refusal {
                return Err(by_hand(&statement.gtid, refusal));
            }
            // Committed first: a crash until the COMMIT below finds the entry, and the operator decides.
            session.run(intent::announce(&channel, &statement.gtid)).await?;
            let connection = session.id();
            let outcome = tokio::select! {
                outcome = execute(session, group, statement, rows, false) => outcome,
                never = progress::follow(&self.target, connection, &self.status) => match never {},
            };
            leave(session, false).await?;
            if outcome.is_err() {
                // `leave` succeeded, so the server still answers: the statement failed and had no
                // effect.
                session.run(intent::withdraw(&channel)).await?;
            }
            outcome?;
        }
        self.control.session.run("BEGIN").await?;
        self.write_checkpoint(group).await?;
        let session = &mut self.control.session;
        session.run(intent::withdraw(&channel)).await?;
        session.run("COMMIT").await.map(drop)
    }

    async fn write_checkpoint(&mut self, group: &Group) -> Result<()> {
        if self.target.gtids == TargetGtids::Source {
            return self.control.note_progress(group.sequence, &group.executed_after).await;
        }
        let epoch = self.control.checkpoint().epoch;
        let channel = &self.options.channel;
        let update =
            checkpoint::update(channel, WORKER, epoch, group.sequence, &group.executed_after);
        match self.control.session.run(update).await?.first() {
            Some(1) => Ok(()),
            _ => Err(fenced(channel, "another daemon took it over".to_owned())),
        }
    }
}

fn read(group: &Group) -> Result<SourceStatement> {
    let Some(transaction) = group.transactions.first() else {
        return Err(Error::Relay("a group without transactions".to_owned()));
    };
    let gtid = transaction.relayed.header.gtid.to_string();
    let unsupported = |what: String| Error::Unsupported { gtid: gtid.clone(), what };
    for event in flattened_events(&transaction.relayed) {
        let event = event?;
        if event.event_type() == EventType::QUERY {
            let query = QueryEvent::parse(event.body())
                .map_err(|error| unsupported(format!("unreadable query event: {error}")))?;
            let mut context = query
                .context()
                .map_err(|error| unsupported(format!("unreadable statement context: {error}")))?;
            let (kind, dialect) = Statement::read(&query);
            if kind == Statement::Begin {
                continue;
            }
            // Only a text that the server wrote itself is not in the character set that the event
            // states.
            if dialect.is_utf8()
                && !Dialect::of(&context).is_utf8()
                && let Some(charset) = &mut context.charset
            {
                charset.client = context::UTF8MB4_GENERAL_CI;
            }
            let changed = match kind {
                Statement::Ddl => text::on_replica(query.statement, &context)
                    .map_err(|why| unsupported(format!("statement can't be repeated: {why}")))?,
                _ => None,
            };
            let objection = match kind {
                Statement::Ddl => mariadb::differences::objection(query.statement, &context),
                _ => None,
            };
            let database = String::from_utf8_lossy(query.database);
            return Ok(SourceStatement {
                kind,
                words: first_words(query.statement, dialect),
                database: transaction.filters.schema(&database).into_owned(),
                xid: started_xid(kind, query.statement),
                changed,
                objection,
                context,
                timestamp: event.header().timestamp,
                error_code: query.error_code,
                refusal: transaction.refusal.clone(),
                gtid,
            });
        }
    }
    Err(unsupported("no statement in it".to_owned()))
}

impl SourceStatement {
    fn has_rows(&self) -> bool {
        matches!(self.kind, Statement::CreateTableStartTransaction | Statement::Xa(XaVerb::Start))
    }
}

fn started_xid(kind: Statement, statement: &[u8]) -> Option<String> {
    if kind != Statement::Xa(XaVerb::Start) {
        return None;
    }
    // The server writes this statement itself, in ASCII.
    let start = Lexer::new(statement, Dialect::default()).nth(1)?.ok()?;
    let xid = String::from_utf8_lossy(statement.get(start.range().end..)?);
    Some(xid.trim().to_owned())
}

async fn execute(
    session: &mut Session,
    group: &Arc<Group>,
    statement: &SourceStatement,
    mut rows: RowExecutor,
    under_gtid: bool,
) -> Result<()> {
    let vendor = session.vendor();
    if let Some(objection) = statement.objection.as_ref().filter(|_| vendor == Vendor::MariaDb) {
        return Err(by_hand(&statement.gtid, objection));
    }
    if statement.has_rows() {
        may_have_rows(statement, &rows, under_gtid, vendor)?;
        rows.prepare(session, group.format()).await?;
    }
    if statement.xid.is_some() {
        detach_on_prepare(session, &statement.gtid).await?;
    }
    use_database(session, &statement.database).await?;
    let context = match vendor {
        Vendor::MySql => mysql_context(session, statement).await?,
        Vendor::MariaDb => mariadb_context(session, statement).await?,
    };
    let mut settings = vec![];
    let header = group.transactions.first().map(|transaction| &transaction.relayed.header);
    if let Some(header) = header.filter(|_| under_gtid) {
        settings.push(as_source::identity(header));
    }
    // The SQL executor writes values in the session that it set up, in UTC and UTF-8.
    if !statement.has_rows() || rows.takes_row_images() {
        settings.push(context);
    }
    session.run(format!("SET SESSION {}", settings.join(", "))).await?;
    let mut steps = Steps::as_logged(group, rows.step_bytes(session));
    let mut begun = false;
    while let Some(step) = steps.next().await {
        let step = match (step, &statement.changed) {
            (Ok(Step::Statement(_)), Some(text)) => Ok(Step::Statement(text.clone())),
            (step, _) => step,
        };
        match run(session, &mut rows, step).await {
            Ok(()) => begun = true,
            Err(error)
                if statement.error_code != 0 && error.code() == Some(statement.error_code) =>
            {
                info!(gtid = %statement.gtid, code = statement.error_code,
                    "statement failed as it did on the source");
            }
            Err(error) => {
                if let (true, Some(xid)) = (begun, &statement.xid) {
                    abandon(session, xid).await;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Assignments with which the statement means what it did on the source.
async fn mysql_context(session: &mut Session, statement: &SourceStatement) -> Result<String> {
    let now: Vec<RestrictedRow> = session.rows(Restricted::QUERY).await?;
    let Some(now) = now.into_iter().next().map(Restricted::from) else {
        return Err(Error::Relay("the target returned no session variables".to_owned()));
    };
    let switched_on = session.rows::<(String, String)>(Restricted::SWITCHED_ON).await?;
    let now = now.with_switched_on(switched_on.into_iter().map(|(name, _)| name).collect());
    Ok(context::assignments(&statement.context, statement.timestamp, &now))
}

async fn mariadb_context(session: &mut Session, statement: &SourceStatement) -> Result<String> {
    let context = mariadb::context::assignments(&statement.context, statement.timestamp);
    let mut context = context
        .map_err(|why| by_hand(&statement.gtid, &format!("its session on the source: {why}")))?;
    // MariaDB has other default collations of character sets since 11.2.
    let defaults: Vec<(String, String)> =
        session.rows("SHOW SESSION VARIABLES LIKE 'character_set_collations'").await?;
    if !defaults.is_empty() {
        context.push_str(", character_set_collations=''");
    }
    Ok(context)
}

/// Refuses a transaction with rows that this executor can't write.
fn may_have_rows(
    statement: &SourceStatement,
    rows: &RowExecutor,
    under_gtid: bool,
    vendor: Vendor,
) -> Result<()> {
    let what = match statement.kind {
        Statement::CreateTableStartTransaction if vendor == Vendor::MariaDb => {
            let why = "CREATE TABLE … SELECT is one transaction only on MySQL; use CREATE TABLE and \
                INSERT … SELECT on the source";
            return Err(by_hand(&statement.gtid, why));
        }
        Statement::Xa(_) if vendor == Vendor::MariaDb => {
            let why = "distributed transactions (XA) need the GTIDs of MySQL";
            return Err(by_hand(&statement.gtid, why));
        }
        Statement::CreateTableStartTransaction if !rows.takes_row_images() => {
            "CREATE TABLE … SELECT is one transaction only with row images: permit them on the \
             target (GRANT REPLICATION_APPLIER, executor = \"row-image\"), or use CREATE TABLE \
             and INSERT … SELECT on the source"
        }
        _ if !under_gtid => {
            "distributed transactions (XA) need a target that runs them under the source's GTID: \
             gtid_mode=ON and GRANT REPLICATION_APPLIER"
        }
        _ => return Ok(()),
    };
    Err(Error::Unsupported { gtid: statement.gtid.clone(), what: what.to_owned() })
}

async fn run(session: &mut Session, rows: &mut RowExecutor, step: Result<Step>) -> Result<()> {
    match step? {
        Step::Statement(text) => session.run(text).await.map(drop),
        Step::RowImages(images) => rows.send(session, None, images).await.map(drop),
    }
}

/// Rolls back a distributed transaction that this session began and could not prepare: a plain ROLLBACK
/// does not end it.
async fn abandon(session: &mut Session, xid: &str) {
    for verb in ["END", "ROLLBACK"] {
        // XA END fails if it was executed already; the loss of the session ends the transaction anyway.
        let _ = session.run(format!("XA {verb} {xid}")).await;
    }
}

/// Sets `xa_detach_on_prepare`: else the session could only end the distributed transaction it prepared
/// (<https://dev.mysql.com/doc/refman/en/xa-states.html>).
async fn detach_on_prepare(session: &mut Session, gtid: &str) -> Result<()> {
    match session.rows::<bool>("SELECT @@SESSION.xa_detach_on_prepare").await {
        Ok(rows) if rows.first() == Some(&true) => Ok(()),
        Ok(_) => session.run("SET SESSION xa_detach_on_prepare=ON").await.map(drop),
        Err(error) if error.code() == Some(UNKNOWN_VARIABLE) => Err(Error::Unsupported {
            gtid: gtid.to_owned(),
            what: "distributed transactions (XA) need a target of MySQL 8.0.29 or newer".to_owned(),
        }),
        Err(error) => Err(error),
    }
}

/// Selects the default database. A session can't be without one again, so instead of a missing
/// database it gets one in which nothing can be created: an unqualified name is then an error, not
/// another table.
async fn use_database(session: &mut Session, database: &str) -> Result<()> {
    if !database.is_empty() {
        match session.run(format!("USE {}", identifier(database))).await {
            Err(error) if error.code() == Some(UNKNOWN_DATABASE) => {}
            other => return other.map(drop),
        }
    }
    session.run("USE information_schema").await.map(drop)
}

/// Ends a transaction that a statement left open and restores the session's own settings.
///
/// The character set comes first: under the source's `collation_connection` (ucs2, utf16, utf32) the
/// server would misread string literals of ours.
async fn leave(session: &mut Session, under_gtid: bool) -> Result<()> {
    session.run("ROLLBACK").await?;
    session.run("SET NAMES utf8mb4").await?;
    if under_gtid {
        session.run(as_source::AUTOMATIC).await?;
    }
    session.run(context::DEFAULTS).await?;
    session.set_up().await
}

/// The error for a statement that the operator has to decide about. One that the target has executed is
/// passed over, so executing it there by hand is how to proceed.
fn refused(gtid: &str, why: &str) -> Error {
    Error::Unsupported {
        gtid: gtid.to_owned(),
        what: format!(
            "{why}; on the target run SET gtid_next='{gtid}', then what it should do there (or BEGIN; \
             COMMIT to leave it out), then SET gtid_next='AUTOMATIC', and start the channel again"
        ),
    }
}

/// The same where the target does not record executed statements.
fn by_hand(gtid: &str, why: &str) -> Error {
    Error::Unsupported { gtid: gtid.to_owned(), what: format!("{why}; {}", way_on_by_hand(gtid)) }
}

fn way_on_by_hand(gtid: &str) -> String {
    format!(
        "for this one run on the target what it should do there, if anything, then: csa-daemon skip \
         {gtid}"
    )
}

fn named(statement: &SourceStatement, error: Error, vendor: Vendor) -> Error {
    let gtid = &statement.gtid;
    match error.code() {
        Some(code) if !matches!(error, Error::Transaction { .. }) => Error::Transaction {
            gtid: gtid.clone(),
            of: statement.words.clone(),
            code,
            row: None,
            message: explained(code, error.server_text(), gtid, vendor),
        },
        _ => error,
    }
}

/// The server's message, with what to do about it where that is known.
fn explained(code: u16, mut said: ServerText, gtid: &str, vendor: Vendor) -> ServerText {
    match code {
        UNKNOWN_XID => {
            return ServerText::own(
                "the target has no such prepared transaction: it was provisioned between its PREPARE \
                 and its end; provision it again, or execute there what the source's binary log holds \
                 of it",
            );
        }
        _ if vendor == Vendor::MariaDb => {
            said.push(&format!(" (MariaDB); {}", way_on_by_hand(gtid)));
        }
        DENIED | DENIED_SCHEMA | DENIED_TABLE | DENIED_PRIVILEGE => said.push(
            "; the channel's account lacks a privilege for it (csa-daemon check --connect names \
             the usual ones; a GRANT needs what it grants, WITH GRANT OPTION)",
        ),
        _ => {}
    }
    said
}
