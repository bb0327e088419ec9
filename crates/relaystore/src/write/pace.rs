//! Decides whether a segment may do without a file: while the target keeps up, nobody would ever read it. Pure, but for
//! the clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::disk::options::{RelayStoreOptions, SyncPolicy};
use crate::disk::segment::RelayPosition;

/// The parts of the sync interval that a segment without a file lasts.
const PARTS: u32 = 4;
/// The part of the memory tail that may have no file: the rest is for those who read what has one.
const MEMORY_PART: u64 = 2;

/// The end of the store now, and at two earlier moments.
#[derive(Debug)]
pub(super) struct Pace {
    /// `None` for a store that writes everything at once.
    every: Option<Duration>,
    /// The most bytes without a file.
    pub(super) memory: u64,
    older: RelayPosition,
    newer: RelayPosition,
    noted: Instant,
    end: RelayPosition,
    moved: Instant,
}

impl Pace {
    pub(super) fn new(options: &RelayStoreOptions, end: RelayPosition) -> Self {
        let memory = options.tail_bytes as u64 / MEMORY_PART;
        let every = match options.sync {
            SyncPolicy::Interval(interval) if memory > 0 => Some(interval / PARTS),
            _ => None,
        };
        let now = Instant::now();
        Self { every, memory, older: end, newer: end, noted: now, end, moved: now }
    }

    /// Returns true if a segment without a file has lasted long enough, and one with a file may be followed by one
    /// without.
    pub(super) fn is_due(&self) -> bool {
        self.every.is_some_and(|every| self.noted.elapsed() >= every)
    }

    /// A segment begins, or the end of the store has moved.
    pub(super) fn note(&mut self, end: RelayPosition, begins: bool) {
        let now = Instant::now();
        if begins || self.is_due() {
            (self.older, self.newer, self.noted) = (self.newer, end, now);
        }
        (self.end, self.moved) = (end, now);
    }

    /// Returns true if everything is applied but what came in the last part of the interval.
    pub(super) fn keeps_up(&self, applied: RelayPosition) -> bool {
        let Some(every) = self.every else { return false };
        let earlier = match () {
            () if self.moved.elapsed() >= every => self.end,
            () if self.is_due() => self.newer,
            () => self.older,
        };
        applied >= earlier
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_keeps_up_that_has_all_but_the_newest() {
        let at = |offset| RelayPosition { segment: 1, offset };
        let sync = SyncPolicy::Interval(Duration::from_secs(1));
        let options = |sync, tail_bytes| RelayStoreOptions {
            sync,
            tail_bytes,
            ..crate::tests::options(std::path::Path::new("/"))
        };
        let mut pace = Pace::new(&options(sync, 1000), at(10));
        let part = Duration::from_millis(250);
        assert!(!pace.keeps_up(at(9)) && pace.keeps_up(at(10)));
        pace.note(at(50), false);
        assert!(pace.keeps_up(at(10)) && !pace.is_due(), "the rest is new");
        advance(part).await;
        assert!(pace.is_due());
        assert!(!pace.keeps_up(at(49)) && pace.keeps_up(at(50)), "nothing is new");
        pace.note(at(90), false);
        assert!(!pace.is_due() && pace.keeps_up(at(10)));
        advance(part / 2).await;
        pace.note(at(120), false);
        advance(part / 2).await;
        assert!(pace.is_due());
        assert!(!pace.keeps_up(at(89)) && pace.keeps_up(at(90)), "up to 120 is new");
        pace.note(at(130), true);
        assert!(!pace.keeps_up(at(89)) && pace.keeps_up(at(90)));
        for pace in [
            Pace::new(&options(SyncPolicy::Os, 1000), at(10)),
            Pace::new(&options(SyncPolicy::Transaction, 1000), at(10)),
            Pace::new(&options(sync, 0), at(10)),
        ] {
            assert!(!pace.keeps_up(at(10)) && !pace.is_due());
        }
    }
}
