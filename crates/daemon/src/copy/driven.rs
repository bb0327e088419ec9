//! Copies as a simulation drives them, between servers of its own. They exist only with the feature `test-util`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::{Converging, ConvergingTables, Target};
use csa_provider::binlog::GtidSet;

use super::again::{AgainOptions, RoundEnd, copy_again};
use super::error::CopyError;
use super::options::{ChunkLimits, CopyObserver, CopyOptions};
use super::pace::Pace;
use super::progress::CopyProgress;
use crate::config::ThrottleBy;
use crate::verify::{EveryTable, TableName};

/// The sizes of a copy.
#[derive(Debug, Clone, Copy)]
pub struct CopyScale {
    pub lanes: usize,
    /// Tables that have no more bytes together are read in one snapshot.
    pub snapshot_bytes: u64,
    pub chunk_rows: u64,
    /// The bytes of a chunk's rows.
    pub chunk_bytes: u64,
    /// Tables with more rows are divided.
    pub part_rows: u64,
}

/// The reason why a copy was not made, or not finished.
#[derive(Debug)]
pub struct CopyFailure {
    pub text: String,
    /// The number of the error with which a server refused.
    pub code: Option<u16>,
}

/// The copies of a channel.
#[derive(Debug)]
pub struct DrivenCopy {
    options: CopyOptions,
}

type Result<T> = std::result::Result<T, CopyFailure>;

impl DrivenCopy {
    #[must_use]
    pub fn new(channel: &str, sources: Vec<Target>, target: Target, scale: CopyScale) -> Self {
        let CopyScale { lanes, snapshot_bytes, chunk_rows, chunk_bytes, part_rows } = scale;
        let (rows, first_rows, bytes) = (chunk_rows, chunk_rows, chunk_bytes);
        let limits = ChunkLimits { bytes, rows, first_rows, part_rows };
        let options = CopyOptions {
            channel: channel.to_owned(),
            sources,
            target,
            rules: String::new(),
            until: None,
            lanes,
            snapshot_bytes,
            pace: Arc::new(Pace::new(0)),
            throttle_by: Arc::new(ThrottleBy::default()),
            source_slowdown: Duration::ZERO,
            limits,
            relay: None,
            compares: true,
        };
        Self { options }
    }

    /// Makes the copy with which a channel begins. `begins` receives the transactions that it begins after. Returns
    /// true if the copy is whole, and false if changes are left to apply.
    ///
    /// # Errors
    /// See [`super::copy`].
    pub async fn first(&self, begins: &(dyn Fn(&GtidSet) + Sync)) -> Result<bool> {
        let copied = super::copy(&self.options, &EveryTable, &Begins(begins)).await;
        copied.map(|summary| summary.until.is_none()).map_err(failure)
    }

    /// Copies tables again for this time. Returns true once all rows are copied.
    ///
    /// # Errors
    /// See [`copy_again`].
    pub async fn again(
        &self,
        tables: &[(String, String)],
        integers: Option<(i128, i128)>,
        time: Duration,
    ) -> Result<bool> {
        let tables: BTreeSet<TableName> = tables.iter().cloned().map(TableName::from).collect();
        let options = AgainOptions { copy: self.options.clone(), tables, integers };
        let round = copy_again(&options, &EveryTable, Some(time), &Begins(&|_| {})).await;
        round.map(|round| round != RoundEnd::Unfinished).map_err(failure)
    }

    /// Ends a copy whose tables have converged.
    ///
    /// # Errors
    /// See [`super::complete`].
    pub async fn complete(&self, converging: &Converging) -> Result<()> {
        let CopyOptions { target, channel, .. } = &self.options;
        super::complete(target, channel, converging).await.map(drop).map_err(failure)
    }

    /// Returns true if tables may be missing.
    ///
    /// # Errors
    /// See [`super::lacks_tables`].
    pub fn lacks_tables(&self, converging: &Converging) -> Result<bool> {
        super::lacks_tables(&self.options.channel, converging).map_err(failure)
    }

    /// Makes missing tables.
    ///
    /// # Errors
    /// See [`super::make_missing`].
    pub async fn make_missing(&self, converging: &Converging) -> Result<()> {
        let CopyOptions { target, channel, .. } = &self.options;
        super::make_missing(target, channel, converging).await.map_err(failure)
    }

    /// Returns the tables to which changes are applied so that they converge.
    ///
    /// # Errors
    /// See [`super::converging_tables`].
    pub fn converging_tables(&self, converging: &Converging) -> Result<ConvergingTables> {
        super::converging_tables(&self.options.channel, converging).map_err(failure)
    }
}

fn failure(error: CopyError) -> CopyFailure {
    CopyFailure { text: error.to_string(), code: error.code() }
}

struct Begins<'a>(&'a (dyn Fn(&GtidSet) + Sync));

impl CopyObserver for Begins<'_> {
    fn progress(&self, _: &CopyProgress) {}

    fn begins_after(&self, executed: &GtidSet) {
        (self.0)(executed);
    }
}
