use csa_scheduler::sequence::Sequence;

use super::*;
use crate::checkpoint::Checkpoint;

const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

fn set(text: &str) -> GtidSet {
    text.replace("A:", &format!("{A}:")).replace("B:", &format!("{B}:")).parse().expect("a set")
}

/// Returns the row for readers, and whether the channel committed out of order.
fn record((executed, out_of_order): (&str, bool)) -> ChannelRecord {
    let checkpoint = Checkpoint { sequence: Sequence::new(7), executed: set(executed), epoch: 1 };
    ChannelRecord {
        channel: "c".to_owned(),
        checkpoint: Some(checkpoint),
        follows_target: true,
        out_of_order,
        ..ChannelRecord::default()
    }
}

#[derive(Clone, Copy)]
struct Case {
    record: Option<(&'static str, bool)>,
    target: &'static str,
    in_order: bool,
    /// The relay store has some holes, and transactions after others that are executed.
    found: &'static str,
    passed: Option<&'static str>,
}

impl Case {
    fn judge(self) -> (String, Result<Option<String>, String>) {
        let record = self.record.map(record);
        let of = HolesBelow {
            channel: "c",
            address: "target:3306",
            start: &StartFrom::Target,
            record: record.as_ref(),
            target: &set(self.target),
            source: &set("A:1-100,B:1-100"),
            in_order: self.in_order,
        };
        let holes = of.holes();
        let later = format!("{A}:9").parse().expect("a GTID");
        let passed = self.passed.map(|passed| (set(passed), later));
        let received = Received { found: set(self.found), passed };
        let outcome = of.judge(&holes, &received);
        (holes.to_string().replace(A, "A").replace(B, "B"), outcome)
    }
}

const CRASHED: Case = Case {
    record: Some(("A:1-5", false)),
    target: "A:1-5:7-9",
    in_order: true,
    found: "A:6",
    passed: Some("A:6"),
};

#[test]
fn a_hole_that_a_channel_in_order_can_not_have_left_is_refused() {
    let (holes, outcome) = CRASHED.judge();
    assert_eq!(holes, "A:6");
    let why = outcome.expect_err("refused");
    for part in [
        format!("lacks {A}:6 and has executed {A}:9"),
        format!("SET GLOBAL gtid_purged='+{A}:6'"),
        "WHERE channel='c' AND worker=65535".to_owned(),
    ] {
        assert!(why.contains(&part), "{part:?} is missing in {why}");
    }
}

#[test]
fn holes_that_may_be_legitimate_are_filled_with_a_warning() {
    for case in [
        Case { in_order: false, ..CRASHED },
        // It changes to order with this start.
        Case { record: Some(("A:1-5", true)), ..CRASHED },
        // A replica had the target before.
        Case { record: None, ..CRASHED },
        // Nothing shows in which order they came.
        Case { found: "", passed: None, ..CRASHED },
    ] {
        let (_, outcome) = case.judge();
        let warning = outcome.expect("filled").expect("a warning");
        assert!(warning.contains(&format!("lacks {A}:6 ")), "{warning}");
    }
}

#[test]
fn what_the_source_committed_later_is_no_hole() {
    for (record, target, expected) in [
        (Some(("A:1-5", false)), "A:1-9", ""),
        // A block of numbers that is used up later, known from the row for readers.
        (Some(("A:1-5:50-60", false)), "A:1-5:50-62", ""),
        // The set of the row for readers was looked at when it was written.
        (Some(("A:1-5:7-9", false)), "A:1-5:7-9", ""),
        // The relay store has them after those that are there.
        (Some(("A:1-5", false)), "A:1-5:7-9", "A:6"),
        (Some(("A:1-5", false)), "A:1-5,B:7", "B:1-6"),
    ] {
        let case = Case { record, target, found: "A:6,B:1-6", passed: None, ..CRASHED };
        assert_eq!(case.judge(), (expected.to_owned(), Ok(None)), "{target}");
    }
}

#[test]
fn a_first_start_has_what_it_states() {
    for (start, expected) in [
        (StartFrom::Target, format!("{A}:3")),
        (StartFrom::Executed(set("A:1-3")), String::new()),
        (StartFrom::Source, String::new()),
    ] {
        let of = HolesBelow {
            channel: "c",
            address: "target:3306",
            start: &start,
            record: None,
            target: &set("A:1-2:4"),
            source: &set("A:1-9"),
            in_order: true,
        };
        assert_eq!(of.holes().to_string(), expected, "{start:?}");
    }
}
