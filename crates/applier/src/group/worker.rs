//! Applies one group in one target transaction, together with its checkpoint row.

use std::sync::Arc;
use std::time::Duration;

use csa_provider::GtidSet;
use csa_scheduler::{AdmittedTransaction, Group, Sequence};
use tracing::{info, warn};

use crate::error::failing_row::FailingRow;
use crate::error::transaction::{NOT_TRANSACTIONAL, named};
use crate::group::commit_turn::CommitTurn;
use crate::group::late_tables::{late_rows, whole_tables};
use crate::options::{ApplierOptions, Executor, TargetGtids, TargetOptions};
use crate::ownership::checkpoint;
use crate::ownership::control::fenced;
use crate::ownership::reconnect::worker_session;
use crate::rows::executor::{Opening, RowExecutor};
use crate::rows::failing_row::Failed;
use crate::rows::image::Step;
use crate::rows::steps::Steps;
use crate::status::activity::{Entered, SessionState, Sessions};
use crate::status::{ApplierStatus, Party};
use crate::target::as_source;
use crate::target::definitions::tables::TargetTables;
use crate::target::generation::Generation;
use crate::target::retry;
use crate::target::row_session;
use crate::target::session::Session;
use crate::{Error, ErrorClass, Result};

/// A worker owns one session and one checkpoint row.
#[derive(Debug)]
pub(crate) struct Worker {
    index: u16,
    epoch: u64,
    target: TargetOptions,
    options: ApplierOptions,
    shared: Shared,
    session: Option<Session>,
    /// The generation that the session was last seen to belong to.
    generation: u64,
    /// The worker found the target lost, and has committed nothing since.
    is_lost: bool,
}

/// State that the workers of a channel share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) status: Arc<ApplierStatus>,
    pub(crate) turn: CommitTurn,
    pub(crate) sessions: Sessions,
    pub(crate) tables: Arc<TargetTables>,
    pub(crate) generation: Generation,
}

/// The transactions applied in one target transaction: a group, or one transaction of a failed group.
#[derive(Debug, Clone)]
struct Unit {
    group: Arc<Group>,
    /// First and last transaction, the last not included.
    range: (usize, usize),
    executed_after: GtidSet,
}

impl Unit {
    fn transactions(&self) -> &[AdmittedTransaction] {
        self.group.transactions.get(self.range.0..self.range.1).unwrap_or_default()
    }
}

/// How an attempt ended.
enum Attempt {
    Committed,
    /// Rolled back, so that an earlier group can have its locks.
    Yielded(Sequence),
}

