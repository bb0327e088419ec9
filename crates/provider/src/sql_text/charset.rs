//! The client's character set, as far as the lexer depends on it.

use crate::binlog::event::charset_of;

/// A kind of character set, by the bytes of its characters (strings/ctype-*.c of the server).
/// `character_set_client` is always a superset of ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCharset {
    /// UTF-8, and binary, which the server treats like its own character set.
    Utf8,
    /// Only bytes of ASCII characters look like ASCII. White space depends on the name.
    Plain(&'static str),
    /// The second byte of a character may look like a letter, a backslash, a backtick or a brace.
    Big5,
    Gbk,
    Gb18030,
    /// sjis, cp932.
    Sjis,
    /// Like Big5, but second bytes may only look like letters.
    Euckr,
}

/// The first number beyond the collations that this version knows. All those added in the last ten
/// years belong to utf8mb4.
const UTF8_FROM: u16 = 255;

/// A character set with letters in place of braces, brackets and some other symbols.
const SWEDISH: &str = "swe7";

impl ClientCharset {
    /// Finds the character set by the number of one of its collations.
    pub(super) fn of(collation: Option<u16>) -> Self {
        let Some(collation) = collation else { return Self::Plain("") };
        match charset_of(collation).map(|(name, _)| name) {
            Some("utf8mb4" | "utf8mb3" | "utf8" | "binary") => Self::Utf8,
            Some("big5") => Self::Big5,
            Some("gbk") => Self::Gbk,
            Some("gb18030") => Self::Gb18030,
            Some("sjis" | "cp932") => Self::Sjis,
            Some("euckr") => Self::Euckr,
            Some(name) => Self::Plain(name),
            None if collation >= UTF8_FROM => Self::Utf8,
            None => Self::Plain(""),
        }
    }

    /// Returns the bytes of the character at the start of the text; 1 if they form none.
    pub(super) fn character(self, text: &[u8]) -> usize {
        let &[first, second, ..] = text else { return 1 };
        let is_pair = match self {
            Self::Utf8 | Self::Plain(_) => false,
            Self::Big5 => matches!((first, second), (0xa1..=0xf9, 0x40..=0x7e | 0xa1..=0xfe)),
            Self::Gbk | Self::Gb18030 => {
                matches!((first, second), (0x81..=0xfe, 0x40..=0x7e | 0x80..=0xfe))
            }
            Self::Sjis => {
                matches!((first, second), (0x81..=0x9f | 0xe0..=0xfc, 0x40..=0x7e | 0x80..=0xfc))
            }
            Self::Euckr => {
                matches!((first, second), (0x81..=0xfe, 0x41..=0x5a | 0x61..=0x7a | 0x81..=0xfe))
            }
        };
        match text {
            _ if is_pair => 2,
            [0x81..=0xfe, b'0'..=b'9', 0x81..=0xfe, b'0'..=b'9', ..] if self == Self::Gb18030 => 4,
            _ => 1,
        }
    }

    /// Returns true for a byte that may be part of a name without quotes.
    pub(super) fn is_name(self, byte: u8) -> bool {
        let letter = self == Self::Plain(SWEDISH) && matches!(byte, b'[' | b']' | b'{' | b'}');
        letter || byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
    }

    /// Returns true if the text means the same in ASCII.
    pub(super) fn is_ascii(self, text: &[u8]) -> bool {
        let is_letter = |byte: &u8| matches!(byte, b'@' | b'['..=b'^' | b'`' | b'{'..=b'~');
        text.is_ascii() && !(self == Self::Plain(SWEDISH) && text.iter().any(is_letter))
    }

    /// Returns true for white space between tokens.
    pub(super) fn is_space(self, byte: u8) -> bool {
        match byte {
            b'\t'..=b'\r' | b' ' => true,
            0xa0 => matches!(
                self,
                Self::Plain(
                    "armscii8"
                        | "cp1250"
                        | "dec8"
                        | "geostd8"
                        | "greek"
                        | "hebrew"
                        | "latin1"
                        | "latin2"
                        | "latin5"
                        | "latin7"
                )
            ),
            0xff => matches!(self, Self::Plain("cp852" | "cp866" | "keybcs2")),
            _ => false,
        }
    }

    /// Returns true for a byte that makes a preceding `--` a comment: white space or a control
    /// character.
    pub(super) fn ends_dashes(self, byte: u8) -> bool {
        if byte.is_ascii() {
            return byte.is_ascii_control() || byte == b' ';
        }
        let controls: &[u8] = match self {
            Self::Plain("cp1250") => &[0x80, 0x81, 0x83, 0x88, 0x90, 0x98],
            Self::Plain("cp850") => &[0xff],
            Self::Plain("hebrew") => &[0xfd, 0xfe],
            Self::Plain("hp8") => {
                return matches!(byte, 0x80..=0xa0 | 0xb1 | 0xb2 | 0xf2..=0xf5 | 0xff);
            }
            Self::Plain("latin7") => {
                &[0x81, 0x83, 0x88, 0x8a, 0x8c, 0x90, 0x98, 0x9a, 0x9c, 0x9f, 0xa1, 0xa5]
            }
            Self::Plain("macroman") => &[0x80, 0xcb, 0xe5],
            _ => &[],
        };
        self.is_space(byte) || controls.contains(&byte)
    }
}
