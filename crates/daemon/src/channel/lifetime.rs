//! A channel from one start to its end: preflight, claim, pipelines, and the pauses between them.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{ExecMode, Executor, StartFrom, TargetFacts, TargetGtids};
use csa_provider::seams::SystemChance;
use csa_provider::server::Vendor;
use csa_scheduler::until::Until;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::error::{Absent, ChannelError, OVERCOME, Pauses, failed};
use super::holes;
use super::identity::{Identity, Taking};
use super::live_settings::Controls;
use super::pipeline::{End, Pipeline};
use super::reception::Reception;
use super::start::{self, StartKnowledge};
use super::start_steps::StartStep;
use super::watch::Watch;
use crate::config::ChannelSettings;
use crate::host::state_dir;

/// A channel from one start to its end, through as many pipelines as it takes.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) settings: Arc<ChannelSettings>,
    pub(super) watch: Watch,
    pub(super) controls: Controls,
    /// Outlives every pipeline.
    pub(super) reception: Arc<Reception>,
}

/// Findings of a preflight that refused neither server.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) lines: Vec<String>,
    /// A server that did not answer; the rest could not be checked.
    pub(crate) unreachable: Option<String>,
}

impl Channel {
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Checks everything that [`Self::open`] does, and takes nothing.
    pub(super) async fn preflight(&self) -> Result<Findings, String> {
        let mut findings = Findings::default();
        let settings = &self.settings;
        state_dir::check(&settings.relay.directory)?;
        let target = match csa_applier::preflight(&settings.target, &settings.name).await {
            Ok(facts) => Some(facts),
            Err(csa_applier::PreflightError::Unreachable(why)) => {
                findings.unreachable = Some(why.to_string());
                None
            }
            Err(refused) => return Err(refused.to_string()),
        };
        if let Some(facts) = &target {
            self.check_target(facts)?;
        }
        let standing = match &target {
            Some(facts) => {
                StartKnowledge::of(settings, &settings.start_from, facts, &self.reception).await
            }
            None => StartKnowledge::default(),
        };
        let source = match csa_provider::source::preflight(
            &settings.source,
            standing.known.as_ref(),
        )
        .await
        {
            Ok(facts) => Some(facts),
            Err(csa_provider::source::PreflightError::Unreachable(why)) => {
                findings.unreachable = Some(why);
                None
            }
            Err(refused) => return Err(refused.to_string()),
        };
        if let Some(facts) = &target
            // Without a checkpoint the position depends on the source, for which the start waits.
            && (source.is_some() || facts.checkpoint.is_some())
        {
            findings.lines.extend(start::check(
                settings,
                &settings.start_from,
                facts,
                source.as_ref(),
                &standing,
            )?);
            let from = &settings.start_from;
            let filled = holes::check(settings, from, facts, source.as_ref(), &standing).await?;
            // With a checkpoint, a channel that runs has such holes at any time if it commits out of order.
            findings.lines.extend(filled.filter(|_| facts.checkpoint.is_none()));
        }
        findings.lines.extend(source.into_iter().flat_map(|facts| facts.warnings));
        findings.lines.extend(target.into_iter().flat_map(|facts| facts.warnings));
        Ok(findings)
    }

    /// Refuses settings that this target can't fulfil.
    fn check_target(&self, facts: &TargetFacts) -> Result<(), String> {
        let idempotent = self.settings.applier.exec_mode == ExecMode::Idempotent;
        let address = self.settings.target.address();
        let from_target = self.settings.start_from == StartFrom::Target;
        if facts.start_is_unknown && facts.checkpoint.is_none() && from_target {
            return Err(format!(
                "applier.start_from: target {address} is MariaDB and holds tables, and can't tell which \
                 of the source's transactions are in them; set start_from to the GTID set that was \
                 copied (gtid_purged of a dump), or to \"source\""
            ));
        }
        match facts.executor {
            Executor::Sql if idempotent && facts.vendor != Vendor::MySql => Err(format!(
                "applier.exec_mode: \"idempotent\" needs row images, and target {address} is {}; use \
                 \"strict\"",
                if facts.vendor == Vendor::MariaDb { "MariaDB" } else { "MySQL 5.7" }
            )),
            Executor::Sql if idempotent => Err(format!(
                "applier.exec_mode: \"idempotent\" needs row images, and rows go to target {} \
                 through executor \"sql\"; GRANT REPLICATION_APPLIER ON *.* there and set \
                 executor = \"row-image\"",
                address
            )),
            _ => Ok(()),
        }
    }

