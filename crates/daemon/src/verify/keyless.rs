//! Comparison of a table without a key: as a multiset of digests. Each look reads the whole table,
//! so rows are first divided into buckets by the first digits of their digests.

use std::collections::{BTreeMap, BTreeSet};

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
/// Buckets, or distinct digests, in one answer.
const ANSWER: usize = 1 << 16;
/// Buckets that are examined at a time. There is room in an answer for those into which one more digit divides them.
const BUCKETS: usize = ANSWER / 16;
/// A bucket of so many digits has the rows of one digest only, however many they are.
const DIGITS_OF_ONE: usize = 12;
/// Suspects that are settled at a time.
const SUSPECTS: usize = 10_000;
/// Digits of a digest shown.
const SHOWN: usize = 16;

/// Rows that differ between the servers, and their number on the side that has more.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bucket {
    /// The first digits of their digests.
    digits: String,
    rows: u64,
}

/// The next step for buckets that differ.
#[derive(Debug, PartialEq, Eq)]
enum Examine {
    /// Read their digests.
    List(Vec<String>),
    /// Divide them into buckets of so many digits.
    Divide(Vec<String>, u32),
}

/// Compares all rows; differences go into the report.
pub(super) async fn compare(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    estimate: Estimate,
    report: &mut TableReport,
) -> Result<()> {
    let first = digits(estimate.rows);
    let (source, target) = look(servers, sql, &[], first).await?;
    report.rows = rows_of(&source);
    servers.progress.rows = report.rows;
    servers.tell(Activity::Comparing);
    let differing = buckets(&source, &target);
    if differing.is_empty() {
        return Ok(());
    }
    // Waiting once spares listing the digests of rows that are merely late.
    servers.catch_up().await?;
    // The estimate may be far from what was counted.
    let digits = first.max(digits(rows_of(&source).max(rows_of(&target))));
    let within: Vec<String> = differing.into_iter().map(|bucket| bucket.digits).collect();
    let (source, target) = look(servers, sql, &within, digits).await?;
    let mut open = buckets(&source, &target);
    let mut suspects = Vec::new();
    while let Some(step) = next(&mut open) {
        match step {
            Examine::Divide(within, digits) => {
                let (source, target) = look(servers, sql, &within, digits).await?;
                open.extend(buckets(&source, &target));
            }
            Examine::List(listed) => {
                suspects.extend(list(servers, sql, &listed, &mut open, report).await?);
            }
        }
        if suspects.len() >= SUSPECTS || open.is_empty() {
            for some in std::mem::take(&mut suspects).chunks(SUSPECTS) {
                if !judge(servers, sql, some.to_vec(), report).await? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

type Answer = Vec<Vec<String>>;

/// Returns the buckets of both sides, within those of fewer digits.
async fn look(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    within: &[String],
    digits: u32,
) -> Result<(Answer, Answer)> {
    servers.values(&sql.source.buckets(within, digits), &sql.target.buckets(within, digits)).await
}

/// Returns the digests in these buckets whose numbers differ. Buckets with too many are opened again.
async fn list(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    buckets: &[String],
    open: &mut Vec<Bucket>,
    report: &mut TableReport,
) -> Result<BTreeSet<RowKey>> {
    let limit = ANSWER + 1;
    let (source, target) = servers
        .values(&sql.source.bucket_rows(buckets, limit), &sql.target.bucket_rows(buckets, limit))
        .await?;
    if source.len().max(target.len()) <= ANSWER {
        return Ok(differing(&source, &target));
    }
    // Rows have changed since they were counted. Smaller buckets have fewer of them, unless all have one digest.
    match buckets.first().is_some_and(|bucket| bucket.len() < DIGITS_OF_ONE) {
        true => {
            let grown =
                |digits: &String| Bucket { digits: digits.clone(), rows: ANSWER as u64 + 1 };
            open.extend(buckets.iter().map(grown));
        }
        false => report.leave_out(format!(
            "not compared in full: more than {ANSWER} rows without a key changed while they were counted; \
             compare again when less is written"
        )),
    }
    Ok(BTreeSet::new())
}

/// Takes buckets to be examined from the end of the list: together as many as one look can do.
fn next(open: &mut Vec<Bucket>) -> Option<Examine> {
    let digits = open.last()?.digits.len();
    let same = open.iter().rev().take(BUCKETS).take_while(|bucket| bucket.digits.len() == digits);
    let some = open.split_off(open.len() - same.count());
    let rows: u64 = some.iter().map(|bucket| bucket.rows).sum();
    let names: Vec<String> = some.into_iter().map(|bucket| bucket.digits).collect();
    if rows <= ANSWER as u64 || digits >= DIGITS_OF_ONE {
        return Some(Examine::List(names));
    }
    let room = ANSWER / names.len();
    let more = (1..DIGITS_MAX).take_while(|more| 16usize.pow(more + 1) <= room).count();
    Some(Examine::Divide(names, (digits + 1 + more) as u32))
}

/// Names the digests whose numbers differ; `false` once enough differ.
async fn judge(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    suspects: Vec<RowKey>,
    report: &mut TableReport,
) -> Result<bool> {
    let settled = settle(servers, sql, Lookup::Digest, suspects).await?;
    for key in settled.unstable {
        report.unstable.push(named(&key));
    }
    for different in settled.different {
        if report.differences.len() >= servers.options.max_differences.max(1) {
            report.leave_out(format!(
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
    let (source, target): (BTreeSet<_>, BTreeSet<_>) =
        (source.iter().collect(), target.iter().collect());
    source.symmetric_difference(&target).filter_map(|row| Some(row.get(1..)?.to_vec())).collect()
}

/// Returns the buckets that differ.
fn buckets(source: &[Vec<String>], target: &[Vec<String>]) -> Vec<Bucket> {
    let mut found = BTreeMap::new();
    for key in differing(source, target) {
        found.insert(key.concat(), 0);
    }
    for row in source.iter().chain(target) {
        let [value, digits] = &row[..] else { continue };
        if let Some(rows) = found.get_mut(digits) {
            *rows = rows_in(value).unwrap_or_default().max(*rows);
        }
    }
    found.into_iter().map(|(digits, rows)| Bucket { digits, rows }).collect()
}

/// Returns the number of rows in all buckets of a side.
fn rows_of(answer: &[Vec<String>]) -> u64 {
    answer.iter().filter_map(|row| rows_in(row.first()?)).sum()
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

    fn open(buckets: &[(&str, u64)]) -> Vec<Bucket> {
        let bucket =
            |(digits, rows): &(&str, u64)| Bucket { digits: (*digits).to_owned(), rows: *rows };
        buckets.iter().map(bucket).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_bucket_has_the_rows_of_the_side_with_more() {
        let source = rows(&[("3/7", "a"), ("2/5", "b"), ("9/9", "c")]);
        let target = rows(&[("2/6", "a"), ("2/5", "b"), ("1/1", "d")]);
        assert_eq!(buckets(&source, &target), open(&[("a", 3), ("c", 9), ("d", 1)]));
        assert_eq!((rows_of(&source), rows_of(&target)), (14, 5));
    }

    #[test]
    fn few_rows_are_listed_together_and_many_divided() {
        assert_eq!(next(&mut Vec::new()), None);
        let mut few = open(&[("a", 30_000), ("b", 30_000)]);
        assert_eq!(next(&mut few), Some(Examine::List(names(&["a", "b"]))));
        assert!(few.is_empty());
        // A table of unknown size is one bucket at first.
        let mut whole = open(&[("", 1 << 40)]);
        assert_eq!(next(&mut whole), Some(Examine::Divide(names(&[""]), 4)));
        let mut mixed = open(&[("a", 1 << 20), ("bb", 1 << 20), ("bc", 1)]);
        assert_eq!(next(&mut mixed), Some(Examine::Divide(names(&["bb", "bc"]), 5)));
        assert_eq!(mixed, open(&[("a", 1 << 20)]));
        // A million equal rows are one digest.
        let mut equal = open(&[("0123456789ab", 1_000_000)]);
        assert_eq!(next(&mut equal), Some(Examine::List(names(&["0123456789ab"]))));
    }

    #[test]
    fn answers_have_room_for_the_parts_of_all_buckets() {
        let all: Vec<Bucket> = (0..ANSWER)
            .map(|number| Bucket { digits: format!("{number:04x}"), rows: 1_000_000 })
            .collect();
        let mut open = all;
        let Some(Examine::Divide(some, digits)) = next(&mut open) else { panic!("too many rows") };
        assert_eq!((some.len(), digits, open.len()), (BUCKETS, 5, ANSWER - BUCKETS));
        open.truncate(1);
        let Some(Examine::Divide(some, digits)) = next(&mut open) else { panic!("too many rows") };
        assert_eq!((some.len(), digits), (1, 8));
    }
}
