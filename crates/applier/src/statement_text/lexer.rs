//! Words, quoted texts and symbols of a statement, with their places.

use std::ops::Range;

use csa_provider::SessionContext;

/// `sql_mode` bit NO_BACKSLASH_ESCAPES (sql/system_variables.h).
const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;

/// One piece of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind<'a>,
    pub(super) range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind<'a> {
    Word(&'a [u8]),
    Quoted,
    Symbol(u8),
}

impl Token<'_> {
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self.kind, TokenKind::Word(text) if text.eq_ignore_ascii_case(word.as_bytes()))
    }

    pub(super) fn is_symbol(&self, symbol: u8) -> bool {
        self.kind == TokenKind::Symbol(symbol)
    }
}

/// Cuts a statement into tokens; comments and white space are left out, the contents of version
/// comments are not.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    encoding: Encoding,
    backslash_escapes: bool,
}

/// How many bytes a character has whose second one may look like ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// No byte of a character but ASCII looks like ASCII.
    Plain,
    /// big5, gbk, gb18030: two bytes (the other two of four are digits, or the same again).
    Double,
    /// sjis, cp932: two bytes but for half-width kana.
    Japanese,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a [u8], context: &SessionContext) -> Self {
        let encoding = match context.charset.map(|charset| charset.client) {
            Some(1 | 84 | 28 | 87 | 248..=250) => Encoding::Double,
            Some(13 | 88 | 95 | 96) => Encoding::Japanese,
            _ => Encoding::Plain,
        };
        let backslash_escapes = context.sql_mode.unwrap_or(0) & NO_BACKSLASH_ESCAPES == 0;
        Self { text, at: 0, encoding, backslash_escapes }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_ascii_start().len();
            let rest = rest.get(blank..).unwrap_or_default();
            self.at += blank;
            let skipped = if let Some(version) = rest.strip_prefix(b"/*!") {
                3 + version.iter().take_while(|byte| byte.is_ascii_digit()).count()
            } else if rest.starts_with(b"*/") {
                2
            } else if let Some(comment) = rest.strip_prefix(b"/*") {
                let end = comment.windows(2).position(|pair| pair == b"*/");
                end.map_or(rest.len(), |end| end + 4)
            } else if is_line_comment(rest) {
                rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
            } else {
                return;
            };
            self.at += skipped;
        }
    }

    /// Bytes of the character at the start of `rest`.
    fn character(&self, rest: &[u8]) -> usize {
        match (self.encoding, rest.first()) {
            (Encoding::Double, Some(0x81..=0xfe))
            | (Encoding::Japanese, Some(0x81..=0x9f | 0xe0..=0xfc)) => 2,
            _ => 1,
        }
    }

    /// Bytes up to and including the closing quote; a doubled quote is one of the text.
    fn quoted(&self, quote: u8) -> usize {
        let rest = self.rest();
        let mut at = 1;
        while let Some(&byte) = rest.get(at) {
            if byte == quote {
                if rest.get(at + 1) != Some(&quote) {
                    return at + 1;
                }
                at += 2;
            } else if byte == b'\\' && quote != b'`' && self.backslash_escapes {
                at += 1 + self.character(rest.get(at + 1..).unwrap_or_default());
            } else {
                at += self.character(rest.get(at..).unwrap_or_default());
            }
        }
        rest.len()
    }

    fn word(&self) -> usize {
        let rest = self.rest();
        let mut at = 0;
        while let Some(&byte) = rest.get(at)
            && (byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80)
        {
            at += self.character(rest.get(at..).unwrap_or_default());
        }
        at.min(rest.len())
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_blank();
        let rest = self.rest();
        let first = *rest.first()?;
        let (kind, len) = match first {
            // Under ANSI_QUOTES a double quote encloses a name: quoted all the same.
            b'\'' | b'"' | b'`' => (TokenKind::Quoted, self.quoted(first)),
            _ => match self.word() {
                0 => (TokenKind::Symbol(first), 1),
                len => (TokenKind::Word(rest.get(..len).unwrap_or_default()), len),
            },
        };
        let range = self.at..self.at + len;
        self.at = range.end;
        Some(Token { kind, range })
    }
}

fn is_line_comment(rest: &[u8]) -> bool {
    rest.starts_with(b"#")
        || rest.strip_prefix(b"--").is_some_and(|rest| {
            rest.first().is_none_or(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control())
        })
}

/// Whether the statement's character set is utf8mb4 or utf8mb3, by its usual collations.
pub(super) fn is_utf8(context: &SessionContext) -> bool {
    matches!(
        context.charset.map(|charset| charset.client),
        Some(33 | 45 | 46 | 83 | 192..=215 | 224..=247 | 255..=323)
    )
}
