//! Strings that a collation calls equal must get the same bytes here; different ones may get the
//! same bytes too.

use std::collections::HashMap;

const SPACE: u8 = b' ';

/// The comparison rules for a column's strings, as far as they are known.
#[derive(Debug)]
pub struct Collation {
    encoding: Encoding,
    weights: Weights,
    /// Trailing spaces don't count.
    pad_space: bool,
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
        pad_space: bool,
        charset_collations: Vec<u16>,
    ) -> Self {
        let encoding = match charset {
            "binary" => Encoding::Binary,
            "utf8mb4" | "utf8mb3" | "utf8" => Encoding::Utf8,
            _ if single_byte => Encoding::SingleByte,
            _ => Encoding::Other,
        };
        Self { encoding, weights, pad_space, charset_collations }
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
        // Images leave out the padding of CHAR and BINARY. In an index the prefix of a short
        // value includes it, and so equals that of a longer value with such characters.
        let pads = self.pad_space || prefix.is_some();
        match &self.weights {
            Weights::Bytes => out.extend_from_slice(match self.encoding {
                Encoding::Binary if prefix.is_some() => trim(value, |byte| byte == 0),
                Encoding::Binary => value,
                _ if pads => trim(value, |byte| byte == SPACE),
                _ => value,
            }),
            Weights::Learnt(weights) => return self.append_learnt(value, pads, weights, out),
            Weights::Unknown => return false,
        }
        true
    }

    fn append_learnt(
        &self,
        value: &[u8],
        pads: bool,
        weights: &HashMap<u32, Box<[u8]>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let space = weights.get(&u32::from(SPACE));
        // The server pads by comparing weights: 0xA0 is a space in `cp1250_general_ci`, and so is the
        // grave accent in `cp1251_ukrainian_ci`.
        let is_space = |code: u32| {
            pads && (code == u32::from(SPACE) || space.is_some() && weights.get(&code) == space)
        };
        let mut append =
            |code: u32| weights.get(&code).map(|weight| out.extend_from_slice(weight)).is_some();
        match self.encoding {
            Encoding::SingleByte => {
                let value = trim(value, |byte| is_space(u32::from(byte)));
                value.iter().all(|&byte| append(u32::from(byte)))
            }
            Encoding::Utf8 => std::str::from_utf8(value).is_ok_and(|text| {
                text.trim_end_matches(|c| is_space(u32::from(c))).chars().all(|c| append(c.into()))
            }),
            Encoding::Binary | Encoding::Other => false,
        }
    }

    /// Returns the first `prefix` characters; `None` if characters can't be counted.
    fn cut<'a>(&self, value: &'a [u8], prefix: Option<usize>) -> Option<&'a [u8]> {
        let Some(prefix) = prefix else {
            // A trailing space may take more than one byte.
            return (self.encoding != Encoding::Other || !self.pad_space).then_some(value);
        };
        match self.encoding {
            Encoding::Binary | Encoding::SingleByte => value.get(..prefix.min(value.len())),
            Encoding::Utf8 => {
                let text = std::str::from_utf8(value).ok()?;
                let end = text.char_indices().nth(prefix).map_or(value.len(), |(at, _)| at);
                value.get(..end)
            }
            Encoding::Other => None,
        }
    }
}

fn trim(value: &[u8], is_padding: impl Fn(u8) -> bool) -> &[u8] {
    let end = value.iter().rposition(|&byte| !is_padding(byte)).map_or(0, |last| last + 1);
    value.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(collation: &Collation, value: &[u8], prefix: Option<usize>) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(collation.append(value, prefix, &mut out));
        out
    }

    #[test]
    fn a_prefix_has_the_padding_that_images_leave_out() {
        let binary = Collation::new("binary", true, Weights::Bytes, false, Vec::new());
        let utf8 = Collation::new("utf8mb4", false, Weights::Bytes, false, Vec::new());
        for (collation, short, long) in
            [(&binary, &b"\x01"[..], &b"\x01\0\0\0\x05"[..]), (&utf8, b"ab", b"ab  x")]
        {
            let prefix = |value| appended(collation, value, Some(4));
            assert_eq!(prefix(short), prefix(long));
            assert_ne!(appended(collation, short, None), appended(collation, long, None));
            assert_ne!(prefix(short), appended(collation, long, Some(5)));
        }
    }
    #[test]
    fn characters_with_the_weight_of_a_space_are_padding() {
        let learnt = || {
            let weights = [(0x20, 0x20), (0xa0, 0x20), (0x60, 0x20), (0x61, 0x41), (0x62, 0x42)];
            Weights::Learnt(weights.map(|(code, weight)| (code, [weight].into())).into())
        };
        let padded = Collation::new("cp1250", true, learnt(), true, Vec::new());
        let strict = Collation::new("cp1250", true, learnt(), false, Vec::new());
        for other in [&b"a"[..], b"a ", b"a`\xa0 ", b"a\xa0"] {
            assert_eq!(appended(&padded, other, None), b"A", "{other:?}");
            // In an index a short value is padded by every collation.
            assert_eq!(appended(&strict, other, Some(4)), b"A", "{other:?}");
        }
        assert_eq!(appended(&padded, b"a\xa0b", None), b"A B");
        assert_eq!(appended(&strict, b"a\xa0", None), b"A ");
    }
}
