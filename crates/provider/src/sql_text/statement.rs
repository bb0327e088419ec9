//! Finds the kind of a logged statement by its words.

use super::{Dialect, Lexer, Token, TokenKind};
use crate::binlog::event::QueryEvent;

/// The kinds that matter for transaction boundaries and for the execution of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    Begin,
    Commit,
    Rollback,
    /// SAVEPOINT, RELEASE SAVEPOINT: without effect unless a [`Self::RollbackTo`] follows.
    Savepoint,
    /// ROLLBACK TO: only logged if the changes it rolls back could not be left out of the log.
    RollbackTo,
    /// First half of an atomic CREATE TABLE … SELECT.
    CreateTableStartTransaction,
    Xa(XaVerb),
    /// Commits implicitly: definitions, accounts, maintenance.
    Ddl,
    /// Deletes all rows of one table. Sources before 5.7.32 and 8.0.22 log it, in any format, for a table that a
    /// restart has emptied (MEMORY).
    Emptying,
    /// Changes rows in another way, also those of a table that it creates from a query: only occurs in statement
    /// format.
    Dml,
    /// None of the above; never skipped, always an error.
    Unknown,
}

/// The parts of a distributed transaction that are logged as statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XaVerb {
    Start,
    End,
    Commit,
    Rollback,
    Other,
}

/// First words of statements that commit implicitly and are logged as text.
const DDL: [&str; 20] = [
    "ALTER",
    "ANALYZE",
    "CACHE",
    "CHANGE",
    "CHECK",
    "CREATE",
    "DROP",
    "FLUSH",
    "GRANT",
    "IMPORT",
    "INSTALL",
    "LOCK",
    "OPTIMIZE",
    "RENAME",
    "REPAIR",
    "RESET",
    "REVOKE",
    "SET",
    "TRUNCATE",
    "UNINSTALL",
];
const DML: [&str; 10] =
    ["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "DO", "SELECT", "WITH", "TABLE"];
/// The first words of the query in CREATE TABLE … SELECT; all are reserved, and none is part of an option.
const QUERY: [&str; 5] = ["AS", "SELECT", "WITH", "TABLE", "VALUES"];

impl Statement {
    /// Returns the kind of a logged statement.
    #[must_use]
    pub fn of(query: &QueryEvent<'_>) -> Self {
        Self::read(query).0
    }

    /// Returns the kind of a logged statement, and the dialect of its text.
    #[must_use]
    pub fn read(query: &QueryEvent<'_>) -> (Self, Dialect) {
        let text = query.statement;
        match text {
            // Nearly all statements are one of these.
            b"BEGIN" => return (Self::Begin, Dialect::default()),
            b"COMMIT" => return (Self::Commit, Dialect::default()),
            _ => {}
        }
        let dialect = Dialect::of(&query.known_context());
        let kind = Self::classify(text, dialect);
        let may_be_server_made = !matches!(kind, Self::Unknown)
            && !dialect.is_utf8()
            && !text.is_ascii()
            && std::str::from_utf8(text).is_ok();
        // A table that is logged with its rows, or emptied, is written in UTF-8, whatever character set the
        // event states (`store_create_info` in sql/sql_show.cc, `open_table_entry_fini` in sql/sql_base.cc).
        match may_be_server_made.then(|| Self::classify(text, dialect.in_utf8())) {
            Some(made @ (Self::CreateTableStartTransaction | Self::Emptying)) => {
                (made, dialect.in_utf8())
            }
            _ => (kind, dialect),
        }
    }

    /// Classifies by leading words; opening parentheses before them are skipped.
    #[must_use]
    pub fn classify(statement: &[u8], dialect: Dialect) -> Self {
        let mut tokens = Lexer::new(statement, dialect)
            .map_while(Result::ok)
            .skip_while(|token| token.is_symbol(b'('));
        let Some(first) = tokens.next() else { return Self::Unknown };
        let is = |word: &str| first.is(word);
        let second = tokens.next();
        let second_is = |word: &str| second.is_some_and(|token| token.is(word));
        if is("BEGIN") || is("START") && second_is("TRANSACTION") {
            Self::Begin
        } else if is("COMMIT") {
            Self::Commit
        } else if is("SAVEPOINT") || is("RELEASE") && second_is("SAVEPOINT") {
            Self::Savepoint
        } else if is("ROLLBACK") && second_is("TO") {
            Self::RollbackTo
        } else if is("ROLLBACK") {
            Self::Rollback
        } else if is("XA") {
            Self::Xa(second.map_or(XaVerb::Other, XaVerb::of))
        } else if is("CREATE") && second_is("TABLE") {
            creation_of_table(tokens)
        } else if is("DELETE") && second_is("FROM") && is_qualified_name(tokens) {
            Self::Emptying
        } else if DDL.iter().any(|word| is(word)) {
            Self::Ddl
        } else if DML.iter().any(|word| is(word)) {
            Self::Dml
        } else {
            Self::Unknown
        }
    }
}

impl XaVerb {
    fn of(word: Token<'_>) -> Self {
        match () {
            () if word.is("START") || word.is("BEGIN") => Self::Start,
            () if word.is("END") => Self::End,
            () if word.is("COMMIT") => Self::Commit,
            () if word.is("ROLLBACK") => Self::Rollback,
            () => Self::Other,
        }
    }
}

/// Returns the schema's name in a statement that only empties one table, named with its schema: `DELETE FROM d.t` or
/// `TRUNCATE TABLE d.t`.
#[must_use]
pub fn emptied_schema(statement: &[u8], dialect: Dialect) -> Option<Token<'_>> {
    let tokens: Vec<Token<'_>> = Lexer::new(statement, dialect).collect::<Result<_, _>>().ok()?;
    let name = match tokens.as_slice() {
        [verb, from, name @ ..] if verb.is("DELETE") && from.is("FROM") => name,
        [verb, table, name @ ..] if verb.is("TRUNCATE") && table.is("TABLE") => name,
        [verb, name @ ..] if verb.is("TRUNCATE") => name,
        _ => return None,
    };
    name.first().copied().filter(|_| is_qualified_name(name.iter().copied()))
}

