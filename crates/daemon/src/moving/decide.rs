//! Decides the next step of a move, from the journal and from what the servers say. Pure.

use std::time::Duration;

use super::journal::{Direction, Journal, MovePhase, ServerLife, Step};

/// Seconds by which two readings of a server's start may differ: each is right, or a second late. See [`life_at`].
const ROUNDING: u64 = 1;

/// Whom a server lets write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerAccess {
    /// Applications.
    Open,
    /// Channels alone.
    Following,
    /// Nobody.
    Closed,
}

/// A server as it is now; `None` for one that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MoveFacts {
    /// The server that the applications leave.
    pub(crate) from: Option<ServerAccess>,
    /// The server that they move to.
    pub(crate) to: Option<ServerAccess>,
    /// The latter has not restarted since the move began, so what it was opened for is still open.
    pub(crate) is_same_life: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing has been touched: look whether everything is ready, then fence.
    Begin,
    Continue(Step),
    /// Open the old server again.
    Undo(String),
    /// A server does not answer, and has to.
    Ask,
    /// The applications are there already.
    Nothing,
    /// The move that this command has seen is over: no other one is begun.
    Ended,
    /// Somebody has to act first.
    Refuse(Refusal),
}

/// The reason why a move does not continue, and what may help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) why: String,
    /// The access that an operator may give the old server and the new one. How depends on the fence.
    pub(crate) by_hand: [Option<ServerAccess>; 2],
}

impl Refusal {
    fn new(why: &str, by_hand: [Option<ServerAccess>; 2]) -> Self {
        Self { why: why.to_owned(), by_hand }
    }
}

/// Returns true once a move has lasted for its limit, by the time of day (microseconds since the epoch) or by what this
/// process has counted. The time of day may have been set back.
pub(crate) fn is_over(begun_at: u64, now: u64, counted: Duration, limit: Duration) -> bool {
    let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
    now >= begun_at.saturating_add(micros) || counted >= limit
}

/// Returns a server's life by its uptime, which it has said between two readings of its clock. A server counts both from its
/// start, in whole seconds, so what lies between them is the error of that start. `None` where that is too much.
pub(crate) fn life_at(before: i64, uptime: u64, after: i64) -> Option<ServerLife> {
    let start = after.saturating_sub_unsigned(uptime);
    let is_one_moment = before <= after && before.abs_diff(after) <= ROUNDING;
    is_one_moment.then_some(ServerLife { uptime, start })
}

/// Returns true if a server has not restarted since the move of this journal began `lived` seconds ago. All have to say
/// so: the time of day may have been set back here, and set forward on the server after it was started again.
pub(crate) fn has_not_restarted(life: ServerLife, journal: &Journal, lived: u64) -> bool {
    let ServerLife { uptime, start } = life;
    // A second of doubt counts as a restart.
    uptime > lived.saturating_add(1)
        && journal.uptime.is_none_or(|noted| uptime >= noted)
        && journal.start.is_none_or(|noted| noted.abs_diff(start) <= ROUNDING)
}

/// Decides. What the servers say counts more than the journal. `was_begun`: this command has begun a move, or has seen
/// one that had begun.
pub(crate) fn decide(
    journal: Option<&Journal>,
    direction: Direction,
    facts: MoveFacts,
    is_late: bool,
    was_begun: bool,
) -> Next {
    let unfinished = journal.filter(|journal| journal.is_unfinished());
    let Some(journal) = unfinished else {
        return match without_move(facts) {
            Next::Begin if was_begun => Next::Ended,
            next => next,
        };
    };
    if journal.direction != direction {
        let why = journal.to_be_ended().unwrap_or_default();
        return Next::Refuse(Refusal::new(&why, [None, None]));
    }
    if journal.was_opened() {
        return forward(journal, facts);
    }
    match (facts.from, facts.to) {
        (_, Some(ServerAccess::Open)) if journal.step == Step::Open => Next::Continue(Step::Open),
        (_, Some(ServerAccess::Open)) => Next::Refuse(Refusal::new(
            "the new server takes writes, and this move has not opened it; close it, see what was \
             written there, and run the command again",
            [None, Some(ServerAccess::Following)],
        )),
        // It may have taken writes before it restarted.
        (from, Some(_)) if journal.step == Step::Open && !facts.is_same_life => match from {
            None => Next::Ask,
            Some(ServerAccess::Open) => went_back(),
            Some(_) => Next::Continue(Step::Open),
        },
        // It may be open.
        (_, None) if journal.step == Step::Open => Next::Ask,
        _ if journal.phase == MovePhase::Undoing => Next::Undo(journal.why.clone()),
        _ if is_late => Next::Undo("the time limit has passed".to_owned()),
        (None, _) | (_, None) => Next::Ask,
        // A fence that was lost, or was not yet there.
        (Some(ServerAccess::Open | ServerAccess::Following), _) => Next::Continue(Step::Fence),
        (Some(ServerAccess::Closed), _) => {
            // Cheap to do again, and nothing is taken on trust.
            Next::Continue(Step::Wait)
        }
    }
}

