//! Distributed transactions of a source's history: prepared under one GTID, committed or rolled back under
//! another, with others in between. Until its end, a branch holds the rows and codes that it changes.

use csa_provider::binlog::RawEvent;
use csa_provider::test_util::{query_event, xa_prepare_event};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::history::RowChange;
use crate::seeds::Case;
use crate::target::{Row, Value};

/// The name under which [`crate::history::Contents`] has the branches that are prepared.
pub(crate) const PREPARED: &str = "(prepared)";

/// Branches that may be open at once.
const MOST: usize = 3;

/// A step of a branch in place of a transaction.
#[derive(Debug)]
pub(crate) enum Step {
    Prepare,
    End { place: usize, is_commit: bool },
}

#[derive(Debug)]
struct Branch {
    xid: String,
    changes: Vec<RowChange>,
}

#[derive(Debug)]
pub(crate) struct Branches {
    pub(crate) random: StdRng,
    rate: f64,
    open: Vec<Branch>,
}

impl Branches {
    pub(crate) fn of(case: Case, has_any: bool) -> Self {
        let random = StdRng::seed_from_u64(case.seed ^ 0x000d_1577);
        Self { random, rate: if has_any { 0.2 } else { 0.0 }, open: Vec::new() }
    }

    /// The step that is due, with `left` transactions still to come after it: all branches end in them.
    pub(crate) fn step(&mut self, left: usize) -> Option<Step> {
        let open = self.open.len();
        if open > 0 && (left < open || self.random.random_bool(0.3)) {
            let (place, is_commit) = (self.random.random_range(0..open), self.random.random());
            return Some(Step::End { place, is_commit });
        }
        let has_room = open < MOST && left > open;
        (has_room && self.random.random_bool(self.rate)).then_some(Step::Prepare)
    }

    /// Returns true if a branch holds the row of `accounts`.
    pub(crate) fn has_row(&self, id: i64) -> bool {
        self.images().any(|row| row[0] == Value::from(id))
    }

    /// Returns true if a branch holds the code.
    pub(crate) fn has_code(&self, code: &Value) -> bool {
        self.images().any(|row| row[2] == *code)
    }

    fn images(&self) -> impl Iterator<Item = &Row> {
        let changes = self.open.iter().flat_map(|branch| &branch.changes);
        changes.flat_map(|(_, before, after)| before.iter().chain(after))
    }

    /// Prepares a branch: its events, and the change that others see.
    pub(crate) fn prepare(
        &mut self,
        number: usize,
        rows: Vec<RawEvent>,
        changes: Vec<RowChange>,
    ) -> (Vec<RawEvent>, Vec<RowChange>) {
        let global = format!("{number}");
        let digits: String = global.bytes().map(|byte| format!("{byte:02x}")).collect();
        let xid = format!("X'{digits}',X'',1");
        let mut events = vec![query_event("app", &format!("XA START {xid}"))];
        events.extend(rows);
        events.push(query_event("app", &format!("XA END {xid}")));
        events.push(xa_prepare_event(false, global.as_bytes(), b""));
        let seen = vec![(PREPARED.to_owned(), None, Some(row(&xid)))];
        self.open.push(Branch { xid, changes });
        (events, seen)
    }

    /// Ends a branch: its events, and the changes that others see.
    pub(crate) fn end(&mut self, place: usize, is_commit: bool) -> (Vec<RawEvent>, Vec<RowChange>) {
        let Branch { xid, changes } = self.open.remove(place);
        let verb = if is_commit { "COMMIT" } else { "ROLLBACK" };
        let mut seen = vec![(PREPARED.to_owned(), Some(row(&xid)), None)];
        seen.extend(changes.into_iter().filter(|_| is_commit));
        (vec![query_event("app", &format!("XA {verb} {xid}"))], seen)
    }
}

/// Returns the row of a branch that is prepared.
pub(crate) fn row(xid: &str) -> Row {
    vec![Value::Text(xid.to_owned())]
}