fn is_name(token: Token<'_>) -> bool {
    matches!(token.kind, TokenKind::Word | TokenKind::Member | TokenKind::QuotedName)
}

/// Returns true if these tokens are the name of a table with its schema, and nothing else.
fn is_qualified_name<'a>(mut tokens: impl Iterator<Item = Token<'a>>) -> bool {
    tokens.next().is_some_and(is_name)
        && tokens.next().is_some_and(|token| token.is_symbol(b'.'))
        && tokens.next().is_some_and(is_name)
        && tokens.next().is_none()
}

/// Returns the kind of a CREATE TABLE from what follows these words.
///
/// Among the options, START TRANSACTION says that rows follow in events. The server puts it before the options
/// that it writes itself (`store_create_info` in sql/sql_show.cc); otherwise it is where a client wrote it.
/// With a query instead, the text alone has the rows: a session in another format than ROW has logged it.
fn creation_of_table<'a>(tokens: impl Iterator<Item = Token<'a>>) -> Statement {
    let mut depth = 0_usize;
    let mut columns = false;
    let mut after_start = false;
    // A query may stand in parentheses, but nothing else is before it there.
    let mut may_begin = true;
    for token in tokens {
        if depth == 0 && columns && after_start && token.is("TRANSACTION") {
            return Statement::CreateTableStartTransaction;
        }
        if (depth == 0 || may_begin) && QUERY.iter().any(|word| token.is(word)) {
            return Statement::Dml;
        }
        after_start = token.is("START");
        match token.kind {
            TokenKind::Symbol(b'(') => {
                may_begin |= depth == 0;
                depth += 1;
                columns = true;
            }
            TokenKind::Symbol(b')') => {
                depth = depth.saturating_sub(1);
                may_begin = false;
            }
            _ => may_begin = false,
        }
    }
    Statement::Ddl
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_decide() {
        for (text, expected) in [
            ("BEGIN", Statement::Begin),
            ("start transaction", Statement::Begin),
            ("COMMIT", Statement::Commit),
            ("ROLLBACK", Statement::Rollback),
            ("rollback to `a`", Statement::RollbackTo),
            ("RELEASE SAVEPOINT `a`", Statement::Savepoint),
            ("SAVEPOINT `a`", Statement::Savepoint),
            ("XA START X'61',X'',1", Statement::Xa(XaVerb::Start)),
            ("XA COMMIT X'61',X'',1", Statement::Xa(XaVerb::Commit)),
            ("CREATE TABLE `t` (a INT) START TRANSACTION", Statement::CreateTableStartTransaction),
            ("create table t (a int)", Statement::Ddl),
            ("CREATE DEFINER=`a`@`b` PROCEDURE `p`()\nSTART TRANSACTION", Statement::Ddl),
            ("/* hint */ -- line\n # another\n DROP TABLE t", Statement::Ddl),
            ("/*!80000 ALTER TABLE t ADD b INT */", Statement::Ddl),
            ("SET PASSWORD FOR 'a'@'b'='x'", Statement::Ddl),
            ("DELETE FROM `d`.`a b`", Statement::Emptying),
            ("delete from d.t", Statement::Emptying),
            ("DELETE FROM `d`.`t` WHERE a=1", Statement::Dml),
            ("DELETE FROM `d`.`t` LIMIT 1", Statement::Dml),
            ("DELETE FROM `d`.`t`;", Statement::Dml),
            ("DELETE FROM `t`", Statement::Dml),
            ("DELETE QUICK FROM `d`.`t`", Statement::Dml),
            ("DELETE a FROM d.t a", Statement::Dml),
            ("insert into t values (1)", Statement::Dml),
            ("(SELECT 1)", Statement::Dml),
            ("/* only a comment", Statement::Unknown),
            ("FROBNICATE", Statement::Unknown),
            ("", Statement::Unknown),
        ] {
            assert_eq!(
                Statement::classify(text.as_bytes(), Dialect::default()),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn start_transaction_counts_among_the_options_of_a_table_only() {
        let rows = "CREATE TABLE `t` (\n  `a` int NOT NULL\n)";
        for options in [
            " START TRANSACTION",
            " START TRANSACTION ENGINE=InnoDB COMMENT='x'",
            " START TRANSACTION /*!50100 TABLESPACE `innodb_system` */",
            " START TRANSACTION ENGINE=InnoDB\n/*!50100 PARTITION BY HASH (`a`)\nPARTITIONS 2 */",
            " ENGINE=InnoDB, START/* x */TRANSACTION , COMMENT 'x'",
            " ENGINE=InnoDB /*!80021 START TRANSACTION */",
            " UNION=(x,y) start -- x\n transaction",
            " TABLESPACE start START TRANSACTION;",
        ] {
            let found =
                Statement::classify(format!("{rows}{options}").as_bytes(), Dialect::default());
            assert_eq!(found, Statement::CreateTableStartTransaction, "{options}");
        }
        for text in [
            &format!("{rows} COMMENT='START TRANSACTION'"),
            &format!("{rows} COMMENT=\"(START TRANSACTION\" ENGINE=InnoDB"),
            &format!("{rows} -- START TRANSACTION"),
            &format!("{rows} # START TRANSACTION"),
            &format!("{rows} --\tSTART TRANSACTION\nENGINE=InnoDB"),
            &format!("{rows} /* 99999 START TRANSACTION */"),
            &format!("{rows} TABLESPACE `START` /* */ `TRANSACTION`"),
            "CREATE TABLE t (start transaction, b int DEFAULT (START TRANSACTION))",
            "CREATE TABLE start.transaction (a int)",
            "CREATE TABLE t (a int COMMENT ') START TRANSACTION')",
            "CREATE TABLE t (a int COMMENT 'it''s \\') START TRANSACTION')",
            "CREATE TABLE t (`)` int) PARTITION BY LIST (a) (PARTITION start VALUES IN (1))",
            "CREATE TABLE t LIKE start",
        ] {
            let found = Statement::classify(text.as_bytes(), Dialect::default());
            assert_eq!(found, Statement::Ddl, "{text}");
        }
    }

    #[test]
    fn only_whole_statements_with_one_qualified_table_empty_it() {
        for (text, expected) in [
            ("DELETE FROM `d`.`t`", Some("`d`")),
            ("TRUNCATE TABLE `a b`.t", Some("`a b`")),
            ("truncate d . t /* x */", Some("d")),
            ("TRUNCATE TABLE t", None),
            ("DELETE FROM d.t WHERE a=1", None),
            ("DELETE FROM d.t;", None),
            ("TRUNCATE d.t, e.t", None),
            ("DROP TABLE d.t", None),
            ("TRUNCATE d.`t", None),
        ] {
            let found = emptied_schema(text.as_bytes(), Dialect::default());
            assert_eq!(found.map(|token| token.text), expected.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn a_table_made_from_a_query_is_a_change_of_rows() {
        for text in [
            "CREATE TABLE t AS SELECT 1",
            "CREATE TABLE IF NOT EXISTS d.t SELECT * FROM u",
            "CREATE TABLE t (a INT) SELECT 1 AS a",
            "CREATE TABLE t (a INT) ENGINE=InnoDB IGNORE SELECT start transaction FROM x",
            "CREATE TABLE t (PRIMARY KEY (a)) REPLACE AS (SELECT 1 AS a)",
            "CREATE TABLE t (SELECT 1)",
            "CREATE TABLE t (a INT) ((SELECT 1) UNION (SELECT 2))",
            "CREATE TABLE t WITH c AS (SELECT 1) SELECT * FROM c",
            "CREATE TABLE t TABLE u",
            "CREATE TABLE t (VALUES ROW(1), ROW(2))",
            "CREATE TABLE t PARTITION BY HASH ((a)) PARTITIONS 2 SELECT a FROM u",
        ] {
            let found = Statement::classify(text.as_bytes(), Dialect::default());
            assert_eq!(found, Statement::Dml, "{text}");
        }
        for text in [
            "CREATE TABLE t LIKE u",
            "CREATE TABLE t (LIKE u)",
            "CREATE TABLE `select` (`as` INT, `with` INT)",
            "CREATE TABLE d.table (a INT AS (b) STORED, FULLTEXT KEY (c) WITH PARSER ngram)",
            "CREATE TABLE t (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1))",
            "CREATE TABLE t (a INT) PARTITION BY HASH ((a + 1)) PARTITIONS 2",
            "CREATE TABLE t (a INT DEFAULT (1)) UNION=(x, y) COMMENT 'AS SELECT'",
            "CREATE TEMPORARY TABLE t AS SELECT 1",
            "CREATE VIEW t AS SELECT 1",
        ] {
            let found = Statement::classify(text.as_bytes(), Dialect::default());
            assert_eq!(found, Statement::Ddl, "{text}");
        }
    }

    #[test]
    fn what_a_client_writes_before_a_statement_is_passed_over() {
        for before in [
            "--\n-- Table structure for table `t`\n--\n\n",
            "--\t\n",
            "--\u{1}\n",
            "#\n",
            "/**/",
            "/* it's */",
            "/*!40000 */",
            "\u{b}\u{c}\r\n",
        ] {
            let text = format!("{before}DROP TABLE t");
            let found = Statement::classify(text.as_bytes(), Dialect::default());
            assert_eq!(found, Statement::Ddl, "{text:?}");
        }
        for text in ["--DROP TABLE t", "-- DROP TABLE t", "--", "/*/DROP TABLE t"] {
            let found = Statement::classify(text.as_bytes(), Dialect::default());
            assert_eq!(found, Statement::Unknown, "{text:?}");
        }
    }
}
