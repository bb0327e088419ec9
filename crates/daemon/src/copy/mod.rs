//! Makes an empty target a copy of the source: definitions, rows, then indexes, foreign keys and programs. The copy
//! ends with the channel's checkpoint, from which the channel follows the source.
//!
//! All rows are read in snapshots of one moment, whose GTID set is exact ([`snapshot`]). Nothing is locked
//! on the source, and nothing is written there.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod begin;
mod chunked;
mod definitions;
mod error;
mod lanes;
mod plan;
mod progress;
mod ranges;
mod rows;
mod snapshot;
mod work;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_applier::{
    Converging, CopyClaim, CopyRange, CopyState, Target, TargetGtids, TargetOptions,
};
use csa_provider::binlog::GtidSet;
use csa_provider::server::link::Side;
use csa_provider::sql_text::identifier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use begin::{Begun, Interrupted};
use definitions::Program;
pub(crate) use error::CopyError;
use error::Result;
use lanes::Lane;
use plan::Plan;
pub(crate) use progress::{CopyProgress, CopyStep};
use ranges::{Turn, noted};
use rows::TableRows;
use snapshot::LastLook;
use work::Work;
use writer::TargetWriter;

use crate::verify::{TableName, TableSelection, VerifySession};

/// Time between two reports of the progress.
const REPORT: Duration = Duration::from_millis(250);
/// Time between two signs of life to the target.
const PING: Duration = Duration::from_secs(20);

/// The servers of a copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyOptions {
    pub(crate) channel: String,
    /// The source's servers; the first one that answers is copied.
    pub(crate) sources: Vec<TargetOptions>,
    pub(crate) target: Target,
    /// Sessions on each side that copy rows.
    pub(crate) lanes: usize,
    /// Tables that have no more bytes together are read in one snapshot, others in chunks.
    pub(crate) snapshot_bytes: u64,
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
    pub(crate) in_chunks: bool,
}

/// The tables that a copy would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedCopy {
    /// The largest first.
    pub(crate) tables: Vec<PlannedTable>,
    /// The reason why no table is read in chunks.
    pub(crate) why_in_one_snapshot: Option<String>,
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
    /// The transactions up to which the channel applies what changed while chunks were read.
    pub(crate) until: Option<GtidSet>,
    /// Programs that the target refuses, such as views of tables that are not replicated.
    pub(crate) not_made: Vec<String>,
}

/// Follows a copy.
pub(crate) trait CopyObserver: Sync {
    /// Shows how far the copy is.
    fn progress(&self, progress: &CopyProgress);

    /// Tells after which transactions the channel will follow the source.
    fn begins_after(&self, executed: &GtidSet);
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
    if options.target.gtids == TargetGtids::Source {
        return Err(CopyError::Refused(format!(
            "channel {}: a copy has GTIDs of the target's own, and target_gtids = \"source\" permits none; set \
             \"mirror\", or copy with a dump or a clone (docs/provisioning.md)",
            options.channel
        )));
    }
    let begun = Instant::now();
    let claim = CopyClaim::take(&options.target, &options.channel).await?;
    let (server, watcher) = connect_source(options).await?;
    let writer = TargetWriter::connect(&options.target).await?;
    let report = Report { begun, observer };
    report.show(CopyStep::Snapshot, &Plan::default(), None);
    let last_look = LastLook::default();
    let mut copying = Copying { options, server, claim, watcher, last_look, writer, report };
    let interrupted =
        begin::interrupted(options, selection, &mut copying.claim, &mut copying.watcher).await?;
    let (rows, again) = match interrupted {
        Some(interrupted) => (copying.remaining(interrupted).await?, true),
        None => {
            let again = drop_unfinished(&mut copying.claim, &mut copying.writer).await?;
            (copying.snapshot(selection).await?, again)
        }
    };
    copying.end(rows, again).await
}

/// The sessions of a copy, beside those of its lanes.
struct Copying<'a> {
    options: &'a CopyOptions,
    server: &'a TargetOptions,
    claim: CopyClaim,
    watcher: VerifySession,
    last_look: LastLook,
    writer: TargetWriter,
    report: Report<'a>,
}

/// The rows of a copy: in chunks, what is left of them.
struct CopiedRows {
    begun: Begun,
    work: Arc<Work>,
}

