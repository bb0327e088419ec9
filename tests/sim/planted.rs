//! Bugs planted in the product's own code: a simulation that passes over one of them proves nothing. Each
//! is to be found within the seeds that docs/trust.md names.

use std::sync::atomic::{AtomicUsize, Ordering};

use csa_provider::seams::planted::{Bug, Plant};
use parking_lot::Mutex;

use crate::applying::{Mood, renaming};
use crate::seeds::{Case, fails};
use crate::{applying, chain, receiving};

const TRUST: &str = include_str!("../../docs/trust.md");

/// A bug, the run that finds it, and the seeds within which it has to.
struct Hunt {
    bug: Bug,
    name: &'static str,
    run: fn(Case),
    within: u64,
}

fn calm(case: Case) {
    applying::run(case, Mood::Calm);
}

fn faults(case: Case) {
    applying::run(case, Mood::Faults);
}

fn full(case: Case) {
    applying::run(case, Mood::Full);
}

fn restarts(case: Case) {
    applying::run(case, Mood::Restarts);
}

fn whole(case: Case) {
    chain::run(case);
}

fn copies(case: Case) {
    chain::copies::run(case);
}

fn copies_lagging(case: Case) {
    chain::copies::run_lagging(case);
}

const fn hunt(bug: Bug, name: &'static str, run: fn(Case), within: u64) -> Hunt {
    Hunt { bug, name, run, within }
}

const HUNTS: &[Hunt] = &[
    hunt(Bug::SourceBehindAccepted, "copies, lagging", copies_lagging, 4_000),
    hunt(Bug::CheckpointAfterCommit, "applying, calm", calm, 10),
    hunt(Bug::CommitOutOfTurn, "applying, calm", calm, 50),
    hunt(Bug::CommitUnguarded, "applying", faults, 200),
    hunt(Bug::GtidUseUnproven, "applying, calm", calm, 50),
    hunt(Bug::KeysIgnored, "applying, calm", calm, 10),
    hunt(Bug::LateRowsEarly, "applying, calm", calm, 10),
    hunt(Bug::OtherUniqueKeysIgnored, "applying, calm", calm, 100),
    hunt(Bug::ForeignKeysIgnored, "applying, calm", calm, 10),
    hunt(Bug::LastRowsLeftOut, "applying, calm", calm, 50),
    hunt(Bug::EpochIgnored, "applying", faults, 4_000),
    hunt(Bug::LostAnswerIsFailure, "applying", faults, 200),
    hunt(Bug::LostAnswerRepeatsStatement, "applying", faults, 4_000),
    hunt(Bug::FirstStandsForAll, "applying", faults, 1_000),
    hunt(Bug::LostAnswerEndsXa, "applying", faults, 500),
    hunt(Bug::RefusedLoginIsFailure, "applying", faults, 200),
    hunt(Bug::SessionsKept, "applying, full", full, 50),
    hunt(Bug::RolledBackNotRetried, "applying", faults, 200),
    hunt(Bug::OlderTargetAccepted, "applying", faults, 500),
    hunt(Bug::EarlierLifeAccepted, "applying, restarts", restarts, 8_000),
    hunt(Bug::SyncIgnored, "receiving", receiving::run, 50),
    hunt(Bug::PurgedTooEarly, "receiving", receiving::run, 50),
    hunt(Bug::NeverPurged, "receiving", receiving::run, 50),
    hunt(Bug::TornTailKept, "receiving", receiving::run, 500),
    hunt(Bug::GapAccepted, "receiving", receiving::run, 500),
    hunt(Bug::ReceivedTooEarly, "receiving", receiving::run, 50),
    hunt(Bug::CutTransactionKept, "receiving", receiving::run, 50),
    hunt(Bug::DamageAccepted, "receiving", receiving::run, 50),
    hunt(Bug::UnknownEventLeftOut, "receiving", receiving::run, 50),
    hunt(Bug::OtherHistoryAccepted, "chain", whole, 1_000),
    hunt(Bug::NoServersKnown, "renaming", renaming::run, 200),
    hunt(Bug::BarrierIgnored, "chain", whole, 50),
    hunt(Bug::MarkOverGap, "chain", whole, 200),
    hunt(Bug::MemoryKept, "chain", whole, 50),
    hunt(Bug::MemoryUnlimited, "chain", whole, 200),
    hunt(Bug::SilentHolderKept, "standby", chain::standby::run, 50),
    hunt(Bug::FollowersNotTold, "chain", whole, 500),
    hunt(Bug::LostPartCommitted, "chain", whole, 200),
    hunt(Bug::LagOfReceivedOnly, "chain", whole, 50),
    hunt(Bug::LagOfReadOnly, "chain", whole, 200),
    hunt(Bug::ChangesBeginLate, "copies", copies, 50),
    hunt(Bug::ChangesEndEarly, "copies", copies, 50),
    hunt(Bug::ChunkNotedLater, "copies", copies, 200),
    hunt(Bug::CopyLockIgnored, "copies", copies, 500),
    hunt(Bug::CopyUnlocked, "copies", copies, 200),
    hunt(Bug::ChunkUnlimited, "copies", copies, 50),
    hunt(Bug::CutChunkLast, "copies", copies, 50),
    hunt(Bug::ChangesEndGuessed, "copies", copies, 1_500),
];

