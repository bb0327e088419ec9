//! How far the target lags, from what is known of both sides. Pure.
//!
//! Never lower than the truth: commits that the source has not sent yet count too. Absent where it
//! is not known, and 0 only where nothing is left. `Facts::lag` (build.rs) collects what is known.

use std::time::Duration;

use csa_provider::binlog::CommitTimes;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::source::SourceView;
use tokio::time::Instant;

/// A transaction that arrives this soon after its commit: nothing that matters is still on its way.
const SOON: Duration = Duration::from_secs(1);

/// A transaction that is not yet committed on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    pub committed: CommitTimes,
    /// The moment since which this process has known it.
    pub since: Instant,
}

/// The end of what the source has sent on this link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing of it is known.
    Unknown,
    /// The source had nothing else to send.
    Idle,
    /// A whole transaction, and its age when its last byte arrived.
    Transaction(CommitTimes, Option<Duration>),
    /// A transaction that is arriving, or has arrived but is not in the relay store yet.
    Arriving(Pending),
}

impl Tail {
    /// Computes the lag; `stored` says whether the last whole transaction is in the relay store, and `queued`
    /// is the oldest that is on its way there.
    pub fn of(source: &SourceView, stored: bool, queued: Option<Pending>) -> Self {
        // The last of an earlier link may be gone with the contents of the store, and all before it with it.
        let last = source.last_queued.as_ref().filter(|_| source.queueing_since.is_some());
        let newest = source.queueing.as_ref().or(last.filter(|_| !stored));
        if !source.connected {
            return Self::Unknown;
        }
        // Others may have arrived after it, and wait with it for room.
        if let Some(queued) = queued {
            return Self::Arriving(queued);
        }
        match (newest, last) {
            (Some(header), _) => Self::Arriving(Pending {
                committed: header.commit_times(),
                since: source.queueing_since.unwrap_or_else(Instant::now),
            }),
            _ if source.idle => Self::Idle,
            (None, Some(header)) => Self::Transaction(header.commit_times(), source.arrival_delay),
            _ => Self::Unknown,
        }
    }

    /// Everything the source has committed is here, except for the last moment.
    pub fn is_caught_up(self) -> bool {
        match self {
            Self::Idle => true,
            Self::Transaction(_, delay) => delay.is_some_and(|delay| delay <= SOON),
            Self::Unknown | Self::Arriving(_) => false,
        }
    }
}

/// Everything that lag is computed from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Transactions received and not committed on the target.
    pub backlog: u64,
    /// The oldest of them.
    pub pending: Option<Pending>,
    /// The last that was committed on the target.
    pub applied: Option<CommitTimes>,
    pub tail: Tail,
    /// The source was heard from recently.
    pub fresh: bool,
    /// The last moment at which the source was heard from and nothing was left to receive or to apply.
    pub level_at: Option<Instant>,
    /// Microseconds by which the source's clock is ahead of ours at most.
    pub clock_ahead: i64,
}

impl Seen {
    /// Returns the seconds since the source's commit of the oldest transaction that is not
    /// committed on the target. `now` is our clock, in microseconds since the epoch; `instant` is
    /// the monotonic one.
    pub(super) fn lag(&self, now: u64, instant: Instant) -> Option<f64> {
        if self.backlog > 0 {
            return match self.pending {
                Some(pending) => Some(self.of(pending, now, instant)),
                None if is_planted(Bug::LagOfReadOnly) => Some(0.0),
                None => self.of_unread(now, instant),
            };
        }
        match self.tail {
            _ if is_planted(Bug::LagOfReceivedOnly) => Some(0.0),
            Tail::Arriving(pending) => Some(self.of(pending, now, instant)),
            _ if !self.fresh => None,
            tail if tail.is_caught_up() => Some(0.0),
            // Anything still on its way was committed later.
            Tail::Transaction(committed, _) => self.positive(committed, now),
            Tail::Unknown | Tail::Idle => None,
        }
    }

    /// Returns the lag of a backlog that the applier has not read yet, or a bound on it. A single transaction is the
    /// last received. Several were committed later than what was applied before them, which may be long ago on an
    /// idle channel; and not much earlier than the moment at which nothing was left.
    fn of_unread(&self, now: u64, instant: Instant) -> Option<f64> {
        let last = match self.tail {
            Tail::Transaction(last, _) if self.backlog == 1 => self.positive(last, now),
            _ => None,
        };
        let since_level = self.level_at.map(|at| instant.saturating_duration_since(at) + SOON);
        let since_level = since_level.map(|bound| bound.as_secs_f64());
        let since_applied = self.applied.and_then(|applied| self.positive(applied, now));
        last.or_else(|| since_applied.into_iter().chain(since_level).reduce(f64::min))
    }

    /// With clocks that differ, the commit may appear to be in the future; the time we have known
    /// of the transaction is the lower bound. Never 0: that means that nothing is left.
    fn of(&self, pending: Pending, now: u64, instant: Instant) -> f64 {
        let known = instant.saturating_duration_since(pending.since).as_secs_f64();
        self.positive(pending.committed, now).map_or(known, |age| age.max(known)).max(1e-6)
    }

