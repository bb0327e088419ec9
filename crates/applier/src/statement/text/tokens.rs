//! A statement as tokens.

use csa_provider::sql_text::{Dialect, Lexer, SpecialComment, Token, Unclosed};

/// A statement's tokens, up to a quote or comment that is not closed.
pub(super) struct Tokens<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    pub(super) comments: Vec<SpecialComment>,
    pub(super) whole: Result<(), Unclosed>,
}

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a [u8], dialect: Dialect) -> Self {
        let mut lexer = Lexer::new(text, dialect);
        let mut whole = Ok(());
        let tokens =
            lexer.by_ref().map_while(|token| token.map_err(|unclosed| whole = Err(unclosed)).ok());
        let tokens = tokens.collect();
        Self { tokens, comments: lexer.special_comments().to_vec(), whole }
    }

    /// Returns true for CREATE TABLE and ALTER TABLE.
    pub(super) fn define_table(&self) -> bool {
        let mut words = self.tokens.iter().filter(|token| !token.is("TEMPORARY"));
        let verb = words.next().is_some_and(|first| first.is("CREATE") || first.is("ALTER"));
        verb && words.next().is_some_and(|kind| kind.is("TABLE"))
    }
}
