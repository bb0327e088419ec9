//! What a transaction is, found out by one look at its events.

use csa_provider::{
    EventType, Gtid, PayloadEvents, QueryEvent, RawEvent, Statement, TransactionPayload,
};
use csa_relaystore::{RelayedTransaction, TransactionBody};

use crate::{Error, EventPermit, Result};

/// How a transaction is executed on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionKind {
    /// Row changes between BEGIN and commit: may share a group.
    Rows,
    /// Changes nothing; only its GTID counts.
    Empty,
    /// One statement that commits by itself (DDL, account management): a barrier.
    Statement,
}

/// A transaction with its kind and the memory it holds.
#[derive(Debug)]
pub struct AdmittedTransaction {
    pub relayed: RelayedTransaction,
    pub kind: TransactionKind,
    /// Given back when the transaction is dropped after its commit.
    pub permit: Option<EventPermit>,
}

impl AdmittedTransaction {
    /// Classifies a transaction.
    ///
    /// A streamed transaction is judged by its opening events only; its executor meets the rest one
    /// by one and refuses what it does not know.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for contents this version does not apply, [`Error::Unreadable`] when
    /// the bytes can't be read back.
    pub fn classify(relayed: RelayedTransaction, permit: Option<EventPermit>) -> Result<Self> {
        let kind = kind_of(&relayed)?;
        Ok(Self { relayed, kind, permit })
    }
}

fn kind_of(relayed: &RelayedTransaction) -> Result<TransactionKind> {
    let gtid = &relayed.header.gtid;
    let streamed = matches!(relayed.body, TransactionBody::Streamed(_));
    let mut begun = false;
    let mut kind = TransactionKind::Empty;
    for event in flattened_events(relayed) {
        let event = event?;
        match event.event_type() {
            EventType::QUERY => match statement_of(gtid, &event)? {
                Statement::Begin if !begun => begun = true,
                Statement::Commit | Statement::Rollback if begun => return Ok(kind),
                Statement::Savepoint if begun => {}
                Statement::Ddl if !begun => return Ok(TransactionKind::Statement),
                other => return Err(unsupported(gtid, describe(&other, begun))),
            },
            EventType::XID if begun => return Ok(kind),
            EventType::GTID | EventType::GTID_TAGGED | EventType::ROWS_QUERY => {}
            EventType::TABLE_MAP if begun && streamed => return Ok(TransactionKind::Rows),
            EventType::TABLE_MAP if begun => kind = TransactionKind::Rows,
            other if begun && other.is_rows() => kind = TransactionKind::Rows,
            other => {
                return Err(unsupported(gtid, format!("{} event is not supported", other.name())));
            }
        }
    }
    Err(unsupported(gtid, "ends without a commit".to_owned()))
}

fn statement_of(gtid: &Gtid, event: &RawEvent) -> Result<Statement> {
    let query = QueryEvent::parse(event.body()).map_err(|error| unreadable(gtid, error))?;
    Ok(Statement::classify(query.statement))
}

fn describe(statement: &Statement, begun: bool) -> String {
    match statement {
        Statement::Xa(_) => "XA transactions are not supported by this version".to_owned(),
        Statement::CreateTableStartTransaction => {
            "CREATE TABLE … SELECT is not supported by this version".to_owned()
        }
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
