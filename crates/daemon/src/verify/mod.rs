//! Compares a channel's source and target while both are in use, and tells lag from difference.
//!
//! Each server computes digests of key ranges; ranges that differ are divided down to rows. Rows
//! that differ are read again, the target only after it has passed the `gtid_executed` that the
//! source had at its own reading
//! (<https://dev.mysql.com/doc/refman/en/replication-gtids-concepts.html>). Nothing is locked and
//! nothing is written.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod abandoned;
mod catalogue;
mod definition;
mod error;
mod event;
mod executed;
mod expression;
mod grants;
mod history;
mod key_column;
mod keyed;
mod keyless;
mod literal;
mod options;
mod others;
mod pace;
mod ranges;
#[cfg(test)]
mod ranges_tests;
mod recheck;
mod repair;
mod replicated;
mod report;
mod resume;
mod saving;
mod scope;
mod servers;
mod session;
mod suspects;
mod table;
mod table_name;

pub(crate) use csa_provider::server::link::Side;

pub(crate) use abandoned::{RunningQuery, ended as abandoned_ended};
pub(crate) use catalogue::{Column, Definition, Estimate, LEFT_OUT, Tables, UniqueKey, definition};
pub(crate) use catalogue::{folds_case, tables};
use csa_applier::{Executor, TargetGtids, executor_for};
pub(crate) use definition::{CommonKey, common};
pub(crate) use error::Result;
pub use error::VerifyError;
pub use event::{Activity, VerifyEvent, VerifyProgress};
pub(crate) use executed::source_executed;
pub(crate) use expression::{DigestRow, DigestSum, TableSql, WholeDigestRow, has_all_digests};
pub(crate) use grants::missing as missing_select;
pub(crate) use literal::{literal, selected};
pub(crate) use options::delayed;
pub use options::{ChannelStanding, VerifyOptions, source_servers};
use others::Others;
use parking_lot::Mutex;
pub(crate) use ranges::{KeyRange, RowKey};
pub use repair::REPAIR_SESSION;
pub(crate) use replicated::Replicated;
pub(crate) use report::BEYOND_COPIES;
pub use report::{DifferenceKind, Outcome, Repair, RowDifference, TableReport, VerifyReport};
use resume::Resume;
pub(crate) use resume::STATE_FILE;
pub use resume::Saved;
use saving::{SavedAtEnd, keep_saved};
pub use scope::{EveryTable, Scope, TableSelection};
pub(crate) use scope::{ListedTables, TablePair, lowercase};
use servers::Servers;
pub(crate) use session::{VerifySession, connect_error};
pub use table_name::TableName;

/// Compares all tables in scope that `selection` replicates; `observe` receives every finished
/// table, even if the run fails later.
///
/// # Errors
/// A server goes away or refuses for want of a privilege, or the target does not catch up.
pub async fn verify(
    options: &VerifyOptions,
    selection: &dyn TableSelection,
    observe: &(dyn Fn(VerifyEvent<'_>) + Sync),
) -> std::result::Result<VerifyReport, VerifyError> {
    let resume = Mutex::new(Resume::default());
    // Dropped anywhere, it reports what was compared since the last report.
    let _saved = SavedAtEnd { resume: &resume, observe };
    let mut servers = Servers::connect(options, observe, &resume).await?;
    let report = tokio::select! {
        report = compare_tables(&mut servers, options, selection, observe) => report,
        never = keep_saved(&resume, observe) => match never {},
    };
    if report.is_ok() {
        resume.lock().completed();
    }
    servers.close().await;
    report
}

async fn compare_tables(
    servers: &mut Servers<'_>,
    options: &VerifyOptions,
    selection: &dyn TableSelection,
    observe: &(dyn Fn(VerifyEvent<'_>) + Sync),
) -> Result<VerifyReport> {
    for session in [&mut servers.source, &mut servers.target] {
        if let Some(what) = missing_select(&session.grants().await?, &options.scope) {
            return Err(session.may_not_read(&what));
        }
    }
    let listed = ListedTables {
        source: &catalogue::tables(&mut servers.source).await?,
        target: &catalogue::tables(&mut servers.target).await?,
        source_folds_case: catalogue::folds_case(&mut servers.source).await?,
        target_folds_case: catalogue::folds_case(&mut servers.target).await?,
    };
    let mut pairs = listed.pairs(&options.scope, selection).map_err(VerifyError::Refused)?;
    if options.scope.is_everything() {
        let others = Others::of(&mut servers.target, &options.channel, &listed).await;
        pairs
            .retain(|pair| listed.source.contains_key(&pair.source) || !others.write(&pair.target));
    }
    servers.resume().await?;
    servers.resume.lock().sort(&mut pairs);
    let grants = servers.target.grants().await?;
    let executor = executor_for(&options.target, servers.target.vendor(), &grants);
    let refuses_copies = executor == Executor::Sql || options.target.gtids == TargetGtids::Source;
    let mut report =
        VerifyReport { channel: options.channel.clone(), refuses_copies, tables: Vec::new() };
    for (done, pair) in pairs.iter().enumerate() {
        let estimate = listed.source.get(&pair.source).copied().unwrap_or_default();
        servers.progress = VerifyProgress {
            tables: pairs.len(),
            tables_done: done,
            table: pair.source.to_string(),
            rows: 0,
            rows_estimated: estimate.rows,
            activity: Activity::Comparing,
        };
        let definition = servers.definitions(pair).await?.digest();
        let before = servers.begin(pair, definition);
        if let Some(table) = before {
            observe(VerifyEvent::Table(&table));
            report.tables.push(table);
            continue;
        }
        servers.tell(Activity::Comparing);
        let compared = table::compare(servers, pair, estimate).await.map_err(|source| {
            VerifyError::Table { table: pair.source.clone(), source: Box::new(source) }
        })?;
        if let Some(table) = compared {
            observe(VerifyEvent::Table(&table));
            servers.resume.lock().finished(&table);
            report.tables.push(table);
        }
    }
    Ok(report)
}
