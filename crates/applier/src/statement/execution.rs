//! Executes one statement on a session that is made like the source's, and restores the session.

use std::sync::Arc;

use csa_provider::sql_text::Statement;
use csa_scheduler::group::Group;
use tracing::{info, warn};

use super::context::{self, Restricted, RestrictedRow};
use super::differences::Reader;
use super::mariadb;
use super::mysql57;
use super::next_steps::by_hand;
use super::source_statement::SourceStatement;
use crate::error::{Error, Result};
use crate::rows::binlog_statements::Step;
use crate::rows::executor::RowExecutor;
use crate::rows::steps::Steps;
use crate::server::as_source;
use crate::server::reached::ReachedServer;
use crate::server::session::Session;
use csa_provider::server::Vendor;
use csa_provider::sql_text::{identifier, quote};

/// Unknown database: a default database that the statement does not need may be gone by now.
const UNKNOWN_DATABASE: u16 = 1049;
const UNKNOWN_VARIABLE: u16 = 1193;

const IGNORED_CHECKS: &str = "it has a CHECK clause, which the source, older than MySQL 8.0.16, has ignored, and which \
     the target would enforce; run it without the clause";

/// Executes the statement, and the rows that belong to it, in a session like the source's, which waits for so
/// many seconds for locks on tables.
///
/// Returns the error with which it ended on the source, if it did not end so here. Histograms are left to servers
/// that have them. `sent` tells whether the target may have got a part of it.
///
/// # Errors
/// Errors of the target; [`Error::Unsupported`] for a statement that it would not repeat as it was.
pub(super) async fn execute(
    session: &mut Session,
    group: &Arc<Group>,
    statement: &SourceStatement,
    rows: RowExecutor,
    patience: u32,
    sent: &mut bool,
) -> Result<Option<u16>> {
    let vendor = session.vendor();
    if vendor != Vendor::MySql && statement.is_of_histograms() {
        return Ok(None);
    }
    may_run(session.server(), statement, &rows)?;
    // Asked before the new column is a key itself.
    let numbered = numbered_without_key(session, statement).await?;
    let mut rows = enter(session, group, statement, rows, patience).await?;
    let mut steps = Steps::as_logged(group, rows.step_bytes(session));
    // XA END and XA ROLLBACK make sense only once XA START has succeeded.
    let mut begun = false;
    let mut missing = Some(statement.error_code).filter(|code| *code != 0);
    while let Some(step) = steps.next().await {
        let step = match (step, &statement.changed) {
            (Ok(Step::Statement(logged)), Some(text)) if !is_frame(&logged) => {
                Ok(Step::Statement(text.clone()))
            }
            (step, _) => step,
        };
        match run(session, &mut rows, step, sent).await {
            Ok(()) => begun = true,
            Err(error)
                if statement.error_code != 0 && error.code() == Some(statement.error_code) =>
            {
                if vendor == Vendor::MySql && !group.format().has_atomic_definitions() {
                    return Err(by_hand(
                        &statement.gtid,
                        statement.under_gtid,
                        &done_in_part(statement.error_code),
                    ));
                }
                info!(gtid = %statement.gtid, code = statement.error_code,
                    "statement failed as it did on the source");
                missing = None;
            }
            Err(error) => {
                if let (true, Some(xid)) = (begun, &statement.xid) {
                    abandon(session, xid).await;
                }
                return Err(error);
            }
        }
    }
    if let Some(table) = numbered {
        warn!(
            gtid = %statement.gtid,
            "a new AUTO_INCREMENT column numbers the rows of {table}, which had no primary key: the target may have \
             numbered them in another order than the source; compare the table (csa-daemon verify), and copy it \
             again where it differs"
        );
    }
    Ok(missing)
}

/// Returns true for the statements that a source logs around one that empties a table.
fn is_frame(statement: &[u8]) -> bool {
    matches!(statement, b"BEGIN" | b"COMMIT")
}

/// Makes the session like the source's, and ready for the rows of the statement. Returns who executes these.
async fn enter(
    session: &mut Session,
    group: &Arc<Group>,
    statement: &SourceStatement,
    mut rows: RowExecutor,
    patience: u32,
) -> Result<RowExecutor> {
    if statement.has_rows() {
        // Before gtid_next is set below, because it leaves AUTOMATIC there.
        rows = ready_for_rows(session, group, statement, rows).await?;
    }
    if statement.xid.is_some() {
        detach_on_prepare(session, statement).await?;
    }
    use_database(session, &statement.database).await?;
    let context = match session.vendor() {
        Vendor::MySql => mysql_context(session, statement).await?,
        Vendor::MySql57 => mysql57_context(session, statement).await?,
        Vendor::MariaDb => mariadb_context(session, statement).await?,
    };
    let mut settings = vec![format!("lock_wait_timeout={patience}")];
    let header = group.transactions.first().map(|transaction| &transaction.relayed.header);
    if let Some(header) = header.filter(|_| statement.under_gtid) {
        settings.push(match session.vendor() {
            Vendor::MySql57 => as_source::gtid_next(&header.gtid),
            Vendor::MySql | Vendor::MariaDb => as_source::identity(header),
        });
    }
    // The SQL executor writes values in the session that it set up, in UTC and UTF-8.
    if !statement.has_rows() || rows.takes_row_images() {
        settings.push(context);
    }
    session.run(format!("SET SESSION {}", settings.join(", "))).await?;
    Ok(rows)
}

