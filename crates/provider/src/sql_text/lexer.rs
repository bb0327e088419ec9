//! Splits a statement into tokens with their places.

use std::ops::Range;

use super::Dialect;

/// One token of a statement. Comments and white space are not tokens; the contents of version
/// comments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: TokenKind,
    /// As written, including quotes.
    pub text: &'a [u8],
    /// Its offset in the statement.
    pub start: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword, a number, or a name without quotes.
    Word,
    /// A name without quotes right after a dot: never a keyword.
    Member,
    QuotedName,
    /// A string of any kind: in quotes, hexadecimal, national, dollar-quoted.
    Text,
    /// A host or the name of a variable, without quotes, right after an `@`.
    Host,
    Symbol(u8),
}

impl Token<'_> {
    #[must_use]
    pub fn is(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word.as_bytes())
    }

    #[must_use]
    pub fn is_symbol(&self, symbol: u8) -> bool {
        self.kind == TokenKind::Symbol(symbol)
    }

    /// Its place in the statement.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }
}

/// Quotes or a comment that do not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has an unclosed quote or comment")]
pub struct Unclosed;

/// A comment that some servers execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialComment {
    /// `/*M!`, which MySQL skips; otherwise `/*!`, with contents that are tokens.
    pub mariadb_only: bool,
    /// The place of everything between its marks, including a version.
    pub inside: Range<usize>,
    /// The number of digits of the version with which it begins; 0 if MySQL reads none.
    pub digits: usize,
}

/// Cuts a statement into tokens. An error is the last item.
#[derive(Debug, Clone)]
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    dialect: Dialect,
    /// Inside `/*! … */`, which does not nest: the first `*/` ends it.
    in_version_comment: bool,
    after_at: bool,
    after_dot: bool,
    after_as: bool,
    /// The server has no text between dollars: it took a statement in which one would not end.
    dollars_are_names: bool,
    comments: Vec<SpecialComment>,
    failed: bool,
}

impl<'a> Lexer<'a> {
    #[must_use]
    pub fn new(text: &'a [u8], dialect: Dialect) -> Self {
        Self {
            text,
            at: 0,
            dialect,
            in_version_comment: false,
            after_at: false,
            after_dot: false,
            after_as: false,
            dollars_are_names: false,
            comments: Vec::new(),
            failed: false,
        }
    }

    /// Returns all comments so far that some servers execute.
    #[must_use]
    pub fn special_comments(&self) -> &[SpecialComment] {
        &self.comments
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn token(&mut self) -> Result<Option<Token<'a>>, Unclosed> {
        let after_at = std::mem::take(&mut self.after_at);
        let after_dot = std::mem::take(&mut self.after_dot);
        let after_as = std::mem::take(&mut self.after_as);
        if after_at && let len @ 1.. = self.run(|byte| byte == b'.') {
            return Ok(Some(self.take(TokenKind::Host, len)));
        }
        let before = self.at;
        self.skip_blank()?;
        let after_dot = after_dot && self.at == before;
        let rest = self.rest();
        let Some(&first) = rest.first() else { return Ok(None) };
        let dollars = match after_as && first == b'$' {
            true => self.between_dollars(rest),
            false => None,
        };
        let (kind, len) = match first {
            b'`' => (TokenKind::QuotedName, self.quoted(rest, false)?),
            b'"' if self.dialect.ansi_quotes => (TokenKind::QuotedName, self.quoted(rest, false)?),
            b'\'' | b'"' => (TokenKind::Text, self.quoted(rest, self.dialect.backslash_escapes)?),
            b'$' if let Some(len) = dollars => (TokenKind::Text, len),
            b'n' | b'N' | b'x' | b'X' | b'b' | b'B'
                if !after_dot && rest.get(1) == Some(&b'\'') =>
            {
                let string = rest.get(1..).unwrap_or_default();
                (TokenKind::Text, 1 + self.quoted(string, self.dialect.backslash_escapes)?)
            }
            _ => match self.run(|_| false) {
                0 => (TokenKind::Symbol(first), 1),
                len if after_dot => (TokenKind::Member, len),
                len => (TokenKind::Word, len),
            },
        };
        // The second of two `@` begins the name of a system variable, which is not a host.
        self.after_at = first == b'@' && rest.get(1) != Some(&b'@') && !self.is_second_at();
        self.after_dot = first == b'.';
        let token = self.take(kind, len);
        self.after_as = token.is("AS");
        Ok(Some(token))
    }

