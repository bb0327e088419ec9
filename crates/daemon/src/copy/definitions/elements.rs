//! The parts of a text from SHOW CREATE TABLE: columns, indexes and constraints, and the options after them.
//! Pure.

use csa_provider::sql_text::{Dialect, Lexer, Token, TokenKind, Unclosed, identifier};

/// The reason why a text is not one of SHOW CREATE TABLE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error(transparent)]
    Unclosed(#[from] Unclosed),
    #[error("it does not begin with CREATE TABLE, a name and a parenthesis")]
    Head,
    #[error("its list of columns does not end")]
    List,
    #[error("one of its parts is neither a column nor an index nor a constraint")]
    Element,
}

/// Character sets with characters that utf8mb3 lacks.
const WIDE_CHARSETS: [&str; 5] = ["utf8mb4", "utf16", "utf16le", "utf32", "gb18030"];

/// A text from SHOW CREATE TABLE, in pieces.
#[derive(Debug)]
pub(super) struct ShownTable<'a> {
    pub(super) elements: Vec<Element<'a>>,
    /// Everything after the closing parenthesis: options and partitions.
    pub(super) tail: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElementKind {
    Column,
    /// The primary key, or a unique one.
    UniqueKey,
    Index,
    FullTextIndex,
    SpatialIndex,
    ForeignKey,
    Check,
}

/// One column, index or constraint.
#[derive(Debug)]
pub(super) struct Element<'a> {
    pub(super) kind: ElementKind,
    /// The server's text, with the comments that belong to the element.
    pub(super) text: &'a str,
    /// The place of `text` in the whole, which the places of the tokens are relative to.
    start: usize,
    pub(super) tokens: Vec<Token<'a>>,
}

impl<'a> ShownTable<'a> {
    /// Cuts the text at the commas of its outermost parentheses.
    pub(super) fn parse(text: &'a str) -> Result<Self, Unreadable> {
        let mut tokens = Lexer::new(text.as_bytes(), Dialect::default());
        let mut next = || tokens.next().transpose();
        let (create, table, _name) = (next()?, next()?, next()?);
        let is = |token: Option<Token<'_>>, word| token.is_some_and(|token| token.is(word));
        let open = match next()? {
            Some(open) if is(create, "CREATE") && is(table, "TABLE") && open.is_symbol(b'(') => {
                open
            }
            _ => return Err(Unreadable::Head),
        };
        let (mut elements, mut depth, mut start) = (Vec::new(), 0_usize, open.range().end);
        let mut inside = Vec::new();
        while let Some(token) = next()? {
            let ends_list = depth == 0 && token.is_symbol(b')');
            if ends_list || depth == 0 && token.is_symbol(b',') {
                let piece = text.get(start..token.start).ok_or(Unreadable::List)?;
                elements.push(Element::new(piece, start, std::mem::take(&mut inside))?);
                start = token.range().end;
                if ends_list {
                    let tail = text.get(start..).unwrap_or_default();
                    return Ok(Self { elements, tail });
                }
                continue;
            }
            match token.kind {
                TokenKind::Symbol(b'(') => depth += 1,
                TokenKind::Symbol(b')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            inside.push(token);
        }
        Err(Unreadable::List)
    }
}

impl ShownTable<'_> {
    /// Names the columns whose DEFAULT or members may have been lost, with what to do. The server shows a text in
    /// utf8mb3, with a ? for each character or byte that it lacks.
    pub(super) fn unclear(&self, table: &str) -> Vec<String> {
        let tail: Vec<Token<'_>> =
            Lexer::new(self.tail.as_bytes(), Dialect::default()).map_while(Result::ok).collect();
        let of_table = tail.windows(3).find_map(|window| match window {
            [charset, equals, name] if charset.is("CHARSET") && equals.is_symbol(b'=') => {
                Some(name.text)
            }
            _ => None,
        });
        let of_table = of_table.unwrap_or_default();
        self.elements.iter().filter_map(|element| element.unclear(table, of_table)).collect()
    }
}

impl<'a> Element<'a> {
    fn unclear(&self, table: &str, table_charset: &[u8]) -> Option<String> {
        let (name, rest) = self.tokens.split_first()?;
        let column_type = rest.first().filter(|_| self.kind == ElementKind::Column)?;
        let own_charset = rest.windows(3).find_map(|window| match window {
            [character, set, name] if character.is("CHARACTER") && set.is("SET") => Some(name.text),
            _ => None,
        });
        let charset = own_charset.unwrap_or(table_charset);
        let is = |words: &[&str]| words.iter().any(|word| column_type.is(word));
        let is_text = is(&["char", "varchar", "enum", "set"]);
        let is_wide = WIDE_CHARSETS.iter().any(|wide| charset == wide.as_bytes());
        let may_lose = is(&["binary", "varbinary"]) || is_text && is_wide;
        if !may_lose {
            return None;
        }
        let has_mark =
            |token: &Token<'_>| token.kind == TokenKind::Text && token.text.contains(&b'?');
        let column = Dialect::default().name(name)?;
        let quoted = identifier(&column);
        let members = rest.iter().skip(1).take_while(|token| !token.is_symbol(b')'));
        if is(&["enum", "set"]) && members.clone().any(has_mark) {
            return Some(format!(
                "the members of {table}.{quoted} that have another character than the ? that SHOW CREATE TABLE shows; if \
                 the source has any, run on the target: ALTER TABLE {table} MODIFY {quoted} with its members"
            ));
        }
        let default = rest.windows(2).any(|window| match window {
            [word, value] => word.is("DEFAULT") && has_mark(value),
            _ => false,
        });
        default.then(|| {
            format!(
                "the DEFAULT of {table}.{quoted} if it has another character than the ? that SHOW CREATE TABLE shows; then \
                 run on the target: ALTER TABLE {table} ALTER {quoted} SET DEFAULT with the source's value"
            )
        })
    }

