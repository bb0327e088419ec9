//! Values as text, for people and for servers that read JSON. Pure.

use std::fmt::Write as _;
use std::io::Write as _;

use super::{ColumnValue, JsonValue};

impl ColumnValue<'_> {
    /// The value as the server shows it in a result: ENUM, SET and BIT as numbers, strings that are not
    /// UTF-8 or not text as at most `bytes` of their bytes in hexadecimal.
    #[must_use]
    pub fn shown(&self, is_text: bool, bytes: usize) -> String {
        match self {
            Self::Signed(number) => number.to_string(),
            Self::Unsigned(number) | Self::Number(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Double(number) => number.to_string(),
            Self::Decimal(digits) => digits.clone(),
            Self::Year(year) => format!("{year:04}"),
            Self::Date(date) => date.to_string(),
            Self::Time(time) => time.to_string(),
            Self::DateTime(time) | Self::Timestamp(time) => time.to_string(),
            Self::Json(document) => {
                let mut text = Vec::new();
                let written = JsonValue::parse(document)
                    .map_err(|error| error.to_string())
                    .and_then(|document| document.push_text(JsonForm::Shown, &mut text));
                match written {
                    Ok(()) => String::from_utf8_lossy(&text).into_owned(),
                    Err(what) => format!("({what})"),
                }
            }
            Self::Bytes(string) => match std::str::from_utf8(string) {
                Ok(text) if is_text => text.to_owned(),
                _ => hex(string.get(..bytes).unwrap_or(string)),
            },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

/// How JSON is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonForm {
    /// The form that the server reads.
    Dense,
    /// As the server shows it.
    Shown,
}

impl JsonValue<'_> {
    /// Appends the document as JSON writes it.
    ///
    /// # Errors
    /// The kind of a value that JSON has no text for.
    pub fn push_text(&self, form: JsonForm, out: &mut Vec<u8>) -> Result<(), String> {
        let _ = match self {
            Self::Null => write!(out, "null"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Int(number) => write!(out, "{number}"),
            Self::UInt(number) => write!(out, "{number}"),
            Self::Double(number) if !number.is_finite() => return Err(self.kind()),
            Self::Double(number) if form == JsonForm::Shown => {
                out.extend_from_slice(double_shown(*number).as_bytes());
                Ok(())
            }
            Self::Double(number) => write!(out, "{number:e}"),
            Self::Decimal(digits) => write!(out, "{digits}"),
            Self::String(text) => {
                push_string(text, form, out);
                Ok(())
            }
            Self::Array(elements) => {
                out.push(b'[');
                for (index, element) in elements.iter().enumerate() {
                    push_separator(index, form, out);
                    element.push_text(form, out)?;
                }
                out.push(b']');
                Ok(())
            }
            Self::Object(members) => {
                out.push(b'{');
                for (index, (name, member)) in members.iter().enumerate() {
                    push_separator(index, form, out);
                    push_string(name, form, out);
                    out.extend_from_slice(if form == JsonForm::Shown { &b": "[..] } else { b":" });
                    member.push_text(form, out)?;
                }
                out.push(b'}');
                Ok(())
            }
            Self::Date(value) => write!(out, "\"{}\"", value.date),
            Self::Time(_) | Self::DateTime(_) | Self::Timestamp(_) | Self::Opaque(..) => {
                return Err(self.kind());
            }
        };
        Ok(())
    }

    /// Returns the kind of a value that plain JSON lacks, in words.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Timestamp(_) => "a TIMESTAMP".to_owned(),
            Self::DateTime(_) => "a DATETIME".to_owned(),
            Self::Time(_) => "a TIME".to_owned(),
            Self::Double(_) => "a floating-point value that is not a number".to_owned(),
            Self::Opaque(code, _) => format!("a value of column type {code}"),
            _ => "a value".to_owned(),
        }
    }
}

/// Returns the number as MySQL 8.0 and newer show it in JSON (`my_gcvt` in strings/dtoa.cc): without an exponent as long
/// as the point is among the digits or near them.
fn double_shown(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, ""));
    let count = digits.bytes().filter(u8::is_ascii_digit).count() as i64;
    let point = exponent.parse::<i64>().unwrap_or_default() + 1;
    if point < -14 || point > 15.max(count - 1) {
        return scientific;
    }
    let plain = number.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

fn push_separator(index: usize, form: JsonForm, out: &mut Vec<u8>) {
    if index > 0 {
        out.extend_from_slice(if form == JsonForm::Shown { &b", "[..] } else { b"," });
    }
}

fn push_string(text: &[u8], form: JsonForm, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            8 if form == JsonForm::Shown => out.extend_from_slice(b"\\b"),
            b'\t' if form == JsonForm::Shown => out.extend_from_slice(b"\\t"),
            b'\n' if form == JsonForm::Shown => out.extend_from_slice(b"\\n"),
            12 if form == JsonForm::Shown => out.extend_from_slice(b"\\f"),
            b'\r' if form == JsonForm::Shown => out.extend_from_slice(b"\\r"),
            0..=0x1f => {
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
