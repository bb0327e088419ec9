//! The next comparison: its time, its tables, and the reasons against it. Pure.

use std::time::Duration;

use csa_provider::seams::unhurried;

use super::kept::Kept;
use crate::config::VerifyEvery;
use crate::observe::view::{ChannelState, ChannelView, CopyCheckView};
use crate::verify::delayed;

/// Time between two looks at tables that differ.
const AGAIN: Duration = Duration::from_secs(600);
/// Seconds of lag with which a round begins, and at which one is interrupted.
const LAG_MIN: f64 = 10.0;
pub(super) const LAG_MAX: f64 = 60.0;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextRound {
    /// Compare these tables now; all if there are none.
    Round(Vec<String>),
    /// Nothing before this time, in microseconds since the epoch.
    At(u64),
}

/// Returns what is due.
pub(super) fn next(kept: &Kept, every: Duration, now: u64) -> NextRound {
    if let Some(round) = &kept.round {
        return NextRound::Round(round.tables.clone());
    }
    let Some(last) = &kept.last else { return NextRound::Round(Vec::new()) };
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let all = last.begun_at.saturating_add(micros(every));
    // The clock was set back.
    if now >= all || now < last.begun_at {
        return NextRound::Round(Vec::new());
    }
    if last.differing.is_empty() {
        return NextRound::At(all);
    }
    let again = last.checked_at.saturating_add(micros(unhurried(AGAIN)));
    // The clock may also have been set back to a time within the round.
    match now >= again || now < last.checked_at {
        true => NextRound::Round(last.differing.iter().map(|table| table.table.clone()).collect()),
        false => NextRound::At(all.min(again)),
    }
}

/// Returns true while the first copy of a channel is made. A table that is copied again has the last steps only.
pub(super) fn is_replaced(view: &ChannelView) -> bool {
    view.copy
        .as_ref()
        .is_some_and(|copy| !["rows_left", "changes", "keys"].contains(&copy.step.as_str()))
}

/// Returns true while another daemon has the channel. In a fleet that is not decided yet while this one joins.
pub(super) fn is_elsewhere(view: &ChannelView) -> bool {
    view.state == ChannelState::Standby && !view.is_joining
}

/// Returns the reason why nothing is compared now; `has_begun`: a round is under way.
pub(super) fn refusal(
    view: &ChannelView,
    rule: &VerifyEvery,
    now: u64,
    has_begun: bool,
) -> Option<String> {
    if !rule.is_open(now) {
        return Some("it is outside verify.window".to_owned());
    }
    if view.copy.is_some() {
        return Some("a copy is made".to_owned());
    }
    if view.copy_check.as_ref().is_some_and(CopyCheckView::is_under_way) {
        return Some("a copy is compared".to_owned());
    }
    if let Some(why) = delayed(view.applier.desired_delay) {
        return Some(why);
    }
    if !matches!(view.state, ChannelState::Running | ChannelState::WaitingForDelay) {
        return Some(format!("the channel is {}", view.state.name().replace('_', " ")));
    }
    if view.throttle_by.as_ref().is_some_and(|health| health.rate.is_some()) {
        return Some("the channel is throttled for the health of the target".to_owned());
    }
    let most = if has_begun { LAG_MAX } else { LAG_MIN };
    match view.lag_seconds {
        Some(lag) if lag <= most => None,
        Some(lag) => Some(format!("the target lags by {lag:.0} s")),
        None => Some("the lag is not known".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::KeptRound;
    use super::super::result::LastRound;
    use super::*;
    use crate::observe::view::{ApplierView, CopyView, DifferingTableView};

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_round_is_due_after_its_time_and_tables_that_differ_before() {
        let all = || NextRound::Round(Vec::new());
        let mut kept = Kept::default();
        assert_eq!(next(&kept, DAY, 5), all());
        let last =
            LastRound { begun_at: 100 * SECOND, checked_at: 200 * SECOND, ..LastRound::default() };
        kept.last = Some(last.clone());
        let due = (100 + 24 * 3600) * SECOND;
        assert_eq!(next(&kept, DAY, 200 * SECOND), NextRound::At(due));
        assert_eq!(next(&kept, DAY, due), all());
        assert_eq!(next(&kept, DAY, SECOND), all(), "the clock was set back");
        let differing = DifferingTableView { table: "d.t".to_owned(), ..Default::default() };
        kept.last = Some(LastRound { differing: vec![differing], ..last });
        assert_eq!(next(&kept, DAY, 300 * SECOND), NextRound::At(800 * SECOND));
        assert_eq!(next(&kept, DAY, 800 * SECOND), NextRound::Round(vec!["d.t".to_owned()]));
        let again = || NextRound::Round(vec!["d.t".to_owned()]);
        assert_eq!(
            next(&kept, DAY, 199 * SECOND),
            again(),
            "the clock was set back after the check"
        );
        assert_eq!(next(&kept, DAY, due), all());
        kept.round = Some(KeptRound::new(1, &["d.t".to_owned()], None));
        assert_eq!(next(&kept, DAY, due), NextRound::Round(vec!["d.t".to_owned()]), "it continues");
    }

    #[test]
    fn only_a_copy_of_everything_replaces_what_was_compared() {
        let at = |step: &str| {
            let copy = Some(CopyView { step: step.to_owned(), ..CopyView::default() });
            is_replaced(&ChannelView { copy, ..ChannelView::default() })
        };
        assert!(at("snapshot") && at("rows"));
        assert!(
            !at("rows_left")
                && !at("changes")
                && !at("keys")
                && !is_replaced(&ChannelView::default())
        );
    }

    #[test]
    fn nothing_is_compared_in_the_way_of_the_channel() {
        let rule = VerifyEvery::default();
        let running = ChannelView {
            state: ChannelState::Running,
            lag_seconds: Some(0.0),
            ..ChannelView::default()
        };
        let refused = |view: &ChannelView, has_begun| refusal(view, &rule, 0, has_begun);
        assert_eq!(refused(&running, false), None);
        let lags = ChannelView { lag_seconds: Some(30.0), ..running.clone() };
        assert!(refused(&lags, false).is_some() && refused(&lags, true).is_none());
        for view in [
            ChannelView { lag_seconds: Some(90.0), ..running.clone() },
            ChannelView { lag_seconds: None, ..running.clone() },
            ChannelView { state: ChannelState::Paused, ..running.clone() },
            ChannelView { copy: Some(CopyView::default()), ..running.clone() },
        ] {
            assert!(refused(&view, true).is_some(), "{view:?}");
        }
        let delayed = |desired_delay| ChannelView {
            state: ChannelState::WaitingForDelay,
            applier: ApplierView { desired_delay, ..ApplierView::default() },
            ..running.clone()
        };
        assert_eq!(refused(&delayed(5.0), false), None);
        let why = "source_delay is 3600 s, and the daemon compares with 5 s at most";
        assert_eq!(refused(&delayed(3600.0), false).as_deref(), Some(why));
    }

    #[test]
    fn a_round_waits_for_the_comparison_of_a_copy_until_that_is_over() {
        let refused = |outcome: &str| {
            let check = CopyCheckView { outcome: outcome.to_owned(), ..CopyCheckView::default() };
            let view = ChannelView {
                state: ChannelState::Running,
                lag_seconds: Some(0.0),
                copy_check: Some(check),
                ..ChannelView::default()
            };
            refusal(&view, &VerifyEvery::default(), 0, false)
        };
        assert_eq!(refused("comparing").as_deref(), Some("a copy is compared"));
        assert_eq!(refused("unfinished"), None);
        assert_eq!(refused("different"), None);
    }
}
