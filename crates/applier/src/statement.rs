//! Executes a statement that commits by itself (DDL, account management) exactly once.
//!
//! It runs under `gtid_next = <its source GTID>`: the target records the GTID together with the
//! statement's effect, so after a crash its own `gtid_executed` says whether it happened
//! (<https://dev.mysql.com/doc/refman/en/replication-options-gtids.html>).

use std::sync::Arc;
use std::time::Duration;

use csa_provider::{EventType, QueryEvent, SessionContext};
use csa_scheduler::{Group, flattened_events};
use tracing::{info, warn};

use crate::applier::is_passing;
use crate::checkpoint;
use crate::control::{ControlSession, fenced};
use crate::options::{ApplierOptions, TargetOptions};
use crate::session::{PRELUDE, Session};
use crate::sql::identifier;
use crate::statement_context::{self, Restricted};
use crate::status::ApplierStatus;
use crate::worker::{retry_pause, server_message};
use crate::{Error, ErrorClass, Result};

/// The checkpoint row that statements write; no group runs beside a statement.
const WORKER: u16 = 0;
/// Unknown database: a default database that the statement does not need may be gone by now.
const UNKNOWN_DATABASE: u16 = 1049;

#[derive(Debug)]
pub(crate) struct StatementExecutor {
    control: ControlSession,
    target: TargetOptions,
    options: ApplierOptions,
    status: Arc<ApplierStatus>,
}

/// One statement with what it was executed under on the source.
struct SourceStatement {
    gtid: String,
    /// Default database, as it is called on the target.
    database: String,
    text: Vec<u8>,
    context: SessionContext,
    timestamp: u32,
    /// Error the statement ended with on the source; 0 for none.
    error_code: u16,
    /// Why it must not be executed, and not be left out either.
    refusal: Option<String>,
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

    /// Executes the group's one statement and writes the checkpoint.
    ///
    /// # Errors
    /// What stops the channel.
    pub(crate) async fn apply(&mut self, group: &Group) -> Result<()> {
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

    /// Brings the target's GTIDs level, where they are to follow the source's.
    pub(crate) async fn mirror(&mut self) -> Result<()> {
        if self.target.write_binlog {
            return Ok(());
        }
        let executed = self.status.executed();
        self.control.mirror(&executed).await
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

    async fn attempt(&mut self, group: &Group, statement: &SourceStatement) -> Result<()> {
        let session = &mut self.control.session;
        if !is_executed(session, &statement.gtid).await? {
            // Only with the binary log are a statement and its GTID recorded together, so what is
            // else kept out of it is not.
            if let Some(refusal) = &statement.refusal {
                return Err(refused(&statement.gtid, refusal));
            }
            if !self.target.write_binlog {
                session.run("SET SESSION sql_log_bin=1").await?;
            }
            let outcome = execute(session, statement).await;
            leave(session).await?;
            outcome?;
            if !is_executed(session, &statement.gtid).await? {
                consume(session, &statement.gtid).await?;
            }
            if !self.target.write_binlog {
                session.run("SET SESSION sql_log_bin=0").await?;
            }
        }
        self.write_checkpoint(group).await
    }

    async fn write_checkpoint(&mut self, group: &Group) -> Result<()> {
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
            let database = String::from_utf8_lossy(query.database);
            return Ok(SourceStatement {
                database: transaction.filters.schema(&database).into_owned(),
                text: query.statement.to_vec(),
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

async fn is_executed(session: &mut Session, gtid: &str) -> Result<bool> {
    let query = format!("SELECT GTID_SUBSET('{gtid}', @@GLOBAL.gtid_executed)");
    let rows: Vec<u8> = session.rows(&query).await?;
    Ok(rows.first() == Some(&1))
}

async fn execute(session: &mut Session, statement: &SourceStatement) -> Result<()> {
    use_database(session, &statement.database).await?;
    let now: Vec<(bool, bool, bool, u64)> = session.rows(Restricted::QUERY).await?;
    let Some(now) = now.into_iter().next().map(Restricted::from) else {
        return Err(Error::Relay("the target returned no session variables".to_owned()));
    };
    let context = statement_context::assignments(&statement.context, statement.timestamp, &now);
    let set = format!("SET SESSION gtid_next='{}'{context}", statement.gtid);
    session.run(set).await?;
    match session.run(&statement.text).await {
        Err(error) if statement.error_code != 0 && error.code() == Some(statement.error_code) => {
            info!(gtid = %statement.gtid, code = statement.error_code,
                "statement failed as it did on the source");
            Ok(())
        }
        other => other.map(drop),
    }
}

/// A session can't leave its default database, so one that is gone is replaced by one in which
/// nothing can be created by mistake: an unqualified name is then an error, not another table.
async fn use_database(session: &mut Session, database: &str) -> Result<()> {
    if !database.is_empty() {
        match session.run(format!("USE {}", identifier(database))).await {
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

/// A statement for the operator to decide. One that the target has executed is passed over, so that is
/// the way on.
fn refused(gtid: &str, why: &str) -> Error {
    Error::Unsupported {
        gtid: gtid.to_owned(),
        what: format!(
            "{why}; on the target run SET gtid_next='{gtid}', then what it should do there (or BEGIN; \
             COMMIT to leave it out), then SET gtid_next='AUTOMATIC', and start the channel again"
        ),
    }
}

fn named(gtid: &str, error: Error) -> Error {
    match error.code() {
        Some(code) if !matches!(error, Error::Transaction { .. }) => Error::Transaction {
            gtid: gtid.to_owned(),
            of: "a statement".to_owned(),
            code,
            message: server_message(&error),
        },
        _ => error,
    }
}
