//! The options of the demonstration.

use std::time::Duration;

use clap::Args;
use csa_tests::LoadOptions;

/// The schema of the load.
pub(super) const SCHEMA: &str = "shop";

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Length of the steady load before the burst, in seconds.
    #[arg(long, default_value_t = 4)]
    pub(super) seconds: u64,
    /// Transactions per second of the steady load, which continues until the drain.
    #[arg(long, default_value_t = 200.0)]
    pub(super) rate: f64,
    /// Length of the burst, in seconds.
    #[arg(long, default_value_t = 5)]
    pub(super) burst_seconds: u64,
    /// Most transactions per second that the burst adds; 0 is as fast as the source can.
    #[arg(long, default_value_t = 20_000.0)]
    pub(super) burst_rate: f64,
    /// Sessions that the burst adds.
    #[arg(long, default_value_t = 16)]
    pub(super) clients: u32,
    /// Changes in a transaction of the steady load.
    #[arg(long, default_value_t = 2)]
    pub(super) changes: u32,
    #[arg(long, default_value_t = 4)]
    pub(super) tables: u32,
    /// Rows in each table.
    #[arg(long, default_value_t = 10_000)]
    pub(super) rows: u64,
    /// How long the copy, the catching up and the recovery may take, in seconds.
    #[arg(long, default_value_t = 120)]
    pub(super) patience_seconds: u64,
    /// How long the drain may take, in seconds. A native replica that is not done by then is no error.
    #[arg(long, default_value_t = 60)]
    pub(super) drain_seconds: u64,
    /// Leave servers and daemon running at the end, until Ctrl-C.
    #[arg(long)]
    pub(super) keep: bool,
}

impl Options {
    /// Returns the load that runs from the first phase to the drain.
    pub(super) fn steady_load(&self) -> LoadOptions {
        LoadOptions {
            schema: SCHEMA.into(),
            tables: self.tables,
            rows: self.rows,
            clients: 4,
            changes: self.changes,
            rate: Some(self.rate.max(1.0)),
            // A row that every transaction changes would dominate the demonstration.
            counter: false,
            ..LoadOptions::default()
        }
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_seconds)
    }

    pub(super) fn drain_patience(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}
