//! The state of a run, from which a later run resumes. It holds values of keys.

use std::collections::BTreeSet;

use csa_provider::binlog::GtidSet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tracing::warn;

use super::ranges::RowKey;
use super::report::{Outcome, TableReport};
use super::scope::TablePair;
use super::table_name::TableName;

/// The state of `csa-daemon verify`, in the channel's part of the state directory.
pub(crate) const STATE_FILE: &str = "verify.json";

/// Raised when results that are noted can't count any more: rows are read or compared in another way.
pub(super) const FORM: u32 = 1;

/// Everything that a run has found so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The scope and the servers; a run with others does not resume from it.
    of: RunIdentity,
    /// The transactions that the target had when the run began, as text. A target that lacks one of them was restored.
    /// Without it nothing could be resumed, so it has no default.
    executed: String,
    #[serde(deserialize_with = "finished")]
    finished: Vec<FinishedTable>,
    #[serde(default, deserialize_with = "unfinished")]
    part: Option<UnfinishedTable>,
    /// Tables that were begun without a place from which they could be continued, the last one at the end.
    #[serde(default)]
    begun: Vec<BegunTable>,
}

/// A table that was begun without success.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct BegunTable {
    table: String,
    times: u32,
}

/// A run's identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunIdentity {
    /// [`FORM`], or 0 where an earlier version has noted none.
    #[serde(default)]
    pub(super) form: u32,
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

/// Leaves out tables whose results another version has written in its own form: they are compared again.
fn finished<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<FinishedTable>, D::Error> {
    Ok(Vec::<Value>::deserialize(deserializer)?.into_iter().filter_map(readable).collect())
}

/// Leaves out a part in the form of another version: its table is compared from the start.
fn unfinished<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<UnfinishedTable>, D::Error> {
    Ok(Option::<Value>::deserialize(deserializer)?.and_then(readable))
}

