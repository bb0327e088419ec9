//! What a transaction is and what it touches, found out by one pass over its events.

use std::collections::HashMap;
use std::sync::Arc;

use csa_provider::{
    EventType, Gtid, PayloadEvents, QueryEvent, RawEvent, Statement, TableMap, TransactionPayload,
    XaPrepareEvent, XaVerb,
};
use csa_relaystore::{RelayedTransaction, TransactionBody};

use crate::changes::{ChangesReader, RowChanges};
use crate::filter::{Filters, KeptEvents, Mapped, StatementVerdict};
use crate::keys::{TableId, TableKeys, TableLayout};
use crate::{Error, EventPermit, Result};

/// What keeps the definitions from being read.
pub type KeySourceError = Box<dyn std::error::Error + Send + Sync>;

/// Where the keys of tables come from: the target's definitions, as they are once everything before
/// the transaction at hand is committed.
pub trait KeySource {
    /// The table's number and keys; without keys it does not exist.
    ///
    /// # Errors
    /// The target could not be asked.
    fn table(
        &mut self,
        schema: &[u8],
        table: &[u8],
    ) -> std::result::Result<(TableId, Option<Arc<TableKeys>>), KeySourceError>;

    /// The table of a trigger; `None` where there is no such trigger.
    ///
    /// # Errors
    /// The target could not be asked.
    fn trigger_table(
        &mut self,
        schema: &str,
        trigger: &str,
    ) -> std::result::Result<Option<String>, KeySourceError>;

    /// Definitions may have changed.
    fn forget(&mut self);
}

/// How a transaction is executed on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionKind {
    /// Row changes between BEGIN and commit: may share a group.
    Rows,
    /// Changes nothing; only its GTID counts.
    Empty,
    /// A statement that commits by itself and may change definitions (DDL, account management): a
    /// barrier. CREATE TABLE … SELECT has rows behind it.
    Statement,
    /// A step of a distributed transaction, committed by itself: a barrier.
    Xa,
}

/// A transaction with its kind, what it touches, and the memory it holds.
#[derive(Debug)]
pub struct AdmittedTransaction {
    pub relayed: RelayedTransaction,
    pub kind: TransactionKind,
    /// `None`: not looked at (streamed, or a statement), so it is in the way of everything.
    pub changes: Option<RowChanges>,
    /// Why it must not be executed, and not be left out either.
    pub refusal: Option<String>,
    /// The rules it was admitted by.
    pub filters: Arc<Filters>,
    /// Given back when the transaction is dropped after its commit.
    pub permit: Option<EventPermit>,
}

impl AdmittedTransaction {
    /// Whether everything it changes is known by its keys.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.opaque)
    }

    /// Its events as the target is to have them, with compressed payloads opened, one at a time.
    pub fn events(&self) -> impl Iterator<Item = Result<RawEvent>> + use<> {
        let gtid = self.relayed.header.gtid.clone();
        KeptEvents::new(gtid, Arc::clone(&self.filters), flattened_events(&self.relayed))
    }

    /// Rows it changes, as far as they were counted.
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
    /// By the body of the table map behind its table id: the same bytes mean the same layout.
    layouts: HashMap<Box<[u8]>, Option<Arc<TableLayout>>>,
    reader: ChangesReader,
    as_logged: bool,
}

impl<K: KeySource> Admission<K> {
    #[must_use]
    pub fn new(source: K) -> Self {
        Self {
            source,
            filters: Arc::default(),
            layouts: HashMap::new(),
            reader: ChangesReader::default(),
            as_logged: false,
        }
    }

    /// Row changes are to be sent as they were logged: their net effect may be another one where rows
    /// are missing or there already.
    #[must_use]
    pub fn as_logged(self, as_logged: bool) -> Self {
        Self { as_logged, ..self }
    }

    /// Everything is admitted by these rules.
    #[must_use]
    pub fn with_filters(self, filters: Filters) -> Self {
        Self { filters: filters.into(), ..self }
    }

    /// A statement was executed: definitions may have changed.
    pub fn definitions_changed(&mut self) {
        self.layouts.clear();
        self.source.forget();
    }