    fn is_second_at(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.text.get(at));
        before == Some(&b'@')
    }

    fn take(&mut self, kind: TokenKind, len: usize) -> Token<'a> {
        let (start, text) = (self.at, self.rest());
        self.at += len;
        Token { kind, text: text.get(..len).unwrap_or(text), start }
    }

    /// Returns the bytes of the characters that may be in a name, or for which `belong` is true.
    fn run(&self, belong: impl Fn(u8) -> bool) -> usize {
        let rest = self.rest();
        let charset = self.dialect.charset;
        let mut at = 0;
        while let Some(&byte) = rest.get(at)
            && (charset.is_name(byte) || belong(byte))
            && !charset.is_space(byte)
        {
            at += charset.character(rest.get(at..).unwrap_or_default());
        }
        at.min(rest.len())
    }

    /// Returns the bytes up to and including the closing quote of the string at the start of the
    /// text. A doubled quote belongs to the string, and so does any byte after a backslash, even
    /// half a character.
    fn quoted(&self, text: &[u8], escapes: bool) -> Result<usize, Unclosed> {
        let &quote = text.first().ok_or(Unclosed)?;
        let mut at = 1;
        loop {
            let rest = text.get(at..).ok_or(Unclosed)?;
            let &byte = rest.first().ok_or(Unclosed)?;
            at += match self.dialect.charset.character(rest) {
                1 if byte == b'\\' && escapes => 2,
                1 if byte == quote && rest.get(1) == Some(&quote) => 2,
                1 if byte == quote => return Ok(at + 1),
                len => len,
            };
        }
    }

    /// Returns the bytes of `$$ … $$` or `$tag$ … $tag$`, which servers since 9.0 take as a routine's body only, after AS.
    /// Without an end it is a name, as for older servers. It is searched for once: a statement may have any number of names.
    fn between_dollars(&mut self, text: &[u8]) -> Option<usize> {
        if self.dollars_are_names {
            return None;
        }
        let charset = self.dialect.charset;
        let mut tag = 1;
        while let Some(&byte) = text.get(tag)
            && byte != b'$'
            && charset.is_name(byte)
            && !charset.is_space(byte)
        {
            tag += charset.character(text.get(tag..).unwrap_or_default());
        }
        if text.get(tag) != Some(&b'$') {
            return None;
        }
        let (mark, rest) = text.split_at_checked(tag + 1)?;
        let end = rest.windows(mark.len()).position(|bytes| bytes == mark);
        self.dollars_are_names = end.is_none();
        Some(mark.len() * 2 + end?)
    }

    fn skip_blank(&mut self) -> Result<(), Unclosed> {
        let charset = self.dialect.charset;
        loop {
            let rest = self.rest();
            self.at += match rest {
                [byte, ..] if charset.is_space(*byte) => 1,
                [b'/', b'*', b'!', inside @ ..] => {
                    self.in_version_comment = true;
                    let start = self.at + 3;
                    let place = start..self.text.len();
                    let digits = version_digits(inside, |byte| charset.is_space(byte));
                    self.comments.push(SpecialComment {
                        mariadb_only: false,
                        inside: place,
                        digits,
                    });
                    3 + digits
                }
                [b'/', b'*', inside @ ..] => {
                    let end = inside.windows(2).position(|pair| pair == b"*/").ok_or(Unclosed)?;
                    if inside.starts_with(b"M!") {
                        let place = self.at + 4..self.at + 2 + end.max(2);
                        self.comments.push(SpecialComment {
                            mariadb_only: true,
                            inside: place,
                            digits: 0,
                        });
                    }
                    end + 4
                }
                [b'*', b'/', ..] if self.in_version_comment => {
                    self.in_version_comment = false;
                    let open = self.comments.iter_mut().rev().find(|comment| !comment.mariadb_only);
                    if let Some(comment) = open {
                        comment.inside.end = self.at;
                    }
                    2
                }
                [b'#', ..] => line(rest),
                [b'-', b'-'] => 2,
                [b'-', b'-', next, ..] if charset.ends_dashes(*next) => line(rest),
                [] if self.in_version_comment => return Err(Unclosed),
                _ => return Ok(()),
            };
        }
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Result<Token<'a>, Unclosed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let token = self.token().transpose();
        self.failed = !matches!(token, Some(Ok(_)));
        token
    }
}

/// Returns the bytes of a line comment.
fn line(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
}

/// Six digits count as a version if white space follows, otherwise five do; fewer are contents.
fn version_digits(inside: &[u8], is_space: impl Fn(u8) -> bool) -> usize {
    let digits = inside.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
    match digits {
        6 if inside.get(6).is_some_and(|byte| is_space(*byte)) => 6,
        5 | 6 => 5,
        _ => 0,
    }
}
