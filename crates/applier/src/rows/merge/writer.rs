use std::sync::Arc;

use csa_provider::binlog::{EventHeader, EventType, RowsEvent, RowsKind, SessionContext, TableMap};
use csa_scheduler::keys::TableLayout;

use crate::rows::binlog_statements::RowImages;

/// Rows events end at this size: the server holds each in memory as a whole.
const EVENT_BYTES: usize = 1 << 20;

/// Room for the heads of events and the table maps of a statement, beside its rows.
const HEADS_BYTES: usize = 4 << 10;

/// Properties that all rows of an event share.
#[derive(Debug)]
pub(super) struct EventHead<'a> {
    pub(super) layout: &'a TableLayout,
    pub(super) kind: RowsKind,
    pub(super) flags: u16,
    pub(super) server_id: u32,
    pub(super) timestamp: u32,
    /// The session that wrote the rows, where that matters.
    pub(super) session: Option<&'a Arc<SessionContext>>,
    /// Column count and bitmaps; `None` for all columns.
    pub(super) columns: Option<&'a [u8]>,
    /// Every row ends as it began.
    pub(super) is_undone: bool,
}

/// Builds events without checksums into statements for BINLOG: table maps first, then rows events, the
/// last of which has the statement end flag.
#[derive(Debug)]
pub(super) struct StatementWriter {
    limit: usize,
    event_bytes: usize,
    statements: Vec<RowImages>,
    maps: Vec<u8>,
    rows: Vec<u8>,
    /// Layouts that are mapped, by address; a table's id is its place here plus one.
    mapped: Vec<usize>,
    flags: u16,
    session: Option<Arc<SessionContext>>,
    /// So far every row ends as it began.
    is_undone: bool,
    /// Start of the last rows event in `rows`.
    last: usize,
}

