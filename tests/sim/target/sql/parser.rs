//! Tokens of one statement, with a place among them.

use csa_provider::sql_text::{Dialect, Lexer, TokenKind};

use super::super::state::TableName;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// A name in backticks, or after a dot.
    Name(String),
    Text(String),
    Symbol(u8),
}

/// A method that returns `None` (or false) has read nothing; so a caller may try another way.
pub(super) struct Parser<'a> {
    text: &'a str,
    /// Schema of names without one.
    pub(super) database: String,
    tokens: Vec<Token>,
    at: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, database: &str) -> Self {
        let lexed = Lexer::new(text.as_bytes(), Dialect::default());
        let tokens = lexed.map(|token| {
            let token = token.unwrap_or_else(|error| panic!("{error}: {text}"));
            let text = String::from_utf8_lossy(token.text).into_owned();
            match token.kind {
                TokenKind::Word | TokenKind::Host => Token::Word(text),
                TokenKind::Member => Token::Name(text),
                TokenKind::QuotedName => Token::Name(text.trim_matches('`').to_owned()),
                TokenKind::Text => Token::Text(unquoted(&text)),
                TokenKind::Symbol(symbol) => Token::Symbol(symbol),
            }
        });
        Self { text, database: database.to_owned(), tokens: tokens.collect(), at: 0 }
    }

    pub(super) fn whole(&self) -> &'a str {
        self.text
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    pub(super) fn skip_all(&mut self) {
        self.at = self.tokens.len();
    }

    /// Reads by `read`, or nothing.
    pub(super) fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = before;
        }
        found
    }

    fn next<T>(&mut self, wanted: impl FnOnce(&Token) -> Option<T>) -> Option<T> {
        let found = wanted(self.tokens.get(self.at)?)?;
        self.at += 1;
        Some(found)
    }

    /// Returns any word.
    pub(super) fn word(&mut self) -> Option<String> {
        self.next(|token| match token {
            Token::Word(word) => Some(word.clone()),
            _ => None,
        })
    }

    pub(super) fn has(&mut self, word: &str) -> bool {
        let is_it = |token: &Token| match token {
            Token::Word(found) | Token::Name(found) => found.eq_ignore_ascii_case(word),
            _ => false,
        };
        self.next(|token| is_it(token).then_some(())).is_some()
    }

    pub(super) fn words(&mut self, words: &[&str]) -> Option<()> {
        self.attempt(|parser| words.iter().all(|word| parser.has(word)).then_some(()))
    }

    pub(super) fn symbol(&mut self, symbol: u8) -> Option<()> {
        self.next(|token| (*token == Token::Symbol(symbol)).then_some(()))
    }

    pub(super) fn name(&mut self) -> Option<String> {
        self.next(|token| match token {
            Token::Word(name) | Token::Name(name) => Some(name.clone()),
            _ => None,
        })
    }

    pub(super) fn text(&mut self) -> Option<String> {
        self.next(|token| match token {
            Token::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    pub(super) fn number(&mut self) -> Option<i64> {
        self.attempt(|parser| {
            let is_negative = parser.symbol(b'-').is_some();
            let number: i64 = parser.word()?.parse().ok()?;
            Some(if is_negative { -number } else { number })
        })
    }

    pub(super) fn unsigned(&mut self) -> Option<u64> {
        self.attempt(|parser| parser.word()?.parse().ok())
    }

    /// Returns the digits of a number that is no `i64`.
    pub(super) fn large_number(&mut self) -> Option<String> {
        self.attempt(|parser| parser.word().filter(|word| word.parse::<u64>().is_ok()))
    }

    /// Returns `schema.table`, or a table of the default database.
    pub(super) fn table(&mut self) -> Option<TableName> {
        let first = self.name()?;
        match self.symbol(b'.') {
            Some(()) => Some((first, self.name()?)),
            None => Some((self.database.clone(), first)),
        }
    }

    /// At least one item, with commas between them.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.symbol(b',').is_some() {
            items.push(item(self)?);
        }
        Some(items)
    }

    pub(super) fn in_parentheses<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.attempt(|parser| {
            parser.symbol(b'(')?;
            let items = parser.list(item)?;
            parser.symbol(b')')?;
            Some(items)
        })
    }

    /// Skips everything up to a comma or the closing parenthesis, at the present depth.
    pub(super) fn skip_item(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Symbol(b'(') => depth += 1,
                Token::Symbol(b')' | b',') if depth == 0 => return,
                Token::Symbol(b')') => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }
}

fn unquoted(literal: &str) -> String {
    let inside = literal.get(1..literal.len() - 1).expect("quotes");
    let (mut text, mut chars) = (String::new(), inside.chars());
    while let Some(next) = chars.next() {
        match next {
            // Doubled, or escaped; `\0` is the only one with another meaning that is ever sent.
            '\'' => text.extend(chars.next()),
            '\\' => text.extend(chars.next().map(|escaped| match escaped {
                '0' => '\0',
                other => other,
            })),
            other => text.push(other),
        }
    }
    text
}

/// The assignments of a SET, as text without quotes.
pub(super) fn assignments(text: &str) -> Vec<(String, String)> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in executed(text).chars() {
        quoted ^= c == '\'';
        match (c, parts.last_mut()) {
            (',', _) if !quoted => parts.push(String::new()),
            (c, Some(part)) => part.push(c),
            (_, None) => {}
        }
    }
    let read = |part: &String| {
        let (name, value) = part.split_once('=').unwrap_or_else(|| panic!("SET SESSION {text}"));
        let value = value.trim().trim_start_matches("_utf8mb4").trim_matches('\'');
        (name.trim().to_ascii_lowercase(), value.to_owned())
    };
    parts.iter().map(read).collect()
}

/// The text with what is in version comments: the simulated server is newer than all of them.
fn executed(text: &str) -> String {
    let (first, comments) = text.split_once("/*!").unwrap_or((text, ""));
    let versions = |c: char| c.is_ascii_digit();
    let comments = comments.split("/*!").map(|part| part.trim_start_matches(versions));
    std::iter::once(first).chain(comments).collect::<String>().replace("*/", "")
}
