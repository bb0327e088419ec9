//! Executes what commits by itself exactly once: definitions, accounts, CREATE TABLE … SELECT with
//! its rows, and the steps of distributed transactions.
//!
//! Each runs under `gtid_next = <its source GTID>`: the target records the GTID together with the
//! statement's effect, so after a crash its own `gtid_executed` says whether it happened
//! (<https://dev.mysql.com/doc/refman/en/replication-options-gtids.html>).

use std::sync::Arc;
use std::time::Duration;

use csa_provider::{EventType, QueryEvent, SessionContext, Statement, XaVerb};
use csa_scheduler::{Group, flattened_events};
use tracing::{info, warn};

use crate::applier::is_passing;
use crate::checkpoint;
use crate::control::{ControlSession, fenced};
use crate::options::{ApplierOptions, ExecMode, TargetGtids, TargetOptions};
use crate::row_image::Step;
use crate::session::{PRELUDE, Session, push_binlog};
use crate::sql::identifier;
use crate::statement_context::{self, Restricted};
use crate::statement_text;
use crate::status::ApplierStatus;
use crate::steps::Steps;
use crate::worker::{retry_pause, server_message};
use crate::{Error, ErrorClass, Result};

/// The checkpoint row that statements write; no group runs beside a statement.
const WORKER: u16 = 0;
/// Unknown database: a default database that the statement does not need may be gone by now.
const UNKNOWN_DATABASE: u16 = 1049;
const UNKNOWN_VARIABLE: u16 = 1193;
const ACCESS_DENIED: u16 = 1227;
const UNKNOWN_VARIABLE: u16 = 1193;
/// `XAER_NOTA`: no such distributed transaction.
const UNKNOWN_XID: u16 = 1397;

#[derive(Debug)]
pub(crate) struct StatementExecutor {
    control: ControlSession,
    target: TargetOptions,
    options: ApplierOptions,
    status: Arc<ApplierStatus>,
}

/// A transaction's first statement with what it was executed under on the source.
struct SourceStatement {
    gtid: String,
    kind: Statement,
    database: Vec<u8>,
    /// The number in XA START.
    xid: Option<String>,
    /// What is run instead of its text.
    changed: Option<Vec<u8>>,
    context: SessionContext,
    timestamp: u32,
    /// Error the statement ended with on the source; 0 for none.
    error_code: u16,
}

impl StatementExecutor {
    pub(crate) fn new(
        control: ControlSession,
        target: TargetOptions,
        options: ApplierOptions,
        status: Arc<ApplierStatus>,
    ) -> Self {
        Self { control, target, options, status }
    }

    /// Executes the group's one transaction and writes the checkpoint.
    ///
    /// # Errors
    /// What stops the channel.
    pub(crate) async fn apply(&mut self, group: &Arc<Group>) -> Result<()> {
        let statement = read(group)?;
        let mut retries = 0;
        let mut pause = self.options.connect_retry;
        loop {
            let error = match self.attempt(group, &statement).await {
                Ok(()) => {
                    self.status.target_reached();
                    return Ok(());
                }
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Retry if retries < self.options.transaction_retries => {
                    retries += 1;
                    self.status.retried();
                    info!(gtid = %statement.gtid, retries, %error, "statement failed, trying again");
                    tokio::time::sleep(retry_pause(retries)).await;
                }
                ErrorClass::Unavailable => {
                    self.status.target_lost(&error);
                    warn!(gtid = %statement.gtid, %error, "target unavailable, waiting for it");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(self.options.connect_retry_max);
                    self.reopen(&mut pause).await?;
                }
                _ => return Err(named(&statement.gtid, error)),
            }
        }
    }

    /// Keeps the lock: pings the session, and opens it again when it was lost.
    pub(crate) async fn keep_alive(&mut self) -> Result<()> {
        match self.control.ping().await {
            Ok(()) => {
                self.status.target_reached();
                Ok(())
            }
            Err(error) if is_passing(&error) => {
                self.status.target_lost(&error);
                warn!(%error, "control session lost, opening it again");
                let mut pause = self.options.connect_retry;
                self.reopen(&mut pause).await
            }
            Err(error) => Err(error),
        }
    }

