use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;

use proptest::prelude::*;

use super::Side;
use super::ranges::{Digest, KeyRange, LIST_ROWS, RangeDigest, RangeStep, Ranges, RowKey};

/// A table of numbers with a version each.
type RowsByKey = BTreeMap<u32, u32>;

#[derive(Debug, Default)]
struct Walk {
    suspects: BTreeSet<u32>,
    unstable: Vec<KeyRange>,
    steps: usize,
    rows_listed: usize,
}

fn within<'a>(rows: &'a RowsByKey, range: &KeyRange) -> impl Iterator<Item = (&'a u32, &'a u32)> {
    let number = |key: &RowKey| key[0].parse::<u32>().expect("a number");
    let after = range.after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(number(key)));
    let through =
        range.through.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(number(key)));
    rows.range((after, through))
}

fn key(number: u32) -> RowKey {
    vec![number.to_string()]
}

fn digest(rows: &RowsByKey, range: &KeyRange) -> RangeDigest {
    let mut hasher = DefaultHasher::new();
    let mut count = 0;
    for row in within(rows, range) {
        row.hash(&mut hasher);
        count += 1;
    }
    RangeDigest { rows: count, digest: hasher.finish().to_string() }
}

fn listed(rows: &RowsByKey, range: &KeyRange) -> Vec<(RowKey, Digest)> {
    let some = within(rows, range).take(LIST_ROWS as usize + 1);
    some.map(|(number, version)| (key(*number), version.to_string())).collect()
}

/// Answers every step from two tables, which `change` may alter before each; ends after `limit`.
fn walk(
    mut source: RowsByKey,
    mut target: RowsByKey,
    chunk_rows: u64,
    limit: usize,
    mut change: impl FnMut(usize, &mut RowsByKey, &mut RowsByKey),
) -> Walk {
    let mut ranges = Ranges::default();
    let mut walk = Walk::default();
    loop {
        assert!(walk.steps < limit, "no end in sight: {ranges:?}");
        change(walk.steps, &mut source, &mut target);
        walk.steps += 1;
        match ranges.step(chunk_rows) {
            RangeStep::Boundary { after, rows } => {
                let rest = KeyRange { after, through: None };
                let found = within(&source, &rest).nth(rows as usize - 1);
                ranges.boundary(found.map(|(number, _)| key(*number)));
            }
            RangeStep::Digests(range) => {
                ranges.digests(&digest(&source, &range), &digest(&target, &range));
            }
            RangeStep::Middle { range, side, place } => {
                let rows = if side == Side::Source { &source } else { &target };
                let found = within(rows, &range).nth(place as usize);
                ranges.middle(found.map(|(number, _)| key(*number)));
            }
            RangeStep::Rows(range) => {
                let (left, right) = (listed(&source, &range), listed(&target, &range));
                walk.rows_listed += left.len().max(right.len());
                ranges.rows(left, right);
            }
            RangeStep::Done => break,
        }
        let suspects = ranges.take_suspects();
        walk.suspects.extend(suspects.iter().map(|key| key[0].parse::<u32>().expect("a number")));
        walk.unstable.extend(ranges.take_unstable());
    }
    walk
}

fn table(numbers: impl IntoIterator<Item = u32>) -> RowsByKey {
    numbers.into_iter().map(|number| (number, 0)).collect()
}

fn quiet(_: usize, _: &mut RowsByKey, _: &mut RowsByKey) {}

#[test]
fn equal_tables_cost_two_steps_a_chunk() {
    let rows = table(0..10_000);
    let walk = walk(rows.clone(), rows, 1000, 1000, quiet);
    assert!(walk.suspects.is_empty());
    // The last boundary is the end of the table; its range is compared too.
    assert_eq!(walk.steps, 2 * 11 + 1);
    assert_eq!(walk.rows_listed, 0);
}

#[test]
fn one_row_of_a_large_chunk_is_found_without_listing_it() {
    let source = table(0..100_000);
    let mut target = source.clone();
    target.insert(77_777, 1);
    let walk = walk(source, target, 100_000, 1000, quiet);
    assert_eq!(walk.suspects, BTreeSet::from([77_777]));
    assert!(walk.rows_listed <= 500, "{walk:?}");
}

