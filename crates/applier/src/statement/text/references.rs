//! References in the definitions of columns. Pure.
//!
//! MySQL 9.0 and MariaDB make a foreign key of `p INT REFERENCES parent (id)`; MySQL before 9.0 reads it and
//! makes none (<https://dev.mysql.com/doc/relnotes/mysql/9.0/en/news-9-0-0.html>).

use csa_provider::binlog::SessionContext;
use csa_provider::sql_text::Dialect;

use super::tokens::Tokens;

/// Returns true if a CREATE or ALTER TABLE has a REFERENCES that does not belong to a FOREIGN KEY
/// clause.
pub(crate) fn has_inline_references(text: &[u8], context: &SessionContext) -> bool {
    let read = Tokens::of(text, Dialect::of(context));
    if !read.define_table() {
        return false;
    }
    let tokens = read.tokens;
    let mut clauses = 0_u32;
    for (at, token) in tokens.iter().enumerate() {
        let is_dropped = at.checked_sub(1).and_then(|before| tokens.get(before));
        let is_dropped = is_dropped.is_some_and(|before| before.is("DROP"));
        if token.is("FOREIGN") && !is_dropped {
            clauses += 1;
        } else if token.is("REFERENCES") {
            if clauses == 0 {
                return true;
            }
            clauses -= 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_references_of_columns_are_inline() {
        for (expected, text) in [
            (true, "CREATE TABLE c (id INT, p INT REFERENCES p (id))"),
            (true, "CREATE TABLE c (p INT REFERENCES p, FOREIGN KEY (p) REFERENCES p (id))"),
            (true, "CREATE TABLE c (FOREIGN KEY (p) REFERENCES p (id), q INT REFERENCES p (id))"),
            (true, "ALTER TABLE c ADD q INT REFERENCES p (id)"),
            (true, "ALTER TABLE c DROP FOREIGN KEY x, ADD q INT REFERENCES p (id)"),
            (false, "ALTER TABLE c DROP FOREIGN KEY x, ADD FOREIGN KEY (p) REFERENCES p (id)"),
            (false, "CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)"),
            (false, "CREATE TABLE c (p INT, CONSTRAINT x FOREIGN KEY y (p) REFERENCES p (id))"),
            (false, "ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id)"),
            (false, "CREATE TABLE `references` (id INT COMMENT 'REFERENCES p')"),
            (false, "CREATE VIEW v AS SELECT 1"),
            (false, "GRANT REFERENCES ON d.* TO a"),
        ] {
            let context = SessionContext::default();
            assert_eq!(has_inline_references(text.as_bytes(), &context), expected, "{text}");
        }
    }
}
