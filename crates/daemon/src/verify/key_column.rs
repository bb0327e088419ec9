//! The columns of a key, and their values as texts that a server gives and takes.

use csa_provider::sql_text::{identifier, quote};

use super::catalogue::Column;

/// A key column, and how its values leave the server and return to it exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    pub(crate) kind: KeyKind,
    /// The index has it in the other direction than its first column. Read forwards or backwards, it then gives all
    /// rows in the order of a key whose first column ascends.
    pub(super) is_reversed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// Integers, DECIMAL, YEAR: their text.
    Number,
    /// FLOAT as the DOUBLE it equals, by its bits.
    Float,
    /// ENUM and BIT by number, which is their order.
    Choice,
    Temporal,
    /// Bytes in the column's own character set.
    Text {
        charset: String,
    },
    Bytes,
}

impl KeyKind {
    /// Returns `None` for types whose order depends on nothing that can be written exactly.
    pub(super) fn of(column: &Column) -> Option<Self> {
        Some(match column.data_type.as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "year" => {
                Self::Number
            }
            "float" | "double" => Self::Float,
            "enum" | "bit" => Self::Choice,
            "date" | "time" | "datetime" | "timestamp" => Self::Temporal,
            "binary" | "varbinary" => Self::Bytes,
            // Ranges of both servers must hold the same keys.
            "char" | "varchar" if column.is_mapped => return None,
            "char" | "varchar" => Self::Text { charset: column.charset.clone()? },
            _ => return None,
        })
    }

    pub(super) fn select(&self, name: &str) -> String {
        let name = identifier(name);
        match self {
            Self::Number | Self::Temporal => name,
            Self::Float => format!("HEX({})", double_bytes(&name)),
            Self::Choice => format!("CAST({name} AS UNSIGNED)"),
            Self::Text { .. } | Self::Bytes => format!("HEX({name})"),
        }
    }

    pub(super) fn literal(&self, value: &str) -> String {
        match self {
            Self::Number | Self::Choice => value.to_owned(),
            Self::Float => match double_of(value) {
                Some(number) => format!("{number:e}"),
                None => value.to_owned(),
            },
            Self::Temporal => quote(value),
            // The column's own collation decides, as in a comparison with any literal.
            Self::Text { charset } => format!("_{charset} x'{value}'"),
            Self::Bytes => format!("x'{value}'"),
        }
    }

    /// Returns the value that [`Self::readable`] gives, quoted if it is a string.
    pub(super) fn quoted(&self, value: &str) -> String {
        match self {
            Self::Text { .. } | Self::Temporal => format!("'{}'", value.escape_debug()),
            _ => value.to_owned(),
        }
    }

    /// Returns an expression that gives the value in readable form.
    pub(super) fn readable(&self, value: &str) -> String {
        match self {
            Self::Text { .. } => format!("CONVERT({} USING utf8mb4)", self.literal(value)),
            Self::Bytes => quote(&format!("0x{value}")),
            Self::Float => quote(&double_of(value).map_or_else(|| value.to_owned(), shown)),
            _ => quote(value),
        }
    }
}

/// The bytes of a point with this number as its first coordinate. As text, MySQL 8.0 and later cut a number
/// to 22 characters and with it its last digits, and 5.7 and MariaDB write it in another form. A sum would
/// lose the sign of -0.
pub(super) fn double_bytes(name: &str) -> String {
    format!("CAST(POINT({name}*1e0,0) AS BINARY)")
}

/// Returns the number in the hexadecimal digits of [`double_bytes`].
fn double_of(digits: &str) -> Option<f64> {
    /// Bytes before the coordinate: spatial reference system, byte order and type.
    const BEFORE: usize = 9;
    let digits = digits.get(2 * BEFORE..2 * (BEFORE + size_of::<f64>()))?;
    Some(f64::from_bits(u64::from_str_radix(digits, 16).ok()?.swap_bytes()))
}

/// Returns the shortest text of a number.
fn shown(number: f64) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_doubles_become_the_literals_of_the_same_doubles() {
        let answer = |number: f64| {
            let digits: String =
                number.to_le_bytes().iter().map(|byte| format!("{byte:02X}")).collect();
            format!("000000000101000000{digits}0000000000000000")
        };
        for (number, literal, readable) in [
            (-0.0, "-0e0", "'-0'"),
            (0.1, "1e-1", "'0.1'"),
            (
                -1.234_567_890_123_456_8e-300,
                "-1.2345678901234568e-300",
                "'-1.2345678901234568e-300'",
            ),
            (5e-324, "5e-324", "'5e-324'"),
            (f64::MAX, "1.7976931348623157e308", "'1.7976931348623157e308'"),
            (42.0, "4.2e1", "'42'"),
        ] {
            assert_eq!(KeyKind::Float.literal(&answer(number)), literal);
            assert_eq!(KeyKind::Float.readable(&answer(number)), readable);
        }
    }
}