/// Hunts that take too long for every change.
const NIGHTLY: &[Hunt] = &[
    hunt(Bug::ConvergingUpdateKept, "copies", copies, 2_000),
    hunt(Bug::ConvergingMerged, "copies", copies, 5_000),
    hunt(Bug::RangeEpochIgnored, "copies", copies, 5_000),
    hunt(Bug::SnapshotInexact, "copies", copies, 5_000),
];

/// Returns the number of seeds from `first` on until one finds the bug.
fn seeds_until_found(hunt: &Hunt, first: u64, limit: u64) -> Option<u64> {
    let _planted = Plant::new(hunt.bug);
    (0..limit).find(|number| fails(Case::of(first + number), hunt.run)).map(|number| number + 1)
}

/// Returns the hunts for the bug of this name.
fn hunts_of(name: &str) -> Vec<&'static Hunt> {
    let is_named = |hunt: &&Hunt| format!("{:?}", hunt.bug) == name.trim();
    let hunts: Vec<_> = HUNTS.iter().chain(NIGHTLY).filter(is_named).collect();
    assert!(!hunts.is_empty(), "there is no bug named {name:?}");
    hunts
}

/// The table has bug, description, run, the seeds that it took, and the seeds within which it has to be found.
#[test]
fn hunts_are_those_of_the_document() {
    for hunt in HUNTS.iter().chain(NIGHTLY) {
        let begin = format!("| `{:?}` |", hunt.bug);
        let is_documented = TRUST.lines().filter(|line| line.starts_with(&begin)).any(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, _, _, run, _, within, _] = cells[..] else { return false };
            // Those of the night say when they run, too.
            run.starts_with(hunt.name) && within.replace(',', "") == hunt.within.to_string()
        });
        assert!(is_documented, "docs/trust.md: {begin} {} | {} |", hunt.name, hunt.within);
    }
}

/// `CSA_SIM_STARTS=N` hunts from N first seeds, and prints how many seeds each hunt took, the fewest first. `CSA_SIM_BUG`
/// names those to hunt, also of the nightly ones, and `CSA_SIM_FIRST` their first seed.
#[test]
#[ignore = "slow"]
fn every_planted_bug_is_found() {
    let only = std::env::var("CSA_SIM_BUG").unwrap_or_default();
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (starts, first) =
        (number("CSA_SIM_STARTS").unwrap_or(1), number("CSA_SIM_FIRST").unwrap_or(0));
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let hunts: Vec<&Hunt> = match only.is_empty() {
        true => HUNTS.iter().collect(),
        false => only.split(',').flat_map(hunts_of).collect(),
    };
    let work = || {
        while let Some(hunt) = hunts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let limit = if starts > 1 { hunt.within * 4 } else { hunt.within };
            let found =
                (0..starts).map(|start| seeds_until_found(hunt, first + start * 10_000, limit));
            let mut found: Vec<_> = found.map(|found| found.unwrap_or(u64::MAX)).collect();
            found.sort_unstable();
            let (bug, run) = (hunt.bug, hunt.name);
            eprintln!("{bug:?}: {run}, seeds {found:?}");
            if found[found.len() / 2] > hunt.within {
                missed.lock().push(format!("{bug:?} by {run} within {} seeds", hunt.within));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner();
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
