use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn uuid(n: u8) -> Uuid {
    Uuid::from_bytes([n; 16])
}

fn tag(n: u8) -> Tag {
    Tag::new(["", "a", "blue_2"][usize::from(n % 3)]).expect("valid")
}

fn gtids() -> impl Strategy<Value = Vec<Gtid>> {
    prop::collection::vec((0_u8..3, 0_u8..3, 1_u64..40), 0..80).prop_map(|list| {
        list.into_iter().map(|(u, t, gno)| Gtid { uuid: uuid(u), tag: tag(t), gno }).collect()
    })
}

fn model(list: &[Gtid]) -> BTreeSet<Gtid> {
    list.iter().cloned().collect()
}

fn members(set: &GtidSet) -> BTreeSet<Gtid> {
    set.intervals()
        .flat_map(|(uuid, tag, i)| {
            (i.start..=i.end).map(move |gno| Gtid { uuid: *uuid, tag: tag.clone(), gno })
        })
        .collect()
}

proptest! {
    #[test]
    fn behaves_like_a_set_of_gtids(a in gtids(), b in gtids()) {
        let (set_a, set_b): (GtidSet, GtidSet) =
            (a.iter().cloned().collect(), b.iter().cloned().collect());
        let (model_a, model_b) = (model(&a), model(&b));
        prop_assert_eq!(members(&set_a), model_a.clone());
        prop_assert_eq!(set_a.count(), model_a.len() as u64);
        let mut union = set_a.clone();
        union.union(&set_b);
        prop_assert_eq!(members(&union), model_a.union(&model_b).cloned().collect());
        let intersection = set_a.intersection(&set_b);
        prop_assert_eq!(members(&intersection), model_a.intersection(&model_b).cloned().collect());
        let below: BTreeSet<Gtid> = model_a
            .iter()
            .filter(|a| model_b.iter().any(|b| b.uuid == a.uuid && b.tag == a.tag && b.gno >= a.gno))
            .cloned()
            .collect();
        prop_assert_eq!(members(&set_a.below_ends_of(&set_b)), below);
        let uuids: BTreeSet<Uuid> = model_a.iter().map(|gtid| gtid.uuid).collect();
        prop_assert_eq!(set_a.uuids().collect::<Vec<_>>(), Vec::from_iter(uuids));
        let difference = set_a.difference(&set_b);
        prop_assert_eq!(members(&difference), model_a.difference(&model_b).cloned().collect());
        prop_assert_eq!(set_a.is_subset_of(&set_b), model_a.is_subset(&model_b));
        prop_assert_eq!(set_a.intersects(&set_b), !model_a.is_disjoint(&model_b));
        for gtid in &b {
            prop_assert_eq!(set_a.contains(gtid), model_a.contains(gtid));
        }
        prop_assert!(set_a.is_subset_of(&union) && set_b.is_subset_of(&union));
    }

    #[test]
    fn both_encodings_and_the_text_are_lossless(list in gtids(), tagged in any::<bool>()) {
        let set: GtidSet =
            list.into_iter().filter(|g| tagged || g.tag.is_empty()).collect();
        prop_assert_eq!(GtidSet::decode(&set.encode()).expect("own encoding"), set.clone());
        prop_assert_eq!(set.encode().len(), set.encoded_len());
        prop_assert_eq!(set.to_string().parse::<GtidSet>().expect("own text"), set);
    }

    #[test]
    fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = GtidSet::decode(&bytes);
    }

    #[test]
    fn add_tells_new_from_known(list in gtids()) {
        let mut set = GtidSet::new();
        let mut known = BTreeSet::new();
        for gtid in list {
            prop_assert_eq!(set.add(&gtid), known.insert(gtid));
        }
    }
}

#[test]
fn a_line_of_the_log_shows_some_intervals_of_many() {
    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let of = |count: u32| -> GtidSet {
        let numbers: Vec<String> = (1..=count).map(|n| (n * 2).to_string()).collect();
        format!("{UUID}:{}", numbers.join(":")).parse().expect("a set")
    };
    assert_eq!(of(100).brief(), of(100).to_string());
    assert_eq!(of(1_000).brief(), format!("{} and 900 more intervals", of(100)));
}

