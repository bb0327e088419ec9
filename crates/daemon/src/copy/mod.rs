//! Makes an empty target a copy of the source: definitions, rows, then indexes, foreign keys and programs. The copy
//! ends with the channel's checkpoint, from which the channel follows the source.
//!
//! Small tables are read in snapshots of one moment, whose GTID set is exact ([`snapshot`]), large ones in chunks
//! ([`chunked`]). Nothing is locked on the source, and nothing is written there.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod again;
mod begin;
mod chunked;
mod clone;
mod compared;
mod copying;
mod definitions;
#[cfg(feature = "test-util")]
pub mod driven;
mod end;
mod error;
mod keeping;
mod lanes;
mod later;
mod options;
mod pace;
mod plan;
mod progress;
mod ranges;
mod relay;
mod rows;
mod snapshot;
mod work;
mod writer;

use std::collections::BTreeSet;

use csa_applier::{CopyClaim, Target};
use tokio::time::Instant;

pub(crate) use again::{AgainOptions, RoundEnd, copy_again};
pub(crate) use clone::{CloneOptions, CloneSummary, clone};
use copying::{Copying, Report};
pub(crate) use end::{complete, converging_tables, copied_tables, lacks_tables, make_missing};
pub(crate) use error::CopyError;
use error::Result;
use keeping::keeping;
pub(crate) use options::sources;
pub(crate) use options::{CopyObserver, CopyOptions, CopySummary};
use options::{check_end, check_gtids, connect_source};
pub(crate) use pace::Pace;
use plan::Plan;
pub(crate) use progress::{CopyProgress, CopyStep};
use writer::TargetWriter;

use crate::verify::{Scope, TableName, TableSelection, VerifySession, source_executed};

/// A table that a copy would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedTable {
    pub(crate) name: String,
    /// The source's guesses.
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Ranges that are copied side by side.
    pub(crate) parts: u64,
    pub(crate) has_key: bool,
    pub(crate) in_chunks: bool,
}

/// The tables that a copy would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedCopy {
    /// The largest first.
    pub(crate) tables: Vec<PlannedTable>,
    /// The reason why no table is read in chunks.
    pub(crate) why_in_one_snapshot: Option<String>,
    /// Columns, keys and checks that may not become what they are on the source.
    pub(crate) not_copied: Vec<String>,
}

/// Copies all tables that `selection` replicates; `observer` receives the progress.
///
/// # Errors
/// A server refuses or goes away. The next copy of the channel continues with the chunks, or drops the tables that this
/// one made.
pub(crate) async fn copy(
    options: &CopyOptions,
    selection: &dyn TableSelection,
    observer: &dyn CopyObserver,
) -> std::result::Result<CopySummary, CopyError> {
    check_gtids(options)?;
    let begun = Instant::now();
    let mut claim = CopyClaim::take(&options.target, &options.channel).await?;
    let source = async {
        let (server, mut watcher) = connect_source(options).await?;
        if let Some(until) = &options.until {
            check_end(until, &source_executed(&mut watcher).await?)?;
        }
        options.pace.look_at(server, options.source_slowdown).await;
        Ok((server, watcher))
    };
    let (server, watcher) = keeping(&mut claim, source).await?;
    let copied = make(
        options,
        selection,
        claim,
        server,
        watcher,
        Report { begun, observer, pace: &options.pace },
    );
    tokio::select! {
        copied = copied => copied,
        never = options.hold(server) => match never {},
    }
}

async fn make(
    options: &CopyOptions,
    selection: &dyn TableSelection,
    claim: CopyClaim,
    server: &Target,
    watcher: VerifySession,
    report: Report<'_>,
) -> Result<CopySummary> {
    let mut copying = Copying::of(options, claim, server, watcher, report).await?;
    copying.report.show(CopyStep::Snapshot, &Plan::default(), None);
    let interrupted =
        begin::interrupted(options, selection, &mut copying.claim, &mut copying.watcher).await?;
    let (rows, again) = match interrupted {
        Some(interrupted) => (copying.remaining(interrupted, None).await?, true),
        None => {
            let dropped = drop_unfinished(&mut copying.claim, &mut copying.writer).await?;
            (copying.snapshot(selection, &dropped).await?, !dropped.is_empty())
        }
    };
    copying.end(rows, selection, again).await
}

/// Returns the tables that a copy would make; changes nothing.
///
/// # Errors
/// See [`copy`].
pub(crate) async fn plan(
    options: &CopyOptions,
    selection: &dyn TableSelection,
) -> std::result::Result<PlannedCopy, CopyError> {
    let (_, mut source) = connect_source(options).await?;
    let plan =
        plan::read(options, &mut source, selection, &Scope::default(), &BTreeSet::new()).await?;
    let rows = begin::all_rows(&mut source, &plan).await?;
    let chunked = begin::choose(options, &mut source, &plan, &rows).await?;
    source.close().await;
    let tables = plan.by_size().into_iter().map(|(name, estimate)| {
        let rows = rows.get(name);
        let has_numbers = rows.is_some_and(|rows| rows.integer.is_some());
        PlannedTable {
            name: name.to_string(),
            rows: estimate.rows,
            bytes: estimate.rows * estimate.average_row,
            parts: if has_numbers { plan::parts_wanted(estimate, options) } else { 1 },
            has_key: rows.is_some_and(|rows| rows.has_key),
            in_chunks: chunked.tables.contains(name),
        }
    });
    Ok(PlannedCopy {
        tables: tables.collect(),
        why_in_one_snapshot: chunked.why_none,
        not_copied: rows.iter().filter_map(|(name, rows)| rows.zoned(name)).collect(),
    })
}

/// A copy that was given up.
#[derive(Debug)]
pub(crate) enum Cancelled {
    /// The number of tables that it had made, which are dropped.
    First(usize),
    /// Tables that a channel copied again; they stay, and lack rows.
    Again(Vec<TableName>),
}

/// Gives up an interrupted copy: drops the tables that a first one has made on the target, and leaves those that were
/// copied again.
///
/// # Errors
/// The channel has a checkpoint and no such copy, somebody has it, or the target refuses or goes away.
pub(crate) async fn cancel(options: &CopyOptions) -> std::result::Result<Cancelled, CopyError> {
    if let Some(left) = CopyClaim::give_up_again(&options.target, &options.channel).await? {
        return Ok(Cancelled::Again(left.into_iter().map(TableName::from).collect()));
    }
    let mut claim = CopyClaim::take(&options.target, &options.channel).await?;
    let mut writer = TargetWriter::connect(&options.target).await?;
    let dropped = drop_unfinished(&mut claim, &mut writer).await?;
    if !dropped.is_empty() {
        claim.forget().await?;
    }
    writer.close().await;
    claim.give_back().await;
    Ok(Cancelled::First(dropped.len()))
}

/// Drops what an earlier copy made and did not finish: its rows are of another moment. Returns the tables, which stay noted:
/// a statement of the earlier copy may still be on its way, and make one of them again.
async fn drop_unfinished(
    claim: &mut CopyClaim,
    writer: &mut TargetWriter,
) -> Result<BTreeSet<TableName>> {
    let unfinished: BTreeSet<TableName> =
        claim.unfinished().await?.into_iter().map(TableName::from).collect();
    claim.forget_ranges().await?;
    let drops = async {
        for table in &unfinished {
            writer.drop_table(table).await?;
        }
        Ok(())
    };
    keeping(claim, drops).await?;
    Ok(unfinished)
}