    /// Replicates until `stop` (running groups finish) or `kill` (they are given up).
    ///
    /// # Errors
    /// The cause of the stop; everything before it is committed.
    pub(super) async fn run(
        &self,
        stop: CancellationToken,
        kill: CancellationToken,
    ) -> Result<(), ChannelError> {
        let outcome = self.run_pipelines(&stop, &kill).await;
        match &outcome {
            Ok(why) => self.watch.stopped(why),
            Err(error) => {
                self.watch.failed(error);
                // Another daemon receives for the channel now.
                if error.is_fenced() {
                    self.reception.end().await;
                }
            }
        }
        outcome.map(drop)
    }

    /// Runs one pipeline after the other; returns why the channel stopped.
    async fn run_pipelines(
        &self,
        stop: &CancellationToken,
        kill: &CancellationToken,
    ) -> Result<String, ChannelError> {
        const ON_REQUEST: &str = "stopped on request";
        // Kept over all pipelines, and free once this returns: a skip, which needs it too, ends the
        // run first.
        let Some(identity) = self.claimed(stop).await else { return Ok(ON_REQUEST.to_owned()) };
        let start = self.settings.start_from.clone();
        let mut taking = Taking { identity, start, was_held: false };
        let mut failures = failed();
        loop {
            let Some(pipeline) = self.opened(stop, &mut taking).await else {
                return Ok(ON_REQUEST.to_owned());
            };
            let begun = Instant::now();
            let ended = Box::pin(pipeline.run(stop, kill)).await;
            if let Err(error) = &ended
                && self.settings.applier.standby
                && error.is_fenced()
            {
                warn!(channel = self.name(), %error, "standing by");
                taking.was_held = true;
                continue;
            }
            if let Err(error) = &ended
                && error.may_pass()
            {
                if begun.elapsed() >= OVERCOME {
                    failures.restart();
                }
                let pause = failures.jittered(0.75..1.25, &SystemChance);
                if !self.waits_to_try_again(error, pause, stop).await {
                    return Ok(ON_REQUEST.to_owned());
                }
                // It has a checkpoint: a start as if for the first time would repeat history.
                taking.was_held = true;
                self.begin_from_target(&mut taking);
                continue;
            }
            match ended? {
                End::Stopped => return Ok(ON_REQUEST.to_owned()),
                End::UntilMoved => info!(channel = self.name(), "until was moved; continuing"),
                End::UntilReached { until, already } => {
                    let why = until_reached(&until, already);
                    info!(channel = self.name(), "{why}");
                    return Ok(why);
                }
                End::TargetOlder(error) => {
                    error!(
                        channel = self.name(), %error,
                        "starting again from what the target has; the rest is applied once more"
                    );
                    self.watch.came_back_older(&error);
                    self.begin_from_target(&mut taking);
                    // An address may lead to another server at each attempt (a proxy, a failover).
                    tokio::select! {
                        () = tokio::time::sleep(self.settings.applier.connect_retry) => {}
                        () = stop.cancelled() => {}
                    }
                }
                End::NotWhole(error) => {
                    info!(channel = self.name(), %error, "beginning again after the checkpoint");
                }
                End::RelayDamaged { error, transaction } => {
                    error!(
                        channel = self.name(), %error,
                        "cutting the relay store there and fetching the rest from the source again"
                    );
                    self.reception.discard(&self.settings, transaction).await?;
                }
            }
        }
    }

    /// Under the source's GTIDs the target's own are the checkpoint, with or without rows of ours.
    fn begin_from_target(&self, taking: &mut Taking) {
        if self.settings.target.gtids == TargetGtids::Source {
            taking.start = StartFrom::Target;
        }
    }