    fn new(piece: &'a str, start: usize, tokens: Vec<Token<'a>>) -> Result<Self, Unreadable> {
        let kind = kind_of(&tokens).ok_or(Unreadable::Element)?;
        let start = start + (piece.len() - piece.trim_start().len());
        Ok(Self { kind, text: piece.trim(), start, tokens })
    }

    /// Returns the name of the column if it numbers the rows.
    pub(super) fn auto_increment(&self) -> Option<String> {
        let numbers = self.tokens.iter().any(|token| token.is("AUTO_INCREMENT"));
        let name = self.tokens.first().filter(|_| self.kind == ElementKind::Column && numbers)?;
        Dialect::default().name(name)
    }

    /// Returns the columns of an index in order; `None` for a part that is an expression.
    pub(super) fn key_columns(&self) -> Vec<Option<String>> {
        let mut columns = Vec::new();
        let (mut depth, mut begins) = (0_usize, false);
        for token in &self.tokens {
            if depth == 1 && begins {
                columns.push(match token.kind {
                    TokenKind::QuotedName => Dialect::default().name(token),
                    _ => None,
                });
            }
            begins = match token.kind {
                TokenKind::Symbol(b'(') => {
                    depth += 1;
                    depth == 1
                }
                // The rest is about the whole index.
                TokenKind::Symbol(b')') if depth <= 1 => break,
                TokenKind::Symbol(b')') => {
                    depth -= 1;
                    false
                }
                TokenKind::Symbol(b',') => depth == 1,
                _ => false,
            };
        }
        columns
    }