#[test]
fn rows_that_only_the_target_has_are_found_before_between_and_behind() {
    let source = table((1000..2000).step_by(2));
    let target = table((1000..2000).step_by(2).chain([1, 1501, 50_000]));
    let walk = walk(source, target, 100, 1000, quiet);
    assert_eq!(walk.suspects, BTreeSet::from([1, 1501, 50_000]));
}

#[test]
fn an_empty_side_is_cut_by_the_other() {
    for (source, target) in [(table([]), table(0..5000)), (table(0..5000), table([]))] {
        let walk = walk(source, target, 1000, 1000, quiet);
        assert_eq!(walk.suspects.len(), 5000);
        assert!(walk.unstable.is_empty());
    }
}

#[test]
fn a_range_that_never_holds_still_is_given_up() {
    let mut ranges = Ranges::default();
    ranges.boundary(None);
    let few = RangeDigest { rows: 2, digest: "few".to_owned() };
    let many: Vec<(RowKey, Digest)> =
        (0..=LIST_ROWS as u32).map(|number| (key(number), String::new())).collect();
    let mut steps = 0;
    // Few rows when counted, many when listed, and always another middle.
    loop {
        steps += 1;
        assert!(steps < 10_000, "no end in sight");
        match ranges.step(1000) {
            RangeStep::Digests(_) => ranges.digests(&few, &RangeDigest::default()),
            RangeStep::Rows(_) => ranges.rows(many.clone(), Vec::new()),
            RangeStep::Middle { .. } => ranges.middle(Some(key(steps))),
            RangeStep::Boundary { .. } => panic!("the last boundary was given"),
            RangeStep::Done => break,
        }
        if !ranges.take_unstable().is_empty() {
            return;
        }
    }
    panic!("done after {steps} steps");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_differing_row_is_suspected_and_no_other(
        rows in prop::collection::btree_map(0u32..20_000, 0u32..2, 0..3000),
        changes in prop::collection::vec((0u32..20_000, 0u8..3), 0..40),
        chunk_rows in prop_oneof![Just(1u64), 2..10u64, 100..5000u64],
    ) {
        let mut target = rows.clone();
        for (number, what) in changes {
            match what {
                0 => { target.remove(&number); }
                1 => { target.insert(number, 7); }
                _ => { target.entry(number).and_modify(|version| *version += 1); }
            }
        }
        let different: BTreeSet<u32> = rows
            .iter()
            .filter(|(number, version)| target.get(number) != Some(version))
            .map(|(number, _)| *number)
            .chain(target.keys().copied().filter(|number| !rows.contains_key(number)))
            .collect();
        let walk = walk(rows, target, chunk_rows, 100_000, quiet);
        prop_assert_eq!(walk.suspects, different);
        prop_assert!(walk.unstable.is_empty());
    }

    #[test]
    fn a_lasting_difference_is_found_while_other_rows_come_and_go(
        seed in any::<u32>(),
        odd in prop::collection::btree_set(0u32..5_000, 1..5),
    ) {
        // Even numbers appear and vanish on both sides; the odd ones stay, and some differ.
        let odd: BTreeSet<u32> = odd.into_iter().map(|number| number * 2 + 1).collect();
        let source = table((0..10_000).filter(|number| number % 2 == 1));
        let mut target = source.clone();
        for number in &odd {
            target.remove(number);
        }
        let walk = walk(source, target, 700, 100_000, |step, source, target| {
            let mut random = seed.wrapping_add((step as u32).wrapping_mul(2_654_435_761));
            for _ in 0..50 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let number = (random >> 8) % 10_000 / 2 * 2;
                let side = if random & 128 == 0 { &mut *source } else { &mut *target };
                if side.remove(&number).is_none() {
                    side.insert(number, 0);
                }
            }
        });
        let found: BTreeSet<u32> =
            walk.suspects.into_iter().filter(|number| number % 2 == 1).collect();
        prop_assert_eq!(found, odd);
    }
}
