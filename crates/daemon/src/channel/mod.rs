//! One channel: its preflight, its life, and what it shows of itself.

mod bottleneck;
mod controls;
mod delay;
mod failure;
mod identity;
mod pipeline;
mod relay_thread;
mod shown;
mod supervisor;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{ExecMode, Executor, StartFrom, TargetFacts, Vendor};
use csa_provider::GtidSet;
use csa_scheduler::Until;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::ChannelSettings;
use pipeline::{End, Pipeline};
use watch::Watch;

pub(crate) use controls::Controls;
pub(crate) use supervisor::{Refusal, Supervisor};

/// A channel from one start to its end, through as many pipelines as it takes.
#[derive(Debug)]
struct Channel {
    settings: Arc<ChannelSettings>,
    watch: Watch,
    controls: Controls,
}

/// What a preflight found on servers that will do.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) lines: Vec<String>,
    /// A server that did not answer; the rest could not be checked.
    pub(crate) unreachable: Option<String>,
}

/// Why a channel ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Applier(#[from] csa_applier::Error),
    #[error(transparent)]
    Relay(#[from] csa_relaystore::Error),
    #[error("{0}")]
    State(String),
}

impl Channel {
    fn name(&self) -> &str {
        &self.settings.name
    }

    async fn preflight(&self) -> Result<Findings, String> {
        let mut findings = Findings::default();
        let settings = &*self.settings;
        let target = match csa_applier::preflight(&settings.target, &settings.name).await {
            Ok(facts) => Some(facts),
            Err(csa_applier::PreflightError::Refused(why)) => return Err(why),
            Err(error) => {
                findings.unreachable = Some(error.to_string());
                None
            }
        };
        if let Some(facts) = &target {
            self.check_target(facts)?;
        }
        let executed = target.as_ref().and_then(|facts| self.start_set(facts));
        match csa_provider::preflight(&settings.source, executed.as_ref()).await {
            Ok(facts) => findings.lines.extend(facts.warnings),
            Err(csa_provider::PreflightError::Refused(why)) => return Err(why),
            Err(error) => findings.unreachable = Some(error.to_string()),
        }
        findings.lines.extend(target.into_iter().flat_map(|facts| facts.warnings));
        Ok(findings)
    }

    /// Whether what the target permits does what is asked for.
    fn check_target(&self, facts: &TargetFacts) -> Result<(), String> {
        let idempotent = self.settings.applier.exec_mode == ExecMode::Idempotent;
        let address = self.settings.target.address();
        let from_target = self.settings.start_from == StartFrom::Target;
        if facts.start_is_unknown && facts.checkpoint.is_none() && from_target {
            return Err(format!(
                "applier.start_from: target {address} is MariaDB and holds tables, and can't tell which \
                 of the source's transactions are in them; set start_from to the GTID set that was \
                 copied (gtid_purged of a dump), or \"source\""
            ));
        }
        match facts.executor {
            Executor::Sql if idempotent && facts.vendor == Vendor::MariaDb => Err(format!(
                "applier.exec_mode: \"idempotent\" needs row images, and target {address} is MariaDB; \
                 take \"strict\""
            )),
            Executor::Sql if idempotent => Err(format!(
                "applier.exec_mode: \"idempotent\" needs row images, and rows go to target {} by \
                 executor \"sql\"; GRANT REPLICATION_APPLIER ON *.* there and executor = \"row-image\"",
                address
            )),
            _ => Ok(()),
        }
    }

    /// What the target has executed of this channel; unknown when it is for the source to say.
    fn start_set(&self, facts: &TargetFacts) -> Option<GtidSet> {
        match (&facts.checkpoint, &self.settings.start_from) {
            (Some(checkpoint), _) => Some(checkpoint.executed.clone()),
            (None, StartFrom::Target) => Some(facts.gtid_executed.clone()),
            (None, StartFrom::Executed(set)) => Some(set.clone()),
            (None, StartFrom::Source) => None,
        }
    }