fn without_move(facts: MoveFacts) -> Next {
    match (facts.from, facts.to) {
        (None, _) | (_, None) => Next::Ask,
        (Some(ServerAccess::Open), Some(ServerAccess::Open)) => Next::Refuse(Refusal::new(
            "both servers take writes; close the one that no application uses, or let --prepare do it",
            [Some(ServerAccess::Following); 2],
        )),
        (Some(ServerAccess::Open), Some(_)) => Next::Begin,
        (Some(_), Some(ServerAccess::Open)) => Next::Nothing,
        (Some(_), Some(_)) => Next::Refuse(Refusal::new(
            "neither server takes writes, and no move was begun; open the one that the applications use",
            [Some(ServerAccess::Open); 2],
        )),
    }
}

/// After the new server was opened, the only way is forward.
fn forward(journal: &Journal, facts: MoveFacts) -> Next {
    match (facts.from, facts.to) {
        (_, None) => return Next::Ask,
        (_, Some(ServerAccess::Open)) => {}
        // It is opened again below, so the old one must not take writes.
        (None, Some(_)) => return Next::Ask,
        (Some(ServerAccess::Open), Some(_)) => return went_back(),
        // It has restarted with an option file that closes it, and is opened first.
        (Some(_), Some(_)) => {}
    }
    // After the last step only the note is missing that the move has ended.
    let step = if journal.is_done { journal.step.next() } else { None };
    Next::Continue(step.unwrap_or(journal.step))
}

