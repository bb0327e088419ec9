//! The bytes of one part of a key, which are hashed into the key's number.
//!
//! Values that the target calls equal get the same bytes, whatever the width of the source's column. Two columns of
//! different widths meet where a foreign key exists on the target only, or where a replica was altered that becomes
//! the source. All but strings and DECIMAL have one length, and these end in their length, which keeps adjacent parts
//! apart.

use std::sync::Arc;

use csa_provider::binlog::{Column, ColumnType, TemporalType};

use super::{Collation, KeyClass};

/// How the bytes of a part are found in an image.
#[derive(Debug)]
pub(super) enum PartBytes {
    /// Little-endian, with or without a sign.
    Integer,
    /// Little-endian and without a sign: YEAR, ENUM and SET.
    Number,
    Bit,
    Float,
    Double,
    /// The digits before the point and after it.
    Decimal(usize, usize),
    Temporal(TemporalType),
    /// Formats from before 5.6.4.
    OldTemporal(TemporalType),
    String {
        collation: Arc<Collation>,
        prefix: Option<usize>,
    },
}

impl PartBytes {
    /// Returns `None` if the source's column differs from the target's in more than its width: equal values might then
    /// have different bytes.
    pub(super) fn of(class: &KeyClass, source: &Column) -> Option<Self> {
        Some(match (class, source.column_type) {
            (KeyClass::Integer, ColumnType::Integer(_)) => Self::Integer,
            (KeyClass::Year, ColumnType::Year)
            | (KeyClass::Enum, ColumnType::Enum(_))
            | (KeyClass::Set, ColumnType::Set(_)) => Self::Number,
            (KeyClass::Bit, ColumnType::Bit(_)) => Self::Bit,
            (KeyClass::Float, ColumnType::Float) => Self::Float,
            (KeyClass::Double, ColumnType::Double) => Self::Double,
            (KeyClass::Decimal, ColumnType::Decimal(precision, scale)) => {
                Self::Decimal(precision.checked_sub(scale)?.into(), scale.into())
            }
            (KeyClass::Temporal(target), ColumnType::Temporal(source, _)) if *target == source => {
                Self::Temporal(source)
            }
            (KeyClass::Temporal(target), ColumnType::OldTemporal(source)) if *target == source => {
                Self::OldTemporal(source)
            }
            (
                KeyClass::String { collation, prefix },
                ColumnType::String(_) | ColumnType::Blob(_),
            ) if source.collation.is_some_and(|source| collation.has_charset_of(source)) => {
                Self::String { collation: Arc::clone(collation), prefix: *prefix }
            }
            _ => return None,
        })
    }

    /// Appends the bytes of a value, which an image has without its length; `false` if they are unknown.
    pub(super) fn append(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Self::Integer => out.extend_from_slice(&signless(little_endian(value)).to_le_bytes()),
            Self::Number => out.extend_from_slice(&little_endian(value).to_le_bytes()),
            Self::Bit => out.extend_from_slice(&big_endian(value).to_le_bytes()),
            Self::Float => {
                let bytes = value.try_into().unwrap_or_default();
                // -0.0 equals 0.0 but differs in bytes; adding 0.0 turns it into 0.0.
                out.extend_from_slice(&(f32::from_le_bytes(bytes) + 0.0).to_le_bytes());
            }
            Self::Double => {
                let bytes = value.try_into().unwrap_or_default();
                out.extend_from_slice(&(f64::from_le_bytes(bytes) + 0.0).to_le_bytes());
            }
            Self::Decimal(integral, scale) => {
                return append_decimal(*integral, *scale, value, out).is_some();
            }
            Self::Temporal(kind) => out.extend_from_slice(&packed(*kind, value).to_le_bytes()),
            Self::OldTemporal(kind) => {
                out.extend_from_slice(&packed_old(*kind, little_endian(value)).to_le_bytes());
            }
            Self::String { collation, prefix } => {
                let start = out.len();
                if !collation.append(value, *prefix, out) {
                    return false;
                }
                let len = (out.len() - start) as u32;
                out.extend_from_slice(&len.to_le_bytes());
            }
        }
        true
    }
}

