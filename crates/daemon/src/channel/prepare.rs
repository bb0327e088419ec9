//! The looks at both servers that a start begins with. They take nothing and write nothing.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{ExecMode, Executor, RELOAD_AND_RESTART, StartFrom, TargetFacts, TargetGtids};
use csa_provider::binlog::GtidSet;
use csa_provider::server::Vendor;
use csa_provider::source::{Known, PreflightError, RecordingError, SourceFacts};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::{Absent, ChannelError};
use super::holes;
use super::identity::Taking;
use super::reception::Reception;
use super::start::{self, StartKnowledge};
use super::start_steps::StartStep;
use super::watch::Watch;
use crate::archive::store::ArchiveError;
use crate::config::ChannelSettings;
use crate::host::state_dir;

/// The age from which on findings are asked for again.
const RECENT: Duration = Duration::from_secs(10);

/// Both servers of a channel, neither of which refuses its start.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) target: TargetFacts,
    /// The source, or why it does not answer: with a checkpoint, the relay store can be applied meanwhile.
    pub(super) source: Result<SourceFacts, String>,
    /// Settings of the servers that make replication slower or less precise, one line each.
    pub(super) warnings: Vec<String>,
    /// Warnings about the place where the channel begins, one line each.
    pub(super) position: Vec<String>,
}

/// The last result of [`Looks::preflight`], for the start that follows it.
#[derive(Debug, Default)]
pub(super) struct KeptPreflight(Mutex<Option<(Instant, Arc<ChannelSettings>, Prepared)>>);

impl KeptPreflight {
    /// Takes what the daemon's own start found, if that was just now and is for the same start.
    pub(super) fn take(
        &self,
        settings: &Arc<ChannelSettings>,
        taking: &Taking,
    ) -> Option<Prepared> {
        let (at, of, prepared) = self.0.lock().take()?;
        let is_same =
            Arc::ptr_eq(&of, settings) && taking.start == of.start_from && !taking.was_held;
        (is_same && at.elapsed() < RECENT).then_some(prepared)
    }
}

/// A channel, as far as the looks need it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks<'a> {
    pub(super) settings: &'a Arc<ChannelSettings>,
    pub(super) watch: &'a Watch,
    pub(super) reception: &'a Reception,
}

