//! Admits transactions: finds the verdict on each, and the rows and keys it touches, in one pass over its
//! events.

mod read;
mod temporary;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;

use csa_provider::binlog::{RawEvent, SessionContext};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_relaystore::read::{RelayedTransaction, TransactionBody};
use tokio::time::Instant;

use crate::changes::{ChangesReader, RowChanges};
use crate::error::{Error, Result};
use crate::events::{flattened_events, is_compressed};
use crate::filter::{Filters, KeptEvents};
use crate::key_source::KeySource;
use crate::keys::TableLayout;
use crate::memory::EventPermit;
use crate::returned::Origins;
use crate::row_sessions::RowSessions;

use read::{Failure, Reading};
use temporary::TemporaryTables;
pub use verdict::{Omission, Verdict};

/// A transaction with the verdict on it, what it touches, and the memory it holds.
#[derive(Debug)]
pub struct AdmittedTransaction {
    pub relayed: RelayedTransaction,
    pub verdict: Verdict,
    /// `None`: not looked at (streamed, or a statement), so it conflicts with everything.
    pub changes: Option<RowChanges>,
    /// The session that wrote the rows, if the rows on the target depend on it or may depend on it.
    pub session: Option<Arc<SessionContext>>,
    /// Rows of grant tables, which are not applied, are left out of it; the verdict concerns the others.
    pub without_accounts: bool,
    /// The filter rules in force when it was admitted.
    pub filters: Arc<Filters>,
    /// Returned when the transaction is dropped after its commit.
    pub permit: Option<EventPermit>,
    /// Bytes of its events, decompressed as far as they were read.
    pub bytes: u64,
    /// The moment at which the applier took it.
    pub arrived: Option<Instant>,
}

impl AdmittedTransaction {
    /// Returns true if its keys identify everything it changes.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.opaque)
    }

    /// Returns true if it holds account management, which is not applied.
    #[must_use]
    pub fn leaves_out_accounts(&self) -> bool {
        self.without_accounts || self.verdict == Verdict::LeftOut(Omission::Accounts)
    }

    /// Returns true if the target's own server made it, so that it is not applied again.
    #[must_use]
    pub fn is_returned(&self) -> bool {
        matches!(self.verdict, Verdict::LeftOut(Omission::Returned) | Verdict::ReturnedStatement)
    }

    /// Its events as the target receives them, compressed payloads unpacked, one at a time. Of one that is
    /// still being received they end for now where reception is, and continue there.
    ///
    /// This decompresses again what admission has decompressed. A transaction with known keys is not concerned:
    /// it is merged from its [`RowChanges`], which share the memory of the events that admission read. The
    /// others are sent as they were logged. Most of them are too large to be held, and are read where they are
    /// executed, one event in memory at a time; the rest (tables without keys) are few.
    pub fn events(&self) -> impl Iterator<Item = Result<RawEvent>> + use<> {
        let gtid = self.relayed.header.gtid.clone();
        let events = flattened_events(&self.relayed);
        KeptEvents::new(gtid, Arc::clone(&self.filters), events)
            .continuing(self.relayed.followed().is_some())
    }

    /// The number of rows it changes, as far as they were counted.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.changes.as_ref().map_or(0, |changes| changes.rows.len())
    }
}

/// Admits transactions in source order.
#[derive(Debug)]
pub struct Admission<K> {
    source: K,
    filters: Arc<Filters>,
    /// By the body of the table map after its table id: the same bytes mean the same layout, until
    /// definitions change.
    layouts: foldhash::HashMap<Box<[u8]>, Layout>,
    reader: ChangesReader,
    /// Bytes that a transaction's parsed rows may take.
    rows_limit: u64,
    sessions: RowSessions,
    as_logged: bool,
    origins: Origins,
    temporary: TemporaryTables,
    /// The next transaction of rows conflicts with everything.
    is_apart: bool,
}

/// The result of the pass over a transaction's events.
struct Examined {
    verdict: Verdict,
    changes: Option<RowChanges>,
    session: Option<Arc<SessionContext>>,
    without_accounts: bool,
    bytes: u64,
}

/// The decision about a table map.
#[derive(Debug, Clone)]
enum Layout {
    Kept(Arc<TableLayout>),
    LeftOut,
    /// Left out because it is one of the grant tables.
    Accounts,
}

impl<K: KeySource> Admission<K> {
    #[must_use]
    pub fn new(source: K) -> Self {
        Self {
            source,
            filters: Arc::default(),
            layouts: foldhash::HashMap::default(),
            reader: ChangesReader::default(),
            rows_limit: u64::MAX,
            sessions: RowSessions::default(),
            as_logged: false,
            origins: Origins::default(),
            temporary: TemporaryTables::default(),
            is_apart: false,
        }
    }

