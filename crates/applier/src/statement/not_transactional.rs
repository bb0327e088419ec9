//! Rows of tables that are not transactional on the target (MyISAM, MEMORY, CSV, ARCHIVE, MERGE).
//!
//! No ROLLBACK restores them, and they don't commit with the checkpoint. So their transaction is
//! written alone: an entry in `csa.statement` is committed before it, and removed together with the
//! checkpoint after it. An entry found at a start means that some of the rows may be there. Under the source's GTID
//! the server records the GTID with a part of them as well, also for a session that is gone. So the entry says that they
//! were begun until the server has answered that all of them are there.

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::SessionContext;
use csa_provider::sql_text::{Dialect, Statement};
use csa_scheduler::group::Group;
use tracing::info;

use super::attempts::{Attempts, Effect, Rows};
use super::failure::Failure;
use super::parts::Parts;
use super::source_statement::SourceStatement;
use crate::error::server_text::ServerText;
use crate::error::transaction::{NOT_TRANSACTIONAL, tables_of};
use crate::error::{Error, ErrorClass, Invariant, Result};
use crate::options::{ApplierOptions, Executor, TargetGtids};
use crate::ownership::intent::{self, Intent};
use crate::ownership::keeper::Keeper;
use crate::rows::binlog_statements::{RowImages, Step, clear_statement_end, set_statement_end};
use crate::rows::dml;
use crate::rows::executor::RowExecutor;
use crate::rows::failing_row::is_one_row;
use crate::rows::steps::Steps;
use crate::server::as_source;
use crate::server::definitions::tables::TargetTables;
use crate::server::retry_pause;
use crate::server::session::Session;
use crate::statement::progress;

/// Returns the group's one transaction, in the form that the statement executor takes.
pub(super) fn read(group: &Group) -> Result<SourceStatement> {
    let Some(transaction) = group.transactions.first() else {
        return Err(Error::Broken(Invariant::GroupHasTransactions));
    };
    Ok(SourceStatement {
        gtid: transaction.relayed.header.gtid.to_string(),
        under_gtid: false,
        kind: Statement::Begin,
        words: format!("{}, not all of them transactional on the target", tables_of(transaction)),
        database: String::new(),
        xid: None,
        changed: None,
        judged: Vec::new(),
        inline_references: None,
        ignored_checks: false,
        context: SessionContext::default(),
        timestamp: 0,
        error_code: 0,
        refusal: None,
    })
}

/// Writes rows on a session.
struct Writer<'a> {
    session: &'a mut Session,
    rows: RowExecutor,
    tables: &'a TargetTables,
    gtid: &'a str,
    options: &'a ApplierOptions,
    /// The statements that begin a transaction.
    begin: String,
    /// Something may have changed that no ROLLBACK undoes.
    changed: bool,
}

impl Parts {
    /// Writes the group's rows, unless they are there.
    pub(super) async fn write_group(
        &self,
        keeper: &mut Keeper,
        group: &Arc<Group>,
        gtid: &str,
        attempts: &mut Attempts,
    ) -> std::result::Result<(), Failure> {
        let session = keeper.session();
        if attempts.partly.is_some() {
            let ended = self.end_partly(session, group, gtid, attempts).await;
            ended.map_err(Failure::Statement)?;
        }
        intent::create(session).await?;
        let channel = &self.options.channel;
        if self.target.gtids == TargetGtids::Source && session.has_executed(gtid).await? {
            let is_part = match attempts.rows {
                Rows::Unsent => intent::is_part(session, channel, gtid).await?,
                Rows::Sent => true,
                Rows::Whole => false,
            };
            if is_part {
                self.note_part(session, gtid).await?;
                return Err(intent::partly_done(session, channel, gtid.to_owned()).into());
            }
            return Ok(());
        }
        let known = intent::find(session, channel, gtid, &group.executed_after).await;
        let known = known.map_err(|error| match error {
            Error::InDoubt { gtid, channel, by_hand, if_done } => {
                Error::HalfDone { gtid, channel, by_hand, if_done }
            }
            other => other,
        })?;
        match known {
            Intent::Executed => Ok(()),
            Intent::None => {
                let written = self.write_rows(keeper, group, gtid, attempts).await;
                written.map_err(Failure::Statement)
            }
        }
    }