    /// Classifies a transaction and finds its keys. `whole` is false for one that is too large to be
    /// looked at as a whole.
    ///
    /// Such a transaction, and a streamed one, is judged by its opening events only; its executor meets the rest one
    /// by one and refuses what it does not know.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for contents this version does not apply, [`Error::Unreadable`] when
    /// the bytes can't be read back, [`Error::Keys`] when the definitions can't.
    pub fn admit(
        &mut self,
        relayed: RelayedTransaction,
        permit: Option<EventPermit>,
        whole: bool,
    ) -> Result<AdmittedTransaction> {
        let whole = whole && !matches!(relayed.body, TransactionBody::Streamed(_));
        let mut refusal = None;
        let kind = self.read(&relayed, whole, &mut refusal);
        let mut changes = self.reader.finish();
        changes.opaque |= self.as_logged && !changes.rows.is_empty();
        let mut kind = kind?;
        if whole && kind == TransactionKind::Rows && is_nothing(&changes) {
            kind = TransactionKind::Empty;
        }
        let looked_at = match kind {
            TransactionKind::Empty => true,
            TransactionKind::Rows => whole,
            TransactionKind::Statement | TransactionKind::Xa => false,
        };
        Ok(AdmittedTransaction {
            relayed,
            kind,
            changes: looked_at.then_some(changes),
            refusal,
            filters: Arc::clone(&self.filters),
            permit,
        })
    }

