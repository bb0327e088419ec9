//! Text of SQL values.

use std::fmt::Write;

/// A string literal. Backslashes are doubled, so it is right unless `NO_BACKSLASH_ESCAPES` is set;
/// sessions of ours never set it before a literal of ours is sent.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for c in text.chars() {
        match c {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            _ => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

/// An identifier in backticks.
pub(crate) fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A string literal for bytes of any character set.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_escaped() {
        assert_eq!(quote("o'n\\e\0"), "'o''n\\\\e\\0'");
        assert_eq!(identifier("a`b"), "`a``b`");
        assert_eq!(hex(&[0, 255]), "x'00ff'");
    }
}
