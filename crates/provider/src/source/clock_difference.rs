//! The difference between the source's clock and ours.
//!
//! An answer that was requested and received at two moments was given at one between them; so the
//! difference lies in a range that is as wide as the answer took. Several answers lie in each other's.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::seams::clock::Clock;
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::options::SourceOptions;
use crate::source::side_logins::SideLogins;

/// Questions asked at a time.
const QUESTIONS: usize = 3;
/// Microseconds within which a difference is known well enough.
const GOOD: u64 = 100_000;
/// Questions are asked again so often on one link while the difference is not known well enough.
const MOST_ATTEMPTS: u32 = 10;
/// The first pause before that; the next are twice as long each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Clocks drift apart by at most one part in so many: 500 parts in a million, as NTP slews them.
const DRIFT: u64 = 2_000;

/// The microseconds by which the source's clock is ahead of ours: a range that holds the true difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockDifference {
    least: i64,
    most: i64,
}

impl ClockDifference {
    /// Makes the difference from an answer that was requested and received at these times by our
    /// clock.
    #[must_use]
    pub const fn of(asked: i64, theirs: i64, answered: i64) -> Self {
        let (one, other) = (theirs.saturating_sub(answered), theirs.saturating_sub(asked));
        // Our clock was set back in between.
        if one > other {
            Self { least: other, most: one }
        } else {
            Self { least: one, most: other }
        }
    }

    /// Returns the most probable difference: 0 if correct clocks could have given the answers, else the middle.
    #[must_use]
    pub const fn estimate(self) -> i64 {
        match self.least <= 0 && self.most >= 0 {
            true => 0,
            false => self.least.saturating_add(self.most) / 2,
        }
    }

    /// Returns the largest difference, with which a commit on the source is as old as it can be.
    #[must_use]
    pub const fn most(self) -> i64 {
        self.most
    }

    /// Returns the microseconds from the least to the largest.
    #[must_use]
    pub const fn uncertainty(self) -> u64 {
        self.least.abs_diff(self.most)
    }

    /// Narrows the difference by another answer. If the two exclude each other, one of the clocks
    /// was set between them.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let (least, most) = (self.least.max(later.least), self.most.min(later.most));
        if least <= most { Self { least, most } } else { later }
    }

    /// Widens the difference after so long, in which the clocks may have drifted apart.
    fn after(self, elapsed: Duration) -> Self {
        let elapsed = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let drift = i64::try_from(elapsed.div_ceil(DRIFT)).unwrap_or(i64::MAX);
        let (least, most) = (self.least.saturating_sub(drift), self.most.saturating_add(drift));
        Self { least, most }
    }
}

/// Asks the source a few times.
pub(crate) async fn ask(
    connection: &mut SourceConnection,
    clock: &dyn Clock,
) -> Result<ClockDifference, ConnectionError> {
    // UTC, which does not depend on time zones or daylight saving.
    const QUERY: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    let now = || i64::try_from(clock.now_micros()).unwrap_or(i64::MAX);
    let mut known: Option<ClockDifference> = None;
    for _ in 0..QUESTIONS {
        let asked = now();
        let text = connection.setting(QUERY).await?;
        let answered = now();
        let theirs = text.parse().map_err(|_| {
            ConnectionError::Protocol(format!("its clock can't be read from {text:?}"))
        })?;
        let answer = ClockDifference::of(asked, theirs, answered);
        known = Some(known.map_or(answer, |known| known.and(answer)));
    }
    Ok(known.unwrap_or_default())
}

type Asking = Pin<Box<dyn Future<Output = Result<ClockDifference, ConnectionError>> + Send>>;

/// The difference on one link, which is asked for again while it is not known well.
pub(crate) struct SourceClock {
    known: ClockDifference,
    at: Instant,
    attempts: u32,
    next: Instant,
    asking: Option<Asking>,
}

impl SourceClock {
    pub(crate) fn new(known: ClockDifference) -> Self {
        let now = Instant::now();
        Self { known, at: now, attempts: 0, next: now + FIRST_PAUSE, asking: None }
    }

    /// Returns what is known now.
    pub(crate) const fn known(&self) -> ClockDifference {
        self.known
    }

    /// Takes a later answer; returns what is known now.
    pub(crate) fn learn(&mut self, later: ClockDifference) -> ClockDifference {
        let now = Instant::now();
        self.known = self.known.after(now - self.at).and(later);
        self.at = now;
        self.known
    }

    /// Asks the server `uuid` again over another connection, while the difference is not known well and attempts are
    /// left; returns what is known then. Nothing is lost if it is dropped meanwhile.
    pub(crate) async fn narrowed(
        &mut self,
        logins: &mut SideLogins,
        options: &SourceOptions,
        (host, port): (&str, u16),
        uuid: &str,
    ) -> ClockDifference {
        while self.known.uncertainty() > GOOD && self.attempts < MOST_ATTEMPTS {
            if self.asking.is_none() {
                tokio::time::sleep_until(self.next.max(logins.earliest())).await;
            }
            let asking = self.asking.get_or_insert_with(|| {
                let (options, host) = (options.clone(), host.to_owned());
                let uuid = uuid.to_owned();
                Box::pin(async move { ask_again(&options, &host, port, &uuid).await })
            });
            let answer = asking.await;
            self.asking = None;
            self.attempts += 1;
            self.next = Instant::now() + FIRST_PAUSE * 2_u32.pow(self.attempts);
            logins.note(&answer, options, (host, port));
            // The dump's own link shows if the source is gone.
            if let Ok(answer) = answer {
                return self.learn(answer);
            }
        }
        std::future::pending().await
    }
}