impl Copying<'_> {
    /// Makes all tables, and copies those that are read in the snapshot; then all others in chunks.
    async fn snapshot(&mut self, selection: &dyn TableSelection) -> Result<CopiedRows> {
        let Self { options, server, claim, watcher, last_look, writer, report } = self;
        let mut sources = Vec::new();
        for _ in 0..options.lanes.max(1) {
            sources.push(VerifySession::connect(Side::Source, server).await?);
        }
        let mut begun = begin::begin(options, selection, watcher, &mut sources, last_look).await?;
        report.observer.begins_after(&begun.executed);
        report.show(CopyStep::Tables, &begun.plan, None);
        let names: Vec<_> = begun
            .plan
            .tables
            .keys()
            .map(|name| (name.schema.clone(), name.table.clone()))
            .collect();
        claim.note(&names).await?;
        for statement in &begun.definitions.before {
            writer.run(statement).await?;
        }
        let work = work::whole(&mut begun, &mut sources).await?;
        let lanes = lanes(self.options, sources, None).await?;
        let mut lanes = self.copy_rows(lanes, &begun, &work).await?;
        for lane in &mut lanes {
            lane.source.run("ROLLBACK").await?;
        }
        let chunks = work.take_chunks();
        if chunks.is_empty() {
            close(lanes).await;
            return Ok(CopiedRows { begun, work });
        }
        let ranges: Vec<CopyRange> = chunks
            .iter()
            .filter_map(|(place, part)| Some(noted(work.name(*place)?, part)))
            .collect();
        let state = CopyState {
            source_uuid: self.server_uuid().await?,
            definitions: begun.definitions.digest(),
            executed: begun.executed.clone(),
            seen: begun.executed.clone(),
        };
        self.claim.note_ranges(&state, &ranges).await?;
        let (_, epoch) = self.claim.take_ranges().await?;
        work.add(chunks);
        for lane in &mut lanes {
            lane.turn = Some(turn(self.options, epoch));
        }
        let lanes = self.copy_rows(lanes, &begun, &work).await?;
        close(lanes).await;
        Ok(CopiedRows { begun, work })
    }

    /// Copies what is left of an interrupted copy.
    async fn remaining(&mut self, interrupted: Interrupted) -> Result<CopiedRows> {
        let Interrupted { mut begun, ranges, epoch } = interrupted;
        self.report.observer.begins_after(&begun.executed);
        let work = work::remaining(&mut begun, &ranges)?;
        // Whose last chunk was the last thing that happened.
        for statement in work.indexes_of_filled_tables() {
            self.writer.add(statement).await?;
        }
        let mut sources = Vec::new();
        for _ in 0..self.options.lanes.max(1) {
            sources.push(VerifySession::connect(Side::Source, self.server).await?);
        }
        let lanes = lanes(self.options, sources, Some(epoch)).await?;
        let lanes = self.copy_rows(lanes, &begun, &work).await?;
        close(lanes).await;
        Ok(CopiedRows { begun, work })
    }

    async fn server_uuid(&mut self) -> Result<String> {
        let found: Vec<String> = self.watcher.rows("SELECT @@GLOBAL.server_uuid").await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// Copies all parts that the work has now.
    async fn copy_rows(
        &mut self,
        lanes: Vec<Lane>,
        begun: &Begun,
        work: &Arc<Work>,
    ) -> Result<Vec<Lane>> {
        let in_chunks = lanes.iter().any(|lane| lane.turn.is_some());
        let mut running = JoinSet::new();
        for lane in lanes {
            running.spawn(lane.run(Arc::clone(work)));
        }
        let mut ended = Vec::new();
        let mut tick = tokio::time::interval(REPORT);
        let mut pinged = Instant::now();
        loop {
            tokio::select! {
                next = running.join_next() => match next {
                    None => return Ok(ended),
                    Some(Ok(lane)) => ended.push(lane?),
                    Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
                },
                _ = tick.tick() => {
                    self.report.show(CopyStep::Rows, &begun.plan, Some(work));
                    if pinged.elapsed() >= PING {
                        pinged = Instant::now();
                        self.ping(in_chunks).await?;
                    }
                }
            }
        }
    }

    /// Keeps the claim, and notes what chunks may show by now.
    async fn ping(&mut self, in_chunks: bool) -> Result<()> {
        let executed: Vec<String> = self.watcher.rows("SELECT @@GLOBAL.gtid_executed").await?;
        let executed = executed.first().and_then(|text| text.replace('\n', "").parse().ok());
        match executed.filter(|_| in_chunks) {
            Some(executed) => Ok(self.claim.saw(&executed).await?),
            None => Ok(self.claim.ping().await?),
        }
    }

    /// Makes what comes after the rows, and the channel's checkpoint.
    async fn end(mut self, rows: CopiedRows, again: bool) -> Result<CopySummary> {
        let CopiedRows { begun, work } = rows;
        self.report.show(CopyStep::Programs, &begun.plan, Some(&work));
        let Begun { plan, chunked, definitions, executed, .. } = &begun;
        let is_whole = chunked.tables.is_empty();
        let (now, later): (Vec<_>, Vec<_>) = definitions
            .foreign_keys
            .iter()
            .partition(|(name, _)| is_whole || chunked.cascading.contains(name));
        for (_, statement) in now {
            self.writer.add(statement).await?;
        }
        let not_made = make(&mut self.writer, &definitions.programs, again).await?;
        let until = match is_whole {
            true => None,
            false => Some(changes_end(&begun, &mut self.watcher, &mut self.last_look).await?),
        };
        self.watcher.close().await;
        self.writer.close().await;
        match &until {
            None => self.claim.finish(executed).await?,
            Some(until) => {
                let later = definitions.unique.iter().chain(later).map(|(_, text)| text);
                let later = serde_json::json!(later.collect::<Vec<_>>()).to_string();
                self.claim.converge(executed, until, &later).await?;
            }
        }
        Ok(CopySummary {
            tables: plan.tables.len(),
            rows: work.rows.load(Ordering::Relaxed),
            bytes: work.bytes.load(Ordering::Relaxed),
            elapsed: self.report.begun.elapsed(),
            executed: begun.executed,
            until,
            not_made,
        })
    }
}

