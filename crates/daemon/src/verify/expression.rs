//! The SQL for one table on one side: digests that differ whenever a value does, and key ranges.
//! Answers have the digest or count first, then the key.

use csa_provider::sql_text::{identifier, quote};

use super::catalogue::Column;
use super::key_column::{KeyColumn, double_bytes};
use super::ranges::{KeyRange, LIST_ROWS, RowKey};
use super::table_name::TableName;

/// Longer strings enter the row's digest as a digest of their own, so that no row comes near
/// `max_allowed_packet`.
const PLAIN_OCTETS: u64 = 1024;

/// The answer to a digest: number of rows, number of rows with a digest, and the digest of all.
pub(crate) type DigestRow = (u64, u64, Option<String>);

/// The answer to a digest of a whole table: number of rows, and the sum of their digests, `None` without rows.
pub(crate) type WholeDigestRow = (u64, Option<String>);

/// A row without a digest adds this number to a sum, in which no numbers of 64 bits come near it.
const LACKING: &str = "10000000000000000000000000000000000000000";

/// Returns 64 bits of a digest, which begin with this digit.
///
/// The digest stands in a sum of them once, so the server computes it once for each row, and keeps none of them.
fn bits(digest: &str, from: u32) -> String {
    format!("CAST(CONV(SUBSTRING({digest},{from},16),16,10) AS UNSIGNED)")
}

