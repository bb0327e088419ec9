//! The rows of one table: the queries that read them in chunks, and the statements that insert them.

use csa_applier::CollationMap;
use csa_provider::sql_text::{identifier, quote};

use super::definitions::{qualified, unnumbered, zoned};
use super::error::{CopyError, Result};
use crate::verify::{
    Column, CommonKey, DigestSum, KeyRange, RowKey, TableName, TableSql, VerifySession, common,
    definition, literal, selected,
};

/// A statement that inserts rows grows up to this many bytes, and a row that is as long has one of its own. Servers accept
/// 4 MiB at least by default.
const STATEMENT_BYTES: usize = 1 << 20;

/// A row as the source gave it, one text for each value.
pub(super) type Row = Vec<Option<String>>;

/// How the rows of a table are read and written.
#[derive(Debug)]
pub(super) struct TableRows {
    /// The columns whose values are copied: the target computes the others.
    columns: Vec<Column>,
    values: String,
    insert: String,
    sql: TableSql,
    table: String,
    /// The text of SHOW CREATE TABLE, without the next number.
    definition: String,
    pub(super) has_key: bool,
    /// The key by which rows are read is the primary one.
    pub(super) has_primary_key: bool,
    /// The first column of the key, if it holds integers.
    pub(super) integer: Option<String>,
}

/// How far a part of a table was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Its place among the parts of its table.
    pub(super) number: u32,
    pub(super) range: KeyRange,
}

impl TableRows {
    /// Reads the definition of a table of the source.
    pub(super) async fn of(session: &mut VerifySession, table: &TableName) -> Result<Self> {
        // Read first: a column that is added meanwhile is in the list, and the text shows later that it is new.
        let shown = shown(session, &qualified(table)).await?;
        let Some(found) = definition(session, table).await? else {
            return Err(CopyError::changed(session, table));
        };
        let generated: Vec<String> = session
            .rows(&format!(
                "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA={} AND TABLE_NAME={} \
                 AND COALESCE(GENERATION_EXPRESSION,'')<>''",
                quote(&table.schema),
                quote(&table.table)
            ))
            .await?;
        // A table has with itself in common all of its columns and its best key.
        let common = common(&found, &found, &CollationMap::default());
        let key = common.key.as_ref();
        let key_columns = key.map_or(&[][..], |key| &key.columns);
        let columns: Vec<Column> = common.columns.to_vec();
        let sql = TableSql::new(
            table,
            &columns,
            key_columns,
            key.map(|key| key.source_index.as_str()),
            // A copy compares whole tables alone, which all servers sum in one way.
            DigestSum::Integers,
        );
        let integer = common.integer_column().map(str::to_owned);
        let stored: Vec<Column> = columns
            .into_iter()
            .filter(|column| !generated.iter().any(|name| column.is_named(name)))
            .collect();
        let list = |text: fn(&Column) -> String| {
            stored.iter().map(text).collect::<Vec<String>>().join(",")
        };
        let names = list(|column| identifier(&column.name));
        Ok(Self {
            values: list(selected),
            insert: format!("INTO {} ({names}) VALUES ", sql.name()),
            definition: shown,
            table: sql.name().to_owned(),
            columns: stored,
            has_key: key.is_some(),
            has_primary_key: key.is_some_and(CommonKey::is_primary),
            integer,
            sql,
        })
    }

    /// Checks that the table is still defined as it was when the copy began. A query of an old snapshot reads by
    /// the present definition: after two columns have exchanged their names, values would be exchanged too.
    pub(super) async fn check_definition(
        &self,
        session: &mut VerifySession,
        table: &TableName,
    ) -> Result<()> {
        match shown(session, &self.table).await? == self.definition {
            true => Ok(()),
            false => Err(CopyError::changed(session, table)),
        }
    }

    /// Names what a copy computes in another time zone than the source's sessions may have.
    pub(super) fn zoned(&self, table: &TableName) -> Option<String> {
        zoned(table, &self.definition)
    }

    /// Returns the query for the digest of all rows.
    pub(super) fn digest(&self) -> String {
        self.sql.whole_digest()
    }

    /// Returns the query for the next rows of a part, or for all rows of a table without a key: it could only continue
    /// by reading again what it has read.
    pub(super) fn query(&self, part: &Part, rows: u64) -> String {
        match self.has_key {
            true => self.sql.values(&self.values, &part.range, rows),
            false => format!("SELECT {} FROM {} USE INDEX ()", self.values, self.table),
        }
    }

    /// Returns the statement that deletes what the target has of a part up to where it is read, or to its end.
    pub(super) fn delete(&self, before: &Part, after: &Part, is_last: bool) -> String {
        let through = if is_last { &before.range.through } else { &after.range.after };
        let range = KeyRange { after: before.range.after.clone(), through: through.clone() };
        self.sql.delete(&range)
    }

    /// Moves a part past the rows that were read.
    pub(super) fn advance(&self, part: &mut Part, rows: &[Row]) {
        if let Some(key) = rows.last().filter(|_| self.has_key).and_then(|row| self.key(row)) {
            part.range.after = Some(key);
        }
    }

