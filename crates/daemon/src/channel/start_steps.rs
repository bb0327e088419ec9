//! How long the steps of a channel's start take, from the first look at the target to the first commit.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;

named! {
    /// A step of a start, in order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum StartStep {
        /// Connecting to the target, and checking it.
        Target = "target",
        /// Finding what the relay store holds.
        Position = "position",
        /// Connecting to the source, and checking it and the position.
        Source = "source",
        /// Taking the channel on the target.
        Claim = "claim",
        /// Opening the relay store, unless it was open.
        RelayStore = "relay_store",
        /// Until the first transaction was read that the target does not have: the source may have none.
        FirstTransaction = "first_transaction",
        /// Reading its tables' definitions and all foreign keys from the target.
        Definitions = "definitions",
        /// It lasts until everything up to the first group is committed.
        FirstGroup = "first_group",
    }
}

/// One start of a channel: each step ends where the next begins.
#[derive(Debug, Clone)]
pub(super) struct StartSteps {
    last: Instant,
    took: Vec<(StartStep, Duration)>,
}

impl StartSteps {
    pub(super) fn begin(now: Instant) -> Self {
        Self { last: now, took: Vec::new() }
    }

    /// A step has ended; true if it is the first time. Steps that were left out took no time.
    pub(super) fn done(&mut self, step: StartStep, now: Instant) -> bool {
        if self.took.last().is_some_and(|(last, _)| *last >= step) {
            return false;
        }
        self.took.push((step, now.saturating_duration_since(self.last)));
        self.last = now;
        true
    }

    /// Names and times.
    pub(super) fn named(&self) -> Vec<(&'static str, Duration)> {
        self.took.iter().map(|&(step, time)| (step.name(), time)).collect()
    }

    /// Returns the steps in one line.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (step, time) in &self.took {
            let separator = if text.is_empty() { "" } else { ", " };
            // Writing to a String can't fail.
            let _ = write!(text, "{separator}{} {:.3} s", step.name(), time.as_secs_f64());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_counts_once_and_from_the_one_before() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut steps = StartSteps::begin(begun);
        assert!(steps.done(StartStep::Target, at(20)));
        assert!(steps.done(StartStep::Claim, at(25)));
        assert!(!steps.done(StartStep::Source, at(30)), "out of order");
        assert!(steps.done(StartStep::FirstGroup, at(1025)));
        assert!(!steps.done(StartStep::FirstGroup, at(2000)), "once");
        assert_eq!(steps.text(), "target 0.020 s, claim 0.005 s, first_group 1.000 s");
    }
}
