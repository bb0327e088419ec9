//! A worker's session: opened where the channel is held, and opened again after it was lost.

use std::sync::Arc;

use csa_provider::{Backoff, GtidSet};
use csa_scheduler::{Group, Sequence};
use tracing::{info, warn};

use super::commit_turn::{CommitTurn, Sending};
use crate::activity::Sessions;
use crate::commits::Commits;
use crate::error::{Error, Result};
use crate::options::ApplierOptions;
use crate::ownership::reconnect::worker_session;
use crate::reachability::{Party, Reachability};
use crate::server::definitions::tables::TargetTables;
use crate::server::generation::Generation;
use crate::server::port::Target;
use crate::server::session::Session;
use crate::status::ApplierStatus;

/// The session and the checkpoint row of one worker.
#[derive(Debug)]
pub(crate) struct WorkerSession {
    pub(super) index: u16,
    pub(super) epoch: u64,
    pub(super) target: Target,
    pub(super) options: ApplierOptions,
    pub(super) shared: Shared,
    pub(super) session: Option<Session>,
    /// The generation that the session was last seen to belong to.
    pub(super) generation: u64,
    /// The worker found the target lost, and has committed nothing since.
    pub(super) is_lost: bool,
}

/// State that the workers of a channel share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) commits: Commits,
    pub(crate) target: Reachability,
    pub(crate) status: Arc<ApplierStatus>,
    /// To be committed.
    pub(crate) turn: CommitTurn,
    pub(crate) sending: Sending,
    pub(crate) sessions: Sessions,
    pub(crate) tables: Arc<TargetTables>,
    pub(crate) generation: Generation,
}

impl Shared {
    /// A group is committed: later ones commit from here on, and rows that were late for it are sent. Returns
    /// false if an earlier group is not committed yet.
    pub(crate) fn committed(&self, sequence: Sequence) -> bool {
        self.sending.committed(sequence);
        self.turn.passed(sequence)
    }
}

impl WorkerSession {
    pub(crate) fn new(
        index: u16,
        epoch: u64,
        target: Target,
        options: ApplierOptions,
        shared: Shared,
    ) -> Self {
        Self { index, epoch, target, options, shared, session: None, generation: 0, is_lost: false }
    }

    pub(super) async fn session(&mut self) -> Result<&mut Session> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let generation = &self.shared.generation;
                let channel = &self.options.channel;
                let (session, number) =
                    worker_session(&self.target, generation, channel, self.index).await?;
                self.generation = number;
                info!(
                    worker = self.index,
                    connection = session.id(),
                    "session on the target opened"
                );
                session
            }
        };
        Ok(self.session.insert(session))
    }

    /// Drops a lost session, asks for a check of the control session, and waits.
    pub(super) async fn lost(&mut self, error: &Error, backoff: &mut Backoff) {
        // Closed before the wait, so that the server can roll its transaction back.
        self.session = None;
        self.is_lost = true;
        if self.shared.target.lost(Party::Worker(self.index), error) {
            warn!(worker = self.index, %error, "target unavailable, waiting for it");
        }
        self.shared.generation.suspect();
        tokio::select! {
            biased;
            // One that has begun already is missed; then the pause ends the wait.
            () = self.shared.generation.next() => {}
            () = tokio::time::sleep(backoff.pause()) => {}
        }
    }

    pub(super) fn reached(&mut self) {
        if std::mem::take(&mut self.is_lost) {
            self.shared.target.reached(Party::Worker(self.index));
        }
    }

    /// The set that the checkpoint row states with the group. Out of commit order it can only state what
    /// is known to be committed, and the rows of all workers together are the checkpoint.
    pub(super) fn executed_after(&self, group: &Group) -> GtidSet {
        if self.options.is_prefix() {
            return group.executed_after.clone();
        }
        let mut executed = self.shared.commits.executed();
        for transaction in &group.transactions {
            executed.add(&transaction.relayed.header.gtid);
        }
        executed
    }

    /// Rolls back and restores our settings; a session that can't do so is dropped.
    pub(super) async fn rollback(&mut self) {
        // One that fails here would carry locks and settings into the next attempt.
        if let Some(session) = self.session.as_mut()
            && (session.run("ROLLBACK").await.is_err() || session.leave_now().await.is_err())
        {
            self.session = None;
        }
    }

    pub(super) async fn close(mut self) {
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}
