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

/// Returns the name in backticks at the beginning of a text, and what follows it; the inverse of [`identifier`].
#[must_use]
pub fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text.strip_prefix('`')?;
    loop {
        let (part, after) = rest.split_once('`')?;
        name.push_str(part);
        match after.strip_prefix('`') {
            Some(more) => {
                name.push('`');
                rest = more;
            }
            None => return Some((name, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_escaped() {
        assert_eq!(quote("o'n\\e\0"), "'o''n\\\\e\\0'");
        assert_eq!(identifier("a`b"), "`a``b`");
        assert_eq!(quoted_name("`a``b`.c"), Some(("a`b".to_owned(), ".c")));
    }
}
