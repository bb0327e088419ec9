//! JSON documents as SQL: as text where text keeps every type, else built by functions, so that
//! decimals, dates and the like stay what they are. Pure.

use std::io::Write as _;

use csa_provider::binlog::{JsonDiff, JsonForm, JsonOperation, JsonValue};

use super::literal::{push_binary, push_double, push_quoted};

/// Column type code of a binary literal inside JSON, up to `VARCHAR_MAX` bytes.
const VARCHAR: u8 = 15;
const VARCHAR_MAX: usize = 0xffff;
const BIT: u8 = 16;
const STRING: u8 = 254;
/// Conditions for the partial changes of a row: a few changes may be as large as they are, many take no more than this,
/// or than the target takes in one packet.
const CONDITION_BYTES: usize = 16 << 20;
const DIFFS_OF_ANY_SIZE: usize = 16;

/// Appends an expression for a whole document; `compared`: in a place where the server does not read
/// text as JSON on its own.
///
/// # Errors
/// A value that no expression makes.
pub(super) fn push_document(
    value: &JsonValue<'_>,
    compared: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if is_text(value) {
        let mut text = Vec::new();
        value.push_text(JsonForm::Dense, &mut text).map_err(lacks_sql)?;
        if compared {
            out.extend_from_slice(b"CAST(");
        }
        push_quoted(&text, out);
        if compared {
            out.extend_from_slice(b" AS JSON)");
        }
        return Ok(());
    }
    if matches!(value, JsonValue::Array(_) | JsonValue::Object(_)) {
        return push_expression(value, out);
    }
    // The server would take a scalar alone for the SQL value it looks like.
    out.extend_from_slice(b"JSON_EXTRACT(JSON_ARRAY(");
    push_expression(value, out)?;
    out.extend_from_slice(b"),'$[0]')");
    Ok(())
}

/// Appends the document as text, for columns that hold text: as the source shows it, since 8.0. MySQL 5.7 shows a
/// DOUBLE without a fraction as an integer.
///
/// # Errors
/// A value that JSON has no text for.
pub(super) fn push_text_document(value: &JsonValue<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let mut text = Vec::new();
    value.push_text(JsonForm::Shown, &mut text).map_err(lacks_sql)?;
    push_quoted(&text, out);
    Ok(())
}

/// Returns true if the server reads the value's text back as the same value.
fn is_text(value: &JsonValue<'_>) -> bool {
    match value {
        JsonValue::Null | JsonValue::Bool(_) | JsonValue::String(_) => true,
        // The parser takes a number up to this for signed, and a larger one for unsigned (Rapid_json_handler in
        // sql-common/json_dom.cc).
        JsonValue::Int(number) => *number <= i64::from(u32::MAX),
        JsonValue::UInt(number) => *number > u64::from(u32::MAX),
        JsonValue::Array(elements) => elements.iter().all(is_text),
        JsonValue::Object(members) => members.iter().all(|(_, value)| is_text(value)),
        _ => false,
    }
}

fn lacks_sql(kind: String) -> String {
    format!("a JSON document with {kind} in it has no SQL text")
}

