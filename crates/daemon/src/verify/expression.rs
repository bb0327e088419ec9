//! The SQL for one table on one side: digests that differ whenever a value does, and key ranges.
//! Answers have the digest or count first, then the key.

use csa_provider::sql_text::{identifier, quote};

use super::catalogue::Column;
use super::ranges::{KeyRange, LIST_ROWS, RowKey};
use super::table_name::TableName;

/// Longer strings enter the row's digest as a digest of their own, so that no row comes near
/// `max_allowed_packet`.
const PLAIN_OCTETS: u64 = 1024;

/// A key column, and how its values leave the server and return to it exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    pub(crate) kind: KeyKind,
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

    fn select(&self, name: &str) -> String {
        let name = identifier(name);
        match self {
            Self::Number | Self::Temporal => name,
            Self::Float => format!("HEX({})", double_bytes(&name)),
            Self::Choice => format!("CAST({name} AS UNSIGNED)"),
            Self::Text { .. } | Self::Bytes => format!("HEX({name})"),
        }
    }

    fn literal(&self, value: &str) -> String {
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
fn double_bytes(name: &str) -> String {
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

/// The answer to a digest: number of rows, number of rows with a digest, and the digest of all.
pub(crate) type DigestRow = (u64, u64, Option<String>);

/// The function that makes one digest of many, the same on both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DigestSum {
    /// MySQL 8.0 and later combine strings.
    Strings,
    /// Others combine 64 bits at a time.
    Integers,
}

impl DigestSum {
    /// Returns an aggregate over the digests `h`.
    fn sql(self) -> String {
        match self {
            // XOR needs no order of rows. Two equal digests would cancel out: with a key there are
            // none, without one see `buckets`.
            Self::Strings => "HEX(BIT_XOR(UNHEX(h)))".to_owned(),
            Self::Integers => {
                let part = |from: u32| {
                    format!("BIT_XOR(CAST(CONV(SUBSTRING(h,{from},16),16,10) AS UNSIGNED))")
                };
                format!("CONCAT_WS('-',{})", [1, 17, 33, 49].map(part).join(","))
            }
        }
    }
}

/// Writes the queries.
#[derive(Debug, Clone)]
pub(crate) struct TableSql {
    table: String,
    index: String,
    key: Vec<KeyColumn>,
    columns: Vec<Column>,
    row_digest: String,
    sum: DigestSum,
}

impl TableSql {
    /// Makes the expressions of a table; `index` is the name of the key's index on this side.
    pub(crate) fn new(
        table: &TableName,
        columns: &[Column],
        key: &[KeyColumn],
        index: Option<&str>,
        sum: DigestSum,
    ) -> Self {
        let values: Vec<String> = columns.iter().map(marked).collect();
        Self {
            table: format!("{}.{}", identifier(&table.schema), identifier(&table.table)),
            // Without the hint, the optimizer may read the whole table for a range.
            index: index
                .map_or(String::new(), |name| format!(" FORCE INDEX ({})", identifier(name))),
            key: key.to_vec(),
            columns: columns.to_vec(),
            row_digest: format!("SHA2(CONCAT({}),256)", values.join(",")),
            sum,
        }
    }

    /// Returns the key of the row that comes `rows` rows after `after`, if there are that many.
    pub(super) fn boundary(&self, after: Option<&RowKey>, rows: u64) -> String {
        let range = KeyRange { after: after.cloned(), through: None };
        self.middle(&range, rows.saturating_sub(1))
    }

    /// Returns the key of row number `place` in the range, from 0.
    pub(super) fn middle(&self, range: &KeyRange, place: u64) -> String {
        format!(
            "SELECT {} FROM {}{}{} ORDER BY {} LIMIT 1 OFFSET {place}",
            self.key_values(),
            self.table,
            self.index,
            self.condition(range),
            self.key_names()
        )
    }

    /// Returns the key of the row before the last `rows` rows, if there are more.
    pub(crate) fn before_last(&self, rows: u64) -> String {
        let order: Vec<String> =
            self.key.iter().map(|column| format!("{} DESC", identifier(&column.name))).collect();
        format!(
            "SELECT {} FROM {}{} ORDER BY {} LIMIT 1 OFFSET {rows}",
            self.key_values(),
            self.table,
            self.index,
            order.join(",")
        )
    }

    /// Number of rows, number of rows that have a digest, and the digest of all.
    pub(crate) fn digest(&self, range: &KeyRange) -> String {
        // Merged into the outer query, the derived table would compute each row's digest twice.
        format!(
            "SELECT /*+ NO_MERGE(d) */ COUNT(*), COUNT(h), {} FROM \
             (SELECT {} AS h FROM {}{}{}) d",
            self.sum.sql(),
            self.row_digest,
            self.table,
            self.index,
            self.condition(range)
        )
    }

    /// Digest and key of every row, up to a limit.
    pub(super) fn rows(&self, range: &KeyRange) -> String {
        format!(
            "SELECT {}, {} FROM {}{}{} ORDER BY {} LIMIT {}",
            self.row_digest,
            self.key_values(),
            self.table,
            self.index,
            self.condition(range),
            self.key_names(),
            LIST_ROWS + 1
        )
    }

    /// Digest and key of the rows with these keys.
    pub(super) fn lookup(&self, keys: &[RowKey]) -> String {
        format!(
            "SELECT {}, {} FROM {}{} WHERE {}",
            self.row_digest,
            self.key_values(),
            self.table,
            self.index,
            self.any_of(keys)
        )
    }

    /// Returns a digest per column of the rows with this key.
    pub(super) fn columns(&self, key: &RowKey) -> String {
        let digests: Vec<String> =
            self.columns.iter().map(|column| format!("SHA2({},256)", marked(column))).collect();
        format!(
            "SELECT {} FROM {}{} WHERE {}",
            digests.join(","),
            self.table,
            self.index,
            self.any_of(std::slice::from_ref(key))
        )
    }

    /// Rows grouped by the first `digits` of their digests: their number with two sums, and the
    /// digits.
    ///
    /// BIT_XOR alone would not notice a row that occurs twice.
    pub(super) fn buckets(&self, digits: u32) -> String {
        format!(
            "SELECT /*+ NO_MERGE(d) */ CONCAT(COUNT(*),'/',{},'/',\
             SUM(CAST(CONV(SUBSTRING(h,9,15),16,10) AS UNSIGNED))), LEFT(h,{digits}) b \
             FROM (SELECT {} AS h FROM {}) d GROUP BY b",
            self.sum.sql(),
            self.row_digest,
            self.table
        )
    }

    /// Returns the number of occurrences of each digest in these buckets, up to a limit.
    pub(super) fn bucket_rows(&self, buckets: &[String], limit: usize) -> String {
        let digits = buckets.first().map_or(0, String::len);
        let list = list(buckets);
        format!(
            "SELECT /*+ NO_MERGE(d) */ COUNT(*), h FROM (SELECT {} AS h FROM {}) d \
             WHERE LEFT(h,{digits}) IN ({list}) GROUP BY h LIMIT {limit}",
            self.row_digest, self.table
        )
    }

    /// Returns the number of occurrences of each of these digests.
    pub(super) fn digest_counts(&self, digests: &[String]) -> String {
        format!(
            "SELECT /*+ NO_MERGE(d) */ COUNT(*), h FROM (SELECT {} AS h FROM {}) d \
             WHERE h IN ({}) GROUP BY h",
            self.row_digest,
            self.table,
            list(digests)
        )
    }

    /// Returns these values of the first rows of a range, each row's followed by its key.
    pub(crate) fn values(&self, values: &str, range: &KeyRange, rows: u64) -> String {
        format!(
            "SELECT {values},{} FROM {}{}{} ORDER BY {} LIMIT {rows}",
            self.key_values(),
            self.table,
            self.index,
            self.condition(range),
            self.key_names()
        )
    }

    /// Returns a statement that deletes the rows of a range.
    pub(crate) fn delete(&self, range: &KeyRange) -> String {
        format!("DELETE FROM {}{}", self.table, self.condition(range))
    }

    /// The table's name, ready for a statement.
    pub(crate) fn name(&self) -> &str {
        &self.table
    }

    /// Returns the condition for the row with this key.
    pub(super) fn one_of(&self, key: &RowKey) -> String {
        self.any_of(std::slice::from_ref(key))
    }

    /// The condition for rows with this digest.
    pub(super) fn has_digest(&self, digest: &str) -> String {
        format!("{}={}", self.row_digest, quote(digest))
    }

    /// Returns the columns that enter the digest.
    pub(super) fn compared(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn key(&self) -> &[KeyColumn] {
        &self.key
    }

    pub(super) fn column_names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    fn key_values(&self) -> String {
        let values: Vec<String> =
            self.key.iter().map(|column| column.kind.select(&column.name)).collect();
        values.join(",")
    }

    fn key_names(&self) -> String {
        let names: Vec<String> = self.key.iter().map(|column| identifier(&column.name)).collect();
        names.join(",")
    }

    fn condition(&self, range: &KeyRange) -> String {
        let mut bounds = Vec::new();
        if let Some(after) = &range.after {
            bounds.push(self.bound(after, '>', ">"));
        }
        if let Some(through) = &range.through {
            bounds.push(self.bound(through, '<', "<="));
        }
        match bounds.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", bounds.join(" AND ")),
        }
    }

    /// Keys on one side of `key`; `last` compares the last column. Spelt out, because the optimizer
    /// finds no range in a comparison of row constructors; the first column's bound stands apart,
    /// because it gives up on large disjunctions.
    fn bound(&self, key: &RowKey, strict: char, last: &str) -> String {
        let mut parts = self.key.iter().zip(key).rev();
        let Some((column, value)) = parts.next() else { return "TRUE".to_owned() };
        let name = identifier(&column.name);
        let mut text = format!("{name}{last}{}", column.kind.literal(value));
        let mut first = None;
        for (column, value) in parts {
            let (name, value) = (identifier(&column.name), column.kind.literal(value));
            text = format!("({name}{strict}{value} OR ({name}={value} AND {text}))");
            first = Some(format!("{name}{strict}={value}"));
        }
        match first {
            Some(first) => format!("{first} AND {text}"),
            None => text,
        }
    }

    fn any_of(&self, keys: &[RowKey]) -> String {
        let one = |key: &RowKey| {
            let parts: Vec<String> = self
                .key
                .iter()
                .zip(key)
                .map(|(column, value)| {
                    format!("{}={}", identifier(&column.name), column.kind.literal(value))
                })
                .collect();
            format!("({})", parts.join(" AND "))
        };
        keys.iter().map(one).collect::<Vec<String>>().join(" OR ")
    }
}

/// Returns the bytes that differ whenever the value does, preceded by their length so that
/// neighbouring values can't run into each other.
fn marked(column: &Column) -> String {
    let name = identifier(&column.name);
    let value = match column.data_type.as_str() {
        "float" | "double" => double_bytes(&name),
        "bit" => format!("CAST(CAST({name} AS UNSIGNED) AS BINARY)"),
        // The number tells an invalid value, which reads as '', from a member ''.
        "enum" | "set" => {
            format!("CONCAT(CAST({name} AS UNSIGNED),'/',CAST({name} AS BINARY))")
        }
        "json" => format!("CONCAT(JSON_TYPE({name}),'/',SHA2(CAST({name} AS CHAR),256))"),
        // MySQL 9.7 computes with the literal of a condition in the column's place, and a literal has no
        // leading zeros; 5.7 puts a string with them there. So they do not enter the digest.
        "year" | "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal"
            if column.has_leading_zeros() =>
        {
            format!("TRIM(LEADING '0' FROM CAST({name} AS BINARY))")
        }
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "date" | "time"
        | "datetime" | "timestamp" => format!("CAST({name} AS BINARY)"),
        _ if column.octets.is_some_and(|octets| octets <= PLAIN_OCTETS) => {
            format!("CAST({name} AS BINARY)")
        }
        _ => format!("SHA2(CAST({name} AS BINARY),256)"),
    };
    format!("IF({name} IS NULL,'N',CONCAT(LENGTH({value}),':',{value}))")
}

fn list(texts: &[String]) -> String {
    texts.iter().map(|text| quote(text)).collect::<Vec<String>>().join(",")
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
