//! Collations that a statement leaves to the server. Pure.

use csa_provider::{Dialect, SessionContext, Token, TokenKind};

use super::tokens::Tokens;

/// The number of a collation that a CREATE or ALTER of a database or table takes from the defaults of
/// the source's session without naming it. The default of a table's database does not count: the target
/// has the same database.
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
    (kind.is("TABLE") && leaves_utf8mb4_open(&tokens, creates)).then_some(of_utf8mb4).flatten()
}

/// Character set and collation clauses of one column or option list.
#[derive(Debug, Default, Clone, Copy)]
struct Said {
    utf8mb4: bool,
    collation: bool,
}

impl Said {
    fn is_open(self) -> bool {
        self.utf8mb4 && !self.collation
    }
}

/// True if some CHARACTER SET utf8mb4 has no COLLATE that belongs to it.
fn leaves_utf8mb4_open(tokens: &[Token<'_>], creates: bool) -> bool {
    let mut open = vec![Said::default()];
    let mut found = false;
    for (at, token) in tokens.iter().enumerate() {
        let depth = open.len();
        let Some(said) = open.last_mut() else { return true };
        match token.kind {
            TokenKind::Symbol(b'(') => open.push(Said::default()),
            TokenKind::Symbol(b')') => {
                found |= said.is_open();
                if depth > 1 {
                    open.pop();
                }
            }
            // Options of a new table may have commas between them.
            TokenKind::Symbol(b',') if depth > 1 || !creates => {
                found |= said.is_open();
                *said = Said::default();
            }
            _ if token.is("COLLATE") => said.collation = true,
            _ => {
                let charset = charset_at(tokens, at).and_then(|at| tokens.get(at));
                said.utf8mb4 |= is_utf8mb4(charset);
            }
        }
    }
    found || open.into_iter().any(Said::is_open)
}

/// The place of the name after CHARSET or CHARACTER SET, if that is at `at`.
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
    let name = token.map_or(&[][..], |token| token.text);
    let name: Vec<u8> = name.iter().copied().filter(|byte| !b"'\"`".contains(byte)).collect();
    name.eq_ignore_ascii_case(b"utf8mb4")
}