async fn ask_again(
    options: &SourceOptions,
    host: &str,
    port: u16,
    uuid: &str,
) -> Result<ClockDifference, ConnectionError> {
    let mut connection = SourceConnection::connect(options, host, port).await?;
    let found = connection.setting("SELECT @@server_uuid").await?;
    let answer = match found == uuid {
        true => ask(&mut connection, &*options.environment.clock).await,
        false => Err(ConnectionError::Protocol(format!("the server {found} has its address"))),
    };
    connection.quit().await;
    answer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::connection::fake_source::{FakeSource, SERVER_UUID, Wires};

    #[tokio::test(start_paused = true)]
    async fn a_source_that_refuses_the_login_is_asked_for_its_clock_slowly() {
        let (options, mut ends) = Wires::options();
        let mut clock = SourceClock::new(ClockDifference::of(0, 0, 10_000_000));
        let mut logins = SideLogins::new();
        let mut refused = 0;
        let refusals = async {
            while let Some(end) = ends.recv().await {
                FakeSource::new(end).refuse_login(1045).await;
                refused += 1;
            }
        };
        let asking = clock.narrowed(&mut logins, &options, ("source", 3306), SERVER_UUID);
        let both = async { tokio::join!(refusals, asking) };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect_err("no answer");
        // After one second, and then twice or three times a minute.
        assert!((2..=4).contains(&refused), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn another_server_with_the_address_teaches_no_clock() {
        let (options, mut ends) = Wires::options();
        let mut clock = SourceClock::new(ClockDifference::of(0, 0, 10_000_000));
        let mut logins = SideLogins::new();
        let answers = async {
            for (uuid, ahead) in [("another", 3_600_000_000), (SERVER_UUID, 0)] {
                let mut source = FakeSource::new(ends.recv().await.expect("a connection"));
                (source.uuid, source.clock_ahead) = (uuid, ahead);
                source.accept_look().await;
            }
        };
        let asking = clock.narrowed(&mut logins, &options, ("source", 3306), SERVER_UUID);
        let both = async { tokio::join!(answers, asking) };
        let ((), known) =
            tokio::time::timeout(Duration::from_secs(60), both).await.expect("an answer");
        assert!(known.estimate().abs() < 1_000_000, "{known:?}");
    }

    #[test]
    fn clocks_differ_by_what_the_way_of_the_answer_does_not_explain() {
        for (asked, theirs, answered, estimate, most) in [
            (100, 105, 110, 0, 5),
            (100, 100, 110, 0, 0),
            (100, 110, 110, 0, 10),
            (100, 205, 110, 100, 105),
            (100, 5, 110, -100, -95),
            (100, 111, 110, 6, 11),
            // Our clock was set back meanwhile.
            (110, 205, 100, 100, 105),
            (0, i64::MAX, i64::MIN, i64::MAX / 2, i64::MAX),
        ] {
            let difference = ClockDifference::of(asked, theirs, answered);
            let found = (difference.estimate(), difference.most());
            assert_eq!(found, (estimate, most), "{asked} {theirs} {answered}");
        }
    }

    #[test]
    fn answers_that_exclude_each_other_show_a_clock_that_was_set() {
        let range = |least, most| ClockDifference { least, most };
        assert_eq!(range(0, 10).and(range(5, 20)), range(5, 10));
        assert_eq!(range(0, 10).and(range(10, 20)), range(10, 10));
        assert_eq!(range(0, 10).and(range(11, 20)), range(11, 20));
        assert_eq!(range(0, 10).after(Duration::from_millis(10)), range(-5, 15));
    }

    proptest! {
        /// However the time of each question divides between the two directions.
        #[test]
        fn the_true_difference_is_in_the_range(
            truth in -4_000_000_000_i64..4_000_000_000,
            ways in prop::collection::vec((0_i64..50_000_000, 0_i64..50_000_000), 1..8),
        ) {
            let mut now = 1_700_000_000_000_000;
            let mut known: Option<ClockDifference> = None;
            for (there, back) in &ways {
                let (asked, theirs) = (now, now + there + truth);
                now += there + back;
                let answer = ClockDifference::of(asked, theirs, now);
                known = Some(known.map_or(answer, |known| known.and(answer)));
            }
            let known = known.expect("an answer");
            prop_assert!(known.least <= truth && truth <= known.most);
            // No wider than the fastest, and exact where that took no time.
            let fastest = ways.iter().map(|(there, back)| there + back).min();
            prop_assert!(i64::try_from(known.uncertainty()).ok() <= fastest);
        }
    }
}
