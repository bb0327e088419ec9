//! Finds the events of a channel in the views of it, one after the other. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::state::{RECOVERED_AFTER, SentState};
use crate::config::EventKind;
use crate::host::counted;
use crate::observe::view::{ChannelState, ChannelView};

/// Changes of state that are sent in a time of `quiet`.
const CHANGES_MAX: usize = 4;

/// The times of `[channel.notify]` on which events depend.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) after: Duration,
    pub(super) quiet: Duration,
}

/// Something to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// `None`: nobody needs to know, but the state is another one.
    pub(super) kind: Option<EventKind>,
    /// The state that the receiver knows then; `None` for an event that is no change of the state.
    pub(super) standing: Option<SentState>,
    /// Replaces the detail of the state.
    pub(super) detail: Option<String>,
    pub(super) changes: u64,
}

/// A wait that ended. If it continues after a moment, it has not ended: a link that breaks as soon as it is up would
/// otherwise never have been down for long.
#[derive(Debug)]
struct BrokenOff {
    wait: SentState,
    since: Instant,
    ended: Instant,
}

/// The state of one channel as its receiver knows it, and as it was seen.
#[derive(Debug)]
pub(super) struct Tracker {
    /// The state that was sent last, or needed no event.
    known: Option<SentState>,
    seen: Option<(SentState, Instant)>,
    /// The wait that was seen last, if the channel is well since then.
    broken_off: Option<BrokenOff>,
    /// Changes since the last event.
    changes: u64,
    sent: VecDeque<Instant>,
    copy: CopyTracker,
    verify: VerifyTracker,
    archive: ArchiveTracker,
}

impl Tracker {
    /// Continues after the state that an earlier process has delivered last.
    pub(super) fn new(known: Option<SentState>) -> Self {
        Self {
            known,
            seen: None,
            broken_off: None,
            changes: 0,
            sent: VecDeque::new(),
            copy: CopyTracker::default(),
            verify: VerifyTracker::default(),
            archive: ArchiveTracker::default(),
        }
    }

    /// Takes the view of this moment.
    pub(super) fn take(&mut self, now: Instant, view: &ChannelView, rules: Rules) -> Vec<Change> {
        let (of_copy, of_verify) = (self.copy.take(view), self.verify.take(view));
        let others = of_copy.into_iter().chain(of_verify).chain(self.archive.take(view));
        self.state(now, view, rules).into_iter().chain(others).collect()
    }

    fn state(&mut self, now: Instant, view: &ChannelView, rules: Rules) -> Option<Change> {
        let standing = SentState::of(view)?;
        let since = self.since(now, &standing);
        if self.known.as_ref() == Some(&standing) {
            return None;
        }
        let lasts = standing.lasts(self.known.as_ref(), rules.after);
        let is_old = |sent: &Instant| now.saturating_duration_since(*sent) >= rules.quiet;
        while self.sent.front().is_some_and(is_old) {
            self.sent.pop_front();
        }
        let is_due = now.saturating_duration_since(since) >= lasts;
        if !is_due || self.sent.len() >= CHANGES_MAX {
            return None;
        }
        let kind = standing.event_after(self.known.as_ref());
        if kind.is_some() {
            self.sent.push_back(now);
        }
        self.known = Some(standing.clone());
        let changes = std::mem::take(&mut self.changes);
        Some(Change { kind, standing: Some(standing), detail: None, changes })
    }

    /// Returns the time at which the state began.
    fn since(&mut self, now: Instant, standing: &SentState) -> Instant {
        if let Some((seen, since)) = &self.seen
            && seen == standing
        {
            return *since;
        }
        self.changes += 1;
        let continues = |broken_off: &BrokenOff| {
            broken_off.wait == *standing
                && now.saturating_duration_since(broken_off.ended) < RECOVERED_AFTER
        };
        let since = self.broken_off.take().filter(continues).map_or(now, |wait| wait.since);
        if let Some((wait @ SentState::Waiting(_), since)) =
            self.seen.replace((standing.clone(), since))
            && *standing == SentState::Well
        {
            self.broken_off = Some(BrokenOff { wait, since, ended: now });
        }
        since
    }
}

