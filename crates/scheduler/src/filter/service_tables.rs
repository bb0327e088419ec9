//! Changes that a managed service logs of its own tables, some of them as statements whatever `binlog_format` is.

use csa_provider::binlog::QueryEvent;
use csa_provider::sql_text::{Dialect, Statement, Token};

use super::objects::is_name;
use super::tokens::tokens;

/// Beginnings of the names that services give their tables in schema `mysql`. Tables of that schema have no triggers.
const NAMES: [&str; 4] = ["rds_", "heartbeat", "ha_health_check", "__"];
const VERBS: [&str; 4] = ["INSERT", "REPLACE", "UPDATE", "DELETE"];
/// Words between the verb and the table.
const BEFORE_TABLE: [&str; 7] =
    ["LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "FROM"];
/// Words that follow the table's name if the statement changes no other one.
const AFTER_TABLE: [&str; 4] = ["SET", "VALUES", "VALUE", "WHERE"];
/// Words of queries, which may read a view that calls a stored function.
const QUERIES: [&str; 3] = ["SELECT", "TABLE", "WITH"];
/// Words before a parenthesis that call no stored function. With a space between, NOW may be one.
const BEFORE_PARENTHESIS: [&str; 4] = ["VALUES", "VALUE", "UNIX_TIMESTAMP", "UTC_TIMESTAMP"];

/// Returns true for a change of rows that certainly changes nothing but a managed service's own table.
#[must_use]
pub fn is_change_of_service(query: &QueryEvent<'_>) -> bool {
    let (_, dialect) = Statement::read(query);
    changed_service_table(query.statement, dialect).is_some()
}

/// Returns rules of `replicate_wild_ignore_table` for all of these tables.
pub fn service_tables() -> impl Iterator<Item = String> {
    NAMES.iter().map(|name| format!("mysql.{}%", name.replace('_', "\\_")))
}

/// Returns schema and name of a managed service's own table, if a change of rows can't change anything else: it names no
/// other table and calls no stored function.
pub(crate) fn changed_service_table(
    statement: &[u8],
    dialect: Dialect,
) -> Option<(String, String)> {
    let tokens = tokens(statement, dialect)?;
    let (verb, rest) = tokens.split_first()?;
    let before = rest.iter().take_while(|token| is_one_of(token, &BEFORE_TABLE)).count();
    let [schema, dot, table, after @ ..] = rest.get(before..)? else { return None };
    let (schema, table) = (dialect.name(schema)?, dialect.name(table)?);
    let is_of_service = is_one_of(verb, &VERBS)
        && dot.is_symbol(b'.')
        && schema == "mysql"
        && NAMES.iter().any(|name| table.starts_with(name));
    let is_only_table =
        after.first().is_none_or(|token| token.is_symbol(b'(') || is_one_of(token, &AFTER_TABLE));
    // A dot may stand before a stored function, and between the names of another table.
    let may_do_more = after.iter().any(|token| token.is_symbol(b'.') || is_one_of(token, &QUERIES));
    let may_call = after.windows(2).any(|pair| match pair {
        [name, next] => {
            let is_builtin = is_one_of(name, &BEFORE_PARENTHESIS)
                || name.is("NOW") && name.range().end == next.start;
            next.is_symbol(b'(') && is_name(name) && !is_builtin
        }
        _ => false,
    });
    (is_of_service && is_only_table && !may_do_more && !may_call).then_some((schema, table))
}

fn is_one_of(token: &Token<'_>, words: &[&str]) -> bool {
    words.iter().any(|word| token.is(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_one_table_of_the_service_is_one() {
        for (text, expected) in [
            (
                "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,1469012345001) \
                 ON DUPLICATE KEY UPDATE value = 1469012345001",
                Some("rds_heartbeat2"),
            ),
            ("DELETE FROM mysql.rds_sysinfo where name='innodb_txn_key'", Some("rds_sysinfo")),
            ("DELETE FROM `mysql`.`rds_monitor`", Some("rds_monitor")),
            ("REPLACE mysql.heartbeat VALUES (1, NOW(6))", Some("heartbeat")),
            (
                "UPDATE mysql.ha_health_check SET id=VALUES(id) WHERE type='0'",
                Some("ha_health_check"),
            ),
            ("insert ignore into mysql.__a set b=1", Some("__a")),
            ("INSERT INTO rds_heartbeat2 VALUES (1)", None),
            ("INSERT INTO d.rds_heartbeat2 VALUES (1)", None),
            ("INSERT INTO mysql.user VALUES (1)", None),
            ("INSERT INTO mysql.rds_a SELECT * FROM v", None),
            ("INSERT INTO mysql.rds_a (b) TABLE v", None),
            ("INSERT INTO mysql.rds_a VALUES (f(1))", None),
            ("INSERT INTO mysql.rds_a VALUES (`f` (1))", None),
            ("INSERT INTO mysql.rds_a VALUES (NOW (6))", None),
            ("INSERT INTO mysql.rds_a VALUES (NOW/**/(6))", None),
            ("INSERT INTO mysql.rds_a VALUES (d.now())", None),
            ("INSERT INTO mysql.rds_a VALUES (d. now())", None),
            ("DELETE FROM mysql.rds_a WHERE (SELECT f(1))", None),
            ("DELETE FROM mysql.rds_a, d.t USING mysql.rds_a JOIN d.t", None),
            ("DELETE mysql.rds_a, d.t FROM mysql.rds_a JOIN d.t", None),
            ("UPDATE mysql.rds_a, t SET t.a=1", None),
            ("UPDATE mysql.rds_a JOIN t SET a=1", None),
            ("CALL mysql.rds_set(1)", None),
            ("INSERT INTO mysql.rds_a VALUES ('1)", None),
            ("", None),
        ] {
            let found = changed_service_table(text.as_bytes(), Dialect::default());
            let expected = expected.map(|table| ("mysql".to_owned(), table.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
