//! Medians and percentiles.

use serde::Serialize;

/// Returns the middle value, the upper of two; zero without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    percentile(&sorted(values), 50.0)
}

/// The smallest and the largest value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Returns zeros without values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let sorted = sorted(values);
        let at = |value: Option<&f64>| value.copied().unwrap_or_default();
        Self { least: at(sorted.first()), most: at(sorted.last()) }
    }
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the value that this percentage of values does not exceed.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0) as usize;
    sorted.get(rank.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// How a time was distributed.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Distribution {
    pub(super) samples: usize,
    pub(super) p50_seconds: f64,
    pub(super) p99_seconds: f64,
    pub(super) max_seconds: f64,
}

impl Distribution {
    pub(super) fn of(seconds: impl IntoIterator<Item = f64>) -> Self {
        let sorted = sorted(seconds);
        Self {
            samples: sorted.len(),
            p50_seconds: percentile(&sorted, 50.0),
            p99_seconds: percentile(&sorted, 99.0),
            max_seconds: sorted.last().copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Distribution, Spread, median};

    #[test]
    fn the_middle_of_few() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([7.0]), 7.0);
        assert_eq!(median([9.0, 1.0, 5.0]), 5.0);
    }

    #[test]
    fn the_ends_of_few() {
        assert_eq!(Spread::of([]), Spread::default());
        assert_eq!(Spread::of([9.0, 1.0, 5.0]), Spread { least: 1.0, most: 9.0 });
    }

    #[test]
    fn tails() {
        let distribution = Distribution::of((0..200).map(f64::from));
        assert_eq!(distribution.p50_seconds, 100.0);
        assert_eq!(distribution.p99_seconds, 198.0);
        assert_eq!(distribution.max_seconds, 199.0);
    }
}
