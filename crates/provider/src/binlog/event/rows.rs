//! Row images: the beginning and end of each, and the places of its columns. `ColumnValue::read`
//! (value/mod.rs) reads a value.

use std::ops::Range;

use super::{Column, ColumnType, EventError, EventType, TableMap};
use crate::binlog::bytes_reader::{Malformed, Reader};

/// The kind of change in a rows event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowsKind {
    Write,
    Update,
    Delete,
}

/// A rows event of version 2 (MySQL 5.6 and newer), borrowed from its body.
#[derive(Debug, Clone, Copy)]
pub struct RowsEvent<'a> {
    pub table_id: u64,
    pub kind: RowsKind,
    /// After images may hold changes of JSON documents instead of documents.
    partial: bool,
    /// [`Self::STATEMENT_END`] and the flags of the session that wrote it.
    pub flags: u16,
    /// Columns of the table map.
    pub width: usize,
    /// One bit for each column in the before image; empty for a write.
    pub before: &'a [u8],
    /// One bit for each column in the after image; empty for a delete.
    pub after: &'a [u8],
    /// The offset in the body of the column count, which begins the description of the images.
    pub columns_at: usize,
    /// The offset in the body at which the images begin.
    pub images_at: usize,
    pub images: &'a [u8],
}

/// A row's images in an update, before and after.
pub type UpdatedRow<'a> = (&'a [u8], &'a [u8]);

impl<'a> RowsEvent<'a> {
    // Bits of the server's `Rows_event::enum_flag`.
    pub const STATEMENT_END: u16 = 1;
    pub const NO_FOREIGN_KEY_CHECKS: u16 = 2;
    pub const RELAXED_UNIQUE_CHECKS: u16 = 4;
    /// The rows that a cascade of these changes are in events of their own (MySQL since 9.6, unless
    /// `innodb_native_foreign_keys` is on there).
    pub const LOGS_CASCADES: u16 = 0x10;

    /// Reads the body of a rows event; `None` if images are not plain (partial JSON updates, and
    /// version 1).
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn parse(event_type: EventType, body: &'a [u8]) -> Result<Option<Self>, EventError> {
        let kind = match event_type {
            EventType::WRITE_ROWS => RowsKind::Write,
            EventType::UPDATE_ROWS => RowsKind::Update,
            EventType::DELETE_ROWS => RowsKind::Delete,
            _ => return Ok(None),
        };
        Self::read(kind, body).map(Some).map_err(malformed)
    }

    /// Reads the body of a rows event, partial JSON updates too; `None` for version 1. Only
    /// [`Self::read_row`] can read the images of partial updates.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn parse_any(event_type: EventType, body: &'a [u8]) -> Result<Option<Self>, EventError> {
        match event_type {
            EventType::PARTIAL_UPDATE_ROWS => {
                let event = Self::read(RowsKind::Update, body).map_err(malformed)?;
                Ok(Some(Self { partial: true, ..event }))
            }
            _ => Self::parse(event_type, body),
        }
    }

    fn read(kind: RowsKind, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let table_id = reader.uint(TableMap::ID_LEN, "table id")?;
        let flags = reader.u16("flags")?;
        let extra = usize::from(reader.u16("extra data length")?);
        let extra = extra.checked_sub(2).ok_or_else(|| reader.malformed("extra data length"))?;
        if extra > 0 {
            // Partition numbers and NDB's own data are not needed to apply the images.
            reader.take(extra, "extra data")?;
        }
        let columns_at = reader.offset();
        let width = reader.length_encoded("column count")? as usize;
        let bitmap = width.div_ceil(8);
        let empty: &[u8] = &[];
        let first = reader.take(bitmap, "columns in the image")?;
        let (before, after) = match kind {
            RowsKind::Write => (empty, first),
            RowsKind::Delete => (first, empty),
            RowsKind::Update => (first, reader.take(bitmap, "columns in the after image")?),
        };
        let images_at = reader.offset();
        let images = reader.rest();
        Ok(Self {
            table_id,
            kind,
            partial: false,
            flags,
            width,
            before,
            after,
            columns_at,
            images_at,
            images,
        })
    }

    /// Returns true if every image has all columns as plain values.
    #[must_use]
    pub fn has_whole_images(&self) -> bool {
        !self.partial
            && (self.kind == RowsKind::Write || is_full_image(self.before, self.width))
            && (self.kind == RowsKind::Delete || is_full_image(self.after, self.width))
    }

    /// Returns the images before and after of each row, of an event of updates without partial ones.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn updated_rows(&self, columns: &[Column]) -> Result<Vec<UpdatedRow<'a>>, EventError> {
        let mut rest = self.images;
        let mut image = |bitmap| -> Result<&'a [u8], EventError> {
            let length = scan_image(columns, bitmap, rest, &[], |_, _| {})?;
            let image = rest.split_at_checked(length).ok_or_else(|| cut(length))?;
            rest = image.1;
            Ok(image.0)
        };
        let mut found = Vec::new();
        let mut length = 0;
        while length < self.images.len() {
            let row = (image(self.before)?, image(self.after)?);
            let row_length = row.0.len() + row.1.len();
            // Images without columns, which no server writes, would have no end.
            if row_length == 0 {
                return Err(cut(length));
            }
            length += row_length;
            found.push(row);
        }
        Ok(found)
    }

    /// Reads the row at the start of `bytes`: the fields of both images, as far as the kind has them.
    /// Returns its length.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn read_row<'b>(
        &self,
        columns: &[Column],
        bytes: &'b [u8],
        before: &mut Vec<Field<'b>>,
        after: &mut Vec<Field<'b>>,
    ) -> Result<usize, EventError> {
        before.clear();
        after.clear();
        let mut at = 0;
        if self.kind != RowsKind::Write {
            at = read_image(columns, self.before, bytes, before)?;
        }
        if self.kind == RowsKind::Delete {
            return Ok(at);
        }
        let rest = bytes.get(at..).unwrap_or_default();
        if !self.partial {
            return Ok(at + read_image(columns, self.after, rest, after)?);
        }
        let (partial, skipped) = read_partial(columns, rest).map_err(malformed)?;
        let rest = rest.get(skipped..).unwrap_or_default();
        let len = read_image(columns, self.after, rest, after)?;
        mark_partial(columns, partial, after);
        Ok(at + skipped + len)
    }
}

