//! Finds the row at which a transaction fails, for the operator who has to decide about it.
//!
//! The server names neither the row nor, for merged events, the event. So the transaction is executed
//! once more, event by event and the failing event row by row, and rolled back.

mod split;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use csa_provider::server::link::{About, Row, rule_of};
use csa_provider::sql_text::identifier;
use csa_scheduler::group::Group;

use crate::error::failing_row::{FailingColumn, FailingRow, PresentRow};
use crate::error::transaction::UNKNOWN;
use crate::error::{Error, Result};
use crate::options::ApplierOptions;
use crate::rows::binlog_statements::{RowImages, Step};
use crate::rows::dml::{self, RowFacts};
use crate::rows::executor::RowExecutor;
use crate::rows::steps::Steps;
use crate::server::as_source;
use crate::server::definitions::TableName;
use crate::server::definitions::tables::TargetTables;
use crate::server::session::Session;

use split::Split;

pub(crate) use split::is_one_row;

/// The channel has failed already: a longer search would only keep the operator waiting.
const PATIENCE: Duration = Duration::from_secs(15);

/// One transaction of a group, and how it was attempted.
pub(crate) struct Failed<'a> {
    pub(crate) group: &'a Arc<Group>,
    /// The one transaction's place in the group.
    pub(crate) range: (usize, usize),
    pub(crate) options: &'a ApplierOptions,
    pub(crate) tables: &'a Arc<TargetTables>,
    /// Opening of the failed attempt, and which of its statements has to match the checkpoint row: once
    /// a transactional table is changed, the server refuses (1785) to write tables that no ROLLBACK
    /// would restore.
    pub(crate) opening: (String, usize),
}

