//! The state of a run, from which a later run resumes. It holds values of keys.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::event::VerifyEvent;
use super::ranges::RowKey;
use super::report::{Outcome, TableReport};
use super::scope::TablePair;
use super::table_name::TableName;

/// Between two reports of the state from which a later run resumes.
const SAVED: Duration = Duration::from_secs(1);

/// Everything that a run has found so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The scope and the servers; a run with others does not resume from it.
    of: RunIdentity,
    finished: Vec<FinishedTable>,
    part: Option<UnfinishedTable>,
    /// Tables that were begun without a place from which they could be continued, the last one at the end.
    #[serde(default)]
    begun: Vec<String>,
}

/// A run's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunIdentity {
    pub(super) channel: String,
    pub(super) schemas: Vec<String>,
    pub(super) tables: Vec<String>,
    pub(super) common_columns: bool,
    pub(super) max_differences: usize,
    /// Its `server_uuid`, or on MariaDB its address.
    pub(super) target: String,
}

/// A table that was compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FinishedTable {
    /// The digest of the definitions of both sides.
    definition: String,
    report: TableReport,
}

/// A table with a key that was compared up to a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UnfinishedTable {
    definition: String,
    pub(super) after: RowKey,
    pub(super) rows: u64,
    /// Rows that differed and were not yet read again.
    pub(super) suspects: Vec<RowKey>,
    pub(super) report: TableReport,
}

impl Saved {
    /// Returns the tables that are complete, and the rows of the one that is not.
    #[must_use]
    pub fn progress(&self) -> (usize, u64) {
        (self.finished.len(), self.part.as_ref().map_or(0, |part| part.rows))
    }
}

/// The state of this run, which begins with that of an earlier one.
#[derive(Debug, Default)]
pub(super) struct Resume {
    now: Saved,
    /// The part of a table that the earlier run compared.
    earlier: Option<UnfinishedTable>,
    /// The definition of the table that is compared, and the part of it that an earlier run compared.
    definition: String,
    part: Option<UnfinishedTable>,
    /// The state is newer than the last one that was reported.
    is_newer: bool,
}

impl Resume {
    /// Takes over what `before` found, unless it compared something else.
    pub(super) fn new(of: RunIdentity, before: Option<&Saved>) -> Self {
        let before = before.filter(|before| before.of == of).cloned();
        let now = before.unwrap_or_else(|| Saved { of, ..Saved::default() });
        Self { earlier: now.part.clone(), now, ..Self::default() }
    }

    /// Returns a table's turn: one that an earlier run began without success comes after all others, and the last of
    /// these at the end.
    pub(super) fn turn(&self, table: &TableName) -> usize {
        let name = table.to_string();
        self.now.begun.iter().position(|begun| *begun == name).map_or(0, |place| place + 1)
    }

    /// The result of an earlier run for a table, if it still counts; else the table is begun.
    pub(super) fn begin(
        &mut self,
        pair: &TablePair,
        definition: String,
        repairs: bool,
    ) -> Option<TableReport> {
        let is_it =
            |report: &TableReport| report.table == pair.source && report.target == pair.target;
        // The statements were not kept.
        let is_useful = |report: &TableReport| !repairs || report.differences.is_empty();
        let finished = &mut self.now.finished;
        if let Some(at) = finished.iter().position(|done| is_it(&done.report)) {
            let counts = |done: &&FinishedTable| {
                done.definition == definition
                    && done.report.outcome != Outcome::Unstable
                    && is_useful(&done.report)
            };
            if let Some(done) = finished.get(at).filter(counts) {
                return Some(TableReport { compared_before: true, ..done.report.clone() });
            }
            finished.swap_remove(at);
        }
        let counts =
            |part: &UnfinishedTable| part.definition == definition && is_useful(&part.report);
        let part = self.earlier.take_if(|part| is_it(&part.report));
        self.part = part.filter(counts);
        self.now.part.take_if(|part| is_it(&part.report) && !counts(part));
        self.left(&pair.source);
        if self.part.is_none() {
            self.now.begun.push(pair.source.to_string());
        }
        self.definition = definition;
        None
    }

    /// Returns the part of the table that was compared before.
    pub(super) fn part(&mut self) -> Option<UnfinishedTable> {
        self.part.take()
    }

    /// The table was compared up to a key.
    pub(super) fn reached(
        &mut self,
        after: RowKey,
        rows: u64,
        suspects: Vec<RowKey>,
        report: &TableReport,
    ) {
        let definition = self.definition.clone();
        self.now.part =
            Some(UnfinishedTable { definition, after, rows, suspects, report: report.clone() });
        self.left(&report.table);
    }

    pub(super) fn finished(&mut self, report: &TableReport) {
        let definition = std::mem::take(&mut self.definition);
        let is_it = |part: &mut UnfinishedTable| {
            part.report.table == report.table && part.report.target == report.target
        };
        self.now.part.take_if(is_it);
        self.now.finished.push(FinishedTable { definition, report: report.clone() });
        self.left(&report.table);
    }

    /// The table is no longer one that was begun without success.
    fn left(&mut self, table: &TableName) {
        let name = table.to_string();
        self.now.begun.retain(|begun| *begun != name);
        self.is_newer = true;
    }

    /// Returns the state if it is newer than the last one that was returned.
    pub(super) fn newer(&mut self) -> Option<&Saved> {
        std::mem::take(&mut self.is_newer).then_some(&self.now)
    }
}

