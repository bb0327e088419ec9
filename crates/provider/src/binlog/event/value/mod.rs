//! Values of row images, from their bytes in the binary log: one Rust value for each, nothing
//! rounded or converted.

mod decimal;
mod json;
mod temporal;
mod text;
mod value_type;

#[cfg(test)]
mod tests;

pub use json::{JsonDiff, JsonOperation, JsonValue};
use temporal::big_endian;
pub use temporal::{Date, DateTime, Time};
pub use text::JsonForm;
pub use value_type::{OldTemporal, ValueColumn, ValueType, charset_of, collation_name};

use crate::binlog::bytes_reader::{Malformed, Reader};

/// A column's value other than NULL, which an image marks in its bits (rows.rs).
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValue<'a> {
    Signed(i64),
    Unsigned(u64),
    Float(f32),
    Double(f64),
    /// With all digits of the column's scale.
    Decimal(String),
    Date(Date),
    Time(Time),
    /// DATETIME as it is written.
    DateTime(DateTime),
    /// TIMESTAMP in UTC; all zero for the zero value.
    Timestamp(DateTime),
    /// 0 for the year 0000.
    Year(u16),
    /// ENUM and SET by number, BIT as a number.
    Number(u64),
    /// Strings in the column's character set, binary strings, GEOMETRY (SRID and WKB) and VECTOR.
    Bytes(&'a [u8]),
    /// As stored; [`JsonValue::parse`] reads it.
    Json(&'a [u8]),
}

impl<'a> ColumnValue<'a> {
    /// Reads a value; `bytes` are those of the image without the length bytes. Integers are read by
    /// `unsigned` if the source did not log their sign.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn read(value_type: ValueType, unsigned: bool, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let value = Self::read_from(value_type, unsigned, &mut reader)?;
        match reader.is_empty() {
            true => Ok(value),
            false => Err(reader.malformed("bytes after a value")),
        }
    }

    fn read_from(
        value_type: ValueType,
        unsigned: bool,
        reader: &mut Reader<'a>,
    ) -> Result<Self, Malformed> {
        Ok(match value_type {
            ValueType::Integer { bytes, unsigned: told } => {
                let value = reader.uint(usize::from(bytes), "integer")?;
                match told.unwrap_or(unsigned) {
                    true => Self::Unsigned(value),
                    false => Self::Signed(sign_extended(value, bytes)),
                }
            }
            ValueType::Year => match reader.u8("YEAR")? {
                0 => Self::Year(0),
                year => Self::Year(1900 + u16::from(year)),
            },
            ValueType::Float => Self::Float(f32::from_bits(reader.u32("FLOAT")?)),
            ValueType::Double => Self::Double(f64::from_bits(reader.u64("DOUBLE")?)),
            ValueType::Decimal { precision, scale } => {
                Self::Decimal(decimal::read(precision, scale, reader)?)
            }
            ValueType::Date => Self::Date(Date::read(reader)?),
            ValueType::Time { fraction } => Self::Time(Time::read(fraction, reader)?),
            ValueType::DateTime { fraction } => Self::DateTime(DateTime::read(fraction, reader)?),
            ValueType::Timestamp { fraction } => {
                Self::Timestamp(DateTime::read_timestamp(fraction, reader)?)
            }
            ValueType::Enum { bytes } | ValueType::Set { bytes } => {
                Self::Number(reader.uint(usize::from(bytes), "ENUM or SET")?)
            }
            ValueType::Bit { bits } => {
                let bytes = reader.take(usize::from(bits).div_ceil(8), "BIT")?;
                Self::Number(big_endian(bytes))
            }
            ValueType::Char { .. }
            | ValueType::Varchar { .. }
            | ValueType::Blob { .. }
            | ValueType::Geometry
            | ValueType::Vector => Self::Bytes(reader.rest()),
            ValueType::Json => Self::Json(reader.rest()),
            ValueType::Old(OldTemporal::Time) => Self::Time(Time::read_old(reader)?),
            ValueType::Old(OldTemporal::DateTime) => Self::DateTime(DateTime::read_old(reader)?),
            ValueType::Old(OldTemporal::Timestamp) => {
                Self::Timestamp(DateTime::read_old_timestamp(reader)?)
            }
        })
    }
}

/// Returns the signed integer in the low bytes of a number.
fn sign_extended(value: u64, bytes: u8) -> i64 {
    let unused = 64_u32.saturating_sub(u32::from(bytes) * 8);
    (value << unused) as i64 >> unused
}
