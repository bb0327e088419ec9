//! Tables that are copied again on a channel that has a checkpoint: round by round, and between two rounds the channel
//! runs. In a round nothing is applied, so each chunk shows at least what the channel has applied; all that it shows
//! beyond that is applied again later.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_applier::{CopyClaim, CopyRange, CopyState};
use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::server::link::Side;
use tokio::time::Instant;

use super::begin::{Begun, CONNECTED, Interrupted, all_rows, begins_again, choose, look_at};
use super::chunked::{self, Chunked};
use super::copying::{CopiedRows, Copying, Report};
use super::definitions::{self, ProgramKind, qualified};
use super::end::changes_end;
use super::error::{CopyError, Result};
use super::keeping::keeping;
use super::later::Later;
use super::options::{CopyObserver, CopyOptions, check_gtids, connect_source};
use super::plan::{self, parts, parts_between};
use super::ranges::noted;
use crate::verify::{
    Scope, TableName, TableSelection, VerifySession, common, definition, folds_case, lowercase,
};

/// Tables that are copied again.
pub(crate) struct AgainOptions {
    pub(crate) copy: CopyOptions,
    /// Their names on the source.
    pub(crate) tables: BTreeSet<TableName>,
    /// Copy only rows whose key begins with an integer from the first to the last one.
    pub(crate) integers: Option<(i128, i128)>,
}

/// The end of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RoundEnd {
    /// Rows are left to copy.
    Unfinished,
    /// All rows are copied; the channel lets the tables converge.
    Copied { rows: u64 },
}

/// Copies rows for `time`, or to the end without one. The channel must not run meanwhile, and has to run between two
/// rounds and after the last one.
///
/// # Errors
/// A table can't be copied in this way, or a server refuses or goes away. The next round continues.
pub(crate) async fn copy_again(
    options: &AgainOptions,
    selection: &dyn TableSelection,
    time: Option<Duration>,
    observer: &dyn CopyObserver,
) -> std::result::Result<RoundEnd, CopyError> {
    check_gtids(&options.copy)?;
    let begun = Instant::now();
    let (server, mut watcher) = connect_source(&options.copy).await?;
    let (mut claim, executed) =
        CopyClaim::take_stopped(&options.copy.target, &options.copy.channel).await?;
    let look = async {
        options.copy.pace.look_at(server, options.copy.source_slowdown).await;
        Ok(folds_case(&mut watcher).await?)
    };
    let tables = match keeping(&mut claim, look).await? {
        true => options.tables.iter().map(lowercase).collect(),
        false => options.tables.clone(),
    };
    let report = Report { begun, observer, pace: &options.copy.pace };
    let copying = Copying::of(&options.copy, claim, server, watcher, report).await?;
    let again = Again { options, tables, selection, executed, copying };
    tokio::select! {
        round = again.round(time) => round,
        never = options.copy.hold(server) => match never {},
    }
}

struct Again<'a> {
    options: &'a AgainOptions,
    /// The names as the source keeps them.
    tables: BTreeSet<TableName>,
    selection: &'a dyn TableSelection,
    /// The transactions that the channel has applied.
    executed: GtidSet,
    copying: Copying<'a>,
}

