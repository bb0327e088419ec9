//! Row changes out of a BINLOG statement.

use std::collections::BTreeMap;

use bytes::Bytes;
use csa_provider::binlog::{
    ChecksumAlgorithm, Column, ColumnValue, EventHeader, EventType, Field, RawEvent, RowsEvent,
    RowsKind, TableMap, ValueColumn,
};

use super::state::{TableName, Value};

/// Columns of a row image; `None` for those that it lacks.
pub(crate) type Image = Vec<Option<Value>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) table: TableName,
    pub(crate) kind: RowsKind,
    /// Empty for an insert.
    pub(crate) before: Image,
    /// Empty for a delete.
    pub(crate) after: Image,
    pub(crate) checks_references: bool,
}

#[derive(Debug)]
pub(crate) enum Events {
    Format,
    Rows(Vec<Change>),
}

struct Mapped {
    table: TableName,
    columns: Vec<Column>,
    values: Vec<ValueColumn>,
}

/// Reads events without checksums. Anything that a server refuses in a BINLOG statement is a panic.
pub(crate) fn read(bytes: &[u8]) -> Events {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut tables: BTreeMap<u64, Mapped> = BTreeMap::new();
    let (mut changes, mut is_open) = (Vec::new(), false);
    while !rest.is_empty() {
        let header = EventHeader::parse(&rest).expect("an event header");
        let event = rest.split_to(header.event_size as usize);
        let event = RawEvent::parse(event, ChecksumAlgorithm::Off).expect("an event");
        match header.event_type {
            EventType::FORMAT_DESCRIPTION => {
                assert!(rest.is_empty(), "a format description comes alone");
                return Events::Format;
            }
            EventType::TABLE_MAP => {
                let map = TableMap::parse(event.body()).expect("a table map");
                let text = |name| String::from_utf8_lossy(name).into_owned();
                let mapped = Mapped {
                    table: (text(map.schema), text(map.table)),
                    columns: map.columns().expect("known types"),
                    values: map.value_columns(true).expect("known types"),
                };
                tables.insert(map.table_id, mapped);
            }
            kind => {
                let rows = RowsEvent::parse(kind, event.body()).expect("rows");
                let rows = rows.unwrap_or_else(|| panic!("{} in BINLOG", kind.name()));
                let mapped = tables.get(&rows.table_id).expect("a table map before its rows");
                is_open = rows.flags & RowsEvent::STATEMENT_END == 0;
                read_rows(&rows, mapped, &mut changes);
            }
        }
    }
    assert!(!is_open, "BINLOG without the end of a statement");
    Events::Rows(changes)
}

fn read_rows(rows: &RowsEvent<'_>, mapped: &Mapped, changes: &mut Vec<Change>) {
    let mut images = rows.images;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    while !images.is_empty() {
        let len = rows.read_row(&mapped.columns, images, &mut before, &mut after);
        let len = len.expect("a row");
        changes.push(Change {
            table: mapped.table.clone(),
            kind: rows.kind,
            before: image(&mapped.values, &before),
            after: image(&mapped.values, &after),
            checks_references: rows.flags & RowsEvent::NO_FOREIGN_KEY_CHECKS == 0,
        });
        images = &images[len..];
    }
}

fn image(columns: &[ValueColumn], fields: &[Field<'_>]) -> Image {
    let read = |(column, field): (&ValueColumn, &Field<'_>)| match field {
        Field::Absent => None,
        Field::Null => Some(Value::Null),
        Field::Bytes(bytes) => {
            let value = ColumnValue::read(column.value_type, false, bytes).expect("a value");
            Some(match value {
                ColumnValue::Signed(number) => Value::Number(number),
                ColumnValue::Bytes(bytes) => Value::Text(String::from_utf8_lossy(bytes).into()),
                other => panic!("a value of a type that is not modelled: {other:?}"),
            })
        }
        Field::JsonDiff(_) => panic!("a partial JSON update"),
    };
    columns.iter().zip(fields).map(read).collect()
}