#[test]
fn text_is_read_as_the_server_reads_it() {
    let text = " 3E11FA47-71CA-11E1-9E33-C80AA9429562 : 5-7:1-3 : 2-6:\n Blue:9,\
                 3e11fa47-71ca-11e1-9e33-c80aa9429562:8,,";
    let set: GtidSet = text.parse().expect("valid");
    assert_eq!(set.to_string(), "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-8:blue:9");
    assert!("".parse::<GtidSet>().expect("empty").is_empty());
    for wrong in [
        "abc",
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:0",
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-x",
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:-a:1",
    ] {
        assert!(wrong.parse::<GtidSet>().is_err(), "{wrong}");
    }
}

#[test]
fn the_untagged_encoding_is_the_documented_one() {
    let set: GtidSet = "01010101-0101-0101-0101-010101010101:1-3".parse().expect("valid");
    let mut expected = vec![1, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([1; 16]);
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(set.encode(), expected);
}

/// The bytes that `Gtid_set::encode` of the server writes.
#[test]
fn the_tagged_encoding_is_the_servers() {
    let set: GtidSet = "01010101-0101-0101-0101-010101010101:1-3:b:7".parse().expect("valid");
    let mut expected = vec![1, 2, 0, 0, 0, 0, 0, 1];
    expected.extend([1; 16]);
    expected.extend([0, 1, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([1; 16]);
    expected.extend([2, b'b', 1, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(set.encode(), expected);
}

#[test]
fn all_of_one_server_is_taken_out() {
    let (first, second) =
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "01010101-0101-0101-0101-010101010101");
    let mut set: GtidSet = format!("{first}:1-5:9:blue:3,{second}:7").parse().expect("valid");
    let uuid = first.parse().expect("a UUID");
    assert!(set.has_uuid(&uuid));
    set.remove_uuid(&uuid);
    assert!(!set.has_uuid(&uuid));
    assert_eq!(set.to_string(), format!("{second}:7"));
}

/// A pass for each interval would take minutes.
#[test]
fn sets_with_many_gaps_take_one_pass() {
    let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let every_second = |first: u64, last: u64| -> GtidSet {
        let numbers: Vec<String> = (first..=last).step_by(2).map(|gno| gno.to_string()).collect();
        format!("{uuid}:{}", numbers.join(":")).parse().expect("valid")
    };
    let (odd, even) = (every_second(1, 400_000), every_second(2, 400_000));
    assert_eq!(odd.difference(&every_second(1, 399_998)).to_string(), format!("{uuid}:399999"));
    assert!(!odd.intersects(&even) && !odd.is_subset_of(&even));
    let mut all = odd.clone();
    all.union(&even);
    assert_eq!(all.to_string(), format!("{uuid}:1-400000"));
    all.subtract(&even);
    assert_eq!(all, odd);
    let mut same = odd.clone();
    same.union(&odd);
    assert_eq!(same, odd);
}

/// A peer may be hostile: inserted one by one, each would move all before it, which takes minutes.
#[test]
fn intervals_in_descending_order_take_no_longer() {
    const COUNT: u64 = 500_000;
    let all = || (1..=COUNT).map(|n| 2 * n - 1);
    let text = |numbers: Vec<String>| format!("{}:{}", uuid(3), numbers.join(":"));
    let texts = || all().map(|gno| gno.to_string());
    let expected: GtidSet = text(texts().collect()).parse().expect("valid");
    assert_eq!((expected.count(), expected.intervals().count()), (COUNT, COUNT as usize));
    assert_eq!(text(texts().rev().collect()).parse::<GtidSet>().expect("valid"), expected);
    let gtids = all().rev().map(|gno| Gtid { uuid: uuid(3), tag: tag(0), gno });
    assert_eq!(gtids.collect::<GtidSet>(), expected);
    let mut bytes = 1_u64.to_le_bytes().to_vec();
    bytes.extend([3; 16]);
    bytes.extend(COUNT.to_le_bytes());
    bytes.extend(all().rev().flat_map(|gno| [gno, gno + 1]).flat_map(u64::to_le_bytes));
    assert_eq!(GtidSet::decode(&bytes).expect("valid"), expected);
}
