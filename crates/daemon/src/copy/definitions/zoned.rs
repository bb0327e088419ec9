//! The parts of a table that are computed in the time zone of the session that writes a row, and stored or checked. A copy
//! writes in UTC, so they may differ from the source's. Pure.

use std::collections::BTreeSet;

use csa_provider::sql_text::{Dialect, Token, TokenKind};

use super::elements::{Element, ElementKind, ShownTable};
use crate::verify::TableName;

/// Functions whose results depend on the zone, whatever they are given.
const CONVERSIONS: [&str; 2] = ["FROM_UNIXTIME", "UNIX_TIMESTAMP"];

/// Names the stored columns, keys and checks of a table that depend on the time zone, for the text of SHOW CREATE TABLE.
pub(in crate::copy) fn zoned(name: &TableName, shown: &str) -> Option<String> {
    let found = elements(shown);
    (!found.is_empty()).then(|| {
        format!(
            "the source's values of {} in {name}: they depend on the time zone of the session that wrote a row, and \
             a copy computes them in UTC. Unless all sessions there use UTC, make the target by a clone \
             (docs/provisioning.md)",
            found.join(", ")
        )
    })
}

fn elements(shown: &str) -> Vec<String> {
    let Ok(shown) = ShownTable::parse(shown) else { return Vec::new() };
    let columns = || shown.elements.iter().filter(|element| element.kind == ElementKind::Column);
    let is_timestamp =
        |element: &&Element<'_>| element.tokens.get(1).is_some_and(|token| token.is("TIMESTAMP"));
    let mut zoned: BTreeSet<String> = columns().filter(is_timestamp).filter_map(name_of).collect();
    let mut computed = BTreeSet::new();
    let mut found = Vec::new();
    for element in &shown.elements {
        let Some(name) = name_of(element) else { continue };
        let has = |word| element.tokens.iter().any(|token| token.is(word));
        match element.kind {
            // Values are copied, and a default computes none.
            ElementKind::Column if has("GENERATED") && reads(element, &zoned, 1) => {
                // It can only be read by columns that come later.
                zoned.insert(name.clone());
                if has("STORED") {
                    found.push(format!("column {name}"));
                } else {
                    computed.insert(name);
                }
            }
            ElementKind::Check if reads(element, &zoned, 1) => found.push(format!("CHECK {name}")),
            ElementKind::UniqueKey | ElementKind::Index
                if reads(element, &zoned, 2) || reads(element, &computed, 1) =>
            {
                found.push(format!("key {name}"));
            }
            _ => {}
        }
    }
    found
}

fn name_of(element: &Element<'_>) -> Option<String> {
    let name = element.tokens.iter().find(|token| token.kind == TokenKind::QuotedName)?;
    Dialect::default().name(name)
}

/// Returns true if one of the columns, or a conversion, is read within so many parentheses: a key's own hold names of
/// columns, and those in them an expression.
fn reads(element: &Element<'_>, columns: &BTreeSet<String>, within: usize) -> bool {
    let is_read = |token: &Token<'_>| match token.kind {
        TokenKind::QuotedName => {
            Dialect::default().name(token).is_some_and(|name| columns.contains(&name))
        }
        _ => CONVERSIONS.iter().any(|function| token.is(function)),
    };
    let mut depth = 0_usize;
    element.tokens.iter().any(|token| {
        match token.kind {
            TokenKind::Symbol(b'(') => depth += 1,
            TokenKind::Symbol(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth >= within && is_read(token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_the_time_zone_is_named() {
        let text =
            |elements: &[&str]| format!("CREATE TABLE `t` (\n  {}\n)", elements.join(",\n  "));
        let table = [
            "`id` int NOT NULL",
            "`day` date GENERATED ALWAYS AS (cast(`created` as date)) STORED COMMENT '`at`'",
            "`hour` int GENERATED ALWAYS AS (hour(`created`)) VIRTUAL",
            "`half` int GENERATED ALWAYS AS ((`hour` DIV 2)) STORED",
            "`unread` int GENERATED ALWAYS AS (hour(`created`)) VIRTUAL",
            "`number` int GENERATED ALWAYS AS ((`id` + 1)) STORED",
            "`month` date GENERATED ALWAYS AS (cast(`at` as date)) STORED",
            "`seconds` bigint GENERATED ALWAYS AS (unix_timestamp(`at`)) STORED",
            "`of` date DEFAULT (cast(`created` as date))",
            "`created` timestamp(6) NULL DEFAULT NULL",
            "`at` datetime DEFAULT NULL",
            "PRIMARY KEY (`id`,`created`)",
            "UNIQUE KEY `created` (`created`,`at`)",
            "KEY `hours` (`id`,`hour`)",
            "KEY `days` (`id`,(cast(`created` as date)))",
            "KEY `months` ((cast(`at` as date)))",
            "CONSTRAINT `early` CHECK ((hour(`created`) < 20))",
            "CONSTRAINT `late` CHECK ((hour(`at`) > 20))",
        ];
        assert_eq!(
            elements(&text(&table)),
            ["column day", "column half", "column seconds", "key hours", "key days", "CHECK early"]
        );
        let name = TableName { schema: "d".to_owned(), table: "t".to_owned() };
        let said = zoned(&name, &text(&table)).unwrap();
        assert!(said.contains("column day, column half") && said.contains(" in d.t: "), "{said}");
        assert_eq!(zoned(&name, &text(&["`created` timestamp NULL", "KEY `k` (`created`)"])), None);
        assert_eq!(zoned(&name, ""), None);
    }
}
