//! The state of comparisons on disk: the last result, and the round that is under way. It holds values of keys.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::{debug, warn};

use super::result::{LastRound, differing};
use crate::host::now_micros;
use crate::host::replaced_file::replace;
use crate::observe::view::DifferingTableView;
use crate::verify::{Outcome, STATE_FILE, Saved, TableReport, VerifyReport};

const FILE: &str = "verify-rounds.json";
/// An older state was compared too long ago.
const OLDEST_MICROS: u64 = 7 * 24 * 3_600_000_000;

/// A round that has begun.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KeptRound {
    /// Microseconds since the epoch.
    pub(super) begun_at: u64,
    pub(super) saved_at: u64,
    /// Empty for all.
    pub(super) tables: Vec<String>,
    pub(super) saved: Option<Saved>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Kept {
    pub(super) last: Option<LastRound>,
    pub(super) round: Option<KeptRound>,
    /// The file has been read or written.
    #[serde(skip)]
    pub(super) is_on_disk: bool,
}

/// Removes everything that comparisons of the channel in `directory` have found: the target is another copy now. A
/// daemon that runs notices it.
pub(crate) fn forget_comparisons(directory: &Path) {
    for file in [STATE_FILE, FILE] {
        drop(fs::remove_file(directory.join(file)));
    }
}

/// Returns true if there is no file: where there was one, a command has made another copy.
pub(super) fn is_removed(directory: &Path) -> bool {
    matches!(directory.join(FILE).try_exists(), Ok(false))
}

impl KeptRound {
    pub(super) fn new(begun_at: u64, tables: &[String], saved: Option<Saved>) -> Self {
        Self { begun_at, saved_at: now_micros(), tables: tables.to_vec(), saved }
    }
}

impl Kept {
    /// Returns nothing where there is no file, or one that can't be read: then a round begins.
    pub(super) fn read(directory: &Path) -> Self {
        let path = directory.join(FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            text => text.map_err(|error| error.to_string()),
        };
        let file = text.and_then(|text| {
            serde_json::from_slice(&text).map_err(|error: serde_json::Error| error.to_string())
        });
        let mut kept = match file {
            Ok(file) => Self::of_parts(&path, file),
            Err(error) => {
                let path = path.display();
                warn!(%path, %error, "the state of comparisons can't be read: all tables are compared again");
                return Self::default();
            }
        };
        let now = now_micros();
        // One of the future was saved before the clock was set back, at an unknown time.
        let is_fresh = |saved_at| now.checked_sub(saved_at).is_some_and(|age| age <= OLDEST_MICROS);
        kept.round.take_if(|round| !is_fresh(round.saved_at));
        kept
    }

    /// Reads each part on its own: one in the form of another version costs no other. The last result keeps an alert
    /// firing, and what a round has compared is the part whose form changes most.
    fn of_parts(path: &Path, mut file: Value) -> Self {
        let mut take = |place| file.pointer_mut(place).map(Value::take).unwrap_or_default();
        let saved = take("/round/saved");
        let mut round: Option<KeptRound> = part(path, "the round under way", take("/round"));
        if let Some(round) = &mut round {
            round.saved = part(path, "what the round under way has compared", saved);
        }
        Self { last: part(path, "the last result", take("/last")), round, is_on_disk: true }
    }

    /// Replaces the file as a whole; a crash leaves the old one or the new one. Nothing is kept once it is gone.
    pub(super) fn write(&mut self, directory: &Path) {
        if self.is_on_disk && is_removed(directory) {
            *self = Self::default();
            return;
        }
        let path = directory.join(FILE);
        let written = serde_json::to_vec(&*self).map_err(io::Error::from);
        match written.and_then(|text| replace(&path, &text)) {
            Ok(()) => self.is_on_disk = true,
            Err(error) => {
                let path = path.display();
                debug!(%path, %error, "the state of the comparison is not kept");
            }
        }
    }

