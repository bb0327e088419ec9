//! The text of SHOW CREATE TABLE, taken apart: what a table needs before its rows, and what is added after them.

use csa_provider::sql_text::identifier;

use crate::verify::TableName;

/// A table's definition in the parts by which a copy makes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::copy) struct TableDefinition {
    /// Columns, primary and unique keys, checks and options.
    pub(super) create: String,
    /// The next value of AUTO_INCREMENT, as an option; it changes while the source is in use.
    pub(super) auto_increment: String,
    /// Statements that add its other indexes.
    pub(in crate::copy) indexes: Vec<String>,
    pub(in crate::copy) foreign_keys: Option<String>,
}

impl TableDefinition {
    /// Takes the text of a table apart; `None` if it is no CREATE TABLE.
    pub(super) fn parse(name: &TableName, text: &str) -> Option<Self> {
        let (elements, options) = elements(text)?;
        let table = format!("{}.{}", identifier(&name.schema), identifier(&name.table));
        let counted = elements.iter().find_map(|element| auto_increment_column(element));
        let mut has_counter_key =
            elements.iter().any(|element| is_unique(element) && begins_with(element, counted));
        let (mut kept, mut indexes, mut full_text, mut foreign) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for element in elements {
            if element.starts_with("KEY ") && !has_counter_key && begins_with(element, counted) {
                has_counter_key = true;
                kept.push(element);
            } else if element.starts_with("KEY ") || element.starts_with("SPATIAL KEY ") {
                indexes.push(format!("ADD {element}"));
            } else if element.starts_with("FULLTEXT KEY ") {
                full_text.push(format!("ALTER TABLE {table} ADD {element}"));
            } else if is_foreign_key(element) {
                foreign.push(format!("ADD {element}"));
            } else {
                kept.push(element);
            }
        }
        let (options, auto_increment) = without_auto_increment(options);
        let alter = |parts: &[String]| format!("ALTER TABLE {table} {}", parts.join(", "));
        let others = (!indexes.is_empty()).then(|| alter(&indexes));
        Some(Self {
            create: format!("CREATE TABLE {table} (\n  {}\n){options}", kept.join(",\n  ")),
            auto_increment,
            // InnoDB adds one full-text index at a time.
            indexes: others.into_iter().chain(full_text).collect(),
            foreign_keys: (!foreign.is_empty()).then(|| alter(&foreign)),
        })
    }

    /// Returns the statement that makes the table.
    pub(in crate::copy) fn statement(&self) -> String {
        // Options follow the closing parenthesis, and partitions follow them.
        match self.create.rfind("\n)") {
            Some(end) if !self.auto_increment.is_empty() => {
                let (head, tail) = self.create.split_at(end + 2);
                let (engine, rest) = tail.split_at(engine_end(tail));
                format!("{head}{engine}{}{rest}", self.auto_increment)
            }
            _ => self.create.clone(),
        }
    }
}

/// Returns the end of the first option, which is ` ENGINE=…`.
fn engine_end(options: &str) -> usize {
    let after = options
        .strip_prefix(' ')
        .map_or(0, |rest| 1 + rest.find([' ', '\n']).unwrap_or(rest.len()));
    after.min(options.len())
}

/// Divides a text at its parentheses of the first level: the elements in them, and what follows.
fn elements(text: &str) -> Option<(Vec<&str>, &str)> {
    let open = Tokens::new(text).find(|token| token.depth == 1 && token.text == "(")?.at;
    let mut begin = open + 1;
    let mut found = Vec::new();
    for token in Tokens::new(text) {
        if token.at <= open {
            continue;
        }
        match token.text {
            "," if token.depth == 1 => {
                found.push(text.get(begin..token.at)?.trim());
                begin = token.at + 1;
            }
            ")" if token.depth == 0 => {
                found.push(text.get(begin..token.at)?.trim());
                return Some((found, text.get(token.at + 1..)?));
            }
            _ => {}
        }
    }
    None
}

