//! Binary log files as far as the judgement needs them. It reads them without the product's code, which wrote them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use csa_provider::binlog::Uuid;

const HEADER: usize = 19;
const CHECKSUM: usize = 4;

const ROTATE: u8 = 4;
const STOP: u8 = 3;
const FORMAT_DESCRIPTION: u8 = 15;
const GTID: u8 = 33;
const PREVIOUS_GTIDS: u8 = 35;

/// A transaction in a file: its GTID, and a digest of everything in it but its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) uuid: Uuid,
    pub(super) gno: u64,
    pub(super) digest: u64,
}

/// Returns the transactions of a file, in order.
///
/// # Panics
/// With the name if the file is none, or cut off.
pub(super) fn transactions(bytes: &[u8], name: &Path) -> Vec<Logged> {
    let name = name.display();
    assert_eq!(bytes.get(..4), Some(&b"\xfebin"[..]), "{name} is no binary log");
    let mut rest = &bytes[4..];
    let mut found: Vec<(Logged, DefaultHasher)> = Vec::new();
    while !rest.is_empty() {
        let length = rest.get(9..13).map(|four| u32::from_le_bytes(four.try_into().expect("four")));
        let length = length.unwrap_or_default() as usize;
        assert!(
            (HEADER + CHECKSUM..=rest.len()).contains(&length),
            "{name} ends within an event, {} bytes before its end",
            rest.len()
        );
        let (event, after) = rest.split_at(length);
        rest = after;
        let kind = event[4];
        if [ROTATE, STOP, FORMAT_DESCRIPTION, PREVIOUS_GTIDS].contains(&kind) {
            continue;
        }
        let body = &event[HEADER..length - CHECKSUM];
        if kind == GTID {
            let uuid = Uuid::from_bytes(body[1..17].try_into().expect("sixteen"));
            let gno = u64::from_le_bytes(body[17..25].try_into().expect("eight"));
            found.push((Logged { uuid, gno, digest: 0 }, DefaultHasher::new()));
        }
        let (_, digest) = found.last_mut().unwrap_or_else(|| panic!("{name} begins with no GTID"));
        // Time, kind, server and flags, but not the place.
        event[..9].hash(digest);
        event[17..HEADER].hash(digest);
        body.hash(digest);
    }
    found.into_iter().map(|(logged, digest)| Logged { digest: digest.finish(), ..logged }).collect()
}
