//! Cuts source events into pieces that the target's BINLOG statement takes. Pure.
//!
//! BINLOG accepts table-map and rows events only, many of them and many statement ends in one
//! statement. A source statement may be larger than one packet: it is then cut between two rows
//! events, the first part gets a statement end of its own, and the table maps are repeated.

use std::sync::Arc;

use csa_provider::binlog::{
    EventHeader, EventType, Gtid, QueryEvent, RawEvent, SessionContext, TableMap, XaPrepareEvent,
};
use csa_provider::sql_text::{Dialect, Lexer, Statement, TokenKind, XaVerb};
use csa_scheduler::changes::RowChanges;
use csa_scheduler::filter::is_own;
use csa_scheduler::keys::TableLayout;

use super::updated_again::{self, EventPart};
use crate::error::{Error, Result};
use csa_provider::sql_text::identifier;

/// The BEGIN and COMMIT around the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The group's.
    Group,
    /// The transaction's own, as it was logged: it is not committed with others.
    Own,
}

/// One thing to send to the target, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    RowImages(RowImages),
    /// A statement inside the transaction: savepoints, and the first and last of [`Framing::Own`].
    Statement(Vec<u8>),
}

/// Row images that are sent at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowImages {
    /// Whole events without checksums, for one BINLOG statement.
    pub(crate) events: Vec<u8>,
    /// The session they were written in, if what the target computes from them depends on it.
    pub(crate) session: Option<Arc<SessionContext>>,
    /// Every row ends as it began, because its changes undo each other.
    pub(crate) is_undone: bool,
    /// The number of rows of the first event that went before, in a step of their own.
    pub(crate) rows_before: usize,
}

/// Offset of the two flag bytes in a rows event: after the header and a table id of six bytes.
pub(crate) const ROWS_FLAGS: usize = EventHeader::LEN + 6;
const STATEMENT_END: u8 = 1;

/// Cuts the events of one or more transactions into steps.
#[derive(Debug)]
pub(crate) struct RowImageCutter {
    limit: usize,
    framing: Framing,
    images: Vec<u8>,
    session: Option<Arc<SessionContext>>,
    /// Start and end in `images` of the last rows event.
    last_rows: Option<(usize, usize)>,
    /// See [`RowImages::rows_before`].
    rows_before: usize,
    /// Table maps of the source statement that is open.
    maps: Vec<Vec<u8>>,
    statement_open: bool,
    /// The transaction has changed rows.
    has_rows: bool,
    /// The source's table id of another daemon's checkpoint table, whose rows are left out.
    checkpoints: Option<Vec<u8>>,
    /// Tables that are known to have no index on the target.
    unindexed: Vec<Arc<TableLayout>>,
}

impl RowImageCutter {
    /// `limit`: bytes of row images in one step; an event larger than that goes alone.
    pub(crate) fn new(limit: usize, framing: Framing) -> Self {
        Self {
            limit,
            framing,
            images: Vec::new(),
            session: None,
            last_rows: None,
            rows_before: 0,
            maps: Vec::new(),
            statement_open: false,
            has_rows: false,
            checkpoints: None,
            unindexed: Vec::new(),
        }
    }

    /// The events to come are of a transaction with this session.
    pub(crate) fn enter(&mut self, session: Option<&Arc<SessionContext>>, ready: &mut Vec<Step>) {
        // Rows without a session mean the same in any.
        if session.is_some() && self.session.as_ref() != session {
            self.cut(ready);
            self.session = session.cloned();
        }
    }

    /// Takes from a transaction's changes which of its tables have no index on the target. `None`: they were not read, and any
    /// table may have one.
    pub(crate) fn learn(&mut self, changes: Option<&RowChanges>) {
        self.unindexed.clear();
        for block in changes.iter().flat_map(|changes| &changes.blocks) {
            let is_known = |known: &Arc<TableLayout>| Arc::ptr_eq(known, &block.layout);
            if !block.layout.keys.has_index && !self.unindexed.iter().any(is_known) {
                self.unindexed.push(Arc::clone(&block.layout));
            }
        }
    }