    /// Shows the error that ended a run, and waits until the next. A stop, which every other command begins with,
    /// ends the wait: then it returns `false`.
    async fn waits_to_try_again(
        &self,
        error: &ChannelError,
        pause: Duration,
        stop: &CancellationToken,
    ) -> bool {
        error!(channel = self.name(), %error, ?pause, "channel failed; trying again");
        self.watch.refused(error);
        self.watch.tries_again(pause);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return false,
        }
        self.watch.tried_again();
        true
    }

    /// Claims the identity, trying until it is free; `None` when stopped.
    async fn claimed(&self, stop: &CancellationToken) -> Option<Identity> {
        let mut pauses = Pauses::new(&self.settings);
        loop {
            let error = match self.claim() {
                Ok(identity) => return Some(identity),
                Err(error) => error,
            };
            if !self.is_worth_another_try(&error, &mut pauses, stop).await {
                return None;
            }
        }
    }

    /// Repeats [`Self::open`] until it succeeds; `None` when stopped.
    async fn opened(&self, stop: &CancellationToken, taking: &mut Taking) -> Option<Pipeline<'_>> {
        let mut pauses = Pauses::new(&self.settings);
        let standby = self.settings.applier.standby;
        loop {
            let open = async {
                if standby {
                    self.stand_by(taking).await?;
                }
                self.open(taking).await
            };
            let error = tokio::select! {
                // May be dropped anywhere: the locks on the target end with the session, and
                // `attach` can be repeated.
                opened = open => match opened {
                    Ok(pipeline) => return Some(pipeline),
                    // Another one was faster.
                    Err(error) if standby && error.is_held_by_another() => continue,
                    Err(error) => error,
                },
                () = stop.cancelled() => return None,
            };
            if !self.is_worth_another_try(&error, &mut pauses, stop).await {
                return None;
            }
        }
    }

    /// Shows the error and waits: briefly for an absent server, longer where somebody has to act.
    /// `false` when stopped.
    async fn is_worth_another_try(
        &self,
        error: &ChannelError,
        pauses: &mut Pauses,
        stop: &CancellationToken,
    ) -> bool {
        let absent = error.absent();
        let pause = pauses.next(absent.is_some());
        let pause = error.refused_pause().unwrap_or(pause);
        let channel = self.name();
        match absent {
            Some(Absent::Source) => self.watch.waiting_for_source(&error.to_string()),
            Some(Absent::Target) => self.watch.waiting_for_target(&error.to_string()),
            None => self.watch.refused(error),
        }
        self.watch.tries_again(pause);
        match absent {
            Some(_) => warn!(channel, "{error}; trying again"),
            None => error!(channel, %error, ?pause, "channel not started; trying again"),
        }
        tokio::select! {
            () = self.receive_meanwhile(error) => {}
            () = stop.cancelled() => return false,
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            () = stop.cancelled() => false,
        }
    }

    /// Checks the state folder before any server is asked.
    fn claim(&self) -> Result<Identity, ChannelError> {
        state_dir::check(&self.settings.relay.directory).map_err(ChannelError::State)?;
        Identity::claim(self.settings.directory())
    }

    /// Checks both servers, and takes the channel.
    async fn open(&self, taking: &Taking) -> Result<Pipeline<'_>, ChannelError> {
        let settings = &self.settings;
        state_dir::check(&settings.relay.directory).map_err(ChannelError::State)?;
        self.watch.opening();
        let target = csa_applier::preflight(&settings.target, &settings.name)
            .await
            .map_err(ChannelError::Target)?;
        self.watch.target_version(target.version.to_string());
        self.check_target(&target).map_err(ChannelError::Refused)?;
        self.watch.done(StartStep::Target);
        if taking.was_held
            && target.checkpoint.is_none()
            && settings.target.gtids != TargetGtids::Source
        {
            return Err(ChannelError::Refused(format!(
                "csa.checkpoint on target {} has no rows of the channel, which a daemon had until \
                 now; put the schema csa back as it was, or restart the channel to begin at \
                 applier.start_from",
                settings.target.address()
            )));
        }
        // The target first: its checkpoint says what the source must still have.
        let standing = StartKnowledge::of(settings, &taking.start, &target, &self.reception).await;
        self.watch.done(StartStep::Position);
        let source = match csa_provider::source::preflight(
            &settings.source,
            standing.known.as_ref(),
        )
        .await
        {
            Ok(facts) => Some(facts),
            // With a checkpoint, the relay store can be applied while the source is away.
            Err(csa_provider::source::PreflightError::Unreachable(_))
                if target.checkpoint.is_some() =>
            {
                None
            }
            Err(error) => return Err(ChannelError::Source(error)),
        };
        let warnings = start::check(settings, &taking.start, &target, source.as_ref(), &standing);
        let filled = holes::check(settings, &taking.start, &target, source.as_ref(), &standing);
        let filled = filled.await.map_err(ChannelError::Refused)?;
        for warning in warnings.map_err(ChannelError::Refused)?.into_iter().chain(filled) {
            warn!(channel = self.name(), "{warning}");
        }
        self.watch.done(StartStep::Source);
        let (watch, controls, reception) = (&self.watch, &self.controls, &self.reception);
        let source = source.as_ref();
        let pipeline =
            Pipeline::open(settings, watch, controls, reception, source, &target, taking).await?;
        info!(
            channel = self.name(), target = %target.version,
            executor = target.executor.name(), took = self.watch.start_text(), "channel started"
        );
        Ok(pipeline)
    }

    /// Reception must not wait for the target: the source purges what nobody fetched.
    async fn receive_meanwhile(&self, why: &ChannelError) {
        if why.is_fenced() {
            return self.reception.end().await;
        }
        // Another daemon may have the channel; this one had it if it receives still.
        if !self.settings.applier.standby
            && why.is_worth_receiving()
            && let Err(error) = self.reception.resume(&self.settings).await
        {
            warn!(channel = self.name(), %error, "nothing is received meanwhile");
        }
    }
}

fn until_reached(until: &Until, already: bool) -> String {
    let when = if already { "was already reached when it started" } else { "is reached" };
    format!("stopped: until {until} {when}")
}