/// Returns the column in backticks if the element is a column with AUTO_INCREMENT.
fn auto_increment_column(element: &str) -> Option<&str> {
    let mut tokens = Tokens::new(element);
    let name = tokens.next().filter(|token| token.text.starts_with('`'))?;
    tokens.any(|token| token.text == "AUTO_INCREMENT").then_some(name.text)
}

fn is_unique(element: &str) -> bool {
    element.starts_with("PRIMARY KEY ") || element.starts_with("UNIQUE KEY ")
}

fn is_foreign_key(element: &str) -> bool {
    let mut tokens = Tokens::new(element).map(|token| token.text);
    match tokens.next() {
        Some("CONSTRAINT") => tokens.nth(1) == Some("FOREIGN"),
        first => first == Some("FOREIGN"),
    }
}

/// Returns true if a key's first part is this column.
fn begins_with(key: &str, column: Option<&str>) -> bool {
    let mut tokens = Tokens::new(key).map(|token| token.text).skip_while(|text| *text != "(");
    tokens.next().is_some() && column.is_some() && tokens.next() == column
}

fn without_auto_increment(options: &str) -> (String, String) {
    const OPTION: &str = "AUTO_INCREMENT=";
    let at =
        Tokens::new(options).find(|token| token.text.starts_with(OPTION)).map(|token| token.at);
    let Some(at) = at else { return (options.to_owned(), String::new()) };
    let (head, tail) = options.split_at(at);
    let end = tail.find([' ', '\n']).unwrap_or(tail.len());
    let (option, rest) = tail.split_at(end);
    (format!("{}{rest}", head.trim_end()), format!(" {option}"))
}

/// A word, a quoted name or string, or a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    at: usize,
    text: &'a str,
    /// Parentheses that are open after it.
    depth: usize,
}

/// Reads tokens. The text of a comment counts, since the server puts parts of definitions into versioned ones.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let rest = self.text.get(self.at..)?;
        let begin = self.at + (rest.len() - rest.trim_start().len());
        let rest = self.text.get(begin..)?;
        let first = rest.chars().next()?;
        let len = match first {
            '\'' | '"' | '`' => quoted(rest, first),
            '(' | ')' | ',' => 1,
            _ => rest
                .find(|c: char| c.is_whitespace() || "'\"`(),".contains(c))
                .unwrap_or(rest.len()),
        };
        match first {
            '(' => self.depth += 1,
            ')' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.at = begin + len;
        Some(Token { at: begin, text: rest.get(..len)?, depth: self.depth })
    }
}

