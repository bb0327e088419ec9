//! JSON as the server stores it (sql-common/json_binary.h), and the changes of partial updates
//! (sql-common/json_diff.cc).

use super::decimal;
use super::temporal::{DateTime, Time};
use crate::binlog::bytes_reader::{Malformed, Reader};

/// The server refuses deeper documents.
const DEPTH_MAX: usize = 100;

/// A JSON document with the types of its numbers and dates.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    /// UTF-8.
    String(&'a [u8]),
    Array(Vec<JsonValue<'a>>),
    /// Members in their stored order; names are UTF-8.
    Object(Vec<(&'a [u8], JsonValue<'a>)>),
    Decimal(String),
    /// A DATE; the time of day does not count.
    Date(DateTime),
    Time(Time),
    DateTime(DateTime),
    Timestamp(DateTime),
    /// A value of a type that JSON does not have: the column type's code and its bytes.
    Opaque(u8, &'a [u8]),
}

/// One change of a partial update.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonDiff<'a> {
    pub operation: JsonOperation,
    /// The path in the form that JSON functions accept; UTF-8.
    pub path: &'a [u8],
    /// The new value; `None` for a removal.
    pub value: Option<JsonValue<'a>>,
}

/// The kind of change at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonOperation {
    Replace,
    /// A new member, or a new element before the one with this index.
    Insert,
    Remove,
}

impl<'a> JsonValue<'a> {
    /// Reads a stored document; empty bytes are the null literal, as for the server.
    ///
    /// # Errors
    /// Malformed bytes, or a type this version does not know.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.is_empty() {
            return Ok(Self::Null);
        }
        let code = reader.u8("JSON type")?;
        // Every value has an entry of its own. Without this limit entries that share an offset would make a
        // document of 2^50 values from 500 bytes.
        let mut left = bytes.len();
        Self::read(code, reader.rest(), DEPTH_MAX, &mut left)
    }

    /// Reads a value; `left` limits the number of values that may follow.
    fn read(code: u8, bytes: &'a [u8], depth: usize, left: &mut usize) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        Ok(match code {
            0..=3 => Container::open(code, bytes)?.read(depth, left)?,
            4 => Self::literal(u64::from(reader.u8("JSON literal")?), &reader)?,
            5 => Self::Int(i64::from(reader.u16("JSON integer")? as i16)),
            6 => Self::UInt(u64::from(reader.u16("JSON integer")?)),
            7 => Self::Int(i64::from(reader.u32("JSON integer")? as i32)),
            8 => Self::UInt(u64::from(reader.u32("JSON integer")?)),
            9 => Self::Int(reader.u64("JSON integer")? as i64),
            10 => Self::UInt(reader.u64("JSON integer")?),
            11 => Self::Double(f64::from_bits(reader.u64("JSON double")?)),
            12 => Self::String(read_string(&mut reader)?),
            15 => {
                let code = reader.u8("JSON opaque type")?;
                Self::opaque(code, read_string(&mut reader)?)?
            }
            _ => return Err(reader.malformed("unknown JSON type")),
        })
    }

    fn literal(code: u64, reader: &Reader<'_>) -> Result<Self, Malformed> {
        match code {
            0 => Ok(Self::Null),
            1 => Ok(Self::Bool(true)),
            2 => Ok(Self::Bool(false)),
            _ => Err(reader.malformed("unknown JSON literal")),
        }
    }

    fn opaque(code: u8, bytes: &'a [u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "JSON value of a column type";
        let mut reader = Reader::new(bytes);
        Ok(match code {
            // Codes of `enum_field_types`. Dates and times are the server's packed integers
            // (`TIME_to_longlong_packed`), not the bytes of a row.
            246 => {
                let (precision, scale) = (reader.u8(WHAT)?, reader.u8(WHAT)?);
                Self::Decimal(decimal::read(precision, scale, &mut reader)?)
            }
            11 => Self::Time(Time::of_json(reader.u64(WHAT)? as i64)),
            7 | 10 | 12 => {
                let value = DateTime::of_json(reader.u64(WHAT)? as i64);
                let value = value.ok_or_else(|| reader.malformed(WHAT))?;
                match code {
                    7 => Self::Timestamp(value),
                    10 => Self::Date(value),
                    _ => Self::DateTime(value),
                }
            }
            _ => Self::Opaque(code, bytes),
        })
    }
}

