//! Comparison of a table with a key: chunk by chunk, then the differing rows by key.

use std::time::Instant;

use super::catalogue::{Column, Estimate};
use super::error::Result;
use super::event::Activity;
use super::pace::ChunkRows;
use super::ranges::{KeyRange, RangeDigest, RangeStep, Ranges, RowKey};
use super::recheck::Different;
use super::report::{DifferenceKind, RowDifference, TableReport};
use super::servers::Servers;
use super::session::VerifySession;
use super::suspects::{Lookup, PairedSql, settle, split};
use csa_provider::server::link::Side;
use csa_provider::sql_text::identifier;

/// Suspects are settled at this number, which bounds the memory they take.
const SUSPECTS: usize = 500;

/// Compares all rows; differences go into the report.
pub(super) async fn compare(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    estimate: Estimate,
    report: &mut TableReport,
) -> Result<()> {
    let part = servers.resume.lock().part();
    let mut ranges = match part {
        Some(part) => {
            *report = part.report;
            servers.resumed(part.rows);
            Ranges::resume(part.after, part.rows, part.suspects)
        }
        None => Ranges::default(),
    };
    let mut chunk = ChunkRows::new(servers.options.chunk_rows, estimate.average_row);
    loop {
        let started = Instant::now();
        let step = ranges.step(chunk.get());
        match &step {
            RangeStep::Done => break,
            RangeStep::Boundary { after, rows } => {
                let query = sql.source.boundary(after.as_ref(), *rows);
                ranges.boundary(first(servers.source.values(&query).await?));
            }
            RangeStep::Digests(range) => {
                let (source, target) = digests(servers, sql, range).await?;
                ranges.digests(&source, &target);
                let rows = source.rows.max(target.rows);
                chunk.took(rows, started.elapsed());
                report.rows = ranges.rows_seen();
                servers.progress.rows = report.rows;
                servers.tell(Activity::Comparing);
                servers.throttle(rows, started).await?;
            }
            RangeStep::Middle { range, side, place } => {
                let found = match side {
                    Side::Source => {
                        servers.source.values(&sql.source.middle(range, *place)).await?
                    }
                    Side::Target => {
                        servers.target.values(&sql.target.middle(range, *place)).await?
                    }
                };
                ranges.middle(first(found));
            }
            RangeStep::Rows(range) => {
                let (source, target) =
                    servers.values(&sql.source.rows(range), &sql.target.rows(range)).await?;
                let read = source.len().max(target.len());
                let keyed = |rows: Vec<Vec<String>>| rows.into_iter().filter_map(split).collect();
                ranges.rows(keyed(source), keyed(target));
                servers.throttle(read as u64, started).await?;
            }
        }
        if let Some((after, suspects)) = ranges.reached() {
            servers.reached(after, ranges.rows_seen(), suspects, report);
        }
        if ranges.suspects() >= SUSPECTS && !judge(servers, sql, &mut ranges, report).await? {
            return Ok(());
        }
    }
    judge(servers, sql, &mut ranges, report).await?;
    Ok(())
}

/// Settles the suspects so far; `false` once the limit of reported rows is reached.
async fn judge(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    ranges: &mut Ranges,
    report: &mut TableReport,
) -> Result<bool> {
    for range in ranges.take_unstable() {
        let text = described(servers, sql, &range).await?;
        report.unstable.push(text);
    }
    let settled = settle(servers, sql, Lookup::Row, ranges.take_suspects()).await?;
    for key in settled.unstable {
        report.unstable.push(readable(&mut servers.source, sql, &key).await?);
    }
    for different in settled.different {
        if report.differences.len() >= servers.options.max_differences.max(1) {
            report.left_out = Some(format!(
                "more rows differ; the rest of the table was not compared (--max-differences {})",
                servers.options.max_differences
            ));
            return Ok(false);
        }
        let found = difference(servers, sql, &different).await?;
        let is_beyond_copies = is_beyond_copies(servers, sql, &different.key, &found.kind).await?;
        report.beyond_copies += u64::from(is_beyond_copies);
        report.differences.push(found);
        report.wanted.push(different);
    }
    Ok(true)
}

async fn difference(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    different: &Different,
) -> Result<RowDifference> {
    let key = readable(&mut servers.source, sql, &different.key).await?;
    let kind = match (&different.source, &different.target) {
        (Some(_), None) => DifferenceKind::MissingOnTarget,
        (None, Some(_)) => DifferenceKind::OnlyOnTarget,
        _ => DifferenceKind::Differs { columns: columns(servers, sql, &different.key).await? },
    };
    Ok(RowDifference { key, kind })
}

