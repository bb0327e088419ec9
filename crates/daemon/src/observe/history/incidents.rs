//! The times in which a channel did not do what it should, and what it caught up with afterwards. Pure.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::observe::view::{ChannelState, ChannelView};

/// The oldest are dropped.
const INCIDENTS: usize = 200;
/// A shorter absence is seen at every start, while connections are made.
const SECONDS_MIN: u64 = 2;
/// A state that returns sooner continues its incident: a link that flaps fills no list.
const APART: u64 = 60;
/// With less lag than this (and the intended delay) a channel has caught up. Samples are a second apart.
const LAG: f64 = 1.0;

/// `/channels/{name}/incidents`.
#[derive(Debug, Serialize)]
pub(crate) struct IncidentsView {
    pub(super) channel_name: String,
    /// Newest last.
    pub(super) incidents: Vec<Incident>,
}

/// An incident, in the answer and as a line of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Incident {
    pub(super) state: ChannelState,
    /// The reason, without row values.
    pub(super) detail: String,
    /// The server's error number; 0 for none.
    #[serde(default)]
    pub(super) number: u16,
    /// The table whose row failed.
    pub(super) table: Option<String>,
    /// Seconds since the epoch.
    pub(super) began: u64,
    /// Absent while it lasts.
    pub(super) ended: Option<u64>,
    /// How often the state returned within a minute.
    pub(super) times: u64,
    /// Transactions applied from its end until the channel had caught up, and the seconds that it took; absent
    /// until then.
    pub(super) caught_up_transactions: Option<u64>,
    pub(super) caught_up_seconds: Option<u64>,
}

/// Newest last.
#[derive(Debug, Default)]
pub(super) struct IncidentLog {
    entries: VecDeque<Incident>,
    /// A state that may pass at once, and the second in which it was first seen.
    suspected: Option<(ChannelState, u64)>,
    /// Transactions applied before the newest incident ended.
    applied: u64,
    /// The second of that end, until the channel has caught up.
    resumed: Option<u64>,
}

