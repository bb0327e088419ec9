//! The copy of a channel that is made, or was made last, and its comparison. Pure.

use crate::copy::{CopyProgress, CopyStep};
use crate::observe::view::CopyCheckView;
use crate::verify::Scope;

/// Tables that the status names.
const SHOWN: usize = 5;

#[derive(Debug, Default)]
pub(super) struct CopyWatch {
    progress: Option<CopyProgress>,
    check: Option<CopyCheckView>,
    /// The number of the last comparison: only that one is shown.
    checks: u64,
}

impl CopyWatch {
    pub(super) const fn progress(&self) -> Option<&CopyProgress> {
        self.progress.as_ref()
    }

    pub(super) const fn check(&self) -> Option<&CopyCheckView> {
        self.check.as_ref()
    }

    /// The source is being copied: what was compared before says nothing about it. Of tables that are copied again, and
    /// of others, it stays known that they differ.
    pub(super) fn copying(&mut self, progress: &CopyProgress) {
        self.progress = Some(progress.clone());
        let is_of_all =
            !matches!(progress.step, CopyStep::RowsLeft | CopyStep::Changes | CopyStep::Keys);
        self.check.take_if(|check| is_of_all || !check.is_different());
    }

    /// Returns the next view with what is known to differ: only a comparison that has a result says otherwise.
    fn keeping(&self, next: CopyCheckView) -> CopyCheckView {
        match &self.check {
            Some(CopyCheckView { text, differing, .. }) if !differing.is_empty() => {
                let text = match next.text.as_str() {
                    "" => text.clone(),
                    why => {
                        format!("the copy differs from the source in {}; {why}", shown(differing))
                    }
                };
                CopyCheckView { text, differing: differing.clone(), ..next }
            }
            _ => next,
        }
    }

    /// These tables were copied again, and nothing compares them: it is no longer known of them that they differ.
    pub(super) fn copied_unchecked(&mut self, scope: &Scope) {
        let is_copied = |name: &str| scope.tables.iter().any(|table| table.to_string() == name);
        if let Some(check) = &mut self.check {
            check.differing.retain(|name| !scope.is_everything() && !is_copied(name));
        }
        self.check.take_if(|check| check.differing.is_empty());
        if self.check.is_some() {
            let why = "what was copied since is not compared (copy.verify)".to_owned();
            self.check = Some(self.keeping(outcome("unfinished", why)));
        }
    }

    /// Returns the progress of the copy at its next step.
    pub(super) fn at_step(&self, step: CopyStep) -> CopyProgress {
        CopyProgress { step, ..self.progress.clone().unwrap_or_default() }
    }

    /// Another daemon has the channel, and may copy again: what is known here of the last copy is nobody's concern any
    /// more.
    pub(super) fn given_up(&mut self) {
        self.check = None;
        // A comparison that is still under way has no place for its result.
        self.checks += 1;
    }

    /// A comparison begins, in place of an earlier one; returns its number.
    pub(super) fn check_begins(&mut self) -> u64 {
        self.check = Some(self.keeping(outcome("comparing", String::new())));
        self.checks += 1;
        self.checks
    }

    /// A comparison has a result.
    pub(super) fn check_ends(&mut self, number: u64, check: CopyCheckView) {
        // The task of an earlier one may still be on its way to its end.
        if number == self.checks {
            let is_result = check.outcome != "unfinished";
            self.check = Some(if is_result { check } else { self.keeping(check) });
        }
    }

    /// A comparison was given up if it has no result; returns true in this case.
    pub(super) fn check_given_up(&mut self, number: u64, text: &str) -> bool {
        let is_running = self.check.as_ref().is_some_and(CopyCheckView::is_under_way);
        if number == self.checks && is_running {
            self.check = Some(self.keeping(outcome("unfinished", text.to_owned())));
            return true;
        }
        false
    }
}