/// Returns true if all rows have a digest.
pub(crate) fn has_all_digests((_, sum): &WholeDigestRow) -> bool {
    sum.as_ref().is_none_or(|sum| sum.len() < LACKING.len())
}

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
            // none.
            Self::Strings => "HEX(BIT_XOR(UNHEX(h)))".to_owned(),
            Self::Integers => {
                let part = |from: u32| format!("BIT_XOR({})", bits("h", from));
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
            self.order(false)
        )
    }

    /// Returns the key of the row before the last `rows` rows, if there are more.
    pub(crate) fn before_last(&self, rows: u64) -> String {
        format!(
            "SELECT {} FROM {}{} ORDER BY {} LIMIT 1 OFFSET {rows}",
            self.key_values(),
            self.table,
            self.index,
            self.order(true)
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

    /// Returns the number of all rows and the sum of their digests, which needs no key.
    ///
    /// There is no derived table: for a whole table, the server would write all digests to its disk.
    pub(crate) fn whole_digest(&self) -> String {
        let bits = bits(&self.row_digest, 1);
        format!("SELECT COUNT(*), SUM(IFNULL({bits},{LACKING})) FROM {}", self.table)
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
            self.order(false),
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

    /// Returns rows grouped by the first `digits` of their digests: their number with a sum of other digits, and the
    /// digits. Only rows of the buckets in `within` are grouped, unless it is empty.
    ///
    /// The server keeps no digests, as in [`Self::whole_digest`]. A column may have any name, so the group has a number.
    pub(super) fn buckets(&self, within: &[String], digits: u32) -> String {
        let digest = &self.row_digest;
        let condition = if within.is_empty() { String::new() } else { self.is_in(within) };
        format!(
            "SELECT CONCAT(COUNT(*),'/',SUM({})), LEFT({digest},{digits}) FROM {}{condition} GROUP BY 2",
            bits(digest, 17),
            self.table
        )
    }

    /// Returns the number of occurrences of each digest in these buckets, up to a limit.
    pub(super) fn bucket_rows(&self, buckets: &[String], limit: usize) -> String {
        let (digest, condition) = (&self.row_digest, self.is_in(buckets));
        format!("SELECT COUNT(*), {digest} FROM {}{condition} GROUP BY 2 LIMIT {limit}", self.table)
    }

    /// Returns the number of occurrences of each of these digests.
    pub(super) fn digest_counts(&self, digests: &[String]) -> String {
        let (digest, list) = (&self.row_digest, list(digests));
        format!(
            "SELECT COUNT(*), {digest} FROM {} WHERE {digest} IN ({list}) GROUP BY 2",
            self.table
        )
    }

    /// Returns the condition for rows in buckets, whose names have the same length.
    fn is_in(&self, buckets: &[String]) -> String {
        let digits = buckets.first().map_or(0, String::len);
        format!(" WHERE LEFT({},{digits}) IN ({})", self.row_digest, list(buckets))
    }

    /// Returns these values of the first rows of a range, each row's followed by its key.
    pub(crate) fn values(&self, values: &str, range: &KeyRange, rows: u64) -> String {
        format!(
            "SELECT {values},{} FROM {}{}{} ORDER BY {} LIMIT {rows}",
            self.key_values(),
            self.table,
            self.index,
            self.condition(range),
            self.order(false)
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

    /// Returns the order of the key, or the opposite one.
    fn order(&self, is_backward: bool) -> String {
        let column = |column: &KeyColumn| match column.is_reversed == is_backward {
            true => identifier(&column.name),
            false => format!("{} DESC", identifier(&column.name)),
        };
        self.key.iter().map(column).collect::<Vec<String>>().join(",")
    }

    fn condition(&self, range: &KeyRange) -> String {
        let mut bounds = Vec::new();
        if let Some(after) = &range.after {
            bounds.push(self.bound(after, true));
        }
        if let Some(through) = &range.through {
            bounds.push(self.bound(through, false));
        }
        match bounds.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", bounds.join(" AND ")),
        }
    }

    /// Returns the condition for rows after `key` in the order of the key, or for all others. It is spelt out, because the
    /// optimizer finds no range in a comparison of row constructors. The first column's bound stands apart, because it gives
    /// up on large disjunctions.
    fn bound(&self, key: &RowKey, is_after: bool) -> String {
        let strict = |column: &KeyColumn| if column.is_reversed == is_after { '<' } else { '>' };
        let mut parts = self.key.iter().zip(key).rev();
        let Some((column, value)) = parts.next() else { return "TRUE".to_owned() };
        let (name, or_equal) = (identifier(&column.name), if is_after { "" } else { "=" });
        let mut text = format!("{name}{}{or_equal}{}", strict(column), column.kind.literal(value));
        let mut first = None;
        for (column, value) in parts {
            let (name, value) = (identifier(&column.name), column.kind.literal(value));
            let strict = strict(column);
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
    use super::super::key_column::KeyKind;
    use super::*;

    #[test]
    fn a_row_without_a_digest_shows_in_the_sum() {
        let sum = |text: &str| (3, Some(text.to_owned()));
        assert!(has_all_digests(&(0, None)));
        assert!(has_all_digests(&sum("55340232221128654845")));
        assert!(has_all_digests(&sum(&"9".repeat(40))));
        assert!(!has_all_digests(&sum(LACKING)));
        assert!(!has_all_digests(&sum("30000000000000000000000000000000000000007")));
    }

    #[test]
    fn a_key_of_two_directions_is_read_in_its_own_order() {
        let name = TableName { schema: "d".to_owned(), table: "t".to_owned() };
        let column = |name: &str, is_reversed| KeyColumn {
            name: name.to_owned(),
            kind: KeyKind::Number,
            is_reversed,
        };
        let of = |is_reversed| {
            let key = [column("a", false), column("b", is_reversed)];
            TableSql::new(&name, &[], &key, Some("PRIMARY"), DigestSum::Integers)
        };
        let key = |a: &str, b: &str| Some(vec![a.to_owned(), b.to_owned()]);
        let range = KeyRange { after: key("1", "2"), through: key("3", "4") };
        let read = |sql: TableSql| {
            let query = sql.values("1", &range, 9);
            let (_, condition) = query.split_once(" WHERE ").expect("a condition");
            (condition.to_owned(), sql.before_last(5))
        };
        let (forward, tail) = read(of(false));
        let expected = "`a`>=1 AND (`a`>1 OR (`a`=1 AND `b`>2)) AND `a`<=3 AND (`a`<3 OR (`a`=3 AND `b`<=4)) \
             ORDER BY `a`,`b` LIMIT 9";
        assert_eq!(forward, expected);
        assert!(tail.ends_with(" ORDER BY `a` DESC,`b` DESC LIMIT 1 OFFSET 5"), "{tail}");
        let (mixed, tail) = read(of(true));
        let expected = "`a`>=1 AND (`a`>1 OR (`a`=1 AND `b`<2)) AND `a`<=3 AND (`a`<3 OR (`a`=3 AND `b`>=4)) \
             ORDER BY `a`,`b` DESC LIMIT 9";
        assert_eq!(mixed, expected);
        assert!(tail.ends_with(" ORDER BY `a` DESC,`b` LIMIT 1 OFFSET 5"), "{tail}");
    }

    #[test]
    fn a_whole_table_is_read_once_and_in_place() {
        let column = Column::new("h", "int", None, None, None);
        let name = TableName { schema: "d".to_owned(), table: "t".to_owned() };
        let sql = TableSql::new(&name, &[column], &[], None, DigestSum::Integers);
        let whole = sql.whole_digest();
        assert_eq!(whole.matches("SHA2(").count(), 1, "{whole}");
        let within = ["a0".to_owned(), "ff".to_owned()];
        for query in [whole, sql.buckets(&within, 3), sql.bucket_rows(&within, 9)] {
            assert!(!query.contains("(SELECT "), "{query}");
        }
        assert!(sql.buckets(&within, 3).contains(",256),2) IN ('a0','ff') GROUP BY 2"));
        assert!(!sql.buckets(&[], 3).contains(" WHERE "));
    }
}