fn turn(options: &CopyOptions, epoch: u64) -> Turn {
    Turn { channel: options.channel.clone(), epoch }
}

/// Connects a session on the target for each on the source; `epoch` for chunks.
async fn lanes(
    options: &CopyOptions,
    sources: Vec<VerifySession>,
    epoch: Option<u64>,
) -> Result<Vec<Lane>> {
    let mut lanes = Vec::new();
    for source in sources {
        let target = TargetWriter::connect(&options.target).await?;
        lanes.push(Lane { source, target, turn: epoch.map(|epoch| turn(options, epoch)) });
    }
    Ok(lanes)
}

async fn close(lanes: Vec<Lane>) {
    for Lane { source, target, .. } in lanes {
        tokio::join!(source.close(), target.close());
    }
}

/// Returns a set of transactions that has all that any chunk shows. Definitions are still those of the begin.
async fn changes_end(
    begun: &Begun,
    watcher: &mut VerifySession,
    last: &mut LastLook,
) -> Result<GtidSet> {
    let names: Vec<TableName> = begun.plan.tables.keys().cloned().collect();
    check_definitions(begun, &names, watcher).await?;
    let until = snapshot::open(watcher, &mut [], last).await?;
    check_definitions(begun, &names, watcher).await?;
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

/// Ends a copy in chunks once the channel has applied what changed meanwhile: adds unique keys and foreign keys.
///
/// # Errors
/// The target refuses or goes away; it can be repeated.
pub(crate) async fn complete(
    target: &Target,
    channel: &str,
    converging: &Converging,
) -> std::result::Result<(), CopyError> {
    let mut claim = CopyClaim::take_converged(target, channel).await?;
    let mut writer = TargetWriter::connect(target).await?;
    let later: Vec<String> = serde_json::from_str(&converging.later).map_err(|error| {
        CopyError::Refused(format!(
            "channel {channel}: later in csa.copy_state can't be read: {error}"
        ))
    })?;
    for statement in &later {
        let add = writer.add(statement);
        tokio::pin!(add);
        loop {
            tokio::select! {
                added = &mut add => break added?,
                () = tokio::time::sleep(PING) => claim.ping().await?,
            }
        }
    }
    writer.close().await;
    claim.end().await?;
    Ok(())
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

/// Returns the tables that a copy would make; changes nothing.
///
/// # Errors
/// See [`copy`].
pub(crate) async fn plan(
    options: &CopyOptions,
    selection: &dyn TableSelection,
) -> std::result::Result<PlannedCopy, CopyError> {
    let (_, mut source) = connect_source(options).await?;
    let plan = plan::read(options, &mut source, selection, &BTreeSet::new()).await?;
    let mut rows = BTreeMap::new();
    for name in plan.tables.keys() {
        rows.insert(name.clone(), TableRows::of(&mut source, name).await?);
    }
    let chunked = begin::choose(options, &mut source, &plan, &rows).await?;
    source.close().await;
    let tables = plan.by_size().into_iter().map(|(name, estimate)| {
        let rows = rows.get(name);
        let has_numbers = rows.is_some_and(|rows| rows.integer.is_some());
        PlannedTable {
            name: name.to_string(),
            rows: estimate.rows,
            bytes: estimate.rows * estimate.average_row,
            parts: if has_numbers { plan::parts_wanted(estimate, options.lanes) } else { 1 },
            has_key: rows.is_some_and(|rows| rows.has_key),
            in_chunks: chunked.tables.contains(name),
        }
    });
    Ok(PlannedCopy { tables: tables.collect(), why_in_one_snapshot: chunked.why_none })
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
    observer: &'a dyn CopyObserver,
}

impl Report<'_> {
    fn show(&self, step: CopyStep, plan: &Plan, work: Option<&Arc<Work>>) {
        let current = work.and_then(|work| work.tables.get(work.current.load(Ordering::Relaxed)));
        self.observer.progress(&CopyProgress {
            step,
            tables: plan.tables.len(),
            tables_done: work.map_or(0, |work| work.tables_done.load(Ordering::Relaxed)),
            table: current.map(|table| table.name.to_string()).unwrap_or_default(),
            rows: work.map_or(0, |work| work.rows.load(Ordering::Relaxed)),
            rows_before: work.map_or(0, |work| work.rows_before),
            rows_estimated: plan.rows(),
            bytes: work.map_or(0, |work| work.bytes.load(Ordering::Relaxed)),
            elapsed: self.begun.elapsed(),
        });
    }
}