/// Returns the number in at most eight bytes; INT and BIGINT, which most keys are, without a loop.
fn little_endian(value: &[u8]) -> u64 {
    if let Ok(bytes) = value.try_into() {
        return u32::from_le_bytes(bytes).into();
    }
    if let Ok(bytes) = value.try_into() {
        return u64::from_le_bytes(bytes);
    }
    value.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn big_endian(value: &[u8]) -> u64 {
    value.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Makes the upper bytes zero as far as all are 0x00 or 0xFF. What is left is the same whether a narrower integer was
/// extended with its sign or without, and sources before 8.0 do not say which columns have one. Integers that differ
/// in such bytes only share a number, as 0 and -1 do.
fn signless(number: u64) -> u64 {
    // A byte has bits of both kinds if it differs from itself moved by one bit.
    let mixed = (number ^ number >> 1) & 0x7f7f_7f7f_7f7f_7f7f;
    let above = mixed.leading_zeros() & !7;
    number & u64::MAX.checked_shr(above).unwrap_or(0)
}

/// Returns a value as the server packs it for comparisons (`my_datetime_packed_from_binary` and related functions in
/// mysys/my_time.cc), with microseconds whatever the precision of its column.
fn packed(kind: TemporalType, value: &[u8]) -> u64 {
    let (whole_bytes, is_offset) = match kind {
        TemporalType::Date => return little_endian(value),
        TemporalType::Time => (3, true),
        TemporalType::DateTime => (5, true),
        TemporalType::Timestamp => (4, false),
    };
    let bits = 8 * value.len().clamp(whole_bytes, 8);
    let fraction_bits = bits - 8 * whole_bytes;
    // The offset lets negative values sort by their bytes.
    let offset = if is_offset { 1 << (bits - 1) } else { 0 };
    let number = big_endian(value).wrapping_sub(offset).cast_signed();
    let unit = match fraction_bits {
        8 => 10_000,
        16 => 100,
        _ => 1,
    };
    let magnitude = number.unsigned_abs();
    let micros = (magnitude & ((1 << fraction_bits) - 1)) * unit;
    signed((magnitude >> fraction_bits << 24) + micros, number < 0)
}

/// Returns what [`packed`] does, of a number in a format from before 5.6.4: TIME is hhmmss with a sign, DATETIME is
/// YYYYMMDDhhmmss, and TIMESTAMP has the seconds.
fn packed_old(kind: TemporalType, number: u64) -> u64 {
    let of_day = |digits: u64| (digits / 10_000) << 12 | (digits / 100 % 100) << 6 | (digits % 100);
    match kind {
        TemporalType::Date => number,
        TemporalType::Timestamp => number << 24,
        TemporalType::Time => {
            let digits = (number << 40).cast_signed() >> 40;
            signed(of_day(digits.unsigned_abs()) << 24, digits < 0)
        }
        TemporalType::DateTime => {
            let (date, time) = (number / 1_000_000, number % 1_000_000);
            let months = date / 10_000 * 13 + date / 100 % 100;
            (((months << 5) | (date % 100)) << 17 | of_day(time)) << 24
        }
    }
}

const fn signed(magnitude: u64, is_negative: bool) -> u64 {
    if is_negative { magnitude.wrapping_neg() } else { magnitude }
}

/// Digits in a group of a DECIMAL, and the bytes of a group by its number of digits (`decimal2bin` in
/// strings/decimal.cc).
const GROUP: usize = 9;
const GROUP_BYTES: [usize; GROUP + 1] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Appends the groups of digits without zeros at either end, which depend on the column, then how many there are before
/// and after the point, and the sign. Returns `None` for a value that is too short.
fn append_decimal(integral: usize, scale: usize, value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut reader = GroupReader::new(value)?;
    let start = out.len();
    for digits in groups(integral % GROUP, integral / GROUP) {
        let group = reader.next(digits)?;
        if group != 0 || out.len() > start {
            out.extend_from_slice(&group.to_le_bytes());
        }
    }
    let point = out.len();
    // The last group counts from the point too: 0.5 is 500000000 billionths.
    for digits in groups(scale % GROUP, scale / GROUP).rev() {
        let group = reader.next(digits)?.wrapping_mul(10_u32.pow((GROUP - digits) as u32));
        out.extend_from_slice(&group.to_le_bytes());
    }
    while out.len() > point && out.ends_with(&[0; 4]) {
        out.truncate(out.len() - 4);
    }
    let counts = [(point - start) / 4, (out.len() - point) / 4];
    let is_negative = reader.is_negative() && counts != [0, 0];
    out.extend(counts.map(|count| count as u8));
    out.push(is_negative.into());
    Some(())
}

/// Returns the digits of each group before the point; of those after it in reverse.
fn groups(rest: usize, whole: usize) -> impl DoubleEndedIterator<Item = usize> {
    let rest = (rest > 0).then_some(rest);
    rest.into_iter().chain(std::iter::repeat_n(GROUP, whole))
}

/// Reads the groups of a DECIMAL.
struct GroupReader<'a> {
    rest: &'a [u8],
    /// 0xFF for a negative number, of which all bits are inverted.
    mask: u8,
    /// The highest bit is that of the sign.
    sign: u8,
}

impl<'a> GroupReader<'a> {
    fn new(value: &'a [u8]) -> Option<Self> {
        let mask = if value.first()? & 0x80 == 0 { 0xff } else { 0 };
        Some(Self { rest: value, mask, sign: 0x80 })
    }

    const fn is_negative(&self) -> bool {
        self.mask != 0
    }

    fn next(&mut self, digits: usize) -> Option<u32> {
        let (group, rest) = self.rest.split_at_checked(*GROUP_BYTES.get(digits)?)?;
        self.rest = rest;
        Some(group.iter().fold(0, |number, byte| {
            let byte = byte ^ self.mask ^ std::mem::take(&mut self.sign);
            number << 8 | u32::from(byte)
        }))
    }
}

#[cfg(test)]
mod tests;
