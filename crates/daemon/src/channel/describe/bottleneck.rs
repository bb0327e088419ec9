//! The reason why a channel is not faster. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use csa_applier::SessionState;
use tokio::time::Instant;

named! {
    /// The part that limits a channel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::channel) enum BottleneckCause {
        /// It does not run.
        None = "none",
        Paused = "paused",
        Throttle = "throttle",
        /// There is nothing more to apply.
        Source = "source",
        /// Commits of the source arrive late, or the link is down.
        Network = "network",
        /// Reading and decoding the relay store, or room in it.
        Relay = "relay",
        /// Groups that touch the same rows.
        Dependency = "dependency",
        /// Finished groups wait for an earlier one.
        CommitTurn = "commit_turn",
        /// Row locks of others on the target.
        Locks = "locks",
        Memory = "memory",
        /// Collecting and merging row changes.
        Applier = "applier",
        Target = "target",
    }
}

/// A channel at one moment.
#[derive(Debug, Clone, Default)]
pub(in crate::channel) struct Snapshot {
    pub(in crate::channel) running: bool,
    pub(in crate::channel) paused: bool,
    pub(in crate::channel) throttled: bool,
    pub(in crate::channel) source_connected: bool,
    /// The source had nothing else to send when it was last heard from.
    pub(in crate::channel) source_idle: bool,
    pub(in crate::channel) target_connected: bool,
    /// Transactions received and not committed; unknown while the relay store is being searched.
    pub(in crate::channel) backlog: Option<u64>,
    /// Reception waits for room.
    pub(in crate::channel) relay_full: bool,
    /// The relay reader waits for event memory.
    pub(in crate::channel) memory_short: bool,
    pub(in crate::channel) arrival_delay: Option<Duration>,
    /// The group whose turn it is waits for a lock.
    pub(in crate::channel) locked: bool,
    /// A statement is being executed.
    pub(in crate::channel) statement: bool,
    /// The limit of workers.
    pub(in crate::channel) workers: usize,
    pub(in crate::channel) busy: Vec<SessionState>,
    /// Transactions that are in no group yet.
    pub(in crate::channel) waiting_transactions: usize,
}

/// A transaction that arrives later than this was held up on its way.
const LATE: Duration = Duration::from_secs(1);

impl Snapshot {
    /// The first that holds: pause and a lost target before anything measured, and last what at
    /// least half of the busy workers wait for.
    pub(in crate::channel) fn cause(&self) -> BottleneckCause {
        if !self.running {
            return BottleneckCause::None;
        }
        if self.paused {
            return BottleneckCause::Paused;
        }
        if !self.target_connected {
            return BottleneckCause::Target;
        }
        if self.backlog == Some(0) {
            return self.cause_of_idleness();
        }
        if self.locked {
            return BottleneckCause::Locks;
        }
        if self.statement {
            return BottleneckCause::Target;
        }
        if self.throttled && self.busy.len() < self.workers {
            return BottleneckCause::Throttle;
        }
        if self.busy.is_empty() {
            return if self.memory_short {
                BottleneckCause::Memory
            } else {
                BottleneckCause::Relay
            };
        }
        let most = |states: &[SessionState]| {
            2 * self.busy.iter().filter(|state| states.contains(state)).count() >= self.busy.len()
        };
        if most(&[SessionState::WaitingForDependency]) {
            BottleneckCause::Dependency
        } else if most(&[SessionState::WaitingForTurn]) {
            BottleneckCause::CommitTurn
        } else if self.busy.len() < self.workers && self.waiting_transactions == 0 {
            if self.memory_short { BottleneckCause::Memory } else { BottleneckCause::Target }
        } else if most(&[SessionState::Preparing]) {
            BottleneckCause::Applier
        } else {
            BottleneckCause::Target
        }
    }

    fn cause_of_idleness(&self) -> BottleneckCause {
        if self.relay_full {
            return BottleneckCause::Relay;
        }
        // Once the source is idle, its last transaction may only have been old when the link was made.
        let is_late = !self.source_idle && self.arrival_delay.is_some_and(|delay| delay > LATE);
        if self.source_connected && !is_late {
            BottleneckCause::Source
        } else {
            BottleneckCause::Network
        }
    }
}

/// Causes and totals of the last seconds.
#[derive(Debug, Default)]
pub(in crate::channel) struct Meter {
    samples: VecDeque<BottleneckSample>,
}

