//! The scope, the limits and the servers of a comparison.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::{TargetGtids, TargetOptions};
use csa_provider::source::SourceOptions;

use super::resume::Saved;
use super::scope::Scope;

/// Each look at a row that has changed waits for the delay. With so many seconds the lag stays below its limits.
const DELAY_MAX: f64 = 5.0;

/// Returns why a daemon compares nothing with a `source_delay` of so many seconds.
pub(crate) fn delayed(seconds: f64) -> Option<String> {
    (seconds > DELAY_MAX).then(|| {
        format!("source_delay is {seconds} s, and the daemon compares with {DELAY_MAX} s at most")
    })
}

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
    /// A table is left out that was interrupted so often before it was compared, or before there was a place to continue.
    pub interruptions_max: Option<u32>,
    /// Asked while the target makes no progress.
    pub standing: Option<Arc<dyn ChannelStanding>>,
}

/// Knows whether the channel applies anything.
pub trait ChannelStanding: Debug + Send + Sync {
    /// The reason why it applies nothing until somebody acts, and how to proceed; may block for a moment.
    fn reason(&self) -> Option<String>;
}

impl VerifyOptions {
    pub const CHUNK_ROWS: u64 = 5_000;
    pub const MAX_DIFFERENCES: usize = 100;
    pub const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);

    /// Returns everything, unthrottled.
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
            interruptions_max: None,
            standing: None,
        }
    }
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
        route: Default::default(),
    };
    servers.map(server).collect()
}
