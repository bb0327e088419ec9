//! The end of a copy: everything that comes after the rows.

use std::collections::BTreeSet;

use csa_applier::{Converging, ConvergingTables, CopyClaim, Target};
use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};

use super::begin::{Begun, PREPARED, check_prepared};
use super::definitions::{self, Program};
use super::error::{CopyError, Result};
use super::keeping::keeping;
use super::later::Later;
use super::snapshot::{self, LastLook};
use super::writer::TargetWriter;
use crate::verify::{Scope, TableName, TableSelection, VerifySession, source_executed};

/// Looks for a moment without prepared XA transactions before a copy gives up; it continues when it is made again.
const PREPARED_LOOKS: u32 = 30;

/// Returns the tables to which changes are applied so that they converge.
///
/// # Errors
/// The note on the target can't be read.
pub(crate) fn converging_tables(
    channel: &str,
    converging: &Converging,
) -> std::result::Result<ConvergingTables, CopyError> {
    let later = Later::of(channel, converging)?;
    let lack_keys = |name: &&(String, String)| later.lacks_keys(&TableName::from((*name).clone()));
    let keyless: Vec<_> = converging.tables.iter().filter(lack_keys).cloned().collect();
    let tables = ConvergingTables::new(converging.tables.iter().cloned(), later.related);
    Ok(tables.with_absent(later.absent).with_keyless(keyless))
}

/// Returns the tables of a copy that has converged: those that were copied again, or all.
///
/// # Errors
/// See [`converging_tables`].
pub(crate) fn copied_tables(
    channel: &str,
    converging: &Converging,
) -> std::result::Result<Scope, CopyError> {
    let is_of_channel = Later::of(channel, converging)?.related.is_empty();
    let tables = match is_of_channel {
        true => Vec::new(),
        false => converging.tables.iter().cloned().map(TableName::from).collect(),
    };
    Ok(Scope { tables, ..Scope::default() })
}

/// Returns a set of transactions that has all that any chunk shows. Definitions are still those of the begin, and foreign
/// keys connect no other tables with the copied ones than `related`.
pub(super) async fn changes_end(
    begun: &Begun,
    selection: &dyn TableSelection,
    related: &BTreeSet<TableName>,
    watcher: &mut VerifySession,
    last: &mut LastLook,
) -> Result<GtidSet> {
    if is_planted(Bug::ChangesEndEarly) {
        return Ok(begun.executed.clone());
    }
    if is_planted(Bug::ChangesEndGuessed) {
        return Ok(source_executed(watcher).await?);
    }
    let names: Vec<TableName> = begun.plan.tables.keys().cloned().collect();
    check_definitions(begun, &names, watcher).await?;
    let until = without_prepared(watcher, last).await?;
    check_definitions(begun, &names, watcher).await?;
    let Begun { plan, chunked, .. } = begun;
    match chunked.connected_since(watcher, selection, plan, related).await? {
        None => Ok(until),
        Some(table) => {
            let why = format!(
                "{table} was made while tables were copied, and a foreign key connects it with one of them; copy again"
            );
            Err(CopyError::Changed(watcher.refused(&why).to_string()))
        }
    }
}

/// Returns the set of a snapshot at which no XA transaction was prepared. A prepared one holds its tables on the target,
/// too, so that no unique key could be added there.
async fn without_prepared(watcher: &mut VerifySession, last: &mut LastLook) -> Result<GtidSet> {
    for _ in 1..PREPARED_LOOKS {
        match between_prepared(watcher, last).await {
            // It may end soon.
            Err(CopyError::Prepared(_)) => tokio::time::sleep(PREPARED).await,
            other => return other,
        }
    }
    between_prepared(watcher, last).await
}

async fn between_prepared(watcher: &mut VerifySession, last: &mut LastLook) -> Result<GtidSet> {
    check_prepared(watcher).await?;
    let until = snapshot::open(watcher, &mut [], last).await?;
    check_prepared(watcher).await?;
    Ok(until)
}

async fn check_definitions(
    begun: &Begun,
    names: &[TableName],
    watcher: &mut VerifySession,
) -> Result<()> {
    let Begun { plan, chunked, definitions, .. } = begun;
    let found = definitions::read(watcher, &plan.schemas, names, &chunked.tables).await?;
    match definitions.has_same_tables(&found) {
        true => Ok(()),
        false => Err(CopyError::Changed(
            watcher.refused("tables were altered while they were copied; copy again").to_string(),
        )),
    }
}

/// Ends a copy in chunks once the channel has applied what changed meanwhile: adds unique keys and foreign keys. Returns
/// false if another daemon has done so.
///
/// # Errors
/// The target refuses or goes away; it can be repeated.
pub(crate) async fn complete(
    target: &Target,
    channel: &str,
    converging: &Converging,
) -> std::result::Result<bool, CopyError> {
    let claim = CopyClaim::take_met(target, channel, converging).await?;
    let Some(mut claim) = claim else { return Ok(false) };
    let mut writer = TargetWriter::connect(target).await?;
    let later = Later::of(channel, converging)?;
    keeping(&mut claim, later.finish(&mut writer)).await?;
    writer.close().await;
    claim.end().await?;
    Ok(true)
}

/// Returns true if a copy was interrupted while it made its tables again, so that some may be missing.
///
/// # Errors
/// The note on the target can't be read.
pub(crate) fn lacks_tables(
    channel: &str,
    converging: &Converging,
) -> std::result::Result<bool, CopyError> {
    Ok(!Later::of(channel, converging)?.tables.is_empty())
}

/// Makes the tables that are missing since then, so that the channel can run. The next round of the copy begins again.
///
/// # Errors
/// The target refuses or goes away; it can be repeated.
pub(crate) async fn make_missing(
    target: &Target,
    channel: &str,
    converging: &Converging,
) -> std::result::Result<(), CopyError> {
    let claim = CopyClaim::take_met(target, channel, converging).await?;
    let Some(mut claim) = claim else { return Ok(()) };
    let mut writer = TargetWriter::connect(target).await?;
    let later = Later::of(channel, converging)?;
    let tables = async {
        for statement in &later.tables {
            writer.add(statement).await?;
        }
        Ok(())
    };
    keeping(&mut claim, tables).await?;
    writer.close().await;
    claim.leave(&Later { tables: Vec::new(), ..later }.text()).await?;
    Ok(())
}

/// Makes libraries, functions, views, triggers and events. One that needs another is tried again after it. Returns those that
/// the target refuses, each with the reason; the applier needs none of them.
pub(super) async fn make(
    writer: &mut TargetWriter,
    programs: &[Program],
    again: bool,
) -> Result<Vec<String>> {
    let mut left: Vec<&Program> = programs.iter().collect();
    loop {
        let (mut failed, mut errors) = (Vec::new(), Vec::new());
        for &program in &left {
            match writer.make(program, again).await {
                Ok(()) => {}
                Err(error) if error.is_answer() => {
                    failed.push(program);
                    errors.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        if failed.is_empty() || failed.len() == left.len() {
            return Ok(errors);
        }
        left = failed;
    }
}