fn readable<T: DeserializeOwned>(value: Value) -> Option<T> {
    let read = serde_json::from_value(value);
    read.inspect_err(|error| {
        warn!(%error, "what an earlier run found in a table can't be read: the table is compared again");
    })
    .ok()
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
    /// Takes over what `before` found, unless it compared something else, or another life of the target, which has
    /// now executed this set. A source that lacks some of the set is refused before, so it may be any.
    pub(super) fn new(of: RunIdentity, executed: &GtidSet, before: Option<&Saved>) -> Self {
        let has_all = |before: &Saved| {
            before.executed.parse().is_ok_and(|had: GtidSet| had.is_subset_of(executed))
        };
        let before = before.filter(|before| before.of == of && has_all(before)).cloned();
        let mut now = before.unwrap_or_else(|| Saved { of, ..Saved::default() });
        now.executed = executed.to_string();
        Self { earlier: now.part.clone(), now, ..Self::default() }
    }

    /// Puts the table first that an earlier run compared in part, because there is room for one part only. Those whose
    /// rows kept changing, and then those that were begun without success, must not keep others from being compared.
    pub(super) fn sort(&self, pairs: &mut [TablePair]) {
        let unstable = |done: &&FinishedTable| done.report.outcome == Outcome::Unstable;
        let unstable: BTreeSet<&TableName> =
            self.now.finished.iter().filter(unstable).map(|done| &done.report.table).collect();
        let begun: Vec<&str> = self.now.begun.iter().map(|begun| begun.table.as_str()).collect();
        let part = self.now.part.as_ref().map(|part| &part.report.table);
        pairs.sort_by_cached_key(|pair| {
            let name = pair.source.to_string();
            let place = begun.iter().position(|begun| *begun == name);
            match (part == Some(&pair.source), place) {
                (true, _) => (0, 0),
                (false, Some(place)) => (3, place),
                (false, None) if unstable.contains(&pair.source) => (2, 0),
                (false, None) => (1, 0),
            }
        });
    }

    /// The result of an earlier run for a table, if it still counts; else the table is begun. One that was interrupted
    /// as often as `interruptions_max` says is left out.
    pub(super) fn begin(
        &mut self,
        pair: &TablePair,
        definition: String,
        repairs: bool,
        interruptions_max: Option<u32>,
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
        let times = self.left(&pair.source);
        if self.part.is_some() {
            self.definition = definition;
            return None;
        }
        let is_too_often = interruptions_max.is_some_and(|most| times >= most);
        let begun_times = if is_too_often { times } else { times + 1 };
        let table = pair.source.to_string();
        self.now.begun.push(BegunTable { table, times: begun_times });
        if is_too_often {
            let report = self.given_up(pair, times);
            self.now.finished.push(FinishedTable { definition, report: report.clone() });
            return Some(report);
        }
        self.definition = definition;
        None
    }

    /// Returns the result of a table that no run had the time for.
    fn given_up(&self, pair: &TablePair, times: u32) -> TableReport {
        let mut report = TableReport::new(pair);
        report.leave_out(format!(
            "interrupted {times} times before it was compared; compare it with csa-daemon verify --channel {} --table {}",
            self.now.of.channel, pair.source
        ));
        report.conclude()
    }

    /// The rows are compared by these definitions, which may be later ones than those with which the table was begun.
    pub(super) fn compares(&mut self, definition: String) {
        if self.definition != definition {
            self.part = None;
            self.definition = definition;
        }
    }

    /// The table is compared from its beginning again: some of its rows were compared by another definition.
    pub(super) fn forget_part(&mut self, pair: &TablePair) {
        self.part = None;
        let is_it = |part: &mut UnfinishedTable| {
            part.report.table == pair.source && part.report.target == pair.target
        };
        self.is_newer |= self.now.part.take_if(is_it).is_some();
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

    /// The table is no longer one that was begun without success. Returns how often it was.
    fn left(&mut self, table: &TableName) -> u32 {
        let name = table.to_string();
        self.is_newer = true;
        let place = self.now.begun.iter().position(|begun| begun.table == name);
        place.map_or(0, |place| self.now.begun.remove(place).times)
    }

    /// The run came to its end, so no run resumes from it.
    pub(super) fn completed(&mut self) {
        self.is_newer = false;
    }

    /// Returns the number of tables in the state.
    pub(super) fn tables(&self) -> usize {
        self.now.finished.len()
    }

    /// Returns the state if it is newer than the last one that was returned.
    pub(super) fn newer(&mut self) -> Option<&Saved> {
        std::mem::take(&mut self.is_newer).then_some(&self.now)
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

    /// Returns so many transactions of a server.
    fn executed(transactions: u32) -> GtidSet {
        format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{transactions}").parse().unwrap()
    }

    fn pair(name: &str) -> TablePair {
        let name: TableName = name.parse().unwrap();
        TablePair { source: name.clone(), target: name, is_shared: false }
    }

    /// A run that finished `d.a` and is in the middle of `d.b`, as a later one reads it.
    fn interrupted() -> Saved {
        let mut run = Resume::new(identity("uuid"), &executed(9), None);
        assert!(run.begin(&pair("d.a"), "a1".to_owned(), false, None).is_none());
        run.finished(&TableReport { rows: 7, ..TableReport::new(&pair("d.a")) }.conclude());
        assert!(run.begin(&pair("d.b"), "b1".to_owned(), false, None).is_none());
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
        let mut run = Resume::new(identity("uuid"), &executed(9), Some(&saved));
        let done = run.begin(&pair("d.a"), "a1".to_owned(), false, None).expect("finished before");
        assert!(done.compared_before && done.rows == 7);
        assert!(run.begin(&pair("d.b"), "b1".to_owned(), false, None).is_none());
        let part = run.part().expect("a part");
        assert_eq!((part.after, part.rows, part.suspects.len()), (vec!["5".to_owned()], 5, 1));
        assert_eq!(run.now.progress(), (1, 5), "interrupted again, it continues from there");
        run.finished(&TableReport::new(&pair("d.b")).conclude());
        let both = run.newer().expect("a newer state");
        assert_eq!(both.progress(), (2, 0), "what the earlier run finished is kept");
        assert!(run.newer().is_none(), "nothing has changed since");
    }

    #[test]
    fn a_table_in_the_form_of_another_version_is_compared_again() {
        let mut run = Resume::new(identity("uuid"), &executed(9), Some(&interrupted()));
        assert!(run.begin(&pair("d.c"), "c1".to_owned(), false, None).is_none());
        run.finished(&TableReport::new(&pair("d.c")).conclude());
        let mut whole = serde_json::to_value(run.newer().expect("a newer state")).unwrap();
        assert_eq!(whole["finished"][0]["report"]["table"], "d.a");
        whole["finished"][0]["report"]["outcome"] = "future".into();
        let resumed = |saved: &Value| {
            let saved: Saved = serde_json::from_value(saved.clone()).unwrap();
            let mut run = Resume::new(identity("uuid"), &executed(9), Some(&saved));
            let mut is_done = |name: &str, definition: &str| {
                run.begin(&pair(name), definition.to_owned(), false, None).is_some()
            };
            let done = (is_done("d.a", "a1"), is_done("d.c", "c1"));
            assert!(!is_done("d.b", "b1"));
            (done, run.part().is_some())
        };
        assert_eq!(resumed(&whole), ((false, true), true));
        whole["part"]["after"] = 7.into();
        whole.as_object_mut().unwrap().remove("begun");
        assert_eq!(resumed(&whole), ((false, true), false));
        whole.as_object_mut().unwrap().remove("part");
        assert_eq!(resumed(&whole), ((false, true), false));
        whole.as_object_mut().unwrap().remove("executed");
        assert!(serde_json::from_value::<Saved>(whole).is_err(), "nothing says what it fits to");
    }

    /// Returns the tables in the order in which a later run would compare them.
    fn order(run: &Resume) -> String {
        let mut pairs = ["d.a", "d.b", "d.c", "d.d"].map(pair);
        run.sort(&mut pairs);
        pairs.map(|pair| pair.source.table).concat()
    }

    #[test]
    fn a_table_that_could_not_be_continued_comes_last() {
        let mut run = Resume::new(identity("uuid"), &executed(9), None);
        run.begin(&pair("d.a"), "a1".to_owned(), false, None);
        let mut run = Resume::new(identity("uuid"), &executed(9), Some(&read_again(&mut run)));
        assert_eq!(order(&run), "bcda");
        run.begin(&pair("d.b"), "b1".to_owned(), false, None);
        let mut run = Resume::new(identity("uuid"), &executed(9), Some(&read_again(&mut run)));
        assert_eq!(order(&run), "cdab");
        // It was begun again, and has a part from which it continues.
        run.begin(&pair("d.b"), "b1".to_owned(), false, None);
        let report = TableReport::new(&pair("d.b"));
        run.reached(vec!["5".to_owned()], 5, Vec::new(), &report);
        assert_eq!(order(&run), "bcda", "nothing may take the place of its part");
        run.begin(&pair("d.c"), "c1".to_owned(), false, None);
        let mut unstable = TableReport::new(&pair("d.c"));
        unstable.unstable.push("id=1".to_owned());
        run.finished(&unstable.conclude());
        assert_eq!(order(&run), "bdca");
        run.finished(&TableReport::new(&pair("d.a")));
        assert_eq!(order(&run), "badc");
        assert_eq!(run.now.progress(), (2, 5), "the end of another table leaves the part");
    }

    #[test]
    fn a_table_that_is_always_interrupted_is_left_out_in_the_end() {
        let mut saved = None;
        let mut begin = |most: Option<u32>| {
            let mut run = Resume::new(identity("uuid"), &executed(9), saved.as_ref());
            let found = run.begin(&pair("d.a"), "a1".to_owned(), false, most);
            saved = Some(read_again(&mut run));
            found
        };
        for _ in 0..3 {
            assert!(begin(Some(3)).is_none());
        }
        for _ in 0..2 {
            // A later interruption, in another table, does not begin it again.
            let report = begin(Some(3)).expect("left out");
            assert_eq!(report.outcome, Outcome::Unstable);
            let why = report.left_out.expect("the reason");
            assert_eq!(
                why,
                "interrupted 3 times before it was compared; compare it with csa-daemon verify --channel shop --table d.a"
            );
        }
        assert!(begin(None).is_none(), "without a limit it is begun again");
    }

    #[test]
    fn a_target_that_was_restored_is_compared_again() {
        let saved = interrupted();
        for (now, is_known) in [(9, true), (12, true), (8, false)] {
            let mut run = Resume::new(identity("uuid"), &executed(now), Some(&saved));
            let found = run.begin(&pair("d.a"), "a1".to_owned(), false, None);
            assert_eq!(found.is_some(), is_known, "{now}");
        }
        let mut later = Resume::new(identity("uuid"), &executed(12), Some(&saved));
        later.begin(&pair("d.b"), "b1".to_owned(), false, None);
        let saved = read_again(&mut later);
        let mut run = Resume::new(identity("uuid"), &executed(11), Some(&saved));
        assert!(run.begin(&pair("d.a"), "a1".to_owned(), false, None).is_none());
    }

    #[test]
    fn other_definitions_servers_and_options_begin_anew() {
        let saved = interrupted();
        let mut changed = Resume::new(identity("uuid"), &executed(9), Some(&saved));
        assert!(changed.begin(&pair("d.a"), "a2".to_owned(), false, None).is_none());
        assert!(changed.begin(&pair("d.b"), "b2".to_owned(), false, None).is_none());
        assert!(changed.part().is_none());
        let other = RunIdentity { common_columns: true, ..identity("uuid") };
        let form = RunIdentity { form: FORM, ..identity("uuid") };
        for identity in [identity("other"), other, form] {
            let mut run = Resume::new(identity, &executed(9), Some(&saved));
            assert!(run.begin(&pair("d.a"), "a1".to_owned(), false, None).is_none());
        }
    }

    #[test]
    fn a_definition_that_changes_during_a_comparison_is_the_one_that_counts() {
        // The column that is there with the definition a1 again was never compared.
        let mut run = Resume::new(identity("uuid"), &executed(9), None);
        assert!(run.begin(&pair("d.a"), "a1".to_owned(), false, None).is_none());
        let report = TableReport::new(&pair("d.a"));
        run.reached(vec!["5".to_owned()], 5, Vec::new(), &report);
        run.forget_part(&pair("d.a"));
        assert_eq!(run.now.progress(), (0, 0));
        run.compares("a2".to_owned());
        run.finished(&report.conclude());
        let saved = read_again(&mut run);
        for (definition, is_known) in [("a1", false), ("a2", true)] {
            let mut run = Resume::new(identity("uuid"), &executed(9), Some(&saved));
            let found = run.begin(&pair("d.a"), definition.to_owned(), false, None);
            assert_eq!(found.is_some(), is_known, "{definition}");
        }
        // It changed between the beginning of the table and that of its rows.
        let mut run = Resume::new(identity("uuid"), &executed(9), Some(&interrupted()));
        assert!(run.begin(&pair("d.b"), "b1".to_owned(), false, None).is_none());
        run.compares("b2".to_owned());
        assert!(run.part().is_none());
    }

    #[test]
    fn statements_are_written_for_all_rows_that_differ() {
        use super::super::report::{DifferenceKind, RowDifference};
        let mut run = Resume::new(identity("uuid"), &executed(9), None);
        assert!(run.begin(&pair("d.a"), "a1".to_owned(), true, None).is_none());
        let mut report = TableReport::new(&pair("d.a"));
        let kind = DifferenceKind::MissingOnTarget;
        report.differences.push(RowDifference { key: "id=1".to_owned(), kind });
        run.finished(&report.conclude());
        let saved = read_again(&mut run);
        for (repairs, is_known) in [(false, true), (true, false)] {
            let mut run = Resume::new(identity("uuid"), &executed(9), Some(&saved));
            let found = run.begin(&pair("d.a"), "a1".to_owned(), repairs, None);
            assert_eq!(found.is_some(), is_known);
        }
    }
}
