//! The verdict on a row that differed: different, late, or changing all the time.
//!
//! The target is read only after it has passed what the source had executed when the first of the
//! source's values was read. So its value is at least as new as that one, and, in commit order, a
//! value the source had: late rows turn out equal, however large the lag.

use std::collections::HashSet;

use super::ranges::RowKey;

/// A side's value for a key; `None`: no row.
pub(super) type SideValue = Option<String>;

/// Agreeing rounds that prove a difference while the source executes nothing: a commit is visible a
/// moment before its GTID is in `gtid_executed`.
const ROUNDS_QUIET: u32 = 3;
/// The rounds while the source executes something, but the row keeps its value.
const ROUNDS_CALM: u32 = 4;
/// The rounds while the row changes on the source and not on the target.
const ROUNDS_RESTLESS: u32 = 8;
/// After this many rounds, the row is called unstable.
const ROUNDS_MAX: u32 = 24;
/// Distinct values kept of one row in one round.
const VALUES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Equal,
    Different,
    /// It keeps changing.
    Unstable,
    /// Look again.
    Open,
}

/// A difference that lasted, with the values of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Different {
    pub(super) key: RowKey,
    pub(super) source: SideValue,
    pub(super) target: SideValue,
}

/// The source's values of one row, in the order they were read in a round.
#[derive(Debug, Clone, Default)]
pub(super) struct SourceValues {
    values: HashSet<SideValue>,
    last: SideValue,
}

impl SourceValues {
    pub(super) fn add(&mut self, value: SideValue) {
        if self.values.len() < VALUES_MAX && !self.values.contains(&value) {
            self.values.insert(value.clone());
        }
        self.last = value;
    }
}

/// A row under suspicion, over all rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Suspect {
    rounds: u32,
    /// Consecutive rounds that found the same value on the target, and not a value of the source.
    agreeing: u32,
    /// The source's row changed in one of them.
    is_restless: bool,
    before: Option<(SideValue, SideValue)>,
}

impl Suspect {
    /// Counts a round: the source's values from before the mark that the target passed until after
    /// the target was read; `is_quiet`: the source executed nothing in between.
    pub(super) fn round(
        &mut self,
        source: &SourceValues,
        target: SideValue,
        is_quiet: bool,
    ) -> Verdict {
        self.rounds += 1;
        if source.values.contains(&target) {
            return Verdict::Equal;
        }
        let (source_before, target_before) = self.before.take().unzip();
        if target_before.is_some_and(|before| before != target) {
            self.agreeing = 0;
            self.is_restless = false;
        }
        self.agreeing += 1;
        self.is_restless |=
            source.values.len() > 1 || source_before.is_some_and(|before| before != source.last);
        self.before = Some((source.last.clone(), target));
        let needed = match (self.is_restless, is_quiet) {
            (true, _) => ROUNDS_RESTLESS,
            (false, false) => ROUNDS_CALM,
            (false, true) => ROUNDS_QUIET,
        };
        if self.agreeing >= needed {
            Verdict::Different
        } else if self.rounds >= ROUNDS_MAX {
            Verdict::Unstable
        } else {
            Verdict::Open
        }
    }

    /// Returns the last values of source and target.
    pub(super) fn values(&self) -> (Option<&str>, Option<&str>) {
        match &self.before {
            Some((source, target)) => (source.as_deref(), target.as_deref()),
            None => (None, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(values: &[&str]) -> SourceValues {
        let mut seen = SourceValues::default();
        for value in values {
            seen.add(value_of(value));
        }
        seen
    }

    /// "-" is a missing row.
    fn value_of(text: &str) -> SideValue {
        (text != "-").then(|| text.to_owned())
    }

    /// Returns the verdict of each round.
    fn verdicts(rounds: &[(&[&str], &str, bool)]) -> Vec<Verdict> {
        let mut suspect = Suspect::default();
        let round = |(source, target, quiet): &(&[&str], &str, bool)| {
            suspect.round(&seen(source), value_of(target), *quiet)
        };
        rounds.iter().map(round).collect()
    }

    #[test]
    fn a_late_row_is_equal_once_the_target_has_it() {
        let late = verdicts(&[(&["a", "a"], "-", false), (&["a", "a"], "a", false)]);
        assert_eq!(late, [Verdict::Open, Verdict::Equal]);
        let deleted = verdicts(&[(&["-", "-"], "-", true)]);
        assert_eq!(deleted, [Verdict::Equal]);
    }

    #[test]
    fn a_row_that_passes_through_the_targets_value_is_equal() {
        assert_eq!(verdicts(&[(&["1", "2", "3"], "2", false)]), [Verdict::Equal]);
    }

    #[test]
    fn a_lasting_difference_takes_more_rounds_the_more_is_under_way() {
        let rounds = |round: (&[&str], &str, bool)| {
            let verdicts = verdicts(&[round; 30]);
            let last = verdicts.iter().position(|&verdict| verdict != Verdict::Open);
            (last.map(|at| at + 1), last.map(|at| verdicts[at]))
        };
        assert_eq!(rounds((&["a"], "b", true)), (Some(3), Some(Verdict::Different)));
        assert_eq!(rounds((&["a"], "-", false)), (Some(4), Some(Verdict::Different)));
        assert_eq!(rounds((&["a", "b"], "c", false)), (Some(8), Some(Verdict::Different)));
    }

    #[test]
    fn one_odd_round_proves_nothing() {
        // A commit that was visible before its GTID.
        let mut rounds: Vec<(&[&str], &str, bool)> = vec![(&["a"], "b", true)];
        rounds.push((&["a"], "a", true));
        assert_eq!(verdicts(&rounds), [Verdict::Open, Verdict::Equal]);
    }

    #[test]
    fn a_row_that_changes_on_both_sides_without_ever_meeting_is_unstable() {
        let mut suspect = Suspect::default();
        let mut verdict = Verdict::Open;
        let mut rounds = 0;
        while verdict == Verdict::Open {
            rounds += 1;
            let source = seen(&[&format!("s{rounds}")]);
            verdict = suspect.round(&source, Some(format!("t{rounds}")), false);
        }
        assert_eq!((verdict, rounds), (Verdict::Unstable, ROUNDS_MAX));
    }
}
