//! A statement's words, as far as names in it have to be found.

use std::borrow::Cow;

use csa_provider::SessionContext;

/// One word of a statement. Comments, and the host of an account, are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, a number, or a name without quotes.
    Word(&'a [u8]),
    /// A name in quotes, without them.
    Quoted(Cow<'a, [u8]>),
    /// A string; what it says does not matter.
    Text,
    Symbol(u8),
}

/// What of a session decides how its statements are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lexing {
    ansi_quotes: bool,
    backslash_escapes: bool,
    charset: Charset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf8,
    /// ASCII bytes are ASCII characters.
    OverAscii,
    /// A byte that looks like a quote may be half a character.
    Other,
}

const ANSI_QUOTES: u64 = 1 << 2;
const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;

impl Lexing {
    pub(super) fn of(context: &SessionContext) -> Self {
        let sql_mode = context.sql_mode.unwrap_or(0);
        Self {
            ansi_quotes: sql_mode & ANSI_QUOTES != 0,
            backslash_escapes: sql_mode & NO_BACKSLASH_ESCAPES == 0,
            charset: Charset::of(context.charset.map(|charset| charset.client)),
        }
    }

    /// The statement's words; `None` where they can't be told.
    pub(super) fn tokens<'a>(&self, statement: &'a [u8]) -> Option<Vec<Token<'a>>> {
        if self.charset == Charset::Other && !statement.is_ascii() {
            return None;
        }
        let mut lexer = Lexer { rest: statement, lexing: *self };
        let mut tokens = Vec::new();
        loop {
            match lexer.token() {
                Ok(Some(token)) => tokens.push(token),
                Ok(None) => return Some(tokens),
                Err(Unclosed) => return None,
            }
        }
    }

    /// A name as text; `None` where its character set is not known.
    pub(super) fn name(&self, bytes: &[u8]) -> Option<String> {
        match bytes.is_ascii() || self.charset == Charset::Utf8 {
            true => String::from_utf8(bytes.to_vec()).ok(),
            false => None,
        }
    }
}

impl Charset {
    /// By the number of one of its collations.
    fn of(collation: Option<u16>) -> Self {
        match collation {
            // Binary is what the server takes for its own, which is UTF-8.
            Some(33 | 45 | 46 | 63 | 76 | 83 | 192..=247 | 255..) => Self::Utf8,
            // big5, swe7, sjis, gbk, cp932, gb18030.
            Some(1 | 10 | 13 | 28 | 82 | 84 | 87 | 88 | 95 | 96 | 248..=250) => Self::Other,
            _ => Self::OverAscii,
        }
    }
}

/// Quotes or a comment that do not end.
struct Unclosed;

struct Lexer<'a> {
    rest: &'a [u8],
    lexing: Lexing,
}

impl<'a> Lexer<'a> {
    fn token(&mut self) -> Result<Option<Token<'a>>, Unclosed> {
        self.skip_blank()?;
        let Some(&first) = self.rest.first() else { return Ok(None) };
        Ok(Some(match first {
            b'`' => Token::Quoted(self.quoted(false)?),
            b'"' if self.lexing.ansi_quotes => Token::Quoted(self.quoted(false)?),
            b'\'' | b'"' => {
                self.quoted(self.lexing.backslash_escapes)?;
                Token::Text
            }
            b'@' => {
                self.skip(1);
                self.host()?;
                Token::Symbol(b'@')
            }
            _ if is_word(first) => Token::Word(self.run(is_word)),
            other => {
                self.skip(1);
                Token::Symbol(other)
            }
        }))
    }

    /// Behind an `@`: a host or the name of a variable, with dots in it.
    fn host(&mut self) -> Result<(), Unclosed> {
        match self.rest.first() {
            Some(b'\'' | b'"') => drop(self.quoted(self.lexing.backslash_escapes)?),
            Some(b'`') => drop(self.quoted(false)?),
            _ => drop(self.run(|byte| is_word(byte) || byte == b'.')),
        }
        Ok(())
    }

    fn skip(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
    }

    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.rest.iter().take_while(|byte| belongs(**byte)).count();
        let (run, rest) = self.rest.split_at_checked(len).unwrap_or_default();
        self.rest = rest;
        run
    }

    /// What is between the quotes that the rest begins with; a doubled quote stands for itself.
    fn quoted(&mut self, escapes: bool) -> Result<Cow<'a, [u8]>, Unclosed> {
        let Some((&quote, text)) = self.rest.split_first() else { return Err(Unclosed) };
        let mut at = 0;
        let mut doubled = false;
        loop {
            let &byte = text.get(at).ok_or(Unclosed)?;
            if escapes && byte == b'\\' {
                at += 2;
            } else if byte != quote {
                at += 1;
            } else if text.get(at + 1) == Some(&quote) {
                doubled = true;
                at += 2;
            } else {
                break;
            }
        }
        let (inside, rest) = text.split_at_checked(at).ok_or(Unclosed)?;
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(match doubled {
            true => without_doubles(inside, quote).into(),
            false => inside.into(),
        })
    }

    /// Skips white space and comments; the contents of version comments count.
    fn skip_blank(&mut self) -> Result<(), Unclosed> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if self.rest.starts_with(b"/*!") {
                self.skip(3);
                let digits = self.rest.iter().take(6).take_while(|b| b.is_ascii_digit()).count();
                self.skip(digits);
            } else if self.rest.starts_with(b"/*") {
                let end = self.rest.windows(2).skip(2).position(|pair| pair == b"*/");
                self.skip(end.ok_or(Unclosed)? + 4);
            } else if self.rest.starts_with(b"*/") {
                self.skip(2);
            } else if self.is_line_comment() {
                let end = self.rest.iter().position(|&byte| byte == b'\n');
                self.skip(end.unwrap_or(self.rest.len()));
            } else {
                return Ok(());
            }
        }
    }

    fn is_line_comment(&self) -> bool {
        match self.rest {
            [b'#', ..] | [b'-', b'-'] => true,
            [b'-', b'-', next, ..] => *next <= b' ',
            _ => false,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_$".contains(&byte) || !byte.is_ascii()
}

fn without_doubles(text: &[u8], quote: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        out.push(byte);
        if byte == quote {
            bytes.next();
        }
    }
    out
}