    /// Returns the text of a foreign key, with a schema before the name of the parent if it has none: that of
    /// the table itself.
    pub(super) fn with_parent_in(&self, schema: &str) -> String {
        let words = self.tokens.iter().position(|token| token.is("REFERENCES"));
        let after = |count: usize| self.tokens.get(words? + count);
        let is_qualified = after(2).is_some_and(|token| token.is_symbol(b'.'));
        let at = after(1).filter(|_| !is_qualified).map(|name| name.start - self.start);
        match at.and_then(|at| self.text.split_at_checked(at)) {
            Some((before, parent)) => format!("{before}{}.{parent}", identifier(schema)),
            None => self.text.to_owned(),
        }
    }
}

/// Names are always in backticks, so that a word without them is a keyword.
fn kind_of(tokens: &[Token<'_>]) -> Option<ElementKind> {
    let first = tokens.first()?;
    if first.kind == TokenKind::QuotedName {
        return Some(ElementKind::Column);
    }
    let constraint = match tokens {
        [first, name, then, ..] if first.is("CONSTRAINT") && name.kind == TokenKind::QuotedName => {
            then
        }
        _ => first,
    };
    const KINDS: [(&str, ElementKind); 7] = [
        ("PRIMARY", ElementKind::UniqueKey),
        ("UNIQUE", ElementKind::UniqueKey),
        ("KEY", ElementKind::Index),
        ("FULLTEXT", ElementKind::FullTextIndex),
        ("SPATIAL", ElementKind::SpatialIndex),
        ("FOREIGN", ElementKind::ForeignKey),
        ("CHECK", ElementKind::Check),
    ];
    KINDS.iter().find(|(word, _)| constraint.is(word)).map(|&(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<(ElementKind, &str)> {
        let shown = ShownTable::parse(text).unwrap();
        shown.elements.iter().map(|element| (element.kind, element.text)).collect()
    }

    fn one(element: &str) -> String {
        format!("CREATE TABLE `t` (\n  {element}\n) ENGINE=InnoDB")
    }

    fn columns(key: &str) -> Vec<Option<String>> {
        let text = one(key);
        ShownTable::parse(&text).unwrap().elements[0].key_columns()
    }

    #[test]
    fn quotes_and_comments_belong_to_their_element() {
        for (kind, element) in [
            (ElementKind::Column, "`key` int DEFAULT NULL COMMENT '),\\n  KEY `x` (`y`)'"),
            (ElementKind::Column, "`PRIMARY KEY (` int"),
            (ElementKind::Column, "`a``b,)` varchar(20) DEFAULT 'it''s ), \\\\'"),
            (
                ElementKind::Column,
                "`g` text GENERATED ALWAYS AS (concat(`b`,_latin1'),\\'KEY \"`')) STORED",
            ),
            (ElementKind::Column, "`c` int DEFAULT ((1 + 2)) /*!80023 INVISIBLE */"),
            (ElementKind::Column, "`e` enum('a,','b)') DEFAULT NULL"),
            (ElementKind::Column, "`d` decimal(10,2) /*!50606 COLUMN_FORMAT DYNAMIC */ NOT NULL"),
            (ElementKind::UniqueKey, "PRIMARY KEY (`a`,`b`)"),
            (ElementKind::UniqueKey, "UNIQUE KEY `u` (`a`(10)) USING BTREE COMMENT ')'"),
            (ElementKind::Index, "KEY `c` (`key`) COMMENT 'x), KEY ''q''\\\\'"),
            (ElementKind::Index, "KEY `fx` (((`a` + `b`)))"),
            (ElementKind::Index, "KEY `inv` (`b`) /*!80000 INVISIBLE */"),
            (ElementKind::SpatialIndex, "SPATIAL KEY `sp` (`pt`)"),
            (
                ElementKind::FullTextIndex,
                "FULLTEXT KEY `f` (`txt`) /*!50100 WITH PARSER `ngram` */",
            ),
            (ElementKind::Check, "CONSTRAINT `FOREIGN` CHECK (((`a` > 0) and (`b` in (1,2))))"),
            (
                ElementKind::Check,
                "CONSTRAINT `n` CHECK ((`b` <> _utf8mb4')')) /*!80016 NOT ENFORCED */",
            ),
            (
                ElementKind::ForeignKey,
                "CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`b`) ON DELETE CASCADE",
            ),
        ] {
            assert_eq!(parts(&one(element)), [(kind, element)]);
            let doubled = one(&format!("{element} ,\n  {element}"));
            assert_eq!(parts(&doubled), [(kind, element), (kind, element)]);
        }
    }

    #[test]
    fn the_tail_is_everything_after_the_list() {
        let tail = " ENGINE=InnoDB COMMENT='a (`b`), KEY\\n'\n/*!50100 PARTITION BY RANGE (`a`)\n\
                    (PARTITION p0 VALUES LESS THAN (10) COMMENT = '),' ENGINE = InnoDB) */";
        let text = format!("CREATE TABLE `t (` (\n  `a` int\n){tail}");
        let shown = ShownTable::parse(&text).unwrap();
        assert_eq!(shown.tail, tail);
        assert_eq!(shown.elements.len(), 1);
    }

    #[test]
    fn other_texts_are_refused() {
        let refusal = |text| ShownTable::parse(text).unwrap_err();
        assert_eq!(refusal(""), Unreadable::Head);
        assert_eq!(refusal("CREATE VIEW `v` AS select (1)"), Unreadable::Head);
        assert_eq!(refusal("CREATE TABLE `t` (\n `a` int"), Unreadable::List);
        assert_eq!(refusal("CREATE TABLE `t` (\n )"), Unreadable::Element);
        assert_eq!(refusal("CREATE TABLE `t` (\n PERIOD FOR x (`a`))"), Unreadable::Element);
        assert_eq!(
            refusal("CREATE TABLE `t` (`a` int COMMENT 'x)"),
            Unreadable::Unclosed(Unclosed)
        );
    }

    #[test]
    fn an_index_has_columns_and_expressions() {
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(columns("KEY `(` (`a``(`(10) DESC,`b`)"), [named("a`("), named("b")]);
        assert_eq!(columns("KEY `k` (((`a` + `b`)),`c`) COMMENT '(`d`)'"), [None, named("c")]);
        assert_eq!(columns("PRIMARY KEY (`id`)"), [named("id")]);
    }

    #[test]
    fn only_the_attribute_makes_a_column_number_rows() {
        let name = |element: &str| {
            let text = one(element);
            ShownTable::parse(&text).unwrap().elements[0].auto_increment()
        };
        assert_eq!(name("`i``d` int NOT NULL AUTO_INCREMENT COMMENT 'x'"), Some("i`d".to_owned()));
        assert_eq!(name("`AUTO_INCREMENT` int COMMENT 'AUTO_INCREMENT'"), None);
        assert_eq!(name("KEY `AUTO_INCREMENT` (`a`)"), None);
    }

    #[test]
    fn columns_whose_text_may_have_been_lost_are_named() {
        let unclear = |column: &str, charset: &str| {
            let text = format!(
                "CREATE TABLE `t` (\n  {column}\n) ENGINE=InnoDB DEFAULT CHARSET={charset}"
            );
            ShownTable::parse(&text).unwrap().unclear("`s`.`t`")
        };
        let default = |column| format!("the DEFAULT of `s`.`t`.`{column}` ");
        let found = unclear("`c` varchar(9) DEFAULT '?'", "utf8mb4");
        assert!(found[0].starts_with(&default("c")), "{found:?}");
        assert!(found[0].contains("ALTER TABLE `s`.`t` ALTER `c` SET DEFAULT"), "{found:?}");
        let found = unclear("`b` varbinary(9) NOT NULL DEFAULT 'a?' COMMENT 'x'", "latin1");
        assert!(found[0].starts_with(&default("b")), "{found:?}");
        let own = "`o` char(9) CHARACTER SET utf32 COLLATE utf32_bin DEFAULT '?'";
        assert_eq!(unclear(own, "latin1").len(), 1);
        let found = unclear("`e` enum('a','?') DEFAULT NULL", "utf8mb4");
        assert!(found[0].contains("MODIFY `e`"), "{found:?}");
        for column in [
            "`c` varchar(9) DEFAULT 'a' COMMENT '?'",
            "`c` varchar(9) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT '?'",
            "`DEFAULT '?'` int DEFAULT '7'",
            "`e` enum('a','b') DEFAULT NULL COMMENT '?'",
            "`x` varchar(9) DEFAULT (_utf8mb4'?')",
            "PRIMARY KEY (`c`) COMMENT '?'",
        ] {
            assert_eq!(unclear(column, "utf8mb4"), Vec::<String>::new(), "{column}");
        }
        assert!(unclear("`c` varchar(9) DEFAULT '?'", "latin1").is_empty());
    }

    #[test]
    fn a_parent_without_schema_is_in_the_tables_own() {
        let key = |references: &str| {
            let text =
                one(&format!("CONSTRAINT `references` FOREIGN KEY (`a`) REFERENCES {references}"));
            ShownTable::parse(&text).unwrap().elements[0].with_parent_in("s`x")
        };
        assert_eq!(
            key("`p` (`b`) ON DELETE CASCADE"),
            "CONSTRAINT `references` FOREIGN KEY (`a`) REFERENCES `s``x`.`p` (`b`) ON DELETE CASCADE"
        );
        assert!(key("`o`.`p` (`b`)").ends_with(" REFERENCES `o`.`p` (`b`)"));
    }
}
