//! The text of statements, split into words like the server's own lexer (sql/sql_lex.cc). Pure.
//!
//! Everything that looks into a statement uses this module: two lexers that disagree about the end
//! of a comment or a string would see two different statements.

mod charset;
mod lexer;
mod quote;
mod statement;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use charset::ClientCharset;
pub use lexer::{Lexer, SpecialComment, Token, TokenKind, Unclosed};
pub use quote::{identifier, quote, quoted_name};
pub use statement::{Statement, XaVerb, emptied_schema};

use crate::binlog::event::SessionContext;

/// `sql_mode` bits (sql/system_variables.h).
const ANSI_QUOTES: u64 = 1 << 2;
const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;
/// Words that show the kind of a statement, without names and values.
const FIRST_WORDS: usize = 2;

/// The session settings that determine how the text of its statements is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    ansi_quotes: bool,
    backslash_escapes: bool,
    charset: ClientCharset,
}

impl Default for Dialect {
    /// Returns the dialect of a session with default settings, in UTF-8.
    fn default() -> Self {
        Self { ansi_quotes: false, backslash_escapes: true, charset: ClientCharset::Utf8 }
    }
}

impl Dialect {
    #[must_use]
    pub fn of(context: &SessionContext) -> Self {
        let sql_mode = context.sql_mode.unwrap_or(0);
        Self {
            ansi_quotes: sql_mode & ANSI_QUOTES != 0,
            backslash_escapes: sql_mode & NO_BACKSLASH_ESCAPES == 0,
            charset: ClientCharset::of(context.charset.map(|charset| charset.client)),
        }
    }

    /// Returns a dialect for text in UTF-8 with names and without strings: either kind of quotes
    /// encloses a name.
    #[must_use]
    pub fn of_names() -> Self {
        Self { ansi_quotes: true, ..Self::default() }
    }

    fn in_utf8(self) -> Self {
        Self { charset: ClientCharset::Utf8, ..self }
    }

    /// Returns true if the text of the session is UTF-8.
    #[must_use]
    pub fn is_utf8(&self) -> bool {
        self.charset == ClientCharset::Utf8
    }

    /// Returns the name that a token is; `None` if it is not a name, or if its character set can't
    /// be decoded here.
    #[must_use]
    pub fn name(&self, token: &Token<'_>) -> Option<String> {
        let name = self.name_bytes(token)?;
        match self.charset.is_ascii(&name) || self.is_utf8() {
            true => String::from_utf8(name.into_owned()).ok(),
            false => None,
        }
    }

    fn name_bytes<'a>(&self, token: &Token<'a>) -> Option<Cow<'a, [u8]>> {
        match token.kind {
            TokenKind::Word | TokenKind::Member => Some(token.text.into()),
            TokenKind::QuotedName => Some(self.without_quotes(token.text)),
            TokenKind::Text | TokenKind::Host | TokenKind::Symbol(_) => None,
        }
    }

    /// Returns the name without its quotes. A doubled quote is a single one, unless its byte is
    /// half of another character.
    fn without_quotes<'a>(&self, quoted: &'a [u8]) -> Cow<'a, [u8]> {
        let Some((&quote, rest)) = quoted.split_first() else { return quoted.into() };
        let inside = rest.split_last().map_or(rest, |(_, inside)| inside);
        if !inside.contains(&quote) {
            return inside.into();
        }
        let mut name = Vec::with_capacity(inside.len());
        let mut rest = inside;
        while let Some(&first) = rest.first() {
            let len = self.charset.character(rest);
            let (character, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            name.extend_from_slice(character);
            rest = after;
            if first == quote {
                rest = rest.strip_prefix(&[quote]).unwrap_or(rest);
            }
        }
        name.into()
    }
}

/// The first words of a statement in upper case: its kind, without names and values.
#[must_use]
pub fn first_words(text: &[u8], dialect: Dialect) -> String {
    let is_word = |token: &Token<'_>| {
        token.kind == TokenKind::Word
            && token.text.iter().all(|b| b.is_ascii_alphabetic() || *b == b'_')
    };
    let words = Lexer::new(text, dialect)
        .map_while(Result::ok)
        .skip_while(|token| token.is_symbol(b'('))
        .take(FIRST_WORDS)
        .take_while(is_word)
        .map(|token| String::from_utf8_lossy(token.text).to_uppercase());
    words.collect::<Vec<_>>().join(" ")
}
