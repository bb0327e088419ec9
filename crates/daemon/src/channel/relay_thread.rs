//! The thread that reads the relay store ahead of the applier.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use csa_applier::{ApplierStatus, TargetCatalogue};
use csa_relaystore::{RelayPosition, RelayReader, RelayedTransaction, TransactionBody};
use csa_scheduler::{
    Admission, AdmittedTransaction, EventMemory, TransactionKind, Until, UntilGate,
    decompressed_bytes,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::delay::Delay;
use super::watch::Watch;

/// How long a wait goes on before the thread looks whether it should end.
const TICK: Duration = Duration::from_millis(100);

/// Damage on disk, met while reading.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    pub(super) text: String,
    pub(super) transaction: RelayPosition,
}

/// What the thread and the pipeline tell each other besides transactions.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) damage: OnceLock<Damage>,
    /// Reception has ended for good, for this reason: once all is read, the channel stops with it.
    pub(super) reception: OnceLock<Ended>,
    /// The end met by reading ahead: nothing behind it was read.
    pub(super) until: OnceLock<Until>,
}

/// Why and in which transaction reception ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) why: String,
    pub(super) gtid: Option<String>,
}

pub(super) struct RelayThread {
    pub(super) reader: RelayReader,
    pub(super) memory: EventMemory,
    /// A larger transaction is not looked at as a whole; follows the memory's limit.
    pub(super) inline_limit: u64,
    pub(super) admission: Admission<TargetCatalogue>,
    pub(super) delay: Delay,
    pub(super) until: UntilGate,
    pub(super) status: Arc<ApplierStatus>,
    pub(super) sender: mpsc::Sender<csa_applier::Result<AdmittedTransaction>>,
    pub(super) notes: Arc<Notes>,
    pub(super) watch: Watch,
    pub(super) end: CancellationToken,
}

impl RelayThread {
    /// Reads until the channel ends or something is wrong; the error comes last.
    pub(super) fn run(mut self) {
        if let Err(error) = self.read() {
            // The applier may have stopped first.
            let _ = self.sender.blocking_send(Err(error));
        }
    }

    fn read(&mut self) -> csa_applier::Result<()> {
        while !self.end.is_cancelled() && !self.sender.is_closed() {
            // Looked at before reading, so that nothing received before the end is left behind.
            let ended = self.notes.reception.get().cloned();
            self.look_at_limit();
            let next = self.reader.next(TICK).map_err(|error| self.note(&error))?;
            let Some(relayed) = next else {
                let (ordinal, bytes) = self.reader.read_so_far();
                self.watch.read_to_end(ordinal, bytes);
                if let Some(Ended { why: what, gtid }) = ended {
                    return Err(csa_applier::Error::Reception { what, gtid });
                }
                continue;
            };
            self.watch.first_read(&relayed);
            if !self.delay.wait(&relayed.header, self.sender.closed()) {
                return Ok(());
            }
            // Groups end there by themselves; reading on would only hold memory.
            if let Some(until) = self.until.ends_before(&relayed.header) {
                // Set once: nothing is read behind it.
                let _ = self.notes.until.set(until);
                return Ok(());
            }
            let Some(admitted) = self.admit(relayed)? else { return Ok(()) };
            let kind = admitted.kind;
            let statements = self.status.statements_total();
            if self.sender.blocking_send(Ok(admitted)).is_err() {
                return Ok(());
            }
            let is_barrier = matches!(kind, TransactionKind::Statement | TransactionKind::Xa);
            if is_barrier && !self.wait_for_statement(statements) {
                return Ok(());
            }
            if kind == TransactionKind::Statement {
                self.admission.definitions_changed();
            }
        }
        Ok(())
    }

    /// A larger transaction is streamed: a quarter leaves room for others beside it.
    fn look_at_limit(&mut self) {
        let limit = self.memory.limit() / 4;
        if limit != self.inline_limit {
            self.inline_limit = limit;
            self.reader.set_inline_limit(limit);
        }
    }

    /// What comes behind a statement is looked at with the definitions it leaves. `false` when the
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
        let decompressed = match relayed.body {
            TransactionBody::Whole(_) => decompressed_bytes(&relayed)?,
            TransactionBody::Streamed(_) => 0,
        };
        // Too large once decompressed: it stays as it is and is opened piece by piece.
        let whole = decompressed <= self.inline_limit;
        let mut ticket =
            self.memory.request(if whole { decompressed } else { relayed.event_bytes });
        loop {
            if let Some(permit) = ticket.wait(TICK) {
                return Ok(Some(self.admission.admit(relayed, Some(permit), whole)?));
            }
            if self.end.is_cancelled() || self.sender.is_closed() {
                return Ok(None);
            }
        }
    }

    fn note(&self, error: &csa_relaystore::Error) -> csa_applier::Error {
        let text = error.to_string();
        if let csa_relaystore::Error::Damaged { transaction, .. } = error {
            let damage = Damage { text: text.clone(), transaction: *transaction };
            // Only the first is kept; the pipeline ends with it.
            let _ = self.notes.damage.set(damage);
        }
        csa_applier::Error::Relay(text)
    }
}
