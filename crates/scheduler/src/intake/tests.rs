use super::*;
use crate::admission::{Omission, Verdict};

/// Our clock in these tests.
const NOW: u64 = 1_000_000;
const STATEMENTS: u64 = 7;

fn seen() -> Seen {
    Seen { now: NOW, statements: STATEMENTS, ..Seen::default() }
}

/// Returns a transaction that the source committed this long ago.
fn read(micros_ago: u64) -> Stage {
    let at = NOW - micros_ago;
    Stage::Read(CommitTimes { original: at, immediate: at })
}

const ROOM: Room = Room { footprint: Footprint::streamed(0, 1), whole: false };

/// Returns every stage.
fn stages() -> Vec<Stage> {
    let verdicts = [Verdict::Rows, Verdict::Statement, Verdict::Xa];
    let mut stages = vec![
        Stage::Empty,
        Stage::Drained { reception_over: false },
        Stage::Drained { reception_over: true },
        read(5),
        Stage::Measured(ROOM),
        Stage::Queued(ROOM),
        Stage::Granted(ROOM),
        Stage::Admitted,
    ];
    let after = |verdict| Stage::HandedOver(Barrier::after(&verdict, STATEMENTS));
    stages.extend(verdicts.map(after));
    stages
}

#[test]
fn every_stage_has_its_step() {
    let micros = Duration::from_micros;
    let delayed = Seen { delay: Duration::from_micros(30), ..seen() };
    let until = Until::BeforeTime(3);
    let past = Seen { until: Some(until.clone()), ..delayed.clone() };
    let ahead = Seen { clock_ahead: 20, ..delayed.clone() };
    let known = Seen { known: micros(10), ..delayed.clone() };
    let whole = Room { footprint: Footprint::whole(0, 5, 1), whole: true };
    let after = |verdict, committed| Stage::HandedOver(Barrier::after(&verdict, committed));
    let end = Step::EndAt(until);
    for (what, stage, seen, step) in [
        ("at the start", Stage::Empty, seen(), Step::Read),
        (
            "nothing was left, and the source may send more",
            Stage::Drained { reception_over: false },
            seen(),
            Step::Read,
        ),
        (
            "nothing was left, and nothing will come",
            Stage::Drained { reception_over: true },
            seen(),
            Step::EndWithReception,
        ),
        ("no delay", read(5), seen(), Step::Measure),
        ("not due", read(5), delayed.clone(), Step::HoldBack(micros(25))),
        ("not due by the source's clock", read(5), ahead, Step::HoldBack(micros(5))),
        ("not due, and it was read before", read(5), known, Step::HoldBack(micros(20))),
        ("due", read(30), delayed.clone(), Step::Measure),
        ("no commit time", Stage::Read(CommitTimes::default()), delayed, Step::Measure),
        ("past the end, whether due or not", read(5), past.clone(), end.clone()),
        ("past the end", read(30), past.clone(), end),
        ("room is known", Stage::Measured(whole), seen(), Step::Queue(whole.footprint)),
        ("memory is short", Stage::Queued(whole), seen(), Step::WaitForMemory),
        ("held as a whole", Stage::Granted(whole), seen(), Step::Admit { whole: true }),
        ("streamed", Stage::Granted(ROOM), seen(), Step::Admit { whole: false }),
        (
            "the end moved before it after the memory was granted: groups end there",
            Stage::Granted(ROOM),
            past,
            Step::Admit { whole: false },
        ),
        ("admitted", Stage::Admitted, seen(), Step::HandOver),
        ("rows", after(Verdict::Rows, STATEMENTS), seen(), Step::Read),
        (
            "nothing of it is left",
            after(Verdict::LeftOut(Omission::Nothing), STATEMENTS),
            seen(),
            Step::Read,
        ),
        ("rows that run alone", after(Verdict::NotTransactional, STATEMENTS), seen(), Step::Read),
        ("a statement runs", after(Verdict::Statement, STATEMENTS), seen(), Step::WaitForStatement),
        (
            "it is committed",
            after(Verdict::Statement, STATEMENTS - 1),
            seen(),
            Step::ForgetDefinitions,
        ),
        (
            "a distributed transaction runs",
            after(Verdict::Xa, STATEMENTS),
            seen(),
            Step::WaitForStatement,
        ),
        (
            "it is prepared, and changed no definition",
            after(Verdict::Xa, STATEMENTS - 1),
            seen(),
            Step::Read,
        ),
    ] {
        assert_eq!(next_step(stage, &seen), step, "{what}");
    }
}

#[test]
fn a_stop_ends_every_stage() {
    let stopped = Seen { stopped: true, ..seen() };
    for stage in stages() {
        assert_eq!(next_step(stage, &stopped), Step::Stop, "{stage:?}");
        assert_ne!(next_step(stage, &seen()), Step::Stop, "{stage:?}");
    }
}
