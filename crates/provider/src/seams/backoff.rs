//! Pauses between attempts: each twice the one before, up to a longest.

use std::ops::Range;
use std::time::Duration;

use crate::seams::chance::Chance;

/// The pauses of one series of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, next: first, longest }
    }

    /// Returns pauses like [`unhurried`] ones.
    #[must_use]
    pub fn unhurried(first: Duration, longest: Duration) -> Self {
        Self::new(unhurried(first), unhurried(longest))
    }

    /// Returns the pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2);
        pause
    }

    /// Returns the same with jitter, so that two who failed together do not meet again: a random
    /// part of the pause within `parts`.
    pub fn jittered(&mut self, parts: Range<f64>, chance: &dyn Chance) -> Duration {
        let Range { start, end } = parts;
        self.pause().mul_f64(start + (end - start) * chance.part())
    }

    /// Begins again with the first pause.
    pub fn restart(&mut self) {
        self.next = self.first;
    }
}

/// Returns a pause that spares a server, or waits for an operator. Tests of what follows such a pause have it divided
/// by `CSA_TEST_HASTE`, which no program that is released knows.
#[must_use]
pub fn unhurried(pause: Duration) -> Duration {
    #[cfg(feature = "test-util")]
    if let Some(haste) = std::env::var("CSA_TEST_HASTE").ok().and_then(|text| text.parse().ok()) {
        return pause.checked_div(haste).unwrap_or(pause);
    }
    pause
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seams::chance::SystemChance;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(20), ms(100));
        assert_eq!([(); 5].map(|()| backoff.pause()), [20, 40, 80, 100, 100].map(ms));
        backoff.restart();
        assert_eq!(backoff.pause(), ms(20));
        let jittered = backoff.jittered(0.5..1.0, &SystemChance);
        assert!((ms(20)..=ms(40)).contains(&jittered), "{jittered:?}");
        // One that is longer than the longest from the start.
        assert_eq!(Backoff::new(ms(9), ms(5)).pause(), ms(5));
    }
}