    /// Replicates until `stop` (what runs is finished) or `kill` (what runs is given up).
    ///
    /// # Errors
    /// What stopped the channel; everything before it is committed.
    async fn run(
        &self,
        stop: CancellationToken,
        kill: CancellationToken,
    ) -> Result<(), ChannelError> {
        let outcome = self.run_pipelines(&stop, &kill).await;
        match &outcome {
            Ok(why) => self.watch.stopped(why),
            Err(error) => self.watch.failed(error),
        }
        outcome.map(drop)
    }

    /// Why it stopped.
    async fn run_pipelines(
        &self,
        stop: &CancellationToken,
        kill: &CancellationToken,
    ) -> Result<String, ChannelError> {
        const ON_REQUEST: &str = "stopped on request";
        loop {
            let Some(pipeline) = self.open(stop).await? else { return Ok(ON_REQUEST.to_owned()) };
            match pipeline.run(stop, kill).await? {
                End::Stopped => return Ok(ON_REQUEST.to_owned()),
                End::UntilMoved => info!(channel = self.name(), "until was moved, going on"),
                End::UntilReached { until, already } => {
                    let why = until_reached(&until, already);
                    info!(channel = self.name(), "{why}");
                    return Ok(why);
                }
                End::RelayDamaged(damage) => {
                    error!(
                        channel = self.name(), error = %damage.text,
                        "cutting the relay store there and fetching the rest from the source again"
                    );
                    pipeline::discard(&self.settings, damage.transaction).await?;
                }
            }
        }
    }

    /// Waits for both servers, checks them, and takes the channel.
    async fn open(&self, stop: &CancellationToken) -> Result<Option<Pipeline<'_>>, ChannelError> {
        let mut pause = self.settings.applier.connect_retry;
        loop {
            let why = tokio::select! {
                opened = self.try_open() => match opened? {
                    Ok(pipeline) => return Ok(Some(pipeline)),
                    Err(why) => why,
                },
                () = stop.cancelled() => return Ok(None),
            };
            warn!(channel = self.name(), "{why}; trying again");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return Ok(None),
            }
            pause = (pause * 2)
                .min(self.settings.applier.connect_retry_max.max(Duration::from_millis(1)));
        }
    }

    async fn try_open(&self) -> Result<Result<Pipeline<'_>, String>, ChannelError> {
        let settings = &*self.settings;
        let target = match csa_applier::preflight(&settings.target, &settings.name).await {
            Ok(facts) => facts,
            Err(csa_applier::PreflightError::Refused(why)) => {
                return Err(ChannelError::Refused(why));
            }
            Err(error) => {
                self.watch.waiting_for_target(&error.to_string());
                return Ok(Err(error.to_string()));
            }
        };
        self.check_target(&target).map_err(ChannelError::Refused)?;
        let known = self.start_set(&target);
        let source = match csa_provider::preflight(&settings.source, known.as_ref()).await {
            Ok(facts) => Some(facts),
            Err(csa_provider::PreflightError::Refused(why)) => {
                return Err(ChannelError::Refused(why));
            }
            // A known start does not need the source: what is in the relay store can be applied.
            Err(_) if known.is_some() => None,
            Err(error) => {
                self.watch.waiting_for_source(&error.to_string());
                return Ok(Err(error.to_string()));
            }
        };
        let (watch, controls) = (&self.watch, &self.controls);
        let pipeline = Pipeline::open(settings, watch, controls, source.as_ref(), &target).await;
        match pipeline {
            Ok(pipeline) => {
                info!(
                    channel = self.name(), target = %target.version,
                    executor = target.executor.name(), "channel started"
                );
                Ok(Ok(pipeline))
            }
            Err(ChannelError::Applier(error)) if error.class() != csa_applier::ErrorClass::Stop => {
                self.watch.waiting_for_target(&error.to_string());
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

fn until_reached(until: &Until, already: bool) -> String {
    let when = if already { "was already reached when it started" } else { "is reached" };
    format!("stopped: until {until} {when}")
}
