//! Collations that a statement names, or leaves to the server. Pure.

use csa_provider::binlog::{SessionContext, collation_name};
use csa_provider::sql_text::{Dialect, Token, TokenKind};

use super::tokens::Tokens;
use super::{Range, edited};
use crate::options::CollationMap;

/// Returns the text with the target's collations in place of the source's; `None` if it names and implies none
/// of them. A place where no COLLATE can stand (a CAST) keeps its default, to which the caller objects.
pub(crate) fn with_collations(
    text: &[u8],
    context: &SessionContext,
    map: &CollationMap,
) -> Option<Vec<u8>> {
    if map.is_empty() {
        return None;
    }
    let tokens = Tokens::of(text, Dialect::of(context)).tokens;
    let mut edits = named(&tokens, map);
    let implied = implied_collation(text, context).and_then(collation_name);
    if let Some(collation) = implied.and_then(|name| map.get(name)) {
        let clause = format!(" COLLATE {collation}").into_bytes();
        let places = open_places(&tokens);
        edits.extend(places.map(|place| (place..place, clause.clone())));
    }
    edited(text, edits)
}

/// Returns the names after COLLATE that the map replaces.
fn named(tokens: &[Token<'_>], map: &CollationMap) -> Vec<(Range, Vec<u8>)> {
    let mut edits = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.is("COLLATE")) {
        let sign = tokens.get(at + 1).is_some_and(|token| token.is_symbol(b'='));
        let Some(name) = tokens.get(at + 1 + usize::from(sign)) else { continue };
        let said = String::from_utf8_lossy(&unquoted(name)).into_owned();
        if let Some(collation) = map.get(&said) {
            edits.push((name.range(), collation.as_bytes().to_vec()));
        }
    }
    edits
}

