//! Values on their way from one server to the other: how a query reads them, and the literals of the same values.

use csa_provider::sql_text::{identifier, quote};

use super::catalogue::Column;

/// Forms in which a value leaves the source and enters the target exactly.
enum Form {
    /// Digits, also of DECIMAL and YEAR: as text '0' would be the year 2000.
    Digits,
    Float,
    /// By number: an ENUM can hold an invalid value, which reads as ''.
    Choice,
    Temporal,
    Json,
    /// The text in the column's character set.
    Text(String),
    Bytes,
}

fn form(column: &Column) -> Form {
    match (column.data_type.as_str(), &column.charset) {
        ("tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "year", _) => {
            Form::Digits
        }
        ("float" | "double", _) => Form::Float,
        ("enum" | "set" | "bit", _) => Form::Choice,
        ("date" | "time" | "datetime" | "timestamp", _) => Form::Temporal,
        ("json", _) => Form::Json,
        (_, Some(charset)) => Form::Text(charset.clone()),
        (_, None) => Form::Bytes,
    }
}

impl Form {
    /// Returns false for a text that is not of this form, and could be read as SQL.
    fn may_be(&self, value: &str) -> bool {
        let mut bytes = value.bytes();
        match self {
            Self::Digits | Self::Float | Self::Choice => {
                bytes.all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
            }
            Self::Temporal => true,
            Self::Text(charset) => {
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                bytes.all(|byte| byte.is_ascii_hexdigit()) && charset.bytes().all(is_name)
            }
            Self::Json | Self::Bytes => bytes.all(|byte| byte.is_ascii_hexdigit()),
        }
    }
}

/// Returns the expression by which a session with [`super::REPAIR_SESSION`] reads a value.
pub(crate) fn selected(column: &Column) -> String {
    let name = identifier(&column.name);
    match form(column) {
        Form::Digits | Form::Temporal => name,
        // All digits: the text of a FLOAT lacks some.
        Form::Float => format!("{name}*1e0"),
        Form::Choice => format!("CAST({name} AS UNSIGNED)"),
        Form::Json => format!("HEX(CAST({name} AS CHAR CHARACTER SET utf8mb4))"),
        Form::Text(_) | Form::Bytes => format!("HEX({name})"),
    }
}

/// Returns the literal of a value that [`selected`] gave. Whatever else the server gave is a string.
pub(crate) fn literal(column: &Column, value: Option<&str>) -> String {
    let Some(value) = value else { return "NULL".to_owned() };
    let kind = form(column);
    if !kind.may_be(value) {
        return quote(value);
    }
    match kind {
        Form::Float if !value.contains('e') => format!("{value}e0"),
        Form::Digits | Form::Choice | Form::Float => value.to_owned(),
        Form::Temporal => quote(value),
        Form::Json => format!("CAST(_utf8mb4 x'{value}' AS JSON)"),
        Form::Text(charset) => format!("_{charset} x'{value}'"),
        Form::Bytes => format!("x'{value}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_mean_the_value_whatever_it_holds() {
        let column = |column_type: &str, charset: Option<&str>| {
            let collation = charset.map(|charset| format!("{charset}_bin"));
            Column::new("c", column_type, collation.as_deref(), charset, None)
        };
        for (column, value, text) in [
            (column("int unsigned", None), "7", "7"),
            (column("year", None), "0000", "0000"),
            (column("decimal(65,30)", None), "-0.5", "-0.5"),
            (column("float", None), "0.10000000149011612", "0.10000000149011612e0"),
            (column("double", None), "1e300", "1e300"),
            (column("enum('a')", Some("latin1")), "0", "0"),
            (column("set('a','b')", Some("latin1")), "3", "3"),
            (column("bit(64)", None), "18446744073709551615", "18446744073709551615"),
            (
                column("datetime(6)", None),
                "0000-00-00 00:00:00.000000",
                "'0000-00-00 00:00:00.000000'",
            ),
            (column("time", None), "-838:59:59", "'-838:59:59'"),
            (column("varchar(9)", Some("latin1")), "27", "_latin1 x'27'"),
            (column("longtext", Some("utf8mb4")), "", "_utf8mb4 x''"),
            (column("json", None), "5B5D", "CAST(_utf8mb4 x'5B5D' AS JSON)"),
            (column("blob", None), "00FF", "x'00FF'"),
            (column("geometry", None), "00", "x'00'"),
            (column("int", None), "1;DROP TABLE t", "'1;DROP TABLE t'"),
            (column("double", None), "1),(2", "'1),(2'"),
            (column("blob", None), "00',x'", "'00'',x'''"),
            (column("text", Some("latin1';")), "00", "'00'"),
        ] {
            assert_eq!(literal(&column, Some(value)), text, "{column:?}");
            assert_eq!(literal(&column, None), "NULL");
        }
    }
}
