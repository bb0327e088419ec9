//! Strings that a collation calls equal must get the same bytes here; different ones may get the
//! same bytes too.
//!
//! Padding never counts, even where the collation says so. Images leave out that of CHAR and BINARY, and have the
//! same spaces and zeros where another column is VARCHAR or VARBINARY: a foreign key connects the two.

use std::collections::HashMap;

const SPACE: u8 = b' ';

/// The comparison rules for a column's strings, as far as they are known.
#[derive(Debug)]
pub struct Collation {
    encoding: Encoding,
    weights: Weights,
    /// Numbers of all collations of the character set: the source's column may have any of them.
    charset_collations: Vec<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Binary,
    SingleByte,
    Utf8,
    /// Any other encoding: its characters can't be found here.
    Other,
}

/// The part of a character that counts in a comparison.
#[derive(Debug)]
pub enum Weights {
    /// All of its bytes.
    Bytes,
    /// The weight that the server gives, by code point (by byte in single-byte character sets).
    Learnt(HashMap<u32, Box<[u8]>>),
    /// Unknown: any two strings may be equal.
    Unknown,
}

impl Collation {
    /// `charset` is the server's name for it.
    #[must_use]
    pub fn new(
        charset: &str,
        single_byte: bool,
        weights: Weights,
        charset_collations: Vec<u16>,
    ) -> Self {
        let encoding = match charset {
            "binary" => Encoding::Binary,
            "utf8mb4" | "utf8mb3" | "utf8" => Encoding::Utf8,
            _ if single_byte => Encoding::SingleByte,
            _ => Encoding::Other,
        };
        Self { encoding, weights, charset_collations }
    }

    /// Returns true if the source's strings of this collation are in the character set.
    pub(super) fn has_charset_of(&self, collation: u16) -> bool {
        self.charset_collations.contains(&collation)
    }

    /// Appends the part of `value` (of its first `prefix` characters) that counts in a comparison;
    /// `false` if it is unknown.
    #[must_use]
    pub fn append(&self, value: &[u8], prefix: Option<usize>, out: &mut Vec<u8>) -> bool {
        let Some(value) = self.cut(value, prefix) else { return false };
        match (&self.weights, self.encoding) {
            (Weights::Bytes, Encoding::Binary) => out.extend_from_slice(trim(value, 0)),
            (Weights::Bytes, _) => out.extend_from_slice(trim(value, SPACE)),
            (Weights::Learnt(weights), _) => return self.append_learnt(value, weights, out),
            (Weights::Unknown, _) => return false,
        }
        true
    }

    fn append_learnt(
        &self,
        value: &[u8],
        weights: &HashMap<u32, Box<[u8]>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let mut append =
            |code: u32| weights.get(&code).map(|weight| out.extend_from_slice(weight)).is_some();
        let is_known = match self.encoding {
            Encoding::SingleByte => value.iter().all(|&byte| append(u32::from(byte))),
            Encoding::Utf8 => std::str::from_utf8(value)
                .is_ok_and(|text| text.chars().all(|c| append(u32::from(c)))),
            Encoding::Binary | Encoding::Other => false,
        };
        // Weights decide, not characters: 0xA0 is a space in `cp1250_general_ci`, and a soft hyphen after a space
        // has no weight at all.
        let space = weights.get(&u32::from(SPACE)).filter(|space| !space.is_empty());
        while let Some(space) = space
            && out.get(start..).is_some_and(|weights| weights.ends_with(space))
        {
            out.truncate(out.len() - space.len());
        }
        is_known
    }

    /// Returns the first `prefix` characters; `None` if characters can't be found, not even trailing spaces: they may
    /// take more than one byte.
    fn cut<'a>(&self, value: &'a [u8], prefix: Option<usize>) -> Option<&'a [u8]> {
        match (self.encoding, prefix) {
            (Encoding::Other, _) => None,
            (_, None) => Some(value),
            (Encoding::Binary | Encoding::SingleByte, Some(prefix)) => {
                value.get(..prefix.min(value.len()))
            }
            (Encoding::Utf8, Some(prefix)) => {
                let text = std::str::from_utf8(value).ok()?;
                let end = text.char_indices().nth(prefix).map_or(value.len(), |(at, _)| at);
                value.get(..end)
            }
        }
    }
}

fn trim(value: &[u8], padding: u8) -> &[u8] {
    let end = value.iter().rposition(|&byte| byte != padding).map_or(0, |last| last + 1);
    value.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(collation: &Collation, value: &[u8], prefix: Option<usize>) -> Vec<u8> {
        let mut out = b" ".to_vec();
        assert!(collation.append(value, prefix, &mut out));
        // The part before stays as it is.
        assert_eq!(out.remove(0), b' ');
        out
    }

    #[test]
    fn padding_does_not_count() {
        let binary = Collation::new("binary", true, Weights::Bytes, Vec::new());
        let utf8 = Collation::new("utf8mb4", false, Weights::Bytes, Vec::new());
        for (collation, short, padded, long) in [
            (&binary, &b"\x01"[..], &b"\x01\0\0\0"[..], &b"\x01\0\0\0\x05"[..]),
            (&utf8, b"ab", b"ab  ", b"ab  x"),
        ] {
            assert_eq!(appended(collation, padded, None), short);
            // A prefix may end in what is padding elsewhere.
            let prefix = |value| appended(collation, value, Some(4));
            assert_eq!([prefix(short), prefix(padded), prefix(long)], [short; 3]);
            assert_eq!(appended(collation, long, None), long);
            assert_eq!(appended(collation, long, Some(5)), long);
        }
    }

    #[test]
    fn characters_of_several_bytes_are_unknown() {
        let utf16 = Collation::new("utf16", false, Weights::Bytes, Vec::new());
        assert!(!utf16.append(b"\0a\0 ", None, &mut Vec::new()));
    }

    #[test]
    fn weights_of_a_space_are_padding() {
        let weights = [
            (0x20, &[0x20][..]),
            (0xa0, &[0x20]),
            (0x60, &[0x20]),
            (0x61, &[0x41]),
            (0x62, &[0x42]),
            (0xad, &[]),
            // It counts as an "a" and a space.
            (0xaa, &[0x41, 0x20]),
        ];
        let weights = weights.map(|(code, weight)| (code, weight.into())).into();
        let collation = Collation::new("cp1250", true, Weights::Learnt(weights), Vec::new());
        for other in [&b"a"[..], b"a ", b"a`\xa0 ", b"a\xa0", b"a \xad", b"\xaa", b"a\xad  "] {
            assert_eq!(appended(&collation, other, None), b"A", "{other:?}");
            assert_eq!(appended(&collation, other, Some(4)), b"A", "{other:?}");
        }
        assert_eq!(appended(&collation, b"a\xa0b", None), b"A B");
        assert_eq!(appended(&collation, b"   ", None), b"");
    }
}
