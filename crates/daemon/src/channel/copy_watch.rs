//! The copy of a channel that is made, or was made last, and its comparison. Pure.

use crate::copy::{CopyProgress, CopyStep};
use crate::observe::view::CopyCheckView;

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

    /// The source is being copied: what was compared before says nothing about it.
    pub(super) fn copying(&mut self, progress: &CopyProgress) {
        self.progress = Some(progress.clone());
        self.check = None;
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
        self.check = Some(outcome("comparing", String::new()));
        self.checks += 1;
        self.checks
    }

    /// A comparison has a result.
    pub(super) fn check_ends(&mut self, number: u64, check: CopyCheckView) {
        // The task of an earlier one may still be on its way to its end.
        if number == self.checks {
            self.check = Some(check);
        }
    }

    /// A comparison was given up if it has no result; returns true in this case.
    pub(super) fn check_given_up(&mut self, number: u64, text: &str) -> bool {
        let is_running = self.check.as_ref().is_some_and(CopyCheckView::is_under_way);
        if number == self.checks && is_running {
            self.check = Some(outcome("unfinished", text.to_owned()));
            return true;
        }
        false
    }
}

fn outcome(outcome: &str, text: String) -> CopyCheckView {
    CopyCheckView { outcome: outcome.to_owned(), text, ..CopyCheckView::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(watch: &CopyWatch) -> &str {
        watch.check().map_or("", |check| check.outcome.as_str())
    }

    #[test]
    fn a_comparison_that_is_given_up_is_unfinished_unless_it_has_a_result() {
        let mut watch = CopyWatch::default();
        let number = watch.check_begins();
        assert_eq!(shown(&watch), "comparing");
        assert!(watch.check_given_up(number, "verify"));
        assert_eq!(watch.check(), Some(&outcome("unfinished", "verify".to_owned())));
        assert!(!watch.check_given_up(number, "again"), "it is over");

        let number = watch.check_begins();
        watch.check_ends(number, outcome("equal", String::new()));
        assert!(!watch.check_given_up(number, "verify"));
        assert_eq!(shown(&watch), "equal");
    }

    #[test]
    fn only_the_last_comparison_is_shown() {
        let mut watch = CopyWatch::default();
        let (earlier, last) = (watch.check_begins(), watch.check_begins());
        assert!(!watch.check_given_up(earlier, "verify"));
        watch.check_ends(earlier, outcome("equal", String::new()));
        assert_eq!(shown(&watch), "comparing");
        watch.check_ends(last, outcome("different", String::new()));
        assert_eq!(shown(&watch), "different");
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
    fn a_copy_that_begins_is_not_compared_yet() {
        let mut watch = CopyWatch::default();
        let number = watch.check_begins();
        watch.copying(&CopyProgress::default());
        assert!(!watch.check_given_up(number, "verify"));
        assert_eq!(watch.check(), None);
    }
}
