//! The thread that reads the relay store ahead of the applier.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use csa_applier::{ApplierOptions, ApplierStatus, TargetCatalogue};
use csa_relaystore::{RelayReader, RelayedTransaction, TransactionBody};
use csa_scheduler::{
    Admission, AdmittedTransaction, EventMemory, Footprint, TransactionKind, Until, UntilGate,
    bytes_at_a_time, decompressed_bytes,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ChannelError;
use super::delay::Delay;
use super::reception::ReceptionEnd;
use super::watch::Watch;

/// The longest wait between two checks whether the thread should end.
const TICK: Duration = Duration::from_millis(100);

/// The end of reading ahead, unless by an error.
#[derive(Debug)]
pub(super) enum IntakeEnd {
    /// The pipeline ends, or nobody takes more transactions.
    Stopped,
    /// Nothing past this end was handed over.
    Until(Until),
}

pub(super) struct RelayThread {
    pub(super) reader: RelayReader,
    pub(super) memory: EventMemory,
    /// Larger transactions are streamed; follows the memory's limit.
    pub(super) inline_limit: u64,
    pub(super) admission: Admission<TargetCatalogue>,
    pub(super) delay: Delay,
    pub(super) until: UntilGate,
    pub(super) status: Arc<ApplierStatus>,
    pub(super) sender: mpsc::Sender<AdmittedTransaction>,
    /// Set when reception has ended for good: once everything is read, the channel stops with it.
    pub(super) reception: Arc<OnceLock<ReceptionEnd>>,
    pub(super) watch: Watch,
    pub(super) end: CancellationToken,
}

impl RelayThread {
    /// Reads until the pipeline ends or an error occurs. What was handed over before an error is
    /// applied: the stream ends with the thread.
    pub(super) fn run(mut self) -> Result<IntakeEnd, ChannelError> {
        while !self.end.is_cancelled() && !self.sender.is_closed() {
            // Checked before reading, so that nothing received before the end is missed.
            let ended = self.reception.get().cloned();
            self.look_at_limit();
            let Some(relayed) = self.reader.next(TICK)? else {
                let (ordinal, bytes) = self.reader.read_so_far();
                self.watch.read_to_end(ordinal, bytes);
                if let Some(end) = ended {
                    return Err(end.into());
                }
                continue;
            };
            self.watch.first_read(&relayed);
            if !self.delay.wait(&relayed.header, self.sender.closed()) {
                break;
            }
            // Groups end there anyway; reading further would only hold memory.
            if let Some(until) = self.until.ends_before(&relayed.header) {
                return Ok(IntakeEnd::Until(until));
            }
            let Some(admitted) = self.admit(relayed)? else { break };
            let kind = admitted.kind;
            // Counted before it is sent: the applier may execute it at once.
            let statements = self.status.statements_total();
            if self.sender.blocking_send(admitted).is_err() {
                break;
            }
            let is_barrier = matches!(kind, TransactionKind::Statement | TransactionKind::Xa);
            if is_barrier && !self.wait_for_statement(statements) {
                break;
            }
            if kind == TransactionKind::Statement {
                self.admission.definitions_changed();
            }
        }
        Ok(IntakeEnd::Stopped)
    }

    /// Larger transactions are streamed; a quarter leaves room for others at the same time.
    fn look_at_limit(&mut self) {
        let limit = self.memory.limit() / 4;
        if limit != self.inline_limit {
            self.inline_limit = limit;
            self.reader.set_inline_limit(limit);
            self.admission.limit_rows(limit);
        }
    }

    /// Transactions after a statement are admitted with the definitions it leaves. `false` when the
    /// channel ends first.
    fn wait_for_statement(&mut self, before: u64) -> bool {
        while !self.status.wait_for_statement(before, TICK) {
            if self.end.is_cancelled() || self.sender.is_closed() {
                return false;
            }
        }
        true
    }

    /// Waits for memory; `None` when the channel ends first.
    fn admit(
        &mut self,
        relayed: RelayedTransaction,
    ) -> csa_applier::Result<Option<AdmittedTransaction>> {
        const STATEMENT: u64 = ApplierOptions::STATEMENT_BYTES as u64;
        let (whole, footprint) = match relayed.body {
            TransactionBody::Whole(_) => match decompressed_bytes(&relayed)? {
                (events, 0) => (true, Footprint::whole(0, events, STATEMENT)),
                (kept, events) if kept.saturating_add(events) <= self.inline_limit => {
                    (true, Footprint::whole(kept, events, STATEMENT))
                }
                // Too large once decompressed: it stays compressed and is opened piece by piece.
                (kept, _) => {
                    let largest = bytes_at_a_time(&relayed)?.saturating_sub(kept);
                    (false, Footprint::streamed(kept, STATEMENT.max(largest)))
                }
            },
            // A piece is one event, of up to a gigabyte.
            TransactionBody::Streamed(_) => {
                (true, Footprint::streamed(0, STATEMENT.max(bytes_at_a_time(&relayed)?)))
            }
        };
        let mut ticket = self.memory.request(footprint.bytes());
        loop {
            if let Some(permit) = ticket.wait(TICK) {
                return Ok(Some(self.admission.admit(relayed, Some(permit), whole)?));
            }
            if self.end.is_cancelled() || self.sender.is_closed() {
                return Ok(None);
            }
        }
    }
}