    /// Takes the next event; `ready` receives the steps it completed.
    ///
    /// # Errors
    /// An event that has no place in a row transaction, named with its transaction.
    pub(crate) fn push(
        &mut self,
        gtid: &Gtid,
        event: &RawEvent,
        ready: &mut Vec<Step>,
    ) -> Result<()> {
        let event_type = event.event_type();
        match event_type {
            EventType::TABLE_MAP => self.table_map(event),
            _ if event_type.is_rows() => match self.divided(event) {
                Some(parts) => self.rows_in_parts(&parts, ready),
                None => self.rows(event, ready),
            },
            EventType::QUERY => return self.query(gtid, event, ready),
            EventType::GTID | EventType::GTID_TAGGED | EventType::ROWS_QUERY => {}
            EventType::XID => self.own(b"COMMIT", ready),
            EventType::XA_PREPARE => {
                let end = XaPrepareEvent::parse(event)
                    .map_err(|error| unreadable(gtid, "XA prepare", &error))?;
                let statement = match end.one_phase {
                    true => format!("XA COMMIT {} ONE PHASE", end.xid),
                    false => format!("XA PREPARE {}", end.xid),
                };
                self.own(statement.as_bytes(), ready);
            }
            other => {
                return Err(Error::Unsupported {
                    gtid: gtid.to_string(),
                    what: format!("{} event in a row transaction", other.name()),
                });
            }
        }
        Ok(())
    }

    /// Makes the last step, if anything is left.
    pub(crate) fn finish(&mut self, ready: &mut Vec<Step>) {
        self.cut(ready);
    }

    fn table_map(&mut self, event: &RawEvent) {
        if !self.statement_open {
            self.maps.clear();
            self.statement_open = true;
        }
        let is_own = TableMap::parse(event.body()).is_ok_and(|map| is_own(map.schema, map.table));
        if is_own {
            self.checkpoints = Some(table_id(event).to_vec());
            return;
        }
        self.checkpoints.take_if(|own| own == table_id(event));
        let mut map = Vec::with_capacity(event.len());
        event.write_without_checksum(&mut map);
        self.images.extend_from_slice(&map);
        self.maps.push(map);
    }

    /// Returns the parts in which an event must be sent. A malformed one is sent as it is: the server says what is
    /// wrong with it.
    fn divided(&self, event: &RawEvent) -> Option<Vec<EventPart>> {
        let mut bodies = self.maps.iter().filter_map(|map| map.get(EventHeader::LEN..));
        let map = bodies.find(|body| body.starts_with(table_id(event)))?;
        let definition = map.get(TableMap::ID_LEN..)?;
        let has_index = !self.unindexed.iter().any(|layout| *layout.table_map == *definition);
        updated_again::divided(event, &TableMap::parse(map).ok()?, has_index).ok()?
    }

    /// Each part ends its step, so that the target does not join them in its own binary log.
    fn rows_in_parts(&mut self, parts: &[EventPart], ready: &mut Vec<Step>) {
        for part in parts {
            self.rows(&part.event, ready);
            // Only the first part may follow other events in its step.
            self.rows_before = part.rows_before;
            self.cut(ready);
        }
    }

    fn rows(&mut self, event: &RawEvent, ready: &mut Vec<Step>) {
        self.has_rows = true;
        if self.checkpoints.as_deref().is_some_and(|own| own == table_id(event)) {
            let flags = event.body().get(TableMap::ID_LEN);
            if flags.is_some_and(|flags| flags & STATEMENT_END != 0) {
                self.end_statement();
            }
            return;
        }
        // Not before the first rows: maps alone are no step, and one event may exceed the limit.
        if self.last_rows.is_some() && self.images.len() + event.len() > self.limit {
            self.cut(ready);
        }
        let start = self.images.len();
        event.write_without_checksum(&mut self.images);
        self.last_rows = Some((start, self.images.len()));
        if self.images.get(start + ROWS_FLAGS).is_some_and(|flags| flags & STATEMENT_END != 0) {
            self.statement_open = false;
        }
    }

    /// Lets the last event end the statement: the one that ended it on the source is left out.
    fn end_statement(&mut self) {
        self.statement_open = false;
        if let Some((start, _)) = self.last_rows {
            set_statement_end(&mut self.images, start);
        }
    }

