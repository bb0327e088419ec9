//! A copy under way: its sessions, its lanes, and their progress.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_applier::{CopyClaim, CopyRange, CopyState, Target};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::seams::unhurried;
use csa_provider::server::link::Side;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::begin::{self, Begun, Interrupted};
use super::compared;
use super::end::{changes_end, make};
use super::error::Result;
use super::keeping::{PING, keeping};
use super::lanes::Lane;
use super::later::Later;
use super::options::{CopyObserver, CopyOptions, CopySummary};
use super::pace::Pace;
use super::plan::Plan;
use super::progress::{CopyProgress, CopyStep};
use super::ranges::{Turn, noted};
use super::relay::empty_relay_store;
use super::snapshot::LastLook;
use super::work::{self, Work};
use super::writer::TargetWriter;
use crate::verify::{TableName, TableSelection, VerifySession, source_executed};

/// Time between two reports of the progress.
const REPORT: Duration = Duration::from_millis(250);
/// A round copies at most this many times as long as it was told.
const MOST_TIMES: u32 = 5;

/// The sessions of a copy, beside those of its lanes.
pub(super) struct Copying<'a> {
    pub(super) options: &'a CopyOptions,
    pub(super) server: &'a Target,
    pub(super) claim: CopyClaim,
    pub(super) watcher: VerifySession,
    pub(super) last_look: LastLook,
    pub(super) writer: TargetWriter,
    pub(super) report: Report<'a>,
}

/// The rows of a copy: in chunks, what is left of them.
pub(super) struct CopiedRows {
    pub(super) begun: Begun,
    pub(super) work: Arc<Work>,
}

impl<'a> Copying<'a> {
    /// Connects the session that writes to the target, beside those that are there.
    pub(super) async fn of(
        options: &'a CopyOptions,
        claim: CopyClaim,
        server: &'a Target,
        watcher: VerifySession,
        report: Report<'a>,
    ) -> Result<Self> {
        let writer = TargetWriter::connect(&options.target).await?;
        let last_look = LastLook::default();
        Ok(Self { options, server, claim, watcher, last_look, writer, report })
    }

    /// Makes all tables, and copies those that are read in the snapshot; then all others in chunks. Those of an earlier
    /// copy, `dropped`, may be there again.
    pub(super) async fn snapshot(
        &mut self,
        selection: &dyn TableSelection,
        dropped: &BTreeSet<TableName>,
    ) -> Result<CopiedRows> {
        let mut sources = self.sources().await?;
        let source_uuid = self.server_uuid().await?;
        let Self { options, claim, watcher, last_look, writer, report, .. } = self;
        let before = claim.executed_before(&options.target).await?;
        let begins = begin::begin(options, selection, dropped, watcher, &mut sources, last_look);
        let mut begun = keeping(claim, begins).await?;
        before.check(source_uuid.parse().ok(), &begun.executed)?;
        if let Some(relay) = &options.relay {
            // An open store may have been received from a source that has another history since.
            report.observer.ends_reception().await;
            empty_relay_store(relay).await?;
        }
        report.observer.begins_after(&begun.executed);
        report.show(CopyStep::Tables, &begun.plan, None);
        let names: Vec<_> = begun.plan.tables.keys().cloned().map(Into::into).collect();
        claim.note(&names, source_uuid.parse().ok()).await?;
        let tables = async {
            for statement in &begun.definitions.before {
                writer.run(statement).await?;
            }
            work::whole(&mut begun, &mut sources, options).await
        };
        let (work, chunks) = keeping(claim, tables).await?;
        let compares = chunks.is_empty() && self.options.compares;
        let mut lanes = self.lanes(sources, None).await?;
        for lane in &mut lanes {
            lane.keeps_snapshot = compares;
        }
        let mut lanes = self.copy_rows(lanes, &begun, &work).await?;
        if compares {
            self.report.show(CopyStep::Comparison, &begun.plan, Some(&work));
            lanes = keeping(&mut self.claim, compared::compare(lanes, &work)).await?;
        }
        for lane in &mut lanes {
            lane.source.run("ROLLBACK").await?;
        }
        if chunks.is_empty() {
            close(lanes).await;
            return Ok(CopiedRows { begun, work });
        }
        let ranges: Vec<CopyRange> = chunks
            .iter()
            .filter_map(|(place, part)| Some(noted(work.name(*place)?, part)))
            .collect();
        let rules = Some(self.options.rules.clone());
        let later = Later { rules, ..begun.later(Vec::new(), Vec::new()) };
        let state = CopyState {
            source_uuid,
            definitions: begun.definitions.digest(),
            executed: begun.executed.clone(),
            seen: begun.executed.clone(),
            has_tables: true,
            later: later.text(),
        };
        self.claim.note_ranges(&state, &ranges).await?;
        let (_, epoch) = self.claim.take_ranges().await?;
        work.add(chunks);
        let turn = Turn {
            channel: self.options.channel.clone(),
            epoch,
            has_rounds: false,
            deletes: false,
        };
        for lane in &mut lanes {
            lane.turn = Some(turn.clone());
        }
        let lanes = self.copy_rows(lanes, &begun, &work).await?;
        close(lanes).await;
        Ok(CopiedRows { begun, work })
    }

