//! Text of SQL values.

/// Returns a string literal. Backslashes are doubled, which is right unless `NO_BACKSLASH_ESCAPES` is set; our
/// sessions never have it set when they send such a literal.
#[must_use]
pub fn quote(text: &str) -> String {
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

/// Returns an identifier in backticks.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_escaped() {
        assert_eq!(quote("o'n\\e\0"), "'o''n\\\\e\\0'");
        assert_eq!(identifier("a`b"), "`a``b`");
    }
}
