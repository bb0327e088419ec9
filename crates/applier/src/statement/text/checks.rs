//! CHECK clauses in the definitions of tables. Pure.
//!
//! MySQL 8.0.16 and MariaDB enforce them; MySQL before 8.0.16 reads them and keeps nothing
//! (<https://dev.mysql.com/doc/refman/8.0/en/create-table-check-constraints.html>).

use csa_provider::binlog::SessionContext;
use csa_provider::sql_text::Dialect;

use super::tokens::Tokens;

/// Returns true if a CREATE or ALTER TABLE has a CHECK with an expression. CHECK PARTITION has none.
pub(crate) fn has_checks(text: &[u8], context: &SessionContext) -> bool {
    let read = Tokens::of(text, Dialect::of(context));
    read.define_table()
        && read.tokens.windows(2).any(|pair| match pair {
            [word, next] => word.is("CHECK") && next.is_symbol(b'('),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_expressions_of_tables_are_checks() {
        for (expected, text) in [
            (true, "CREATE TABLE t (a INT CHECK (a > 0))"),
            (true, "create table t (a INT, constraint c check(a > 0))"),
            (true, "CREATE TEMPORARY TABLE t (a INT, CHECK /* c */ (a > 0))"),
            (true, "CREATE TABLE t (a INT /*!50000 CHECK (a > 0) */)"),
            (true, "ALTER TABLE t ADD CONSTRAINT CHECK (a > 0)"),
            (true, "ALTER TABLE t ADD b INT AS (a + 1) CHECK (b > 0)"),
            (false, "ALTER TABLE t CHECK PARTITION p"),
            (false, "ALTER TABLE t ADD b INT GENERATED ALWAYS AS (a + 1)"),
            (false, "CREATE TABLE t (a INT COMMENT 'CHECK (a > 0)') -- CHECK (a > 0)"),
            (false, "CREATE TABLE t (a INT /* CHECK (a > 0) */, KEY `check` (a))"),
            (false, "CREATE VIEW v AS SELECT a FROM t WITH CHECK OPTION"),
            (false, "CHECK TABLE t"),
            (false, "CREATE PROCEDURE p() CREATE TABLE t (a INT CHECK (a > 0))"),
        ] {
            let context = SessionContext::default();
            assert_eq!(has_checks(text.as_bytes(), &context), expected, "{text}");
        }
    }
}