    /// Copies what is left of an interrupted copy, for this time if there is one.
    pub(super) async fn remaining(
        &mut self,
        interrupted: Interrupted,
        time: Option<Duration>,
    ) -> Result<CopiedRows> {
        let Interrupted { mut begun, ranges, epoch, has_rounds, deletes } = interrupted;
        self.report.observer.begins_after(&begun.executed);
        let mut work = work::remaining(&mut begun, &ranges)?;
        // The last chunk may have been committed, and its table not indexed.
        let Self { claim, writer, .. } = self;
        let indexes = async {
            for statement in work.indexes_of_filled_tables() {
                writer.add(statement).await?;
            }
            Ok(())
        };
        keeping(claim, indexes).await?;
        let sources = self.sources().await?;
        let turn = Turn { channel: self.options.channel.clone(), epoch, has_rounds, deletes };
        let lanes = self.lanes(sources, Some(turn)).await?;
        let prepared = self.report.begun.elapsed();
        work.deadline = time.map(|time| Instant::now() + time_to_copy(time, prepared));
        let work = Arc::new(work);
        let lanes = self.copy_rows(lanes, &begun, &work).await?;
        close(lanes).await;
        Ok(CopiedRows { begun, work })
    }

    /// Connects a session on the source for each lane.
    async fn sources(&mut self) -> Result<Vec<VerifySession>> {
        let (lanes, server) = (self.options.lanes.max(1), self.server);
        let sources = async {
            let mut sources = Vec::new();
            for _ in 0..lanes {
                sources.push(VerifySession::open(Side::Source, server).await?);
            }
            Ok(sources)
        };
        keeping(&mut self.claim, sources).await
    }

    /// Connects a session on the target for each on the source; `turn` for chunks.
    async fn lanes(
        &mut self,
        sources: Vec<VerifySession>,
        turn: Option<Turn>,
    ) -> Result<Vec<Lane>> {
        let Self { options, server, claim, .. } = self;
        let held = claim.held();
        let lanes = async {
            let mut lanes = Vec::new();
            for source in sources {
                let target = TargetWriter::connect(&options.target).await?;
                lanes.push(Lane {
                    server: server.clone(),
                    source,
                    target,
                    turn: turn.clone(),
                    keeps_snapshot: false,
                    held: held.clone(),
                    pace: Arc::clone(&options.pace),
                    limits: options.limits,
                });
            }
            Ok(lanes)
        };
        keeping(claim, lanes).await
    }

