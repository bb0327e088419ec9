//! The transactions that come from the intake, until the scheduler has them.

use std::collections::BTreeSet;
use std::sync::Arc;

use csa_provider::binlog::{Gtid, Uuid};
use csa_relaystore::state::Followed;
use csa_scheduler::admission::{AdmittedTransaction, Verdict};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::ownership::keeper::Keeper;

/// Transactions in source order. The sender knows why the stream ends.
pub type AdmittedStream = mpsc::Receiver<AdmittedTransaction>;

/// Transactions taken from the stream at once.
const ADMIT_BATCH: usize = 256;

/// The stream of transactions, and what was noted of those that came.
pub(crate) struct Arrivals {
    stream: AdmittedStream,
    /// The reception of the last transaction, if that was not whole when it was admitted.
    open: Option<(Gtid, Arc<Followed>)>,
    /// The stream has ended.
    pub(crate) ended: bool,
    /// The transaction that an earlier run began where it can't be rolled back.
    pub(crate) begun: Option<Gtid>,
    /// Servers of admitted transactions that the channel has not followed before.
    pub(crate) new_servers: BTreeSet<Uuid>,
}

impl Arrivals {
    pub(crate) fn of(stream: AdmittedStream) -> Self {
        Self { stream, open: None, ended: false, begun: None, new_servers: BTreeSet::new() }
    }

    /// Returns the next transaction if it is there, and notes the end of the stream.
    pub(crate) fn next_now(&mut self) -> Option<AdmittedTransaction> {
        if self.ended {
            return None;
        }
        match self.stream.try_recv() {
            Ok(next) => Some(next),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => {
                self.ended = true;
                None
            }
        }
    }

    /// Waits for transactions and returns them, and notes the end of the stream. It takes none if it is cancelled.
    pub(crate) async fn receive(&mut self) -> Vec<AdmittedTransaction> {
        let mut batch = Vec::new();
        self.ended = self.stream.recv_many(&mut batch, ADMIT_BATCH).await == 0;
        batch
    }

    /// Notes what has to be known of a transaction before it joins a group, and returns it for the scheduler.
    pub(crate) fn note(
        &mut self,
        transaction: AdmittedTransaction,
        now: Instant,
        keeper: &Keeper,
    ) -> AdmittedTransaction {
        let transaction = self.as_begun(transaction);
        let server = transaction.relayed.header.gtid.uuid;
        if keeper.is_new(&server) {
            self.new_servers.insert(server);
        }
        if let Some(followed) = transaction.relayed.followed() {
            let gtid = transaction.relayed.header.gtid.clone();
            self.open = Some((gtid, Arc::clone(followed)));
        }
        AdmittedTransaction { arrived: Some(now), ..transaction }
    }

    /// Sends rows that an earlier run began while their tables were not transactional to the executor that
    /// knows their entry in `csa.statement`, whatever the tables are now.
    fn as_begun(&self, transaction: AdmittedTransaction) -> AdmittedTransaction {
        let is_begun = self.begun.as_ref() == Some(&transaction.relayed.header.gtid);
        if !is_begun || transaction.verdict != Verdict::Rows {
            return transaction;
        }
        // That executor can't roll back what it has written.
        if let Some(followed) = transaction.relayed.followed() {
            followed.refuse();
            return transaction;
        }
        AdmittedTransaction { verdict: Verdict::NotTransactional, changes: None, ..transaction }
    }

    /// A group that waits for its source would keep a stop or a pause waiting, and hold its locks.
    pub(crate) fn give_up_open(&self) {
        if let Some((_, open)) = &self.open {
            open.give_up();
        }
    }

    /// Notes that the transaction that was not whole is committed.
    pub(crate) fn committed_open(&mut self) {
        self.open = None;
    }

    /// Fails if the last transaction was cut off. It is in no group, and must not wait there: another may
    /// come in its place.
    pub(crate) fn check_open(&self) -> Result<()> {
        match &self.open {
            Some((gtid, open)) if open.is_lost() => {
                let why = csa_relaystore::disk::Error::CutOff.to_string();
                Err(Error::NotWhole { gtid: gtid.to_string(), why })
            }
            _ => Ok(()),
        }
    }
}
