//! Comparison of a table without a key: as a multiset of digests. Each look reads the whole table,
//! so rows are first divided into buckets by the first digits of their digests.

use std::collections::BTreeSet;

use super::catalogue::Estimate;
use super::error::Result;
use super::event::Activity;
use super::ranges::RowKey;
use super::report::{DifferenceKind, RowDifference, TableReport};
use super::servers::Servers;
use super::suspects::{Lookup, PairedSql, settle};

/// Rows in a bucket, approximately.
const BUCKET_ROWS: u64 = 500;
/// Each digit multiplies the number of buckets by 16.
const DIGITS_MAX: u32 = 4;
/// Differing buckets that are examined at a time.
const BUCKETS: usize = 16;
/// Distinct digests read from them.
const DIGESTS: usize = 20_000;
/// Digits of a digest shown.
const SHOWN: usize = 16;

/// Compares all rows; differences go into the report.
pub(super) async fn compare(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    estimate: Estimate,
    report: &mut TableReport,
) -> Result<()> {
    let digits = digits(estimate.rows);
    let (on_source, on_target) = (sql.source.buckets(&[], digits), sql.target.buckets(&[], digits));
    let (source, target) = servers.values(&on_source, &on_target).await?;
    report.rows = source.iter().filter_map(|row| rows_in(row.first()?)).sum();
    servers.progress.rows = report.rows;
    servers.tell(Activity::Comparing);
    let mut buckets = differing(&source, &target);
    if !buckets.is_empty() {
        // Waiting once spares listing the digests of rows that are merely late.
        servers.catch_up().await?;
        let (source, target) = servers.values(&on_source, &on_target).await?;
        let still = differing(&source, &target);
        buckets.retain(|bucket| still.contains(bucket));
    }
    let buckets: Vec<String> = buckets.into_iter().flatten().collect();
    for some in buckets.chunks(BUCKETS) {
        if !look_into(servers, sql, some, report).await? {
            break;
        }
    }
    Ok(())
}

/// Names the digests whose numbers differ; `false` once enough differ.
async fn look_into(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    buckets: &[String],
    report: &mut TableReport,
) -> Result<bool> {
    let limit = DIGESTS + 1;
    let (source, target) = servers
        .values(&sql.source.bucket_rows(buckets, limit), &sql.target.bucket_rows(buckets, limit))
        .await?;
    if source.len().max(target.len()) > DIGESTS {
        report.definition.push("more rows differ than can be told apart without a key".to_owned());
        return Ok(false);
    }
    let keys = differing(&source, &target).into_iter().collect();
    let settled = settle(servers, sql, Lookup::Digest, keys).await?;
    for key in settled.unstable {
        report.unstable.push(named(&key));
    }
    for different in settled.different {
        if report.differences.len() >= servers.options.max_differences.max(1) {
            report.left_out = Some(format!(
                "more rows differ (--max-differences {})",
                servers.options.max_differences
            ));
            return Ok(false);
        }
        report.wanted.push(different.clone());
        let count = |value: Option<String>| value.and_then(|n| n.parse().ok()).unwrap_or(0);
        let kind = DifferenceKind::Count {
            source: count(different.source),
            target: count(different.target),
        };
        report.differences.push(RowDifference { key: named(&different.key), kind });
    }
    Ok(true)
}

/// Returns the keys whose values differ between the answers.
fn differing(source: &[Vec<String>], target: &[Vec<String>]) -> BTreeSet<RowKey> {
    let rows = |rows: &[Vec<String>]| -> BTreeSet<Vec<String>> { rows.iter().cloned().collect() };
    let (source, target) = (rows(source), rows(target));
    source.symmetric_difference(&target).filter_map(|row| Some(row.get(1..)?.to_vec())).collect()
}

/// Returns the digits that make buckets of about [`BUCKET_ROWS`] rows.
fn digits(rows: u64) -> u32 {
    let buckets = rows / BUCKET_ROWS;
    (0..DIGITS_MAX).find(|digits| 16u64.pow(*digits) >= buckets).unwrap_or(DIGITS_MAX)
}

/// Returns the number at the beginning of a bucket's value.
fn rows_in(value: &str) -> Option<u64> {
    value.split('/').next()?.parse().ok()
}

fn named(key: &RowKey) -> String {
    let digest = key.concat().to_lowercase();
    format!("digest={}", digest.get(..SHOWN).unwrap_or(&digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, &str)]) -> Vec<Vec<String>> {
        rows.iter().map(|(value, key)| vec![(*value).to_owned(), (*key).to_owned()]).collect()
    }

    #[test]
    fn buckets_grow_with_the_table() {
        let found = [0, 500, 501, 8_000, 100_000, 10_000_000_000].map(digits);
        assert_eq!(found, [0, 0, 0, 1, 2, 4]);
    }

    #[test]
    fn keys_of_either_side_differ_once() {
        let source = rows(&[("2", "a"), ("1", "b"), ("1", "c")]);
        let target = rows(&[("1", "a"), ("1", "b"), ("5", "d")]);
        let found: Vec<RowKey> = differing(&source, &target).into_iter().collect();
        assert_eq!(found, [["a"], ["c"], ["d"]]);
        assert!(differing(&source, &source).is_empty());
    }
}