/// Refuses a statement that would do something else here, or nothing.
fn may_run(server: &ReachedServer, statement: &SourceStatement, rows: &RowExecutor) -> Result<()> {
    if statement.has_rows() {
        may_have_rows(statement, rows, server.vendor())?;
    }
    if statement.ignored_checks && server.keeps_checks() {
        return Err(by_hand(&statement.gtid, statement.under_gtid, IGNORED_CHECKS));
    }
    if let Some(objection) = statement.objection(Reader::of(server)) {
        return Err(by_hand(&statement.gtid, statement.under_gtid, &objection));
    }
    let takes = server.takes_inline_references();
    if let Some(made) = statement.inline_references.filter(|made| *made != takes) {
        let (one, other) = if made { ("source", "target") } else { ("target", "source") };
        let why = format!(
            "REFERENCES in the definition of a column is a foreign key on the {one}, and on the {other}, \
             which is older than MySQL 9.0, it is nothing; write FOREIGN KEY (…) REFERENCES … on the source"
        );
        return Err(by_hand(&statement.gtid, statement.under_gtid, &why));
    }
    Ok(())
}

/// Returns the table to which the statement adds a column that numbers its rows in the target's own order. From then on
/// the number is the key of a row, so another order of the same rows shows in no error.
async fn numbered_without_key(
    session: &mut Session,
    statement: &SourceStatement,
) -> Result<Option<String>> {
    let Some((schema, table)) = statement.numbered_table() else { return Ok(None) };
    // The rows are in the order of such a key, on both servers.
    let keys = format!(
        "SELECT index_name FROM information_schema.statistics \
         WHERE table_schema={} AND table_name={} AND non_unique=0 GROUP BY index_name \
         HAVING SUM(nullable<>'' OR sub_part IS NOT NULL OR column_name IS NULL)=0",
        quote(&schema),
        quote(&table)
    );
    let has_key = !session.rows::<String>(&keys).await?.is_empty();
    Ok((!has_key).then(|| format!("{schema}.{table}")))
}

/// It is logged with its error because it has changed something.
fn done_in_part(code: u16) -> String {
    format!(
        "it ended with error {code} on the source after it had changed a part of what it names; here the same \
         error leaves all as it was, because definitions are atomic since MySQL 8.0; name only what exists, or \
         use IF EXISTS, on the source"
    )
}

/// Returns the assignments with which the statement means what it did on the source.
async fn mysql_context(session: &mut Session, statement: &SourceStatement) -> Result<String> {
    let now: Vec<RestrictedRow> = session.rows(Restricted::QUERY).await?;
    let Some(now) = now.into_iter().next().map(Restricted::from) else {
        return Err(session.server().unexpected("its session variables"));
    };
    let switched_on = session.rows::<(String, String)>(Restricted::SWITCHED_ON).await?;
    let now = now.with_switched_on(switched_on.into_iter().map(|(name, _)| name).collect());
    Ok(context::assignments(&statement.context, statement.timestamp, &now))
}

async fn mysql57_context(session: &mut Session, statement: &SourceStatement) -> Result<String> {
    let context = mysql57::context(&statement.context).map_err(|why| {
        by_hand(&statement.gtid, statement.under_gtid, &format!("its session on the source: {why}"))
    })?;
    let now: Vec<RestrictedRow> = session.rows(mysql57::RESTRICTED).await?;
    let Some(now) = now.into_iter().next().map(Restricted::from) else {
        return Err(session.server().unexpected("its session variables"));
    };
    Ok(mysql57::assignments(&context, statement.timestamp, now))
}

async fn mariadb_context(session: &mut Session, statement: &SourceStatement) -> Result<String> {
    let context = mariadb::context::assignments(&statement.context, statement.timestamp);
    let mut context = context.map_err(|why| {
        by_hand(&statement.gtid, statement.under_gtid, &format!("its session on the source: {why}"))
    })?;
    // MariaDB has other default collations of character sets since 11.2.
    let defaults: Vec<(String, String)> =
        session.rows("SHOW SESSION VARIABLES LIKE 'character_set_collations'").await?;
    if !defaults.is_empty() {
        context.push_str(", character_set_collations=''");
    }
    Ok(context)
}

