//! Finds the beginning and end of transactions in the stream of events
//! (the server does the same in sql/rpl_trx_boundary_parser.cc).

use crate::binlog::event::{EventError, EventType, QueryEvent, RawEvent, TransactionHeader};
use crate::binlog::gtid::Gtid;
use crate::seams::planted::{Bug, is_planted};
use crate::sql_text::{Statement, XaVerb};

/// An event's place relative to transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Opens a transaction.
    Begin(TransactionHeader),
    Body,
    /// Completes the transaction.
    End,
    /// Belongs to no transaction: format description, rotation, heartbeat and the like.
    Outside,
    /// Means nothing to a replica, wherever it occurs.
    PassedOver,
}

/// The reason the stream can't be followed; each is final for the channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    #[error("transaction {gtid}: {event} event: {fix}")]
    StatementFormat { gtid: String, event: &'static str, fix: &'static str },
    #[error(
        "anonymous transaction after {after}: the source runs without gtid_mode=ON for some \
         sessions; set gtid_mode=ON there"
    )]
    Anonymous { after: String },
    #[error("event type {code} ({name}) at {at} is not known to this version; nothing is skipped")]
    UnknownEvent { code: u8, name: &'static str, at: String },
    #[error(
        "transaction {gtid}: the source reports an incident ({text}): its binary log misses changes; \
         provision the target again from the source"
    )]
    Incident { gtid: String, text: String },
    #[error("{event} event {problem} (at {at})")]
    OutOfPlace { event: &'static str, problem: &'static str, at: String },
    #[error("at {at}: {source}")]
    Malformed {
        at: String,
        #[source]
        source: EventError,
    },
}

/// Says what a change in statement format asks for.
pub const ROW_FORMAT: &str = "statement-format change; set binlog_format=ROW on the source, and for \
     the session that wrote it; then provision the target again or skip this GTID";

/// Follows the stream event by event.
#[derive(Debug, Default)]
pub struct TransactionAssembler {
    open: Option<Open>,
    last: Option<Gtid>,
    /// See [`TransactionAssembler::admitting`].
    admits: Option<fn(&QueryEvent<'_>) -> bool>,
}

#[derive(Debug)]
struct Open {
    gtid: Gtid,
    /// BEGIN or XA START was seen, so that a separate event commits the transaction.
    begun: bool,
    content: Content,
    /// See [`TransactionAssembler::leave_out`].
    is_left_out: bool,
}

/// The events between BEGIN and the end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    None,
    Other,
    /// A table was emptied by a statement; COMMIT has to follow.
    Emptying,
}

impl TransactionAssembler {
    #[must_use]
    pub const fn new() -> Self {
        Self { open: None, last: None, admits: None }
    }