fn push_comma(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

/// Appends an argument of JSON_ARRAY or JSON_OBJECT.
fn push_expression(value: &JsonValue<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let _ = match value {
        JsonValue::Array(_) | JsonValue::Object(_) if is_text(value) => {
            return push_document(value, true, out);
        }
        JsonValue::Null => write!(out, "NULL"),
        JsonValue::Bool(value) => write!(out, "{value}"),
        JsonValue::Int(number) => write!(out, "{number}"),
        JsonValue::UInt(number) => write!(out, "CAST({number} AS UNSIGNED)"),
        JsonValue::Double(number) => return push_double(*number, out),
        JsonValue::String(text) => {
            push_quoted(text, out);
            Ok(())
        }
        JsonValue::Array(elements) => return push_array(elements, out),
        JsonValue::Object(members) => return push_object(members, out),
        JsonValue::Decimal(digits) => {
            let scale = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            let precision = digits.bytes().filter(u8::is_ascii_digit).count();
            write!(out, "CAST({digits} AS DECIMAL({precision},{scale}))")
        }
        JsonValue::Date(value) => write!(out, "CAST('{}' AS DATE)", value.date),
        JsonValue::Time(value) => write!(out, "CAST('{value}' AS TIME(6))"),
        JsonValue::DateTime(value) => write!(out, "CAST('{value}' AS DATETIME(6))"),
        JsonValue::Timestamp(value) => {
            push_typed("TIMESTAMP(6)", |out| drop(write!(out, "'[\"{value}\"]'")), out);
            Ok(())
        }
        JsonValue::Opaque(VARCHAR, bytes) if bytes.len() <= VARCHAR_MAX => {
            push_binary(bytes, out);
            Ok(())
        }
        JsonValue::Opaque(BIT, bytes) if bytes.len() <= 8 => {
            let number = bytes.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
            let bits = format!("BIT({})", bytes.len() * 8);
            push_typed(&bits, |out| drop(write!(out, "'[{number}]'")), out);
            Ok(())
        }
        JsonValue::Opaque(code, bytes) => {
            let column_type = match code {
                249 => "TINYBLOB".to_owned(),
                250 => "MEDIUMBLOB".to_owned(),
                251 => "LONGBLOB".to_owned(),
                252 => "BLOB".to_owned(),
                &STRING => format!("BINARY({})", bytes.len()),
                _ => return Err(lacks_sql(value.kind())),
            };
            let push_bytes = |out: &mut Vec<u8>| {
                out.extend_from_slice(b"JSON_ARRAY(");
                push_binary(bytes, out);
                out.push(b')');
            };
            push_typed(&column_type, push_bytes, out);
            Ok(())
        }
    };
    Ok(())
}

fn push_array(elements: &[JsonValue<'_>], out: &mut Vec<u8>) -> Result<(), String> {
    out.extend_from_slice(b"JSON_ARRAY(");
    for (index, element) in elements.iter().enumerate() {
        push_comma(index, out);
        push_expression(element, out)?;
    }
    out.push(b')');
    Ok(())
}

fn push_object(members: &[(&[u8], JsonValue<'_>)], out: &mut Vec<u8>) -> Result<(), String> {
    out.extend_from_slice(b"JSON_OBJECT(");
    for (index, (name, member)) in members.iter().enumerate() {
        push_comma(index, out);
        push_quoted(name, out);
        out.push(b',');
        push_expression(member, out)?;
    }
    out.push(b')');
    Ok(())
}

/// Appends the array's one element as a value of this column type, which no literal has.
fn push_typed(column_type: &str, push_array: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.extend_from_slice(b"(SELECT v FROM JSON_TABLE(");
    push_array(out);
    let _ =
        write!(out, ",'$[*]' COLUMNS (v {column_type} PATH '$' ERROR ON EMPTY ERROR ON ERROR)) t)");
}

/// Appends the document that results from applying `diffs` to the one in `column`.
///
/// # Errors
/// A value that no expression makes.
pub(super) fn push_diffs(
    column: &str,
    diffs: &[JsonDiff<'_>],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    // The last change is the outermost function.
    for diff in diffs.iter().rev() {
        let function = match diff.operation {
            JsonOperation::Replace => "JSON_REPLACE(",
            JsonOperation::Insert if array_of(diff).is_some() => "JSON_ARRAY_INSERT(",
            JsonOperation::Insert => "JSON_INSERT(",
            JsonOperation::Remove => "JSON_REMOVE(",
        };
        out.extend_from_slice(function.as_bytes());
    }
    out.extend_from_slice(column.as_bytes());
    for diff in diffs {
        out.push(b',');
        push_quoted(diff.path, out);
        if let Some(value) = &diff.value {
            out.push(b',');
            match value {
                JsonValue::Array(_) | JsonValue::Object(_) => push_document(value, true, out)?,
                _ => push_expression(value, out)?,
            }
        }
        out.push(b')');
    }
    Ok(())
}

/// Appends conditions, each with AND before it, that hold only if every change finds its place: the
/// functions silently do nothing where a path does not exist. `packet`: bytes that the target takes in one.
///
/// # Errors
/// Returns the errors of [`push_diffs`], and one for too many changes: each condition repeats all changes before it.
pub(super) fn push_diff_conditions(
    column: &str,
    diffs: &[JsonDiff<'_>],
    packet: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    for (index, diff) in diffs.iter().enumerate() {
        if index >= DIFFS_OF_ANY_SIZE && out.len() > packet.max(CONDITION_BYTES) {
            return Err(format!(
                "{} partial changes of a JSON document need too much SQL; set executor = \"row-image\", where the \
                 target permits it",
                diffs.len()
            ));
        }
        let before = diffs.get(..index).unwrap_or_default();
        let after = diffs.get(..=index).unwrap_or_default();
        match array_of(diff) {
            // JSON_ARRAY_INSERT appends for any index after the end.
            Some(array) => {
                out.extend_from_slice(b" AND JSON_TYPE(JSON_EXTRACT(");
                push_diffs(column, before, out)?;
                out.push(b',');
                push_quoted(array, out);
                out.extend_from_slice(b"))='ARRAY'");
            }
            None if diff.operation == JsonOperation::Insert => {
                push_is_there(column, before, diff.path, 0, out)?;
                push_is_there(column, after, diff.path, 1, out)?;
            }
            None => push_is_there(column, before, diff.path, 1, out)?,
        }
    }
    Ok(())
}

fn push_is_there(
    column: &str,
    diffs: &[JsonDiff<'_>],
    path: &[u8],
    there: u8,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    out.extend_from_slice(b" AND JSON_CONTAINS_PATH(");
    push_diffs(column, diffs, out)?;
    out.extend_from_slice(b",'one',");
    push_quoted(path, out);
    let _ = write!(out, ")={there}");
    Ok(())
}

/// Path of the array that the change inserts an element into; `None` for other changes.
fn array_of<'a>(diff: &JsonDiff<'a>) -> Option<&'a [u8]> {
    let is_element = diff.operation == JsonOperation::Insert && diff.path.ends_with(b"]");
    let bracket = diff.path.iter().rposition(|&byte| byte == b'[');
    bracket.filter(|_| is_element).and_then(|at| diff.path.get(..at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(value: &JsonValue<'_>) -> String {
        let mut out = Vec::new();
        push_document(value, true, &mut out).expect("there is SQL for it");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn what_text_says_is_text_and_the_rest_is_built() {
        let text = JsonValue::Object(vec![
            (b"a\"b", JsonValue::Array(vec![JsonValue::Int(-1), JsonValue::Null])),
            (b"c", JsonValue::String(b"it's\n")),
        ]);
        assert_eq!(document(&text), r#"CAST('{"a\\"b":[-1,null],"c":"it\'s\\u000a"}' AS JSON)"#);
        let built = JsonValue::Array(vec![
            JsonValue::Double(1.0),
            JsonValue::UInt(5),
            JsonValue::Decimal("-0.10".to_owned()),
            JsonValue::Object(vec![(b"k", JsonValue::Bool(true))]),
            JsonValue::Opaque(VARCHAR, b"\x01"),
        ]);
        assert_eq!(
            document(&built),
            "JSON_ARRAY(1e0,CAST(5 AS UNSIGNED),CAST(-0.10 AS DECIMAL(3,2)),\
             CAST('{\"k\":true}' AS JSON),x'01')"
        );
        assert_eq!(
            document(&JsonValue::Array(vec![JsonValue::UInt(5)])),
            "JSON_ARRAY(CAST(5 AS UNSIGNED))"
        );
        assert_eq!(
            document(&JsonValue::UInt(5)),
            "JSON_EXTRACT(JSON_ARRAY(CAST(5 AS UNSIGNED)),'$[0]')"
        );
        assert_eq!(
            document(&JsonValue::Array(vec![JsonValue::Opaque(252, b"\x01")])),
            "JSON_ARRAY((SELECT v FROM JSON_TABLE(JSON_ARRAY(x'01'),'$[*]' COLUMNS \
             (v BLOB PATH '$' ERROR ON EMPTY ERROR ON ERROR)) t))"
        );
        assert_eq!(document(&JsonValue::UInt(u64::MAX)), "CAST('18446744073709551615' AS JSON)");
        // The text of a large number means an unsigned one.
        let large = JsonValue::Int(5_000_000_000);
        assert_eq!(document(&large), "JSON_EXTRACT(JSON_ARRAY(5000000000),'$[0]')");
        assert_eq!(document(&JsonValue::Int(i64::from(u32::MAX))), "CAST('4294967295' AS JSON)");
        let large = JsonValue::Array(vec![JsonValue::UInt(5_000_000_000)]);
        assert_eq!(document(&large), "CAST('[5000000000]' AS JSON)");
        assert!(push_document(&JsonValue::Opaque(253, b""), true, &mut Vec::new()).is_err());
    }

    #[test]
    fn text_columns_get_what_the_source_shows() {
        let value = JsonValue::Object(vec![
            (b"a\n", JsonValue::Array(vec![JsonValue::Int(1), JsonValue::Double(1.0)])),
            (b"b", JsonValue::String(b"\x01\t")),
        ]);
        let mut out = Vec::new();
        push_text_document(&value, &mut out).expect("there is text for it");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text, r#"'{"a\\n": [1, 1.0], "b": "\\u0001\\t"}'"#);
    }

    fn diff<'a>(
        operation: JsonOperation,
        path: &'a str,
        value: Option<JsonValue<'a>>,
    ) -> JsonDiff<'a> {
        JsonDiff { operation, path: path.as_bytes(), value }
    }

    #[test]
    fn changes_are_nested_and_each_must_find_its_place() {
        let diffs = [
            diff(JsonOperation::Replace, "$.a", Some(JsonValue::Int(1))),
            diff(JsonOperation::Insert, "$.b[0]", Some(JsonValue::String(b"x"))),
            diff(JsonOperation::Remove, "$.c", None),
        ];
        let mut out = Vec::new();
        push_diffs("`j`", &diffs, &mut out).expect("known");
        let sql = String::from_utf8(out).expect("UTF-8");
        let replaced = "JSON_REPLACE(`j`,'$.a',1)";
        let inserted = format!("JSON_ARRAY_INSERT({replaced},'$.b[0]','x')");
        assert_eq!(sql, format!("JSON_REMOVE({inserted},'$.c')"));
        let mut out = Vec::new();
        push_diff_conditions("`j`", &diffs, 0, &mut out).expect("known");
        let sql = String::from_utf8(out).expect("UTF-8");
        assert_eq!(
            sql,
            format!(
                " AND JSON_CONTAINS_PATH(`j`,'one','$.a')=1 \
                 AND JSON_TYPE(JSON_EXTRACT({replaced},'$.b'))='ARRAY' \
                 AND JSON_CONTAINS_PATH({inserted},'one','$.c')=1"
            )
        );
    }

    /// The stack is too small for a function that calls itself for each change.
    #[test]
    fn a_row_makes_only_so_much_text_of_many_changes() {
        let make = || {
            let removed = |_| diff(JsonOperation::Remove, "$[0]", None);
            let diffs: Vec<_> = (0..100_000).map(removed).collect();
            let mut out = Vec::new();
            push_diffs("`j`", &diffs, &mut out).expect("known");
            assert!(out.len() < 25 * diffs.len(), "{}", out.len());
            let mut conditions = Vec::new();
            let refused = push_diff_conditions("`j`", &diffs, 0, &mut conditions);
            assert!(refused.is_err_and(|why| why.contains("100000 partial changes")));
            assert!(conditions.len() < CONDITION_BYTES + out.len());
            assert!(push_diff_conditions("`j`", &diffs[..500], 0, &mut Vec::new()).is_ok());
        };
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(make);
        thread.expect("a thread").join().expect("enough stack");
        let text = vec![b'x'; CONDITION_BYTES / 32];
        let large = |_| diff(JsonOperation::Replace, "$.a", Some(JsonValue::String(&text)));
        let diffs: Vec<_> = (0..DIFFS_OF_ANY_SIZE).map(large).collect();
        let mut conditions = Vec::new();
        push_diff_conditions("`j`", &diffs, 0, &mut conditions).expect("they are few");
        assert!(conditions.len() > CONDITION_BYTES);
        // The next changes of the row, which repeat no large value.
        let removed = |_| diff(JsonOperation::Remove, "$[0]", None);
        let diffs: Vec<_> = (0..=DIFFS_OF_ANY_SIZE).map(removed).collect();
        for (packet, takes) in [(conditions.len() - 1, false), (conditions.len() * 2, true)] {
            let mut all = conditions.clone();
            assert_eq!(push_diff_conditions("`k`", &diffs, packet, &mut all).is_ok(), takes);
        }
    }
}