/// Reads a length, seven bits in a byte with the highest set
/// if another one follows, then the string.
fn read_string<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let mut len = 0_usize;
    for shift in 0..5 {
        let byte = reader.u8("JSON length")?;
        len |= usize::from(byte & 0x7f) << (7 * shift);
        if byte & 0x80 == 0 {
            return reader.take(len, "JSON string");
        }
    }
    Err(reader.malformed("JSON length"))
}

/// An array or object: its offsets count from its element count.
struct Container<'a> {
    bytes: &'a [u8],
    entries: Reader<'a>,
    count: usize,
    is_object: bool,
    /// Bytes of counts and offsets.
    width: usize,
}

impl<'a> Container<'a> {
    fn open(code: u8, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let width = if code & 1 == 0 { 2 } else { 4 };
        let mut entries = Reader::new(bytes);
        let count = entries.uint(width, "JSON count")? as usize;
        let size = entries.uint(width, "JSON size")? as usize;
        let bytes = bytes.get(..size).ok_or_else(|| entries.malformed("JSON size"))?;
        let is_object = code < 2;
        let names = if is_object { width + 2 } else { 0 };
        // Every entry takes bytes, so that a count can't claim more memory than there are bytes.
        let table = count.checked_mul(names + 1 + width);
        if table.is_none_or(|table| table > size) {
            return Err(entries.malformed("JSON count"));
        }
        Ok(Self { bytes, entries, count, is_object, width })
    }

    fn read(mut self, depth: usize, left: &mut usize) -> Result<JsonValue<'a>, Malformed> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.entries.malformed("JSON depth"));
        };
        let Some(rest) = left.checked_sub(self.count) else {
            return Err(self.entries.malformed("JSON values that share their bytes"));
        };
        *left = rest;
        if !self.is_object {
            let elements =
                (0..self.count).map(|_| self.value(depth, left)).collect::<Result<_, _>>()?;
            return Ok(JsonValue::Array(elements));
        }
        let names = (0..self.count).map(|_| self.name()).collect::<Result<Vec<_>, _>>()?;
        let member = |name| Ok((name, self.value(depth, left)?));
        Ok(JsonValue::Object(names.into_iter().map(member).collect::<Result<_, _>>()?))
    }

    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let offset = self.entries.uint(self.width, "JSON name")? as usize;
        let len = usize::from(self.entries.u16("JSON name")?);
        let name = self.bytes.get(offset..).and_then(|bytes| bytes.get(..len));
        name.ok_or_else(|| self.entries.malformed("JSON name"))
    }

    fn value(&mut self, depth: usize, left: &mut usize) -> Result<JsonValue<'a>, Malformed> {
        let code = self.entries.u8("JSON type")?;
        let entry = self.entries.uint(self.width, "JSON value")?;
        // Small values are stored in place of an offset.
        match code {
            4 => JsonValue::literal(entry, &self.entries),
            5 => Ok(JsonValue::Int(i64::from(entry as u16 as i16))),
            6 => Ok(JsonValue::UInt(entry & 0xffff)),
            7 if self.width == 4 => Ok(JsonValue::Int(i64::from(entry as u32 as i32))),
            8 if self.width == 4 => Ok(JsonValue::UInt(entry)),
            _ => {
                let bytes = self.bytes.get(entry as usize..);
                let bytes = bytes.ok_or_else(|| self.entries.malformed("JSON value"))?;
                JsonValue::read(code, bytes, depth, left)
            }
        }
    }
}

impl<'a> JsonDiff<'a> {
    /// Reads the changes of one column, in the order in which they are applied.
    ///
    /// # Errors
    /// Malformed bytes, or an operation this version does not know.
    pub fn parse(bytes: &'a [u8]) -> Result<Vec<Self>, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut diffs = Vec::new();
        while !reader.is_empty() {
            let operation = match reader.u8("JSON change")? {
                0 => JsonOperation::Replace,
                1 => JsonOperation::Insert,
                2 => JsonOperation::Remove,
                _ => return Err(reader.malformed("unknown JSON change")),
            };
            let len = reader.length_encoded("JSON path")? as usize;
            let path = reader.take(len, "JSON path")?;
            let value = match operation {
                JsonOperation::Remove => None,
                _ => {
                    let len = reader.length_encoded("JSON value")? as usize;
                    Some(JsonValue::parse(reader.take(len, "JSON value")?)?)
                }
            };
            diffs.push(Self { operation, path, value });
        }
        Ok(diffs)
    }
}
