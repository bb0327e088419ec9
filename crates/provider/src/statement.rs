//! What a statement in a query event is, told by its first words.

/// The kinds that matter to transaction boundaries and to how a statement is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    Begin,
    Commit,
    Rollback,
    /// SAVEPOINT, RELEASE SAVEPOINT: nothing comes of them without a [`Self::RollbackTo`].
    Savepoint,
    /// ROLLBACK TO: only logged where what is rolled back could not be left out.
    RollbackTo,
    /// First half of an atomic CREATE TABLE … SELECT.
    CreateTableStartTransaction,
    Xa(XaVerb),
    /// Commits by itself: definitions, accounts, maintenance.
    Ddl,
    /// Changes rows: only seen in statement format.
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

/// First words of statements that commit by themselves and are logged as text.
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

impl Statement {
    /// Classifies by leading words; comments and white space in front are skipped.
    #[must_use]
    pub fn classify(statement: &[u8]) -> Self {
        let mut words = Words(statement);
        let Some(first) = words.next() else { return Self::Unknown };
        let is = |word: &str| first.eq_ignore_ascii_case(word.as_bytes());
        let following = words.clone().next();
        let second_is =
            |word: &str| following.is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()));
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
            Self::Xa(XaVerb::of(words.next().unwrap_or_default()))
        } else if is("CREATE") && second_is("TABLE") && ends_with_start_transaction(statement) {
            Self::CreateTableStartTransaction
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
    fn of(word: &[u8]) -> Self {
        let is = |verb: &str| word.eq_ignore_ascii_case(verb.as_bytes());
        match () {
            () if is("START") || is("BEGIN") => Self::Start,
            () if is("END") => Self::End,
            () if is("COMMIT") => Self::Commit,
            () if is("ROLLBACK") => Self::Rollback,
            () => Self::Other,
        }
    }
}

/// The server appends the words itself, so only the very end counts.
fn ends_with_start_transaction(statement: &[u8]) -> bool {
    const SUFFIX: &[u8] = b"START TRANSACTION";
    let end = statement.trim_ascii_end();
    end.len()
        .checked_sub(SUFFIX.len())
        .and_then(|at| end.get(at..))
        .is_some_and(|tail| tail.eq_ignore_ascii_case(SUFFIX))
}

/// Leading words of a statement.
#[derive(Clone)]
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0 = skip_blank(self.0);
        let len = self.0.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let (word, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// Skips white space, comments, and the opening of version comments, whose contents count.
fn skip_blank(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_start();
        if let Some(rest) = text.strip_prefix(b"/*!") {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            text = rest.get(digits..).unwrap_or_default();
        } else if text.starts_with(b"/*") {
            let end = text.windows(2).skip(2).position(|pair| pair == b"*/");
            text = end.and_then(|at| text.get(at + 4..)).unwrap_or_default();
        } else if text.starts_with(b"#") || text.starts_with(b"-- ") {
            let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
            text = text.get(end..).unwrap_or_default();
        } else if let Some(rest) = text.strip_prefix(b"(") {
            text = rest;
        } else {
            return text;
        }
    }
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
            ("insert into t values (1)", Statement::Dml),
            ("(SELECT 1)", Statement::Dml),
            ("/* only a comment", Statement::Unknown),
            ("FROBNICATE", Statement::Unknown),
            ("", Statement::Unknown),
        ] {
            assert_eq!(Statement::classify(text.as_bytes()), expected, "{text}");
        }
    }
}
