//! The session settings of a statement of a MySQL source, for MariaDB. Pure.
//!
//! As `statement::context`, but by name: numbers of collations and SQL modes mean something else on
//! MariaDB, and some settings do not exist there.

use std::fmt::Write as _;

use csa_provider::binlog::{SessionContext, charset_of, collation_name};

use crate::server::row_session;
use crate::statement::context::{AUTO_IS_NULL, NO_FOREIGN_KEY_CHECKS, RELAXED_UNIQUE_CHECKS};
use csa_provider::sql_text::quote;

/// SQL modes that have the same number and meaning on both servers (sql/system_variables.h of MySQL,
/// sql/sql_class.h of MariaDB).
const SHARED_MODES: u64 = 0xffff_ffff & !(0x3ff00 | 0x10);
/// MySQL: fractions of seconds are cut. MariaDB cuts them unless `TIME_ROUND_FRACTIONAL` is set.
const TIME_TRUNCATE_FRACTIONAL: u64 = 1 << 32;
const TIME_ROUND_FRACTIONAL: u64 = 1 << 34;
/// MariaDB: a GRANT does not create the account it names, as in MySQL since 8.0.
const NO_AUTO_CREATE_USER: u64 = 1 << 28;
/// The last `lc_time_names` number that is the same on both servers.
const LC_TIME_NAMES_MAX: u16 = 109;

/// Makes `utf8` mean utf8mb3, as on the source, whatever the server's default is.
const FIXED: &str = "old_mode='UTF8_IS_UTF8MB3'";

/// Returns true if MariaDB has a MySQL collation under the same name: all but utf8mb3_tolower_ci,
/// those of gb18030 and those of Unicode 9.0.
pub(crate) fn has_collation(number: u16) -> bool {
    number < 248 && number != 76
}

/// Assignments for one SET statement, separated by commas. `timestamp` is the event header's, in
/// seconds.
///
/// # Errors
/// A setting that has no counterpart.
pub(crate) fn assignments(context: &SessionContext, timestamp: u32) -> Result<String, String> {
    let micros = context.microseconds.unwrap_or(0);
    let mut set = format!("{FIXED}, timestamp={timestamp}.{micros:06}");
    // Writing to a String can't fail.
    let mut push = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(set, ", {name}={value}");
    };
    let flags = context.flags2.unwrap_or(0);
    push("foreign_key_checks", &u8::from(flags & NO_FOREIGN_KEY_CHECKS == 0));
    push("unique_checks", &u8::from(flags & RELAXED_UNIQUE_CHECKS == 0));
    push("sql_auto_is_null", &u8::from(flags & AUTO_IS_NULL != 0));
    push("sql_mode", &sql_mode(context.sql_mode.unwrap_or(0))?);
    if let Some(charset) = context.charset {
        push("character_set_client", &charset_name(charset.client)?);
        push("collation_connection", &nearest(charset.connection)?);
        // It matters to CREATE DATABASE only, which must name a collation where MariaDB lacks this one.
        push("collation_server", &or_default(charset.server));
    }
    match &context.time_zone {
        Some(zone) => push("time_zone", &quote(zone)),
        None => push("time_zone", &"DEFAULT"),
    }
    match context.lc_time_names.unwrap_or(0) {
        locale @ 0..=LC_TIME_NAMES_MAX => push("lc_time_names", &locale),
        locale => return Err(format!("lc_time_names number {locale} is not known to MariaDB")),
    }
    push("collation_database", &context.charset_database.map_or("DEFAULT", or_default));
    let (increment, offset) = context.auto_increment.unwrap_or((1, 1));
    push("auto_increment_increment", &increment);
    push("auto_increment_offset", &offset);
    if let Some(explicit) = context.explicit_defaults_for_timestamp {
        push("explicit_defaults_for_timestamp", &u8::from(explicit));
    }
    if context.default_table_encryption == Some(true) {
        return Err("default_table_encryption=ON has no counterpart on MariaDB".to_owned());
    }
    Ok(set)
}

fn sql_mode(mode: u64) -> Result<u64, String> {
    let mode = mode & !row_session::FORMER_MODES;
    let unknown = mode & !(SHARED_MODES | TIME_TRUNCATE_FRACTIONAL);
    if unknown != 0 {
        return Err(format!("sql_mode has bits that MariaDB does not know ({unknown:#x})"));
    }
    let rounds = if mode & TIME_TRUNCATE_FRACTIONAL == 0 { TIME_ROUND_FRACTIONAL } else { 0 };
    Ok(mode & SHARED_MODES | rounds | NO_AUTO_CREATE_USER)
}

fn charset_name(collation: u16) -> Result<&'static str, String> {
    let charset = charset_of(collation).map(|(name, _)| name);
    charset.ok_or_else(|| format!("collation number {collation} is not known to this version"))
}

/// `collation_connection` decides only how two literals compare, so another collation of the same
/// character set will do.
fn nearest(collation: u16) -> Result<String, String> {
    match collation_name(collation) {
        Some(name) if has_collation(collation) => Ok(name.to_owned()),
        _ => Ok(format!("{}_general_ci", charset_name(collation)?)),
    }
}

fn or_default(collation: u16) -> &'static str {
    collation_name(collation).filter(|_| has_collation(collation)).unwrap_or("DEFAULT")
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::QueryCharset;

    use super::*;

    #[test]
    fn numbers_become_what_means_the_same() {
        let context = SessionContext {
            // STRICT_TRANS_TABLES
            sql_mode: Some(1 << 21),
            charset: Some(QueryCharset { client: 255, connection: 255, server: 8 }),
            charset_database: Some(255),
            ..SessionContext::default()
        };
        let set = assignments(&context, 7).expect("all known");
        let mode = 1_u64 << 21 | 1 << 34 | 1 << 28;
        for part in [
            "timestamp=7.000000",
            &format!("sql_mode={mode},"),
            "character_set_client=utf8mb4,",
            "collation_connection=utf8mb4_general_ci,",
            "collation_server=latin1_swedish_ci,",
            "collation_database=DEFAULT,",
        ] {
            assert!(set.contains(part), "{part} in {set}");
        }
        // MySQL needs a mode bit to cut fractions; MariaDB cuts them by default.
        assert_eq!(sql_mode(1 << 32), Ok(1 << 28));
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        // EMPTY_STRING_IS_NULL has this number in MariaDB.
        assert!(sql_mode(1 << 33).is_err());
        // ORACLE of MySQL 5.7 is left out, as a replica of 8.0 does; MariaDB means more by it.
        assert_eq!(sql_mode(1 << 9), sql_mode(0));
        let encrypted =
            SessionContext { default_table_encryption: Some(true), ..SessionContext::default() };
        assert!(assignments(&encrypted, 7).is_err());
    }
}
