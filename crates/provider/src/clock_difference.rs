//! The difference between the source's clock and ours.

use crate::clock::Clock;
use crate::connection::{ConnectionError, SourceConnection};

/// The microseconds by which the source's clock is ahead of ours, from the fastest of a few
/// answers. Like native replication's `clock_diff_with_master`, but finer.
pub(crate) async fn ahead(
    connection: &mut SourceConnection,
    clock: &dyn Clock,
) -> Result<i64, ConnectionError> {
    // UTC, which does not depend on time zones or daylight saving.
    const QUERY: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    let now = || i64::try_from(clock.now_micros()).unwrap_or(i64::MAX);
    let mut best: Option<(i64, i64)> = None;
    for _ in 0..3 {
        let asked = now();
        let text = connection.setting(QUERY).await?;
        let answered = now();
        let theirs = text.parse().map_err(|_| {
            ConnectionError::Protocol(format!("its clock can't be read from {text:?}"))
        })?;
        let took = answered.saturating_sub(asked);
        if best.is_none_or(|(_, before)| took < before) {
            best = Some((estimate(asked, theirs, answered), took));
        }
    }
    Ok(best.map_or(0, |(ahead, _)| ahead))
}

/// The clock difference from an answer that was requested and received at these times: 0 if a
/// correct clock could have given it, else the middle of the possible range.
fn estimate(asked: i64, theirs: i64, answered: i64) -> i64 {
    let (least, most) = (theirs.saturating_sub(answered), theirs.saturating_sub(asked));
    if least <= 0 && most >= 0 { 0 } else { least.saturating_add(most) / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_differ_by_what_the_way_of_the_answer_does_not_explain() {
        for (asked, theirs, answered, ahead) in [
            (100, 105, 110, 0),
            (100, 100, 110, 0),
            (100, 110, 110, 0),
            (100, 205, 110, 100),
            (100, 5, 110, -100),
            (100, 111, 110, 6),
            (0, i64::MAX, i64::MIN, i64::MAX / 2),
        ] {
            assert_eq!(estimate(asked, theirs, answered), ahead, "{asked} {theirs} {answered}");
        }
    }
}
