//! The statements that create one table: before, and after its rows. Pure.

use csa_provider::sql_text::{Dialect, Lexer, identifier};

use super::elements::{Element, ElementKind, ShownTable, Unreadable};
use crate::verify::TableName;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statements {
    /// The table with its primary key, and its unique ones unless they are left for later.
    pub(super) create: String,
    /// All other indexes.
    pub(super) indexes: Vec<String>,
    /// Unique keys that are left for later.
    pub(super) unique: Option<String>,
    pub(super) foreign_keys: Option<String>,
    /// Names parts that the text may not show as the source has them.
    pub(super) unclear: Vec<String>,
}

impl Statements {
    /// Returns the statements for a text from SHOW CREATE TABLE; with `unique_later` unique keys but the primary
    /// one are added after the rows.
    pub(super) fn of(name: &TableName, text: &str, unique_later: bool) -> Result<Self, Unreadable> {
        let shown = ShownTable::parse(text)?;
        let numbering = numbering_index(&shown.elements);
        let (mut kept, mut plain, mut full_text, mut unique, mut foreign_keys) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (place, element) in shown.elements.iter().enumerate() {
            match element.kind {
                _ if numbering == Some(place) => kept.push(element.text),
                ElementKind::UniqueKey
                    if unique_later && !element.text.starts_with("PRIMARY KEY") =>
                {
                    unique.push(element.text.to_owned());
                }
                ElementKind::Column | ElementKind::UniqueKey | ElementKind::Check => {
                    kept.push(element.text)
                }
                ElementKind::Index | ElementKind::SpatialIndex => {
                    plain.push(element.text.to_owned())
                }
                ElementKind::FullTextIndex => full_text.push(element.text.to_owned()),
                ElementKind::ForeignKey => foreign_keys.push(element.with_parent_in(&name.schema)),
            }
        }
        let table = qualified(name);
        let create = format!("CREATE TABLE {table} (\n  {}\n){}", kept.join(",\n  "), shown.tail);
        // InnoDB adds one full-text index at a time (error 1795).
        let indexes = add(&table, &plain)
            .into_iter()
            .chain(full_text.iter().filter_map(|index| add(&table, std::slice::from_ref(index))));
        Ok(Self {
            create,
            indexes: indexes.collect(),
            unique: add(&table, &unique),
            foreign_keys: add(&table, &foreign_keys),
            unclear: shown.unclear(&table),
        })
    }
}

/// Returns the name in a form that needs no current schema.
pub(in crate::copy) fn qualified(name: &TableName) -> String {
    format!("{}.{}", identifier(&name.schema), identifier(&name.table))
}

/// Returns the statement without the table's next number.
pub(in crate::copy) fn unnumbered(create: &str) -> String {
    let mut tokens =
        Lexer::new(create.as_bytes(), Dialect::default()).map_while(Result::ok).peekable();
    while let Some(token) = tokens.next() {
        // Without the sign it is a column's.
        if token.is("AUTO_INCREMENT")
            && tokens.next_if(|sign| sign.is_symbol(b'=')).is_some()
            && let Some(number) = tokens.next()
        {
            let (head, tail) = (create.get(..token.start), create.get(number.range().end..));
            return format!("{}{}", head.unwrap_or_default().trim_end(), tail.unwrap_or_default());
        }
    }
    create.to_owned()
}

fn add(table: &str, elements: &[String]) -> Option<String> {
    let added = elements.iter().map(|element| format!("ADD {element}"));
    let added = added.collect::<Vec<_>>().join(", ");
    (!added.is_empty()).then(|| format!("ALTER TABLE {table} {added}"))
}

