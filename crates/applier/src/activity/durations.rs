//! How long the steps of applying take.

use std::time::Duration;

use csa_provider::seams::{Durations, DurationsView};

use crate::activity::sessions::{SessionState, TimesInStates};

/// Shared by a channel's pipelines, one after the other, and by whoever shows them.
#[derive(Debug, Default)]
pub struct ApplierDurations {
    /// Of each transaction that was read: the wait for event memory and for room in the applier's queue.
    pub admission_wait: Durations,
    /// The time from the arrival of a group's first transaction until a worker has the group.
    pub group_formation: Durations,
    /// Of each group of row changes, by [`SessionState`].
    states: [Durations; STATES],
    /// From the source's commit of a group's first transaction to the target's commit of the group.
    pub end_to_end: Durations,
}

/// A snapshot.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplierDurationsView {
    pub admission_wait: DurationsView,
    pub group_formation: DurationsView,
    pub preparation: DurationsView,
    pub dependency_wait: DurationsView,
    pub statement: DurationsView,
    pub commit_order_wait: DurationsView,
    pub commit: DurationsView,
    pub end_to_end: DurationsView,
}

const STATES: usize = SessionState::ALL.len();

impl ApplierDurations {
    /// A group of row changes is committed.
    pub(crate) fn note_group(&self, times: &TimesInStates) {
        for (durations, time) in self.states.iter().zip(times.in_order()) {
            durations.note(time);
        }
    }

    /// A statement that commits implicitly was executed; its commit is part of it.
    pub(crate) fn note_statement(&self, time: Duration) {
        let [_, _, applying, ..] = &self.states;
        applying.note(time);
    }

    #[must_use]
    pub fn view(&self) -> ApplierDurationsView {
        // The source's time is in no step of ours.
        let [preparation, dependency_wait, statement, commit_order_wait, commit, _] =
            self.states.each_ref().map(Durations::view);
        ApplierDurationsView {
            admission_wait: self.admission_wait.view(),
            group_formation: self.group_formation.view(),
            preparation,
            dependency_wait,
            statement,
            commit_order_wait,
            commit,
            end_to_end: self.end_to_end.view(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_histogram() {
        let durations = ApplierDurations::default();
        let mut times = TimesInStates::default();
        for (place, state) in SessionState::ALL.into_iter().enumerate() {
            times.add(state, Duration::from_secs(1 << place));
        }
        durations.note_group(&times);
        durations.note_statement(Duration::from_secs(100));
        let view = durations.view();
        assert_eq!(view.preparation.seconds(), 1.0);
        assert_eq!(view.dependency_wait.seconds(), 2.0);
        assert_eq!((view.statement.seconds(), view.statement.count()), (104.0, 2));
        assert_eq!(view.commit_order_wait.seconds(), 8.0);
        assert_eq!(view.commit.seconds(), 16.0);
    }
}