    fn positive(&self, committed: CommitTimes, now: u64) -> Option<f64> {
        committed.age(now, self.clock_ahead).filter(|age| *age > 0).map(|age| age as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::TransactionHeader;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_000_000 * SECOND;

    fn committed(seconds_ago: i64) -> CommitTimes {
        let at = NOW.saturating_add_signed(-seconds_ago * SECOND as i64);
        CommitTimes { original: at, immediate: at }
    }

    fn lag(seen: Seen, instant: Instant) -> Option<f64> {
        seen.lag(NOW, instant).map(|lag| (lag * 10.0).round() / 10.0)
    }

    #[test]
    fn lag_is_what_is_known_and_never_less() {
        let start = Instant::now();
        let instant = start + Duration::from_secs(100);
        let pending = |ago: i64, known: u64| Pending {
            committed: committed(ago),
            since: instant - Duration::from_secs(known),
        };
        let idle = Seen {
            backlog: 0,
            pending: None,
            applied: Some(committed(50)),
            tail: Tail::Idle,
            fresh: true,
            level_at: None,
            clock_ahead: 0,
        };
        let soon = Tail::Transaction(committed(3), Some(Duration::from_millis(300)));
        let late = Tail::Transaction(committed(30), Some(Duration::from_secs(28)));
        let unknown = Tail::Transaction(committed(-9), None);
        let hour = 3_600 * SECOND as i64;
        let one = Seen { backlog: 1, ..idle };
        for (what, seen, expected) in [
            ("nothing is left", idle, Some(0.0)),
            ("the source is not heard", Seen { fresh: false, ..idle }, None),
            ("just connected", Seen { tail: Tail::Unknown, ..idle }, None),
            ("the last came soon", Seen { tail: soon, ..idle }, Some(0.0)),
            ("the last came late, so does the next", Seen { tail: late, ..idle }, Some(30.0)),
            ("it came from the future", Seen { tail: unknown, ..idle }, None),
            ("late, and not heard since", Seen { tail: late, fresh: false, ..idle }, None),
            ("one arrives", Seen { tail: Tail::Arriving(pending(7, 2)), ..idle }, Some(7.0)),
            (
                "one arrives, and the link stands still",
                Seen { tail: Tail::Arriving(pending(7, 2)), fresh: false, ..idle },
                Some(7.0),
            ),
            (
                "one arrives from the future",
                Seen { tail: Tail::Arriving(pending(-7, 2)), ..idle },
                Some(2.0),
            ),
            ("one waits", Seen { pending: Some(pending(12, 1)), ..one }, Some(12.0)),
            (
                "one waits, and the source is gone",
                Seen { pending: Some(pending(12, 1)), fresh: false, tail: Tail::Unknown, ..one },
                Some(12.0),
            ),
            ("one waits, not read yet", one, Some(50.0)),
            ("one waits, not read yet, the last to come", Seen { tail: soon, ..one }, Some(3.0)),
            ("several wait, not read yet", Seen { tail: soon, backlog: 2, ..idle }, Some(50.0)),
            (
                "several wait after an idle time",
                Seen { tail: soon, backlog: 2, level_at: Some(instant - SOON), ..idle },
                Some(2.0),
            ),
            (
                "several wait, and one was applied later than all was level",
                Seen { tail: soon, backlog: 2, level_at: Some(start), ..idle },
                Some(50.0),
            ),
            ("nothing was applied before it", Seen { applied: None, ..one }, None),
            ("one waits from the future", Seen { pending: Some(pending(-5, 4)), ..one }, Some(4.0)),
            (
                "the source's clock is ahead",
                Seen { pending: Some(pending(-3_580, 4)), clock_ahead: hour, ..one },
                Some(20.0),
            ),
            (
                "the source's clock is slow",
                Seen { pending: Some(pending(3_620, 4)), clock_ahead: -hour, ..one },
                Some(20.0),
            ),
            (
                "no time was logged",
                Seen {
                    pending: Some(Pending { committed: CommitTimes::default(), ..pending(0, 6) }),
                    ..one
                },
                Some(6.0),
            ),
        ] {
            assert_eq!(lag(seen, instant), expected, "{what}");
        }
        let seen = Seen { pending: Some(pending(-5, 0)), ..one };
        assert!(seen.lag(NOW, instant).is_some_and(|lag| lag > 0.0), "never 0 with a backlog");
    }

    #[test]
    fn the_tail_is_that_of_this_link() {
        let header = |micros: u64| TransactionHeader {
            gtid: "05050505-0505-0505-0505-050505050505:1".parse().expect("a GTID"),
            original_commit_timestamp: micros,
            immediate_commit_timestamp: micros,
            transaction_length: 0,
            last_committed: 0,
            sequence_number: 0,
            original_server_version: 0,
            immediate_server_version: 0,
        };
        let now = Instant::now();
        let delay = Some(Duration::from_secs(9));
        let queued = SourceView {
            connected: true,
            last_queued: Some(header(1)),
            queueing_since: Some(now),
            arrival_delay: delay,
            ..SourceView::default()
        };
        let times = header(1).commit_times();
        let of = |source: &SourceView, stored| Tail::of(source, stored, None);
        let arriving = Tail::Arriving(Pending { committed: times, since: now });
        assert_eq!(of(&queued, true), Tail::Transaction(times, delay));
        assert_eq!(of(&queued, false), arriving);
        assert_eq!(of(&SourceView { idle: true, ..queued.clone() }, true), Tail::Idle);
        assert_eq!(of(&SourceView { connected: false, ..queued.clone() }, true), Tail::Unknown);
        let fresh = SourceView { queueing_since: None, arrival_delay: None, ..queued.clone() };
        assert_eq!(of(&fresh, true), Tail::Unknown);
        assert_eq!(of(&fresh, false), Tail::Unknown, "the store was emptied");
        let next = SourceView { queueing: Some(header(1)), ..queued.clone() };
        assert_eq!(of(&next, true), arriving);
        // The store is full, and transactions have arrived after the first that it had no room for.
        let oldest = Pending { committed: header(7).commit_times(), since: now };
        for source in [&queued, &SourceView { idle: true, ..queued.clone() }, &next] {
            assert_eq!(Tail::of(source, false, Some(oldest)), Tail::Arriving(oldest));
        }
        assert!(Tail::Idle.is_caught_up() && !arriving.is_caught_up());
    }
}