#[derive(Debug, Clone, Copy)]
struct BottleneckSample {
    at: Instant,
    cause: BottleneckCause,
    applied: u64,
    received: u64,
}

/// Rates and causes cover this time.
const WINDOW: Duration = Duration::from_secs(5);

impl Meter {
    /// Takes a sample; `applied` and `received` are the transactions so far.
    pub(in crate::channel) fn take(
        &mut self,
        at: Instant,
        cause: BottleneckCause,
        applied: u64,
        received: u64,
    ) {
        let is_old = |sample: &BottleneckSample| at.saturating_duration_since(sample.at) > WINDOW;
        while self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
        self.samples.push_back(BottleneckSample { at, cause, applied, received });
    }

    /// The most frequent cause, and its share.
    pub(in crate::channel) fn cause(&self) -> Option<(BottleneckCause, f64)> {
        let count = |cause| self.samples.iter().filter(|sample| sample.cause == cause).count();
        let (cause, count) = self
            .samples
            .iter()
            .map(|sample| (sample.cause, count(sample.cause)))
            .max_by_key(|&(_, count)| count)?;
        Some((cause, count as f64 / self.samples.len() as f64))
    }

    /// Returns the transactions per second, applied and received; `None` until samples are far
    /// enough apart.
    pub(in crate::channel) fn rates(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        // Over less time, a rate would be noise.
        (seconds >= 0.5)
            .then(|| (rate(first.applied, last.applied), rate(first.received, last.received)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working(busy: &[SessionState]) -> Snapshot {
        Snapshot {
            running: true,
            source_connected: true,
            target_connected: true,
            backlog: Some(1000),
            workers: 4,
            busy: busy.to_vec(),
            waiting_transactions: 100,
            ..Snapshot::default()
        }
    }

    #[test]
    fn causes_are_told_apart() {
        use SessionState::{Applying, Committing, WaitingForDependency, WaitingForTurn};
        let busy = working(&[Applying, Applying, WaitingForTurn, Committing]);
        let idle = Snapshot { backlog: Some(0), busy: Vec::new(), ..busy.clone() };
        let late = Some(Duration::from_secs(3));
        for (snapshot, cause) in [
            (Snapshot { running: false, ..busy.clone() }, BottleneckCause::None),
            (Snapshot { paused: true, ..busy.clone() }, BottleneckCause::Paused),
            (Snapshot { target_connected: false, ..busy.clone() }, BottleneckCause::Target),
            (idle.clone(), BottleneckCause::Source),
            (Snapshot { source_connected: false, ..idle.clone() }, BottleneckCause::Network),
            (Snapshot { arrival_delay: late, ..idle.clone() }, BottleneckCause::Network),
            (
                Snapshot { arrival_delay: late, source_idle: true, ..idle.clone() },
                BottleneckCause::Source,
            ),
            (Snapshot { relay_full: true, ..idle }, BottleneckCause::Relay),
            (Snapshot { locked: true, ..busy.clone() }, BottleneckCause::Locks),
            (Snapshot { throttled: true, ..busy.clone() }, BottleneckCause::Target),
            (Snapshot { throttled: true, ..working(&[]) }, BottleneckCause::Throttle),
            (Snapshot { statement: true, ..working(&[]) }, BottleneckCause::Target),
            (working(&[]), BottleneckCause::Relay),
            (Snapshot { memory_short: true, ..working(&[]) }, BottleneckCause::Memory),
            (
                working(&[Applying, WaitingForDependency, WaitingForDependency]),
                BottleneckCause::Dependency,
            ),
            (working(&[Applying, WaitingForTurn, WaitingForTurn]), BottleneckCause::CommitTurn),
            (busy, BottleneckCause::Target),
        ] {
            assert_eq!(snapshot.cause(), cause, "{snapshot:?}");
        }
    }

    #[test]
    fn a_meter_forgets_and_tells_rates() {
        let mut meter = Meter::default();
        let start = Instant::now();
        assert!(meter.rates().is_none() && meter.cause().is_none());
        for second in 0..20_u64 {
            let cause = if second < 15 { BottleneckCause::Target } else { BottleneckCause::Locks };
            meter.take(start + Duration::from_secs(second), cause, second * 100, second * 30);
        }
        assert_eq!(meter.rates(), Some((100.0, 30.0)));
        assert_eq!(meter.cause(), Some((BottleneckCause::Locks, 5.0 / 6.0)));
    }
}