/// Returns the length of a quoted text. A doubled quote stands for itself; a backslash escapes in strings.
fn quoted(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if quote != '`' => {
                chars.next();
            }
            c if c == quote => match chars.peek() {
                Some((_, next)) if *next == quote => {
                    chars.next();
                }
                _ => return at + 1,
            },
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> TableDefinition {
        let name = TableName { schema: "d".to_owned(), table: "t`b".to_owned() };
        TableDefinition::parse(&name, text).expect("a table")
    }

    #[test]
    fn indexes_and_foreign_keys_are_kept_for_later() {
        let found = parse(
            "CREATE TABLE `t``b` (\n  `id` int NOT NULL AUTO_INCREMENT COMMENT 'with '' and ), KEY `x` (',\n  \
             `key` varchar(9) DEFAULT 'a\\'),\\n' /*!80023 INVISIBLE */,\n  \
             `g` int GENERATED ALWAYS AS ((`id` + 1)) VIRTUAL,\n  PRIMARY KEY (`id`),\n  \
             UNIQUE KEY `u` (`key`),\n  KEY `k` (`key`) COMMENT 'a (b',\n  \
             KEY `f` ((upper(`key`))) /*!80000 INVISIBLE */,\n  SPATIAL KEY `s` (`key`),\n  \
             FULLTEXT KEY `one` (`key`),\n  FULLTEXT KEY `two` (`key`) /*!50100 WITH PARSER `ngram` */ ,\n  \
             CONSTRAINT `fk` FOREIGN KEY (`id`) REFERENCES `p` (`id`) ON DELETE CASCADE,\n  \
             CONSTRAINT `FOREIGN` CHECK (((`id` > 0) or (`id` is null)))\n\
             ) ENGINE=InnoDB AUTO_INCREMENT=17 DEFAULT CHARSET=utf8mb4 COMMENT='KEY `a` (`b`) AUTO_INCREMENT=5'\n\
             /*!50100 PARTITION BY HASH (`id`)\nPARTITIONS 3 */",
        );
        assert_eq!(
            found.statement(),
            "CREATE TABLE `d`.`t``b` (\n  `id` int NOT NULL AUTO_INCREMENT COMMENT 'with '' and ), KEY `x` (',\n  \
             `key` varchar(9) DEFAULT 'a\\'),\\n' /*!80023 INVISIBLE */,\n  \
             `g` int GENERATED ALWAYS AS ((`id` + 1)) VIRTUAL,\n  PRIMARY KEY (`id`),\n  \
             UNIQUE KEY `u` (`key`),\n  CONSTRAINT `FOREIGN` CHECK (((`id` > 0) or (`id` is null)))\n\
             ) ENGINE=InnoDB AUTO_INCREMENT=17 DEFAULT CHARSET=utf8mb4 COMMENT='KEY `a` (`b`) AUTO_INCREMENT=5'\n\
             /*!50100 PARTITION BY HASH (`id`)\nPARTITIONS 3 */"
        );
        assert_eq!(
            found.indexes,
            [
                "ALTER TABLE `d`.`t``b` ADD KEY `k` (`key`) COMMENT 'a (b', \
                 ADD KEY `f` ((upper(`key`))) /*!80000 INVISIBLE */, ADD SPATIAL KEY `s` (`key`)",
                "ALTER TABLE `d`.`t``b` ADD FULLTEXT KEY `one` (`key`)",
                "ALTER TABLE `d`.`t``b` ADD FULLTEXT KEY `two` (`key`) /*!50100 WITH PARSER `ngram` */",
            ]
        );
        let foreign = "ALTER TABLE `d`.`t``b` ADD CONSTRAINT `fk` FOREIGN KEY (`id`) REFERENCES `p` (`id`) \
            ON DELETE CASCADE";
        assert_eq!(found.foreign_keys.as_deref(), Some(foreign));
    }

    #[test]
    fn a_counter_keeps_the_index_that_it_needs() {
        let found = parse(
            "CREATE TABLE `t` (\n  `a` int,\n  `n` int NOT NULL AUTO_INCREMENT,\n  PRIMARY KEY (`a`,`n`),\n  \
             KEY `a` (`a`),\n  KEY `n` (`n`),\n  KEY `again` (`n`,`a`)\n) ENGINE=InnoDB",
        );
        assert!(found.statement().contains("KEY `n` (`n`)\n)"), "{}", found.statement());
        assert_eq!(
            found.indexes,
            ["ALTER TABLE `d`.`t``b` ADD KEY `a` (`a`), ADD KEY `again` (`n`,`a`)"]
        );
        let same = parse(
            "CREATE TABLE `t` (\n  `a` int,\n  `n` int NOT NULL AUTO_INCREMENT,\n  PRIMARY KEY (`a`,`n`),\n  \
             KEY `a` (`a`),\n  KEY `n` (`n`),\n  KEY `again` (`n`,`a`)\n) ENGINE=InnoDB AUTO_INCREMENT=9",
        );
        assert_eq!((&same.create, &same.indexes), (&found.create, &found.indexes));
        assert!(same.statement().ends_with(") ENGINE=InnoDB AUTO_INCREMENT=9"));
    }

    #[test]
    fn other_texts_are_no_tables() {
        let name = TableName { schema: "d".to_owned(), table: "t".to_owned() };
        for text in ["", "CREATE VIEW `v` AS select 1", "CREATE TABLE `t` (`a` int", "'("] {
            assert_eq!(TableDefinition::parse(&name, text), None, "{text}");
        }
    }
}
