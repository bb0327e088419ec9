//! DECIMAL as the server packs it (`decimal2bin` in strings/decimal.cc): digits in groups of nine,
//! big-endian, each group in as few bytes as hold it; negative numbers inverted.

use crate::binlog::bytes_reader::{Malformed, Reader};

const DIGITS: usize = 9;
/// Bytes of a group, by its number of digits.
const BYTES: [usize; DIGITS + 1] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Reads a number with `precision` digits, `scale` of them after the point, as text.
pub(super) fn read(precision: u8, scale: u8, reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let malformed = |reader: &Reader<'_>| reader.malformed("DECIMAL");
    let (precision, scale) = (usize::from(precision), usize::from(scale));
    let integral = precision.checked_sub(scale).ok_or_else(|| malformed(reader))?;
    // The first group before the point and the last one after it may be short.
    let before = groups(integral).rev();
    let fraction = groups(scale);
    let mut first = true;
    let mut negative = false;
    let mut digits = String::with_capacity(precision + 3);
    for (place, len) in before.map(|len| (0, len)).chain(fraction.map(|len| (1, len))) {
        let size = BYTES.get(len).copied().unwrap_or_default();
        let bytes = reader.take(size, "DECIMAL")?;
        let mut value = bytes.iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        let mask = (1_u64 << (size * 8)) - 1;
        if first {
            first = false;
            // The highest bit is set for numbers that are not negative.
            let sign = 1_u64 << (size * 8 - 1);
            negative = value & sign == 0;
            value ^= sign;
        }
        if negative {
            value ^= mask;
        }
        if value >= 10_u64.pow(len as u32) {
            return Err(malformed(reader));
        }
        if place == 1 && !digits.contains('.') {
            digits.push('.');
        }
        digits.push_str(&format!("{value:0len$}"));
    }
    if first {
        return Err(malformed(reader));
    }
    Ok(normal(negative, &digits))
}

/// Returns the lengths of the groups from the point outwards.
fn groups(digits: usize) -> impl DoubleEndedIterator<Item = usize> {
    let rest = digits % DIGITS;
    let whole = std::iter::repeat_n(DIGITS, digits / DIGITS);
    whole.chain((rest > 0).then_some(rest))
}

/// Returns the digits without leading zeros (except a single one), with a sign if negative.
fn normal(negative: bool, digits: &str) -> String {
    let (integral, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let integral = integral.trim_start_matches('0');
    let integral = if integral.is_empty() { "0" } else { integral };
    let sign = if negative { "-" } else { "" };
    match fraction {
        "" => format!("{sign}{integral}"),
        _ => format!("{sign}{integral}.{fraction}"),
    }
}