    async fn write_rows(
        &self,
        keeper: &mut Keeper,
        group: &Arc<Group>,
        gtid: &str,
        attempts: &mut Attempts,
    ) -> Result<()> {
        let channel = &self.options.channel;
        let under_source = self.target.gtids == TargetGtids::Source;
        let mut rows = RowExecutor::new(&self.options, Arc::clone(&self.tables)).for_any_engine();
        let session = keeper.session();
        rows.prepare(session, group.format()).await?;
        let takes_images = rows.takes_row_images();
        // Before the entry: a refusal here has begun nothing.
        let whole = match under_source {
            true => Some(one_statement(session, group, &rows, &self.tables, gtid).await?),
            false => None,
        };
        let is_several = self.announce(session, gtid, whole.as_ref(), attempts).await?;
        let connection = session.id();
        let options = &self.options;
        let tables = self.tables.as_ref();
        let begin = begin(group, options);
        let mut writer = Writer { session, rows, tables, gtid, options, begin, changed: false };
        let outcome = tokio::select! {
            biased;
            outcome = async { match whole {
                Some(images) => writer.under_source(group, images).await,
                None => writer.in_order(group).await,
            } } => outcome,
            never = progress::follow(&self.target, connection, &self.status) => match never {},
        };
        let changed = writer.changed;
        match &outcome {
            Ok(()) => attempts.rows = Rows::Whole,
            Err(_) if !changed => attempts.rows = Rows::Unsent,
            Err(_) => {}
        }
        let session = keeper.session();
        let outcome = match outcome {
            // Kept before anything else is sent, which may fail in its turn.
            Err(error) if under_source && changed && is_told(&error) => {
                attempts.partly = Some(error);
                return self.end_partly(session, group, gtid, attempts).await;
            }
            other => other,
        };
        self.leave_rows(session, takes_images).await?;
        let Err(error) = outcome else {
            attempts.effect = Effect::Whole;
            if is_several {
                let note = intent::note_whole(channel);
                session.run(note).await.map_err(Error::of_bookkeeping)?;
            }
            return Ok(());
        };
        if !changed {
            // The server still answers, and nothing changed.
            attempts.effect = Effect::Nothing;
            session.run(intent::withdraw(channel)).await.map_err(Error::of_bookkeeping)?;
            attempts.effect = Effect::Unknown;
            return Err(error);
        }
        Err(self.half_done(session, group, gtid, false, error))
    }

    /// Commits the entry of rows before the first of them, so that a crash at any later point finds it. `whole`: all of
    /// them, under their source's GTID. Returns true if a part of them can be there with that.
    async fn announce(
        &self,
        session: &mut Session,
        gtid: &str,
        whole: Option<&RowImages>,
        attempts: &mut Attempts,
    ) -> Result<bool> {
        let channel = &self.options.channel;
        let (entry, is_several) = match whole {
            Some(images) => {
                let is_one = is_one_row(&Bytes::copy_from_slice(&images.events))?;
                (intent::announce_rows(channel, gtid, is_one), !is_one)
            }
            None => (intent::announce(channel, gtid), false),
        };
        session.run(entry).await.map_err(Error::of_bookkeeping)?;
        if is_several {
            attempts.rows = Rows::Sent;
        }
        Ok(is_several)
    }
}