    fn key(&self, row: &Row) -> Option<RowKey> {
        row.get(self.columns.len()..)?.iter().cloned().collect()
    }

    /// Returns the statements that write rows; `replaces`: some may be there, as they were earlier.
    pub(super) fn inserts(&self, rows: &[Row], replaces: bool) -> Vec<String> {
        let verb = if replaces { "REPLACE" } else { "INSERT" };
        let mut statements: Vec<String> = Vec::new();
        for row in rows {
            let bytes: usize = row.iter().flatten().map(String::len).sum();
            let has_room = |text: &&mut String| text.len().max(bytes) < STATEMENT_BYTES;
            match statements.last_mut().filter(has_room) {
                Some(text) => text.push(','),
                None => statements.push(format!("{verb} {}", self.insert)),
            }
            if let Some(text) = statements.last_mut() {
                self.append(text, row);
            }
        }
        statements
    }

    fn append(&self, text: &mut String, row: &Row) {
        text.push('(');
        for (place, (column, value)) in self.columns.iter().zip(row).enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.push_str(&literal(column, value.as_deref()));
        }
        text.push(')');
    }
}

async fn shown(session: &mut VerifySession, table: &str) -> Result<String> {
    let rows = session.texts(&format!("SHOW CREATE TABLE {table}")).await?;
    let text = rows.into_iter().next().and_then(|row| row.into_iter().nth(1)).flatten();
    Ok(unnumbered(&text.unwrap_or_default()))
}

/// Divides the integers from `least` to `most` into ranges of about the same width, which hold no others.
pub(super) fn bounded_ranges(least: i128, most: i128, parts: u32) -> Vec<KeyRange> {
    let mut ranges = ranges(least, most, parts);
    if let Some(first) = ranges.first_mut() {
        first.after = Some(vec![(least - 1).to_string()]);
    }
    if let Some(last) = ranges.last_mut() {
        last.through = Some(vec![most.to_string()]);
    }
    ranges
}

/// Divides the integers from `least` to `most` into ranges of about the same width.
pub(super) fn ranges(least: i128, most: i128, parts: u32) -> Vec<KeyRange> {
    let bound = |part: u32| least + (most - least) * i128::from(part) / i128::from(parts.max(1));
    let key = |part: u32| Some(vec![bound(part).to_string()]);
    let end = parts.max(1);
    (0..end)
        .map(|part| KeyRange {
            after: if part == 0 { None } else { key(part) },
            through: if part + 1 == end { None } else { key(part + 1) },
        })
        .filter(|range| range.after != range.through || range.after.is_none())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns rows of one column of bytes.
    fn of_bytes() -> TableRows {
        let name = TableName { schema: "d".to_owned(), table: "t".to_owned() };
        let columns = vec![Column::new("v", "longblob", None, None, None)];
        TableRows {
            values: String::new(),
            insert: "INTO t VALUES ".to_owned(),
            sql: TableSql::new(&name, &columns, &[], None, DigestSum::Integers),
            columns,
            table: "t".to_owned(),
            definition: String::new(),
            has_key: false,
            has_primary_key: false,
            integer: None,
        }
    }

    /// A target that has room for the longest row has room for each statement.
    #[test]
    fn a_long_row_shares_its_statement_with_no_other() {
        let row = |bytes: usize| vec![Some("0".repeat(bytes))];
        let (short, long) = (row(1000), row(STATEMENT_BYTES));
        let rows = [short.clone(), short.clone(), long, short.clone(), short];
        let statements = of_bytes().inserts(&rows, false);
        let rows: Vec<usize> = statements.iter().map(|text| text.matches("(x'").count()).collect();
        assert_eq!(rows, [2, 1, 2]);
        assert!(statements.iter().all(|text| text.starts_with("INSERT INTO t VALUES (x'")));
    }

    #[test]
    fn ranges_leave_no_key_out_and_hold_none_twice() {
        for (least, most, parts) in [
            (1, 1_000_000, 4),
            (5, 5, 4),
            (0, 2, 8),
            (-7, 7, 3),
            (i128::from(i64::MIN), i128::from(u64::MAX), 5),
            (1, 10, 0),
        ] {
            let ranges = ranges(least, most, parts);
            assert_eq!(ranges.first().and_then(|range| range.after.clone()), None);
            assert_eq!(ranges.last().and_then(|range| range.through.clone()), None);
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].through, pair[1].after, "{ranges:?}");
            }
            assert!(ranges.len() <= parts.max(1) as usize);
        }
        let bounded = bounded_ranges(5, 9, 1);
        let key = |key: &str| Some(vec![key.to_owned()]);
        assert_eq!(bounded, [KeyRange { after: key("4"), through: key("9") }]);
        assert_eq!(bounded_ranges(1, 100, 4).len(), 4);
        let bounds: Vec<KeyRange> = ranges(0, 100, 2);
        assert_eq!(bounds[0].through, Some(vec!["50".to_owned()]));
    }
}
