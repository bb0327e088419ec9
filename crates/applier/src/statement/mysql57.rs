//! The session settings of a statement of a later MySQL, for MySQL 5.7. Pure.

use csa_provider::binlog::{QueryCharset, SessionContext};

use super::context::{self, Restricted, UTF8MB4_GENERAL_CI};
use crate::server::row_session::FORMER_MODES;

/// The query for [`super::context::RestrictedRow`]; it lacks the other variables.
pub(super) const RESTRICTED: &str = "SELECT @@SESSION.explicit_defaults_for_timestamp, FALSE, FALSE, 45, \
     @@SESSION.auto_increment_increment, @@SESSION.auto_increment_offset, \
     IF(FIND_IN_SET('NO_DIR_IN_CREATE', @@GLOBAL.sql_mode), 128, 0)";

/// The first mode that came later: TIME_TRUNCATE_FRACTIONAL.
const LATER_MODES: u64 = !0 << 32;
/// A GRANT does not create the account that it names, as in MySQL since 8.0: that account would have no password.
const NO_AUTO_CREATE_USER: u64 = 1 << 28;
/// The first collation that came later, utf8mb4_0900_ai_ci; all of them are of utf8mb4.
const FIRST_LATER: u16 = 255;

/// Returns the session without settings that came later.
///
/// # Errors
/// One that has no counterpart.
pub(super) fn context(context: &SessionContext) -> Result<SessionContext, String> {
    let unknown = context.sql_mode.unwrap_or(0) & LATER_MODES;
    if unknown != 0 {
        return Err(format!("sql_mode has bits that MySQL 5.7 does not know ({unknown:#x})"));
    }
    if context.default_table_encryption == Some(true) {
        return Err("default_table_encryption=ON has no counterpart in MySQL 5.7".to_owned());
    }
    Ok(SessionContext {
        charset: context.charset.map(|charset| QueryCharset {
            client: nearest(charset.client),
            // It decides only how two literals compare.
            connection: nearest(charset.connection),
            // It matters to CREATE DATABASE only, which must name a collation in this case.
            server: nearest(charset.server),
        }),
        charset_database: context.charset_database.map(nearest),
        sql_require_primary_key: None,
        default_table_encryption: None,
        default_collation_for_utf8mb4: None,
        ..context.clone()
    })
}

/// Returns the assignments for one SET statement; the context is one that [`context`] has returned.
///
/// A source of 5.7 keeps the modes that 8.0 has removed.
pub(super) fn assignments(context: &SessionContext, timestamp: u32, now: Restricted) -> String {
    let former = context.sql_mode.unwrap_or(0) & FORMER_MODES;
    let own_mode = now.own_mode | former | NO_AUTO_CREATE_USER;
    context::assignments(context, timestamp, &Restricted { own_mode, ..now })
}

fn nearest(collation: u16) -> u16 {
    match collation {
        FIRST_LATER.. => UTF8MB4_GENERAL_CI,
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::RestrictedRow;
    use super::*;

    #[test]
    fn a_grant_creates_no_account_and_former_modes_are_kept() {
        let row: RestrictedRow = (true, false, false, 45, 1, 1, 1 << 7);
        // MAXDB and STRICT_TRANS_TABLES.
        for (logged, expected) in [
            (1_u64 << 21, 1_u64 << 21 | 1 << 28 | 1 << 7),
            (1 << 12 | 1 << 28, 1 << 12 | 1 << 28 | 1 << 7),
        ] {
            let session = SessionContext { sql_mode: Some(logged), ..SessionContext::default() };
            let set = assignments(&session, 7, Restricted::from(row));
            assert!(set.contains(&format!(", sql_mode={expected},")), "{logged}: {set}");
        }
    }

    #[test]
    fn later_settings_are_left_out_or_refused() {
        let later = SessionContext {
            sql_mode: Some(1 << 21),
            charset: Some(QueryCharset { client: 255, connection: 309, server: 8 }),
            charset_database: Some(255),
            default_collation_for_utf8mb4: Some(255),
            sql_require_primary_key: Some(true),
            ..SessionContext::default()
        };
        let known = context(&later).expect("known");
        assert_eq!(known.charset, Some(QueryCharset { client: 45, connection: 45, server: 8 }));
        assert_eq!((known.charset_database, known.sql_mode), (Some(45), Some(1 << 21)));
        assert_eq!(known.default_collation_for_utf8mb4, None);
        assert_eq!(known.sql_require_primary_key, None);
        for refused in [
            SessionContext { sql_mode: Some(1 << 32), ..SessionContext::default() },
            SessionContext { default_table_encryption: Some(true), ..SessionContext::default() },
        ] {
            assert!(context(&refused).is_err(), "{refused:?}");
        }
    }
}
