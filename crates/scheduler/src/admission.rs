//! Finds a transaction's kind and the rows and keys it touches, in one pass over its events.

use std::collections::HashMap;
use std::sync::Arc;

use csa_provider::{
    EventType, Gtid, QueryEvent, RawEvent, SessionContext, Statement, TableMap, XaPrepareEvent,
    XaVerb,
};
use csa_relaystore::{RelayedTransaction, TransactionBody};
use tokio::time::Instant;

use crate::changes::{ChangesReader, RowChanges};
use crate::error::{Error, Result};
use crate::events::{flattened_events, is_compressed, unreadable};
use crate::filter::{Filters, KeptEvents, Mapped, StatementVerdict};
use crate::key_source::KeySource;
use crate::keys::TableLayout;
use crate::memory::EventPermit;
use crate::returned::{Origin, Origins};
use crate::row_sessions::RowSessions;

/// How a transaction is executed on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionKind {
    /// Row changes between BEGIN and commit: may share a group.
    Rows,
    /// Changes nothing; only its GTID counts.
    Empty,
    /// A statement that commits implicitly and may change definitions (DDL, account management): it
    /// runs alone, and nothing after it is admitted before it is committed. CREATE TABLE … SELECT is followed by rows.
    Statement,
    /// A step of a distributed transaction, with a GTID of its own: as a statement, but for the definitions.
    Xa,
    /// Row changes of which some can't be rolled back on the target, so that nothing else may be
    /// written with them: it runs alone.
    NotTransactional,
}