    fn read(
        &mut self,
        relayed: &RelayedTransaction,
        whole: bool,
        refusal: &mut Option<String>,
    ) -> Result<TransactionKind> {
        let gtid = &relayed.header.gtid;
        let mut begun = false;
        let mut distributed = false;
        let mut kind = TransactionKind::Empty;
        for event in flattened_events(relayed) {
            let event = event?;
            match event.event_type() {
                EventType::QUERY => match statement_of(gtid, &event)? {
                    Statement::Begin if !begun => begun = true,
                    Statement::Xa(XaVerb::Start) if !begun => (begun, distributed) = (true, true),
                    Statement::Xa(XaVerb::End) if distributed => {}
                    Statement::Xa(XaVerb::Commit | XaVerb::Rollback) if !begun => {
                        return Ok(TransactionKind::Xa);
                    }
                    Statement::Commit | Statement::Rollback if begun => return Ok(kind),
                    Statement::Savepoint if begun => {}
                    Statement::RollbackTo if begun => self.reader.opaque(),
                    statement @ (Statement::Ddl | Statement::CreateTableStartTransaction)
                        if !begun || statement != Statement::Ddl =>
                    {
                        // A table that is left out is so with the rows it was created with.
                        return Ok(match self.statement(gtid, &event)? {
                            StatementVerdict::Apply => TransactionKind::Statement,
                            StatementVerdict::Skip => TransactionKind::Empty,
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
                    return Ok(if end.one_phase { kind } else { TransactionKind::Xa });
                }
                EventType::GTID | EventType::GTID_TAGGED | EventType::ROWS_QUERY => {}
                EventType::TABLE_MAP if distributed && !whole => return Ok(TransactionKind::Xa),
                EventType::TABLE_MAP if begun && !whole => return Ok(TransactionKind::Rows),
                EventType::TABLE_MAP if begun => {
                    kind = TransactionKind::Rows;
                    self.table_map(gtid, &event)?;
                }
                other if begun && other.is_rows() => {
                    kind = TransactionKind::Rows;
                    self.reader.rows(&event).map_err(|error| unreadable(gtid, error))?;
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

    fn statement(&mut self, gtid: &Gtid, event: &RawEvent) -> Result<StatementVerdict> {
        let query = QueryEvent::parse(event.body()).map_err(|error| unreadable(gtid, error))?;
        let context = query.context().map_err(|error| unreadable(gtid, error))?;
        let source = &mut self.source;
        let mut trigger_table = |schema: &str, trigger: &str| source.trigger_table(schema, trigger);
        self.filters
            .statement(&query, &context, &mut trigger_table)
            .map_err(|source| Error::Keys { gtid: gtid.clone(), source })
    }

    fn table_map(&mut self, gtid: &Gtid, event: &RawEvent) -> Result<()> {
        let body = event.body();
        let definition = body.get(TableMap::ID_LEN..).unwrap_or_default();
        let layout = match self.layouts.get(definition) {
            Some(layout) => layout.clone(),
            None => {
                let layout = self.layout(gtid, body)?;
                self.layouts.insert(definition.into(), layout.clone());
                layout
            }
        };
        self.reader.map(crate::changes::table_id(body), layout);
        Ok(())
    }

    fn layout(&mut self, gtid: &Gtid, body: &[u8]) -> Result<Option<Arc<TableLayout>>> {
        let mapped = self.filters.table_map(body).map_err(|error| unreadable(gtid, error))?;
        let body = match &mapped {
            Mapped::LeftOut => return Ok(None),
            Mapped::Kept => body,
            Mapped::Renamed(renamed) => renamed,
        };
        let map = TableMap::parse(body).map_err(|error| unreadable(gtid, error))?;
        let (id, keys) = self
            .source
            .table(map.schema, map.table)
            .map_err(|source| Error::Keys { gtid: gtid.clone(), source })?;
        let layout = TableLayout::new(id, keys, &map, body);
        Ok(Some(Arc::new(layout.map_err(|error| unreadable(gtid, error))?)))
    }
}

/// Whether a table is this daemon's own bookkeeping: a source that is itself such a target has it in
/// its stream, and it speaks of another channel.
#[must_use]
pub fn is_own(schema: &[u8], table: &[u8]) -> bool {
    schema == b"csa" && matches!(table, b"checkpoint" | b"statement" | b"audit")
}

fn is_nothing(changes: &RowChanges) -> bool {
    changes.rows.is_empty() && !changes.opaque
}

fn statement_of(gtid: &Gtid, event: &RawEvent) -> Result<Statement> {
    let query = QueryEvent::parse(event.body()).map_err(|error| unreadable(gtid, error))?;
    Ok(Statement::classify(query.statement))
}
fn describe(statement: &Statement, begun: bool) -> String {
    match statement {
        Statement::Dml => "statement-format change; set binlog_format=ROW on the source".to_owned(),
        other if begun => format!("{other:?} statement inside a row transaction"),
        other => format!("{other:?} statement outside a transaction"),
    }
}

fn unsupported(gtid: &Gtid, what: String) -> Error {
    Error::Unsupported { gtid: gtid.clone(), what }
}

fn unreadable(gtid: &Gtid, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Unreadable { gtid: gtid.clone(), source: Box::new(source) }
}

/// Bytes of a transaction's events once they are decompressed.
///
/// # Errors
/// [`Error::Unreadable`] when the bytes can't be read back.
pub fn decompressed_bytes(relayed: &RelayedTransaction) -> Result<u64> {
    let gtid = &relayed.header.gtid;
    // A compressed transaction is its GTID and one payload.
    let Some(second) = relayed.events().nth(1) else { return Ok(relayed.event_bytes) };
    let second = second.map_err(|error| unreadable(gtid, error))?;
    if second.event_type() != EventType::TRANSACTION_PAYLOAD {
        return Ok(relayed.event_bytes);
    }
    let payload = TransactionPayload::parse(&second).map_err(|error| unreadable(gtid, error))?;
    Ok(relayed.event_bytes.saturating_add(payload.uncompressed_size()))
}

/// The transaction's events with compressed payloads opened, one at a time.
pub fn flattened_events(
    relayed: &RelayedTransaction,
) -> impl Iterator<Item = Result<RawEvent>> + use<> {
    let gtid = relayed.header.gtid.clone();
    let mut outer = relayed.events();
    let mut inner: Option<PayloadEvents> = None;
    std::iter::from_fn(move || {
        loop {
            if let Some(events) = inner.as_mut() {
                if let Some(event) = Iterator::next(events) {
                    return Some(event.map_err(|error| unreadable(&gtid, error)));
                }
                inner = None;
            }
            let event = match outer.next()? {
                Ok(event) => event,
                Err(error) => return Some(Err(unreadable(&gtid, error))),
            };
            if event.event_type() != EventType::TRANSACTION_PAYLOAD {
                return Some(Ok(event));
            }
            match TransactionPayload::parse(&event) {
                Ok(payload) => inner = Some(payload.into_events()),
                Err(error) => return Some(Err(unreadable(&gtid, error))),
            }
        }
    })
}
