//! One pass over a transaction's events, which ends as soon as they show the verdict.

use std::sync::Arc;

use csa_provider::binlog::{
    EventError, EventType, Gtid, QueryEvent, RawEvent, TableMap, XaPrepareEvent,
};
use csa_provider::source::ROW_FORMAT;
use csa_provider::sql_text::{Statement, XaVerb};
use csa_relaystore::read::RelayedTransaction;
use tokio::task::yield_now;

use super::{Admission, Layout, Omission, Verdict};
use crate::error::Error;
use crate::events::flattened_events;
use crate::filter::{Mapped, changed_service_table};
use crate::key_source::{KeySource, KeySourceError};
use crate::keys::TableLayout;
use crate::returned::Origin;

/// Bytes of a transaction between two looks whether it is still to be read.
const LOOK_BYTES: u64 = 4 << 20;

/// The reason why a transaction can't be admitted, before its GTID is attached.
pub(super) enum Failure {
    Unsupported(String),
    Unreadable(EventError),
    Keys(KeySourceError),
    /// Its bytes can't be read back; the error names the GTID already.
    Stored(Error),
}

type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Attaches the GTID.
    pub(super) fn of(self, gtid: &Gtid) -> Error {
        let gtid = gtid.clone();
        match self {
            Self::Unsupported(what) => Error::Unsupported { gtid, what },
            Self::Unreadable(source) => Error::Unreadable { gtid, source: Box::new(source) },
            Self::Keys(source) => Error::Keys { gtid, source },
            Self::Stored(error) => error,
        }
    }
}

impl From<EventError> for Failure {
    fn from(error: EventError) -> Self {
        Self::Unreadable(error)
    }
}

/// The state of the pass.
pub(super) struct Reading<'a, K> {
    admission: &'a mut Admission<K>,
    /// False for a transaction that is too large, of which only the tables matter. Becomes false where its parsed
    /// rows exceed the limit: what was read of them then need not be all of them.
    pub(super) whole: bool,
    /// BEGIN or XA START was read.
    begun: bool,
    /// It began with XA START.
    distributed: bool,
    has_rows: bool,
    /// It has a change in statement format, which the rules leave out.
    has_statement: bool,
    /// A table that it changes is not transactional.
    not_transactional: bool,
    /// A table that it changes is a grant table, whose rows are left out.
    pub(super) without_accounts: bool,
    /// Bytes of the events that were read, decompressed.
    pub(super) bytes: u64,
}

impl<'a, K: KeySource> Reading<'a, K> {
    pub(super) fn new(admission: &'a mut Admission<K>, whole: bool) -> Self {
        Self {
            admission,
            whole,
            begun: false,
            distributed: false,
            has_rows: false,
            has_statement: false,
            not_transactional: false,
            without_accounts: false,
            bytes: 0,
        }
    }

    /// Reads events until they show the verdict.
    pub(super) async fn verdict(&mut self, relayed: &RelayedTransaction) -> Result<Verdict> {
        // By the GTID first: statements and steps of XA come back as well as rows.
        let Admission { origins, source, .. } = &mut *self.admission;
        let origin = origins.of_gtid(source, &relayed.header.gtid).await;
        if origin.map_err(Failure::Keys)? == Origin::Target {
            return returned(relayed);
        }
        let mut next_look = LOOK_BYTES;
        for event in flattened_events(relayed) {
            let event = event.map_err(Failure::Stored)?;
            self.bytes += event.len() as u64;
            // Nothing else here waits, and a large one takes minutes to its end.
            if self.bytes >= next_look {
                next_look = self.bytes + LOOK_BYTES;
                self.admission.source.go_on().map_err(Failure::Keys)?;
                yield_now().await;
            }
            if let Some(verdict) = self.event(&event).await? {
                return Ok(verdict);
            }
        }
        Err(Failure::Unsupported("ends without a commit".to_owned()))
    }

