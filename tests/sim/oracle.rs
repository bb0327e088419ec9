//! Judges every state that is visible: it is the history's prefix that the checkpoint names.

use std::sync::Arc;

use csa_provider::{GtidSet, Interval};

use super::history::{Contents, History, SOURCE};
use crate::target::{Observer, Row, Rows, State, Value};

#[derive(Debug)]
pub(super) struct Oracle {
    history: Arc<History>,
    /// Transactions in the last state.
    last: usize,
}

impl Oracle {
    pub(super) fn new(history: Arc<History>) -> Self {
        Self { history, last: 0 }
    }
}

/// The number of transactions that the checkpoint of the only channel names; `None` before there is one.
pub(super) fn checkpoint(state: &State) -> Option<usize> {
    let rows = state.rows_of("csa");
    let rows = rows.get("checkpoint").filter(|rows| !rows.is_empty())?;
    // With the row for readers the server's own set is the checkpoint.
    let is_for_readers = |row: &Row| row[1] == Value::from(i64::from(u16::MAX));
    let executed = match rows.values().any(is_for_readers) {
        true => state.executed.of_servers(|uuid| *uuid == SOURCE),
        false => union(rows),
    };
    let intervals: Vec<Interval> = executed.intervals().map(|(_, _, interval)| interval).collect();
    assert!(executed.uuids().all(|uuid| uuid == SOURCE), "{executed}");
    match intervals.as_slice() {
        [] => Some(0),
        [one] if one.start == 1 => Some(usize::try_from(executed.count()).expect("few")),
        _ => panic!("the checkpoint has gaps: {executed}"),
    }
}

/// The sets of all rows together.
fn union(rows: &Rows) -> GtidSet {
    let mut executed = GtidSet::new();
    for row in rows.values() {
        let Value::Text(set) = &row[3] else { panic!("gtid_executed is {:?}", row[3]) };
        executed.union(&set.parse().expect("a GTID set"));
    }
    executed
}

/// The rows of the replicated tables.
pub(super) fn contents(state: &State) -> Contents {
    let tables = state.rows_of("app").into_iter();
    tables.map(|(name, rows)| (name.to_owned(), rows.clone())).collect()
}

impl Observer for Oracle {
    fn committed(&mut self, state: &State) {
        let Some(count) = checkpoint(state) else { return };
        assert!(count >= self.last, "the checkpoint went back from {} to {count}", self.last);
        self.last = count;
        let is = |count: usize| {
            self.history.states.get(count).is_some_and(|expected| {
                let rows = state.rows_of("app");
                rows.len() == expected.len()
                    && expected.iter().all(|(name, table)| rows.get(name.as_str()) == Some(&table))
            })
        };
        // A statement commits on its own, before the checkpoint names it.
        let next = self.history.transactions.get(count);
        let is_ahead = next.is_some_and(|next| next.is_definition) && is(count + 1);
        assert!(
            is(count) || is_ahead,
            "not the source after {count} transactions: {:?}",
            state.rows_of("app")
        );
    }

    fn restarted(&mut self, state: &State) {
        // Commits may be lost, whole transactions from the end.
        self.last = 0;
        self.committed(state);
    }
}
