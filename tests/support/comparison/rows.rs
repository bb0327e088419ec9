//! Rows: a digest computed by the server, and the differing rows where it differs.

use std::collections::HashMap;

use super::{Side, literal, quote};

/// Differing rows shown for each side.
const SHOWN: usize = 3;

/// Number of rows, rows whose digest failed, and the sums of the four quarters of all digests: a
/// sum, not an XOR, so that a row held twice counts.
type Digest = (u64, u64, String, String, String, String);

/// Compares a table; returns the number of rows on the source.
pub(super) async fn compare(
    source: &mut Side,
    target: &mut Side,
    table: &(String, String),
    differences: &mut Vec<String>,
) -> u64 {
    let (left, right) = tokio::join!(digest(source, table), digest(target, table));
    if left == right {
        return left.0;
    }
    let name = format!("{}.{}", table.0, table.1);
    let mut text =
        format!("table {name}: {} rows on the source, {} on the target", left.0, right.0);
    let (left_rows, right_rows) = tokio::join!(hashes(source, table), hashes(target, table));
    for (side, place, mine, other) in
        [(source, "source", &left_rows, &right_rows), (target, "target", &right_rows, &left_rows)]
    {
        let mut extra: Vec<&String> = mine
            .iter()
            .filter(|(hash, count)| other.get(*hash).is_none_or(|others| others < count))
            .map(|(hash, _)| hash)
            .collect();
        extra.sort();
        text.push_str(&format!("; {} different ones only on the {place}", extra.len()));
        for row in show(side, table, &extra).await {
            text.push_str(&format!("\n  {place}: {row}"));
        }
    }
    differences.push(text);
    left.0
}

async fn digest(side: &mut Side, table: &(String, String)) -> Digest {
    let quarters: Vec<String> = (0..4)
        .map(|quarter| {
            let start = quarter * 16 + 1;
            format!(
                "CAST(COALESCE(SUM(CAST(CONV(SUBSTRING(h,{start},16),16,10) AS DECIMAL(20,0))),0) \
                 AS CHAR)"
            )
        })
        .collect();
    // Merged, the query would make each row's digest once for each of its uses. MariaDB ignores the hint.
    let query = format!(
        "SELECT /*+ NO_MERGE(d) */ COUNT(*), CAST(COALESCE(SUM(h IS NULL),0) AS UNSIGNED), {} FROM ({}) d",
        quarters.join(", "),
        hashed(side, table, "").await
    );
    let rows: Vec<Digest> = side.rows(&query).await;
    let Some(digest) = rows.into_iter().next() else {
        panic!("on {}: no row\n{query}", side.name);
    };
    assert_eq!(digest.1, 0, "on {}: rows of {table:?} have no digest", side.name);
    digest
}

/// How often each row's digest occurs.
async fn hashes(side: &mut Side, table: &(String, String)) -> HashMap<String, u64> {
    let rows = hashed(side, table, "").await;
    let query = format!("SELECT h, COUNT(*) FROM ({rows}) d GROUP BY h");
    side.rows::<(String, u64)>(&query).await.into_iter().collect()
}

/// Returns the first rows with these digests, as text; in the order of the primary key if the
/// server reads them in that order.
async fn show(side: &mut Side, table: &(String, String), wanted: &[&String]) -> Vec<String> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let columns = columns(side, table).await;
    let readable: Vec<String> = columns
        .iter()
        .map(|column| {
            let value = format!("IFNULL(LEFT({},80),'NULL')", column.readable());
            format!("CONCAT({},'=',{value})", literal(&column.name))
        })
        .collect();
    let extra = format!(", CONCAT_WS(', ', {}) AS r", readable.join(", "));
    let rows = hashed(side, table, &extra).await;
    // A thousand digests are enough to find the first differing rows in table order.
    let list: Vec<String> = wanted.iter().take(1_000).map(|hash| literal(hash)).collect();
    let query = format!("SELECT r FROM ({rows}) d WHERE h IN ({}) LIMIT {SHOWN}", list.join(","));
    side.rows(&query).await
}

/// Returns a query for the digest `h` of every row, and more columns.
async fn hashed(side: &mut Side, (schema, table): &(String, String), extra: &str) -> String {
    let columns = columns(side, &(schema.clone(), table.clone())).await;
    let marked: Vec<String> = columns.iter().map(Column::marked).collect();
    format!(
        "SELECT SHA2(CONCAT({}),256) AS h{extra} FROM {}.{}",
        marked.join(","),
        quote(schema),
        quote(table)
    )
}

struct Column {
    name: String,
    data_type: String,
}

/// Returns all columns in order, including generated and invisible ones.
async fn columns(side: &mut Side, (schema, table): &(String, String)) -> Vec<Column> {
    let query = format!(
        "SELECT column_name, CAST(data_type AS CHAR) FROM information_schema.columns \
         WHERE table_schema={} AND table_name={} ORDER BY ordinal_position",
        literal(schema),
        literal(table)
    );
    let rows: Vec<(String, String)> = side.rows(&query).await;
    rows.into_iter().map(|(name, data_type)| Column { name, data_type }).collect()
}

impl Column {
    /// Returns an expression of bytes that differs whenever the value does: a mark for NULL, otherwise length and
    /// content. Long values are digested, because together they may exceed `max_allowed_packet`.
    fn marked(&self) -> String {
        let name = quote(&self.name);
        let value = self.value();
        format!(
            "IF({name} IS NULL,'N;',CONCAT(LENGTH({value}),':',\
             IF(LENGTH({value})<=250,{value},SHA2({value},256)),';'))"
        )
    }

    /// Returns the value as a binary string, with every bit that matters.
    fn value(&self) -> String {
        let name = quote(&self.name);
        match self.data_type.as_str() {
            // The bytes of a point: the text of a FLOAT has six digits, that of a DOUBLE is cut to 22
            // characters.
            "float" | "double" => format!("CAST(POINT({name}+0e0,0) AS BINARY)"),
            "bit" => format!("CAST({name}+0 AS BINARY)"),
            // The number distinguishes the empty string of an invalid value from a member ''.
            "enum" | "set" => {
                format!("CONCAT(CAST({name}+0 AS BINARY),'/',CAST({name} AS BINARY))")
            }
            // The text does not show the types of numbers inside.
            "json" => format!("CAST(CAST({name} AS CHAR) AS BINARY)"),
            _ => format!("CAST({name} AS BINARY)"),
        }
    }

    fn readable(&self) -> String {
        let name = quote(&self.name);
        match self.data_type.as_str() {
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector"
            | "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multipolygon"
            | "multilinestring" | "geomcollection" | "geometrycollection" => {
                format!("CONCAT('0x',HEX(LEFT({},32)))", self.value())
            }
            "float" | "double" => format!("CAST({name}+0e0 AS CHAR)"),
            "bit" => format!("CAST({} AS CHAR)", self.value()),
            _ => format!("CONVERT({name} USING utf8mb4)"),
        }
    }
}
