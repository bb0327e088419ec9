//! SQL text of values, which the server reads back as the same values. Pure.
//!
//! Needs a session with `character_set_client=utf8mb4`, in the given time zone (else UTC) and without
//! `NO_BACKSLASH_ESCAPES`.

use std::io::Write as _;

use csa_provider::binlog::ColumnValue;

use super::conversion::Strings;

/// Binary strings up to this length are written in hexadecimal.
const HEX_MAX: usize = 32;

/// Appends a value that is neither JSON nor a string.
///
/// # Errors
/// Infinity or NaN, which no column can hold.
pub(super) fn push_plain(value: &ColumnValue<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    // Writing to a Vec can't fail.
    let _ = match value {
        ColumnValue::Signed(number) => write!(out, "{number}"),
        ColumnValue::Unsigned(number) | ColumnValue::Number(number) => write!(out, "{number}"),
        // The server compares a FLOAT as the DOUBLE of the same value, which needs all these digits.
        ColumnValue::Float(number) => return push_double(f64::from(*number), out),
        ColumnValue::Double(number) => return push_double(*number, out),
        ColumnValue::Decimal(digits) => write!(out, "{digits}"),
        ColumnValue::Year(year) => write!(out, "{year}"),
        ColumnValue::Date(date) => write!(out, "'{date}'"),
        ColumnValue::Time(time) => write!(out, "'{time}'"),
        ColumnValue::DateTime(time) | ColumnValue::Timestamp(time) => write!(out, "'{time}'"),
        ColumnValue::Bytes(_) | ColumnValue::Json(_) => {
            return Err("a string is no plain value".to_owned());
        }
    };
    Ok(())
}

/// Appends a TIMESTAMP, given in UTC, for a session in `zone`, an offset: in a zone with daylight saving
/// one local time may be two points in time. The zero date is written as it is.
pub(super) fn push_timestamp(utc: &str, zone: Option<&str>, out: &mut Vec<u8>) {
    // Writing to a Vec can't fail.
    let _ = match zone.filter(|_| !utc.starts_with("0000-00-00")) {
        Some(zone) => write!(out, "CONVERT_TZ('{utc}','+00:00','{zone}')"),
        None => write!(out, "'{utc}'"),
    };
}

/// The shortest text that is read as the same number; the exponent makes it a DOUBLE.
pub(super) fn push_double(number: f64, out: &mut Vec<u8>) -> Result<(), String> {
    if !number.is_finite() {
        return Err("a floating-point value that is not a number".to_owned());
    }
    let _ = write!(out, "{number:e}");
    Ok(())
}

/// Appends a string in its character set.
pub(super) fn push_string(strings: &Strings, value: &[u8], out: &mut Vec<u8>) {
    let Strings::Text(charset, _) = strings else { return push_binary(value, out) };
    let as_it_is = match charset.as_str() {
        "utf8mb4" | "utf8mb3" | "utf8" => std::str::from_utf8(value).is_ok(),
        "ascii" | "latin1" => value.iter().all(|byte| (b' '..=b'~').contains(byte)),
        _ => false,
    };
    if as_it_is {
        return push_quoted(value, out);
    }
    out.push(b'_');
    out.extend_from_slice(charset.as_bytes());
    out.push(b' ');
    push_hex(value, out);
}

/// Appends a binary string.
pub(super) fn push_binary(value: &[u8], out: &mut Vec<u8>) {
    if value.len() <= HEX_MAX {
        return push_hex(value, out);
    }
    out.extend_from_slice(b"_binary");
    push_quoted(value, out);
}

fn push_hex(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().unwrap_or_default();
    out.extend_from_slice(b"x'");
    for byte in value {
        out.push(digit(byte >> 4));
        out.push(digit(*byte));
    }
    out.push(b'\'');
}

/// Appends the bytes, escaped and in quotes. The server looks for the quote in whole UTF-8
/// characters, and no byte of a character of several is one of those escaped here.
pub(super) fn push_quoted(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for &byte in value {
        match byte {
            b'\'' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0 => out.extend_from_slice(b"\\0"),
            // Clients on Windows may take it for the end of a file.
            0x1a => out.extend_from_slice(b"\\Z"),
            _ => out.push(byte),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn strings_keep_their_character_set() {
        let literal = |charset: &str, value: &[u8]| {
            let strings = Strings::Text(charset.to_owned(), None);
            text(|out| push_string(&strings, value, out))
        };
        assert_eq!(literal("utf8mb4", "it's ü\\".as_bytes()), "'it\\'s ü\\\\'");
        assert_eq!(literal("latin1", b"plain"), "'plain'");
        assert_eq!(literal("latin1", b"\xfc"), "_latin1 x'fc'");
        assert_eq!(literal("utf16", b"\0a"), "_utf16 x'0061'");
        assert_eq!(literal("cp932", b"a"), "_cp932 x'61'");
        // The server is left to refuse bytes that are not UTF-8.
        assert_eq!(literal("utf8mb4", b"\xff"), "_utf8mb4 x'ff'");
        assert_eq!(text(|out| push_binary(b"\0\x1a", out)), "x'001a'");
        let long = [b'\'', 0].repeat(20);
        let escaped = format!("_binary'{}'", "\\'\\0".repeat(20));
        assert_eq!(text(|out| push_binary(&long, out)), escaped);
    }

    #[test]
    fn timestamps_are_told_in_the_sessions_zone() {
        let literal = |utc, zone| text(|out| push_timestamp(utc, zone, out));
        assert_eq!(literal("2007-01-01 00:00:02", None), "'2007-01-01 00:00:02'");
        assert_eq!(
            literal("2007-01-01 00:00:02.5", Some("-08:30")),
            "CONVERT_TZ('2007-01-01 00:00:02.5','+00:00','-08:30')"
        );
        assert_eq!(literal("0000-00-00 00:00:00", Some("-08:30")), "'0000-00-00 00:00:00'");
    }

    #[test]
    fn floats_have_all_their_digits() {
        let literal = |value| text(|out| push_plain(&value, out).expect("finite"));
        assert_eq!(literal(ColumnValue::Double(-0.0)), "-0e0");
        assert_eq!(literal(ColumnValue::Double(5e-324)), "5e-324");
        assert_eq!(literal(ColumnValue::Float(0.1)), "1.0000000149011612e-1");
        assert!(push_plain(&ColumnValue::Double(f64::NAN), &mut Vec::new()).is_err());
    }
}