/// Reports the state as long as it is newer than the last report. A table that takes hours is known as begun meanwhile,
/// and a server with many small tables does not have all of them written for each one.
pub(super) async fn keep_saved(
    resume: &Mutex<Resume>,
    observe: &(dyn Fn(VerifyEvent<'_>) + Sync),
) -> Infallible {
    loop {
        tokio::time::sleep(SAVED).await;
        save(resume, observe);
    }
}

/// Reports the state if it is newer than the last report.
pub(super) fn save(resume: &Mutex<Resume>, observe: &(dyn Fn(VerifyEvent<'_>) + Sync)) {
    if let Some(saved) = resume.lock().newer() {
        observe(VerifyEvent::Saved(saved));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(target: &str) -> RunIdentity {
        RunIdentity {
            channel: "shop".to_owned(),
            target: target.to_owned(),
            ..RunIdentity::default()
        }
    }

    fn pair(name: &str) -> TablePair {
        let name: TableName = name.parse().unwrap();
        TablePair { source: name.clone(), target: name, is_shared: false }
    }

    /// A run that finished `d.a` and is in the middle of `d.b`, as a later one reads it.
    fn interrupted() -> Saved {
        let mut run = Resume::new(identity("uuid"), None);
        assert!(run.begin(&pair("d.a"), "a1".to_owned(), false).is_none());
        run.finished(&TableReport { rows: 7, ..TableReport::new(&pair("d.a")) }.conclude());
        assert!(run.begin(&pair("d.b"), "b1".to_owned(), false).is_none());
        let report = TableReport::new(&pair("d.b"));
        run.reached(vec!["5".to_owned()], 5, vec![vec!["3".to_owned()]], &report);
        read_again(&mut run)
    }

    fn read_again(run: &mut Resume) -> Saved {
        let saved = run.newer().expect("a newer state");
        serde_json::from_str(&serde_json::to_string(saved).unwrap()).unwrap()
    }

    #[test]
    fn what_was_compared_is_not_compared_again() {
        let saved = interrupted();
        assert_eq!(saved.progress(), (1, 5));
        let mut run = Resume::new(identity("uuid"), Some(&saved));
        let done = run.begin(&pair("d.a"), "a1".to_owned(), false).expect("finished before");
        assert!(done.compared_before && done.rows == 7);
        assert!(run.begin(&pair("d.b"), "b1".to_owned(), false).is_none());
        let part = run.part().expect("a part");
        assert_eq!((part.after, part.rows, part.suspects.len()), (vec!["5".to_owned()], 5, 1));
        assert_eq!(run.now.progress(), (1, 5), "interrupted again, it continues from there");
        run.finished(&TableReport::new(&pair("d.b")).conclude());
        let both = run.newer().expect("a newer state");
        assert_eq!(both.progress(), (2, 0), "what the earlier run finished is kept");
        assert!(run.newer().is_none(), "nothing has changed since");
    }

    #[test]
    fn a_table_that_could_not_be_continued_comes_last() {
        let turns = |run: &Resume| ["d.a", "d.b", "d.c"].map(|name| run.turn(&pair(name).source));
        let mut run = Resume::new(identity("uuid"), None);
        run.begin(&pair("d.a"), "a1".to_owned(), false);
        let mut run = Resume::new(identity("uuid"), Some(&read_again(&mut run)));
        assert_eq!(turns(&run), [1, 0, 0]);
        run.begin(&pair("d.b"), "b1".to_owned(), false);
        let mut run = Resume::new(identity("uuid"), Some(&read_again(&mut run)));
        assert_eq!(turns(&run), [1, 2, 0]);
        // It was begun again, and has a part from which it continues.
        run.begin(&pair("d.a"), "a1".to_owned(), false);
        assert_eq!(turns(&run), [2, 1, 0]);
        let report = TableReport::new(&pair("d.a"));
        run.reached(vec!["5".to_owned()], 5, Vec::new(), &report);
        assert_eq!(turns(&run), [0, 1, 0]);
        run.finished(&TableReport::new(&pair("d.b")).conclude());
        assert_eq!(turns(&run), [0, 0, 0]);
        assert_eq!(run.now.progress(), (1, 5), "the end of another table leaves the part");
    }

    #[test]
    fn states_of_older_versions_are_read() {
        let mut saved = serde_json::to_value(interrupted()).unwrap();
        saved.as_object_mut().expect("an object").remove("begun");
        let saved: Saved = serde_json::from_value(saved).unwrap();
        assert_eq!(saved.progress(), (1, 5));
    }

    #[test]
    fn other_definitions_servers_and_options_begin_anew() {
        let saved = interrupted();
        let mut changed = Resume::new(identity("uuid"), Some(&saved));
        assert!(changed.begin(&pair("d.a"), "a2".to_owned(), false).is_none());
        assert!(changed.begin(&pair("d.b"), "b2".to_owned(), false).is_none());
        assert!(changed.part().is_none());
        let other = RunIdentity { common_columns: true, ..identity("uuid") };
        for identity in [identity("other"), other] {
            let mut run = Resume::new(identity, Some(&saved));
            assert!(run.begin(&pair("d.a"), "a1".to_owned(), false).is_none());
        }
    }

    #[test]
    fn statements_are_written_for_all_rows_that_differ() {
        use super::super::report::{DifferenceKind, RowDifference};
        let mut run = Resume::new(identity("uuid"), None);
        assert!(run.begin(&pair("d.a"), "a1".to_owned(), true).is_none());
        let mut report = TableReport::new(&pair("d.a"));
        let kind = DifferenceKind::MissingOnTarget;
        report.differences.push(RowDifference { key: "id=1".to_owned(), kind });
        run.finished(&report.conclude());
        let saved = read_again(&mut run);
        for (repairs, is_known) in [(false, true), (true, false)] {
            let mut run = Resume::new(identity("uuid"), Some(&saved));
            let found = run.begin(&pair("d.a"), "a1".to_owned(), repairs);
            assert_eq!(found.is_some(), is_known);
        }
    }
}