/// The journal alone does not open a server beside one that takes writes: it may be old.
fn went_back() -> Next {
    Next::Refuse(Refusal::new(
        "the journal says that the new server was opened, but the old one takes writes now, and the new \
         one takes none; give the move up with --undo, or close the old one and run the command again",
        [Some(ServerAccess::Closed), None],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(from: ServerAccess, to: ServerAccess) -> MoveFacts {
        MoveFacts { from: Some(from), to: Some(to), is_same_life: true }
    }

    fn at(step: Step, is_done: bool) -> Journal {
        Journal { step, is_done, ..Journal::new(Direction::CutOver, 7, 0, "h") }
    }

    fn next(journal: &Journal, facts: MoveFacts, is_late: bool) -> Next {
        decide(Some(journal), Direction::CutOver, facts, is_late, false)
    }

    use ServerAccess::{Closed, Following, Open};

    #[test]
    fn a_move_begins_only_where_one_server_is_in_use() {
        let begin = |from, to| decide(None, Direction::CutOver, facts(from, to), false, false);
        assert_eq!(begin(Open, Following), Next::Begin);
        assert_eq!(begin(Open, Closed), Next::Begin);
        assert_eq!(begin(Following, Open), Next::Nothing);
        let refused = |from, to, by_hand| match begin(from, to) {
            Next::Refuse(refusal) => assert_eq!(refusal.by_hand, by_hand),
            next => panic!("{next:?}"),
        };
        refused(Open, Open, [Some(Following); 2]);
        refused(Closed, Following, [Some(Open); 2]);
        let away = MoveFacts { from: None, ..facts(Open, Open) };
        assert_eq!(decide(None, Direction::Back, away, false, false), Next::Ask);
        // One that has ended is no move any more.
        for phase in [MovePhase::Prepared, MovePhase::Undone, MovePhase::Moved] {
            let ended = Journal { phase, ..at(Step::Follow, true) };
            assert_eq!(next(&ended, facts(Open, Following), true), Next::Begin);
        }
    }

    #[test]
    fn a_move_that_is_given_up_is_not_begun_again() {
        let of = |journal: Option<&Journal>, facts| {
            decide(journal, Direction::CutOver, facts, false, true)
        };
        for phase in [MovePhase::Undone, MovePhase::Moved] {
            let ended = Journal { phase, ..at(Step::Wait, false) };
            assert_eq!(of(Some(&ended), facts(Open, Following)), Next::Ended);
            // Somebody else has finished it.
            assert_eq!(of(Some(&ended), facts(Following, Open)), Next::Nothing);
        }
        assert_eq!(of(None, facts(Open, Following)), Next::Ended);
        let lasts = at(Step::Wait, false);
        assert_eq!(of(Some(&lasts), facts(Closed, Following)), Next::Continue(Step::Wait));
    }

    #[test]
    fn a_kill_before_the_new_server_is_opened_loses_nothing() {
        for step in [Step::Fence, Step::Wait, Step::Compare, Step::Open] {
            let is_done_too = [false, step == Step::Fence];
            for is_done in is_done_too {
                let journal = at(step, is_done);
                // While the fence is there, everything is looked at again.
                let there = facts(Closed, Following);
                assert_eq!(next(&journal, there, false), Next::Continue(Step::Wait));
                // The fence was lost, or the server was killed before it took effect.
                let lost = facts(Open, Following);
                assert_eq!(next(&journal, lost, false), Next::Continue(Step::Fence));
                // Late: the old server is opened again, whatever it is now.
                for from in [Some(Open), Some(Closed), None] {
                    let late = MoveFacts { from, ..there };
                    assert!(matches!(next(&journal, late, true), Next::Undo(_)), "{step:?}");
                }
                for away in [MoveFacts { from: None, ..there }, MoveFacts { to: None, ..there }] {
                    assert_eq!(next(&journal, away, false), Next::Ask);
                }
                // It can't say whether it was opened.
                let away = next(&journal, MoveFacts { to: None, ..there }, true);
                assert_eq!(away == Next::Ask, step == Step::Open, "{step:?}");
            }
        }
    }

    #[test]
    fn nothing_is_undone_once_the_new_server_may_have_taken_writes() {
        // The effect is there, the journal does not have it yet.
        assert_eq!(
            next(&at(Step::Open, false), facts(Closed, Open), true),
            Next::Continue(Step::Open)
        );
        // It may have been there before a restart.
        let again = MoveFacts { is_same_life: false, ..facts(Closed, Following) };
        assert_eq!(next(&at(Step::Open, false), again, true), Next::Continue(Step::Open));
        // In the same life it was not.
        assert!(matches!(
            next(&at(Step::Open, false), facts(Closed, Following), true),
            Next::Undo(_)
        ));
        for from in [Some(Closed), Some(Following), Some(Open), None] {
            let of = |to| MoveFacts { from, to: Some(to), is_same_life: true };
            let is = |step, is_done| next(&at(step, is_done), of(Open), true);
            assert_eq!(is(Step::Open, true), Next::Continue(Step::HandOver));
            assert_eq!(is(Step::HandOver, false), Next::Continue(Step::HandOver));
            assert_eq!(is(Step::HandOver, true), Next::Continue(Step::Follow));
            assert_eq!(is(Step::Follow, false), Next::Continue(Step::Follow));
            assert_eq!(is(Step::Follow, true), Next::Continue(Step::Follow));
            // An option file has closed it again, or somebody has gone back by hand.
            for to in [Following, Closed] {
                let opens = |journal: &Journal, facts| match (from, next(journal, facts, true)) {
                    (Some(Open), Next::Refuse(refusal)) => {
                        assert!(refusal.why.contains("--undo"), "{refusal:?}");
                        assert_eq!(refusal.by_hand, [Some(Closed), None]);
                    }
                    (None, next) => assert_eq!(next, Next::Ask),
                    (from, next) => {
                        assert_eq!(next, Next::Continue(journal.step));
                        assert!(matches!(from, Some(Closed | Following)), "{from:?}");
                    }
                };
                opens(&at(Step::HandOver, false), of(to));
                opens(&at(Step::Follow, false), of(to));
                // It may have been open before it restarted.
                opens(&at(Step::Open, false), MoveFacts { is_same_life: false, ..of(to) });
            }
        }
        let away = MoveFacts { to: None, ..facts(Closed, Open) };
        assert_eq!(next(&at(Step::HandOver, false), away, true), Next::Ask);
    }

    #[test]
    fn an_undo_ends_as_an_undo() {
        let undoing =
            Journal { phase: MovePhase::Undoing, why: "late".to_owned(), ..at(Step::Wait, false) };
        for from in [Closed, Open] {
            let undo = next(&undoing, facts(from, Following), false);
            assert_eq!(undo, Next::Undo("late".to_owned()));
        }
        // Somebody has opened the new server by hand: no server is opened beside it.
        for step in [Step::Fence, Step::Wait, Step::Compare] {
            for phase in [MovePhase::Moving, MovePhase::Undoing] {
                let journal = Journal { phase, ..at(step, false) };
                for late in [false, true] {
                    let refused = next(&journal, facts(Closed, Open), late);
                    let by_hand = [None, Some(Following)];
                    assert!(matches!(refused, Next::Refuse(refusal) if refusal.by_hand == by_hand));
                }
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_prolongs_no_move_and_hides_no_restart() {
        let (begun_at, limit) = (7_200_000_000, Duration::from_secs(5));
        let is_over = |now, counted| is_over(begun_at, now, Duration::from_secs(counted), limit);
        assert!(!is_over(begun_at + 4_999_999, 4));
        // Another process has begun the move.
        assert!(is_over(begun_at + 5_000_000, 0));
        // An hour back.
        assert!(!is_over(begun_at - 3_600_000_000, 4));
        assert!(is_over(begun_at - 3_600_000_000, 5));
        let has_not_restarted = |uptime, noted, lived| {
            let journal = Journal { uptime: noted, ..at(Step::Open, false) };
            has_not_restarted(ServerLife { uptime, start: 5_000 }, &journal, lived)
        };
        // The server was up for 100 s at the begin.
        assert!(has_not_restarted(105, Some(100), 5));
        assert!(!has_not_restarted(3, Some(100), 5));
        assert!(!has_not_restarted(150, Some(100), 3600));
        // An hour back: 0 s seem to have passed.
        assert!(has_not_restarted(105, Some(100), 0));
        assert!(!has_not_restarted(60, Some(100), 0));
        assert!(has_not_restarted(105, None, 5));
    }

    #[test]
    fn a_clock_that_is_set_forward_after_a_restart_does_not_hide_it() {
        let start = 1_790_000_000;
        let journal = Journal { uptime: Some(100), start: Some(start), ..at(Step::Open, false) };
        let is_same_life =
            |uptime, start| has_not_restarted(ServerLife { uptime, start }, &journal, 60);
        assert!(is_same_life(160, start));
        // One of them was read a second late.
        assert!(is_same_life(160, start + 1) && is_same_life(161, start - 1));
        assert!(!is_same_life(160, start + 2) && !is_same_life(161, start - 2));
        // It was started an hour in the past by a clock that was slow, which was set right after it.
        assert!(!is_same_life(3_620, start - 3_460));
        // The server's clock was set forward, and it has not restarted.
        assert!(is_same_life(3_760, start));
        // An earlier version has noted no start.
        let earlier = Journal { start: None, ..journal.clone() };
        assert!(has_not_restarted(ServerLife { uptime: 160, start: 7 }, &earlier, 60));
    }

    #[test]
    fn a_start_is_read_from_one_moment_or_not_at_all() {
        let start = |before, uptime, after| life_at(before, uptime, after).map(|life| life.start);
        assert_eq!(start(5_100, 100, 5_100), Some(5_000));
        // The uptime is of either second.
        assert_eq!((start(5_099, 99, 5_100), start(5_099, 100, 5_100)), (Some(5_001), Some(5_000)));
        assert_eq!(start(5_097, 97, 5_100), None, "an answer took three seconds");
        assert_eq!(start(5_100, 100, 5_099), None, "the clock was set back");
    }

    #[test]
    fn the_other_direction_waits_for_its_end() {
        let journal = at(Step::Wait, false);
        let back = decide(Some(&journal), Direction::Back, facts(Closed, Following), false, true);
        assert!(matches!(back, Next::Refuse(refusal) if refusal.why.contains("--cut-over")));
    }
}
