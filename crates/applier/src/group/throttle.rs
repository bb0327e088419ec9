//! Limits the transactions that begin per second.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

/// Shortest wait between two checks: transactions that begin together can commit together.
const TICK: Duration = Duration::from_millis(50);
/// Seconds of the rate that may be saved up while there is nothing to apply.
const SAVED: f64 = 0.25;

/// A credit of transactions: time adds to it, and each one begun takes from it.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: Option<NonZeroU32>,
    credit: f64,
    counted: Instant,
}

impl Throttle {
    pub(crate) fn new(rate: Option<NonZeroU32>, now: Instant) -> Self {
        Self { rate, credit: 0.0, counted: now }
    }

    /// Changes the rate. What was earned stays: a low rate that changes all the time must still let
    /// something begin.
    pub(crate) fn set(&mut self, rate: Option<NonZeroU32>, now: Instant) {
        if self.rate != rate {
            let earned = if self.rate.is_some() { self.earned(now) } else { 0.0 };
            *self = Self { credit: earned, ..Self::new(rate, now) };
        }
    }

    fn earned(&self, now: Instant) -> f64 {
        let rate = self.rate.map_or(0.0, |rate| f64::from(rate.get()));
        let earned = now.saturating_duration_since(self.counted).as_secs_f64() * rate;
        (self.credit + earned).min((rate * SAVED).max(1.0))
    }

    /// Returns the transactions that may begin now.
    pub(crate) fn allowance(&mut self, now: Instant) -> usize {
        if self.rate.is_none() {
            return usize::MAX;
        }
        self.credit = self.earned(now);
        self.counted = now;
        self.credit as usize
    }

    pub(crate) fn spend(&mut self, transactions: usize) {
        if self.rate.is_some() {
            self.credit -= transactions as f64;
        }
    }

    /// Time of the next check; `None` while nothing is held back.
    pub(crate) fn next(&self) -> Option<Instant> {
        let rate = f64::from(self.rate?.get());
        if self.credit >= 1.0 {
            return None;
        }
        let wait = Duration::from_secs_f64((1.0 - self.credit) / rate);
        Some(self.counted + wait.max(TICK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the transactions begun in so many seconds if each check uses up the allowance.
    fn begun(throttle: &mut Throttle, mut now: Instant, seconds: u64) -> usize {
        let end = now + Duration::from_secs(seconds);
        let mut begun = 0;
        while now < end {
            let allowed = throttle.allowance(now);
            throttle.spend(allowed);
            begun += allowed;
            now = throttle.next().expect("held back");
        }
        begun
    }

    #[test]
    fn a_rate_is_kept_to_and_used_up() {
        let now = Instant::now();
        for rate in [1, 7, 50, 100_000] {
            let mut throttle = Throttle::new(NonZeroU32::new(rate), now);
            let wanted = 10 * rate as usize;
            let begun = begun(&mut throttle, now, 10);
            assert!(begun <= wanted && begun + wanted / 50 + 1 >= wanted, "{begun} of {wanted}");
        }
    }

    #[test]
    fn a_rate_that_changes_all_the_time_lets_transactions_begin() {
        let start = Instant::now();
        let mut throttle = Throttle::new(NonZeroU32::new(1), start);
        let mut begun = 0;
        for step in 1..=600_u32 {
            let now = start + Duration::from_millis(100) * step;
            throttle.set(NonZeroU32::new(1 + step % 2), now);
            let allowed = throttle.allowance(now);
            throttle.spend(allowed);
            begun += allowed;
        }
        assert!((60..=120).contains(&begun), "{begun} in a minute");
    }

    #[test]
    fn little_is_saved_up_and_nothing_is_held_back_without_a_rate() {
        let now = Instant::now();
        let mut throttle = Throttle::new(NonZeroU32::new(100), now);
        assert_eq!(throttle.allowance(now + Duration::from_secs(60)), 25);
        assert_eq!(throttle.next(), None);
        throttle.set(None, now);
        assert_eq!(throttle.allowance(now), usize::MAX);
        assert_eq!(throttle.next(), None);
    }
}