impl Failed<'_> {
    /// Looks for the row on a session without a transaction, and leaves the session without one. After
    /// an `Err` the session is in an unknown state: drop it. `None`: nothing failed this time.
    pub(crate) async fn find(&self, session: &mut Session) -> Result<Option<FailingRow>> {
        let found = tokio::time::timeout(PATIENCE, self.look(session)).await;
        let found = found.map_err(Error::SearchTimedOut)??;
        session.run("ROLLBACK").await?;
        session.leave_now().await?;
        Ok(found)
    }

    async fn look(&self, session: &mut Session) -> Result<Option<FailingRow>> {
        if self.options.statement_gtids {
            // The failed attempt may have left the source's GTID in gtid_next.
            session.run(as_source::AUTOMATIC).await?;
        }
        // The descriptions to come contain names.
        session.use_bytes(false).await?;
        let mut rows = self.executor();
        rows.prepare(session, self.group.format()).await?;
        let (opening, fence) = &self.opening;
        // Another daemon has taken the channel over: nothing may be tried here any more.
        if session.run(opening).await?.get(*fence) != Some(&1) {
            return Ok(None);
        }
        let mut steps = Steps::by_event(self.group, self.range);
        let mut number = 0;
        while let Some(step) = steps.next().await {
            let images = match step? {
                Step::Statement(text) => {
                    session.run(&text).await?;
                    continue;
                }
                Step::RowImages(images) => images,
            };
            number += u64::from(images.rows_before == 0);
            if attempt(&mut rows, session, &images).await?.is_some() {
                return self.in_event(session, number, images).await.map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the row of an event that can't be applied as a whole.
    async fn in_event(
        &self,
        session: &mut Session,
        event_number: u64,
        images: RowImages,
    ) -> Result<FailingRow> {
        let RowImages { events, session: written_in, rows_before, .. } = images;
        let split = Split::new(&Bytes::from(events))?;
        let mut row = FailingRow {
            table: split.table.clone(),
            event_type: split.event_type.name(),
            event_number,
            end_log_pos: split.end_log_pos,
            row_number: None,
            key: None,
            columns: Vec::new(),
            present: PresentRow::Unknown("each row of the event can be applied alone".to_owned()),
            mismatch: None,
            denied: None,
            repair: None,
        };
        // A new executor knows nothing of the session's settings: the failed packet may have set only
        // some of them.
        let mut rows = self.executor();
        for (place, single) in split.rows.iter().enumerate() {
            let single_row = RowImages {
                events: single.clone(),
                session: written_in.clone(),
                is_undone: false,
                rows_before: 0,
            };
            let Some(error) = attempt(&mut rows, session, &single_row).await? else { continue };
            row.row_number = Some((rows_before + place + 1) as u64);
            self.describe(session, Bytes::from(single.clone()), &error, &mut row).await?;
            break;
        }
        Ok(row)
    }

    /// Adds the values: the source's, and the target's by the same key.
    async fn describe(
        &self,
        session: &mut Session,
        single: Bytes,
        error: &Error,
        row: &mut FailingRow,
    ) -> Result<()> {
        // Our own queries need our own settings, not those of the row's session.
        session.leave_now().await?;
        let names = dml::tables_in(&single)?;
        let table = names.first().cloned();
        let tables: HashMap<_, _> = self.tables.of(session, names).await?;
        let code = error.code().unwrap_or_default();
        let facts = match dml::describe(&single, &tables, code, error.server_text().full()) {
            Ok(facts) => facts,
            Err(refusal) => {
                row.mismatch =
                    (refusal.code == dml::codes::CONVERSION).then(|| refusal.message.clone());
                row.present = PresentRow::Unknown(refusal.message);
                return Ok(());
            }
        };
        let RowFacts { columns, key, query, repair } = facts;
        (row.columns, row.key) = (columns, key);
        row.present = match query {
            None => PresentRow::Unknown("the table has no key to find it by".to_owned()),
            Some(query) => match session.rows::<Row>(&query).await {
                Ok(found) => present(found.into_iter().next(), &mut row.columns),
                Err(error) => PresentRow::Unknown(error.to_string()),
            },
        };
        row.repair = repair.for_row(row.present == PresentRow::Present);
        if let (UNKNOWN, Some(table)) = (code, table) {
            row.denied = denied(session, &table, row).await?;
        }
        Ok(())
    }

    fn executor(&self) -> RowExecutor {
        RowExecutor::new(self.options, Arc::clone(self.tables))
    }
}

/// Returns the server's words where our account may not do to the table what the event does: for BINLOG it has none.
async fn denied(
    session: &mut Session,
    (schema, table): &TableName,
    row: &FailingRow,
) -> Result<Option<String>> {
    let name = format!("{}.{}", identifier(schema), identifier(table));
    // Nothing is executed, and privileges are looked at first.
    let question = match (row.event_type, row.columns.first()) {
        ("Write_rows", _) => format!("EXPLAIN INSERT INTO {name} () VALUES ()"),
        ("Delete_rows", _) => format!("EXPLAIN DELETE FROM {name}"),
        (_, Some(FailingColumn { name: column, .. })) => {
            let column = identifier(column);
            format!("EXPLAIN UPDATE {name} SET {column}={column}")
        }
        _ => return Ok(None),
    };
    match session.rows::<Row>(&question).await {
        Err(error) if is_of_privilege(&error) => Ok(Some(error.server_text().to_string())),
        Err(error) if error.is_passing() => Err(error),
        _ => Ok(None),
    }
}

fn is_of_privilege(error: &Error) -> bool {
    error.code().and_then(rule_of).is_some_and(|rule| rule.about == About::Privilege)
}

/// Applies events. Returns the error if they can't be applied, with the transaction as it was before.
async fn attempt(
    rows: &mut RowExecutor,
    session: &mut Session,
    images: &RowImages,
) -> Result<Option<Error>> {
    session.run("SAVEPOINT csa_row").await?;
    match rows.send(session, None, images.clone()).await {
        Ok(_) => Ok(None),
        Err(error) if error.code().is_some() && error.class().is_failure() => {
            session.run("ROLLBACK TO SAVEPOINT csa_row").await?;
            Ok(Some(error))
        }
        Err(error) => Err(error),
    }
}

fn present(found: Option<Row>, columns: &mut [FailingColumn]) -> PresentRow {
    let Some(mut found) = found else { return PresentRow::Missing };
    for (place, column) in columns.iter_mut().enumerate() {
        let value = found.take_opt::<Option<Vec<u8>>, _>(place).and_then(std::result::Result::ok);
        column.target = value.map(|value| match value {
            Some(bytes) => dml::shown(&String::from_utf8_lossy(&bytes)),
            None => "NULL".to_owned(),
        });
    }
    PresentRow::Present
}
