//! Splits a statement into words, as far as finding names requires it.

use csa_provider::sql_text::{Dialect, Lexer, Token};

/// Returns the statement's words; `None` if quotes or a comment do not end. A word right after an
/// `@` is left out: a host or a variable names no object.
pub(super) fn tokens(statement: &[u8], dialect: Dialect) -> Option<Vec<Token<'_>>> {
    let (tokens, whole) = read(statement, dialect);
    whole.then_some(tokens)
}

/// The words at the beginning of the statement, as far as they can be read.
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
