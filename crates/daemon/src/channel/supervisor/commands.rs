//! Commands to a channel beyond its starts and stops: pause, end, skip and waits.

use std::fmt;
use std::time::Duration;

use csa_applier::{AuditEntry, ChannelClaim, ControlSession};
use csa_provider::binlog::{Gtid, GtidSet};
use csa_scheduler::until::Until;
use tracing::{Instrument as _, info};

use super::{Done, Supervisor};
use crate::channel::describe::state::Phase;
use crate::channel::error::ChannelError;
use crate::channel::identity::Identity;
use crate::channel::live_settings::Paused;
use crate::channel::refusal::Refusal;
use crate::config::{ChannelSettings, written_rules};
use crate::host::Sender;

/// How often a wait checks the target's progress.
const LOOK: Duration = Duration::from_millis(20);

/// More than enough: a run that pauses between attempts notices a stop at once.
const END_OF_A_PAUSE: Duration = Duration::from_secs(10);

/// The time that a skip has once the channel is to end. It takes milliseconds, unless the target's rows are locked.
const SKIP_GRACE: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Pauses or resumes the applier: while paused it begins nothing new.
    ///
    /// # Errors
    /// The channel does not run, or another daemon has it.
    pub(crate) async fn set_paused(&self, paused: Option<Paused>) -> Done<()> {
        let state = self.state.lock().await;
        self.check_target("a pause")?;
        if !state.is_alive() {
            return Err(self.not_running("restart it first"));
        }
        let is_paused = paused.is_some();
        if is_paused && self.watch.is_in(Phase::Standby) {
            return Err(self.not_running("pause it on the daemon that has it"));
        }
        self.controls.set_paused(paused);
        self.span.in_scope(|| info!(paused = is_paused, "pause changed"));
        Ok(())
    }

    /// Changes where the channel stops on its own, and resumes a channel that has stopped there.
    /// Returns the end before the change.
    ///
    /// # Errors
    /// The new end is already past; nothing was changed.
    pub(crate) async fn set_until(&self, until: Option<Until>) -> Done<Option<Until>> {
        let mut state = self.state.lock().await;
        self.check_present()?;
        self.check_target("an end")?;
        if self.started_with().applier.standby && until.is_some() {
            // It would stop here, and the other daemon would resume beyond it.
            return Err(Refusal::state(
                format!(
                    "channel {}: until: the daemon that stands by would not know it",
                    self.name
                ),
                "set applier.until in the files of all daemons of the channel, and run csa-daemon reload --restart on \
                 each, last on the one that has the channel",
            ));
        }
        let before = self.controls.until().get();
        let had_stopped = self.controls.set_until(until).map_err(|past| {
            Refusal::state(
                format!("channel {}: {past}", self.name),
                "name a later end, or use stop to end the channel where it is",
            )
        })?;
        if had_stopped {
            if let Some(life) = state.life.take() {
                // The run is at its end, so the wait is short.
                state.outcome = life.task.await.unwrap_or_else(|panic| Err(panic.to_string()));
            }
            self.begin(&mut state);
        }
        Ok(before)
    }

    /// Waits until no group runs, at most `patience`; returns whether none does.
    pub(crate) async fn wait_at_rest(&self, patience: Duration) -> bool {
        let rest = async {
            while !self.watch.is_at_rest() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(patience, rest).await.is_ok()
    }

    /// Records the transaction that stopped the channel as executed, and starts the channel.
    ///
    /// # Errors
    /// The channel runs, it stopped elsewhere, or the target refuses.
    pub(crate) async fn skip(&self, gtid: &Gtid, sender: &Sender) -> Done<()> {
        let mut state = self.state.lock().await;
        self.check_present()?;
        self.check_target("a skip")?;
        // Alive and failed: its start is refused and retried.
        if state.is_alive() && !self.watch.is_in(Phase::Failed) {
            return Err(Refusal::state(
                format!(
                    "channel {} runs; only a transaction that stopped it can be skipped",
                    self.name
                ),
                "wait until it stops at a transaction, and skip that one",
            ));
        }
        let stopped_at = self.watch.stopped_at();
        if stopped_at.as_ref() != Some(gtid) {
            let (at, fix) = match stopped_at {
                Some(at) => (format!("stopped at {at}, not at {gtid}"), format!("skip {at}")),
                None => (
                    "did not stop at a transaction".to_owned(),
                    "last_error in its status names what has to be changed".to_owned(),
                ),
            };
            return Err(Refusal::state(format!("channel {} {at}", self.name), fix));
        }
        let (target, there) =
            (self.settings().target.address(), self.started_with().target.address());
        if target != there {
            return Err(Refusal::state(
                format!(
                    "channel {} stopped at {gtid} on {there}, and its configuration names {target} by now",
                    self.name
                ),
                "csa-daemon restart, and skip it if the channel stops at it there, too",
            ));
        }
        // A run whose start is retried may hold the identity's lock, which the skip needs.
        let is_retried = state.is_alive();
        if is_retried {
            self.end(&mut state, END_OF_A_PAUSE).await;
        }
        let settings = self.settings();
        let recorded = self.record_skip(&settings, gtid, sender).instrument(self.span.clone());
        let refused = |why: &dyn fmt::Display, fix: &str| Refusal {
            error: format!("channel {}: skipping {gtid}: {why}", self.name),
            fix: fix.to_owned(),
            by_target: true,
        };
        let skipped = tokio::select! {
            biased;
            recorded = recorded => recorded.map_err(|error| {
                refused(&error, "nothing was skipped; try again when the target permits it")
            }),
            // The target rolls back what is dropped, unless it has the COMMIT already.
            () = self.gives_way() => Err(refused(
                &"given up, because the channel is to end and the target has not answered",
                "most likely nothing was skipped; start the channel, and skip the transaction again if it stops there again",
            )),
        };
        // Dying here is harmless: the checkpoint has the GTID, the next start resumes after it.
        if skipped.is_ok() {
            self.watch.skipped();
        }
        if skipped.is_ok() || is_retried {
            self.begin(&mut state);
        }
        skipped
    }

    /// Returns once a command has to leave the channel to one that ends it, or to the end of the process.
    async fn gives_way(&self) {
        let is_wanted = async {
            tokio::select! {
                () = self.process.stop.cancelled() => {}
                () = self.enders.some() => {}
            }
            tokio::time::sleep(SKIP_GRACE).await;
        };
        tokio::select! {
            () = is_wanted => {}
            () = self.process.kill.cancelled() => {}
        }
    }

    /// May be dropped anywhere: the target rolls back, or has the whole skip, and the next start finds out which.
    async fn record_skip(
        &self,
        settings: &ChannelSettings,
        gtid: &Gtid,
        sender: &Sender,
    ) -> Result<(), ChannelError> {
        let workers = self.controls.tuning().worker_count;
        let identity = Identity::claim(settings.directory())?;
        let mut control = ControlSession::open(
            &settings.target,
            &settings.name,
            workers,
            &ChannelClaim {
                identity: identity.name(),
                start: None,
                source_executed: None,
                source_uuid: None,
                filters: &written_rules(&settings.filters),
                standby: false,
                is_run: false,
            },
            // The skip executes no statement, so nothing has to be announced.
            true,
        )
        .await?;
        let entry = sender.entry(&self.name, "skip", String::new());
        let entry = AuditEntry { gtid: gtid.to_string(), ..entry };
        let skipped = control.skip(&settings.target, gtid, &entry).await;
        // Whatever the outcome: the next start would find the channel's lock held.
        control.close().await;
        if !skipped? {
            info!(%gtid, "was already executed");
        }
        Ok(())
    }

    /// Waits until everything in `set` is committed on the target, or archived without one; returns what is missing after
    /// `timeout`, or when the channel is removed. The wait continues while the channel is stopped, like
    /// the server's `WAIT_FOR_EXECUTED_GTID_SET`, and while the daemon joins its fleet.
    ///
    /// # Errors
    /// Another daemon of the fleet has the channel, and this one doesn't learn what it applies.
    pub(crate) async fn wait_for(&self, set: &GtidSet, timeout: Duration) -> Done<GtidSet> {
        let executed = async {
            // Polled, because pipelines come and go during the wait.
            while !self.watch.has_executed(set) {
                // A daemon that joins does not know yet who has the channel, and may get it.
                if !self.hindrance.is_joining()
                    && let Some(refused) = self.refused_here()
                {
                    return Err(refused);
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok(GtidSet::new())
        };
        tokio::select! {
            waited = tokio::time::timeout(timeout, executed) => if let Ok(waited) = waited {
                return waited;
            },
            () = self.hindrance.removed.cancelled() => {}
        }
        Ok(set.difference(&self.watch.executed()))
    }

    /// A command may have waited for the state while a reload removed the channel.
    pub(crate) fn check_present(&self) -> Done<()> {
        if self.is_removed() {
            let error = format!("channel {} was removed from the configuration", self.name);
            return Err(Refusal::state(error, "add it there, and reload"));
        }
        if let Some(why) = self.refused_here() {
            return Err(why);
        }
        match self.process.stop.is_cancelled() {
            true => Err(Refusal::state("the daemon is stopping", "start the daemon again")),
            false => Ok(()),
        }
    }

    /// Returns the refusal of a command for a channel that another daemon of the fleet runs.
    fn refused_here(&self) -> Option<Refusal> {
        let detail = self.hindrance.elsewhere.lock().as_ref()?.detail.clone();
        let fix =
            "csa-daemon fleet names the daemon that has the channel: send the command to that one";
        Some(Refusal::state(format!("channel {}: {detail}", self.name), fix))
    }

    /// Refuses a command that has no sense for a channel that only archives.
    pub(crate) fn check_target(&self, what: &str) -> Done<()> {
        let fix = "a channel that only archives takes stop, restart and wait, which waits until transactions are archived";
        self.started_with().check_target(what).map_err(|why| Refusal::state(why, fix))
    }

    pub(super) fn not_running(&self, fix: &str) -> Refusal {
        if let Some(refused) = self.refused_here() {
            return refused;
        }
        let view = self.watch.view();
        Refusal::state(format!("channel {} is {}", self.name, view.state.name()), fix)
    }
}