impl Looks<'_> {
    /// Checks everything that a start does. Returns the reason why a server does not answer, so that the rest
    /// could not be checked.
    ///
    /// # Errors
    /// Returns the change that is needed, on one line.
    pub(super) async fn preflight(&self, kept: &KeptPreflight) -> Result<Option<String>, String> {
        let settings = self.settings;
        state_dir::check(&settings.relay.directory)?;
        self.watch.opening();
        let error = match self.prepare(&settings.start_from, false).await {
            Ok(prepared) => {
                let away = prepared.source.as_ref().err().cloned();
                *kept.0.lock() = Some((Instant::now(), Arc::clone(settings), prepared));
                return Ok(away);
            }
            Err(error) => error,
        };
        match error.absent() {
            None => Err(error.to_string()),
            Some(Absent::Source | Absent::Archive) => Ok(Some(error.to_string())),
            // The other server may have something to refuse meanwhile.
            Some(Absent::Target) => {
                match csa_provider::source::preflight(&settings.source, None).await {
                    Ok(_) | Err(PreflightError::Unreachable(_)) => Ok(Some(error.to_string())),
                    Err(refused) => Err(refused.to_string()),
                }
            }
        }
    }

    /// Checks the source, or what takes its place.
    async fn source(&self, known: Option<&Known>) -> Result<SourceFacts, PreflightError> {
        let Some(recorded) = &self.settings.recorded else {
            return csa_provider::source::preflight(&self.settings.source, known).await;
        };
        let refused = |error: ArchiveError| PreflightError::Refused(error.to_string());
        let mut recording = recorded.source.open().map_err(refused)?;
        let received = known.map(|known| known.received.clone()).unwrap_or_default();
        let extent = recording.extent(&received).await.map_err(|error| match error {
            RecordingError::Away(why) => PreflightError::Unreachable(why),
            error => PreflightError::Purged(error.to_string()),
        })?;
        Ok(SourceFacts {
            version: extent.server_version,
            server_uuid: extent.server_uuid,
            gtid_executed: extent.end,
            gtid_purged: GtidSet::new(),
            is_without_tables: false,
            folds_case: None,
            warnings: Vec::new(),
        })
    }

    /// Checks both servers for a start from `start`; `was_held`: see [`Taking`].
    pub(super) async fn prepare(
        &self,
        start: &StartFrom,
        was_held: bool,
    ) -> Result<Prepared, ChannelError> {
        let settings = self.settings;
        let target = csa_applier::preflight(&settings.target, &settings.name)
            .await
            .map_err(ChannelError::Target)?;
        self.watch.target_answered(&target);
        check_target(settings, &target).map_err(ChannelError::Refused)?;
        self.watch.done(StartStep::Target);
        if was_held && target.checkpoint.is_none() && settings.target.gtids != TargetGtids::Source {
            return Err(ChannelError::Refused(format!(
                "csa.checkpoint on target {} has no rows of the channel, which a daemon had until \
                 now; put the schema csa back as it was, or set applier.start_from to the GTID set that \
                 the target holds; then: {RELOAD_AND_RESTART}",
                settings.target.address()
            )));
        }
        // The target first: its checkpoint says what the source must still have.
        let standing = StartKnowledge::of(settings, start, &target, self.reception).await;
        self.watch.done(StartStep::Position);
        let known = standing.known.as_ref();
        // What reception passes over while the source is away, an archive never gets.
        let needs_source =
            target.checkpoint.is_none() || (settings.archive.is_some() && standing.is_behind);
        let source = match self.source(known).await {
            Ok(facts) => Ok(facts),
            Err(PreflightError::Unreachable(why)) if !needs_source => Err(why),
            Err(error) => return Err(ChannelError::Source(error)),
        };
        let of_source = source.as_ref().ok();
        let mut position = start::check(settings, start, &target, of_source, &standing)
            .map_err(ChannelError::Refused)?;
        let filled = holes::check(settings, start, &target, of_source, &standing).await;
        position.extend(filled.map_err(ChannelError::Refused)?);
        self.watch.done(StartStep::Source);
        let mut warnings = of_source.map(|facts| facts.warnings.clone()).unwrap_or_default();
        warnings.extend(target.warnings.iter().cloned());
        Ok(Prepared { target, source, warnings, position })
    }
}

/// Refuses settings that this target can't fulfil.
fn check_target(settings: &ChannelSettings, target: &TargetFacts) -> Result<(), String> {
    let idempotent = settings.applier.exec_mode == ExecMode::Idempotent;
    let address = settings.target.address();
    let from_target = settings.start_from == StartFrom::Target;
    if target.start_is_unknown && target.checkpoint.is_none() && from_target {
        return Err(format!(
            "applier.start_from: target {address} is MariaDB and holds tables, and can't tell which \
             of the source's transactions are in them; set start_from to the GTID set that was \
             copied (gtid_purged of a dump), or to \"source\""
        ));
    }
    match target.executor {
        Executor::Sql if idempotent && target.vendor != Vendor::MySql => Err(format!(
            "applier.exec_mode: \"idempotent\" needs row images, and target {address} is {}; use \
             \"strict\"",
            if target.vendor == Vendor::MariaDb { "MariaDB" } else { "MySQL 5.7" }
        )),
        Executor::Sql if idempotent => Err(format!(
            "applier.exec_mode: \"idempotent\" needs row images, and rows go to target {address} \
             through executor \"sql\"; GRANT REPLICATION_APPLIER ON *.* there and set \
             executor = \"row-image\""
        )),
        _ => Ok(()),
    }
}