/// The copy with which the channel begins, and its comparison.
#[derive(Debug, Default)]
struct CopyTracker {
    /// A copy was seen that has not ended.
    is_made: bool,
    /// Views in a row without it.
    gone: u32,
    /// The outcome of the comparison that was seen last.
    outcome: String,
}

/// A pipeline that begins shows no copy for a moment.
const GONE: u32 = 3;

impl CopyTracker {
    fn take(&mut self, view: &ChannelView) -> Option<Change> {
        if view.copy.is_some() {
            (self.is_made, self.gone) = (true, 0);
            return None;
        }
        let check = view.copy_check.as_ref();
        let outcome = check.map(|check| check.outcome.as_str()).unwrap_or_default();
        let is_news = outcome != self.outcome;
        outcome.clone_into(&mut self.outcome);
        let of = |kind, detail: &str| Change {
            kind: Some(kind),
            standing: None,
            detail: Some(detail.to_owned()),
            changes: 1,
        };
        let text = check.map(|check| check.text.as_str()).unwrap_or_default();
        if is_news && outcome == "different" {
            self.is_made = false;
            return Some(of(EventKind::CopyDiffers, text));
        }
        let is_applied = self.is_made && view.state == ChannelState::Running;
        self.gone = if is_applied { self.gone + 1 } else { 0 };
        if self.gone < GONE || outcome == "comparing" {
            return None;
        }
        (self.is_made, self.gone) = (false, 0);
        let text = if text.is_empty() { "the target is a copy of the source" } else { text };
        Some(of(EventKind::CopyFinished, text))
    }
}

/// The comparisons that the channel makes on its own.
#[derive(Debug, Default)]
struct VerifyTracker {
    /// Tables that differed when the daemon was seen first, or were sent; `None` before the first result.
    known: Option<BTreeSet<String>>,
    is_seen: bool,
}

impl VerifyTracker {
    fn take(&mut self, view: &ChannelView) -> Option<Change> {
        // Nothing is known here of a channel that another daemon has.
        let verify = view.verify.as_ref().filter(|_| view.state != ChannelState::Standby)?;
        let is_first = !std::mem::replace(&mut self.is_seen, true);
        let last = verify.last.as_ref()?;
        let differing: BTreeSet<String> =
            last.differing.iter().map(|table| table.table.clone()).collect();
        let known = self.known.replace(differing.clone());
        // An earlier process has sent it.
        if is_first {
            return None;
        }
        let known = known.unwrap_or_default();
        let kind = match (differing.is_subset(&known), differing.is_empty(), known.is_empty()) {
            (false, ..) => EventKind::VerifyDiffers,
            (true, true, false) => EventKind::VerifyEqual,
            _ => return None,
        };
        let detail = Some(last.text.clone());
        Some(Change { kind: Some(kind), standing: None, detail, changes: 1 })
    }
}

/// The gaps of the archive.
#[derive(Debug, Default)]
struct ArchiveTracker {
    /// Missing transactions that were sent.
    known: u64,
}

