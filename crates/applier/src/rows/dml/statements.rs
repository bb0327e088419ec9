//! The statement for one row, with `executor = "sql"`. Pure.

use std::sync::Arc;

use csa_provider::binlog::{Field, JsonDiff, RowsEvent, RowsKind};

use super::json::{push_diff_conditions, push_diffs};
use super::packets::{PacketWriter, Settings};
use super::plan::{PlannedColumn, PlannedKey, TablePlan};
use super::refusal::{Refusal, codes, unreadable};
use super::warnings::Tolerated;
use crate::server::definitions::table::{Generated, TargetType};
use csa_provider::server::Vendor;
use csa_provider::sql_text::identifier;

/// Makes the statements of one rows event.
#[derive(Debug)]
pub(super) struct RowStatements<'p> {
    pub(super) plan: &'p TablePlan<'p>,
    settings: Settings,
    kind: RowsKind,
    /// Beginning of the INSERT, and the values of columns that the images leave out.
    insert: Arc<[u8]>,
    implicit: Vec<u8>,
    /// Columns of these values that only a lenient session stores.
    implicit_lenient: Vec<&'p PlannedColumn<'p>>,
    /// Beginning of a DELETE by a list of keys, and its description for errors; by key.
    lists: Vec<(Arc<[u8]>, Arc<str>)>,
    pub(super) by_all: Arc<str>,
}

impl<'p> RowStatements<'p> {
    /// Prepares the statements; `written` is the time at which the source wrote the rows, in
    /// seconds since the epoch.
    pub(super) fn new(
        plan: &'p TablePlan<'p>,
        rows: &RowsEvent<'_>,
        written: u32,
    ) -> Result<Self, Refusal> {
        plan.check_rows_are_kept(rows.kind)?;
        plan.check_triggers(rows.kind)?;
        plan.check_cascades(rows)?;
        Self::of(plan, rows, Some(written))
    }

    /// As [`Self::new`], for statements that an operator reads before they are executed: triggers are
    /// no obstacle.
    pub(super) fn to_look_at(
        plan: &'p TablePlan<'p>,
        rows: &RowsEvent<'_>,
    ) -> Result<Self, Refusal> {
        Self::of(plan, rows, None)
    }

    fn of(
        plan: &'p TablePlan<'p>,
        rows: &RowsEvent<'_>,
        written: Option<u32>,
    ) -> Result<Self, Refusal> {
        if rows.width != plan.columns.len() {
            return Err(unreadable("column count differs from the table map's"));
        }
        let has = |flag| rows.flags & flag != 0;
        let settings = Settings {
            foreign_key_checks: !has(RowsEvent::NO_FOREIGN_KEY_CHECKS),
            unique_checks: !has(RowsEvent::RELAXED_UNIQUE_CHECKS),
            strict: plan.computed.is_none(),
        };
        let label = plan.table.label();
        let (verb, by_all) = match rows.kind {
            RowsKind::Write => ("insert into", ""),
            RowsKind::Update => ("update of", " by all columns"),
            RowsKind::Delete => ("delete from", " by all columns"),
        };
        let by = |key: &PlannedKey| Arc::from(format!("{verb} {label} by {}", key.label));
        let lists = plan.keys.iter().map(|key| (list_head(plan, key), by(key)));
        let mut statements = Self {
            plan,
            settings,
            kind: rows.kind,
            insert: Arc::default(),
            implicit: Vec::new(),
            implicit_lenient: Vec::new(),
            lists: lists.collect(),
            by_all: Arc::from(format!("{verb} {label}{by_all}")),
        };
        if rows.kind == RowsKind::Write {
            statements.begin_insert(rows.after, written)?;
        }
        Ok(statements)
    }

