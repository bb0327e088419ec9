//! Compares a channel's source and target while both are in use, and tells lag from difference.
//!
//! Each server computes digests of key ranges; ranges that differ are divided down to rows. Rows
//! that differ are read again, the target only after it has passed the `gtid_executed` that the
//! source had at its own reading
//! (<https://dev.mysql.com/doc/refman/en/replication-gtids-concepts.html>). Nothing is locked and
//! nothing is written.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod catalogue;
mod definition;
mod executed;
mod expression;
mod grants;
mod history;
mod keyed;
mod keyless;
mod pace;
mod ranges;
#[cfg(test)]
mod ranges_tests;
mod recheck;
mod repair;
mod report;
mod resume;
mod scope;
mod servers;
mod session;
mod suspects;
mod table;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::{TargetGtids, TargetOptions};
use csa_provider::SourceOptions;
use csa_provider::link::LinkError;
pub(crate) use csa_provider::link::Side;

pub(crate) use catalogue::{Column, Definition, Estimate, LEFT_OUT, Tables, UniqueKey};
pub(crate) use definition::common;
pub(crate) use grants::missing as missing_select;
pub use repair::{REPAIR_SESSION, Repair};
pub use report::{DifferenceKind, Outcome, Report, RowDifference, TableReport};
pub use resume::Saved;
pub use scope::{EveryTable, Scope, TableName, TableSelection};
pub(crate) use scope::{Listed, Pair};
use servers::Servers;
pub(crate) use session::connect_error;

/// The scope of a comparison, and its limits.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The channel whose checkpoint tells the target's progress.
    pub channel: String,
    /// The first one that has what the target executed is used; see [`source_servers`].
    pub source: Vec<TargetOptions>,
    pub target: TargetOptions,
    pub scope: Scope,
    /// The most rows in a chunk.
    pub chunk_rows: u64,
    /// The most rows read per second.
    pub max_rate: Option<u64>,
    /// Reading pauses while the target lags by more than this.
    pub max_lag: Option<Duration>,
    /// Compare rows of tables whose definitions differ, by the columns that both sides have.
    pub common_columns: bool,
    /// Differing rows reported for a table, at least 1; after that the rest of it is left out.
    pub max_differences: usize,
    /// How long the target may make no progress towards a position that is waited for.
    pub catch_up_timeout: Duration,
    /// Write statements for the rows that differ.
    pub repair: bool,
    /// The state of an earlier run that was interrupted.
    pub resume: Option<Saved>,
    /// Asked while the target makes no progress.
    pub standing: Option<Arc<dyn Standing>>,
}

/// Knows whether the channel applies anything.
pub trait Standing: Debug + Send + Sync {
    /// The reason why it applies nothing until somebody acts, and how to proceed; may block for a moment.
    fn reason(&self) -> Option<String>;
}

impl VerifyOptions {
    pub const CHUNK_ROWS: u64 = 5_000;
    pub const MAX_DIFFERENCES: usize = 100;
    pub const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);

    /// Everything, unthrottled.
    #[must_use]
    pub fn new(channel: &str, source: Vec<TargetOptions>, target: TargetOptions) -> Self {
        Self {
            channel: channel.to_owned(),
            source,
            target,
            scope: Scope::default(),
            chunk_rows: Self::CHUNK_ROWS,
            max_rate: None,
            max_lag: None,
            common_columns: false,
            max_differences: Self::MAX_DIFFERENCES,
            catch_up_timeout: Self::CATCH_UP_TIMEOUT,
            repair: false,
            resume: None,
            standing: None,
        }
    }
}

/// The reason why there is no result, or no complete one; one line that names what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    #[error("{0}")]
    Refused(String),
    #[error("{server}: {source}")]
    Server {
        server: String,
        #[source]
        source: LinkError,
    },
    #[error(
        "target {target} has made no progress for {seconds} s; it lacks {lacking} \
         transactions from {first} on: is channel {channel} running (csa-daemon status)?"
    )]
    Stalled { target: String, channel: String, seconds: u64, lacking: u64, first: String },
    #[error("target {target} lacks {lacking} transactions from {first} on, and {why}")]
    Standing { target: String, lacking: u64, first: String, why: String },
    #[error("comparing {table}: {source}")]
    Table {
        table: TableName,
        #[source]
        source: Box<VerifyError>,
    },
}