impl ArchiveTracker {
    fn take(&mut self, view: &ChannelView) -> Option<Change> {
        let missing = view.archive.as_ref()?.missing_transactions_total;
        let more = missing.saturating_sub(std::mem::replace(&mut self.known, missing));
        let detail = || {
            let more = counted(more, "transaction");
            format!("{more} left the relay store before they were archived: make a new backup")
        };
        let change = || Change {
            kind: Some(EventKind::ArchiveGap),
            standing: None,
            detail: Some(detail()),
            changes: 1,
        };
        (more > 0).then(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::{
        ArchiveView, CopyCheckView, CopyView, DifferingTableView, ErrorView, VerifyResultView,
        VerifyView,
    };

    const RULES: Rules = Rules { after: Duration::from_secs(30), quiet: Duration::from_secs(300) };

    fn view(state: ChannelState) -> ChannelView {
        ChannelView { state, ..ChannelView::default() }
    }

    fn failed(number: u16, message: &str) -> ChannelView {
        let message = message.to_owned();
        let error = ErrorView { number, message, ..ErrorView::default() };
        ChannelView { last_error: Some(error), ..view(ChannelState::Failed) }
    }

    struct Run {
        start: Instant,
        tracker: Tracker,
    }

    impl Run {
        fn new(known: Option<SentState>) -> Self {
            Self { start: Instant::now(), tracker: Tracker::new(known) }
        }

        /// Returns the events at a second.
        fn at(&mut self, second: u64, view: &ChannelView) -> Vec<(&'static str, u64)> {
            let now = self.start + Duration::from_secs(second);
            let changes = self.tracker.take(now, view, RULES);
            let named = changes
                .into_iter()
                .filter_map(|change| Some((change.kind?.name(), change.changes)));
            named.collect()
        }
    }

    const RUNNING: ChannelState = ChannelState::Running;

    #[test]
    fn each_gap_of_the_archive_is_sent_once() {
        let mut run = Run::new(None);
        let archived = |missing_transactions_total| ChannelView {
            archive: Some(ArchiveView { missing_transactions_total, ..ArchiveView::default() }),
            ..view(RUNNING)
        };
        assert_eq!(run.at(0, &archived(0)), []);
        assert_eq!(run.at(1, &archived(7)), [("archive_gap", 1)]);
        assert_eq!(run.at(2, &archived(7)), []);
        assert_eq!(run.at(3, &archived(8)), [("archive_gap", 1)]);
    }

    #[test]
    fn a_failure_is_sent_at_once_and_its_end_when_it_lasts() {
        let mut run = Run::new(None);
        assert_eq!(run.at(0, &view(ChannelState::Starting)), []);
        assert_eq!(run.at(1, &view(RUNNING)), []);
        assert_eq!(run.at(2, &failed(1062, "a")), [("failed", 1)]);
        assert_eq!(run.at(3, &failed(1062, "a")), []);
        // The daemon tries again without success: session numbers in the message are no news.
        assert_eq!(run.at(60, &view(ChannelState::Starting)), []);
        assert_eq!(run.at(61, &view(RUNNING)), []);
        assert_eq!(run.at(62, &failed(1062, "b")), []);
        assert_eq!(
            run.at(63, &failed(1032, "b")),
            [("failed", 3)],
            "another error is another event"
        );
        assert_eq!(run.at(70, &view(RUNNING)), []);
        assert_eq!(run.at(73, &view(RUNNING)), [("recovered", 1)]);
    }

    #[test]
    fn a_wait_is_sent_when_it_lasts() {
        let mut run = Run::new(None);
        run.at(0, &view(RUNNING));
        let wait = view(ChannelState::WaitingForLock);
        assert_eq!(run.at(10, &wait), []);
        assert_eq!(run.at(39, &wait), []);
        assert_eq!(run.at(40, &wait), [("waiting_for_lock", 1)]);
        assert_eq!(run.at(41, &view(ChannelState::WaitingForDelay)), []);
        assert_eq!(run.at(45, &view(ChannelState::WaitingForDelay)), [("recovered", 1)]);
        assert_eq!(run.at(50, &view(ChannelState::WaitingForSpace)), []);
        assert_eq!(run.at(51, &view(RUNNING)), [], "it did not last");
    }

    #[test]
    fn a_wait_that_ends_for_a_moment_again_and_again_lasts() {
        let (wait, runs) = (view(ChannelState::WaitingForSource), view(RUNNING));
        let sent = |well: u64| {
            let mut run = Run::new(None);
            run.at(0, &view(RUNNING));
            let mut sent = Vec::new();
            for second in 1..60 {
                let is_well = second % (well + 4) < well;
                sent.extend(run.at(second, if is_well { &runs } else { &wait }));
            }
            sent
        };
        let named: Vec<&str> = sent(2).iter().map(|(name, _)| *name).collect();
        assert_eq!(named, ["waiting_for_source"]);
        assert_eq!(sent(5), [], "it was well in between");
    }

    #[test]
    fn another_wait_after_a_moment_begins_then() {
        let mut run = Run::new(None);
        run.at(0, &view(RUNNING));
        run.at(10, &view(ChannelState::WaitingForSource));
        run.at(30, &view(RUNNING));
        let wait = view(ChannelState::WaitingForTarget);
        assert_eq!(run.at(31, &wait), []);
        assert_eq!(run.at(60, &wait), []);
        assert_eq!(run.at(61, &wait), [("waiting_for_target", 3)]);
    }

    #[test]
    fn what_people_and_other_daemons_do_is_sent() {
        let mut run = Run::new(None);
        assert_eq!(run.at(0, &view(ChannelState::Standby)), [], "it begins so");
        assert_eq!(run.at(9, &view(RUNNING)), [("took_over", 1)]);
        assert_eq!(run.at(10, &view(ChannelState::Paused)), [("paused", 1)]);
        assert_eq!(run.at(20, &view(RUNNING)), [("resumed", 1)]);
        assert_eq!(run.at(400, &view(ChannelState::Stopped)), [("stopped", 1)]);
        assert_eq!(run.at(402, &view(RUNNING)), [("resumed", 1)]);
        assert_eq!(run.at(500, &view(ChannelState::Standby)), []);
        assert_eq!(run.at(530, &view(ChannelState::Standby)), [("standby", 1)]);
    }

    #[test]
    fn a_daemon_of_a_fleet_that_starts_sends_nothing() {
        let joining = ChannelView { is_joining: true, ..view(ChannelState::Standby) };
        for known in [None, Some(SentState::Well)] {
            let mut run = Run::new(known);
            for second in 0..60 {
                assert_eq!(run.at(second, &joining), [], "the engine does not answer");
            }
            assert_eq!(run.at(60, &view(ChannelState::Starting)), []);
            assert_eq!(run.at(61, &view(RUNNING)), []);
        }
        // The claim of its earlier process is another daemon's for a moment.
        let mut run = Run::new(Some(SentState::Well));
        assert_eq!(run.at(0, &joining), []);
        assert_eq!(run.at(1, &view(ChannelState::Standby)), []);
        assert_eq!(run.at(3, &view(RUNNING)), []);
    }

    #[test]
    fn a_state_that_flaps_is_sent_a_few_times_and_its_end_always() {
        let mut run = Run::new(None);
        run.at(0, &view(RUNNING));
        let mut sent = Vec::new();
        for second in 1..200 {
            let state = if (second / 5) % 2 == 0 { RUNNING } else { ChannelState::Paused };
            sent.extend(run.at(second, &view(state)));
        }
        assert_eq!(sent.len(), CHANGES_MAX, "{sent:?}");
        let mut last = Vec::new();
        for second in 200..600 {
            last.extend(run.at(second, &failed(1062, "a")));
        }
        assert_eq!(last.len(), 1, "{last:?}");
        assert!(last[0].0 == "failed" && last[0].1 > 30, "{last:?}");
    }

    #[test]
    fn a_restart_of_the_daemon_repeats_nothing_and_misses_no_end() {
        let mut run = Run::new(Some(SentState::Failed("1062 ".to_owned())));
        assert_eq!(run.at(0, &failed(1062, "a")), []);
        let mut run = Run::new(Some(SentState::Failed("1062 ".to_owned())));
        run.at(0, &view(ChannelState::Starting));
        run.at(1, &view(RUNNING));
        assert_eq!(run.at(9, &view(RUNNING)), [("recovered", 1)]);
        let mut run = Run::new(Some(SentState::Well));
        assert_eq!(run.at(0, &failed(1062, "a")), [("failed", 1)]);
    }

    #[test]
    fn the_end_of_a_state_that_can_not_be_read_is_sent() {
        let unreadable = || Run::new(Some(SentState::Unreadable));
        let mut run = unreadable();
        assert_eq!(run.at(0, &view(ChannelState::Starting)), []);
        assert_eq!(run.at(1, &view(RUNNING)), []);
        assert_eq!(run.at(4, &view(RUNNING)), [("recovered", 1)]);
        assert_eq!(run.at(9, &view(RUNNING)), [], "it is sent once");
        let mut run = unreadable();
        assert_eq!(run.at(0, &failed(1062, "a")), [("failed", 1)]);
        assert_eq!(run.at(1, &view(RUNNING)), []);
        assert_eq!(run.at(4, &view(RUNNING)), [("recovered", 1)]);
        let mut run = Run::new(None);
        run.at(1, &view(RUNNING));
        assert_eq!(run.at(9, &view(RUNNING)), [], "nothing was sent");
    }

    #[test]
    fn a_copy_is_finished_once_it_is_compared() {
        let check = |outcome: &str| ChannelView {
            copy_check: Some(CopyCheckView {
                outcome: outcome.to_owned(),
                ..CopyCheckView::default()
            }),
            ..view(RUNNING)
        };
        let copying =
            ChannelView { copy: Some(CopyView::default()), ..view(ChannelState::Starting) };
        let mut run = Run::new(None);
        assert_eq!(run.at(0, &copying), []);
        // A moment between two steps.
        assert_eq!(run.at(1, &view(RUNNING)), []);
        assert_eq!(run.at(2, &copying), []);
        for second in 3..9 {
            assert_eq!(run.at(second, &check("comparing")), []);
        }
        assert_eq!(run.at(9, &check("equal")), [("copy_finished", 1)]);
        assert_eq!(run.at(10, &check("equal")), []);
        // Another copy, which is wrong.
        assert_eq!(run.at(11, &copying), []);
        assert_eq!(run.at(12, &check("comparing")), []);
        assert_eq!(run.at(13, &check("different")), [("copy_differs", 1)]);
        for second in 14..20 {
            assert_eq!(run.at(second, &check("different")), []);
        }
        // Without a comparison.
        assert_eq!(run.at(20, &copying), []);
        let mut sent = Vec::new();
        for second in 21..30 {
            sent.extend(run.at(second, &view(RUNNING)));
        }
        assert_eq!(sent, [("copy_finished", 1)]);
    }

    #[test]
    fn tables_that_begin_and_end_to_differ_are_sent() {
        let found = |tables: Option<&[&str]>| {
            let table = |name: &&str| DifferingTableView {
                table: (*name).to_owned(),
                ..DifferingTableView::default()
            };
            let last = tables.map(|tables| VerifyResultView {
                differing: tables.iter().map(table).collect(),
                ..VerifyResultView::default()
            });
            ChannelView {
                verify: Some(VerifyView { last, ..VerifyView::default() }),
                ..view(RUNNING)
            }
        };
        let mut run = Run::new(None);
        assert_eq!(run.at(0, &found(None)), []);
        assert_eq!(run.at(1, &found(Some(&["d.a"]))), [("verify_differs", 1)]);
        assert_eq!(run.at(2, &found(Some(&["d.a"]))), []);
        assert_eq!(run.at(3, &found(Some(&["d.a", "d.b"]))), [("verify_differs", 1)]);
        assert_eq!(run.at(4, &found(Some(&["d.b"]))), []);
        assert_eq!(run.at(5, &found(Some(&[]))), [("verify_equal", 1)]);
        // A daemon that starts does not repeat it, and neither does one that takes the channel over.
        let mut run = Run::new(None);
        let elsewhere = ChannelView { state: ChannelState::Standby, ..found(None) };
        assert_eq!(run.at(0, &elsewhere), []);
        assert_eq!(run.at(0, &found(Some(&["d.a"]))), [("took_over", 1)]);
        assert_eq!(run.at(1, &found(Some(&[]))), [("verify_equal", 1)]);
    }
}