/// Refuses a transaction with rows that this executor can't write.
fn may_have_rows(statement: &SourceStatement, rows: &RowExecutor, vendor: Vendor) -> Result<()> {
    let what = match statement.kind {
        Statement::CreateTableStartTransaction if vendor != Vendor::MySql => {
            let why = "CREATE TABLE … SELECT is one transaction only on MySQL 8.0 or newer; use CREATE \
                TABLE and INSERT … SELECT on the source";
            return Err(by_hand(&statement.gtid, statement.under_gtid, why));
        }
        Statement::Xa(_) if vendor == Vendor::MariaDb => {
            let why = "distributed transactions (XA) need the GTIDs of MySQL";
            return Err(by_hand(&statement.gtid, statement.under_gtid, why));
        }
        Statement::CreateTableStartTransaction if !rows.takes_row_images() => {
            "CREATE TABLE … SELECT is one transaction only with row images: permit them on the \
             target (GRANT REPLICATION_APPLIER, executor = \"row-image\"), or use CREATE TABLE \
             and INSERT … SELECT on the source"
        }
        _ if !statement.under_gtid => {
            "distributed transactions (XA) need a target that runs them under the source's GTID: \
             gtid_mode=ON and GRANT REPLICATION_APPLIER"
        }
        _ => return Ok(()),
    };
    Err(Error::Unsupported { gtid: statement.gtid.clone(), what: what.to_owned() })
}

/// Returns the executor, and a session that is set up for the rows that follow the statement.
async fn ready_for_rows(
    session: &mut Session,
    group: &Group,
    statement: &SourceStatement,
    mut rows: RowExecutor,
) -> Result<RowExecutor> {
    if matches!(statement.kind, Statement::CreateTableStartTransaction) {
        may_create_with_rows(session, statement).await?;
        rows = rows.for_created_table();
    }
    rows.prepare(session, group.format()).await?;
    Ok(rows)
}

/// Refuses CREATE TABLE … SELECT on a server without a binary log, which gives the GTID to the empty table: the
/// rows that follow fail with error 1837 (MySQL 9.7.4).
async fn may_create_with_rows(session: &mut Session, statement: &SourceStatement) -> Result<()> {
    let logs: Option<bool> = session.setting("SELECT @@GLOBAL.log_bin").await?;
    if logs != Some(false) {
        return Ok(());
    }
    let why = "CREATE TABLE … SELECT is one transaction only where the target has a binary log; use CREATE TABLE \
        and INSERT … SELECT on the source, or start the target with its binary log";
    Err(by_hand(&statement.gtid, statement.under_gtid, why))
}

/// Runs one step. What it asks of the session before that changes nothing, so `sent` comes after it.
async fn run(
    session: &mut Session,
    rows: &mut RowExecutor,
    step: Result<Step>,
    sent: &mut bool,
) -> Result<()> {
    match step? {
        Step::Statement(text) => session.run_single(text, || *sent = true).await,
        Step::RowImages(images) => {
            session.take_several(true).await?;
            *sent = true;
            rows.send(session, None, images).await.map(drop)
        }
    }
}

/// Rolls back a distributed transaction that this session began and could not prepare: a plain ROLLBACK
/// does not end it.
async fn abandon(session: &mut Session, xid: &str) {
    // Before PREPARE this uses up no GTID, with or without a binary log (measured on 9.7).
    for verb in ["END", "ROLLBACK"] {
        // XA END fails if it was executed already; the loss of the session ends the transaction anyway.
        let _ = session.run_single(format!("XA {verb} {xid}"), || ()).await;
    }
}

/// Sets `xa_detach_on_prepare`: else the session could only end the distributed transaction it prepared
/// (<https://dev.mysql.com/doc/refman/en/xa-states.html>).
async fn detach_on_prepare(session: &mut Session, statement: &SourceStatement) -> Result<()> {
    match session.rows::<bool>("SELECT @@SESSION.xa_detach_on_prepare").await {
        Ok(rows) if rows.first() == Some(&true) => Ok(()),
        Ok(_) => session.run("SET SESSION xa_detach_on_prepare=ON").await.map(drop),
        Err(error) if error.code() == Some(UNKNOWN_VARIABLE) => Err(by_hand(
            &statement.gtid,
            statement.under_gtid,
            "distributed transactions (XA) need a target of MySQL 8.0.29 or newer",
        )),
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
pub(super) async fn leave(session: &mut Session, under_gtid: bool) -> Result<()> {
    session.take_several(true).await?;
    session.run("ROLLBACK").await?;
    session.run("SET NAMES utf8mb4").await?;
    if under_gtid {
        session.run(as_source::AUTOMATIC).await?;
    }
    session.run(context::DEFAULTS).await?;
    session.set_up().await
}