/// Returns true if a row differs in nothing but JSON, and would still do so in each of these columns once it is copied.
async fn is_beyond_copies(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    key: &RowKey,
    kind: &DifferenceKind,
) -> Result<bool> {
    let DifferenceKind::Differs { columns } = kind else { return Ok(false) };
    let differs = |column: &&Column| columns.iter().any(|name| column.is_named(name));
    let differing = sql.source.compared().iter().filter(differs);
    let conditions: Option<String> = differing.map(differs_from_its_text).collect();
    let Some(conditions) = conditions.filter(|conditions| !conditions.is_empty()) else {
        return Ok(false);
    };
    let (table, found) = (sql.source.name(), sql.source.one_of(key));
    let query = format!("SELECT 1 FROM {table} WHERE {found}{conditions}");
    Ok(!servers.source.values(&query).await?.is_empty())
}

/// Returns the condition that a JSON value has another digest than the value that its text stands for; `None` for a
/// column of another type.
fn differs_from_its_text(column: &Column) -> Option<String> {
    let name = identifier(&column.name);
    let copied = format!("CAST(CAST({name} AS CHAR CHARACTER SET utf8mb4) AS JSON)");
    (column.data_type == "json").then(|| {
        format!(
            " AND (JSON_TYPE({name})<>JSON_TYPE({copied}) \
             OR CAST(CAST({name} AS CHAR) AS BINARY)<>CAST(CAST({copied} AS CHAR) AS BINARY))"
        )
    })
}

/// Returns the columns that differ at this moment; none if the row no longer exists.
async fn columns(servers: &mut Servers<'_>, sql: &PairedSql, key: &RowKey) -> Result<Vec<String>> {
    let (source, target) =
        servers.values(&sql.source.columns(key), &sql.target.columns(key)).await?;
    let (Some(source), Some(target)) = (source.first(), target.first()) else {
        return Ok(Vec::new());
    };
    let digests = source.iter().zip(target);
    let differing = sql.source.column_names().zip(digests).filter(|(_, (a, b))| a != b);
    Ok(differing.map(|(name, _)| name.to_owned()).collect())
}

async fn digests(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    range: &KeyRange,
) -> Result<(RangeDigest, RangeDigest)> {
    let (source, target) =
        servers.values(&sql.source.digest(range), &sql.target.digest(range)).await?;
    Ok((digest(&servers.source, source)?, digest(&servers.target, target)?))
}

fn digest(session: &VerifySession, rows: Vec<Vec<String>>) -> Result<RangeDigest> {
    let digest = rows.into_iter().next().and_then(|row| {
        let [rows, with_digest, digest] = <[String; 3]>::try_from(row).ok()?;
        // A row without a digest (see `no_digest`) does not change the sum of the others.
        let is_whole = rows == with_digest;
        let rows = rows.parse().ok()?;
        // The length of an empty digest depends on the server's version.
        let digest = if rows == 0 { String::new() } else { digest };
        is_whole.then_some(RangeDigest { rows, digest })
    });
    digest.ok_or_else(|| session.no_digest())
}

fn first(rows: Vec<Vec<String>>) -> Option<RowKey> {
    rows.into_iter().next()
}

/// Returns `a=1, b='x'`.
async fn readable(session: &mut VerifySession, sql: &PairedSql, key: &RowKey) -> Result<String> {
    let columns = sql.source.key().iter().zip(key);
    let values: Vec<String> =
        columns.clone().map(|(column, value)| column.kind.readable(value)).collect();
    let rows = session.values(&format!("SELECT {}", values.join(","))).await?;
    let row = rows.into_iter().next().unwrap_or_default();
    let parts: Vec<String> = columns
        .zip(row)
        .map(|((column, _), value)| format!("{}={}", column.name, column.kind.quoted(&value)))
        .collect();
    Ok(parts.join(", "))
}

async fn described(servers: &mut Servers<'_>, sql: &PairedSql, range: &KeyRange) -> Result<String> {
    let mut text = "rows".to_owned();
    for (word, key) in [(" after", &range.after), (" up to", &range.through)] {
        if let Some(key) = key {
            let key = readable(&mut servers.source, sql, key).await?;
            text.push_str(&format!("{word} {key}"));
        }
    }
    Ok(text)
}
