//! Applies one group in one target transaction, together with its checkpoint row.

use std::sync::Arc;
use std::time::Duration;

use csa_provider::{EventType, GtidSet, TableMap};
use csa_scheduler::{AdmittedTransaction, Group, Sequence};
use rand::Rng as _;
use tracing::{info, warn};

use crate::checkpoint;
use crate::commit_turn::CommitTurn;
use crate::control::fenced;
use crate::options::{ApplierOptions, TargetOptions};
use crate::row_image::Step;
use crate::session::{Session, push_binlog};
use crate::sessions::{Entered, SessionState, Sessions};
use crate::status::ApplierStatus;
use crate::steps::Steps;
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
}

/// What the workers of a channel have in common.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) status: Arc<ApplierStatus>,
    pub(crate) turn: CommitTurn,
    pub(crate) sessions: Sessions,
}

/// What is applied in one target transaction: a group, or one transaction of a group that failed.
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
        Self { index, epoch, target, options, shared, session: None }
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Applies and commits a group of row transactions in its turn. When this returns `Ok` it is
    /// committed; cancelled or failed, it is not, or the checkpoint row says so.
    ///
    /// # Errors
    /// What stops the channel, once everything before the failing transaction is committed.
    pub(crate) async fn apply(&mut self, group: &Arc<Group>) -> Result<()> {
        let entered = self.shared.sessions.enter(self.index, group.sequence);
        let unit = Unit {
            group: Arc::clone(group),
            range: (0, group.transactions.len()),
            executed_after: self.executed_after(group),
        };
        let outcome = match self.apply_unit(&unit, &entered).await {
            Err(error) => {
                // What fails out of turn may have met a lock or a row of an earlier group.
                self.rollback().await;
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
        if outcome.is_ok() {
            self.shared.turn.committed(group.sequence);
        }
        outcome
    }

    /// The set that the checkpoint row states with the group. Out of order it can only state what is
    /// known to be committed, and the rows of all workers together are the truth.
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

    /// Finds the failing transaction of a group: each one alone, in order.
    async fn apply_singly(
        &mut self,
        group: &Arc<Group>,
        entered: &Entered,
        error: Error,
    ) -> Result<()> {
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
                    return Err(named(transaction, &error));
                }
                return Err(error);
            }
        }
        Ok(())
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
                    tokio::time::sleep(retry_pause(retries)).await;
                }
                ErrorClass::Unavailable => {
                    self.session = None;
                    self.shared.status.target_lost(&error);
                    warn!(%error, "target unavailable, waiting for it");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(self.options.connect_retry_max);
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
        let statement_bytes = self.options.statement_bytes;
        let format = Arc::clone(unit.group.format());
        let session = self.session().await?;
        let limit = statement_bytes.min(session.row_image_bytes());
        session.use_format(&format).await?;
        entered.connected(session.id());
        let turn = self.shared.turn.clone();
        entered.now(SessionState::WaitingForDependency);
        turn.wait(dependency).await;
        entered.now(SessionState::Preparing);
        let mut steps = Steps::of(&unit.group, unit.range, limit, turn.low_water()).await;
        entered.now(SessionState::Applying);
        self.send(unit, &mut steps).await?;
        if let Some(dependency) = steps.late_dependency {
            entered.now(SessionState::WaitingForDependency);
            if let Some(earlier) = or_yield(&turn, dependency, entered).await {
                return Ok(Attempt::Yielded(earlier));
            }
            entered.now(SessionState::Applying);
            self.send_late(&mut steps).await?;
        }
        // Nothing decoded is held while others have their turn.
        drop(steps);
        if self.options.preserve_commit_order {
            entered.now(SessionState::WaitingForTurn);
            if let Some(earlier) = or_yield(&turn, sequence.previous(), entered).await {
                return Ok(Attempt::Yielded(earlier));
            }
        }
        entered.now(SessionState::Committing);
        self.session().await?.run("COMMIT").await?;
        self.shared.status.target_reached();
        Ok(Attempt::Committed)
    }

    /// Rows that had to wait for other groups.
    async fn send_late(&mut self, steps: &mut Steps) -> Result<()> {
        let session = self.session().await?;
        while let Some(images) = steps.next_late() {
            let mut statement = Vec::new();
            push_binlog(&mut statement, &images);
            session.run(&statement).await?;
        }
        Ok(())
    }

    /// BEGIN, the checkpoint row, and every change, in as few packets as they take.
    async fn send(&mut self, unit: &Unit, steps: &mut Steps) -> Result<()> {
        let channel = self.options.channel.clone();
        let opening = format!(
            "BEGIN;{}",
            checkpoint::update(
                &channel,
                self.index,
                self.epoch,
                unit.group.sequence,
                &unit.executed_after
            )
        );
        let session = self.session().await?;
        let mut packet = Some(opening.into_bytes());
        while let Some(step) = steps.next().await {
            let opened = packet.is_some();
            let mut statement = packet.take().unwrap_or_default();
            if opened {
                statement.push(b';');
            }
            match step? {
                Step::RowImages(images) => push_binlog(&mut statement, &images),
                Step::Statement(text) => statement.extend_from_slice(&text),
            }
            let matched = session.run(&statement).await?;
            if opened {
                owned(&channel, &matched)?;
            }
        }
        if let Some(opening) = packet {
            owned(&channel, &session.run(&opening).await?)?;
        }
        Ok(())
    }

    /// After a lost connection: whether the transaction was committed all the same.
    ///
    /// The row is read with a lock, so a COMMIT that is still under way on the server is waited for.
    async fn is_committed(&mut self, unit: &Unit) -> Result<bool> {
        let query = format!(
            "SELECT gtid_executed, epoch FROM csa.checkpoint WHERE channel={} AND worker={} FOR UPDATE",
            crate::sql::quote(&self.options.channel),
            self.index
        );
        let mut pause = self.options.connect_retry;
        loop {
            let rows = match self.session().await {
                Ok(session) => session.rows::<(String, u64)>(&query).await,
                Err(error) => Err(error),
            };
            match rows {
                Ok(rows) => {
                    let Some((executed, epoch)) = rows.into_iter().next() else {
                        return Err(fenced(
                            &self.options.channel,
                            "its row in csa.checkpoint is gone".to_owned(),
                        ));
                    };
                    if epoch != self.epoch {
                        return Err(taken_over(&self.options.channel, epoch));
                    }
                    let executed: GtidSet =
                        executed.parse().map_err(|error| Error::Checkpoint {
                            channel: self.options.channel.clone(),
                            what: format!("gtid_executed is not a GTID set: {error}"),
                        })?;
                    let last = unit.transactions().last().map(|t| &t.relayed.header.gtid);
                    return Ok(last.is_some_and(|gtid| executed.contains(gtid)));
                }
                Err(error) if error.class() == ErrorClass::Stop => return Err(error),
                Err(error) => {
                    self.session = None;
                    self.shared.status.target_lost(&error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(self.options.connect_retry_max);
                }
            }
        }
    }

    async fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none() {
            let session = Session::connect(&self.target).await?;
            info!(worker = self.index, connection = session.id(), "session on the target opened");
            self.session = Some(session);
        }
        self.session.as_mut().ok_or_else(|| Error::Relay("no session".to_owned()))
    }

    /// Leaves nothing behind on the session; one that can't roll back is dropped.
    async fn rollback(&mut self) {
        if let Some(session) = self.session.as_mut()
            && session.run("ROLLBACK").await.is_err()
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

/// Waits, or is asked to let an earlier group pass.
async fn or_yield(turn: &CommitTurn, sequence: Sequence, entered: &Entered) -> Option<Sequence> {
    let wait = turn.wait(sequence);
    tokio::pin!(wait);
    loop {
        tokio::select! {
            biased;
            () = &mut wait => return None,
            earlier = entered.yielding.asked() => {
                // It may have got past since it was asked.
                if earlier > turn.low_water() {
                    return Some(earlier);
                }
            }
        }
    }
}

/// The checkpoint row was matched by the UPDATE that opens the transaction.
fn owned(channel: &str, matched: &[u64]) -> Result<()> {
    match matched.get(1) {
        Some(1) => Ok(()),
        _ => Err(fenced(channel, "another daemon took it over; nothing was committed".to_owned())),
    }
}

fn taken_over(channel: &str, epoch: u64) -> Error {
    fenced(channel, format!("another daemon took it over (epoch {epoch})"))
}

/// Whether an error is about the contents of a transaction, so that the group must be taken apart.
fn is_of_one_transaction(error: &Error) -> bool {
    error.code().is_some() && error.class() != ErrorClass::Unavailable
}

fn named(transaction: &AdmittedTransaction, error: &Error) -> Error {
    Error::Transaction {
        gtid: transaction.relayed.header.gtid.to_string(),
        of: tables_of(transaction),
        code: error.code().unwrap_or_default(),
        message: server_message(error),
    }
}

/// The tables a transaction writes, as far as a line has room for them.
fn tables_of(transaction: &AdmittedTransaction) -> String {
    const NAMED_MAX: usize = 5;
    let mut tables: Vec<String> = Vec::new();
    for event in transaction.events().map_while(|event| event.ok()) {
        if event.event_type() != EventType::TABLE_MAP {
            continue;
        }
        let Ok(map) = TableMap::parse(event.body()) else { continue };
        let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let table = format!("{}.{}", name(map.schema), name(map.table));
        if !tables.contains(&table) {
            tables.push(table);
        }
        if tables.len() > NAMED_MAX {
            tables.truncate(NAMED_MAX);
            tables.push("…".to_owned());
            break;
        }
    }
    format!("row changes of {}", tables.join(", "))
}

/// The server's text without the driver's words around it.
pub(crate) fn server_message(error: &Error) -> String {
    match error {
        Error::Target { source: mysql_async::Error::Server(server), .. }
        | Error::Server { source: mysql_async::Error::Server(server), .. } => {
            server.message.clone()
        }
        other => other.to_string(),
    }
}

/// Grows to a second, with jitter so that two waiters don't meet again.
pub(crate) fn retry_pause(retries: u32) -> Duration {
    let ceiling = 10_u64.saturating_mul(1 << retries.min(7)).min(1000);
    Duration::from_millis(rand::rng().random_range(ceiling / 2..=ceiling))
}