    /// Writes all rows of the event.
    pub(super) fn write(
        &self,
        rows: &RowsEvent<'_>,
        writer: &mut PacketWriter,
    ) -> Result<(), Refusal> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut rest = rows.images;
        // An empty image is one row without columns: INSERT INTO t () VALUES () with
        // binlog_row_image=MINIMAL.
        let mut empty = rest.is_empty();
        while !rest.is_empty() || empty {
            let row = rows.read_row(&self.plan.layout, rest, &mut before, &mut after);
            let len = row.map_err(unreadable)?;
            if len == 0 && !std::mem::take(&mut empty) {
                return Err(unreadable("row without a length"));
            }
            rest = rest.get(len..).unwrap_or_default();
            match self.kind {
                RowsKind::Write => self.insert(&after, writer)?,
                RowsKind::Update => self.update(&before, &after, writer)?,
                RowsKind::Delete => self.delete(&before, writer)?,
            }
        }
        Ok(())
    }

    /// Columns that the images leave out get their defaults, or the implicit default of their type, as
    /// in the source's session: without a default it can't have been strict. Where the default of a column
    /// that only the target has is the current time, the server's own applier takes the event's.
    fn begin_insert(&mut self, present: &[u8], written: Option<u32>) -> Result<(), Refusal> {
        let mut names: Vec<&'p str> = Vec::new();
        let mut implicit = Vec::new();
        let is_present =
            |place: usize| present.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1);
        for (place, column) in self.plan.columns.iter().enumerate() {
            if column.target.generated == Generated::No && is_present(place) {
                names.push(&column.quoted);
            }
        }
        let plan = self.plan;
        let mut lenient = Vec::new();
        let mut add = |name: &'p str, value: &[u8]| {
            implicit.extend_from_slice(if names.is_empty() { b"" } else { b"," });
            implicit.extend_from_slice(value);
            names.push(name);
        };
        for (place, column) in plan.columns.iter().enumerate() {
            if !is_present(place) && !column.target.has_default {
                add(&column.quoted, self.implicit_default(column)?);
                if column.target.target_type == TargetType::Vector {
                    lenient.push(column);
                }
            }
        }
        if let Some(written) = written {
            let time = format!("FROM_UNIXTIME({written})");
            let set = plan.extra.iter().filter(|(_, extra)| extra.is_now);
            set.for_each(|(quoted, _)| add(quoted, time.as_bytes()));
        }
        let head = format!("INSERT INTO {} ({}) VALUES ", self.plan.quoted, names.join(","));
        self.insert = head.into_bytes().into();
        self.implicit = implicit;
        self.implicit_lenient = lenient;
        Ok(())
    }

    pub(super) fn insert(
        &self,
        after: &[Field<'_>],
        writer: &mut PacketWriter,
    ) -> Result<(), Refusal> {
        let mut row = vec![b'('];
        let mut lenient = self.implicit_lenient.clone();
        for (column, field) in self.plan.columns.iter().zip(after) {
            if column.target.generated != Generated::No || *field == Field::Absent {
                continue;
            }
            if row.len() > 1 {
                row.push(b',');
            }
            if self.push_assigned(column, field, &mut row)? {
                lenient.push(column);
            }
        }
        row.extend_from_slice(&self.implicit);
        row.push(b')');
        match self.tolerating(&lenient) {
            Some((settings, tolerated)) => {
                let text: [&[u8]; 2] = [&self.insert, &row];
                writer.statement(settings, &text, &self.by_all, Some(&tolerated));
            }
            None => {
                let tolerated = self.plan.computed.as_ref();
                writer.list_row(self.settings, &self.insert, b"", &row, &self.by_all, tolerated);
            }
        }
        Ok(())
    }

    fn update(
        &self,
        before: &[Field<'_>],
        after: &[Field<'_>],
        writer: &mut PacketWriter,
    ) -> Result<(), Refusal> {
        let key = self.plan.key_for(before);
        let mut text = format!("UPDATE {}", self.plan.quoted).into_bytes();
        if let Some(key) = key {
            text.extend_from_slice(format!(" FORCE INDEX ({})", key.index).as_bytes());
        }
        text.extend_from_slice(b" SET ");
        let start = text.len();
        let mut conditions = Vec::new();
        let mut lenient = Vec::new();
        for (column, field) in self.plan.columns.iter().zip(after) {
            if column.target.generated != Generated::No {
                continue;
            }
            if *field == Field::Absent {
                if column.target.on_update {
                    push_kept(&column.quoted, start, &mut text);
                }
                continue;
            }
            push_assignment(&column.quoted, start, &mut text);
            match field {
                Field::JsonDiff(_) if self.plan.table.vendor == Vendor::MariaDb => {
                    let what = "a partial update of a JSON document, which MariaDB stores as text; \
                        SET GLOBAL binlog_row_value_options='' on the source";
                    return Err(self.refusal(column, codes::UNSUPPORTED, what.to_owned()));
                }
                Field::JsonDiff(diffs) => {
                    let diffs = JsonDiff::parse(diffs).map_err(unreadable)?;
                    let pushed = push_diffs(&column.quoted, &diffs, &mut text).and_then(|()| {
                        push_diff_conditions(&column.quoted, &diffs, writer.most, &mut conditions)
                    });
                    pushed.map_err(|what| self.refusal(column, codes::CONVERSION, what))?;
                }
                _ if self.push_assigned(column, field, &mut text)? => lenient.push(column),
                _ => {}
            }
        }
        if text.len() == start
            && let Some(column) = self.plan.columns.first()
        {
            // Nothing to assign, but the statement still has to check that the row is there.
            push_kept(&column.quoted, start, &mut text);
        }
        for (quoted, _) in self.plan.extra.iter().filter(|(_, extra)| extra.on_update) {
            push_kept(quoted, start, &mut text);
        }
        text.extend_from_slice(b" WHERE ");
        let what = self.push_condition(key, before, &mut text)?;
        text.extend_from_slice(&conditions);
        if key.is_none() {
            text.extend_from_slice(b" LIMIT 1");
        }
        match self.tolerating(&lenient) {
            Some((settings, tolerated)) => {
                writer.statement(settings, &[&text], &what, Some(&tolerated));
            }
            None => {
                writer.statement(self.settings, &[&text], &what, self.plan.computed.as_ref());
            }
        }
        Ok(())
    }

    /// Settings for a row with the ENUM value 0 (no member), or an empty VECTOR, in these columns: only a lenient session
    /// stores it, with a warning.
    fn tolerating(&self, lenient: &[&PlannedColumn<'_>]) -> Option<(Settings, Arc<Tolerated>)> {
        if lenient.is_empty() {
            return None;
        }
        let mut tolerated = self.plan.computed.as_deref().cloned().unwrap_or_default();
        tolerated.columns.extend(lenient.iter().map(|column| column.target.name.clone()));
        Some((Settings { strict: false, ..self.settings }, Arc::new(tolerated)))
    }

    fn delete(&self, before: &[Field<'_>], writer: &mut PacketWriter) -> Result<(), Refusal> {
        let key = self.plan.key_for(before);
        // One DELETE goes through its rows in the order of the index, which may not be the order of
        // parents and children in one table.
        if let Some(key) = key.filter(|key| key.listable && !self.plan.table.refers_to_itself) {
            let mut row = Vec::new();
            let several = key.columns.len() > 1;
            row.extend_from_slice(if several { b"(" } else { b"" });
            for (index, &place) in key.columns.iter().enumerate() {
                if index > 0 {
                    row.push(b',');
                }
                self.push_key_value(place, before, &mut row)?;
            }
            row.extend_from_slice(if several { b")" } else { b"" });
            if let Some((head, what)) = self.list_of(key) {
                let tolerated = self.plan.computed.as_ref();
                writer.list_row(self.settings, head, b")", &row, what, tolerated);
                return Ok(());
            }
        }
        let mut text = delete_from(self.plan, key).into_bytes();
        let what = self.push_condition(key, before, &mut text)?;
        if key.is_none() {
            text.extend_from_slice(b" LIMIT 1");
        }
        writer.statement(self.settings, &[&text], &what, self.plan.computed.as_ref());
        Ok(())
    }

    pub(super) fn list_of(&self, key: &PlannedKey) -> Option<&(Arc<[u8]>, Arc<str>)> {
        let place = self.plan.keys.iter().position(|known| std::ptr::eq(known, key))?;
        self.lists.get(place)
    }

    pub(super) fn refusal(&self, column: &PlannedColumn<'_>, code: u16, what: String) -> Refusal {
        let table = self.plan.table.label();
        Refusal::new(code, format!("column {} of {table}: {what}", column.target.name))
    }
}

/// The hint keeps the server from reading, and locking, the whole of a small table.
fn delete_from(plan: &TablePlan<'_>, key: Option<&PlannedKey>) -> String {
    let hint = key.filter(|_| plan.table.vendor == Vendor::MySql).map(|key| {
        let table = identifier(&plan.table.name);
        format!("/*+ INDEX({table} {}) */ ", key.index)
    });
    format!("DELETE {}FROM {} WHERE ", hint.unwrap_or_default(), plan.quoted)
}

fn list_head(plan: &TablePlan<'_>, key: &PlannedKey) -> Arc<[u8]> {
    let columns = key.columns.iter().filter_map(|&column| plan.columns.get(column));
    let names: Vec<&str> = columns.map(|column| column.quoted.as_str()).collect();
    let names = match names.as_slice() {
        [name] => (*name).to_owned(),
        names => format!("({})", names.join(",")),
    };
    format!("{}{names} IN (", delete_from(plan, Some(key))).into_bytes().into()
}

fn push_assignment(column: &str, start: usize, out: &mut Vec<u8>) {
    if out.len() > start {
        out.push(b',');
    }
    out.extend_from_slice(column.as_bytes());
    out.push(b'=');
}

/// Assigns a column its own value: not assigned, one with ON UPDATE would be set to the current time.
fn push_kept(column: &str, start: usize, out: &mut Vec<u8>) {
    push_assignment(column, start, out);
    out.extend_from_slice(column.as_bytes());
}