    /// Returns one that refuses changes in statement format, except those that `admits` accepts. Others leave that to
    /// whoever applies the transaction.
    #[must_use]
    pub const fn admitting(admits: fn(&QueryEvent<'_>) -> bool) -> Self {
        Self { open: None, last: None, admits: Some(admits) }
    }

    /// Returns the open transaction, unless it is left out.
    #[must_use]
    pub fn in_transaction(&self) -> Option<&Gtid> {
        self.open.as_ref().filter(|open| !open.is_left_out).map(|open| &open.gtid)
    }

    /// Leaves out the rest of the open transaction: all of it is passed over, also what can't be replicated.
    pub fn leave_out(&mut self) {
        if let Some(open) = self.open.as_mut() {
            open.is_left_out = true;
        }
    }

    /// Forgets the open transaction: the link was lost, and the source will send it again.
    pub fn reset(&mut self) {
        self.open = None;
    }

    /// Returns the place in the stream, for errors.
    #[must_use]
    pub fn position(&self) -> String {
        match (&self.open, &self.last) {
            (Some(open), _) => format!("transaction {}", open.gtid),
            (None, Some(last)) => format!("the place after transaction {last}"),
            (None, None) => "the start of the stream".to_owned(),
        }
    }

    /// Places the next event of the stream.
    ///
    /// # Errors
    /// A [`StreamError`] for everything that can't be replicated; the state is unchanged then.
    pub fn place(&mut self, event: &RawEvent) -> Result<Placement, StreamError> {
        if self.open.as_ref().is_none_or(|open| !open.is_left_out) {
            return self.judge(event);
        }
        if is_never_within(event.event_type()) {
            // The transaction ended before, with a statement that is not known as an end.
            self.end();
            return self.judge(event);
        }
        // An end that is known counts, so that what follows is judged. An error is one of the content.
        let _ = self.judge(event);
        Ok(Placement::PassedOver)
    }

    fn judge(&mut self, event: &RawEvent) -> Result<Placement, StreamError> {
        let event_type = event.event_type();
        match event_type {
            EventType::GTID | EventType::GTID_TAGGED => self.begin(event),
            EventType::QUERY => self.query(event),
            // A payload holds the whole rest of its transaction, including its end.
            EventType::XID | EventType::XA_PREPARE | EventType::TRANSACTION_PAYLOAD => {
                self.require_open(event_type)?;
                Ok(self.end())
            }
            EventType::TABLE_MAP | EventType::ROWS_QUERY => self.part(event_type),
            _ if event_type.is_rows() => self.part(event_type),
            EventType::FORMAT_DESCRIPTION
            | EventType::ROTATE
            | EventType::STOP
            | EventType::PREVIOUS_GTIDS => {
                // No transaction spans two files.
                self.require_none_open(event_type)?;
                Ok(Placement::Outside)
            }
            EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => Ok(Placement::Outside),
            EventType::ANONYMOUS_GTID => Err(StreamError::Anonymous { after: self.position() }),
            EventType::INCIDENT => Err(StreamError::Incident {
                gtid: self.gtid_text(),
                text: incident_text(event.body()),
            }),
            // Values for the change that follows.
            EventType::INTVAR | EventType::RAND | EventType::USER_VAR if self.is_begun() => {
                self.part(event_type)
            }
            _ if event_type.is_statement_format() => Err(self.statement_format(event_type.name())),
            _ if event.is_passed_over() => Ok(Placement::PassedOver),
            _ if is_planted(Bug::UnknownEventLeftOut) => Ok(Placement::PassedOver),
            EventType(code) => Err(StreamError::UnknownEvent {
                code,
                name: event_type.name(),
                at: self.position(),
            }),
        }
    }

    fn begin(&mut self, event: &RawEvent) -> Result<Placement, StreamError> {
        self.require_none_open(event.event_type())?;
        let header = TransactionHeader::parse(event)
            .map_err(|source| StreamError::Malformed { at: self.position(), source })?;
        let gtid = header.gtid.clone();
        self.open = Some(Open { gtid, begun: false, content: Content::None, is_left_out: false });
        Ok(Placement::Begin(header))
    }

    fn part(&mut self, event_type: EventType) -> Result<Placement, StreamError> {
        self.require_open(event_type)?;
        if let Some(open) = self.open.as_mut() {
            open.content = Content::Other;
        }
        Ok(Placement::Body)
    }

    fn query(&mut self, event: &RawEvent) -> Result<Placement, StreamError> {
        self.require_open(EventType::QUERY)?;
        let query = QueryEvent::parse(event.body())
            .map_err(|source| StreamError::Malformed { at: self.position(), source })?;
        // An unknown statement may begin or end a transaction, so guessing would move its boundary.
        let statement = Statement::of(&query);
        let begun = self.is_begun();
        let content = self.open.as_ref().map_or(Content::None, |open| open.content);
        match statement {
            Statement::Commit => Ok(self.end()),
            _ if content == Content::Emptying => Err(self.statement_format("Query")),
            Statement::Emptying if begun && content == Content::None => {
                if let Some(open) = self.open.as_mut() {
                    open.content = Content::Emptying;
                }
                Ok(Placement::Body)
            }
            Statement::Begin | Statement::Xa(XaVerb::Start) if !begun => {
                if let Some(open) = self.open.as_mut() {
                    open.begun = true;
                    let is_plain = statement == Statement::Begin;
                    open.content = if is_plain { Content::None } else { Content::Other };
                }
                Ok(Placement::Body)
            }
            // Changes of tables without transactions end with COMMIT as a statement, not with an Xid
            // event; ROLLBACK ends a transaction that made such changes and was rolled back.
            Statement::Rollback => Ok(self.end()),
            Statement::Xa(XaVerb::Commit | XaVerb::Rollback) => Ok(self.end()),
            Statement::Savepoint | Statement::RollbackTo | Statement::Xa(XaVerb::End) if begun => {
                self.part(EventType::QUERY)
            }
            // Only the channel's rules say whether its table is replicated.
            Statement::Dml if begun && self.admits.is_none_or(|admits| admits(&query)) => {
                self.part(EventType::QUERY)
            }
            // Rows and a commit follow (the first half of an atomic CREATE TABLE … SELECT).
            Statement::CreateTableStartTransaction => Ok(Placement::Body),
            Statement::Ddl if !begun => Ok(self.end()),
            Statement::Dml | Statement::Emptying | Statement::Ddl => {
                Err(self.statement_format("Query"))
            }
            _ => Err(StreamError::OutOfPlace {
                event: "Query",
                problem: "holds a statement that is not known to this version; nothing is skipped",
                at: self.position(),
            }),
        }
    }

    fn is_begun(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.begun)
    }

    fn end(&mut self) -> Placement {
        self.last = self.open.take().map(|open| open.gtid);
        Placement::End
    }

    fn require_open(&self, event_type: EventType) -> Result<(), StreamError> {
        match &self.open {
            Some(open) if open.content == Content::Emptying && event_type != EventType::QUERY => {
                Err(self.statement_format("Query"))
            }
            Some(_) => Ok(()),
            None => Err(StreamError::OutOfPlace {
                event: event_type.name(),
                problem: "without a GTID event before it",
                at: self.position(),
            }),
        }
    }

    fn require_none_open(&self, event_type: EventType) -> Result<(), StreamError> {
        match self.open {
            None => Ok(()),
            Some(_) => Err(StreamError::OutOfPlace {
                event: event_type.name(),
                problem: "inside an open transaction",
                at: self.position(),
            }),
        }
    }

    fn statement_format(&self, event: &'static str) -> StreamError {
        StreamError::StatementFormat { gtid: self.gtid_text(), event, fix: ROW_FORMAT }
    }

    fn gtid_text(&self) -> String {
        self.open.as_ref().map_or_else(|| self.position(), |open| open.gtid.to_string())
    }
}

/// Returns true for an event that comes between transactions, or begins one.
const fn is_never_within(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::GTID
            | EventType::GTID_TAGGED
            | EventType::ANONYMOUS_GTID
            | EventType::FORMAT_DESCRIPTION
            | EventType::ROTATE
            | EventType::STOP
            | EventType::PREVIOUS_GTIDS
    )
}

/// Skips the incident number (2 bytes) and the length of the text (1 byte).
fn incident_text(body: &[u8]) -> String {
    String::from_utf8_lossy(body.get(3..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests;
