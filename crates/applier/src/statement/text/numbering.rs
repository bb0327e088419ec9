//! New columns that number the rows of a table. Pure.
//!
//! A table without a key is numbered in the order in which its rows were inserted, which is another one on the target
//! where clients of the source wrote at the same time
//! (<https://dev.mysql.com/doc/refman/en/replication-features-auto-increment.html>).

use csa_provider::binlog::SessionContext;
use csa_provider::sql_text::{Dialect, Token};

use super::tokens::Tokens;

/// A table as a statement names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NumberedTable {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

/// Returns the table to which an ALTER TABLE adds a column with AUTO_INCREMENT.
pub(crate) fn numbered_table(text: &[u8], context: &SessionContext) -> Option<NumberedTable> {
    let dialect = Dialect::of(context);
    let read = Tokens::of(text, dialect);
    let [verb, kind, first, rest @ ..] = read.tokens.as_slice() else { return None };
    if !verb.is("ALTER") || !kind.is("TABLE") {
        return None;
    }
    let (schema, name, actions) = match rest {
        [dot, name, actions @ ..] if dot.is_symbol(b'.') => (Some(first), name, actions),
        actions => (None, first, actions),
    };
    if !add_number(actions) {
        return None;
    }
    let schema = match schema {
        Some(schema) => Some(dialect.name(schema)?),
        None => None,
    };
    Some(NumberedTable { schema, name: dialect.name(name)? })
}

/// Returns true if one of the actions adds such a column. AUTO_INCREMENT with a value is an option of the table.
fn add_number(actions: &[Token<'_>]) -> bool {
    let mut depth = 0_usize;
    let mut begins = true;
    let mut adds = false;
    for (at, token) in actions.iter().enumerate() {
        if begins {
            adds = token.is("ADD");
        }
        begins = depth == 0 && token.is_symbol(b',');
        if token.is_symbol(b'(') {
            depth += 1;
        } else if token.is_symbol(b')') {
            depth = depth.saturating_sub(1);
        } else if adds && token.is("AUTO_INCREMENT") && !actions.get(at + 1).is_some_and(is_value) {
            return true;
        }
    }
    false
}

fn is_value(token: &Token<'_>) -> bool {
    token.is_symbol(b'=') || token.text.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_added_columns_number_the_rows_that_are_there() {
        let found = |text: &str| numbered_table(text.as_bytes(), &SessionContext::default());
        for (schema, text) in [
            (None, "ALTER TABLE t ADD id INT AUTO_INCREMENT PRIMARY KEY"),
            (
                Some("d"),
                "alter table `d`.`t` add column (v INT, id BIGINT auto_increment, KEY (id))",
            ),
            (None, "ALTER TABLE t DROP a, ADD KEY (id), ADD id INT NOT NULL AUTO_INCREMENT FIRST"),
        ] {
            let expected =
                NumberedTable { schema: schema.map(str::to_owned), name: "t".to_owned() };
            assert_eq!(found(text), Some(expected), "{text}");
        }
        for text in [
            "ALTER TABLE t AUTO_INCREMENT=5",
            "ALTER TABLE t ADD v INT, AUTO_INCREMENT 5",
            "ALTER TABLE t MODIFY id INT AUTO_INCREMENT, ADD PRIMARY KEY (id)",
            "ALTER TABLE t ADD v INT COMMENT 'AUTO_INCREMENT', DROP id",
            "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY)",
            "ALTER VIEW t AS SELECT 1",
            "ALTER TABLE",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