/// Names the first of these tables.
pub(super) fn shown(names: &[String]) -> String {
    match names.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{} and {} other tables", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

fn outcome(outcome: &str, text: String) -> CopyCheckView {
    CopyCheckView { outcome: outcome.to_owned(), text, ..CopyCheckView::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome_of(watch: &CopyWatch) -> &str {
        watch.check().map_or("", |check| check.outcome.as_str())
    }

    #[test]
    fn a_comparison_that_is_given_up_is_unfinished_unless_it_has_a_result() {
        let mut watch = CopyWatch::default();
        let number = watch.check_begins();
        assert_eq!(outcome_of(&watch), "comparing");
        assert!(watch.check_given_up(number, "verify"));
        assert_eq!(watch.check(), Some(&outcome("unfinished", "verify".to_owned())));
        assert!(!watch.check_given_up(number, "again"), "it is over");

        let number = watch.check_begins();
        watch.check_ends(number, outcome("equal", String::new()));
        assert!(!watch.check_given_up(number, "verify"));
        assert_eq!(outcome_of(&watch), "equal");
    }

    #[test]
    fn only_the_last_comparison_is_shown() {
        let mut watch = CopyWatch::default();
        let (earlier, last) = (watch.check_begins(), watch.check_begins());
        assert!(!watch.check_given_up(earlier, "verify"));
        watch.check_ends(earlier, outcome("equal", String::new()));
        assert_eq!(outcome_of(&watch), "comparing");
        watch.check_ends(last, outcome("different", String::new()));
        assert_eq!(outcome_of(&watch), "different");
    }

    #[test]
    fn nothing_is_known_of_a_copy_of_a_channel_that_another_daemon_has() {
        let mut watch = CopyWatch::default();
        let number = watch.check_begins();
        watch.given_up();
        assert_eq!(watch.check(), None);
        watch.check_ends(number, outcome("different", String::new()));
        assert!(!watch.check_given_up(number, "verify"));
        assert_eq!(watch.check(), None);
    }

    #[test]
    fn tables_that_differ_stay_known_while_some_are_copied_again() {
        let mut watch = CopyWatch::default();
        let number = watch.check_begins();
        let differing = vec!["d.a".to_owned(), "d.b".to_owned()];
        let different = || outcome("different", "both".to_owned());
        watch.check_ends(number, CopyCheckView { differing: differing.clone(), ..different() });
        let at = |step| CopyProgress { step, ..CopyProgress::default() };
        watch.copying(&at(CopyStep::Changes));
        assert_eq!(outcome_of(&watch), "different");
        let number = watch.check_begins();
        assert_eq!(outcome_of(&watch), "comparing");
        assert!(watch.check_given_up(number, "verify"));
        assert_eq!(outcome_of(&watch), "unfinished");
        let text = "the copy differs from the source in d.a, d.b; verify".to_owned();
        let known = CopyCheckView { differing, ..outcome("unfinished", text) };
        assert_eq!(watch.check(), Some(&known));
        watch.copying(&at(CopyStep::Rows));
        assert_eq!(watch.check(), None, "all is copied");
    }

    #[test]
    fn tables_that_are_copied_without_a_comparison_are_not_known_to_differ() {
        let mut watch = CopyWatch::default();
        let number = watch.check_begins();
        let differing = vec!["d.a".to_owned(), "d.b".to_owned()];
        let different = outcome("different", "both".to_owned());
        watch.check_ends(number, CopyCheckView { differing, ..different });
        let of = |table: &str| Scope {
            tables: vec![table.parse().expect("a name")],
            ..Scope::default()
        };
        watch.copied_unchecked(&of("d.a"));
        let check = watch.check().expect("d.b differs");
        assert_eq!(check.outcome, "unfinished");
        assert_eq!(check.differing, ["d.b".to_owned()]);
        assert!(!check.text.contains("both") && check.text.contains("in d.b;"), "{}", check.text);
        watch.copied_unchecked(&of("d.b"));
        assert_eq!(watch.check(), None);
    }

    #[test]
    fn a_copy_that_begins_is_not_compared_yet() {
        let mut watch = CopyWatch::default();
        let number = watch.check_begins();
        watch.copying(&CopyProgress::default());
        assert!(!watch.check_given_up(number, "verify"));
        assert_eq!(watch.check(), None);
    }
}
