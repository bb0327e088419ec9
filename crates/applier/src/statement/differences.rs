//! Finds statements that MariaDB or MySQL 5.7 would execute without an error, but differently from the
//! source. Pure.

use csa_provider::binlog::{SessionContext, collation_name};
use csa_provider::sql_text::{Dialect, Lexer};

use super::mariadb::context::has_collation;
use super::next_steps::MAP_IT;
use crate::statement::text::implied_collation;

/// A server that is to execute a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    MySql57,
    MariaDb,
}

impl Reader {
    fn name(self) -> &'static str {
        match self {
            Self::MySql57 => "MySQL 5.7",
            Self::MariaDb => "MariaDB",
        }
    }

    /// Returns the version comments that a newer MySQL executes and this server ignores
    /// (<https://mariadb.com/docs/server/reference/sql-structure/sql-language-structure/comment-syntax>).
    fn passes_over(self) -> std::ops::Range<u32> {
        match self {
            Self::MySql57 => 50_800..1_000_000,
            Self::MariaDb => 50_700..100_000,
        }
    }
}

/// Version comments that may be ignored: they change no content.
const HARMLESS: [&str; 2] = ["DEFAULT ENCRYPTION='N'", "INVISIBLE"];

/// The reason why the statement must not be sent to this server as it is.
pub(super) fn objection(text: &[u8], context: &SessionContext, reader: Reader) -> Option<String> {
    let server = reader.name();
    let mut lexer = Lexer::new(text, Dialect::of(context));
    if let Some(unclosed) = lexer.by_ref().find_map(Result::err) {
        return Some(unclosed.to_string());
    }
    for comment in lexer.special_comments() {
        if comment.mariadb_only && reader == Reader::MariaDb {
            return Some("it has a comment that only MariaDB would execute".to_owned());
        }
        let inside = text.get(comment.inside.clone()).unwrap_or_default();
        if !comment.mariadb_only
            && let Some(version) = passed_over(inside, reader)
        {
            return Some(format!("{server} ignores its version comment for MySQL {version}"));
        }
    }
    let implied = implied_collation(text, context).filter(|&number| !has_collation(number))?;
    let name = collation_name(implied).unwrap_or("unknown");
    Some(format!(
        "it leaves the collation to the source's default, {name}, which {server} lacks; \
         {MAP_IT}; or name one that both have (such as COLLATE utf8mb4_general_ci) on the source"
    ))
}

/// Returns the version of a comment with this content, if the server ignores it and that is not
/// harmless.
fn passed_over(inside: &[u8], reader: Reader) -> Option<String> {
    let digits = inside.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
    let (version, contents) = inside.split_at_checked(digits)?;
    let version = String::from_utf8_lossy(version).into_owned();
    let contents = contents.trim_ascii();
    let is_harmless = HARMLESS.iter().any(|known| contents.eq_ignore_ascii_case(known.as_bytes()));
    let is_passed_over =
        version.parse().is_ok_and(|version| reader.passes_over().contains(&version));
    (is_passed_over && !is_harmless).then_some(version)
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::QueryCharset;

    use super::*;

    fn objected(server: u16, utf8mb4: u16, text: &str) -> bool {
        objected_by(Reader::MariaDb, server, utf8mb4, text)
    }

    fn objected_by(reader: Reader, server: u16, utf8mb4: u16, text: &str) -> bool {
        let context = SessionContext {
            charset: Some(QueryCharset { client: 255, connection: 255, server }),
            default_collation_for_utf8mb4: Some(utf8mb4),
            ..SessionContext::default()
        };
        objection(text.as_bytes(), &context, reader).is_some()
    }

    #[test]
    fn collations_must_be_named_where_the_default_is_mysqls() {
        for (expected, text) in [
            (true, "CREATE DATABASE d"),
            (false, "CREATE DATABASE d COLLATE utf8mb4_general_ci"),
            (false, "CREATE DATABASE d CHARACTER SET latin1"),
            (true, "CREATE SCHEMA IF NOT EXISTS d DEFAULT CHARSET = 'utf8mb4'"),
            (false, "ALTER DATABASE d READ ONLY=1"),
            (true, "ALTER DATABASE d CHARACTER SET utf8mb4"),
            (false, "CREATE TABLE t (a INT, b VARCHAR(10))"),
            (true, "CREATE TABLE t (a VARCHAR(10) CHARACTER SET utf8mb4, b INT)"),
            (true, "CREATE TABLE t (a VARCHAR(10) CHARSET utf8mb4, b TEXT COLLATE utf8mb4_bin)"),
            (false, "CREATE TABLE t (a VARCHAR(10) CHARSET utf8mb4 COLLATE utf8mb4_bin, b INT)"),
            (true, "CREATE TEMPORARY TABLE t (a INT) DEFAULT CHARSET=utf8mb4 ENGINE=InnoDB"),
            (false, "CREATE TABLE t (a INT) CHARSET=utf8mb4, ENGINE=InnoDB, COLLATE=utf8mb4_bin"),
            (true, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"),
            (false, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
            (true, "ALTER TABLE t ADD a TEXT CHARSET utf8mb4, ADD b TEXT COLLATE utf8mb4_bin"),
            (false, "ALTER TABLE t ADD charset INT COMMENT 'CHARSET utf8mb4'"),
        ] {
            assert_eq!(objected(255, 255, text), expected, "{text}");
            assert!(!objected(45, 45, text), "{text}");
        }
    }

    #[test]
    fn mysql_5_7_lacks_what_came_later() {
        for (expected, text) in [
            (true, "CREATE TABLE t (a INT /*!80013 DEFAULT (1) */)"),
            (false, "CREATE TABLE t (a INT) /*!50706 COMMENT 'x' */"),
            (false, "DROP TABLE t /*M!100100 , u */"),
            (true, "CREATE TABLE t (a VARCHAR(10) CHARACTER SET utf8mb4)"),
            (false, "CREATE TABLE t (a VARCHAR(10))"),
        ] {
            assert_eq!(objected_by(Reader::MySql57, 255, 255, text), expected, "{text}");
        }
    }

    #[test]
    fn comments_must_mean_the_same() {
        for (expected, text) in [
            (true, "DROP TABLE t /*M!100100 , u */"),
            (true, "CREATE TABLE t (a INT /*!80013 DEFAULT (1) */)"),
            (false, "CREATE TABLE t (a INT /*!80023 INVISIBLE */)"),
            (false, "ALTER DATABASE d /*!80016 DEFAULT ENCRYPTION='N' */"),
            (false, "ALTER TABLE t COMMENT '/*M!100100 x */ /*!80013 x */'"),
            (false, "ALTER TABLE t COMMENT 'x' -- /*!80013 x */"),
            (true, "ALTER TABLE t /*!080013 COMMENT 'x' */"),
            (true, "ALTER TABLE t COMMENT '"),
            (false, "DROP TABLE /*!32312 IF EXISTS */ t /* generated by server */"),
        ] {
            assert_eq!(objected(45, 45, text), expected, "{text}");
        }
    }
}
