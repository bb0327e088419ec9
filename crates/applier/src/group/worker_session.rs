//! A worker's session: opened where the channel is held, and opened again after it was lost.

use std::sync::Arc;

use csa_provider::binlog::GtidSet;
use csa_provider::seams::Backoff;
use csa_scheduler::group::Group;
use csa_scheduler::sequence::Sequence;
use tracing::debug;

use super::commit_turn::{CommitTurn, Sending};
use crate::activity::sessions::{Entered, Sessions};
use crate::commits::Commits;
use crate::error::{Error, Result};
use crate::options::ApplierOptions;
use crate::ownership::reconnect::worker_session;
use crate::server::definitions::tables::TargetTables;
use crate::server::generation::Generation;
use crate::server::reachability::Reachability;
use crate::server::room::{Party, Room, SessionClaim};
use crate::server::session::Session;
use crate::server::target::Target;
use crate::status::ApplierStatus;

/// The session and the checkpoint row of one worker.
#[derive(Debug)]
pub(crate) struct WorkerSession {
    pub(super) index: u16,
    pub(super) epoch: u64,
    pub(super) target: Target,
    pub(super) options: ApplierOptions,
    pub(super) shared: SharedWorkerState,
    pub(super) session: Option<Session>,
    /// The generation that the session was last seen to belong to.
    pub(super) generation: u64,
    /// The worker found the target lost, and has committed nothing since.
    pub(super) is_lost: bool,
    /// The group that the worker has.
    pub(super) sequence: Sequence,
}

/// State that the workers of a channel share.
#[derive(Debug, Clone)]
pub(crate) struct SharedWorkerState {
    pub(crate) commits: Commits,
    pub(crate) target: Reachability,
    pub(crate) status: Arc<ApplierStatus>,
    /// The turn to commit.
    pub(crate) turn: CommitTurn,
    pub(crate) sending: Sending,
    pub(crate) sessions: Sessions,
    pub(crate) tables: Arc<TargetTables>,
    pub(crate) generation: Generation,
}

impl SharedWorkerState {
    /// A group is committed: later ones commit from here on, and rows that were late for it are sent. Returns
    /// false if an earlier group is not committed yet.
    pub(crate) fn committed(&self, sequence: Sequence) -> bool {
        self.sending.committed(sequence);
        self.turn.passed(sequence)
    }
}

/// The waits of a group for others, which end if those need what it has.
#[derive(Debug)]
pub(super) struct Waits {
    room: Room,
    turn: CommitTurn,
    entry: (SessionClaim, Party),
}

impl Waits {
    /// Waits; fails with the earlier group if one asks for this group's locks meanwhile, or with the first of all
    /// if the session is to be given up.
    pub(super) async fn or_yield<T>(
        &self,
        wait: impl Future<Output = T>,
        entered: &Entered,
    ) -> std::result::Result<T, Sequence> {
        let asked = self.room.asked(self.entry);
        tokio::pin!(wait, asked);
        loop {
            tokio::select! {
                // A group whose turn has come need not yield any more.
                biased;
                waited = &mut wait => return Ok(waited),
                earlier = entered.yielding.asked() => {
                    // The earlier group may have committed since it asked.
                    if earlier > self.turn.low_water() {
                        return Err(earlier);
                    }
                }
                () = &mut asked => return Err(Sequence::default()),
            }
        }
    }
}

impl WorkerSession {
    pub(crate) fn new(
        index: u16,
        epoch: u64,
        target: Target,
        options: ApplierOptions,
        shared: SharedWorkerState,
    ) -> Self {
        Self {
            index,
            epoch,
            target,
            options,
            shared,
            session: None,
            generation: 0,
            is_lost: false,
            sequence: Sequence::default(),
        }
    }

    fn party(&self) -> Party {
        Party::Worker(self.index)
    }

    fn room(&self) -> &Room {
        self.shared.target.room()
    }

    pub(super) async fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none()
            && let Some((session, number)) = self.room().unpark(self.party())
        {
            self.generation = number;
            return Ok(self.session.insert(session));
        }
        let session = match self.session.take() {
            Some(session) => session,
            None => self.opened().await?,
        };
        Ok(self.session.insert(session))
    }

    /// Opens a session, once there is room for it on the target.
    async fn opened(&mut self) -> Result<Session> {
        let (generation, channel) = (&self.shared.generation, &self.options.channel);
        let entry = (SessionClaim::Group(self.sequence), self.party());
        let target = self.target.in_room(self.room().of_session());
        let open = || worker_session(&target, generation, channel, self.index);
        let opened = self.shared.target.open(entry, generation, &*self.options.chance, open);
        let (session, number) = opened.await?;
        self.generation = number;
        debug!(worker = self.index, connection = session.id(), "session on the target opened");
        Ok(session)
    }

    /// Ends the session, if it was to be given up for a group before this one.
    pub(super) async fn give_up(&mut self) {
        if self.room().is_giving(self.party())
            && let Some(session) = self.session.take()
        {
            session.close().await;
        }
    }

    /// Leaves the session to whoever needs its room before the worker has another group.
    pub(super) async fn park(&mut self) {
        if let Some(session) = self.session.take()
            && let Some(session) = self.room().park(self.party(), session, self.generation)
        {
            session.close().await;
        }
    }

    /// Returns what the waits of the group at hand need.
    pub(super) fn waits(&self) -> Waits {
        Waits {
            room: self.room().clone(),
            turn: self.shared.turn.clone(),
            entry: (SessionClaim::Group(self.sequence), self.party()),
        }
    }

    /// Drops a lost session, asks for a check of the control session, and waits.
    pub(super) async fn lost(&mut self, error: &Error, backoff: &mut Backoff) {
        // Closed before the wait, so that the server can roll its transaction back.
        self.session = None;
        self.is_lost = true;
        self.shared.target.lost(self.party(), error);
        self.shared.generation.suspect();
        let pause = error.pause(backoff.pause(), &*self.options.chance);
        self.shared.target.waits(self.party(), pause);
        tokio::select! {
            biased;
            // One that has begun already is missed; then the pause ends the wait.
            () = self.shared.generation.next() => {}
            () = self.target.password.pause(pause) => {}
        }
    }

    pub(super) fn reached(&mut self) {
        if std::mem::take(&mut self.is_lost) {
            self.shared.target.reached(self.party());
        }
    }

    /// Returns the set that the checkpoint row states with the group. Out of commit order it can only state
    /// what is known to be committed, and the rows of all workers together are the checkpoint.
    pub(super) fn executed_after(&self, group: &Group) -> GtidSet {
        if self.options.preserve_commit_order {
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
        let idle = self.room().unpark(self.party()).map(|(session, _)| session);
        if let Some(session) = self.session.take().or(idle) {
            session.close().await;
        }
    }
}
