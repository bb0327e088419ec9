use proptest::prelude::*;

use super::*;
use crate::binlog::event::QueryCharset;

fn dialect(sql_mode: u64, client: u16) -> Dialect {
    let charset = QueryCharset { client, connection: client, server: client };
    let (sql_mode, charset) = (Some(sql_mode), Some(charset));
    Dialect::of(&SessionContext { sql_mode, charset, ..SessionContext::default() })
}

fn texts(text: &[u8], dialect: Dialect) -> Vec<Vec<u8>> {
    Lexer::new(text, dialect).map(|token| token.expect("it ends").text.to_vec()).collect()
}

fn shown(text: &str) -> String {
    let tokens = Lexer::new(text.as_bytes(), Dialect::default());
    let shown = tokens.map(|token| match token {
        Ok(token) => String::from_utf8_lossy(token.text).into_owned(),
        Err(Unclosed) => "<unclosed>".to_owned(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn comments_end_where_the_server_ends_them() {
    for (text, expected) in [
        ("a--b", "a - - b"),
        ("a--\tb\nc", "a c"),
        ("a--\nb", "a b"),
        ("a--", "a"),
        ("a#b\nc", "a c"),
        ("a-- b\r\nc", "a c"),
        ("a/**/b/*/ */c", "a b c"),
        ("a/*/", "a <unclosed>"),
        ("2 */* c */ 3", "2 * 3"),
        ("a */ b", "a * / b"),
        ("/*!50110TABLE*/ a", "TABLE a"),
        ("/*!080026 TABLE*/ a", "TABLE a"),
        ("/*!080026TABLE*/ a", "6TABLE a"),
        ("/*!501101 2*/ a", "2 a"),
        ("/*!501101*/ a", "1 a"),
        ("/*!1 +*/ a", "1 + a"),
        ("/*!*/ a", "a"),
        ("/*!50000 a /* in */ b */ c", "a b c"),
        ("/*!50000 a /*!50001 b */ c */", "a b c * /"),
        ("/*!50000 a", "a <unclosed>"),
        ("/*!50000 a -- */\n b */ c", "a b c"),
        ("/*!50000 '*/' */ c", "'*/' c"),
        ("/*M!100100 x */ a", "a"),
        ("/*+ MAX(5) */ a", "a"),
        ("'it''s' \"a\\\"b\" `a``b`", "'it''s' \"a\\\"b\" `a``b`"),
        (
            "N'a' n\"b\" x'61' X\"61\" b'1' _latin1'x'",
            "N'a' n \"b\" x'61' X \"61\" b'1' _latin1 'x'",
        ),
        ("as/**/$$ it's $$ a", "as $$ it's $$ a"),
        ("AS $t1$ $$ $t1 '$t1$ a", "AS $t1$ $$ $t1 '$t1$ a"),
        ("ADD $a$ INT, RENAME TO b, ADD KEY ($a$)", "ADD $a$ INT , RENAME TO b , ADD KEY ( $a$ )"),
        ("AS $a$,'b' AS $b$,'c' AS $b$", "AS $a$ , 'b' AS $b$ , 'c' AS $b$"),
        ("$a, a$b$c $d$", "$a , a$b$c $d$"),
        ("a\u{b}b", "a b"),
        ("'a", "<unclosed>"),
        ("'a\\'", "<unclosed>"),
        ("d.select d .t", "d . select d . t"),
        ("a@10.0.0.1 @@global.x @a:=1", "a @ 10.0.0.1 @ @ global . x @ a : = 1"),
        ("", ""),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

/// Servers before 9.0 have names that look like the begin of a text.
#[test]
fn names_with_dollars_take_no_longer_than_others() {
    let names: Vec<String> = (0..100_000).map(|number| format!("1 AS ${number}$")).collect();
    let text = format!("SELECT {}", names.join(","));
    let begun = std::time::Instant::now();
    assert_eq!(Lexer::new(text.as_bytes(), Dialect::default()).count(), 400_000);
    let taken = begun.elapsed();
    assert!(taken < std::time::Duration::from_secs(5), "{taken:?}");
}

#[test]
fn words_know_whether_they_may_be_keywords() {
    let kinds = |text: &str| -> Vec<TokenKind> {
        let tokens = Lexer::new(text.as_bytes(), Dialect::default());
        tokens.map(|token| token.expect("it ends").kind).collect()
    };
    use TokenKind::{Host, Member, QuotedName, Symbol, Text, Word};
    assert_eq!(kinds("d.current_user"), [Word, Symbol(b'.'), Member]);
    assert_eq!(kinds("d. current_user"), [Word, Symbol(b'.'), Word]);
    assert_eq!(kinds("a@current_user"), [Word, Symbol(b'@'), Host]);
    assert_eq!(kinds("a@ b"), [Word, Symbol(b'@'), Word]);
    assert_eq!(kinds("`a`@'b'"), [QuotedName, Symbol(b'@'), Text]);
    assert_eq!(kinds("@@a"), [Symbol(b'@'), Symbol(b'@'), Word]);
}

#[test]
fn quotes_end_where_the_session_says() {
    let ansi = dialect(ANSI_QUOTES | NO_BACKSLASH_ESCAPES, 255);
    let text = br#""a""b\" '\' "c""#;
    assert_eq!(texts(text, ansi), [&br#""a""b\""#[..], br"'\'", br#""c""#]);
    let name = Lexer::new(text, ansi).next().expect("one").expect("it ends");
    assert_eq!(ansi.name(&name).as_deref(), Some(r#"a"b\"#));
    // A second byte that looks like a backslash or a backtick, or a byte that looks like a quote.
    for (client, text) in [
        (13, &b"`\x83\x60` '\x83\x5c' \x83\x5c"[..]),
        (95, b"`\x83\x60` '\x83\x5c' \x83\x5c"),
        (28, b"`\x81\x60` '\x81\x5c' \x81\x5c"),
        (1, b"`\xa4\x60` '\xa4\x5c' \xa4\x5c"),
        (248, b"`\x81\x60` '\x81\x5c' \x81\x30\x81\x30"),
    ] {
        let found = texts(text, dialect(0, client));
        let expected: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
        assert_eq!(found, expected, "{client}");
    }
    // Not a character: the quote counts. After a backslash, half a character does not.
    assert_eq!(texts(b"'\x81' a", dialect(0, 28)), [&b"'\x81'"[..], b"a"]);
    assert_eq!(texts(b"'\\\x81\x5c' a'", dialect(0, 28)), [&b"'\\\x81\x5c' a'"[..]]);
    // In other character sets these bytes are what they look like.
    assert_eq!(texts(b"'\x83\x5c\x5c' a", dialect(0, 8)), [&b"'\x83\x5c\x5c'"[..], b"a"]);
    // White space that is not ASCII.
    assert_eq!(texts(b"a\xa0b --\xa0c", dialect(0, 8)), [b"a", b"b"]);
    assert_eq!(texts(b"a\xa0b", dialect(0, 51)), [b"a\xa0b"]);
}

#[test]
fn names_are_told_only_where_they_are_decoded() {
    let name = |text: &[u8], dialect: Dialect| {
        dialect.name(&Lexer::new(text, dialect).next().expect("one").expect("it ends"))
    };
    assert_eq!(name("`ü``b`".as_bytes(), Dialect::default()).as_deref(), Some("ü`b"));
    assert_eq!(name(b"abc", dialect(0, 28)).as_deref(), Some("abc"));
    assert_eq!(name(b"`\x81\x60`", dialect(0, 28)), None);
    assert_eq!(name(b"'abc'", Dialect::default()), None);
    // swe7 has letters where ASCII has braces.
    assert_eq!(name(b"a{b}", dialect(0, 10)), None);
    assert_eq!(texts(b"a{b}", dialect(0, 10)), [b"a{b}"]);
    // All collations with text in UTF-8, by number.
    let utf8 = (1..330).filter(|&number| ClientCharset::of(Some(number)) == ClientCharset::Utf8);
    let other = |number: &u16| !matches!(number, 33 | 45 | 46 | 63 | 76 | 83 | 192..=247 | 255..);
    assert_eq!(utf8.filter(other).collect::<Vec<_>>(), Vec::<u16>::new());
    for number in [33, 45, 46, 63, 76, 83, 192, 215, 223, 224, 247, 255, 323, 400] {
        assert_eq!(ClientCharset::of(Some(number)), ClientCharset::Utf8, "{number}");
    }
}

#[test]
fn nothing_but_the_first_words_is_shown() {
    for (text, expected) in [
        ("alter table d.t ADD COLUMN a INT DEFAULT 7", "ALTER TABLE"),
        ("CREATE USER 'a'@'%' IDENTIFIED BY 'secret'", "CREATE USER"),
        ("-- it's secret\n/* secret */ DROP /*!50000 TABLE */ t", "DROP TABLE"),
        ("DO 'secret'", "DO"),
        ("'secret", ""),
        ("", ""),
    ] {
        assert_eq!(first_words(text.as_bytes(), Dialect::default()), expected);
    }
}

const SEPARATORS: [&str; 16] = [
    " ",
    "\n",
    "\t\r\n",
    "\u{b}",
    "/**/",
    "/* it's \"a` */",
    "/* /* */",
    "/***/",
    "-- x'\n",
    "--\n",
    "--\t\"\n",
    "#`\n",
    "/*+ h */",
    "/* 99999 x */",
    "/*M! x */",
    "\n--\u{1}(\n",
];

proptest! {
    /// Whatever the bytes, tokens follow one another within them, in every dialect.
    #[test]
    fn any_bytes_are_cut_in_order(
        text in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\''), Just(b'*'), Just(b'/'),
            Just(b'`'), Just(b'\\'), Just(b'$'), Just(b'-'), Just(b'!'), Just(b'5')], 0..64),
        sql_mode in prop_oneof![Just(0), Just(ANSI_QUOTES), Just(NO_BACKSLASH_ESCAPES)],
        client in 1..330_u16,
    ) {
        let mut at = 0;
        for token in Lexer::new(&text, dialect(sql_mode, client)) {
            let Ok(token) = token else { break };
            prop_assert!(token.start >= at && !token.text.is_empty());
            prop_assert_eq!(&text[token.range()], token.text);
            at = token.range().end;
        }
        prop_assert!(at <= text.len());
    }

    /// Comments between tokens do not change them.
    #[test]
    fn comments_between_tokens_are_nothing(
        picks in proptest::collection::vec((0..9_usize, 0..SEPARATORS.len()), 1..20),
        version in any::<bool>(),
    ) {
        let tokens = ["CREATE", "`a``b`", "'it''s'", "(", ")", ",", "=", "\"x\\\"\"", "1"];
        let mut text = String::new();
        for &(token, separator) in &picks {
            text.push_str(tokens[token]);
            text.push_str(SEPARATORS[separator]);
        }
        if version {
            text = format!("/*!080000\n{text}*/");
        }
        let expected: Vec<&[u8]> = picks.iter().map(|(token, _)| tokens[*token].as_bytes()).collect();
        prop_assert_eq!(texts(text.as_bytes(), Dialect::default()), expected);
    }
}