    /// For questions about the server; what it fails to answer is asked again later.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.control.session
    }

    /// Brings the target's GTIDs level with the checkpoint, or the checkpoint level with them.
    pub(crate) async fn level(&mut self) -> Result<()> {
        match self.target.gtids {
            TargetGtids::Own => Ok(()),
            TargetGtids::Mirror => self.control.mirror(&self.status.executed()).await,
            TargetGtids::Source => {
                let (sequence, executed) = self.status.progress();
                self.control.note_progress(sequence, &executed).await
            }
        }
    }

    /// Makes sure that so many workers have their checkpoint rows.
    pub(crate) async fn add_workers(&mut self, workers: u16) -> Result<()> {
        loop {
            match self.control.add_workers(workers).await {
                Err(error) if is_passing(&error) => self.keep_alive().await?,
                other => return other,
            }
        }
    }

    pub(crate) async fn close(self) {
        self.control.close().await;
    }

    async fn reopen(&mut self, pause: &mut Duration) -> Result<()> {
        loop {
            match self.control.reopen(&self.target).await {
                Ok(()) => {
                    self.status.target_reached();
                    return Ok(());
                }
                Err(error) if is_passing(&error) => {
                    self.status.target_lost(&error);
                    tokio::time::sleep(*pause).await;
                    *pause = (*pause * 2).min(self.options.connect_retry_max);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn attempt(&mut self, group: &Arc<Group>, statement: &SourceStatement) -> Result<()> {
        let limit = self.options.statement_bytes;
        let mode = self.options.exec_mode;
        let session = &mut self.control.session;
        let hidden = self.target.gtids.hides_bookkeeping();
        if !session.has_executed(&statement.gtid).await? {
            // Only with the binary log are a statement and its GTID recorded together, so what is
            // else kept out of it is not.
            if hidden {
                session.run("SET SESSION sql_log_bin=1").await?;
            }
            let outcome = execute(session, group, statement, mode, limit).await;
            leave(session).await?;
            outcome?;
            if !session.has_executed(&statement.gtid).await? {
                consume(session, &statement.gtid).await?;
            }
            if hidden {
                session.run("SET SESSION sql_log_bin=0").await?;
            }
        }
        self.write_checkpoint(group).await
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
            let context = query
                .context()
                .map_err(|error| unsupported(format!("unreadable statement context: {error}")))?;
            let kind = Statement::classify(query.statement);
            if kind == Statement::Begin {
                continue;
            }
            let changed = match kind {
                Statement::Ddl => statement_text::on_replica(query.statement, &context)
                    .map_err(|why| unsupported(format!("statement can't be repeated: {why}")))?,
                _ => None,
            };
            return Ok(SourceStatement {
                kind,
                database: query.database.to_vec(),
                xid: started_xid(kind, query.statement),
                changed,
                context,
                timestamp: event.header().timestamp,
                error_code: query.error_code,
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
    let text = String::from_utf8_lossy(statement);
    let (_, xid) = text.split_once("START ")?;
    (kind == Statement::Xa(XaVerb::Start)).then(|| xid.trim().to_owned())
}

/// `limit`: bytes of row images in one BINLOG statement.
async fn execute(
    session: &mut Session,
    group: &Arc<Group>,
    statement: &SourceStatement,
    mode: ExecMode,
    limit: usize,
) -> Result<()> {
    if statement.has_rows() {
        session.use_format(group.format(), mode).await?;
    }
    if statement.xid.is_some() {
        detach_on_prepare(session, &statement.gtid).await?;
    }
    use_database(session, &statement.database).await?;
    let now: Vec<(bool, bool, bool, u64)> = session.rows(Restricted::QUERY).await?;
    let Some(now) = now.into_iter().next().map(Restricted::from) else {
        return Err(Error::Relay("the target returned no session variables".to_owned()));
    };
    let switched_on = session.rows::<(String, String)>(Restricted::SWITCHED_ON).await?;
    let now = now.with_switched_on(switched_on.into_iter().map(|(name, _)| name).collect());
    allow_any_parent_key(session).await?;
    let context = statement_context::assignments(&statement.context, statement.timestamp, &now);
    let set = format!("SET SESSION gtid_next='{}'{context}", statement.gtid);
    session.run(set).await?;
    let mut steps = Steps::as_logged(group, limit.min(session.row_image_bytes()));
    let mut begun = false;
    while let Some(step) = steps.next().await {
        let step = match (step, &statement.changed) {
            (Ok(Step::Statement(_)), Some(text)) => Ok(Step::Statement(text.clone())),
            (step, _) => step,
        };
        match run(session, step).await {
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

async fn run(session: &mut Session, step: Result<Step>) -> Result<()> {
    match step? {
        Step::Statement(text) => session.run(text).await.map(drop),
        Step::RowImages(images) => {
            let mut statement = Vec::new();
            push_binlog(&mut statement, &images);
            session.run(statement).await.map(drop)
        }
    }
}

/// A distributed transaction that this session began and could not prepare: ROLLBACK does not end it.
async fn abandon(session: &mut Session, xid: &str) {
    for verb in ["END", "ROLLBACK"] {
        // The first fails where XA END was reached; a lost session ends it anyway.
        let _ = session.run(format!("XA {verb} {xid}")).await;
    }
}

/// The source has decided which keys foreign keys may refer to, so a replica does not. Older servers
/// don't ask; without the privilege the statement itself says what it lacks.
async fn allow_any_parent_key(session: &mut Session) -> Result<()> {
    match session.run("SET SESSION restrict_fk_on_non_standard_key=OFF").await {
        Err(error) if matches!(error.code(), Some(UNKNOWN_VARIABLE | ACCESS_DENIED)) => Ok(()),
        other => other.map(drop),
    }
}

/// Else the session could do nothing but end the distributed transaction it prepared
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

/// A session can't leave its default database, so one that is gone is replaced by one in which
/// nothing can be created by mistake: an unqualified name is then an error, not another table.
async fn use_database(session: &mut Session, database: &[u8]) -> Result<()> {
    let name = String::from_utf8_lossy(database);
    if !name.is_empty() {
        match session.run(format!("USE {}", identifier(&name))).await {
            Err(error) if error.code() == Some(UNKNOWN_DATABASE) => {}
            other => return other.map(drop),
        }
    }
    session.run("USE information_schema").await.map(drop)
}

/// Ends whatever the statement left open and gives the session its own settings back.
async fn leave(session: &mut Session) -> Result<()> {
    session.run("ROLLBACK").await?;
    session.run("SET SESSION gtid_next='AUTOMATIC'").await?;
    session.run("SET NAMES utf8mb4").await?;
    session.run(statement_context::DEFAULTS).await?;
    session.run(PRELUDE).await.map(drop)
}

/// Records a GTID whose statement changed nothing here.
async fn consume(session: &mut Session, gtid: &str) -> Result<()> {
    session.run(format!("SET SESSION gtid_next='{gtid}'")).await?;
    session.run("BEGIN").await?;
    session.run("COMMIT").await?;
    session.run("SET SESSION gtid_next='AUTOMATIC'").await.map(drop)
}

fn named(gtid: &str, error: Error) -> Error {
    match error.code() {
        Some(code) if !matches!(error, Error::Transaction { .. }) => Error::Transaction {
            gtid: gtid.to_owned(),
            of: "a statement".to_owned(),
            code,
            message: match code {
                UNKNOWN_XID => "the target has no such prepared transaction: it was provisioned \
                    between its PREPARE and its end; provision it again, or execute there what the \
                    source's binary log holds of it"
                    .to_owned(),
                _ => server_message(&error),
            },
        },
        _ => error,
    }
}