    /// Takes the result of a round of all tables, or of some of them.
    pub(super) fn finish(
        &mut self,
        channel: &str,
        report: &VerifyReport,
        tables: &[String],
        begun_at: u64,
    ) {
        self.round = None;
        let now = now_micros();
        let found = differing(channel, report);
        let undecided = self.undecided(report);
        let last = self.last.take().filter(|_| !tables.is_empty());
        let mut last = last.unwrap_or_else(|| LastRound {
            begun_at,
            finished_at: now,
            outcome: name_of(report.outcome()).to_owned(),
            tables: report.tables.len() as u64,
            rows: report.tables.iter().map(|table: &TableReport| table.rows).sum(),
            ..LastRound::default()
        });
        last.checked_at = now;
        last.differing.retain(|known| !tables.contains(&known.table));
        last.differing.extend(found);
        last.differing.extend(undecided);
        if !last.differing.is_empty() {
            last.outcome = name_of(Outcome::Different).to_owned();
        } else if last.outcome == name_of(Outcome::Different) {
            last.outcome = name_of(report.outcome()).to_owned();
        }
        self.last = Some(last);
    }

    /// Returns the tables that differed before, and whose rows changed too often to be compared now.
    fn undecided(&self, report: &VerifyReport) -> Vec<DifferingTableView> {
        let unstable = report.tables.iter().filter(|table| table.outcome == Outcome::Unstable);
        let unstable: BTreeSet<String> = unstable.map(|table| table.table.to_string()).collect();
        let known = self.last.iter().flat_map(|last| &last.differing);
        known.filter(|known| unstable.contains(&known.table)).cloned().collect()
    }
}

/// Reads a part of the file. Returns `None` where it is absent or can't be read.
fn part<T: DeserializeOwned>(path: &Path, part: &str, value: Value) -> Option<T> {
    serde_json::from_value(value).unwrap_or_else(|error| {
        let path = path.display();
        warn!(%path, part, %error, "a part of the state of comparisons can't be read and is left out");
        None
    })
}

fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Equal => "equal",
        Outcome::Unstable => "unstable",
        Outcome::Different => "different",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tables: &[(&str, &str)]) -> VerifyReport {
        let table = |(name, outcome): &(&str, &str)| -> TableReport {
            let row = serde_json::json!({ "key": "id=5", "kind": "missing_on_target" });
            let differences = if *outcome == "different" { vec![row] } else { Vec::new() };
            serde_json::from_value(serde_json::json!({
                "table": name, "target": name, "outcome": outcome, "rows": 10, "definition": [],
                "differences": differences, "unstable": [], "left_out": null, "range_column": "id",
            }))
            .expect("a report")
        };
        let tables = tables.iter().map(table).collect();
        VerifyReport { channel: "c".to_owned(), tables, ..VerifyReport::default() }
    }

    #[test]
    fn a_look_at_some_tables_clears_those_alone() {
        let mut kept = Kept::default();
        let found = report(&[("d.a", "different"), ("d.b", "different"), ("d.c", "equal")]);
        kept.finish("c", &found, &[], 1);
        let last = kept.last.clone().expect("a result");
        assert_eq!((last.tables, last.rows, last.differing.len()), (3, 30, 2));
        assert_eq!(
            last.differing[0].command.as_deref(),
            Some("csa-daemon copy --channel c --table d.a --range 5..5")
        );
        assert!(last.view("c").text.contains("d.a (1 row"), "{}", last.view("c").text);
        let some = ["d.a".to_owned(), "d.b".to_owned()];
        kept.finish("c", &report(&[("d.a", "equal"), ("d.b", "different")]), &some, 2);
        let last = kept.last.clone().expect("a result");
        assert_eq!((last.begun_at, last.tables, last.outcome.as_str()), (1, 3, "different"));
        assert_eq!(last.differing.len(), 1);
        // It was dropped on both servers.
        let one = ["d.b".to_owned()];
        kept.finish("c", &report(&[("d.b", "unstable")]), &one, 3);
        let last = kept.last.clone().expect("a result");
        assert_eq!((last.differing.len(), last.outcome.as_str()), (1, "different"), "not decided");
        kept.finish("c", &report(&[("d.b", "unstable"), ("d.c", "unstable")]), &[], 3);
        assert_eq!(kept.last.as_ref().map(|last| last.differing.len()), Some(1), "of all tables");
        kept.finish("c", &report(&[]), &one, 3);
        assert_eq!(kept.last.as_ref().map(|last| last.outcome.as_str()), Some("equal"));
        assert!(kept.last.expect("a result").view("c").text.contains("equal"));
    }

    #[test]
    fn what_is_written_is_read_unless_it_is_old() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Kept::read(folder.path()).last.is_none());
        let mut kept = Kept::default();
        kept.finish("c", &report(&[("d.a", "equal")]), &[], 1);
        kept.round = Some(KeptRound::new(7, &[], None));
        kept.write(folder.path());
        let read = Kept::read(folder.path());
        assert_eq!((&read.last, read.round.map(|round| round.begun_at)), (&kept.last, Some(7)));
        for saved_at in [1, now_micros() + 3_600_000_000] {
            kept.round = Some(KeptRound { saved_at, ..KeptRound::new(7, &[], None) });
            kept.write(folder.path());
            assert!(Kept::read(folder.path()).round.is_none(), "{saved_at}");
        }
        for damaged in ["[", "[]", "", "7", "{\"last\":7,\"round\":[]}"] {
            fs::write(folder.path().join(FILE), damaged).expect("written");
            let read = Kept::read(folder.path());
            assert!(read.last.is_none() && read.round.is_none(), "{damaged}");
        }
    }

    #[test]
    fn nothing_is_kept_of_a_target_that_was_copied_since() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::default();
        kept.finish("c", &report(&[("d.a", "equal")]), &[], 1);
        assert!(!kept.is_on_disk && is_removed(folder.path()));
        kept.write(folder.path());
        for mut kept in [kept, Kept::read(folder.path())] {
            kept.write(folder.path());
            assert!(kept.is_on_disk && !is_removed(folder.path()));
            forget_comparisons(folder.path());
            assert!(is_removed(folder.path()));
            kept.write(folder.path());
            assert!(kept.last.is_none() && !kept.is_on_disk && is_removed(folder.path()));
            // The next comparison.
            kept.finish("c", &report(&[("d.a", "equal")]), &[], 1);
            kept.write(folder.path());
            assert!(Kept::read(folder.path()).last.is_some());
        }
    }

    #[test]
    fn a_part_of_another_version_costs_no_other_part() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept::default();
        kept.finish("c", &report(&[("d.a", "different")]), &[], 1);
        let tables = ["d.b".to_owned()];
        kept.round = Some(KeptRound::new(7, &tables, Some(Saved::default())));
        let whole = serde_json::to_value(&kept).expect("JSON");
        // A field that this version needs, and the parts that are left without it.
        for (field, keeps) in [
            ("/round/saved/executed", (true, true, false)),
            ("/round/saved", (true, true, false)),
            ("/round/begun_at", (true, false, false)),
            ("/round", (true, false, false)),
            ("/last/outcome", (false, true, true)),
            ("/last", (false, true, true)),
        ] {
            let mut other = whole.clone();
            *other.pointer_mut(field).expect("a field") = serde_json::json!({ "form": 2 });
            fs::write(folder.path().join(FILE), other.to_string()).expect("written");
            let Kept { last, round, .. } = Kept::read(folder.path());
            let saved = round.as_ref().is_some_and(|round| round.saved.is_some());
            assert_eq!((last.is_some(), round.is_some(), saved), keeps, "{field}");
            assert!(last.is_none_or(|last| last.differing.len() == 1), "{field}");
            assert!(round.is_none_or(|round| round.tables == tables), "{field}");
        }
        // A table without the fields for people still differs.
        let mut other = whole;
        let differing = other.pointer_mut("/last/differing").expect("a list");
        *differing = serde_json::json!([{ "table": "d.a", "of_another_version": 1 }]);
        fs::write(folder.path().join(FILE), other.to_string()).expect("written");
        let last = Kept::read(folder.path()).last.expect("a result");
        assert_eq!(last.differing.first().map(|table| table.table.as_str()), Some("d.a"));
    }
}