    fn query(&mut self, gtid: &Gtid, event: &RawEvent, ready: &mut Vec<Step>) -> Result<()> {
        let query =
            QueryEvent::parse(event.body()).map_err(|error| unreadable(gtid, "query", &error))?;
        match Statement::of(&query) {
            Statement::Savepoint | Statement::RollbackTo => {
                let Some(text) = of_savepoint(query.statement) else {
                    let what =
                        "a statement about a savepoint that has more than its name".to_owned();
                    return Err(Error::Unsupported { gtid: gtid.to_string(), what });
                };
                self.cut(ready);
                ready.push(Step::Statement(text));
            }
            // Its rows must not be committed with others, and they may be sent already.
            Statement::Rollback if self.has_rows => {
                return Err(Error::Unsupported {
                    gtid: gtid.to_string(),
                    what: "ROLLBACK at the end of a transaction that changes rows".to_owned(),
                });
            }
            Statement::Begin => {
                self.has_rows = false;
                self.own(query.statement, ready);
            }
            Statement::Commit
            | Statement::Rollback
            | Statement::Xa(XaVerb::Start | XaVerb::End) => self.own(query.statement, ready),
            // A change in statement format may follow the rows that admission has read.
            other if self.framing == Framing::Own && other != Statement::Dml => {
                self.own(query.statement, ready);
            }
            other => {
                return Err(Error::Unsupported {
                    gtid: gtid.to_string(),
                    what: format!("{other:?} statement in a row transaction"),
                });
            }
        }
        Ok(())
    }

    /// Adds a statement that only a transaction of its own needs.
    fn own(&mut self, statement: &[u8], ready: &mut Vec<Step>) {
        if self.framing == Framing::Own {
            self.cut(ready);
            ready.push(Step::Statement(statement.to_vec()));
        }
    }

    /// Ends a step after the last rows event; table maps without rows yet move to the next one.
    fn cut(&mut self, ready: &mut Vec<Step>) {
        let Some((start, end)) = self.last_rows.take() else {
            if !self.statement_open {
                self.images.clear();
            }
            return;
        };
        let mut images = std::mem::take(&mut self.images);
        images.truncate(end);
        set_statement_end(&mut images, start);
        ready.push(Step::RowImages(RowImages {
            events: images,
            session: self.session.clone(),
            is_undone: false,
            rows_before: std::mem::take(&mut self.rows_before),
        }));
        if self.statement_open {
            for map in &self.maps {
                self.images.extend_from_slice(map);
            }
        }
    }
}

fn unreadable(gtid: &Gtid, event: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Unsupported {
        gtid: gtid.to_string(),
        what: format!("unreadable {event} event: {error}"),
    }
}

/// Returns the statement with the savepoint's name in backticks. Under ANSI_QUOTES the source's session has it in double
/// quotes, which enclose a string in ours. The server wrote the statement itself, in UTF-8.
///
/// `None`: there is more in it. It shares a packet with others, so the target would execute a second statement in it.
fn of_savepoint(statement: &[u8]) -> Option<Vec<u8>> {
    let dialect = Dialect::of_names();
    let tokens: std::result::Result<Vec<_>, _> = Lexer::new(statement, dialect).collect();
    let tokens = tokens.ok()?;
    let (name, words) = tokens.split_last()?;
    if words.iter().any(|word| word.kind != TokenKind::Word) {
        return None;
    }
    let name = match name.kind {
        TokenKind::Word => name.text.to_vec(),
        _ => identifier(&dialect.name(name)?).into_bytes(),
    };
    let parts: Vec<&[u8]> = words.iter().map(|word| word.text).chain([name.as_slice()]).collect();
    Some(parts.join(&b' '))
}

/// Marks the rows event at the offset `rows` as the end of its statement.
pub(crate) fn set_statement_end(images: &mut [u8], rows: usize) {
    if let Some(flags) = images.get_mut(rows + ROWS_FLAGS) {
        *flags |= STATEMENT_END;
    }
}

pub(crate) fn clear_statement_end(images: &mut [u8], rows: usize) {
    if let Some(flags) = images.get_mut(rows + ROWS_FLAGS) {
        *flags &= !STATEMENT_END;
    }
}

fn table_id(event: &RawEvent) -> &[u8] {
    event.body().get(..TableMap::ID_LEN).unwrap_or_default()
}

#[cfg(test)]
mod tests;
