//! The seconds that a chart shows. Pure.

/// The time that is kept, and that a chart may show.
pub(super) const SECONDS_MAX: u64 = 3600;

/// Buckets begin at multiples of their length, so that a line keeps its shape while it moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) first: u64,
    pub(super) step: u64,
    pub(super) count: usize,
}

impl Window {
    /// Returns the buckets of `seconds` up to `newest`, which lies in the last one.
    pub(super) fn ending(newest: u64, seconds: u64, step: u64) -> Self {
        let count = seconds.div_ceil(step);
        let first = (newest - newest % step).saturating_sub((count - 1) * step);
        Self { first, step, count: count as usize }
    }

    pub(super) fn bucket(&self, second: u64) -> Option<usize> {
        let bucket = (second.checked_sub(self.first)? / self.step) as usize;
        (bucket < self.count).then_some(bucket)
    }
}
