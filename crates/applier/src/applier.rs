//! Takes admitted transactions, has the scheduler group them, and commits group after group.

use std::sync::Arc;
use std::time::Duration;

use csa_scheduler::{AdmittedTransaction, Group, GroupKind, GroupLimits, LowWaterMark, Scheduler};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::control::ControlSession;
use crate::options::{ApplierOptions, TargetOptions};
use crate::statement::StatementExecutor;
use crate::status::ApplierStatus;
use crate::worker::Worker;
use crate::{ErrorClass, Result};

/// Transactions in source order. An error comes after the last transaction that may be applied.
pub type AdmittedStream = mpsc::Receiver<Result<AdmittedTransaction>>;

/// Told when everything up to a mark is committed on the target.
pub trait CommitObserver: Send {
    fn low_water_mark(&mut self, mark: LowWaterMark);
}

/// The idle control session is asked for a sign of life this often.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// One channel's applier.
pub struct Applier<O> {
    scheduler: Scheduler,
    worker: Worker,
    statements: StatementExecutor,
    status: Arc<ApplierStatus>,
    observer: O,
    stream: AdmittedStream,
    /// What the stream said last: an error, or its end.
    outcome: Option<Result<()>>,
}

impl<O> std::fmt::Debug for Applier<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("scheduler", &self.scheduler).finish_non_exhaustive()
    }
}

impl<O: CommitObserver> Applier<O> {
    /// `control` holds the channel; the stream begins behind its checkpoint.
    #[must_use]
    pub fn new(
        control: ControlSession,
        target: TargetOptions,
        options: ApplierOptions,
        limits: GroupLimits,
        status: Arc<ApplierStatus>,
        stream: AdmittedStream,
        observer: O,
    ) -> Self {
        let checkpoint = control.checkpoint().clone();
        let scheduler = Scheduler::new(limits, checkpoint.sequence, checkpoint.executed.clone());
        let worker =
            Worker::new(0, checkpoint.epoch, target.clone(), options.clone(), Arc::clone(&status));
        let statements = StatementExecutor::new(control, target, options, Arc::clone(&status));
        Self { scheduler, worker, statements, status, observer, stream, outcome: None }
    }

    /// Applies until the stream ends, `stop` (finish the running group, then return) or `kill`
    /// (return at once; what was not committed is rolled back by the target).
    ///
    /// # Errors
    /// What stops the channel; everything before it is committed.
    pub async fn run(mut self, stop: CancellationToken, kill: CancellationToken) -> Result<()> {
        let status = Arc::clone(&self.status);
        let outcome = tokio::select! {
            outcome = self.apply_all(&stop) => outcome,
            () = kill.cancelled() => return Ok(()),
            () = gone_while_stopping(&stop, &status) => return Ok(()),
        };
        self.worker.close().await;
        self.statements.close().await;
        outcome
    }

    async fn apply_all(&mut self, stop: &CancellationToken) -> Result<()> {
        loop {
            self.admit_waiting();
            if stop.is_cancelled() {
                return Ok(());
            }
            if let Some(group) = self.scheduler.next_group() {
                self.apply(group).await?;
            } else if let Some(outcome) = self.outcome.take() {
                return outcome;
            } else {
                self.wait(stop).await?;
            }
        }
    }

    /// Admits what is there, without waiting: whatever came in while a group ran joins the next.
    fn admit_waiting(&mut self) {
        while self.outcome.is_none() && !self.scheduler.is_full() {
            match self.stream.try_recv() {
                Ok(next) => self.take(next),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => self.outcome = Some(Ok(())),
            }
        }
        self.status.pending(self.scheduler.oldest_commit_timestamp());
    }

    fn take(&mut self, next: Result<AdmittedTransaction>) {
        match next {
            Ok(transaction) => self.scheduler.admit(transaction),
            Err(error) => self.outcome = Some(Err(error)),
        }
    }

    async fn wait(&mut self, stop: &CancellationToken) -> Result<()> {
        tokio::select! {
            next = self.stream.recv() => match next {
                Some(next) => self.take(next),
                None => self.outcome = Some(Ok(())),
            },
            () = stop.cancelled() => {}
            () = tokio::time::sleep(PING_INTERVAL) => self.statements.keep_alive().await?,
        }
        Ok(())
    }

    async fn apply(&mut self, group: Group) -> Result<()> {
        self.status.started(&group);
        match group.kind {
            GroupKind::Rows => self.worker.apply(&group).await?,
            GroupKind::Statement => self.statements.apply(&group).await?,
        }
        let mark = self.scheduler.committed(group.sequence);
        self.status.committed(&group, mark);
        let (first, last) = group.span();
        debug!(
            sequence = group.sequence.get(),
            transactions = group.transactions.len(),
            %first, %last,
            "group committed"
        );
        if let Some(mark) = mark {
            self.observer.low_water_mark(mark);
        }
        Ok(())
    }
}

/// A stop must not wait for a target that is away.
async fn gone_while_stopping(stop: &CancellationToken, status: &ApplierStatus) {
    stop.cancelled().await;
    while !status.is_target_lost() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    warn!("stopped while the target is away; its checkpoint says how far it is");
}

/// Errors that a wait would cure don't stop a channel.
pub(crate) fn is_passing(error: &crate::Error) -> bool {
    error.class() != ErrorClass::Stop
}