    /// Reads one event; returns the verdict once it is known, here and below.
    async fn event(&mut self, event: &RawEvent) -> Result<Option<Verdict>> {
        let Admission { origins, source, .. } = &mut *self.admission;
        match origins.of_event(source, event).await.map_err(Failure::Keys)? {
            Origin::Other => {}
            // Its rows come next, and decide.
            Origin::Checkpoint if !self.whole => return Ok(None),
            Origin::Checkpoint => {}
            Origin::Target => return Ok(Some(Verdict::LeftOut(Omission::Returned))),
            Origin::Torn(why) => return Ok(Some(Verdict::Refused(why))),
        }
        match event.event_type() {
            EventType::GTID | EventType::GTID_TAGGED | EventType::ROWS_QUERY => Ok(None),
            EventType::QUERY => self.query(event).await,
            // The change after them decides.
            EventType::INTVAR | EventType::RAND | EventType::USER_VAR if self.begun => Ok(None),
            EventType::TABLE_MAP if self.begun => self.table_map(event).await,
            rows if self.begun && rows.is_rows() => self.rows(event).await,
            EventType::XID if self.begun => Ok(Some(self.end())),
            EventType::XA_PREPARE if self.distributed => {
                let is_ordinary = XaPrepareEvent::parse(event)?.one_phase;
                // XA COMMIT … ONE PHASE: an ordinary transaction.
                Ok(Some(if is_ordinary { self.end() } else { Verdict::Xa }))
            }
            other => Err(Failure::Unsupported(format!("{} event is not supported", other.name()))),
        }
    }

    /// Reads a statement: one that begins or ends row changes, or one that is a transaction of its own.
    async fn query(&mut self, event: &RawEvent) -> Result<Option<Verdict>> {
        match Statement::of(&QueryEvent::parse(event.body())?) {
            statement @ (Statement::Begin | Statement::Xa(XaVerb::Start)) if !self.begun => {
                self.begun = true;
                self.distributed = statement != Statement::Begin;
                self.admission.sessions.begin(event);
                Ok(None)
            }
            Statement::Xa(XaVerb::End) if self.distributed => Ok(None),
            Statement::Xa(XaVerb::Commit | XaVerb::Rollback) if !self.begun => {
                Ok(Some(Verdict::Xa))
            }
            Statement::Commit if self.begun => Ok(Some(self.end())),
            // Without rows it means the same.
            Statement::Rollback if self.begun && !self.has_rows => Ok(Some(self.end())),
            Statement::Savepoint if self.begun => Ok(None),
            // It undoes rows before it: images alone do not show the net effect.
            Statement::RollbackTo if self.begun => {
                self.admission.reader.opaque();
                Ok(None)
            }
            // Rows that CREATE TABLE … SELECT logs are left out with the table.
            Statement::CreateTableStartTransaction => self.statement(event).await.map(Some),
            Statement::Ddl if !self.begun => self.statement(event).await.map(Some),
            // A table that a restart of the source has emptied: alone, as a definition.
            Statement::Emptying if self.begun && !self.has_rows => {
                self.statement(event).await.map(Some)
            }
            Statement::Dml if self.begun && !self.distributed => self.change(event),
            other => Err(Failure::Unsupported(describe(&other, self.begun))),
        }
    }

    /// Passes over a change in statement format if the rules leave out the only table that it can change.
    fn change(&mut self, event: &RawEvent) -> Result<Option<Verdict>> {
        let query = QueryEvent::parse(event.body())?;
        let (_, dialect) = Statement::read(&query);
        match changed_service_table(query.statement, dialect) {
            Some((schema, table)) if self.admission.filters.table(&schema, &table).is_none() => {
                self.has_statement = true;
                Ok(None)
            }
            Some((schema, table)) => Err(Failure::Unsupported(format!(
                "statement-format change of {schema}.{table}, a managed service's own table; leave it out: \
                 [channel.applier] replicate_ignore_table = [\"{schema}.{table}\"]"
            ))),
            None => Err(Failure::Unsupported(ROW_FORMAT.to_owned())),
        }
    }

    /// Returns the filters' verdict on a statement that commits implicitly.
    async fn statement(&mut self, event: &RawEvent) -> Result<Verdict> {
        let query = QueryEvent::parse(event.body())?;
        // Unknown status variables stop the channel here, before
        // the statement can run without them.
        query.context()?;
        let (_, dialect) = Statement::read(&query);
        let Admission { filters, source, .. } = &mut *self.admission;
        let trigger_table =
            async |schema: &str, trigger: &str| source.trigger_table(schema, trigger).await;
        let verdict = filters.statement(&query, dialect, trigger_table).await;
        let verdict = verdict.map_err(Failure::Keys)?;
        let refusal = self.admission.temporary.refusal(event, &query, dialect, &verdict);
        Ok(refusal.map_or_else(|| verdict.into(), Verdict::Refused))
    }

    async fn table_map(&mut self, event: &RawEvent) -> Result<Option<Verdict>> {
        if !self.whole {
            if self.has_statement {
                return Ok(Some(Verdict::Refused(ROW_FORMAT.to_owned())));
            }
            // Its end, prepared or in one phase, is not read: to run alone is right for either.
            if self.distributed {
                return Ok(Some(Verdict::Xa));
            }
            if !self.may_be_not_transactional().await? {
                return Ok(Some(Verdict::Rows));
            }
        }
        self.has_rows = true;
        let body = event.body();
        let layout = match self.admission.layout(body).await? {
            Layout::Kept(layout) => Some(layout),
            Layout::LeftOut => None,
            Layout::Accounts => {
                self.without_accounts = true;
                None
            }
        };
        if let Some(layout) = &layout
            && layout.by_session
        {
            self.admission.sessions.matters();
        }
        self.admission.reader.map(crate::changes::table_id(body), layout);
        Ok(None)
    }

