//! The begin of a copy: which tables, how each is read, and from which moment; or how far an earlier one came.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csa_applier::{CopyClaim, CopyRange, CopyState};
use csa_provider::binlog::GtidSet;
use csa_provider::server::link::Side;
use tracing::warn;

use super::chunked::{self, Chunked};
use super::definitions::{self, CHANGED, Definitions, Program};
use super::error::{CopyError, Result};
use super::keeping::keeping;
use super::later::Later;
use super::options::{CopyOptions, check_end};
use super::plan::{self, Plan};
use super::rows::TableRows;
use super::snapshot::{self, LastLook};
use crate::verify::{Scope, TableName, TableSelection, VerifySession};

/// Definitions may change between two looks at them; then all begins again.
const ATTEMPTS: u32 = 5;
/// Time between two looks at prepared transactions.
pub(super) const PREPARED: Duration = Duration::from_secs(1);
/// The reason why a copy can't continue whose tables have got children.
pub(super) const CONNECTED: &str = "a foreign key connects a new table with one that it copies";
/// ER_XAER_RMERR: the account lacks XA_RECOVER_ADMIN.
const DENIED_XA: u16 = 1401;

/// The contents of a copy.
pub(super) struct Begun {
    pub(super) plan: Plan,
    pub(super) chunked: Chunked,
    pub(super) definitions: Definitions,
    pub(super) rows: BTreeMap<TableName, TableRows>,
    /// The transactions that no row lacks.
    pub(super) executed: GtidSet,
}

impl Begun {
    /// Returns what tables in chunks get once they have converged.
    pub(super) fn later(&self, triggers: Vec<Program>, related: Vec<(String, String)>) -> Later {
        let Self { chunked, definitions, .. } = self;
        let foreign_keys = definitions.foreign_keys.iter();
        let later = foreign_keys.filter(|(name, _)| !chunked.cascading.contains(name));
        let statements = definitions.unique.iter().chain(later).map(|(_, text)| text.clone());
        Later { statements: statements.collect(), triggers, related, ..Later::default() }
    }
}

