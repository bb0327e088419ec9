//! GTIDs in use on a server: the value of its variable `gtid_owned`.

use super::{Gtid, Tag, Uuid};

/// Returns the GTIDs in a value of `gtid_owned`, each with the connections that own it. The text has for each UUID
/// and tag `UUID[:TAG]:NUMBER#CONNECTION[:NUMBER#CONNECTION…]`. Parts that are no GTIDs are left out.
#[must_use]
pub fn owned_gtids(text: &str) -> Vec<(Gtid, Vec<u32>)> {
    split_at_uuids(text).flat_map(of_server).collect()
}

/// Returns the GTIDs in the text of one UUID.
fn of_server(text: &str) -> Vec<(Gtid, Vec<u32>)> {
    let mut parts = text.trim_end_matches([',', '\n']).split(':');
    let Some(Ok(uuid)) = parts.next().map(Uuid::try_parse) else { return Vec::new() };
    let mut tag = Tag::untagged();
    let mut found = Vec::new();
    for part in parts {
        let mut ids = part.split('#');
        let number = ids.next().unwrap_or_default();
        let ids: Vec<u32> = ids.filter_map(|id| id.parse().ok()).collect();
        match (ids.is_empty(), number.parse()) {
            (false, Ok(gno)) => found.push((Gtid { uuid, tag: tag.clone(), gno }, ids)),
            (false, Err(_)) => {}
            (true, _) => tag = Tag::new(part).unwrap_or_else(|_| Tag::untagged()),
        }
    }
    found
}

/// Divides the text before each UUID: MySQL 9.7 writes nothing between a connection's number and the next
/// UUID.
fn split_at_uuids(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let is_uuid =
        |&at: &usize| [8, 13, 18, 23].iter().all(|dash| bytes.get(at + dash) == Some(&b'-'));
    let mut starts: Vec<usize> = (0..text.len()).filter(is_uuid).collect();
    starts.push(text.len());
    let parts: Vec<&str> =
        starts.windows(2).filter_map(|pair| text.get(*pair.first()?..*pair.last()?)).collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    const B: &str = "12345678-1234-1234-1234-123456789012";

    /// Short names of GTIDs, with their connections.
    type Owned = &'static [(&'static str, &'static [u32])];

    #[test]
    fn each_gtid_has_the_connections_that_own_it() {
        // As MySQL 9.7.4 writes it.
        let several = format!("{A}:12#13:1#8{A}:tag:4#15:3#12{B}:1#10#11");
        let cases: [(String, Owned); 7] = [
            (String::new(), &[]),
            (
                several,
                &[
                    ("A:12", &[13]),
                    ("A:1", &[8]),
                    ("A:tag:4", &[15]),
                    ("A:tag:3", &[12]),
                    ("B:1", &[10, 11]),
                ],
            ),
            (format!("{A}:1#8,\n{B}:1#9"), &[("A:1", &[8]), ("B:1", &[9])]),
            (format!("{A}:1#8:tag:2#9"), &[("A:1", &[8]), ("A:tag:2", &[9])]),
            // Nobody owns these, or they are no GTIDs.
            (format!("{A}:7"), &[]),
            (format!("{A}:x#7"), &[]),
            ("ANONYMOUS#5".to_owned(), &[]),
        ];
        for (text, expected) in cases {
            let gtid =
                |short: &str| short.replace("A:", &format!("{A}:")).replace("B:", &format!("{B}:"));
            let expected: Vec<(Gtid, Vec<u32>)> = expected
                .iter()
                .map(|(short, ids)| (gtid(short).parse().unwrap(), ids.to_vec()))
                .collect();
            assert_eq!(owned_gtids(&text), expected, "{text}");
        }
    }
}