impl Again<'_> {
    async fn round(mut self, time: Option<Duration>) -> Result<RoundEnd> {
        let copied = self.copied(time).await;
        let Copying { claim, watcher, writer, .. } = self.copying;
        let (rows, until) = match copied {
            Ok(copied) => copied,
            Err(error) => {
                // The channel waits for the lock as long as the session has it.
                claim.give_back().await;
                return Err(error);
            }
        };
        writer.close().await;
        watcher.close().await;
        match until {
            None => {
                claim.give_back().await;
                Ok(RoundEnd::Unfinished)
            }
            Some(until) => {
                claim.converge_again(&until).await?;
                Ok(RoundEnd::Copied { rows })
            }
        }
    }

    /// Copies for this time. Returns the number of rows so far, and once all are there the set with which the tables
    /// have converged.
    async fn copied(&mut self, time: Option<Duration>) -> Result<(u64, Option<GtidSet>)> {
        self.check_source().await?;
        let (begun, ranges, epoch) = self.begin().await?;
        let deletes = self.options.integers.is_some();
        let interrupted = Interrupted { begun, ranges, epoch, has_rounds: true, deletes };
        let CopiedRows { begun, work } = self.copying.remaining(interrupted, time).await?;
        let rows = work.rows.load(Ordering::Relaxed);
        if !work.is_done() {
            self.copying.note_seen().await?;
            return Ok((rows, None));
        }
        let related = match self.copying.claim.state().await? {
            Some(state) => self.related(&state)?,
            None => BTreeSet::new(),
        };
        let Copying { claim, watcher, last_look, .. } = &mut self.copying;
        let end = changes_end(&begun, self.selection, &related, watcher, last_look);
        Ok((rows, Some(keeping(claim, end).await?)))
    }

    /// Returns the tables whose foreign keys are not checked while the noted copy is under way.
    fn related(&self, state: &CopyState) -> Result<BTreeSet<TableName>> {
        let later = Later::read(&self.options.copy.channel, &state.later)?;
        Ok(later.related.into_iter().map(TableName::from).collect())
    }

    /// Refuses a source that lacks what was applied, such as a replica of the real one that lags.
    async fn check_source(&mut self) -> Result<()> {
        let Self { executed, copying, .. } = self;
        let query = format!("SELECT GTID_SUBSET('{executed}', @@GLOBAL.gtid_executed)");
        let has_all: Vec<u8> = copying.watcher.rows(&query).await?;
        match has_all.first() {
            Some(1) => Ok(()),
            _ if is_planted(Bug::SourceBehindAccepted) => Ok(()),
            _ => {
                let why = "it lacks transactions that the channel has applied; try again once it has them";
                Err(copying.watcher.refused(why).into())
            }
        }
    }

    /// Returns the copy of the rounds before, or begins one.
    async fn begin(&mut self) -> Result<(Begun, Vec<CopyRange>, u64)> {
        let Some(state) = self.copying.claim.state().await? else {
            return self.begin_first().await;
        };
        let (ranges, epoch) = self.copying.claim.take_ranges().await?;
        let noted: BTreeSet<TableName> =
            ranges.iter().map(|range| range.table.clone().into()).collect();
        let later = Later::read(&self.options.copy.channel, &state.later)?;
        if noted != self.tables || later.integers != self.options.integers {
            let converging = self.copying.claim.converging().await?;
            let has_end = converging.is_some_and(|converging| converging.until.is_some());
            return Err(self.not_finished(&noted, later.integers, has_end));
        }
        let begun = self.read(state.executed.clone()).await?;
        let (another, _) = look_at(&mut self.copying.watcher, &state).await?;
        // Without its tables nothing is copied yet, and the channel may have changed those that it made meanwhile.
        if another.is_some() || !state.has_tables {
            return self.begin_first().await;
        }
        if let Some(why) = begun.definitions.difference(state.definitions) {
            begins_again(why);
            return self.begin_first().await;
        }
        // The channel has applied a statement that made one, and rows of chunks would fire it.
        if self.copying.writer.has_triggers(&self.tables).await? {
            return self.begin_first().await;
        }
        let known = self.related(&state)?;
        let (Begun { plan, chunked, .. }, source) = (&begun, &mut self.copying.watcher);
        if chunked.connected_since(source, self.selection, plan, &known).await?.is_some() {
            begins_again(CONNECTED);
            return self.begin_first().await;
        }
        Ok((begun, ranges, epoch))
    }

    fn not_finished(
        &self,
        tables: &BTreeSet<TableName>,
        integers: Option<(i128, i128)>,
        has_end: bool,
    ) -> CopyError {
        let channel = &self.options.copy.channel;
        let names = tables.iter().map(|name| format!("--table {}", name.argument()));
        let range = integers.map(|(first, last)| format!("--range {first}..{last}"));
        let names: Vec<String> = names.chain(range).collect();
        CopyError::Refused(match has_end {
            true => format!(
                "channel {channel}: it still applies what changed during another copy; try again once it is running"
            ),
            false => format!(
                "channel {channel}: another copy is not finished: run csa-daemon copy --channel {channel} {}, or give it up: \
                 csa-daemon stop --channel {channel}, if it runs, then csa-daemon copy --channel {channel} --cancel",
                names.join(" ")
            ),
        })
    }

    /// Notes the copy, then makes the tables empty. After a crash in between the next round begins again; the channel
    /// makes what it needs to run until then.
    async fn begin_first(&mut self) -> Result<(Begun, Vec<CopyRange>, u64)> {
        let begun = self.read(self.executed.clone()).await?;
        let absent = self.absent(&begun).await?;
        let Self { options, tables, copying, .. } = self;
        let mut ranges = Vec::new();
        for (name, rows) in &begun.rows {
            let estimate = begun.plan.tables.get(name).copied().unwrap_or_default();
            let parts = match options.integers {
                None => parts(&mut copying.watcher, name, estimate, rows, &options.copy).await?,
                Some(integers) => parts_between(integers, &options.copy),
            };
            ranges.extend(parts.iter().map(|part| noted(name, part)));
        }
        let related = chunked::related(&mut copying.watcher, tables).await?;
        let related = related.into_iter().map(Into::into).collect();
        // All programs of tables are triggers.
        let triggers = begun.definitions.programs.clone();
        let later = match options.integers {
            None => {
                Later { tables: begun.definitions.before.clone(), ..begun.later(triggers, related) }
            }
            // The table keeps its keys.
            integers => Later { triggers, related, integers, ..Later::default() },
        };
        let later = Later { absent, ..later };
        let state = CopyState {
            source_uuid: copying.server_uuid().await?,
            definitions: begun.definitions.digest(),
            executed: begun.executed.clone(),
            seen: begun.executed.clone(),
            has_tables: false,
            later: later.text(),
        };
        copying.claim.note_ranges(&state, &ranges).await?;
        self.make_tables(&begun, later).await?;
        let (ranges, epoch) = self.copying.claim.take_ranges().await?;
        Ok((begun, ranges, epoch))
    }

    /// Reads the tables and definitions of the source.
    async fn read(&mut self, executed: GtidSet) -> Result<Begun> {
        let Self { options, tables, selection, copying, .. } = self;
        let (source, tables) = (&mut copying.watcher, &*tables);
        let scope = Scope { tables: tables.iter().cloned().collect(), ..Scope::default() };
        let mut plan = plan::read(&options.copy, source, *selection, &scope, tables).await?;
        plan.schemas = tables
            .iter()
            .map(|name| name.schema.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let names: Vec<TableName> = plan.tables.keys().cloned().collect();
        if let Some(missing) = tables.iter().find(|name| !plan.tables.contains_key(*name)) {
            let why = format!(
                "it has no table {missing}, or the channel does not replicate it. If a copy of the table was begun before, \
                 give it up: csa-daemon stop --channel {channel}, if it runs, then csa-daemon copy --channel {channel} \
                 --cancel",
                channel = options.copy.channel
            );
            return Err(source.refused(&why).into());
        }
        let rows = all_rows(source, &plan).await?;
        let chunked = choose(&options.copy, source, &plan, &rows).await?;
        if let Some(why) = &chunked.why_none {
            return Err(source.refused(&format!("tables can't be copied again: {why}")).into());
        }
        if let Some(other) = tables.iter().find(|name| !chunked.tables.contains(*name)) {
            let why = format!(
                "{other} can't be copied again on its own. It needs a primary key, whose first column is that with \
                 AUTO_INCREMENT. No foreign key that cascades may connect it with other tables. Use csa-daemon \
                 verify --repair for single rows"
            );
            return Err(source.refused(&why).into());
        }
        if options.integers.is_some()
            && let Some((name, _)) = rows.iter().find(|(_, rows)| rows.integer.is_none())
        {
            let why = format!(
                "the primary key of {name} does not begin with an integer, so --range means nothing; copy the \
                 whole table"
            );
            return Err(source.refused(&why).into());
        }
        let mut definitions =
            definitions::read(source, &plan.schemas, &names, &chunked.tables).await?;
        // Those of other tables are none of this copy's business.
        definitions.programs.retain(|program| program.kind == ProgramKind::Trigger);
        let chunked = Chunked { cascading: BTreeSet::new(), ..chunked };
        Ok(Begun { plan, chunked, definitions, rows, executed })
    }

    /// Returns the tables that the target lacks, or lacked when the copy was first begun. It lacks those that an interrupted
    /// round has dropped, too.
    async fn absent(&mut self, begun: &Begun) -> Result<Vec<(String, String)>> {
        let mut absent = self.check_target(begun).await?;
        if let Some(state) = self.copying.claim.state().await? {
            if !state.has_tables {
                absent.clear();
            }
            absent.extend(Later::read(&self.options.copy.channel, &state.later)?.absent);
        }
        Ok(absent)
    }

    /// Refuses a table whose columns differ: the channel has yet to apply a definition, and it would fail on the
    /// new table. Returns the tables that the target lacks.
    async fn check_target(&mut self, begun: &Begun) -> Result<Vec<(String, String)>> {
        let mut absent = Vec::new();
        let target = &self.options.copy.target;
        let mut session = VerifySession::open(Side::Target, target).await?;
        for name in begun.plan.tables.keys() {
            let Some(found) = definition(&mut session, name).await? else {
                absent.push(name.clone().into());
                continue;
            };
            let Some(source) = definition(&mut self.copying.watcher, name).await? else { continue };
            let common = common(&source, &found, &target.collation_map);
            if let Some(difference) = common.differences.first() {
                let why = format!(
                    "{name} has another definition there: {difference}; let the channel apply the definition \
                     first; if it can't, run there: DROP TABLE {}",
                    qualified(name)
                );
                return Err(session.refused(&why).into());
            }
        }
        session.close().await;
        Ok(absent)
    }

    /// Makes the tables again, without rows, unique keys, foreign keys and triggers. A table of which only a range is
    /// copied loses its triggers.
    async fn make_tables(&mut self, begun: &Begun, later: Later) -> Result<()> {
        let later = Later { tables: Vec::new(), ..later }.text();
        let Copying { claim, writer, .. } = &mut self.copying;
        if self.options.integers.is_some() {
            for trigger in &begun.definitions.programs {
                writer.run(&trigger.removal()).await?;
            }
            return Ok(claim.made_tables(&later).await?);
        }
        let tables = async {
            for name in begun.plan.tables.keys() {
                writer.drop_table(name).await?;
            }
            for statement in &begun.definitions.before {
                writer.run(statement).await?;
            }
            Ok(())
        };
        keeping(claim, tables).await?;
        Ok(claim.made_tables(&later).await?)
    }
}
