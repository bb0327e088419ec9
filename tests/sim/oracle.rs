//! Judges every state that is visible: it is the source's after exactly the transactions that the checkpoint
//! names, and these are a prefix of the source's history unless commits are out of order.

use std::collections::BTreeSet;
use std::sync::Arc;

use csa_provider::binlog::GtidSet;

use crate::branches::{self, PREPARED};
use crate::history::{Contents, History, is_of_source};
use crate::target::{Observer, Row, Rows, State, Value};

#[derive(Debug)]
pub(crate) struct Oracle {
    history: Arc<History>,
    in_order: bool,
    /// Transactions in the last state, and the highest epoch.
    last: GtidSet,
    epoch: i64,
}

impl Oracle {
    pub(crate) fn new(history: Arc<History>, in_order: bool) -> Self {
        Self { history, in_order, last: GtidSet::new(), epoch: 0 }
    }
}

/// The checkpoint of the only channel; `None` before there is one.
pub(crate) fn checkpoint(state: &State) -> Option<GtidSet> {
    let rows = state.rows_of("csa");
    let rows = rows.get("checkpoint").filter(|rows| !rows.is_empty())?;
    // With the row for readers the server's own set is the checkpoint.
    let is_for_readers = |row: &Row| row[1] == Value::from(i64::from(u16::MAX));
    let executed = match rows.values().any(is_for_readers) {
        true => state.executed.of_servers(is_of_source),
        false => union(rows),
    };
    assert!(executed.uuids().all(|uuid| is_of_source(&uuid)), "{executed}");
    Some(executed)
}

/// Returns the number of transactions that the checkpoint names.
pub(crate) fn applied(state: &State) -> Option<usize> {
    checkpoint(state).map(|executed| usize::try_from(executed.count()).expect("few"))
}

/// Returns true if a copy has rows left to copy: it is not known yet when its tables will have converged.
pub(crate) fn has_rows_to_copy(state: &State) -> bool {
    let notes = state.rows_of("csa").get("copy_state").copied();
    notes.is_some_and(|rows| rows.values().any(|row| row[5] == Value::Null))
}

/// Returns the sets of all rows together.
fn union(rows: &Rows) -> GtidSet {
    let mut executed = GtidSet::new();
    for row in rows.values() {
        let Value::Text(set) = &row[3] else { panic!("gtid_executed is {:?}", row[3]) };
        executed.union(&set.parse().expect("a GTID set"));
    }
    executed
}

/// Returns the epoch of the daemon that has the channel.
pub(crate) fn epoch(state: &State) -> i64 {
    let rows = state.rows_of("csa");
    let epochs = rows.get("checkpoint").into_iter().flat_map(|rows| rows.values());
    let epochs = epochs.map(|row| match &row[4] {
        Value::Number(epoch) => *epoch,
        other => panic!("epoch is {other:?}"),
    });
    epochs.max().unwrap_or_default()
}

/// Returns the rows of the replicated tables.
pub(crate) fn contents(state: &State) -> Contents {
    let tables = state.rows_of("app").into_iter();
    let tables = tables.map(|(name, rows)| (name.to_owned(), rows.clone()));
    tables.chain([(PREPARED.to_owned(), prepared(state))]).collect()
}

fn prepared(state: &State) -> Rows {
    let rows = state.prepared.keys().map(|xid| branches::row(xid));
    rows.map(|row| (row.clone(), row)).collect()
}

/// Returns the tables whose rows a copy reads, or whose changes during the copy are not all applied: they are as on
/// the source once nothing names them any more.
fn copied(state: &State) -> BTreeSet<String> {
    let own = state.rows_of("csa");
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        other => panic!("a table's name is {other:?}"),
    };
    let ranges = own.get("copy_range").into_iter().flat_map(|rows| rows.values());
    ranges.map(|row| text(&row[2])).collect()
}

fn has(state: &State, expected: &Contents) -> bool {
    let copied = copied(state);
    let mut rows = state.rows_of("app");
    rows.retain(|name, _| !copied.contains(*name));
    let (is_prepared, tables): (Vec<_>, Vec<_>) = expected
        .iter()
        .filter(|(name, _)| !copied.contains(name.as_str()))
        .partition(|(name, _)| *name == PREPARED);
    rows.len() == tables.len()
        && tables.into_iter().all(|(name, table)| rows.get(name.as_str()) == Some(&table))
        && is_prepared.into_iter().all(|(_, rows)| *rows == prepared(state))
}

impl Observer for Oracle {
    fn committed(&mut self, state: &State) {
        let Some(executed) = checkpoint(state) else { return };
        let lost = self.last.difference(&executed);
        assert!(lost.is_empty(), "the checkpoint lost {lost}");
        let epoch = epoch(state);
        assert!(epoch >= self.epoch, "the epoch went back from {} to {epoch}", self.epoch);
        let prefix = self.history.prefix(&executed);
        assert!(
            !self.in_order || prefix as u64 == executed.count(),
            "not a prefix of the source's history: {executed}"
        );
        // A statement commits on its own, before the checkpoint names it.
        let next = self.history.transactions.get(prefix);
        let is_ahead = || {
            next.is_some_and(|next| next.is_alone) && has(state, &self.history.states[prefix + 1])
        };
        let expected = self.history.contents_after(prefix, &executed);
        assert!(
            has(state, &expected) || is_ahead(),
            "not the source after {executed}: {:?} instead of {expected:?}",
            contents(state)
        );
        (self.last, self.epoch) = (executed, epoch);
    }

    fn restarted(&mut self, state: &State) {
        // Commits may be lost, whole transactions from the end.
        (self.last, self.epoch) = (GtidSet::new(), 0);
        self.committed(state);
    }
}