impl Worker {
    pub(crate) fn new(
        index: u16,
        epoch: u64,
        target: TargetOptions,
        options: ApplierOptions,
        shared: Shared,
    ) -> Self {
        Self { index, epoch, target, options, shared, session: None, generation: 0, is_lost: false }
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Applies and commits a group of row transactions in its turn. `Ok` means that it is committed; if
    /// this is cancelled or fails, the group is not committed, or the checkpoint row has it.
    ///
    /// # Errors
    /// The error that stops the channel, once everything before the failing transaction is committed.
    pub(crate) async fn apply(&mut self, group: &Arc<Group>) -> Result<()> {
        let entered = self.shared.sessions.enter(self.index, group.sequence);
        let unit = Unit {
            group: Arc::clone(group),
            range: (0, group.transactions.len()),
            executed_after: self.executed_after(group),
        };
        let outcome = match self.apply_unit(&unit, &entered).await {
            Err(error) => {
                // A group that fails out of turn may have met a lock or a row of an earlier group; and
                // somebody may have changed a table on the target. The rollback comes first: the earlier
                // groups that are waited for may need its locks.
                self.rollback().await;
                self.shared.tables.forget();
                entered.now(SessionState::WaitingForTurn);
                self.shared.turn.wait_before(group.sequence).await;
                entered.now(SessionState::Applying);
                match is_of_one_transaction(&error) {
                    true => self.apply_singly(group, &entered, error).await,
                    false => Err(error),
                }
            }
            other => other,
        };
        self.reached();
        if outcome.is_ok() {
            self.shared.turn.committed(group.sequence);
        }
        outcome
    }

    /// Commits the session's transaction, and records it before a new generation can begin: a
    /// target that comes back without it is then recognised.
    async fn commit(&mut self, unit: &Unit) -> Result<()> {
        let shared = self.shared.clone();
        let Self { session: Some(session), generation, options, .. } = self else {
            return Err(Error::Relay("no session".to_owned()));
        };
        let committing = shared.generation.commit(session, &options.channel, generation).await?;
        // If the answer is lost here, `is_committed` asks the checkpoint row.
        session.run("COMMIT").await?;
        shared.status.applied(unit.transactions());
        drop(committing);
        self.reached();
        Ok(())
    }

    fn reached(&mut self) {
        if std::mem::take(&mut self.is_lost) {
            self.shared.status.target_reached(Party::Worker(self.index));
        }
    }

    /// Drops a lost session, asks for a check of the control session, and waits.
    async fn lost(&mut self, error: &Error, pause: &mut Duration) {
        self.session = None;
        self.is_lost = true;
        if self.shared.status.target_lost(Party::Worker(self.index), error) {
            warn!(worker = self.index, %error, "target unavailable, waiting for it");
        }
        self.shared.generation.suspect();
        tokio::select! {
            () = tokio::time::sleep(*pause) => {}
            () = self.shared.generation.next() => {}
        }
        *pause = (*pause * 2).min(self.options.connect_retry_max);
    }

    /// The set that the checkpoint row states with the group. Out of commit order it can only state what
    /// is known to be committed, and the rows of all workers together are the checkpoint.
    fn executed_after(&self, group: &Group) -> GtidSet {
        if self.options.preserve_commit_order {
            return group.executed_after.clone();
        }
        let mut executed = self.shared.status.executed();
        for transaction in &group.transactions {
            executed.add(&transaction.relayed.header.gtid);
        }
        executed
    }

    /// Finds the failing transaction of a group by applying each one alone, in order.
    async fn apply_singly(
        &mut self,
        group: &Arc<Group>,
        entered: &Entered,
        error: Error,
    ) -> Result<()> {
        // The set without the group's own GTIDs: each is added when its turn comes.
        let mut executed = self.executed_after(group);
        for transaction in &group.transactions {
            let mut one = GtidSet::new();
            one.add(&transaction.relayed.header.gtid);
            executed.subtract(&one);
        }
        info!(
            sequence = group.sequence.get(),
            transactions = group.transactions.len(),
            %error,
            "group failed, applying its transactions one by one"
        );
        for (index, transaction) in group.transactions.iter().enumerate() {
            executed.add(&transaction.relayed.header.gtid);
            let unit = Unit {
                group: Arc::clone(group),
                range: (index, index + 1),
                executed_after: executed.clone(),
            };
            if let Err(error) = self.apply_unit(&unit, entered).await {
                self.rollback().await;
                if is_of_one_transaction(&error) {
                    // Looking for the row repeats the changes, and must be able to roll them back.
                    let row = match error.code() {
                        Some(NOT_TRANSACTIONAL) => None,
                        _ => self.failing_row(&unit).await,
                    };
                    return Err(named(transaction, &error, row));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The row at which a transaction failed, if it can be found.
    async fn failing_row(&mut self, unit: &Unit) -> Option<Box<FailingRow>> {
        let (options, tables) = (self.options.clone(), Arc::clone(&self.shared.tables));
        let failed = Failed {
            group: &unit.group,
            range: unit.range,
            options: &options,
            tables: &tables,
            opening: self.own_opening(unit),
        };
        let session = self.session().await.ok()?;
        match failed.find(session).await {
            Ok(row) => row.map(Box::new),
            Err(error) => {
                self.session = None;
                info!(%error, "could not find the row at which it failed");
                None
            }
        }
    }

    async fn apply_unit(&mut self, unit: &Unit, entered: &Entered) -> Result<()> {
        let mut retries = 0;
        let mut pause = self.options.connect_retry;
        let mut dependency = unit.group.dependency;
        loop {
            let error = match self.attempt(unit, dependency, entered).await {
                Ok(Attempt::Committed) => return Ok(()),
                Ok(Attempt::Yielded(earlier)) => {
                    dependency = dependency.max(earlier);
                    self.shared.status.yielded();
                    self.rollback().await;
                    continue;
                }
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Retry if retries < self.options.transaction_retries => {
                    retries += 1;
                    self.shared.status.retried();
                    self.rollback().await;
                    let sequence = unit.group.sequence.get();
                    info!(sequence, retries, %error, "rolled back, trying again");
                    tokio::time::sleep(retry::pause(retries)).await;
                }
                ErrorClass::Unavailable => {
                    self.lost(&error, &mut pause).await;
                    if self.is_committed(unit).await? {
                        return Ok(());
                    }
                }
                _ => return Err(error),
            }
        }
    }

    /// One try: everything up to and including the COMMIT.
    async fn attempt(
        &mut self,
        unit: &Unit,
        dependency: Sequence,
        entered: &Entered,
    ) -> Result<Attempt> {
        entered.now(SessionState::Preparing);
        let sequence = unit.group.sequence;
        let format = Arc::clone(unit.group.format());
        let mut rows = RowExecutor::new(&self.options, Arc::clone(&self.shared.tables));
        let session = self.session().await?;
        let limit = rows.step_bytes(session);
        rows.prepare(session, &format).await?;
        entered.connected(session.id());
        let turn = self.shared.turn.clone();
        entered.now(SessionState::WaitingForDependency);
        if dependency > turn.low_water() {
            self.shared.status.held_back(whole_tables(&unit.group));
        }
        // Before BEGIN: the session holds no lock while it waits.
        turn.wait(dependency).await;
        entered.now(SessionState::Preparing);
        let low_water = turn.low_water();
        let mut steps =
            Steps::of(&unit.group, unit.range, limit, low_water, &entered.progress).await;
        entered.now(SessionState::Applying);
        self.send(unit, &mut steps, &mut rows).await?;
        if let Some(dependency) = steps.late_dependency {
            entered.now(SessionState::WaitingForDependency);
            if dependency > turn.low_water() {
                self.shared.status.held_back(late_rows(&unit.group, low_water));
            }
            if let Some(earlier) = or_yield(&turn, dependency, entered).await {
                return Ok(Attempt::Yielded(earlier));
            }
            entered.now(SessionState::Applying);
            self.send_late(&mut steps, &mut rows).await?;
        }
        // Frees the group's statements while it waits for its turn.
        drop(steps);
        if self.options.preserve_commit_order {
            entered.now(SessionState::WaitingForTurn);
            if let Some(earlier) = or_yield(&turn, sequence.previous(), entered).await {
                return Ok(Attempt::Yielded(earlier));
            }
        }
        entered.now(SessionState::Committing);
        self.commit(unit).await?;
        Ok(Attempt::Committed)
    }

    /// Sends the rows that had to wait for other groups.
    async fn send_late(&mut self, steps: &mut Steps, rows: &mut RowExecutor) -> Result<()> {
        let session = self.session().await?;
        while let Some(images) = steps.next_late() {
            let bytes = images.events.len();
            rows.send(session, None, images).await?;
            steps.sent(bytes);
        }
        Ok(())
    }

    /// Sends BEGIN, the UPDATE of the checkpoint row and every change, in as few packets as possible.
    async fn send(&mut self, unit: &Unit, steps: &mut Steps, rows: &mut RowExecutor) -> Result<()> {
        let channel = self.options.channel.clone();
        let (mut text, mut fence) = self.opening(unit);
        let session = self.session().await?;
        // Our own statements need our own settings.
        if let Some(own) = session.leave() {
            text = format!("{own};{text}");
            fence += row_session::count(own);
        }
        let mut opening = Some(Opening { text: text.into_bytes(), statements: fence + 1 });
        while let Some(step) = steps.next().await {
            let opened = opening.is_some();
            let mut images_sent = 0;
            let matched = match step? {
                Step::RowImages(images) => {
                    images_sent = images.events.len();
                    rows.send(session, opening.take(), images).await?
                }
                Step::Statement(text) => {
                    let Opening { text: mut statements, .. } = opening.take().unwrap_or_default();
                    if opened {
                        statements.push(b';');
                    }
                    statements.extend_from_slice(&text);
                    session.run(&statements).await?
                }
            };
            steps.sent(images_sent);
            if opened {
                owned(&channel, matched.get(fence))?;
            }
        }
        if let Some(Opening { text, .. }) = opening {
            owned(&channel, session.run(&text).await?.get(fence))?;
        }
        Ok(())
    }

    /// The statements that begin a unit's transaction, and the index of the last, the UPDATE that has to
    /// match the checkpoint row. Under the source's GTID it must write nothing of ours.
    fn opening(&self, unit: &Unit) -> (String, usize) {
        let channel = &self.options.channel;
        let header = unit.transactions().first().map(|transaction| &transaction.relayed.header);
        match (self.target.gtids, header) {
            (TargetGtids::Source, Some(header)) => {
                let hold = checkpoint::hold(channel, self.index, self.epoch);
                (format!("SET SESSION {};BEGIN;{hold}", as_source::identity(header)), 2)
            }
            _ => self.own_opening(unit),
        }
    }

    /// The opening of a transaction under a GTID of the target's own.
    fn own_opening(&self, unit: &Unit) -> (String, usize) {
        let (sequence, executed) = (unit.group.sequence, &unit.executed_after);
        let update =
            checkpoint::update(&self.options.channel, self.index, self.epoch, sequence, executed);
        let takes_images = self.options.executor == Executor::RowImage;
        let first = unit.transactions().first().filter(|_| takes_images);
        match first.and_then(|transaction| as_source::version(&transaction.relayed.header)) {
            Some(version) => (format!("SET SESSION {version};BEGIN;{update}"), 2),
            None => (format!("BEGIN;{update}"), 1),
        }
    }

    /// Finds out, after a lost connection, if the transaction was committed all the same.
    async fn is_committed(&mut self, unit: &Unit) -> Result<bool> {
        let mut pause = self.options.connect_retry;
        loop {
            match self.look_committed(unit).await {
                Err(error) if error.is_passing() => self.lost(&error, &mut pause).await,
                other => return other,
            }
        }
    }

    /// Reads the row with a lock, so that it waits for a COMMIT that the server still executes.
    async fn look_committed(&mut self, unit: &Unit) -> Result<bool> {
        let channel = self.options.channel.clone();
        let query = format!(
            "SELECT gtid_executed, epoch FROM csa.checkpoint WHERE channel={} AND worker={} FOR UPDATE",
            crate::target::sql::quote(&channel),
            self.index
        );
        // The unit was one transaction on the target, so its last GTID stands for all.
        let Some(last) = unit.transactions().last() else { return Ok(false) };
        let gtid = &last.relayed.header.gtid;
        let gtids = self.target.gtids;
        let own = self.epoch;
        let session = self.session().await?;
        let rows: Vec<(String, u64)> = session.rows(&query).await?;
        let Some((executed, epoch)) = rows.into_iter().next() else {
            return Err(fenced(&channel, "its row in csa.checkpoint is gone".to_owned()));
        };
        if epoch != own {
            return Err(taken_over(&channel, epoch));
        }
        if gtids == TargetGtids::Source {
            let executed = session.has_executed(&gtid.to_string()).await?;
            return self.found(unit, executed).await;
        }
        let executed: GtidSet = executed.parse().map_err(|error| Error::Checkpoint {
            channel,
            what: format!("gtid_executed is not a GTID set: {error}"),
        })?;
        let executed = executed.contains(gtid);
        self.found(unit, executed).await
    }

    /// Records what was found to be committed, if the session is still where the channel is held.
    async fn found(&mut self, unit: &Unit, committed: bool) -> Result<bool> {
        let shared = self.shared.clone();
        let Self { session: Some(session), generation, options, .. } = self else {
            return Err(Error::Relay("no session".to_owned()));
        };
        let committing = shared.generation.commit(session, &options.channel, generation).await?;
        if committed {
            shared.status.applied(unit.transactions());
        }
        drop(committing);
        Ok(committed)
    }

    async fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none() {
            let generation = &self.shared.generation;
            let channel = &self.options.channel;
            let (session, number) =
                worker_session(&self.target, generation, channel, self.index).await?;
            self.generation = number;
            info!(worker = self.index, connection = session.id(), "session on the target opened");
            self.session = Some(session);
        }
        self.session.as_mut().ok_or_else(|| Error::Relay("no session".to_owned()))
    }

    /// Rolls back and restores our settings; a session that can't do so is dropped.
    async fn rollback(&mut self) {
        if let Some(session) = self.session.as_mut()
            && (session.run("ROLLBACK").await.is_err() || session.leave_now().await.is_err())
        {
            self.session = None;
        }
    }

    pub(crate) async fn close(mut self) {
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}

/// Waits for the turn; returns the earlier group if one asks for this group's locks meanwhile.
async fn or_yield(turn: &CommitTurn, sequence: Sequence, entered: &Entered) -> Option<Sequence> {
    let wait = turn.wait(sequence);
    tokio::pin!(wait);
    loop {
        tokio::select! {
            // A group whose turn has come need not yield any more.
            biased;
            () = &mut wait => return None,
            earlier = entered.yielding.asked() => {
                // The earlier group may have committed since it asked.
                if earlier > turn.low_water() {
                    return Some(earlier);
                }
            }
        }
    }
}

/// Checks that the UPDATE that opens the transaction matched the checkpoint row.
fn owned(channel: &str, matched: Option<&u64>) -> Result<()> {
    match matched {
        Some(1) => Ok(()),
        _ => Err(fenced(channel, "another daemon took it over; nothing was committed".to_owned())),
    }
}

fn taken_over(channel: &str, epoch: u64) -> Error {
    fenced(channel, format!("another daemon took it over (epoch {epoch})"))
}

/// True if an error is about the contents of a transaction, so that the group must be taken apart.
fn is_of_one_transaction(error: &Error) -> bool {
    error.code().is_some() && error.class() != ErrorClass::Unavailable
}
