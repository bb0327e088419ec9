//! A channel from one start to its end: preflight, claim, pipelines, and the pauses between them.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::{Converging, StartFrom, TargetGtids};
use csa_provider::seams::{Backoff, SystemChance};
use csa_scheduler::until::Until;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::copy_check::CopyCheck;
use super::error::{Absent, ChannelError, OVERCOME, Pauses, failed};
use super::first_copy;
use super::identity::{Identity, Taking};
use super::live_settings::Controls;
use super::pipeline::{Pipeline, PipelineEnd};
use super::prepare::{KeptPreflight, Looks, Prepared};
use super::reception::Reception;
use super::watch::Watch;
use crate::config::ChannelSettings;
use crate::host::state_dir;
use crate::verify::Scope;

/// Why a channel stopped that was told to.
pub(super) const ON_REQUEST: &str = "stopped on request";

/// A channel from one start to its end, through as many pipelines as it takes.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) settings: Arc<ChannelSettings>,
    pub(super) watch: Watch,
    pub(super) controls: Controls,
    /// Outlives every pipeline.
    pub(super) reception: Arc<Reception>,
    /// The looks of the daemon's own start, which its first start of the channel does not repeat.
    pub(super) kept: Arc<KeptPreflight>,
}

/// The state of a run that outlives its pipelines.
struct Run {
    taking: Taking,
    check: CopyCheck,
    failures: Backoff,
}

impl Channel {
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Checks everything that a start does, and takes nothing; see [`Looks::preflight`].
    pub(super) async fn preflight(&self) -> Result<Option<String>, String> {
        if self.settings.archives_only() {
            return self.preflight_archive().await;
        }
        self.looks().preflight(&self.kept).await
    }