/// One column of a row image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field<'a> {
    /// The image does not have the column.
    Absent,
    Null,
    /// The value without its length bytes.
    Bytes(&'a [u8]),
    /// Changes of a JSON document, for [`super::JsonDiff::parse`].
    JsonDiff(&'a [u8]),
}

fn read_image<'b>(
    columns: &[Column],
    bitmap: &[u8],
    bytes: &'b [u8],
    fields: &mut Vec<Field<'b>>,
) -> Result<usize, EventError> {
    scan(columns, bitmap, bytes, |place, value| {
        fields.push(match value {
            Value::Absent => Field::Absent,
            Value::Null => Field::Null,
            Value::At(range) => {
                let prefix = columns.get(place).map_or(0, |column| column.column_type.prefix_len());
                Field::Bytes(bytes.get(range.start + prefix..range.end).unwrap_or_default())
            }
        });
    })
}

/// Reads the bits before an after image that mark JSON columns with changes instead of a document,
/// one for each JSON column of the table. Returns them and their length (WL#2955).
fn read_partial<'b>(columns: &[Column], bytes: &'b [u8]) -> Result<(&'b [u8], usize), Malformed> {
    const PARTIAL_JSON: u64 = 1;
    let mut reader = Reader::new(bytes);
    let options = reader.length_encoded("row value options")?;
    if options & !PARTIAL_JSON != 0 {
        return Err(reader.malformed("unknown row value options"));
    }
    let count = columns.iter().filter(|column| is_json(column)).count();
    let bits = match options {
        0 => &[][..],
        _ => reader.take(count.div_ceil(8), "partial columns")?,
    };
    Ok((bits, reader.offset()))
}

fn mark_partial(columns: &[Column], partial: &[u8], fields: &mut [Field<'_>]) {
    let json = columns.iter().zip(fields).filter(|(column, _)| is_json(column));
    for (number, (_, field)) in json.enumerate() {
        if is_set(partial, number)
            && let Field::Bytes(bytes) = *field
        {
            *field = Field::JsonDiff(bytes);
        }
    }
}

const fn is_json(column: &Column) -> bool {
    matches!(column.column_type, ColumnType::Json(_))
}

/// Returns true if all of `width` columns are in an image.
fn is_full_image(bitmap: &[u8], width: usize) -> bool {
    (0..width).all(|column| is_set(bitmap, column))
}

fn is_set(bitmap: &[u8], bit: usize) -> bool {
    bitmap.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

/// The place of a column's value in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The image does not have the column.
    Absent,
    Null,
    /// A range of the scanned bytes, including the value's length bytes.
    At(Range<usize>),
}

/// Finds the end of one image at the start of `bytes`, and calls `found` with the places of the
/// `wanted` columns, which are in ascending order.
///
/// # Errors
/// Malformed bytes.
pub fn scan_image(
    columns: &[Column],
    bitmap: &[u8],
    bytes: &[u8],
    wanted: &[usize],
    mut found: impl FnMut(usize, Value),
) -> Result<usize, EventError> {
    let mut wanted = wanted.iter().copied().enumerate().peekable();
    scan(columns, bitmap, bytes, |index, value| {
        if let Some((place, _)) = wanted.next_if(|(_, wanted)| *wanted == index) {
            found(place, value);
        }
    })
}

/// Returns [`scan_image`] for all columns.
fn scan(
    columns: &[Column],
    bitmap: &[u8],
    bytes: &[u8],
    mut found: impl FnMut(usize, Value),
) -> Result<usize, EventError> {
    let present = if columns.len() <= 64 && is_full_image(bitmap, columns.len()) {
        columns.len()
    } else {
        (0..columns.len()).filter(|&column| is_set(bitmap, column)).count()
    };
    let full = present == columns.len();
    // One NULL bit for each column in the image, not for each column of the table.
    let nulls = bytes.get(..present.div_ceil(8)).ok_or_else(|| cut(0))?;
    let mut at = nulls.len();
    let mut bit = 0;
    for (index, column) in columns.iter().enumerate() {
        let value = if !full && !is_set(bitmap, index) {
            Value::Absent
        } else {
            let null = is_set(nulls, bit);
            bit += 1;
            if null {
                Value::Null
            } else {
                let rest = bytes.get(at..).unwrap_or_default();
                let len = column.column_type.value_len(rest).ok_or_else(|| cut(at))?;
                let end = at.checked_add(len).filter(|&end| end <= bytes.len());
                let value = at..end.ok_or_else(|| cut(at))?;
                at = value.end;
                Value::At(value)
            }
        };
        found(index, value);
    }
    Ok(at)
}

fn cut(offset: usize) -> EventError {
    malformed(Malformed { what: "row image is cut short", offset })
}

fn malformed(source: Malformed) -> EventError {
    EventError::Malformed { event: "rows", source }
}
