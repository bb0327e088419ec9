//! The seconds of samples. Pure.

use std::time::Duration;

/// Seconds by which the clock may be wrong: the host's clock is slewed, and its seconds begin at other moments.
pub(super) const TOLERANCE: u64 = 2;

/// Counts by the monotonic clock, so that there is one sample for each second. It follows the host's clock where that was
/// set, and after a suspend of the host, which the monotonic clock does not count.
#[derive(Debug)]
pub(super) struct SampleClock {
    /// The second since the epoch from which the monotonic clock counts.
    start: u64,
}

impl SampleClock {
    /// Begins at this second since the epoch.
    pub(super) const fn new(now: u64) -> Self {
        Self { start: now }
    }

    /// Returns the second since the epoch: `elapsed` after the begin, where the host's clock shows `now`.
    pub(super) fn second(&mut self, now: u64, elapsed: Duration) -> u64 {
        let elapsed = elapsed.as_secs();
        if now.abs_diff(self.start.saturating_add(elapsed)) > TOLERANCE {
            self.start = now.saturating_sub(elapsed);
        }
        self.start.saturating_add(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host whose clock and monotonic clock advance together, until something happens to one of them.
    struct Host {
        clock: SampleClock,
        now: Duration,
        elapsed: Duration,
    }

    impl Host {
        fn new(now: Duration) -> Self {
            Self { clock: SampleClock::new(now.as_secs()), now, elapsed: Duration::ZERO }
        }

        fn after(&mut self, passed: Duration) -> u64 {
            self.now += passed;
            self.elapsed += passed;
            self.clock.second(self.now.as_secs(), self.elapsed)
        }
    }

    #[test]
    fn each_second_counts_once_wherever_the_first_one_began() {
        for millis in [0, 1, 500, 999] {
            let mut host = Host::new(Duration::from_millis(5_000_000 + millis));
            let mut found = vec![host.after(Duration::from_micros(300))];
            for at in 1..100 {
                // The thread wakes up a little late, by another time in each second.
                let wake = Duration::from_secs(at) + Duration::from_micros(at * 331 % 900);
                let passed = wake - host.elapsed;
                found.push(host.after(passed));
            }
            assert_eq!(found, (5000..5100).collect::<Vec<_>>(), "{millis}");
        }
    }

    #[test]
    fn it_follows_a_clock_that_was_set_and_a_suspend() {
        let second = Duration::from_secs(1);
        let mut host = Host::new(Duration::from_millis(5_000_500));
        assert_eq!(host.after(second), 5001);
        // Suspended for an hour.
        host.now += 3600 * second;
        assert_eq!((host.after(second), host.after(second)), (8602, 8603));
        // The clock is set back by ten minutes.
        host.now -= 600 * second;
        assert_eq!((host.after(second), host.after(second)), (8004, 8005));
        // It is slewed, or a little off.
        host.now += second;
        assert_eq!((host.after(second), host.after(second)), (8006, 8007));
        host.now -= 2 * second;
        assert_eq!((host.after(second), host.after(second)), (8008, 8009));
    }

    #[test]
    fn a_clock_that_shows_nothing_is_no_reason_to_stop() {
        let mut clock = SampleClock::new(5000);
        assert_eq!(clock.second(0, Duration::from_secs(100)), 100);
        assert_eq!(clock.second(0, Duration::from_secs(101)), 101);
    }
}
