//! The collation that a definition leaves out because it is the default of its character set: another version
//! of the server may have another default, as MySQL 8.0 has for utf8mb4. Pure.

use std::collections::BTreeMap;

use csa_provider::sql_text::{Dialect, Lexer, Token, Unclosed};

/// Returns the text of a database or table with a collation after each character set that has none.
/// `defaults` are the source's, by the name of the character set.
pub(super) fn with_collations(
    text: &str,
    defaults: &BTreeMap<String, String>,
) -> Result<String, Unclosed> {
    let tokens: Vec<Token<'_>> =
        Lexer::new(text.as_bytes(), Dialect::default()).collect::<Result<_, _>>()?;
    let (mut whole, mut copied, mut depth) = (String::with_capacity(text.len()), 0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        depth = match token.is_symbol(b'(') {
            true => depth + 1,
            false => depth.saturating_sub(usize::from(token.is_symbol(b')'))),
        };
        // Deeper ones are in expressions.
        if depth > 1 || !names_charset(tokens.get(..at).unwrap_or_default()) {
            continue;
        }
        let name = Dialect::default().name(token);
        let is_explicit = tokens.get(at + 1).is_some_and(|next| next.is("COLLATE"));
        let default = name.and_then(|name| defaults.get(&name)).filter(|_| !is_explicit);
        if let (Some(collation), Some(until)) = (default, text.get(copied..token.range().end)) {
            whole.push_str(&format!("{until} COLLATE {collation}"));
            copied = token.range().end;
        }
    }
    whole.push_str(text.get(copied..).unwrap_or_default());
    Ok(whole)
}

/// Returns true if the tokens end in `CHARACTER SET`, or in `CHARSET=` as in the options of a table.
fn names_charset(before: &[Token<'_>]) -> bool {
    match before {
        [.., first, second] if first.is("CHARACTER") => second.is("SET"),
        [.., first, second] if first.is("CHARSET") => second.is_symbol(b'='),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> String {
        let defaults = [("utf8mb4", "utf8mb4_general_ci"), ("latin1", "latin1_swedish_ci")];
        let defaults =
            defaults.map(|(charset, collation)| (charset.to_owned(), collation.to_owned()));
        with_collations(text, &BTreeMap::from(defaults)).unwrap()
    }

    #[test]
    fn each_character_set_gets_its_collation() {
        assert_eq!(
            with("CREATE DATABASE `d` /*!40100 DEFAULT CHARACTER SET utf8mb4 */"),
            "CREATE DATABASE `d` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci */"
        );
        assert_eq!(
            with(
                "CREATE TABLE `t` (\n  `a` varchar(9) CHARACTER SET latin1 NOT NULL,\n  \
                 `b` char(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin\n) DEFAULT CHARSET=utf8mb4 \
                 COMMENT='x'"
            ),
            "CREATE TABLE `t` (\n  `a` varchar(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci NOT NULL,\n  \
             `b` char(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin\n) DEFAULT CHARSET=utf8mb4 COLLATE \
             utf8mb4_general_ci COMMENT='x'"
        );
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "CREATE TABLE `t` (`CHARACTER` int COMMENT 'CHARACTER SET utf8mb4') COMMENT='CHARSET=latin1'",
            "CREATE TABLE `t` (`g` text AS (convert(`a` using utf8mb4)))",
            "CREATE TABLE `t` (`g` text AS (cast(`a` as char(9) CHARACTER SET utf8mb4)))",
            "CREATE TABLE `t` (`a` int) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin",
            "CREATE TABLE `t` (`a` int) DEFAULT CHARSET=koi8r",
        ] {
            assert_eq!(with(text), text);
        }
    }
}