/// Opens a snapshot in each of `sources`. Tables and definitions are those of that moment: they are the same before
/// and after. Those of an earlier copy, `dropped`, may be on the target.
pub(super) async fn begin(
    options: &CopyOptions,
    selection: &dyn TableSelection,
    dropped: &BTreeSet<TableName>,
    watcher: &mut VerifySession,
    sources: &mut [VerifySession],
    last: &mut LastLook,
) -> Result<Begun> {
    for attempts in (0..ATTEMPTS).rev() {
        let is_last = attempts == 0;
        match attempt(options, selection, dropped, watcher, sources, last).await {
            Ok(Some(begun)) => return Ok(begun),
            Ok(None) | Err(CopyError::Changed(_)) => {}
            // It may end soon.
            Err(CopyError::Prepared(_)) if !is_last => tokio::time::sleep(PREPARED).await,
            Err(CopyError::Asked(error)) if error.is_definition_change() => {}
            Err(error) => return Err(error),
        }
        for source in &mut *sources {
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
    dropped: &BTreeSet<TableName>,
    watcher: &mut VerifySession,
    sources: &mut [VerifySession],
    last: &mut LastLook,
) -> Result<Option<Begun>> {
    let plan = plan::read(options, watcher, selection, &Scope::default(), dropped).await?;
    let names: Vec<TableName> = plan.tables.keys().cloned().collect();
    let rows = all_rows(watcher, &plan).await?;
    let chunked = choose(options, watcher, &plan, &rows).await?;
    let before = definitions::read(watcher, &plan.schemas, &names, &chunked.tables).await?;
    check_prepared(watcher).await?;
    let executed = snapshot::open(watcher, sources, last).await?;
    // The source may have passed the end since the first look.
    if let Some(until) = &options.until {
        check_end(until, &executed)?;
    }
    check_prepared(watcher).await?;
    let after = definitions::read(watcher, &plan.schemas, &names, &chunked.tables).await?;
    let again = plan::read(options, watcher, selection, &Scope::default(), dropped).await?;
    let is_same = before.is_same(&after) && plan.names_the_same(&again);
    Ok(is_same.then_some(Begun { plan: again, chunked, definitions: after, rows, executed }))
}

/// Refuses a source with prepared transactions: a snapshot does not show them, and their commits come without their
/// rows. An account that may not see them copies nevertheless; such a commit stops the channel later (1397).
pub(super) async fn check_prepared(source: &mut VerifySession) -> Result<()> {
    let prepared = match source.texts("XA RECOVER").await {
        Err(error) if error.code() == Some(DENIED_XA) => return Ok(()),
        other => other?,
    };
    if prepared.is_empty() {
        return Ok(());
    }
    let why = format!(
        "{} XA transactions are prepared there (XA RECOVER), whose rows a copy would lack; commit them or roll \
         them back, and copy again",
        prepared.len()
    );
    Err(CopyError::Prepared(source.refused(&why).to_string()))
}

/// Returns how the rows of each table are read.
pub(super) async fn all_rows(
    source: &mut VerifySession,
    plan: &Plan,
) -> Result<BTreeMap<TableName, TableRows>> {
    let mut rows = BTreeMap::new();
    for name in plan.tables.keys() {
        rows.insert(name.clone(), TableRows::of(source, name).await?);
    }
    Ok(rows)
}

/// See [`chunked::choose`].
pub(super) async fn choose(
    options: &CopyOptions,
    source: &mut VerifySession,
    plan: &Plan,
    rows: &BTreeMap<TableName, TableRows>,
) -> Result<Chunked> {
    let mut target = VerifySession::open(Side::Target, &options.target).await?;
    let chunked = chunked::choose(options, source, &mut target, plan, rows).await;
    target.close().await;
    chunked
}

/// A copy that was interrupted among its chunks.
pub(super) struct Interrupted {
    pub(super) begun: Begun,
    pub(super) ranges: Vec<CopyRange>,
    pub(super) epoch: u64,
    /// See [`super::ranges::Turn::has_rounds`].
    pub(super) has_rounds: bool,
    /// See [`super::ranges::Turn::deletes`].
    pub(super) deletes: bool,
}

/// Finds an interrupted copy that can continue: the source is the same one, it has all that chunks may show, its log
/// begins early enough, and neither definitions nor the channel's rules have changed.
pub(super) async fn interrupted(
    options: &CopyOptions,
    selection: &dyn TableSelection,
    claim: &mut CopyClaim,
    source: &mut VerifySession,
) -> Result<Option<Interrupted>> {
    let Some(state) = claim.state().await? else { return Ok(None) };
    let (another, purged) = look_at(source, &state).await?;
    // A table that was left out is in no chunk, and no CREATE of it follows.
    let rules = Later::read(&options.channel, &state.later)?.rules;
    let other_rules = rules
        .is_some_and(|rules| rules != options.rules)
        .then_some("the replicate_* rules have changed");
    if let Some(why) = another.or(purged).or(other_rules) {
        begins_again(why);
        return Ok(None);
    }
    let (ranges, epoch) = claim.take_ranges().await?;
    let made: BTreeSet<TableName> =
        claim.unfinished().await?.into_iter().map(TableName::from).collect();
    let tables = ranges.iter().map(|range| range.table.clone().into()).collect();
    let begun = begun_before(options, selection, source, state, made, tables);
    let begun = match keeping(claim, begun).await? {
        Ok(begun) => begun,
        Err(why) => {
            begins_again(why);
            return Ok(None);
        }
    };
    Ok(Some(Interrupted { begun, ranges, epoch, has_rounds: false, deletes: false }))
}

/// Says that what an interrupted copy has done is lost.
pub(super) fn begins_again(why: &str) {
    warn!("the interrupted copy can't continue, and begins again: {why}");
}

/// Reads again what an interrupted copy began with: it made the tables `made`, and those of them in `chunked` in
/// chunks. Returns the reason if something is defined in another way by now.
async fn begun_before(
    options: &CopyOptions,
    selection: &dyn TableSelection,
    source: &mut VerifySession,
    state: CopyState,
    made: BTreeSet<TableName>,
    chunked: BTreeSet<TableName>,
) -> Result<std::result::Result<Begun, &'static str>> {
    let mut plan = plan::read(options, source, selection, &Scope::default(), &made).await?;
    // What was made on the source meanwhile comes with the stream.
    plan.tables.retain(|name, _| made.contains(name));
    let names: Vec<TableName> = plan.tables.keys().cloned().collect();
    let definitions = definitions::read(source, &plan.schemas, &names, &chunked).await;
    let definitions = match definitions {
        Err(error) if error.is_definition_change() => return Ok(Err(CHANGED)),
        read => read?,
    };
    let is_one_gone = (names.len() != made.len()).then_some(CHANGED);
    if let Some(why) = definitions.difference(state.definitions).or(is_one_gone) {
        return Ok(Err(why));
    }
    let rows = all_rows(source, &plan).await?;
    let cascading = chunked::cascading(source).await?;
    let chunked = Chunked { tables: chunked, cascading, why_none: None };
    if chunked.connected_since(source, selection, &plan, &BTreeSet::new()).await?.is_some() {
        return Ok(Err(CONNECTED));
    }
    Ok(Ok(Begun { plan, chunked, definitions, rows, executed: state.executed }))
}

/// Returns the reason why chunks of this source do not fit to those of the interrupted copy, and the reason why a
/// channel can't follow this source from the copy's begin.
pub(super) async fn look_at(
    source: &mut VerifySession,
    state: &CopyState,
) -> Result<(Option<&'static str>, Option<&'static str>)> {
    let server: Vec<(String, String, String)> = source
        .rows("SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")
        .await?;
    let (uuid, executed, purged) = server.into_iter().next().unwrap_or_default();
    let set = |text: &str| text.replace('\n', "").parse::<GtidSet>().ok();
    let has_all = set(&executed).is_some_and(|executed| state.seen.is_subset_of(&executed));
    let follows = set(&purged).is_some_and(|purged| purged.is_subset_of(&state.executed));
    let another = match (uuid == state.source_uuid, has_all) {
        (false, _) => Some("the source is another server"),
        (true, false) => Some("the source has lost transactions"),
        (true, true) => None,
    };
    Ok((another, (!follows).then_some("the source has purged logs that follow its begin")))
}
