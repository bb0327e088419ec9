//! Makes an empty target a copy of the source: definitions, rows, then indexes, foreign keys and programs. The copy
//! ends with the channel's checkpoint, from which the channel follows the source.
//!
//! All rows are read in snapshots of one moment, whose GTID set is exact ([`snapshot`]). Nothing is locked
//! on the source, and nothing is written there.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod definitions;
mod error;
mod lanes;
mod plan;
mod progress;
mod rows;
mod snapshot;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use csa_applier::{CopyClaim, Target, TargetGtids, TargetOptions};
use csa_provider::binlog::GtidSet;
use csa_provider::server::link::Side;
use csa_provider::sql_text::identifier;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use definitions::{Definitions, Program};
pub(crate) use error::CopyError;
use error::Result;
use lanes::{CopiedTable, Lane, Work};
use plan::{Plan, parts};
pub(crate) use progress::{CopyProgress, CopyStep};
use rows::TableRows;
use writer::TargetWriter;

use crate::verify::{TableName, TableSelection, VerifySession};

/// Time between two reports of the progress.
const REPORT: Duration = Duration::from_millis(250);
/// Time between two signs of life to the target.
const PING: Duration = Duration::from_secs(20);
/// Definitions may change between two looks at them; then all begins again.
const ATTEMPTS: u32 = 5;

/// The servers of a copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyOptions {
    pub(crate) channel: String,
    /// The source's servers; the first one that answers is copied.
    pub(crate) sources: Vec<TargetOptions>,
    pub(crate) target: Target,
    /// Sessions on each side that copy rows.
    pub(crate) lanes: usize,
}

impl CopyOptions {
    pub(crate) const LANES: usize = 4;
}

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
}

/// The result of a copy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CopySummary {
    pub(crate) tables: usize,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// The source's transactions that are in it.
    pub(crate) executed: GtidSet,
    /// Programs that the target refuses, such as views of tables that are not replicated.
    pub(crate) not_made: Vec<String>,
}

/// Copies all tables that `selection` replicates; `observe` receives the progress.
///
/// # Errors
/// A server refuses or goes away. The next copy of the channel drops the tables that this one made.
pub(crate) async fn copy(
    options: &CopyOptions,
    selection: &dyn TableSelection,
    observe: &(dyn Fn(&CopyProgress) + Sync),
) -> std::result::Result<CopySummary, CopyError> {
    if options.target.gtids == TargetGtids::Source {
        return Err(CopyError::Refused(format!(
            "channel {}: a copy has GTIDs of the target's own, and target_gtids = \"source\" permits none; set \
             \"mirror\", or copy with a dump or a clone (docs/provisioning.md)",
            options.channel
        )));
    }
    let begun = Instant::now();
    let mut claim = CopyClaim::take(&options.target, &options.channel).await?;
    let (server, mut watcher) = connect_source(options).await?;
    let mut writer = TargetWriter::connect(&options.target).await?;
    let again = drop_unfinished(&mut claim, &mut writer).await?;
    let report = Report { begun, observe };
    report.show(CopyStep::Snapshot, &Plan::default(), None);
    let (mut sources, begun_copy) = begin(options, server, selection, &mut watcher).await?;
    let Begun { plan, definitions, rows, executed } = begun_copy;
    watcher.close().await;
    report.show(CopyStep::Tables, &plan, None);
    let names: Vec<_> =
        plan.tables.keys().map(|name| (name.schema.clone(), name.table.clone())).collect();
    claim.note(&names).await?;
    for statement in &definitions.before {
        writer.run(statement).await?;
    }
    let work = work(&plan, definitions.indexes, rows, &mut sources).await?;
    let work = Arc::new(work);
    copy_rows(options, &mut claim, sources, &work, || {
        report.show(CopyStep::Rows, &plan, Some(&work));
    })
    .await?;
    report.show(CopyStep::Programs, &plan, Some(&work));
    for (_, statement) in &definitions.foreign_keys {
        writer.run(statement).await?;
    }
    let not_made = make(&mut writer, &definitions.programs, again).await?;
    writer.close().await;
    claim.finish(&executed).await?;
    Ok(CopySummary {
        tables: plan.tables.len(),
        rows: work.rows.load(Ordering::Relaxed),
        bytes: work.bytes.load(Ordering::Relaxed),
        elapsed: begun.elapsed(),
        executed,
        not_made,
    })
}

