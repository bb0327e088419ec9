use mysql_common::collations::{Collation, CollationId};

use crate::binlog::bytes_reader::{Malformed, Reader};

/// A column's type, as needed to read its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// With its number of bytes, and its sign if the source logged it.
    Integer {
        bytes: u8,
        unsigned: Option<bool>,
    },
    Year,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Date,
    /// A time with this many fractional digits of a second.
    Time {
        fraction: u8,
    },
    DateTime {
        fraction: u8,
    },
    Timestamp {
        fraction: u8,
    },
    Enum {
        bytes: u8,
    },
    Set {
        bytes: u8,
    },
    Bit {
        bits: u16,
    },
    /// CHAR and BINARY, and the most bytes they may have.
    Char {
        max_bytes: u16,
    },
    /// VARCHAR and VARBINARY.
    Varchar {
        max_bytes: u16,
    },
    /// TEXT and BLOB, with the number of bytes of the length before the value.
    Blob {
        length_bytes: u8,
    },
    Json,
    Geometry,
    Vector,
    /// The format from before MySQL 5.6.4, which tables of 5.7 may still have.
    Old(OldTemporal),
}

/// Types without a fraction of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldTemporal {
    Time,
    DateTime,
    Timestamp,
}

/// A column with everything needed to read its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueColumn {
    pub value_type: ValueType,
    /// Number of the source's collation, if it was logged; 63 is binary.
    pub collation: Option<u16>,
    /// Known only if the source runs with `binlog_row_metadata=FULL`.
    pub name: Option<String>,
}

impl ValueType {
    /// Reads the type from its code and metadata in a table map.
    pub(crate) fn read(
        code: u8,
        metadata: &[u8],
        unsigned: Option<bool>,
    ) -> Result<Self, Malformed> {
        const WHAT: &str = "column metadata";
        let mut reader = Reader::new(metadata);
        let integer = |bytes| Self::Integer { bytes, unsigned };
        Ok(match code {
            1 => integer(1),
            2 => integer(2),
            9 => integer(3),
            3 => integer(4),
            8 => integer(8),
            13 => Self::Year,
            4 => Self::Float,
            5 => Self::Double,
            246 => Self::Decimal { precision: reader.u8(WHAT)?, scale: reader.u8(WHAT)? },
            10 | 14 => Self::Date,
            17 => Self::Timestamp { fraction: reader.u8(WHAT)? },
            18 => Self::DateTime { fraction: reader.u8(WHAT)? },
            19 => Self::Time { fraction: reader.u8(WHAT)? },
            7 => Self::Old(OldTemporal::Timestamp),
            11 => Self::Old(OldTemporal::Time),
            12 => Self::Old(OldTemporal::DateTime),
            15 | 253 => Self::Varchar { max_bytes: reader.u16(WHAT)? },
            16 => {
                let (bits, bytes) = (reader.u8(WHAT)?, reader.u8(WHAT)?);
                Self::Bit { bits: u16::from(bytes) * 8 + u16::from(bits) }
            }
            247 | 248 => {
                reader.u8(WHAT)?;
                let bytes = reader.u8(WHAT)?;
                if code == 247 { Self::Enum { bytes } } else { Self::Set { bytes } }
            }
            249..=252 => Self::Blob { length_bytes: reader.u8(WHAT)? },
            242 => Self::Vector,
            245 => Self::Json,
            255 => Self::Geometry,
            254 => {
                let (real, length) = (reader.u8(WHAT)?, reader.u8(WHAT)?);
                let high = u16::from((real & 0x30) ^ 0x30) << 4;
                match real | 0x30 {
                    247 => Self::Enum { bytes: length },
                    248 => Self::Set { bytes: length },
                    254 => Self::Char { max_bytes: high | u16::from(length) },
                    _ => return Err(reader.malformed("unknown column type")),
                }
            }
            _ => return Err(reader.malformed("unknown column type")),
        })
    }

    /// Returns true if the table map has a sign for such a column (`is_numeric_type` of the
    /// server).
    pub(crate) const fn has_sign(code: u8) -> bool {
        matches!(code, 1..=5 | 8 | 9 | 13 | 246)
    }
}

/// Returns the name of a collation's character set, and the most bytes of a character in it; `None`
/// for a collation that this version does not know.
#[must_use]
pub fn charset_of(collation: u16) -> Option<(&'static str, u8)> {
    let id = CollationId::from(collation);
    let known = Collation::resolve(id);
    (id != CollationId::UNKNOWN_COLLATION_ID).then_some((known.charset, known.max_len))
}

/// A collation's name; `None` for one that this version does not know.
#[must_use]
pub fn collation_name(collation: u16) -> Option<&'static str> {
    let id = CollationId::from(collation);
    (id != CollationId::UNKNOWN_COLLATION_ID).then(|| Collation::resolve(id).collation)
}
