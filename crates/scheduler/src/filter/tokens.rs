//! A statement's words, as far as names in it have to be found.

use csa_provider::{Dialect, Lexer, Token};

/// The statement's words; `None` where quotes or a comment do not end. What stands right after an `@`
/// is left out: a host or a variable names no object.
pub(super) fn tokens(statement: &[u8], dialect: Dialect) -> Option<Vec<Token<'_>>> {
    let (tokens, whole) = read(statement, dialect);
    whole.then_some(tokens)
}

/// The words that the statement begins with, as far as they can be told.
pub(super) fn leading(statement: &[u8], dialect: Dialect) -> Vec<Token<'_>> {
    read(statement, dialect).0
}

fn read(statement: &[u8], dialect: Dialect) -> (Vec<Token<'_>>, bool) {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut at_sign = None;
    for token in Lexer::new(statement, dialect) {
        let Ok(token) = token else { return (tokens, false) };
        let is_at = token.is_symbol(b'@');
        if is_at || at_sign != Some(token.start) {
            tokens.push(token);
        }
        at_sign = is_at.then_some(token.range().end);
    }
    (tokens, true)
}