/// Connects to the first of the source's servers that answers.
async fn connect_source(options: &CopyOptions) -> Result<(&TargetOptions, VerifySession)> {
    let mut failed = None;
    for server in &options.sources {
        match VerifySession::connect(Side::Source, server).await {
            Ok(session) => return Ok((server, session)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.map_or_else(
        || CopyError::Refused(format!("channel {}: it names no source", options.channel)),
        CopyError::from,
    ))
}

/// Returns the tables that a copy would make, the largest first; changes nothing.
///
/// # Errors
/// See [`copy`].
pub(crate) async fn plan(
    options: &CopyOptions,
    selection: &dyn TableSelection,
) -> std::result::Result<Vec<PlannedTable>, CopyError> {
    let (_, mut source) = connect_source(options).await?;
    let plan = plan::read(options, &mut source, selection).await?;
    let mut planned = Vec::new();
    for (name, estimate) in plan.by_size() {
        let rows = TableRows::of(&mut source, name).await?;
        planned.push(PlannedTable {
            name: name.to_string(),
            rows: estimate.rows,
            bytes: estimate.rows * estimate.average_row,
            parts: if rows.integer.is_some() {
                plan::parts_wanted(estimate, options.lanes)
            } else {
                1
            },
            has_key: rows.has_key,
        });
    }
    source.close().await;
    Ok(planned)
}

/// Drops what an earlier copy made and did not finish: its rows are of another moment.
/// Returns true if there was something.
async fn drop_unfinished(claim: &mut CopyClaim, writer: &mut TargetWriter) -> Result<bool> {
    let unfinished = claim.unfinished().await?;
    for (schema, table) in &unfinished {
        let name = format!("{}.{}", identifier(schema), identifier(table));
        writer.run(&format!("DROP TABLE IF EXISTS {name}")).await?;
    }
    if !unfinished.is_empty() {
        claim.forget().await?;
    }
    Ok(!unfinished.is_empty())
}

/// The contents of a copy, known once its snapshots are open.
struct Begun {
    plan: Plan,
    definitions: Definitions,
    rows: HashMap<TableName, TableRows>,
    executed: GtidSet,
}

/// Opens the snapshots. Tables and definitions are those of that moment: they are the same before and after.
async fn begin(
    options: &CopyOptions,
    server: &TargetOptions,
    selection: &dyn TableSelection,
    watcher: &mut VerifySession,
) -> Result<(Vec<VerifySession>, Begun)> {
    let mut sources = Vec::new();
    for _ in 0..options.lanes.max(1) {
        sources.push(VerifySession::connect(Side::Source, server).await?);
    }
    for _ in 0..ATTEMPTS {
        match attempt(options, selection, watcher, &mut sources).await {
            Ok(Some(begun)) => return Ok((sources, begun)),
            Ok(None) | Err(CopyError::Changed(_)) => {}
            Err(CopyError::Asked(error)) if error.is_definition_change() => {}
            Err(error) => return Err(error),
        }
        for source in &mut sources {
            source.run("ROLLBACK").await?;
        }
    }
    let why = "definitions change while the copy begins; try again when no DDL runs";
    Err(CopyError::Changed(watcher.refused(why).to_string()))
}

/// Returns `None` if something was defined meanwhile. A table that is made before the snapshot and not seen would
/// be missing for ever: no change of the stream makes it.
async fn attempt(
    options: &CopyOptions,
    selection: &dyn TableSelection,
    watcher: &mut VerifySession,
    sources: &mut [VerifySession],
) -> Result<Option<Begun>> {
    let plan = plan::read(options, watcher, selection).await?;
    let names: Vec<TableName> = plan.tables.keys().cloned().collect();
    let before = definitions::read(watcher, &plan.schemas, &names).await?;
    let executed = snapshot::open(watcher, sources).await?;
    let mut rows = HashMap::new();
    for name in &names {
        rows.insert(name.clone(), TableRows::of(watcher, name).await?);
    }
    let after = definitions::read(watcher, &plan.schemas, &names).await?;
    let again = plan::read(options, watcher, selection).await?;
    let is_same = before.is_same(&after) && plan.names_the_same(&again);
    Ok(is_same.then_some(Begun { plan: again, definitions: after, rows, executed }))
}

/// Divides the tables into parts, the largest table first.
async fn work(
    plan: &Plan,
    indexes: Vec<(TableName, Vec<String>)>,
    mut rows: HashMap<TableName, TableRows>,
    sources: &mut [VerifySession],
) -> Result<Work> {
    let lanes = sources.len();
    let mut indexes: HashMap<TableName, Vec<String>> = indexes.into_iter().collect();
    let mut tables = Vec::new();
    let mut all = Vec::new();
    for (name, estimate) in plan.by_size() {
        let Some((rows, source)) = rows.remove(name).zip(sources.first_mut()) else { continue };
        let found = parts(source, name, estimate, &rows, lanes).await?;
        let place = tables.len();
        tables.push(CopiedTable {
            name: name.clone(),
            estimate,
            rows,
            indexes: indexes.remove(name).unwrap_or_default(),
            parts_left: AtomicUsize::new(found.len()),
            rows_copied: AtomicU64::new(0),
        });
        all.extend(found.into_iter().map(|part| (place, part)));
    }
    Ok(Work {
        tables,
        parts: Mutex::new(all.into()),
        rows: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        tables_done: AtomicUsize::new(0),
        current: AtomicUsize::new(0),
    })
}

async fn copy_rows(
    options: &CopyOptions,
    claim: &mut CopyClaim,
    sources: Vec<VerifySession>,
    work: &Arc<Work>,
    report: impl Fn(),
) -> Result<()> {
    let mut lanes = JoinSet::new();
    for source in sources {
        let target = TargetWriter::connect(&options.target).await?;
        lanes.spawn(Lane { source, target }.run(Arc::clone(work)));
    }
    let mut tick = tokio::time::interval(REPORT);
    let mut pinged = Instant::now();
    loop {
        tokio::select! {
            ended = lanes.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(lane)) => {
                    let Lane { source, target } = lane?;
                    tokio::join!(source.close(), target.close());
                }
                Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            },
            _ = tick.tick() => {
                report();
                if pinged.elapsed() >= PING {
                    pinged = Instant::now();
                    claim.ping().await?;
                }
            }
        }
    }
}

/// Makes functions, views, triggers and events. One that needs another is tried again after it. Returns those that
/// the target refuses, each with the reason; the applier needs none of them.
async fn make(writer: &mut TargetWriter, programs: &[Program], again: bool) -> Result<Vec<String>> {
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

/// Tells how far the copy is.
struct Report<'a> {
    begun: Instant,
    observe: &'a (dyn Fn(&CopyProgress) + Sync),
}

impl Report<'_> {
    fn show(&self, step: CopyStep, plan: &Plan, work: Option<&Arc<Work>>) {
        let current = work.and_then(|work| work.tables.get(work.current.load(Ordering::Relaxed)));
        let count =
            |of: fn(&Work) -> &AtomicU64| work.map_or(0, |work| of(work).load(Ordering::Relaxed));
        (self.observe)(&CopyProgress {
            step,
            tables: plan.tables.len(),
            tables_done: work.map_or(0, |work| work.tables_done.load(Ordering::Relaxed)),
            table: current.map(|table| table.name.to_string()).unwrap_or_default(),
            rows: count(|work| &work.rows),
            rows_estimated: plan.rows(),
            bytes: count(|work| &work.bytes),
            elapsed: self.begun.elapsed(),
        });
    }
}