impl Writer<'_> {
    /// Writes rows event by rows event, in the order logged. Transactional rows are committed before the
    /// next event that is not transactional: the server lets no transaction have both (1785).
    async fn in_order(&mut self, group: &Arc<Group>) -> Result<()> {
        let mut steps = Steps::by_event(group, (0, group.transactions.len()));
        let mut open = false;
        while let Some(step) = steps.next().await {
            let images = match step? {
                Step::RowImages(images) => images,
                Step::Statement(text) if is_rollback_to(&text) => {
                    let what = "a savepoint that was rolled back, with rows of a table that is not \
                        transactional on the target; run there: ALTER TABLE … ENGINE=InnoDB";
                    return Err(Error::Unsupported {
                        gtid: self.gtid.to_owned(),
                        what: what.to_owned(),
                    });
                }
                // A savepoint that nothing rolls back to.
                Step::Statement(_) => continue,
            };
            let engines = engines(self.session, self.tables, &images).await?;
            if engines.iter().all(Option::is_none) {
                if !open {
                    self.session.run(&self.begin).await?;
                    open = true;
                }
                self.rows.send(self.session, None, images).await?;
                continue;
            }
            if open {
                // Set first: the answer to the COMMIT may be lost.
                self.changed = true;
                self.session.run("COMMIT").await?;
                open = false;
            }
            let begin = self.begin.clone();
            self.at_once(&begin, images).await?;
        }
        if open {
            self.changed = true;
            self.session.run("COMMIT").await?;
        }
        Ok(())
    }

    /// Writes rows, all of tables that are not transactional, under the source's GTID.
    async fn under_source(&mut self, group: &Arc<Group>, images: RowImages) -> Result<()> {
        self.session.log(true).await?;
        let header = group.transactions.first().map(|transaction| &transaction.relayed.header);
        let identity = header.map(as_source::identity).unwrap_or_default();
        self.at_once(&format!("SET SESSION {identity};BEGIN"), images).await
    }

    /// Writes and commits rows that can't be rolled back.
    async fn at_once(&mut self, opening: &str, images: RowImages) -> Result<()> {
        let is_one = is_one_row(&Bytes::copy_from_slice(&images.events))?;
        // As SQL, earlier statements may have been executed before the one that failed.
        let is_whole = is_one || self.rows.takes_row_images();
        let before = self.changed;
        let mut conflicts = retry_pause::conflicts();
        let mut retries = 0;
        loop {
            self.session.leave_now().await?;
            self.session.run(opening).await?;
            self.changed = true;
            let Err(error) = self.rows.send(self.session, None, images.clone()).await else {
                break;
            };
            match error.class() {
                // The lock waited for is the table's: no row was written.
                ErrorClass::Retry if is_whole => {
                    self.changed = before;
                    self.session.run("ROLLBACK").await?;
                    // A wait for a lock of others is not counted.
                    if !error.is_lock_timeout() {
                        if retries == self.options.transaction_retries {
                            return Err(error);
                        }
                        retries += 1;
                        info!(gtid = self.gtid, retries, %error, "rows not written, trying again");
                    }
                    retry_pause::pause(&mut conflicts, &*self.options.chance).await;
                }
                class if class.is_failure() && is_one && error.code().is_some() => {
                    self.changed = before;
                    return Err(error);
                }
                _ => return Err(error),
            }
        }
        self.session.run("COMMIT").await.map(drop)
    }
}

/// Returns true for an error that says that the statement has ended. A lost link says nothing about it.
fn is_told(error: &Error) -> bool {
    error.code().is_some() || error.class().is_failure()
}

/// The statements that begin a transaction with rows of the group, as they do elsewhere
/// (`WorkerSession::own_opening`).
fn begin(group: &Group, options: &ApplierOptions) -> String {
    let takes_images = options.executor == Executor::RowImage;
    let first = group.transactions.first().filter(|_| takes_images);
    let version = first.and_then(|transaction| as_source::version(&transaction.relayed.header));
    version.map_or_else(|| "BEGIN".to_owned(), |version| format!("SET SESSION {version};BEGIN"))
}

/// Returns the engine of each table that the events change; `None` for a transactional one.
async fn engines(
    session: &mut Session,
    tables: &TargetTables,
    images: &RowImages,
) -> Result<Vec<Option<String>>> {
    let names = dml::tables_in(&Bytes::copy_from_slice(&images.events))?;
    if !tables.has_all(&names) {
        session.leave_now().await?;
    }
    let tables = tables.of(session, names).await?;
    Ok(tables
        .into_values()
        .map(|table| table.and_then(|table| table.not_transactional.clone()))
        .collect())
}

/// The server writes this statement itself, so its first words are readable in any character set.
fn is_rollback_to(statement: &[u8]) -> bool {
    Statement::classify(statement, Dialect::of_names()) == Statement::RollbackTo
}

