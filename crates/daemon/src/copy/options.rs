//! The inputs and results of a copy.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::{Pending, Target, TargetGtids, TargetOptions};
use csa_provider::binlog::GtidSet;
use csa_provider::server::link::Side;
use csa_provider::source::SourceOptions;
use csa_relaystore::disk::RelayStoreOptions;
use csa_scheduler::until::Until;

use super::error::{CopyError, Result};
use super::pace::Pace;
use super::progress::CopyProgress;
use crate::config::{ChannelSettings, ThrottleBy, written_rules};
use crate::host::now_micros;
use crate::throttle::HealthLimit;
use crate::verify::{VerifySession, source_servers};

/// The servers of a copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyOptions {
    pub(crate) channel: String,
    /// The source's servers; the first one that answers is copied.
    pub(crate) sources: Vec<Target>,
    pub(crate) target: Target,
    /// The channel's `replicate_*`, as they are noted.
    pub(crate) rules: String,
    /// The channel's end.
    pub(crate) until: Option<Until>,
    /// Sessions on each side that copy rows.
    pub(crate) lanes: usize,
    /// Tables that have no more bytes together are read in one snapshot, others in chunks.
    pub(crate) snapshot_bytes: u64,
    pub(crate) pace: Arc<Pace>,
    pub(crate) throttle_by: Arc<ThrottleBy>,
    /// By how much longer than before the copy the source may take for small queries.
    pub(crate) source_slowdown: Duration,
    pub(crate) limits: ChunkLimits,
    /// The channel's relay store, which a new copy empties.
    pub(crate) relay: Option<RelayStoreOptions>,
    /// A copy of one snapshot ends with a comparison of all rows.
    pub(crate) compares: bool,
}

/// Bounds of what is read and held at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkLimits {
    /// The bytes of a chunk's rows, as texts.
    pub(super) bytes: u64,
    pub(super) rows: u64,
    /// Rows of the first chunk of a table whose rows have an unknown size.
    pub(super) first_rows: u64,
    /// Tables with more rows than this are divided.
    pub(super) part_rows: u64,
}

impl Default for ChunkLimits {
    fn default() -> Self {
        Self { bytes: 4 << 20, rows: 50_000, first_rows: 200, part_rows: 100_000 }
    }
}

/// Returns the source's servers in the order in which they are tried.
pub(crate) fn sources(source: &SourceOptions) -> Vec<Target> {
    let servers = source_servers(source).into_iter();
    servers.map(|server| Target::on(Side::Source, server)).collect()
}

impl CopyOptions {
    /// Returns the options of a channel's settings.
    pub(crate) fn of(settings: &ChannelSettings) -> Self {
        Self {
            channel: settings.name.clone(),
            sources: sources(&settings.source),
            target: settings.target.clone(),
            rules: written_rules(&settings.filters),
            until: settings.until.clone(),
            lanes: settings.copy.lanes as usize,
            snapshot_bytes: settings.copy.snapshot_limit.0,
            pace: Arc::new(Pace::new(settings.copy.rows_per_second)),
            throttle_by: Arc::clone(&settings.throttle_by),
            source_slowdown: settings.copy.source_slowdown.0,
            limits: ChunkLimits::default(),
            relay: Some(settings.relay.clone()),
            // The channel compares once it runs.
            compares: false,
        }
    }

    /// Holds the copy to the limits on the health of the source and the target, for as long as it is polled.
    pub(super) async fn hold(&self, source: &TargetOptions) -> Infallible {
        let mut limits = HealthLimit::of_target(&self.target, &self.throttle_by);
        if let Some(usual) = self.pace.usual() {
            limits.push(HealthLimit::of_source(source, usual, self.source_slowdown));
        }
        self.pace.hold(limits).await
    }
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
    /// Programs that the target refuses, such as views of tables that are not replicated, and what a copy leaves out.
    pub(crate) not_made: Vec<String>,
}

/// Follows a copy.
pub(crate) trait CopyObserver: Sync {
    /// Shows how far the copy is.
    fn progress(&self, progress: &CopyProgress);

    /// A new copy begins: ends what this process receives for the channel, so that its relay store can be emptied.
    fn ends_reception(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Tells after which transactions the channel will follow the source.
    fn begins_after(&self, executed: &GtidSet);
}

/// Refuses a target on which a copy can't have GTIDs.
pub(super) fn check_gtids(options: &CopyOptions) -> Result<()> {
    if options.target.gtids != TargetGtids::Source {
        return Ok(());
    }
    Err(CopyError::Refused(format!(
        "channel {}: a copy has GTIDs of the target's own, and target_gtids = \"source\" permits none; set \
         \"mirror\", or copy with a dump or a clone (docs/provisioning.md)",
        options.channel
    )))
}

/// Refuses a copy of a source that has passed the channel's end: the copy would have what comes after it.
pub(super) fn check_end(until: &Until, executed: &GtidSet) -> Result<()> {
    let is_past = match until {
        Until::BeforeTime(time) | Until::BeforeTimeWithin(time, _) => *time <= now_micros(),
        Until::BeforeGtids(_) => until.is_reached(executed),
        // A source that stands at the end has nothing after it.
        Until::AfterGtids(set) => until.is_reached(executed) && set != executed,
    };
    match is_past {
        false => Ok(()),
        true => Err(CopyError::Refused(format!(
            "applier.until: the source has reached {until}, and a copy is of the source as it is now; leave until out, \
             or set start_from to the GTID set that the target holds"
        ))),
    }
}

/// Connects to the first of the source's servers that answers.
pub(super) async fn connect_source(options: &CopyOptions) -> Result<(&Target, VerifySession)> {
    let mut failed = None;
    for server in &options.sources {
        match VerifySession::open(Side::Source, server).await {
            Ok(mut session) => {
                // How tables are read depends on their sizes.
                session.look_afresh().await?;
                return Ok((server, session));
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.map_or_else(
        || CopyError::Refused(format!("channel {}: it names no source", options.channel)),
        CopyError::from,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_copied_beyond_the_end_of_the_channel() {
        let set = |range: &str| {
            let set = format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:{range}");
            set.parse::<GtidSet>().expect("a set")
        };
        let passes = |until| check_end(&until, &set("1-5")).is_ok();
        assert!(!passes(Until::BeforeGtids(set("5"))) && passes(Until::BeforeGtids(set("6"))));
        assert!(!passes(Until::AfterGtids(set("4"))) && passes(Until::AfterGtids(set("4-6"))));
        assert!(passes(Until::AfterGtids(set("1-5"))), "nothing comes after it yet");
        assert!(!passes(Until::BeforeTime(1)) && passes(Until::BeforeTime(u64::MAX)));
    }
}