    fn looks(&self) -> Looks<'_> {
        Looks { settings: &self.settings, watch: &self.watch, reception: &self.reception }
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
        let outcome = match &self.settings.archive {
            Some(options) if options.is_alone => {
                self.run_archive(options, &stop).await.map(str::to_owned)
            }
            _ => Box::pin(self.run_pipelines(&stop, &kill)).await,
        };
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
        // Kept over all pipelines, and free once this returns: a skip, which needs it too, ends the
        // run first.
        let Some(identity) = self.claimed(stop).await else { return Ok(ON_REQUEST.to_owned()) };
        let start = self.settings.start_from.clone();
        let taking =
            Taking { identity, start, was_held: false, has_warned: false, has_copied: false };
        let mut run = Run { taking, check: CopyCheck::default(), failures: failed() };
        loop {
            let Some(pipeline) = self.opened(stop, &mut run.taking).await else {
                return Ok(ON_REQUEST.to_owned());
            };
            // It has a checkpoint: a start as if for the first time would repeat history, or pass over some.
            run.taking.was_held = true;
            if mem::take(&mut run.taking.has_copied) {
                run.check.begin(&self.settings, &self.watch, Scope::default());
            }
            let begun = Instant::now();
            let end = match Box::pin(pipeline.run(stop, kill)).await {
                Ok(end) => end,
                Err(error) if self.settings.applier.standby && error.is_fenced() => {
                    warn!(%error, "standing by");
                    continue;
                }
                Err(error) if error.may_pass() => {
                    if begun.elapsed() >= OVERCOME {
                        run.failures.restart();
                    }
                    if !self.waits_to_try_again(&error, &mut run.failures, stop).await {
                        return Ok(ON_REQUEST.to_owned());
                    }
                    self.begin_from_target(&mut run.taking);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(why) = Box::pin(self.follow(end, &mut run, stop)).await? {
                return Ok(why);
            }
        }
    }

    /// Does what the end of a pipeline asks for; returns why the channel stops, unless another pipeline follows.
    async fn follow(
        &self,
        end: PipelineEnd,
        run: &mut Run,
        stop: &CancellationToken,
    ) -> Result<Option<String>, ChannelError> {
        let goes_on = match end {
            PipelineEnd::Stopped => false,
            PipelineEnd::UntilMoved => {
                info!("until was moved; continuing");
                true
            }
            PipelineEnd::UntilReached { until, already } => {
                let why = until_reached(&until, already);
                info!("{why}");
                return Ok(Some(why));
            }
            PipelineEnd::Converged(converging) => self.complete(&converging, run, stop).await?,
            PipelineEnd::LacksTables(converging) => self.make_missing(&converging, run, stop).await,
            PipelineEnd::TargetOlder(error) => {
                error!(
                    %error,
                    "starting again from what the target has; the rest is applied once more"
                );
                self.watch.came_back_older(&error);
                self.begin_from_target(&mut run.taking);
                // An address may lead to another server at each attempt (a proxy, a failover).
                tokio::select! {
                    () = tokio::time::sleep(self.settings.applier.connect_retry) => {}
                    () = stop.cancelled() => {}
                }
                true
            }
            PipelineEnd::NotWhole(error) => {
                info!(%error, "beginning again after the checkpoint");
                true
            }
            PipelineEnd::ReceptionReturns => {
                info!("the source serves again; reception begins again");
                true
            }
            PipelineEnd::RelayDamaged { error, transaction } => {
                error!(
                    %error,
                    "cutting the relay store there and fetching the rest from the source again"
                );
                self.reception.discard(&self.settings, transaction).await?;
                true
            }
        };
        Ok((!goes_on).then(|| ON_REQUEST.to_owned()))
    }

    /// Completes a copy in chunks, and begins to compare it. The next pipeline leads here again if that fails. Returns
    /// false when stopped.
    async fn complete(
        &self,
        converging: &Converging,
        run: &mut Run,
        stop: &CancellationToken,
    ) -> Result<bool, ChannelError> {
        // May be dropped anywhere, because it is repeated at the next start. The target finishes an
        // index that it builds, and the repetition waits for that.
        let completed = tokio::select! {
            completed = first_copy::complete(&self.settings, &self.watch, converging) => completed,
            () = stop.cancelled() => return Ok(false),
        };
        match completed {
            Ok(true) => {
                let copied = first_copy::copied_tables(&self.settings, converging)?;
                run.check.begin(&self.settings, &self.watch, copied);
                Ok(true)
            }
            Ok(false) => Ok(true),
            Err(error) => Ok(self.waits_to_try_again(&error, &mut run.failures, stop).await),
        }
    }

    /// Makes tables that a copy dropped before it was interrupted. Returns false when stopped.
    async fn make_missing(
        &self,
        converging: &Converging,
        run: &mut Run,
        stop: &CancellationToken,
    ) -> bool {
        let made = tokio::select! {
            made = first_copy::make_missing(&self.settings, converging) => made,
            () = stop.cancelled() => return false,
        };
        match made {
            Ok(()) => true,
            Err(error) => self.waits_to_try_again(&error, &mut run.failures, stop).await,
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
    pub(super) async fn waits_to_try_again(
        &self,
        error: &ChannelError,
        failures: &mut Backoff,
        stop: &CancellationToken,
    ) -> bool {
        let pause = failures.jittered(0.75..1.25, &SystemChance);
        error!(%error, ?pause, "channel failed; trying again");
        self.watch.refused(error);
        self.watch.tries_again(pause);
        tokio::select! {
            () = self.pauses(pause) => {}
            () = stop.cancelled() => return false,
        }
        self.watch.tried_again();
        true
    }

    /// Waits for the pause; a new password of either account ends it.
    async fn pauses(&self, pause: Duration) {
        let ChannelSettings { source, target, .. } = &*self.settings;
        tokio::select! {
            () = source.password.pause(pause) => {}
            () = target.password.pause(pause) => {}
        }
    }

    /// Claims the identity, trying until it is free; `None` when stopped.
    pub(super) async fn claimed(&self, stop: &CancellationToken) -> Option<Identity> {
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
                Box::pin(self.open(taking)).await
            };
            let error = tokio::select! {
                // May be dropped anywhere: the locks on the target end with the session, and
                // `attach` can be repeated.
                opened = open => match opened {
                    Ok(pipeline) => {
                        pauses.over();
                        return Some(pipeline);
                    }
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
    pub(super) async fn is_worth_another_try(
        &self,
        error: &ChannelError,
        pauses: &mut Pauses,
        stop: &CancellationToken,
    ) -> bool {
        let absent = error.absent();
        let pause = error.pause(pauses.next(absent.is_some()));
        match absent {
            Some(Absent::Source) => self.watch.waiting_for_source(&error.to_string()),
            Some(Absent::Target) => self.watch.waiting_for_target(&error.to_string()),
            Some(Absent::Archive) => self.watch.waiting_for_archive(&error.to_string()),
            None => self.watch.refused(error),
        }
        self.watch.tries_again(pause);
        match absent {
            Some(server) if pauses.is_news(server) => warn!("{error}; trying again"),
            Some(_) => debug!("{error}; trying again"),
            None => error!(%error, ?pause, "channel not started; trying again"),
        }
        tokio::select! {
            () = self.receive_meanwhile(error) => {}
            () = stop.cancelled() => return false,
        }
        tokio::select! {
            () = self.pauses(pause) => true,
            () = stop.cancelled() => false,
        }
    }

    /// Checks the state folder before any server is asked.
    fn claim(&self) -> Result<Identity, ChannelError> {
        state_dir::check(&self.settings.relay.directory).map_err(ChannelError::State)?;
        Identity::claim(self.settings.directory())
    }

    /// Checks both servers, and takes the channel.
    async fn open(&self, taking: &mut Taking) -> Result<Pipeline<'_>, ChannelError> {
        let settings = &self.settings;
        state_dir::check(&settings.relay.directory).map_err(ChannelError::State)?;
        let kept = self.kept.take(settings, taking);
        let prepared = match kept {
            // Its steps were the first of this start, which has forgotten what they found.
            Some(prepared) => {
                self.watch.target_answered(&prepared.target);
                prepared
            }
            None => {
                self.watch.opening();
                self.looks().prepare(&taking.start, taking.was_held).await?
            }
        };
        let is_new = prepared.target.checkpoint.is_none() && !taking.was_held;
        let prepared = match settings.copies_first && is_new {
            true => {
                let (watch, controls) = (&self.watch, &self.controls);
                taking.has_copied =
                    first_copy::make(settings, watch, controls, &self.reception).await?;
                self.looks().prepare(&taking.start, true).await?
            }
            false => prepared,
        };
        let Prepared { target, source, warnings, position } = prepared;
        // Not each time a server comes back.
        let about_servers = if taking.has_warned { Vec::new() } else { warnings };
        taking.has_warned = true;
        for warning in position.into_iter().chain(about_servers) {
            warn!("{warning}");
        }
        let (watch, controls, reception) = (&self.watch, &self.controls, &self.reception);
        let source = source.as_ref().ok();
        let pipeline =
            Pipeline::open(settings, watch, controls, reception, source, &target, taking).await?;
        info!(
            target = %target.version,
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
            warn!(%error, "nothing is received meanwhile");
        }
    }
}

fn until_reached(until: &Until, already: bool) -> String {
    let when = if already { "was already reached when it started" } else { "is reached" };
    format!("stopped: until {until} {when}")
}
