//! Keeps the channel while it runs, once `claim.rs` has taken it: its lock, its checkpoint rows, and the
//! target's GTIDs level with them.

use csa_provider::{Backoff, Gtid, GtidSet};
use csa_scheduler::Sequence;
use tracing::{info, warn};

use crate::error::{Error, ErrorClass, Fence, Result};
use crate::options::{ApplierOptions, TargetGtids};
use crate::ownership::checkpoint;
use crate::ownership::control::ControlSession;
use crate::ownership::intent;
use crate::reachability::Party;
use crate::server::port::Target;
use crate::server::session::Session;

/// The checkpoint row that statements write: worker 0's, which no group uses while a statement runs.
const WORKER: u16 = 0;

/// Holds the control session of a channel, and opens it again after it was lost.
#[derive(Debug)]
pub(crate) struct Keeper {
    control: ControlSession,
    target: Target,
    /// The pauses between attempts to reach the target, from the first.
    backoff: Backoff,
}

impl Keeper {
    pub(crate) fn new(control: ControlSession, target: Target, options: &ApplierOptions) -> Self {
        Self { control, target, backoff: options.backoff() }
    }

    /// The session is kept from here on: until now, opening the relay store may have taken long.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        match self.control.limit_idleness().await {
            Err(error) if error.is_passing() => self.keep_alive().await,
            other => other,
        }
    }

    /// Keeps the lock: pings the session, and opens it again if it was lost.
    pub(crate) async fn keep_alive(&mut self) -> Result<()> {
        match self.control.ping().await {
            Ok(()) => Ok(()),
            Err(error) if error.class() == ErrorClass::Unavailable => self.regain(&error).await,
            // A server that answers with an error has the session still, and with it the lock.
            Err(error) if error.is_passing() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Finds out whether the target takes writes, and waits until it does.
    pub(crate) async fn look_writable(&mut self) -> Result<()> {
        match self.control.probe().await {
            Err(error) if error.class() == ErrorClass::Unavailable => self.regain(&error).await,
            Err(error) if error.is_passing() => Ok(()),
            other => other,
        }
    }

    async fn regain(&mut self, error: &Error) -> Result<()> {
        self.control.reachability.lost(Party::Control, error);
        warn!(%error, "control session lost, opening it again");
        self.reopen(&mut self.backoff.clone()).await
    }

    /// Waits after the session was lost in a statement, then opens it again.
    pub(crate) async fn wait_and_regain(
        &mut self,
        error: &Error,
        backoff: &mut Backoff,
    ) -> Result<()> {
        self.control.reachability.lost(Party::Control, error);
        tokio::time::sleep(backoff.pause()).await;
        self.reopen(backoff).await
    }

    /// The daemon's identity, by which its sessions on the target are recognised.
    pub(crate) fn identity(&self) -> &str {
        &self.control.identity
    }

    /// The session that holds the lock: for statements, and for queries about the server.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.control.session
    }

    /// Brings the target's GTIDs level with the checkpoint, or the checkpoint level with them.
    pub(crate) async fn level(&mut self) -> Result<()> {
        // On a server that may lack some of it, nothing may be stated as executed.
        if !self.control.is_held {
            return Ok(());
        }
        match self.target.gtids {
            TargetGtids::Own => Ok(()),
            TargetGtids::Mirror => {
                let executed = self.control.commits.executed();
                self.control.mirror(&executed).await
            }
            TargetGtids::Source => {
                let (sequence, executed) = self.control.commits.progress();
                self.control.note_progress(sequence, &executed).await
            }
        }
    }

    /// The transaction in `csa.statement`: it was begun, and can't be rolled back.
    pub(crate) async fn begun(&mut self) -> Result<Option<Gtid>> {
        loop {
            match intent::begun(&mut self.control.session, &self.control.channel).await {
                Err(error) if error.is_passing() => self.keep_alive().await?,
                other => return other,
            }
        }
    }

    /// Adds checkpoint rows until so many workers have one.
    pub(crate) async fn add_workers(&mut self, workers: u16) -> Result<()> {
        loop {
            match self.control.add_workers(workers).await {
                Err(error) if error.is_passing() => self.look_writable().await?,
                other => return other,
            }
        }
    }

    pub(crate) async fn close(self) {
        self.control.close().await;
    }

    /// Records that the session works.
    pub(crate) fn reached(&self) {
        self.control.reachability.reached(Party::Control);
    }

    async fn reopen(&mut self, backoff: &mut Backoff) -> Result<()> {
        loop {
            match self.control.reopen(&self.target).await {
                Ok(()) => {
                    info!(
                        connection = self.control.session.id(),
                        "the channel is held on the target again"
                    );
                    self.reached();
                    return Ok(());
                }
                Err(error) if error.is_passing() => {
                    self.control.reachability.lost(Party::Control, &error);
                    let pause = backoff.pause();
                    warn!(%error, "target unavailable, trying again in {pause:?}");
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// True if the checkpoint has the transaction: the answer to its COMMIT was lost.
    pub(crate) async fn has_committed(&mut self, gtid: &Gtid) -> Result<bool> {
        let ControlSession { session, channel, .. } = &mut self.control;
        // No row lock is needed: with the channel's lock here, the earlier session has ended.
        let found = checkpoint::read(session, channel, false).await?;
        Ok(found.is_some_and(|found| found.executed.contains(gtid)))
    }

    /// Writes the checkpoint of a group whose statements ran on this session.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another daemon took the channel over.
    pub(crate) async fn write_checkpoint(
        &mut self,
        sequence: Sequence,
        executed: &GtidSet,
    ) -> Result<()> {
        if self.target.gtids == TargetGtids::Source {
            return self.control.write_progress(sequence, executed).await;
        }
        let epoch = self.control.checkpoint().epoch;
        let channel = &self.control.channel;
        let update = checkpoint::update(channel, WORKER, epoch, sequence, executed);
        match self.control.session.run(update).await?.first() {
            Some(1) => Ok(()),
            _ => Err(Error::fenced(channel, Fence::TakenOver)),
        }
    }
}
