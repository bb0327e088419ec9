//! Text of servers and clients for terminals, logs and pages: characters that would have an effect
//! there instead of being shown are escaped.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text on one line, ends of lines escaped too. The escapes are valid inside a JSON string.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if acts(c) => {
                // Writing to a String can't fail.
                let _ = write!(shown, "\\u{:04x}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns the text as one argument in a command for a POSIX shell.
#[must_use]
pub fn shell_argument(text: &str) -> Cow<'_, str> {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | ',' | '/');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

/// Returns the text as a string in TOML.
#[must_use]
pub fn toml_string(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// True for C0 and C1 controls, line and paragraph separators,
/// and marks that change the text direction.
#[must_use]
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_runs_nothing_that_is_in_an_argument() {
        for (text, argument) in [
            ("shop.order_line", "shop.order_line"),
            ("shop.order line", "'shop.order line'"),
            ("d.x;id", "'d.x;id'"),
            ("d.$(id)", "'d.$(id)'"),
            ("d.it's", r"'d.it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_argument(text), argument);
        }
    }

    #[test]
    fn what_acts_is_shown_instead() {
        for (text, shown) in [
            ("plain, Ünïcode 日本 🙂 \"quoted\" \\", "plain, Ünïcode 日本 🙂 \"quoted\" \\"),
            ("\x1b[31mred\x1b]0;title\x07", "\\u001b[31mred\\u001b]0;title\\u0007"),
            ("one\r\n2026-01-01 ERROR two\t", "one\\r\\n2026-01-01 ERROR two\\t"),
            ("\u{9b}31m\u{7f}\u{0}", "\\u009b31m\\u007f\\u0000"),
            ("a\u{202e}b\u{2028}c\u{2066}d\u{200f}", "a\\u202eb\\u2028c\\u2066d\\u200f"),
        ] {
            assert_eq!(one_line(text), shown);
        }
    }
}
