//! The length of a column's value in a row image, by its type (`calc_field_size` of the server's
//! binary log library; <https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html>).

use crate::binlog::bytes_reader::{Malformed, Reader};

/// A column's type in a table map; for `STRING` the real type, which its metadata holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// TINYINT to BIGINT, little-endian; number of bytes.
    Integer(u8),
    /// The years since 1900 in one byte, or 0.
    Year,
    Float,
    Double,
    /// Precision and scale.
    Decimal(u8, u8),
    /// A date or time with any fraction; number of bytes.
    Temporal(TemporalType, u8),
    /// A format from before 5.6.4, little-endian.
    OldTemporal(TemporalType),
    /// ENUM and SET as their number, little-endian; number of bytes.
    Enum(u8),
    Set(u8),
    Bit(u8),
    /// CHAR, BINARY, VARCHAR and VARBINARY; number of bytes of the length before the value.
    String(u8),
    /// BLOB and TEXT; number of bytes of the length before the value.
    Blob(u8),
    /// JSON, GEOMETRY and VECTOR follow a length like BLOB, and are never compared here.
    Json(u8),
    Geometry(u8),
    Vector(u8),
}

/// A type of dates and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TemporalType {
    Date,
    Time,
    DateTime,
    Timestamp,
}

impl ColumnType {
    /// Reads a column's metadata from a table map.
    pub(super) fn read(code: u8, metadata: &mut Reader<'_>) -> Result<Self, Malformed> {
        const WHAT: &str = "column metadata";
        // Codes of `enum_field_types` (include/field_types.h): 7, 11 and 12 are temporal types from
        // before 5.6.4, 17 to 19 those with a fraction.
        let fraction = |metadata: &mut Reader<'_>| Ok(metadata.u8(WHAT)?.min(6).div_ceil(2));
        Ok(match code {
            1 => Self::Integer(1),
            13 => Self::Year,
            2 => Self::Integer(2),
            3 => Self::Integer(4),
            8 => Self::Integer(8),
            9 => Self::Integer(3),
            4 => {
                metadata.u8(WHAT)?;
                Self::Float
            }
            5 => {
                metadata.u8(WHAT)?;
                Self::Double
            }
            7 => Self::OldTemporal(TemporalType::Timestamp),
            10 | 14 => Self::Temporal(TemporalType::Date, 3),
            11 => Self::OldTemporal(TemporalType::Time),
            12 => Self::OldTemporal(TemporalType::DateTime),
            17 => Self::Temporal(TemporalType::Timestamp, 4 + fraction(metadata)?),
            18 => Self::Temporal(TemporalType::DateTime, 5 + fraction(metadata)?),
            19 => Self::Temporal(TemporalType::Time, 3 + fraction(metadata)?),
            15 | 253 => Self::String(length_bytes(usize::from(metadata.u16(WHAT)?))),
            16 => {
                let (bits, bytes) = (metadata.u8(WHAT)?, metadata.u8(WHAT)?);
                Self::Bit(bytes.saturating_add(u8::from(bits > 0)))
            }
            246 => Self::Decimal(metadata.u8(WHAT)?, metadata.u8(WHAT)?),
            247 => {
                metadata.u8(WHAT)?;
                Self::Enum(metadata.u8(WHAT)?)
            }
            248 => {
                metadata.u8(WHAT)?;
                Self::Set(metadata.u8(WHAT)?)
            }
            249..=252 => Self::Blob(blob_length_bytes(metadata)?),
            242 => Self::Vector(blob_length_bytes(metadata)?),
            245 => Self::Json(blob_length_bytes(metadata)?),
            255 => Self::Geometry(blob_length_bytes(metadata)?),
            254 => Self::read_string(metadata)?,
            _ => return Err(metadata.malformed("unknown column type")),
        })
    }

    /// The first metadata byte of `STRING` holds the real type (ENUM,
    /// SET), and two bits of CHAR's length.
    fn read_string(metadata: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (real, length) = (metadata.u8("column metadata")?, metadata.u8("column metadata")?);
        let high = usize::from((real & 0x30) ^ 0x30) << 4;
        Ok(match real | 0x30 {
            247 => Self::Enum(length),
            248 => Self::Set(length),
            254 => Self::String(length_bytes(high | usize::from(length))),
            _ => return Err(metadata.malformed("unknown column type")),
        })
    }

    /// Returns the bytes of the value at the start of `bytes`, including its length bytes.
    pub(super) fn value_len(self, bytes: &[u8]) -> Option<usize> {
        Some(match self {
            Self::Integer(len)
            | Self::Temporal(_, len)
            | Self::Enum(len)
            | Self::Set(len)
            | Self::Bit(len) => usize::from(len),
            Self::Year => 1,
            Self::OldTemporal(TemporalType::Date | TemporalType::Time) => 3,
            Self::Float | Self::OldTemporal(TemporalType::Timestamp) => 4,
            Self::Double | Self::OldTemporal(TemporalType::DateTime) => 8,
            Self::Decimal(precision, scale) => decimal_len(precision, scale)?,
            Self::String(length)
            | Self::Blob(length)
            | Self::Json(length)
            | Self::Geometry(length)
            | Self::Vector(length) => {
                let length = usize::from(length);
                let prefix = bytes.get(..length)?;
                let len = prefix.iter().rev().fold(0_usize, |len, &b| len << 8 | usize::from(b));
                length.checked_add(len)?
            }
        })
    }

    /// Returns the bytes of the length before a value.
    #[must_use]
    pub const fn prefix_len(self) -> usize {
        match self {
            Self::String(length)
            | Self::Blob(length)
            | Self::Json(length)
            | Self::Geometry(length)
            | Self::Vector(length) => length as usize,
            _ => 0,
        }
    }

    /// True if the optional metadata has a charset for such a column; VECTOR has `binary` there.
    pub(super) const fn is_character(self) -> bool {
        matches!(self, Self::String(_) | Self::Blob(_) | Self::Vector(_))
    }
}

const fn length_bytes(max: usize) -> u8 {
    if max > 255 { 2 } else { 1 }
}

fn blob_length_bytes(metadata: &mut Reader<'_>) -> Result<u8, Malformed> {
    match metadata.u8("length bytes")? {
        length @ 1..=4 => Ok(length),
        _ => Err(metadata.malformed("length bytes")),
    }
}

/// `decimal_bin_size` of the server: nine digits in four bytes, the rest in as few as hold them.
fn decimal_len(precision: u8, scale: u8) -> Option<usize> {
    const REST: [usize; 9] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
    let digits = |digits: usize| Some(digits / 9 * 4 + REST.get(digits % 9)?);
    let integral = precision.checked_sub(scale)?;
    Some(digits(usize::from(integral))? + digits(usize::from(scale))?)
}