/// Returns an `ALTER TABLE … ADD …, ADD …` as a statement for each addition.
pub(in crate::copy) fn additions(statement: &str) -> Vec<String> {
    let tokens: Vec<_> =
        Lexer::new(statement.as_bytes(), Dialect::default()).map_while(Result::ok).collect();
    let mut depth = 0_i32;
    let mut starts = Vec::new();
    let mut previous_is_comma = false;
    for token in &tokens {
        depth += i32::from(token.is_symbol(b'(')) - i32::from(token.is_symbol(b')'));
        if depth == 0 && token.is("ADD") && (starts.is_empty() || previous_is_comma) {
            starts.push(token.start);
        }
        previous_is_comma = depth == 0 && token.is_symbol(b',');
    }
    let head = starts.first().and_then(|&first| statement.get(..first)).unwrap_or_default();
    let ends = starts.iter().skip(1).copied().chain([statement.len()]);
    let parts = starts.iter().zip(ends).filter_map(|(&start, end)| statement.get(start..end));
    parts.map(|part| format!("{head}{}", part.trim_end_matches([',', ' ']))).collect()
}

/// Returns the place of the index without which the server refuses the AUTO_INCREMENT column (error 1075), if
/// neither the primary nor a unique key serves it. The column is the first of an index, but on engines such as
/// MyISAM it may be any.
fn numbering_index(elements: &[Element<'_>]) -> Option<usize> {
    let column = elements.iter().find_map(Element::auto_increment)?;
    let position = |element: &Element<'_>| {
        element.key_columns().iter().position(|name| name.as_deref() == Some(&column))
    };
    let serving = |kind: ElementKind, is_first: bool| {
        elements.iter().position(|element| match position(element) {
            Some(at) => element.kind == kind && (at == 0 || !is_first),
            None => false,
        })
    };
    for is_first in [true, false] {
        if serving(ElementKind::UniqueKey, is_first).is_some() {
            return None;
        }
        if let Some(index) = serving(ElementKind::Index, is_first) {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(elements: &[&str], tail: &str) -> Statements {
        let name = TableName { schema: "s".to_owned(), table: "t`x".to_owned() };
        let text = format!("CREATE TABLE `t``x` (\n  {}\n){tail}", elements.join(",\n  "));
        Statements::of(&name, &text, false).unwrap()
    }

    #[test]
    fn additions_can_be_made_one_by_one() {
        let keys = [
            "ADD UNIQUE KEY `a, ADD` (`x`(3),`y`) COMMENT 'u, ADD v'",
            "ADD KEY `b` ((cast(json_extract(`j`,'$.a') as char(9)) collate utf8mb4_bin))",
            "ADD CONSTRAINT `c` FOREIGN KEY (`x`, `add`) REFERENCES `p` (`x`, `add`)",
        ];
        for count in 1..=keys.len() {
            let joined = format!("ALTER TABLE `s`.`ADD` {}", keys[..count].join(", "));
            let single = keys[..count].iter().map(|key| format!("ALTER TABLE `s`.`ADD` {key}"));
            assert_eq!(additions(&joined), single.collect::<Vec<_>>());
        }
        assert!(additions("CREATE TABLE `t` (`a` int)").is_empty());
    }

    #[test]
    fn unique_keys_can_be_left_for_later() {
        let name = TableName { schema: "s".to_owned(), table: "t".to_owned() };
        let text = "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  PRIMARY KEY (`id`),\n  UNIQUE KEY `u` (`id`)\n)";
        let found = Statements::of(&name, text, true).unwrap();
        assert_eq!(
            found.create,
            "CREATE TABLE `s`.`t` (\n  `id` int NOT NULL,\n  PRIMARY KEY (`id`)\n)"
        );
        assert_eq!(found.unique.unwrap(), "ALTER TABLE `s`.`t` ADD UNIQUE KEY `u` (`id`)");
    }

    fn kept(elements: &[&str]) -> String {
        statements(elements, "").create
    }

    const ID: &str = "`id` int NOT NULL AUTO_INCREMENT";

    #[test]
    fn indexes_and_foreign_keys_come_later() {
        let tail =
            " ENGINE=InnoDB AUTO_INCREMENT=5 COMMENT='),\\n KEY'\n/*!50100 PARTITION BY KEY (a) */";
        let found = statements(
            &[
                "`a` int NOT NULL COMMENT '),\\n KEY `b` (`c`)'",
                "`key` text",
                "PRIMARY KEY (`a`)",
                "UNIQUE KEY `u` (`a`,`key`(9))",
                "KEY `i` (((`a` + 1))) COMMENT 'x, y'",
                "SPATIAL KEY `s` (`p`)",
                "FULLTEXT KEY `f` (`key`)",
                "FULLTEXT KEY `g` (`key`) /*!50100 WITH PARSER `ngram` */ ",
                "CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`a`) ON DELETE CASCADE",
                "CONSTRAINT `l` FOREIGN KEY (`a`) REFERENCES `o`.`p` (`a`)",
                "CONSTRAINT `c` CHECK ((`a` > 0))",
            ],
            tail,
        );
        let create = "CREATE TABLE `s`.`t``x` (\n  `a` int NOT NULL COMMENT '),\\n KEY `b` (`c`)',\n  \
                      `key` text,\n  PRIMARY KEY (`a`),\n  UNIQUE KEY `u` (`a`,`key`(9)),\n  \
                      CONSTRAINT `c` CHECK ((`a` > 0))\n)";
        assert_eq!(found.create, format!("{create}{tail}"));
        assert_eq!(
            found.indexes,
            [
                "ALTER TABLE `s`.`t``x` ADD KEY `i` (((`a` + 1))) COMMENT 'x, y', \
                 ADD SPATIAL KEY `s` (`p`)",
                "ALTER TABLE `s`.`t``x` ADD FULLTEXT KEY `f` (`key`)",
                "ALTER TABLE `s`.`t``x` ADD FULLTEXT KEY `g` (`key`) /*!50100 WITH PARSER `ngram` */",
            ]
        );
        assert_eq!(
            found.foreign_keys.unwrap(),
            "ALTER TABLE `s`.`t``x` ADD CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `s`.`p` (`a`) \
             ON DELETE CASCADE, ADD CONSTRAINT `l` FOREIGN KEY (`a`) REFERENCES `o`.`p` (`a`)"
        );
    }

    #[test]
    fn next_numbers_are_no_difference() {
        let text = |number: &str| {
            format!(
                "CREATE TABLE `t` (`id` int AUTO_INCREMENT COMMENT 'AUTO_INCREMENT=3') ENGINE=InnoDB{number} \
                 COMMENT='AUTO_INCREMENT=4'"
            )
        };
        assert_eq!(unnumbered(&text(" AUTO_INCREMENT=17")), text(""));
        assert_eq!(unnumbered(&text("")), text(""));
    }

    #[test]
    fn a_table_without_them_needs_one_statement() {
        let found = statements(&["`a` int", "PRIMARY KEY (`a`)"], " ENGINE=InnoDB");
        assert_eq!((found.indexes, found.foreign_keys), (Vec::new(), None));
    }

    #[test]
    fn the_index_that_numbers_rows_stays() {
        let create =
            kept(&[ID, "`b` int", "KEY `b` (`b`,`id`)", "KEY `i` (`id`,`b`)", "KEY `j` (`id`)"]);
        assert!(create.contains("`b` int,\n  KEY `i` (`id`,`b`)\n)"), "{create}");
    }

    #[test]
    fn a_primary_or_unique_key_can_number_rows() {
        for unique in ["PRIMARY KEY (`id`)", "UNIQUE KEY `u` (`id`,`b`)"] {
            let create = kept(&[ID, unique, "KEY `i` (`id`)"]);
            assert!(!create.contains("KEY `i`"), "{create}");
        }
        let create = kept(&[ID, "PRIMARY KEY (`b`,`id`)", "KEY `i` (`id`)"]);
        assert!(create.contains("KEY `i`"), "{create}");
    }

    #[test]
    fn on_some_engines_the_column_may_be_any_of_an_index() {
        let create = kept(&[ID, "PRIMARY KEY (`b`,`id`)", "KEY `i` (`c`,`id`)"]);
        assert!(!create.contains("KEY `i`"), "{create}");
        let create = kept(&[ID, "PRIMARY KEY (`b`)", "KEY `i` (`c`,`id`)"]);
        assert!(create.contains("KEY `i`"), "{create}");
    }
}