    /// Sends row changes as they were logged: their net effect may differ where rows are missing or
    /// already exist.
    #[must_use]
    pub fn as_logged(self, as_logged: bool) -> Self {
        Self { as_logged: as_logged && !is_planted(Bug::ConvergingMerged), ..self }
    }

    /// Limits the bytes of a transaction's parsed rows; beyond them it is not looked at as a whole.
    /// Small rows take more bytes parsed than their events do.
    pub fn limit_rows(&mut self, bytes: u64) {
        self.rows_limit = bytes;
    }

    /// Admits everything by these rules.
    #[must_use]
    pub fn with_filters(self, filters: Filters) -> Self {
        Self { filters: filters.into(), ..self }
    }

    /// Forgets tables after a statement was executed: definitions may have changed.
    pub fn definitions_changed(&mut self) {
        self.layouts.clear();
        self.source.forget();
    }

    /// Finds the verdict on a transaction, and its keys. `whole` is false for one that is too large to
    /// be looked at as a whole.
    ///
    /// Such a transaction, and a streamed one, is judged by its opening events only (by all of its
    /// tables if the target has some that are not transactional). Its executor reads the rest event
    /// by event and refuses unknown ones.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for contents this version does not apply, [`Error::Unreadable`] if
    /// the bytes can't be read back, [`Error::Keys`] if the definitions can't be read.
    pub async fn admit(
        &mut self,
        relayed: RelayedTransaction,
        mut permit: Option<EventPermit>,
        whole: bool,
    ) -> Result<AdmittedTransaction> {
        let examined = self.examine(&relayed, whole).await;
        let Examined { verdict, changes, session, without_accounts, bytes } =
            examined.map_err(|failure| failure.of(&relayed.header.gtid))?;
        // The permit was requested before the rows were parsed.
        if let (Some(permit), Some(changes)) = (&mut permit, &changes) {
            permit.extend(changes.held_bytes());
        }
        Ok(AdmittedTransaction {
            // One that was not read to its end counts at least as it was received.
            bytes: bytes.max(relayed.event_bytes),
            relayed,
            verdict,
            changes,
            session,
            without_accounts,
            filters: Arc::clone(&self.filters),
            permit,
            arrived: None,
        })
    }

    async fn examine(
        &mut self,
        relayed: &RelayedTransaction,
        whole: bool,
    ) -> std::result::Result<Examined, Failure> {
        if self.source.is_doubted() {
            self.definitions_changed();
            // Keys have other numbers from here on, and transactions in flight have the former ones.
            self.is_apart = true;
        }
        self.origins.next_transaction();
        self.sessions.next_transaction();
        let whole = whole && !matches!(relayed.body, TransactionBody::Streamed(_));
        let mut reading = Reading::new(self, whole);
        let verdict = reading.verdict(relayed).await;
        let Reading { whole, without_accounts, bytes, .. } = reading;
        let mut changes = self.reader.finish();
        // Only now may it fail: the reader has been emptied for the next transaction.
        let verdict = verdict?;
        if verdict == Verdict::LeftOut(Omission::Returned) {
            changes = RowChanges::default();
        }
        changes.opaque |= self.as_logged && !changes.rows.is_empty();
        let looked_at = match verdict {
            Verdict::LeftOut(_) => true,
            Verdict::Rows => whole && !self.is_apart,
            Verdict::NotTransactional
            | Verdict::Statement
            | Verdict::Xa
            | Verdict::ReturnedStatement
            | Verdict::Refused(_) => false,
        };
        // A transaction executed as a statement has its session set in any case.
        let session = match verdict {
            Verdict::Rows | Verdict::NotTransactional => self.sessions.session(!whole)?,
            _ => None,
        };
        let changes = looked_at.then_some(changes);
        // One that is still being received may be taken back.
        self.is_apart &= looked_at || relayed.followed().is_some();
        Ok(Examined { verdict, changes, session, without_accounts, bytes })
    }

    /// Admits a transaction that is still being received; `None` if it has to be whole first. That is so
    /// for all but row changes that the target can roll back, and for whatever its beginning does not show.
    ///
    /// # Errors
    /// [`Error::Keys`] if the definitions can't be read.
    pub async fn admit_followed(
        &mut self,
        relayed: RelayedTransaction,
        permit: EventPermit,
    ) -> Result<Option<AdmittedTransaction>> {
        match is_compressed(&relayed) {
            Ok(false) => {}
            Ok(true) | Err(_) => return Ok(None),
        }
        match self.admit(relayed, Some(permit), false).await {
            Ok(admitted) => Ok((admitted.verdict == Verdict::Rows).then_some(admitted)),
            Err(error @ Error::Keys { .. }) => Err(error),
            // It may look different as a whole, and is judged again then.
            Err(_) => Ok(None),
        }
    }
}