impl StatementWriter {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            event_bytes: EVENT_BYTES.min(limit / 2),
            statements: Vec::new(),
            maps: Vec::new(),
            rows: Vec::new(),
            mapped: Vec::new(),
            flags: 0,
            session: None,
            is_undone: true,
            last: 0,
        }
    }

    /// Appends rows: before and after image of each, empty where there is none.
    pub(super) fn rows(&mut self, head: &EventHead<'_>, images: &[(&[u8], &[u8])]) {
        // A buffer that grows while it is filled is copied again and again.
        let bytes: usize = images.iter().map(|(before, after)| before.len() + after.len()).sum();
        self.rows.reserve(bytes.min(self.limit) + HEADS_BYTES);
        let mut images = images.iter().peekable();
        while let Some((before, after)) = images.peek() {
            let next = self.rows_head_len(head) + before.len() + after.len();
            let map = self.new_map_len(head);
            if !self.rows.is_empty()
                && (self.flags != head.flags || self.is_full(map, next) || self.is_of_another(head))
            {
                self.end_statement();
            }
            if head.session.is_some() {
                self.session = head.session.cloned();
            }
            self.flags = head.flags;
            self.is_undone &= head.is_undone;
            let table_id = self.table_id(head);
            self.begin_rows(head, table_id);
            while let Some((before, after)) = images.next_if(|(before, after)| {
                let len = self.rows.len() - self.last;
                let begun = len > self.rows_head_len(head);
                !begun || len + before.len() + after.len() <= self.event_bytes
            }) {
                self.rows.extend_from_slice(before);
                self.rows.extend_from_slice(after);
            }
            self.end_event();
        }
    }

    /// True if the statement has rows of another session, and the session matters to both.
    fn is_of_another(&self, head: &EventHead<'_>) -> bool {
        head.session.is_some() && self.session.is_some() && self.session.as_ref() != head.session
    }

    /// True if another event might not fit, with its table map; with its first row it has `next` bytes.
    fn is_full(&self, map: usize, next: usize) -> bool {
        self.maps.len() + self.rows.len() + map + next.max(self.event_bytes) > self.limit
    }

    /// Returns the bytes of the table map that the statement still lacks.
    fn new_map_len(&self, head: &EventHead<'_>) -> usize {
        match self.place_of(head.layout) {
            Some(_) => 0,
            None => EventHeader::LEN + TableMap::ID_LEN + head.layout.table_map.len(),
        }
    }

    fn place_of(&self, layout: &TableLayout) -> Option<usize> {
        let layout = std::ptr::from_ref(layout) as usize;
        self.mapped.iter().position(|&mapped| mapped == layout)
    }

    /// Returns all statements.
    pub(super) fn finish(mut self) -> Vec<RowImages> {
        self.end_statement();
        self.statements
    }

    fn rows_head_len(&self, head: &EventHead<'_>) -> usize {
        let width = head.layout.columns.len();
        let bitmaps = if head.kind == RowsKind::Update { 2 } else { 1 };
        let columns = head
            .columns
            .map_or_else(|| length_encoded(width).len() + bitmaps * width.div_ceil(8), <[u8]>::len);
        EventHeader::LEN + TableMap::ID_LEN + 4 + columns
    }

    fn table_id(&mut self, head: &EventHead<'_>) -> u64 {
        if let Some(place) = self.place_of(head.layout) {
            return place as u64 + 1;
        }
        self.mapped.push(std::ptr::from_ref(head.layout) as usize);
        let table_id = self.mapped.len() as u64;
        let start = self.maps.len();
        push_header(&mut self.maps, EventType::TABLE_MAP, head);
        self.maps.extend_from_slice(&table_id.to_le_bytes()[..TableMap::ID_LEN]);
        self.maps.extend_from_slice(&head.layout.table_map);
        set_size(&mut self.maps, start);
        table_id
    }

    fn begin_rows(&mut self, head: &EventHead<'_>, table_id: u64) {
        self.last = self.rows.len();
        let event_type = match head.kind {
            RowsKind::Write => EventType::WRITE_ROWS,
            RowsKind::Update => EventType::UPDATE_ROWS,
            RowsKind::Delete => EventType::DELETE_ROWS,
        };
        push_header(&mut self.rows, event_type, head);
        self.rows.extend_from_slice(&table_id.to_le_bytes()[..TableMap::ID_LEN]);
        self.rows.extend_from_slice(&head.flags.to_le_bytes());
        // No extra data: a length that counts itself.
        self.rows.extend_from_slice(&2_u16.to_le_bytes());
        match head.columns {
            Some(columns) => self.rows.extend_from_slice(columns),
            None => {
                let width = head.layout.columns.len();
                self.rows.extend_from_slice(&length_encoded(width));
                let bitmaps = if head.kind == RowsKind::Update { 2 } else { 1 };
                for _ in 0..bitmaps {
                    self.rows.resize(self.rows.len() + width.div_ceil(8), 0xff);
                }
            }
        }
    }

    fn end_event(&mut self) {
        set_size(&mut self.rows, self.last);
    }

    pub(super) fn end_statement(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let flags = self.last + EventHeader::LEN + TableMap::ID_LEN;
        if let Some(flags) = self.rows.get_mut(flags) {
            *flags |= RowsEvent::STATEMENT_END as u8;
        }
        let mut events = std::mem::take(&mut self.rows);
        events.splice(..0, self.maps.drain(..));
        let is_undone = std::mem::replace(&mut self.is_undone, true);
        let session = self.session.take();
        self.statements.push(RowImages { events, session, is_undone, rows_before: 0 });
        // The server forgets table maps at a statement's end.
        self.mapped.clear();
        self.last = 0;
    }
}

fn push_header(out: &mut Vec<u8>, event_type: EventType, head: &EventHead<'_>) {
    out.extend_from_slice(&head.timestamp.to_le_bytes());
    out.push(event_type.0);
    out.extend_from_slice(&head.server_id.to_le_bytes());
    // Size, set when the event ends; no position, no flags.
    out.extend_from_slice(&[0; 10]);
}

fn set_size(out: &mut [u8], start: usize) {
    let size = u32::try_from(out.len() - start).unwrap_or(u32::MAX).to_le_bytes();
    let at = start + EventHeader::EVENT_SIZE_OFFSET;
    if let Some(field) = out.get_mut(at..at + size.len()) {
        field.copy_from_slice(&size);
    }
}

/// An integer as the client protocol writes it.
pub(super) fn length_encoded(value: usize) -> Vec<u8> {
    match value {
        0..=250 => vec![value as u8],
        251..=0xffff => [&[0xfc], &(value as u16).to_le_bytes()[..]].concat(),
        _ => [&[0xfd], &(value as u32).to_le_bytes()[..3]].concat(),
    }
}