impl IncidentLog {
    pub(super) fn of(entries: Vec<Incident>) -> Self {
        let surplus = entries.len().saturating_sub(INCIDENTS);
        Self { entries: entries.into_iter().skip(surplus).collect(), ..Self::default() }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Incident> {
        self.entries.iter()
    }

    /// Takes a sample; returns whether an entry changed.
    pub(super) fn take(&mut self, second: u64, view: &ChannelView) -> bool {
        let applied = view.applied_transactions_total;
        match view.state {
            // It says nothing about how the start will end.
            ChannelState::Starting => {
                self.applied = applied;
                false
            }
            state if state.is_well() => {
                self.suspected = None;
                let has_ended = self.end(second);
                // Another daemon catches up.
                if state == ChannelState::Standby {
                    self.resumed = None;
                } else if has_ended {
                    self.resumed = Some(second);
                }
                self.catch_up(second, view) || has_ended
            }
            _ => {
                self.applied = applied;
                self.note(second, view)
            }
        }
    }

    /// Ends the incident that lasts, if there is one.
    fn end(&mut self, second: u64) -> bool {
        let Some(last) = self.entries.back_mut().filter(|last| last.ended.is_none()) else {
            return false;
        };
        // The clock may have been set back between two starts of the daemon.
        last.ended = Some(second.max(last.began));
        true
    }

    fn catch_up(&mut self, second: u64, view: &ChannelView) -> bool {
        let Some(resumed) = self.resumed else { return false };
        let has = view.lag_seconds.is_some_and(|lag| lag <= LAG + view.applier.desired_delay);
        let Some(last) = self.entries.back_mut().filter(|_| has) else { return false };
        let transactions = view.applied_transactions_total.saturating_sub(self.applied);
        last.caught_up_transactions = Some(transactions);
        last.caught_up_seconds = Some(second.saturating_sub(resumed));
        self.resumed = None;
        true
    }

    fn note(&mut self, second: u64, view: &ChannelView) -> bool {
        let state = view.state;
        let error = view.last_error.as_ref().filter(|_| state == ChannelState::Failed);
        let detail = error.map_or(&view.state_detail, |error| &error.message);
        // Another error of a failed channel is another incident; a server that is away gives many reasons.
        let is_same = |last: &Incident| {
            last.state == state && (state != ChannelState::Failed || last.detail == *detail)
        };
        if self.entries.back().is_some_and(|last| last.ended.is_none() && is_same(last)) {
            self.suspected = None;
            return false;
        }
        let first = match self.suspected {
            // A later one is from before the clock was set back.
            Some((suspected, first)) if suspected == state && first <= second => first,
            _ => second,
        };
        self.suspected = Some((state, first));
        let passes = matches!(
            state,
            ChannelState::WaitingForSource
                | ChannelState::WaitingForTarget
                | ChannelState::WaitingForArchive
        );
        if passes && second.saturating_sub(first) < SECONDS_MIN {
            return false;
        }
        self.suspected = None;
        self.resumed = None;
        self.end(first);
        let again = self.entries.back_mut().filter(|last| {
            is_same(last) && last.ended.is_some_and(|ended| first.saturating_sub(ended) <= APART)
        });
        if let Some(last) = again {
            last.ended = None;
            last.times += 1;
            (last.caught_up_transactions, last.caught_up_seconds) = (None, None);
            return true;
        }
        if self.entries.len() == INCIDENTS {
            self.entries.pop_front();
        }
        self.entries.push_back(Incident {
            state,
            detail: detail.clone(),
            number: error.map_or(0, |error| error.number),
            table: error.and_then(|error| error.row.as_ref()).map(|row| row.table.clone()),
            began: first,
            times: 1,
            ..Incident::default()
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::{ErrorView, FailingRowView};

    fn view(state: ChannelState, applied: u64, lag: Option<f64>) -> ChannelView {
        let mut view = ChannelView { state, lag_seconds: lag, ..ChannelView::default() };
        view.applied_transactions_total = applied;
        view.state_detail = "refused".to_owned();
        view
    }

    fn failed(number: u16) -> ChannelView {
        let row = FailingRowView { table: "d.t".to_owned(), ..FailingRowView::default() };
        let message = format!("error {number}");
        let error = ErrorView { number, message, row: Some(row), ..ErrorView::default() };
        ChannelView { last_error: Some(error), ..view(ChannelState::Failed, 0, None) }
    }

    const AWAY: ChannelState = ChannelState::WaitingForTarget;
    const RUNNING: ChannelState = ChannelState::Running;

    #[test]
    fn an_incident_ends_and_the_channel_catches_up() {
        let mut log = IncidentLog::default();
        assert!(!log.take(100, &view(RUNNING, 50, Some(0.0))));
        assert!(!log.take(101, &view(AWAY, 60, None)));
        assert!(!log.take(102, &view(AWAY, 60, None)), "it may pass at once");
        assert!(log.take(103, &view(AWAY, 60, None)));
        assert!(!log.take(104, &view(AWAY, 60, None)));
        assert!(log.take(131, &view(RUNNING, 300, Some(30.0))));
        assert!(!log.take(134, &view(RUNNING, 1300, Some(1.2))));
        assert!(log.take(135, &view(RUNNING, 1363, Some(0.4))));
        assert!(!log.take(136, &view(RUNNING, 1400, Some(0.4))));
        let incident = Incident {
            state: AWAY,
            detail: "refused".to_owned(),
            began: 101,
            ended: Some(131),
            times: 1,
            caught_up_transactions: Some(1303),
            caught_up_seconds: Some(4),
            ..Incident::default()
        };
        assert_eq!(log.entries().collect::<Vec<_>>(), [&incident]);
    }

    #[test]
    fn a_link_that_flaps_is_one_incident() {
        let mut log = IncidentLog::default();
        for second in 0..100 {
            let state = if second % 10 < 5 { AWAY } else { RUNNING };
            log.take(1000 + second, &view(state, 0, Some(0.0)));
        }
        let entries: Vec<_> = log.entries().collect();
        assert_eq!((entries.len(), entries[0].times, entries[0].ended), (1, 10, Some(1095)));
        // Later it is another one, as is another state at once.
        for second in [1200, 1203] {
            log.take(second, &view(AWAY, 0, None));
        }
        log.take(1204, &failed(1062));
        log.take(1205, &failed(1062));
        log.take(1206, &failed(1032));
        let entries: Vec<_> = log.entries().skip(1).collect();
        let ended: Vec<_> = entries.iter().map(|entry| (entry.began, entry.ended)).collect();
        assert_eq!(ended, [(1200, Some(1204)), (1204, Some(1206)), (1206, None)]);
        assert_eq!((entries[2].number, entries[2].table.as_deref()), (1032, Some("d.t")));
    }

    #[test]
    fn what_passes_at_once_is_none() {
        let mut log = IncidentLog::default();
        let source = ChannelState::WaitingForSource;
        for (second, state) in [(1, ChannelState::Starting), (2, source), (3, RUNNING), (4, AWAY)] {
            assert!(!log.take(second, &view(state, 0, None)));
        }
        assert!(!log.take(5, &view(ChannelState::Standby, 0, None)));
        assert!(
            log.take(6, &view(ChannelState::Paused, 0, None)),
            "an operator's act counts at once"
        );
    }

    #[test]
    fn a_clock_that_was_set_back_hides_no_incident() {
        let mut log = IncidentLog::default();
        assert!(!log.take(5000, &view(AWAY, 0, None)));
        for (second, is_noted) in [(100, false), (101, false), (102, true)] {
            assert_eq!(log.take(second, &view(AWAY, 0, None)), is_noted, "{second}");
        }
        assert_eq!(log.entries().map(|entry| entry.began).collect::<Vec<_>>(), [100]);
    }

    #[test]
    fn a_restart_of_the_daemon_does_not_end_an_incident() {
        let mut log = IncidentLog::default();
        log.take(10, &failed(1062));
        let mut log = IncidentLog::of(log.entries().cloned().collect());
        assert!(!log.take(20, &view(ChannelState::Starting, 0, None)));
        assert!(!log.take(21, &failed(1062)));
        let mut log = IncidentLog::of(log.entries().cloned().collect());
        // The clock was set back.
        assert!(log.take(5, &view(RUNNING, 7, Some(0.0))));
        let entry = log.entries().next().expect("one");
        assert_eq!(
            (entry.began, entry.ended, entry.caught_up_transactions),
            (10, Some(10), Some(7))
        );
    }

    #[test]
    fn the_oldest_are_dropped() {
        let mut log = IncidentLog::default();
        for number in 1..=500 {
            log.take(u64::from(number), &failed(number));
        }
        assert_eq!(log.entries().count(), INCIDENTS);
        assert_eq!(log.entries().last().map(|last| last.number), Some(500));
        let many = log.entries().chain(log.entries()).cloned().collect();
        assert_eq!(IncidentLog::of(many).entries().count(), INCIDENTS);
    }
}