/// All rows of a transaction as one statement: on tables without transactions the first statement
/// uses up the GTID.
async fn one_statement(
    session: &mut Session,
    group: &Arc<Group>,
    rows: &RowExecutor,
    tables: &TargetTables,
    gtid: &str,
) -> Result<RowImages> {
    let refused = |why: &str| Error::Transaction {
        gtid: gtid.to_owned(),
        of: group.transactions.first().map(tables_of).unwrap_or_default(),
        code: NOT_TRANSACTIONAL,
        message: ServerText::own(format!(
            "{why}; for tables that are not transactional on the target that can't be done under the \
             source's GTID: run there: ALTER TABLE … ENGINE=InnoDB, or set another target_gtids"
        )),
        row: None,
        half_way: false,
    };
    if !rows.takes_row_images() {
        return Err(refused("the rows are written by several statements (executor = \"sql\")"));
    }
    let limit = session.server().packet_bytes();
    let mut steps = Steps::unmerged(group, (0, group.transactions.len()), limit, &Arc::default());
    let mut whole: Option<RowImages> = None;
    while let Some(step) = steps.next().await {
        match step? {
            Step::Statement(text) if is_rollback_to(&text) => {
                return Err(refused("a savepoint was rolled back"));
            }
            Step::Statement(_) => {}
            Step::RowImages(images) => match &mut whole {
                Some(whole) => whole.events.extend_from_slice(&images.events),
                None => whole = Some(images),
            },
        }
        if whole.as_ref().is_some_and(|images| images.events.len() > limit) {
            return Err(refused("its rows do not fit one packet (max_allowed_packet)"));
        }
    }
    let images = whole.ok_or_else(|| Error::Broken(Invariant::TransactionHasRows))?;
    let engines = engines(session, tables, &images).await?;
    if engines.iter().any(Option::is_none) {
        return Err(refused("it changes transactional tables too"));
    }
    let events = as_one_statement(&Bytes::from(images.events))?;
    Ok(RowImages { events, ..images })
}

/// Row images in the form of one statement: table maps, then rows, with a statement end on the last.
fn as_one_statement(images: &Bytes) -> Result<Vec<u8>> {
    let (mut maps, mut rows) = (Vec::new(), Vec::new());
    let mut mapped: Vec<Bytes> = Vec::new();
    let mut last = None;
    for event in dml::events(images) {
        let event = event?;
        if event.event_type().is_rows() {
            last = Some(rows.len());
            let start = rows.len();
            event.write_without_checksum(&mut rows);
            clear_statement_end(&mut rows, start);
            continue;
        }
        // The source repeats the maps in each statement.
        let body = Bytes::copy_from_slice(event.body());
        if !mapped.contains(&body) {
            event.write_without_checksum(&mut maps);
            mapped.push(body);
        }
    }
    if let Some(last) = last {
        set_statement_end(&mut rows, last);
    }
    maps.append(&mut rows);
    Ok(maps)
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::EventType;
    use csa_provider::test_util::{int_image, int_table_map, rows_event};

    use super::*;

    #[test]
    fn statements_become_one() {
        let mut images = Vec::new();
        for (table, value) in [(7, 1), (8, 2), (7, 3)] {
            int_table_map(table, "d", if table == 7 { "a" } else { "b" }, 1)
                .write_without_checksum(&mut images);
            let start = images.len();
            rows_event(EventType::WRITE_ROWS, table, 1, &int_image(&[Some(value)]))
                .write_without_checksum(&mut images);
            set_statement_end(&mut images, start);
        }
        let one = as_one_statement(&images.into()).expect("well-formed");
        let events: Vec<_> =
            dml::events(&one.into()).collect::<std::result::Result<_, _>>().expect("well-formed");
        let ends = |body: &[u8]| body.get(6).is_some_and(|flags| flags & 1 != 0);
        let shape: Vec<_> = events
            .iter()
            .map(|event| (event.event_type(), event.body()[0], ends(event.body())))
            .collect();
        let map = |table| (EventType::TABLE_MAP, table);
        assert_eq!(
            shape[..2].iter().map(|&(kind, table, _)| (kind, table)).collect::<Vec<_>>(),
            [map(7), map(8)]
        );
        let rows = EventType::WRITE_ROWS;
        assert_eq!(shape[2..], [(rows, 7, false), (rows, 8, false), (rows, 7, true)]);
    }
}
