use std::collections::VecDeque;
use std::sync::Arc;

use csa_provider::binlog::{EventError, EventType, Gtid, RawEvent, RowsEvent, TableMap};

use super::Filters;
use crate::changes::{malformed, table_id};
use crate::error::{Error, Result};

/// A transaction's events as the target receives them: without the tables that are left out, and
/// with renamed schemas.
///
/// The last kept rows event of a source statement ends it, even if another one did on the source.
/// Table maps are held until rows follow.
#[derive(Debug)]
pub(crate) struct KeptEvents<I> {
    events: I,
    gtid: Gtid,
    filters: Arc<Filters>,
    /// The source's table numbers, and true for tables that are kept.
    tables: foldhash::HashMap<u64, bool>,
    /// Maps not yet followed by rows.
    maps: Vec<RawEvent>,
    /// Held back because it may have to end its statement.
    last_rows: Option<RawEvent>,
    ready: VecDeque<RawEvent>,
    /// More events may come after those there are now.
    continues: bool,
}

/// The place of the flags' low byte in the body of a rows event.
const FLAGS: usize = TableMap::ID_LEN;

impl<I: Iterator<Item = Result<RawEvent>>> KeptEvents<I> {
    pub(crate) fn new(gtid: Gtid, filters: Arc<Filters>, events: I) -> Self {
        Self {
            events,
            gtid,
            filters,
            tables: foldhash::HashMap::default(),
            maps: Vec::new(),
            last_rows: None,
            ready: VecDeque::new(),
            continues: false,
        }
    }

    /// Of a transaction that is still being received: a first end is not the last one.
    pub(crate) fn continuing(self, continues: bool) -> Self {
        Self { continues, ..self }
    }

    fn take(&mut self, event: RawEvent) -> std::result::Result<(), EventError> {
        let event_type = event.event_type();
        if event_type == EventType::TABLE_MAP {
            return self.table_map(event);
        }
        if event_type.is_rows() {
            return self.rows(event);
        }
        // Rows held back keep their place before it.
        self.ready.extend(self.last_rows.take());
        self.ready.push_back(event);
        Ok(())
    }

    fn table_map(&mut self, event: RawEvent) -> std::result::Result<(), EventError> {
        let body = event.body();
        let id = table_id(body);
        let mapped = self.filters.table_map(body)?;
        self.tables.insert(id, mapped != Mapped::LeftOut);
        match mapped {
            Mapped::Renamed(body) => self.maps.push(event.with_body(&body)),
            Mapped::Kept => self.maps.push(event),
            Mapped::LeftOut => {}
        }
        Ok(())
    }

    fn rows(&mut self, event: RawEvent) -> std::result::Result<(), EventError> {
        let body = event.body();
        let id = table_id(body);
        let &kept = self.tables.get(&id).ok_or_else(|| malformed("table map is missing"))?;
        let &flags = body.get(FLAGS).ok_or_else(|| malformed("flags"))?;
        if kept {
            self.ready.extend(self.last_rows.take());
            // All maps of a statement go before its rows: the server opens no table after the first
            // rows.
            self.ready.extend(self.maps.drain(..));
            self.last_rows = Some(event);
        }
        // Table maps apply up to the end of their statement.
        if u16::from(flags) & RowsEvent::STATEMENT_END != 0 {
            self.maps.clear();
            self.ready.extend(self.last_rows.take().map(end_statement));
        }
        Ok(())
    }
}

impl<I: Iterator<Item = Result<RawEvent>>> Iterator for KeptEvents<I> {
    type Item = Result<RawEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let Some(event) = self.events.next() else {
                // The event that ends a transaction has let go of them, if it has arrived.
                return self.last_rows.take_if(|_| !self.continues).map(Ok);
            };
            let taken = event.and_then(|event| {
                self.take(event).map_err(|source| Error::Unreadable {
                    gtid: self.gtid.clone(),
                    source: Box::new(source),
                })
            });
            if let Err(error) = taken {
                return Some(Err(error));
            }
        }
    }
}

/// The decision of the filters about a table map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// The rows after it are not applied.
    LeftOut,
    Kept,
    /// Its body with the schema's name on the target.
    Renamed(Vec<u8>),
}

impl Filters {
    /// Decides about the table map with this body.
    ///
    /// # Errors
    /// Malformed bytes.
    pub(crate) fn table_map(&self, body: &[u8]) -> std::result::Result<Mapped, EventError> {
        let map = TableMap::parse(body)?;
        let schema = String::from_utf8_lossy(map.schema);
        match self.table(&schema, &String::from_utf8_lossy(map.table)) {
            None => Ok(Mapped::LeftOut),
            Some(target) if target == schema => Ok(Mapped::Kept),
            Some(target) => TableMap::with_schema(body, target.as_bytes()).map(Mapped::Renamed),
        }
    }
}

fn end_statement(rows: RawEvent) -> RawEvent {
    let mut body = rows.body().to_vec();
    match body.get_mut(FLAGS) {
        Some(flags) if u16::from(*flags) & RowsEvent::STATEMENT_END == 0 => {
            *flags |= RowsEvent::STATEMENT_END as u8;
            rows.with_body(&body)
        }
        _ => rows,
    }
}
