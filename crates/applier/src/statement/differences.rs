//! Finds statements that MariaDB or an older MySQL would execute without an error, but differently from the
//! source. Pure.

use csa_provider::binlog::{SessionContext, collation_name};
use csa_provider::server::Vendor;
use csa_provider::sql_text::{Dialect, Lexer, SpecialComment};

use super::mariadb::context::has_collation;
use super::next_steps::map_it;
use crate::server::reached::ReachedServer;
use crate::statement::text::implied_collation;

/// A server that is to execute a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// MySQL 8.0 or newer, with the number of its version, such as 80031.
    MySql(u32),
    MySql57,
    MariaDb,
}

impl Reader {
    pub(super) fn of(server: &ReachedServer) -> Self {
        match server.vendor() {
            Vendor::MySql => Self::MySql(server.version_id()),
            Vendor::MySql57 => Self::MySql57,
            Vendor::MariaDb => Self::MariaDb,
        }
    }

    fn name(self) -> String {
        match self {
            Self::MySql(id) => format!("MySQL {}.{}.{}", id / 10_000, id / 100 % 100, id % 100),
            Self::MySql57 => "MySQL 5.7".to_owned(),
            Self::MariaDb => "MariaDB".to_owned(),
        }
    }

    /// Returns the version comments that a newer MySQL executes and this server ignores
    /// (<https://mariadb.com/docs/server/reference/sql-structure/sql-language-structure/comment-syntax>).
    fn passes_over(self) -> std::ops::Range<u32> {
        match self {
            Self::MySql(id) => id + 1..1_000_000,
            Self::MySql57 => 50_800..1_000_000,
            Self::MariaDb => 50_700..100_000,
        }
    }
}

/// Version comments that may be ignored: they change no content.
const HARMLESS: [&str; 2] = ["DEFAULT ENCRYPTION='N'", "INVISIBLE"];

/// The reason why the statement must not be sent to this server as it is.
pub(super) fn objection(text: &[u8], context: &SessionContext, reader: Reader) -> Option<String> {
    match reader {
        // Without version comments it means the same there, whatever else is in it.
        Reader::MySql(_) if !text.windows(3).any(|mark| mark == b"/*!") => None,
        Reader::MySql(_) => comment_objection(text, context, reader),
        Reader::MySql57 | Reader::MariaDb => comment_objection(text, context, reader)
            .or_else(|| collation_objection(text, context, reader)),
    }
}

fn comment_objection(text: &[u8], context: &SessionContext, reader: Reader) -> Option<String> {
    let mut lexer = Lexer::new(text, Dialect::of(context));
    if let Some(unclosed) = lexer.by_ref().find_map(Result::err) {
        return Some(unclosed.to_string());
    }
    for comment in lexer.special_comments() {
        if comment.mariadb_only && reader == Reader::MariaDb {
            return Some("it has a comment that only MariaDB would execute".to_owned());
        }
        if let Some(version) = passed_over(text, comment, reader) {
            let server = reader.name();
            return Some(format!("{server} ignores its version comment for MySQL {version}"));
        }
    }
    None
}

fn collation_objection(text: &[u8], context: &SessionContext, reader: Reader) -> Option<String> {
    let server = reader.name();
    let implied = implied_collation(text, context).filter(|&number| !has_collation(number))?;
    let name = collation_name(implied).unwrap_or("unknown");
    Some(format!(
        "it leaves the collation to the source's default, {name}, which {server} lacks; \
         {}; or name one that both have (such as COLLATE utf8mb4_general_ci) on the source",
        map_it()
    ))
}

/// Returns the version of a comment, if the server ignores it and that is not harmless.
fn passed_over(text: &[u8], comment: &SpecialComment, reader: Reader) -> Option<String> {
    let inside = text.get(comment.inside.clone())?;
    let (version, contents) = inside.split_at_checked(comment.digits)?;
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
    fn an_older_mysql_lacks_what_came_after_its_version() {
        for (expected, text) in [
            (true, "ALTER TABLE t ADD a INT /*!80100 , ADD b INT */"),
            (true, "ALTER TABLE t ADD a INT /*!80032, ADD b INT */"),
            (true, "ALTER TABLE t ADD a INT /*!080032 , ADD b INT */"),
            (true, "/*!90000 ALTER TABLE t ADD a INT */"),
            (true, "CREATE PROCEDURE p() BEGIN SELECT 1; /*!90100 SELECT 2; */ END"),
            (true, "ALTER TABLE t COMMENT 'x' /*!80100 , ADD b INT"),
            (false, "ALTER TABLE t ADD a INT /*!80031 , ADD b INT */"),
            // Five digits, and a sum.
            (false, "CREATE VIEW v AS SELECT 1 /*!800235+ 1 */"),
            (false, "ALTER DATABASE d /*!80016 DEFAULT ENCRYPTION='N' */"),
            (false, "CREATE TABLE t (a INT /*!80100 INVISIBLE */)"),
            // The source has blanked the mark of a comment that it did not execute.
            (false, "ALTER TABLE t ADD a INT /* 99999 , ADD b INT */"),
            (false, "ALTER TABLE t COMMENT '/*!80100 x */'"),
            (false, "DROP TABLE t /*M!100100 , u */"),
            (false, "ALTER TABLE t COMMENT '"),
            (false, "CREATE TABLE t (a VARCHAR(10) CHARACTER SET utf8mb4)"),
        ] {
            assert_eq!(objected_by(Reader::MySql(80_031), 255, 255, text), expected, "{text}");
        }
        let text = b"ALTER TABLE t ADD a INT /*!80100 , ADD b INT */";
        let why = objection(text, &SessionContext::default(), Reader::MySql(80_031));
        let expected = "MySQL 8.0.31 ignores its version comment for MySQL 80100";
        assert_eq!(why.as_deref(), Some(expected));
        assert_eq!(objection(text, &SessionContext::default(), Reader::MySql(80_100)), None);
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
