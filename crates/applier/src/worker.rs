//! Applies one group in one target transaction, together with its checkpoint row.

use std::sync::Arc;
use std::time::Duration;

use csa_provider::{EventType, GtidSet, TableMap};
use csa_scheduler::{AdmittedTransaction, Group, Sequence, flattened_events};
use rand::Rng as _;
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::checkpoint;
use crate::control::fenced;
use crate::options::{ApplierOptions, TargetOptions};
use crate::row_image::{RowImageCutter, Step};
use crate::session::{Session, push_binlog};
use crate::status::ApplierStatus;
use crate::{Error, ErrorClass, Result};

/// A worker owns one session and one checkpoint row.
#[derive(Debug)]
pub(crate) struct Worker {
    index: u16,
    epoch: u64,
    target: TargetOptions,
    options: ApplierOptions,
    status: Arc<ApplierStatus>,
    session: Option<Session>,
}

/// What is applied in one target transaction: a group, or one transaction of a group that failed.
#[derive(Debug, Clone, Copy)]
struct Unit<'a> {
    sequence: Sequence,
    transactions: &'a [AdmittedTransaction],
    executed_after: &'a GtidSet,
}

impl Worker {
    pub(crate) fn new(
        index: u16,
        epoch: u64,
        target: TargetOptions,
        options: ApplierOptions,
        status: Arc<ApplierStatus>,
    ) -> Self {
        Self { index, epoch, target, options, status, session: None }
    }

    /// Applies and commits a group of row transactions. When this returns `Ok` it is committed;
    /// cancelled or failed, it is not, or the checkpoint row says so.
    ///
    /// # Errors
    /// What stops the channel. The transactions before the failing one are committed.
    pub(crate) async fn apply(&mut self, group: &Group) -> Result<()> {
        let unit = Unit {
            sequence: group.sequence,
            transactions: &group.transactions,
            executed_after: &group.executed_after,
        };
        match self.apply_unit(unit).await {
            Err(error) if is_of_one_transaction(&error) => self.apply_singly(unit, error).await,
            other => other,
        }
    }

    /// Finds the failing transaction of a group: each one alone, in order.
    async fn apply_singly(&mut self, group: Unit<'_>, error: Error) -> Result<()> {
        self.rollback().await;
        if let [only] = group.transactions {
            return Err(named(only, &error));
        }
        let mut executed = group.executed_after.clone();
        for transaction in group.transactions {
            let mut one = GtidSet::new();
            one.add(&transaction.relayed.header.gtid);
            executed.subtract(&one);
        }
        for transaction in group.transactions {
            executed.add(&transaction.relayed.header.gtid);
            let unit = Unit {
                sequence: group.sequence,
                transactions: std::slice::from_ref(transaction),
                executed_after: &executed,
            };
            if let Err(error) = self.apply_unit(unit).await {
                self.rollback().await;
                if is_of_one_transaction(&error) {
                    return Err(named(transaction, &error));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn apply_unit(&mut self, unit: Unit<'_>) -> Result<()> {
        let mut retries = 0;
        let mut pause = self.options.connect_retry;
        loop {
            let error = match self.attempt(unit).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Retry if retries < self.options.transaction_retries => {
                    retries += 1;
                    self.status.retried();
                    self.rollback().await;
                    let first = &unit.transactions[0].relayed.header.gtid;
                    info!(gtid = %first, retries, %error, "rolled back, trying again");
                    tokio::time::sleep(retry_pause(retries)).await;
                }
                ErrorClass::Unavailable => {
                    self.session = None;
                    self.status.target_lost(&error);
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
    async fn attempt(&mut self, unit: Unit<'_>) -> Result<()> {
        let format = Arc::clone(&unit.transactions[0].relayed.format);
        let opening = format!(
            "BEGIN;{}",
            checkpoint::update(
                &self.options.channel,
                self.index,
                self.epoch,
                unit.sequence,
                unit.executed_after
            )
        );
        let mut packet = Some(opening.into_bytes());
        let statement_bytes = self.options.statement_bytes;
        let channel = self.options.channel.clone();
        let session = self.session().await?;
        let statement_bytes = statement_bytes.min(session.row_image_bytes());
        session.use_format(&format).await?;
        let mut steps = Steps::of(unit.transactions, statement_bytes);
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
        session.run("COMMIT").await?;
        self.status.target_reached();
        Ok(())
    }

    /// After a lost connection: whether the transaction was committed all the same.
    ///
    /// The row is read with a lock, so a COMMIT that is still under way on the server is waited for.
    async fn is_committed(&mut self, unit: Unit<'_>) -> Result<bool> {
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
                    let last = unit.transactions.last().map(|t| &t.relayed.header.gtid);
                    return Ok(last.is_some_and(|gtid| executed.contains(gtid)));
                }
                Err(error) if error.class() == ErrorClass::Stop => return Err(error),
                Err(error) => {
                    self.session = None;
                    self.status.target_lost(&error);
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
    for event in flattened_events(&transaction.relayed).map_while(|event| event.ok()) {
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

/// The steps of a unit, cut as they are asked for.
///
/// Reading a transaction back from the relay store blocks on the disk, so it is done on a thread of
/// its own, at most one step ahead: memory stays at a few statements however large it is.
struct Steps {
    steps: mpsc::Receiver<Result<Step>>,
}

impl Steps {
    fn of(transactions: &[AdmittedTransaction], limit: usize) -> Self {
        let (sender, steps) = mpsc::channel(1);
        let transactions: Vec<_> = transactions.iter().map(|t| t.relayed.clone()).collect();
        tokio::task::spawn_blocking(move || {
            let mut cutter = RowImageCutter::new(limit);
            let mut ready = Vec::new();
            for relayed in &transactions {
                for event in flattened_events(relayed) {
                    let pushed = event
                        .map_err(Error::from)
                        .and_then(|event| cutter.push(&relayed.header.gtid, &event, &mut ready));
                    if let Err(error) = pushed {
                        let _ = sender.blocking_send(Err(error));
                        return;
                    }
                    for step in ready.drain(..) {
                        if sender.blocking_send(Ok(step)).is_err() {
                            return;
                        }
                    }
                }
            }
            cutter.finish(&mut ready);
            for step in ready {
                if sender.blocking_send(Ok(step)).is_err() {
                    return;
                }
            }
        });
        Self { steps }
    }

    async fn next(&mut self) -> Option<Result<Step>> {
        self.steps.recv().await
    }
}