type Result<T> = std::result::Result<T, VerifyError>;

impl VerifyError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Server { source, .. } => source.code(),
            _ => None,
        }
    }

    /// No such schema, column, table, index; definition changed.
    fn is_definition_change(&self) -> bool {
        matches!(self.code(), Some(1049 | 1054 | 1146 | 1176 | 1412))
    }
}

/// The current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    #[default]
    Comparing,
    /// Rows that differed are being read again.
    Rechecking { rows: u64 },
    /// The target lags by more than `max_lag`.
    WaitingForLag,
}

/// The progress of a run.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub tables: usize,
    pub tables_done: usize,
    /// The table being compared, as the source names it.
    pub table: String,
    pub rows: u64,
    /// The source's estimate.
    pub rows_estimated: u64,
    pub activity: Activity,
}

/// A message from a run in progress.
#[derive(Debug)]
pub enum Event<'a> {
    Progress(&'a Progress),
    Table(&'a TableReport),
    /// An earlier run has compared these rows of a table.
    Resumed(&'a Progress),
    /// A later run can resume here.
    Saved(&'a Saved),
}

/// The source's servers in the order in which they are tried, as this module connects to them.
#[must_use]
pub fn source_servers(source: &SourceOptions) -> Vec<TargetOptions> {
    let first = std::iter::once((source.host.clone(), source.port));
    let servers = first.chain(source.failover.iter().cloned());
    let server = |(host, port)| TargetOptions {
        host,
        port,
        socket: None,
        user: source.user.clone(),
        password: source.password.clone(),
        tls: source.tls.clone(),
        connect_timeout: source.connect_timeout,
        net_timeout: Duration::from_secs(30),
        gtids: TargetGtids::Own,
        executor: None,
        collation_map: Default::default(),
    };
    servers.map(server).collect()
}

/// Compares all tables in scope that `selection` replicates; `observe` receives every finished
/// table, even if the run fails later.
///
/// # Errors
/// A server goes away or refuses for want of a privilege, or the target does not catch up.
pub async fn verify(
    options: &VerifyOptions,
    selection: &dyn TableSelection,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> std::result::Result<Report, VerifyError> {
    let mut servers = Servers::connect(options, observe).await?;
    let report = compare_tables(&mut servers, options, selection, observe).await;
    servers.close().await;
    report
}

async fn compare_tables(
    servers: &mut Servers<'_>,
    options: &VerifyOptions,
    selection: &dyn TableSelection,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Report> {
    for session in [&mut servers.source, &mut servers.target] {
        if let Some(what) = missing_select(&session.grants().await?, &options.scope) {
            return Err(session.may_not_read(&what));
        }
    }
    let listed = Listed {
        source: &catalogue::tables(&mut servers.source).await?,
        target: &catalogue::tables(&mut servers.target).await?,
        source_folds_case: catalogue::folds_case(&mut servers.source).await?,
        target_folds_case: catalogue::folds_case(&mut servers.target).await?,
    };
    let pairs = listed.pairs(&options.scope, selection).map_err(VerifyError::Refused)?;
    servers.resume().await?;
    let mut report = Report { channel: options.channel.clone(), tables: Vec::new() };
    for (done, pair) in pairs.iter().enumerate() {
        let estimate = listed.source.get(&pair.source).copied().unwrap_or_default();
        servers.progress = Progress {
            tables: pairs.len(),
            tables_done: done,
            table: pair.source.to_string(),
            rows: 0,
            rows_estimated: estimate.rows,
            activity: Activity::Comparing,
        };
        let definition = resume::definitions(servers, pair).await?;
        if let Some(table) = servers.resume.begin(pair, definition, options.repair) {
            observe(Event::Table(&table));
            report.tables.push(table);
            continue;
        }
        servers.tell(Activity::Comparing);
        let compared = table::compare(servers, pair, estimate).await.map_err(|source| {
            VerifyError::Table { table: pair.source.clone(), source: Box::new(source) }
        })?;
        if let Some(table) = compared {
            observe(Event::Table(&table));
            servers.finished(&table);
            report.tables.push(table);
        }
    }
    Ok(report)
}
