//! Durations of one step of replication, counted in buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds, 200 µs to 60 s; the last bucket has none. Few, because
/// each is a series of its own for each channel and step.
pub const BOUNDS_MICROS: [u64; 9] =
    [200, 1_000, 5_000, 20_000, 100_000, 500_000, 2_000_000, 10_000_000, 60_000_000];
const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// Written by whoever does the work, read by the status page and metrics; no lock.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// A snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurationsView {
    /// How many fell into each bucket; not cumulative.
    pub buckets: [u64; BUCKETS],
    /// The sum of all, in nanoseconds.
    pub nanos: u64,
}

impl Durations {
    pub fn note(&self, duration: Duration) {
        let micros = duration.as_nanos().div_ceil(1000);
        let bucket = BOUNDS_MICROS.partition_point(|&bound| u128::from(bound) < micros);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed, because nothing but views reads them.
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    #[must_use]
    pub fn view(&self) -> DurationsView {
        let count = |bucket: &AtomicU64| bucket.load(Ordering::Relaxed);
        DurationsView {
            buckets: self.buckets.each_ref().map(count),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

impl DurationsView {
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let durations = Durations::default();
        let micros = Duration::from_micros;
        for (duration, bucket) in [
            (Duration::ZERO, 0),
            (micros(200), 0),
            (micros(200) + Duration::from_nanos(1), 1),
            (micros(1_000), 1),
            (micros(4_999), 2),
            (Duration::from_secs(60), 8),
            (Duration::from_secs(61), 9),
            (Duration::MAX, 9),
        ] {
            let before = durations.view();
            durations.note(duration);
            let after = durations.view();
            assert_eq!(after.buckets[bucket], before.buckets[bucket] + 1, "{duration:?}");
            assert_eq!(after.count(), before.count() + 1);
        }
    }

    #[test]
    fn the_sum_is_exact() {
        let durations = Durations::default();
        for _ in 0..3 {
            durations.note(Duration::from_nanos(400));
        }
        assert_eq!(durations.view().nanos, 1200);
    }
}