    async fn rows(&mut self, event: &RawEvent) -> Result<Option<Verdict>> {
        // A map alone changes nothing: statements map tables of triggers and of joins, too.
        let layout = self.admission.reader.layout(crate::changes::table_id(event.body()));
        self.not_transactional |= layout.is_some_and(|layout| layout.keys.not_transactional);
        // Too large: only its tables matter here.
        if !self.whole {
            return Ok(self.not_transactional.then_some(Verdict::NotTransactional));
        }
        self.has_rows = true;
        self.admission.reader.rows(event)?;
        if self.admission.reader.held_bytes() <= self.admission.rows_limit {
            return Ok(None);
        }
        self.whole = false;
        if self.distributed {
            return Ok(Some(Verdict::Xa));
        }
        // Later tables decide, unless the answer is known.
        let is_known = self.not_transactional || !self.may_be_not_transactional().await?;
        Ok(is_known.then(|| self.end()))
    }

    /// The verdict on row changes that were read to their end.
    fn end(&self) -> Verdict {
        // All its tables are left out, or its statements changed no row.
        if !self.has_rows || (self.whole && self.admission.reader.has_nothing()) {
            return Verdict::LeftOut(match self.without_accounts {
                true => Omission::Accounts,
                false => Omission::Nothing,
            });
        }
        // As it was logged, it could not be sent without the statement.
        if self.has_statement {
            return Verdict::Refused(ROW_FORMAT.to_owned());
        }
        match self.not_transactional {
            true => Verdict::NotTransactional,
            false => Verdict::Rows,
        }
    }

    async fn may_be_not_transactional(&mut self) -> Result<bool> {
        self.admission.source.has_not_transactional().await.map_err(Failure::Keys)
    }
}

impl<K: KeySource> Admission<K> {
    /// Returns the decision about a table map, which is made once for the same bytes.
    async fn layout(&mut self, body: &[u8]) -> Result<Layout> {
        let definition = body.get(TableMap::ID_LEN..).unwrap_or_default();
        if let Some(layout) = self.layouts.get(definition) {
            return Ok(layout.clone());
        }
        let layout = self.new_layout(body).await?;
        self.layouts.insert(definition.into(), layout.clone());
        Ok(layout)
    }

    async fn new_layout(&mut self, body: &[u8]) -> Result<Layout> {
        let mapped = self.filters.table_map(body)?;
        let body = match &mapped {
            Mapped::LeftOut => {
                let map = TableMap::parse(body)?;
                let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let accounts =
                    self.filters.leaves_out_accounts_of(&name(map.schema), &name(map.table));
                return Ok(if accounts { Layout::Accounts } else { Layout::LeftOut });
            }
            Mapped::Kept => body,
            Mapped::Renamed(renamed) => renamed,
        };
        let map = TableMap::parse(body)?;
        let (id, keys) = self.source.table(map.schema, map.table).await.map_err(Failure::Keys)?;
        Ok(Layout::Kept(Arc::new(TableLayout::new(id, keys, &map, body)?)))
    }
}

fn describe(statement: &Statement, begun: bool) -> String {
    match statement {
        Statement::Dml | Statement::Emptying => ROW_FORMAT.to_owned(),
        Statement::Rollback if begun => {
            "ROLLBACK at the end of a transaction that changes rows".to_owned()
        }
        other if begun => format!("{other:?} statement inside a row transaction"),
        other => format!("{other:?} statement outside a transaction"),
    }
}

/// Returns the verdict on a transaction of the target's own server. Its statement has changed the definitions there, which
/// were read before.
fn returned(relayed: &RelayedTransaction) -> Result<Verdict> {
    for event in flattened_events(relayed) {
        let event = event.map_err(Failure::Stored)?;
        match event.event_type() {
            EventType::GTID | EventType::GTID_TAGGED | EventType::ROWS_QUERY => {}
            EventType::QUERY => match Statement::of(&QueryEvent::parse(event.body())?) {
                Statement::Begin => {}
                Statement::Ddl | Statement::CreateTableStartTransaction => {
                    return Ok(Verdict::ReturnedStatement);
                }
                _ => break,
            },
            _ => break,
        }
    }
    Ok(Verdict::LeftOut(Omission::Returned))
}