    pub(super) async fn server_uuid(&mut self) -> Result<String> {
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
            running.spawn(lane.run(Arc::clone(work)).in_current_span());
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
                    if pinged.elapsed() >= unhurried(PING) {
                        pinged = Instant::now();
                        match in_chunks {
                            true => self.note_seen().await?,
                            false => self.claim.ping().await?,
                        }
                    }
                }
            }
        }
    }

    /// Keeps the claim, and notes what chunks may show by now.
    pub(super) async fn note_seen(&mut self) -> Result<()> {
        let executed = source_executed(&mut self.watcher).await?;
        Ok(self.claim.saw(&executed).await?)
    }

    /// Makes what comes after the rows, and the channel's checkpoint.
    pub(super) async fn end(
        mut self,
        rows: CopiedRows,
        selection: &dyn TableSelection,
        again: bool,
    ) -> Result<CopySummary> {
        let CopiedRows { begun, work } = rows;
        self.report.show(CopyStep::Programs, &begun.plan, Some(&work));
        let Begun { plan, chunked, definitions, executed, .. } = &begun;
        let is_whole = chunked.tables.is_empty();
        let Self { claim, writer, .. } = &mut self;
        let keys_and_programs = async {
            for (name, statement) in &definitions.foreign_keys {
                if is_whole || chunked.cascading.contains(name) {
                    writer.add(statement).await?;
                }
            }
            make(writer, &definitions.programs, again).await
        };
        let mut not_made = keeping(claim, keys_and_programs).await?;
        not_made.extend(definitions.not_copied.iter().cloned());
        let until = match is_whole {
            true => None,
            false => {
                let Self { claim, watcher, last_look, .. } = &mut self;
                let none = BTreeSet::new();
                let end = changes_end(&begun, selection, &none, watcher, last_look);
                Some(keeping(claim, end).await?)
            }
        };
        self.watcher.close().await;
        self.writer.close().await;
        match &until {
            None => self.claim.finish(executed).await?,
            Some(until) if is_planted(Bug::ChangesBeginLate) => {
                self.claim.converge(until, until).await?;
            }
            Some(until) => self.claim.converge(executed, until).await?,
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

/// Returns how long a round copies rows: at least as long as it took to prepare, so that servers that are slow to
/// answer do not spend most of a round without a row.
fn time_to_copy(time: Duration, prepared: Duration) -> Duration {
    time.max(prepared.min(time * MOST_TIMES))
}

async fn close(lanes: Vec<Lane>) {
    for Lane { source, target, .. } in lanes {
        tokio::join!(source.close(), target.close());
    }
}

/// Tells how far the copy is.
pub(super) struct Report<'a> {
    pub(super) begun: Instant,
    pub(super) observer: &'a dyn CopyObserver,
    pub(super) pace: &'a Pace,
}

impl Report<'_> {
    pub(super) fn show(&self, step: CopyStep, plan: &Plan, work: Option<&Arc<Work>>) {
        self.observer.progress(&CopyProgress {
            step,
            tables: plan.tables.len(),
            tables_done: work.map_or(0, |work| work.tables_done.load(Ordering::Relaxed)),
            moving: work.map_or_else(Vec::new, |work| work.moving()),
            rows: work.map_or(0, |work| work.rows.load(Ordering::Relaxed)),
            rows_before: work.map_or(0, |work| work.rows_before),
            rows_estimated: plan.rows(),
            bytes: work.map_or(0, |work| work.bytes.load(Ordering::Relaxed)),
            elapsed: self.begun.elapsed(),
            held: self.pace.held(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_copies_as_long_as_it_prepares_within_limits() {
        let [second, long] = [1, 60].map(Duration::from_secs);
        assert_eq!(time_to_copy(2 * second, Duration::ZERO), 2 * second);
        assert_eq!(time_to_copy(2 * second, 7 * second), 7 * second);
        assert_eq!(time_to_copy(2 * second, long), 10 * second);
    }
}