/// Places for a COLLATE in a statement that implies one.
fn open_places<'a>(tokens: &'a [Token<'a>]) -> impl Iterator<Item = usize> + 'a {
    let is_database = tokens.get(1).is_some_and(|token| token.is("DATABASE") || token.is("SCHEMA"));
    let charsets: Vec<usize> = match is_database {
        true => (0..tokens.len()).filter_map(|at| charset_at(tokens, at)).collect(),
        false => {
            let creates = tokens.first().is_some_and(|token| token.is("CREATE"));
            // Deeper ones are in expressions.
            let open = open_charsets(tokens, creates).into_iter();
            open.filter(|(_, depth)| *depth <= 2).map(|(at, _)| at).collect()
        }
    };
    // A database without a character set has one by the server's collation.
    let places = match (charsets.is_empty(), is_database) {
        (true, true) => database_name(tokens).into_iter().collect(),
        (true, false) => Vec::new(),
        (false, true) => charsets.last().copied().into_iter().collect(),
        (false, false) => charsets,
    };
    places.into_iter().filter_map(|at| Some(tokens.get(at)?.range().end))
}

/// Returns the place of the name in CREATE DATABASE.
fn database_name(tokens: &[Token<'_>]) -> Option<usize> {
    let checks = tokens.get(2)?.is("IF") && tokens.get(3)?.is("NOT");
    Some(if checks { 5 } else { 2 })
}

/// Returns the number of a collation that a CREATE or ALTER of a database or table takes from the defaults of
/// the source's session without naming it. The default of a table's database does not count: the target has the
/// same database.
pub(crate) fn implied_collation(text: &[u8], context: &SessionContext) -> Option<u16> {
    let tokens = Tokens::of(text, Dialect::of(context)).tokens;
    let creates = tokens.first()?.is("CREATE");
    if !creates && !tokens.first()?.is("ALTER") {
        return None;
    }
    let kind = tokens.iter().skip(1).find(|token| !token.is("TEMPORARY"))?;
    let of_utf8mb4 = context.default_collation_for_utf8mb4;
    if kind.is("DATABASE") || kind.is("SCHEMA") {
        let has = |word: &str| tokens.iter().any(|token| token.is(word));
        if has("COLLATE") {
            return None;
        }
        let mut charsets = (0..tokens.len()).filter_map(|at| charset_at(&tokens, at));
        return match charsets.next_back() {
            Some(at) if is_utf8mb4(tokens.get(at)) => of_utf8mb4,
            Some(_) => None,
            None => context.charset.map(|charset| charset.server).filter(|_| creates),
        };
    }
    let is_open = kind.is("TABLE") && !open_charsets(&tokens, creates).is_empty();
    is_open.then_some(of_utf8mb4).flatten()
}

/// Character set and collation clauses of one column or option list.
#[derive(Debug, Default, Clone, Copy)]
struct CharsetClauses {
    /// The place of the name utf8mb4.
    utf8mb4: Option<usize>,
    collation: bool,
}

impl CharsetClauses {
    fn open(self) -> Option<usize> {
        self.utf8mb4.filter(|_| !self.collation)
    }
}

/// Each CHARACTER SET utf8mb4 without a COLLATE that belongs to it: the place of the name, and the depth
/// of its list, 1 outside of parentheses.
fn open_charsets(tokens: &[Token<'_>], creates: bool) -> Vec<(usize, usize)> {
    let mut lists = vec![CharsetClauses::default()];
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let depth = lists.len();
        let Some(said) = lists.last_mut() else { break };
        match token.kind {
            TokenKind::Symbol(b'(') => lists.push(CharsetClauses::default()),
            TokenKind::Symbol(b')') => {
                found.extend(said.open().map(|at| (at, depth)));
                match depth {
                    1 => *said = CharsetClauses::default(),
                    _ => drop(lists.pop()),
                }
            }
            // Options of a new table may have commas between them.
            TokenKind::Symbol(b',') if depth > 1 || !creates => {
                found.extend(said.open().map(|at| (at, depth)));
                *said = CharsetClauses::default();
            }
            _ if token.is("COLLATE") => said.collation = true,
            _ => {
                let charset = charset_at(tokens, at);
                let name = charset.filter(|&at| is_utf8mb4(tokens.get(at)));
                said.utf8mb4 = name.or(said.utf8mb4);
            }
        }
    }
    let left = lists.iter().enumerate();
    found.extend(left.filter_map(|(at, said)| Some((said.open()?, at + 1))));
    found
}

/// Returns the place of the name after CHARSET or CHARACTER SET, if that is at `at`.
fn charset_at(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let token = tokens.get(at)?;
    let next = match () {
        () if token.is("CHARSET") => at + 1,
        () if (token.is("CHARACTER") || token.is("CHAR")) && tokens.get(at + 1)?.is("SET") => {
            at + 2
        }
        () => return None,
    };
    Some(next + usize::from(tokens.get(next)?.is_symbol(b'=')))
}

fn is_utf8mb4(token: Option<&Token<'_>>) -> bool {
    token.is_some_and(|token| unquoted(token).eq_ignore_ascii_case(b"utf8mb4"))
}

fn unquoted(token: &Token<'_>) -> Vec<u8> {
    token.text.iter().copied().filter(|byte| !b"'\"`".contains(byte)).collect()
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::QueryCharset;

    use super::*;

    fn mapped(text: &str) -> String {
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let map = CollationMap::new([
            pair("utf8mb4_0900_ai_ci", "utf8mb4_unicode_520_ci"),
            pair("utf8mb4_0900_bin", "utf8mb4_bin"),
        ]);
        let context = SessionContext {
            charset: Some(QueryCharset { client: 255, connection: 255, server: 255 }),
            default_collation_for_utf8mb4: Some(255),
            ..SessionContext::default()
        };
        let changed = with_collations(text.as_bytes(), &context, &map.expect("valid"));
        changed.map_or(text.to_owned(), |text| String::from_utf8(text).expect("UTF-8"))
    }

    #[test]
    fn named_collations_are_replaced_and_nothing_else() {
        for (text, expected) in [
            (
                "CREATE TABLE t (a CHAR(1) COLLATE utf8mb4_0900_ai_ci, b TEXT COLLATE 'UTF8MB4_0900_BIN')",
                "CREATE TABLE t (a CHAR(1) COLLATE utf8mb4_unicode_520_ci, b TEXT COLLATE utf8mb4_bin)",
            ),
            (
                "CREATE TABLE t (a INT) DEFAULT CHARSET=utf8mb4 COLLATE=`utf8mb4_0900_ai_ci`",
                "CREATE TABLE t (a INT) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_520_ci",
            ),
            (
                "CREATE VIEW v AS SELECT a COLLATE utf8mb4_0900_bin FROM t",
                "CREATE VIEW v AS SELECT a COLLATE utf8mb4_bin FROM t",
            ),
        ] {
            assert_eq!(mapped(text), expected);
        }
        for text in [
            "ALTER TABLE t COMMENT 'COLLATE utf8mb4_0900_ai_ci'",
            "ALTER TABLE t ADD `COLLATE utf8mb4_0900_ai_ci` INT",
            "ALTER TABLE t ADD utf8mb4_0900_ai_ci INT /* COLLATE utf8mb4_0900_ai_ci */",
            "CREATE TABLE t (a CHAR(1) COLLATE utf8mb4_general_ci)",
            "CREATE TABLE t (a CHAR(1) CHARACTER SET latin1)",
            "CREATE TABLE t (a INT) -- COLLATE utf8mb4_0900_ai_ci",
        ] {
            assert_eq!(mapped(text), text);
        }
    }

    #[test]
    fn implied_collations_are_named() {
        const C: &str = "COLLATE utf8mb4_unicode_520_ci";
        for (text, expected) in [
            ("CREATE DATABASE d", format!("CREATE DATABASE d {C}")),
            (
                "CREATE DATABASE IF NOT EXISTS `d` /*!80016 DEFAULT ENCRYPTION='N' */",
                format!("CREATE DATABASE IF NOT EXISTS `d` {C} /*!80016 DEFAULT ENCRYPTION='N' */"),
            ),
            (
                "CREATE SCHEMA d DEFAULT CHARSET = utf8mb4",
                format!("CREATE SCHEMA d DEFAULT CHARSET = utf8mb4 {C}"),
            ),
            (
                "ALTER DATABASE d CHARACTER SET 'utf8mb4'",
                format!("ALTER DATABASE d CHARACTER SET 'utf8mb4' {C}"),
            ),
            (
                "CREATE TABLE t (a TEXT CHARSET utf8mb4, b TEXT CHARSET utf8mb4 NOT NULL, c INT) CHARSET=utf8mb4",
                format!(
                    "CREATE TABLE t (a TEXT CHARSET utf8mb4 {C}, b TEXT CHARSET utf8mb4 {C} NOT NULL, c INT) \
                     CHARSET=utf8mb4 {C}"
                ),
            ),
            (
                "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, ADD b TEXT CHARSET utf8mb4 COLLATE utf8mb4_bin",
                format!(
                    "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 {C}, ADD b TEXT CHARSET utf8mb4 COLLATE \
                     utf8mb4_bin"
                ),
            ),
            // No COLLATE can stand in a CAST; the statement is objected to afterwards.
            (
                "CREATE TABLE t (a TEXT, b INT AS (CAST(a AS CHAR(9) CHARSET utf8mb4)))",
                "CREATE TABLE t (a TEXT, b INT AS (CAST(a AS CHAR(9) CHARSET utf8mb4)))".to_owned(),
            ),
        ] {
            assert_eq!(mapped(text), expected);
        }
        for text in
            ["CREATE DATABASE d CHARSET latin1", "ALTER DATABASE d READ ONLY=1", "DROP TABLE t"]
        {
            assert_eq!(mapped(text), text);
        }
    }
}
