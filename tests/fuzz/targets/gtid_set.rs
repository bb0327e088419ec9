//! GTID sets in both encodings: what is read is written and read again as itself.
#![no_main]

use csa_provider::binlog::GtidSet;
use libfuzzer_sys::fuzz_target;

fn survives(set: &GtidSet) {
    assert_eq!(&GtidSet::decode(&set.encode()).expect("own encoding"), set);
    assert_eq!(&set.to_string().parse::<GtidSet>().expect("own text"), set);
    let mut both = set.clone();
    both.union(set);
    assert_eq!(&both, set);
    assert!(set.difference(set).is_empty());
}

fuzz_target!(|data: &[u8]| {
    if let Ok(set) = GtidSet::decode(data) {
        survives(&set);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(set) = text.parse::<GtidSet>()
    {
        survives(&set);
    }
});