/// A transaction with its kind, what it touches, and the memory it holds.
#[derive(Debug)]
pub struct AdmittedTransaction {
    pub relayed: RelayedTransaction,
    pub kind: TransactionKind,
    /// `None`: not looked at (streamed, or a statement), so it conflicts with everything.
    pub changes: Option<RowChanges>,
    /// The session that wrote the rows, if the rows on the target depend on it or may depend on it.
    pub session: Option<Arc<SessionContext>>,
    /// The reason it must be neither executed nor left out.
    pub refusal: Option<String>,
    /// It holds account management, which is not applied.
    pub leaves_out_accounts: bool,
    /// It is a statement about the schema in which the target keeps the channels' progress; it is
    /// not applied.
    pub leaves_out_own: bool,
    /// The target's own server made it, so it is not applied again.
    pub is_returned: bool,
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
    /// True if its keys identify everything it changes.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.opaque)
    }

    /// Its events as the target receives them, compressed payloads unpacked, one at a time. Of one that is
    /// still being received they end for now where reception is, and continue there.
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
    layouts: HashMap<Box<[u8]>, Layout>,
    reader: ChangesReader,
    /// Bytes that a transaction's parsed rows may take.
    rows_limit: u64,
    sessions: RowSessions,
    /// A table of the current transaction is not transactional.
    not_transactional: bool,
    as_logged: bool,
    /// The current transaction has account management that is left out.
    leaves_out_accounts: bool,
    leaves_out_own: bool,
    origins: Origins,
    is_returned: bool,
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
            layouts: HashMap::new(),
            reader: ChangesReader::default(),
            rows_limit: u64::MAX,
            sessions: RowSessions::default(),
            not_transactional: false,
            as_logged: false,
            leaves_out_accounts: false,
            leaves_out_own: false,
            origins: Origins::default(),
            is_returned: false,
        }
    }

    /// Sends row changes as they were logged: their net effect may differ where rows are missing or
    /// already exist.
    #[must_use]
    pub fn as_logged(self, as_logged: bool) -> Self {
        Self { as_logged, ..self }
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

    /// Classifies a transaction and finds its keys. `whole` is false for one that is too large to
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
        let mut whole = whole && !matches!(relayed.body, TransactionBody::Streamed(_));
        let mut refusal = None;
        (self.leaves_out_accounts, self.leaves_out_own) = (false, false);
        self.is_returned = false;
        self.origins.next_transaction();
        self.sessions.next_transaction();
        self.not_transactional = false;
        let mut bytes = 0;
        let kind = self.read(&relayed, whole, &mut refusal, &mut bytes).await;
        // Beyond the limit `read` has stopped early, so these may not be all rows.
        whole &= self.reader.held_bytes() <= self.rows_limit;
        let mut changes = self.reader.finish();
        if self.is_returned {
            changes = RowChanges::default();
        }
        changes.opaque |= self.as_logged && !changes.rows.is_empty();
        // Only now may it fail: the reader has been emptied for the next transaction.
        let mut kind = kind?;
        // All its tables are left out, or its statements changed no row.
        if whole && kind == TransactionKind::Rows && is_nothing(&changes) {
            kind = TransactionKind::Empty;
        }
        if kind == TransactionKind::Rows && self.not_transactional {
            kind = TransactionKind::NotTransactional;
        }
        let looked_at = match kind {
            TransactionKind::Empty => true,
            TransactionKind::Rows => whole,
            TransactionKind::Statement
            | TransactionKind::Xa
            | TransactionKind::NotTransactional => false,
        };
        // A transaction executed as a statement has its session set in any case.
        let session = match kind {
            TransactionKind::Rows | TransactionKind::NotTransactional => {
                let session = self.sessions.session(!whole);
                session.map_err(|error| unreadable(&relayed.header.gtid, error))?
            }
            _ => None,
        };
        let changes = looked_at.then_some(changes);
        // The permit was requested before the rows were parsed.
        if let (Some(permit), Some(changes)) = (&mut permit, &changes) {
            permit.extend(changes.held_bytes());
        }
        Ok(AdmittedTransaction {
            // One that was not read to its end counts at least as it was received.
            bytes: bytes.max(relayed.event_bytes),
            relayed,
            kind,
            changes,
            session,
            refusal,
            leaves_out_accounts: self.leaves_out_accounts,
            leaves_out_own: self.leaves_out_own,
            is_returned: self.is_returned,
            filters: Arc::clone(&self.filters),
            permit,
            arrived: None,
        })
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
            Ok(admitted) => {
                let begins = admitted.kind == TransactionKind::Rows && admitted.refusal.is_none();
                Ok(begins.then_some(admitted))
            }
            Err(error @ Error::Keys { .. }) => Err(error),
            // It may look different as a whole, and is judged again then.
            Err(_) => Ok(None),
        }
    }

    /// [`Self::admit`] with a source that never waits.
    ///
    /// # Errors
    /// As [`Self::admit`].
    ///
    /// # Panics
    /// The source waits.
    #[cfg(any(test, feature = "test-util"))]
    pub fn admit_now(
        &mut self,
        relayed: RelayedTransaction,
        permit: Option<EventPermit>,
        whole: bool,
    ) -> Result<AdmittedTransaction> {
        crate::test_util::now(self.admit(relayed, permit, whole))
    }

    async fn read(
        &mut self,
        relayed: &RelayedTransaction,
        mut whole: bool,
        refusal: &mut Option<String>,
        bytes: &mut u64,
    ) -> Result<TransactionKind> {
        let gtid = &relayed.header.gtid;
        // By the GTID first: statements and steps of XA come back as well as rows.
        let asked = |source| Error::Keys { gtid: gtid.clone(), source };
        if self.origins.of_gtid(&mut self.source, gtid).await.map_err(asked)? == Origin::Target {
            self.is_returned = true;
            return Ok(TransactionKind::Empty);
        }
        let mut begun = false;
        let mut distributed = false;
        let mut kind = TransactionKind::Empty;
        for event in flattened_events(relayed) {
            let event = event?;
            *bytes += event.len() as u64;
            match self.origins.of_event(&mut self.source, &event).await.map_err(asked)? {
                Origin::Other => {}
                // Its rows come next, and decide.
                Origin::Checkpoint if !whole => continue,
                Origin::Checkpoint => {}
                Origin::Target => {
                    self.is_returned = true;
                    return Ok(TransactionKind::Empty);
                }
                Origin::Torn(why) => {
                    *refusal = Some(why);
                    return Ok(TransactionKind::Statement);
                }
            }
            match event.event_type() {
                EventType::QUERY => match statement_of(gtid, &event)? {
                    Statement::Begin if !begun => {
                        begun = true;
                        self.sessions.begin(&event);
                    }
                    Statement::Xa(XaVerb::Start) if !begun => {
                        (begun, distributed) = (true, true);
                        self.sessions.begin(&event);
                    }
                    Statement::Xa(XaVerb::End) if distributed => {}
                    Statement::Xa(XaVerb::Commit | XaVerb::Rollback) if !begun => {
                        return Ok(TransactionKind::Xa);
                    }
                    Statement::Commit if begun => return Ok(kind),
                    // Without rows it means the same.
                    Statement::Rollback if begun && kind == TransactionKind::Empty => {
                        return Ok(kind);
                    }
                    Statement::Savepoint if begun => {}
                    // It undoes rows before it: images alone do not show the net effect.
                    Statement::RollbackTo if begun => self.reader.opaque(),
                    statement @ (Statement::Ddl | Statement::CreateTableStartTransaction)
                        if !begun || statement != Statement::Ddl =>
                    {
                        // Rows that CREATE TABLE … SELECT logs are left out with the table.
                        return Ok(match self.statement(gtid, &event).await? {
                            StatementVerdict::Apply => TransactionKind::Statement,
                            StatementVerdict::Skip => TransactionKind::Empty,
                            StatementVerdict::LeaveOutOwn => {
                                self.leaves_out_own = true;
                                TransactionKind::Empty
                            }
                            StatementVerdict::LeaveOutAccounts => {
                                self.leaves_out_accounts = true;
                                TransactionKind::Empty
                            }
                            // As a statement, so that it is refused in its turn, after all before
                            // it is committed.
                            StatementVerdict::Refuse(why) => {
                                *refusal = Some(why);
                                TransactionKind::Statement
                            }
                        });
                    }
                    other => return Err(unsupported(gtid, describe(&other, begun))),
                },
                EventType::XID if begun => return Ok(kind),
                EventType::XA_PREPARE if distributed => {
                    let end =
                        XaPrepareEvent::parse(&event).map_err(|error| unreadable(gtid, error))?;
                    // XA COMMIT … ONE PHASE: an ordinary transaction.
                    return Ok(if end.one_phase { kind } else { TransactionKind::Xa });
                }
                EventType::GTID | EventType::GTID_TAGGED | EventType::ROWS_QUERY => {}
                // Its end, prepared or in one phase, is not read: to run alone is right for either.
                EventType::TABLE_MAP if distributed && !whole => return Ok(TransactionKind::Xa),
                EventType::TABLE_MAP
                    if begun && !whole && !self.may_be_not_transactional(gtid).await? =>
                {
                    return Ok(TransactionKind::Rows);
                }
                EventType::TABLE_MAP if begun => {
                    kind = TransactionKind::Rows;
                    self.table_map(gtid, &event).await?;
                    if self.not_transactional && !whole {
                        return Ok(kind);
                    }
                }
                // Too large: only its tables matter here.
                other if begun && !whole && other.is_rows() => {}
                other if begun && other.is_rows() => {
                    kind = TransactionKind::Rows;
                    self.reader.rows(&event).map_err(|error| unreadable(gtid, error))?;
                    if self.reader.held_bytes() > self.rows_limit {
                        if distributed {
                            return Ok(TransactionKind::Xa);
                        }
                        if self.not_transactional || !self.may_be_not_transactional(gtid).await? {
                            return Ok(kind);
                        }
                        whole = false;
                    }
                }
                other => {
                    return Err(unsupported(
                        gtid,
                        format!("{} event is not supported", other.name()),
                    ));
                }
            }
        }
        Err(unsupported(gtid, "ends without a commit".to_owned()))
    }

    async fn statement(&mut self, gtid: &Gtid, event: &RawEvent) -> Result<StatementVerdict> {
        let query = QueryEvent::parse(event.body()).map_err(|error| unreadable(gtid, error))?;
        // Unknown status variables stop the channel here, before
        // the statement can run without them.
        query.context().map_err(|error| unreadable(gtid, error))?;
        let (_, dialect) = Statement::read(&query);
        let source = &mut self.source;
        let trigger_table =
            async |schema: &str, trigger: &str| source.trigger_table(schema, trigger).await;
        self.filters
            .statement(&query, dialect, trigger_table)
            .await
            .map_err(|source| Error::Keys { gtid: gtid.clone(), source })
    }

    async fn table_map(&mut self, gtid: &Gtid, event: &RawEvent) -> Result<()> {
        let body = event.body();
        let definition = body.get(TableMap::ID_LEN..).unwrap_or_default();
        let layout = match self.layouts.get(definition) {
            Some(layout) => layout.clone(),
            None => {
                let layout = self.layout(gtid, body).await?;
                self.layouts.insert(definition.into(), layout.clone());
                layout
            }
        };
        self.leaves_out_accounts |= matches!(layout, Layout::Accounts);
        let layout = match layout {
            Layout::Kept(layout) => Some(layout),
            Layout::LeftOut | Layout::Accounts => None,
        };
        if let Some(layout) = &layout {
            self.not_transactional |= layout.keys.not_transactional;
            if layout.by_session {
                self.sessions.matters();
            }
        }
        self.reader.map(crate::changes::table_id(body), layout);
        Ok(())
    }

    async fn may_be_not_transactional(&mut self, gtid: &Gtid) -> Result<bool> {
        let any = self.source.has_not_transactional().await;
        any.map_err(|source| Error::Keys { gtid: gtid.clone(), source })
    }

    async fn layout(&mut self, gtid: &Gtid, body: &[u8]) -> Result<Layout> {
        let mapped = self.filters.table_map(body).map_err(|error| unreadable(gtid, error))?;
        let body = match &mapped {
            Mapped::LeftOut => {
                let map = TableMap::parse(body).map_err(|error| unreadable(gtid, error))?;
                let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let accounts =
                    self.filters.leaves_out_accounts_of(&name(map.schema), &name(map.table));
                return Ok(if accounts { Layout::Accounts } else { Layout::LeftOut });
            }
            Mapped::Kept => body,
            Mapped::Renamed(renamed) => renamed,
        };
        let map = TableMap::parse(body).map_err(|error| unreadable(gtid, error))?;
        let (id, keys) = self
            .source
            .table(map.schema, map.table)
            .await
            .map_err(|source| Error::Keys { gtid: gtid.clone(), source })?;
        let layout = TableLayout::new(id, keys, &map, body);
        Ok(Layout::Kept(Arc::new(layout.map_err(|error| unreadable(gtid, error))?)))
    }
}

fn is_nothing(changes: &RowChanges) -> bool {
    changes.rows.is_empty() && !changes.opaque
}

fn statement_of(gtid: &Gtid, event: &RawEvent) -> Result<Statement> {
    let query = QueryEvent::parse(event.body()).map_err(|error| unreadable(gtid, error))?;
    Ok(Statement::of(&query))
}
fn describe(statement: &Statement, begun: bool) -> String {
    match statement {
        Statement::Dml => "statement-format change; set binlog_format=ROW on the source".to_owned(),
        Statement::Rollback if begun => {
            "ROLLBACK at the end of a transaction that changes rows".to_owned()
        }
        other if begun => format!("{other:?} statement inside a row transaction"),
        other => format!("{other:?} statement outside a transaction"),
    }
}

fn unsupported(gtid: &Gtid, what: String) -> Error {
    Error::Unsupported { gtid: gtid.clone(), what }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
