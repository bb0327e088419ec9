//! The session settings of a statement on the source, as assignments for a SET on the target.
//!
//! They are those that `mysqlbinlog` prints before a statement; all are set every time, so that no
//! statement inherits from the one before it.

use std::fmt::Write as _;

use csa_provider::binlog::SessionContext;

use crate::server::row_session;
use csa_provider::sql_text::quote;

/// Bits of the status variable `Q_FLAGS2_CODE` (sql/query_options.h).
pub(crate) const AUTO_IS_NULL: u32 = 1 << 14;
pub(crate) const NO_FOREIGN_KEY_CHECKS: u32 = 1 << 26;
pub(crate) const RELAXED_UNIQUE_CHECKS: u32 = 1 << 27;

/// The bit of `sql_mode` that leaves out DATA DIRECTORY and INDEX DIRECTORY (sql/system_variables.h).
const NO_DIR_IN_CREATE: u64 = 1 << 7;

/// The number is the same in every version, and in MariaDB.
pub(crate) const UTF8MB4_GENERAL_CI: u16 = 45;

/// Lets the clock run again, which stands still in a session that was given a time.
pub(crate) const NOW: &str = "SET SESSION timestamp=DEFAULT";

/// Resets settings that would change the meaning of our own statements.
pub(crate) const DEFAULTS: &str = "SET SESSION timestamp=DEFAULT, foreign_key_checks=1, \
     unique_checks=1, sql_auto_is_null=0, sql_mode='', time_zone='+00:00', lc_time_names='en_US'";

/// Variables that need a privilege to be set: they are set only if they differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Restricted {
    pub(crate) explicit_defaults_for_timestamp: bool,
    pub(crate) sql_require_primary_key: bool,
    pub(crate) default_table_encryption: bool,
    pub(crate) default_collation_for_utf8mb4: u64,
    /// Those that a replica ignores, because the source has decided, and that are ON here.
    pub(crate) switched_on: Vec<String>,
    /// Increment and offset.
    pub(crate) auto_increment: (u64, u64),
    /// [`NO_DIR_IN_CREATE`] if the target's own `sql_mode` has it: its directories are not the source's.
    pub(crate) own_mode: u64,
}

/// A row of [`Restricted::QUERY`].
pub(crate) type RestrictedRow = (bool, bool, bool, u64, u64, u64, u64);

impl Restricted {
    /// Reads the session's values.
    pub(crate) const QUERY: &str = "SELECT @@SESSION.explicit_defaults_for_timestamp, \
         @@SESSION.sql_require_primary_key, @@SESSION.default_table_encryption, \
         (SELECT id FROM information_schema.collations \
          WHERE collation_name=@@SESSION.default_collation_for_utf8mb4), \
         @@SESSION.auto_increment_increment, @@SESSION.auto_increment_offset, \
         IF(FIND_IN_SET('NO_DIR_IN_CREATE', @@GLOBAL.sql_mode), 128, 0)";

    /// Reads the names of those that are ON; not every version has them.
    pub(crate) const SWITCHED_ON: &str = "SHOW SESSION VARIABLES WHERE Value='ON' AND Variable_name \
         IN ('sql_generate_invisible_primary_key', 'restrict_fk_on_non_standard_key')";

    pub(crate) fn with_switched_on(self, switched_on: Vec<String>) -> Self {
        Self { switched_on, ..self }
    }
}

impl From<RestrictedRow> for Restricted {
    fn from(row: RestrictedRow) -> Self {
        Self {
            explicit_defaults_for_timestamp: row.0,
            sql_require_primary_key: row.1,
            default_table_encryption: row.2,
            default_collation_for_utf8mb4: row.3,
            switched_on: Vec::new(),
            auto_increment: (row.4, row.5),
            own_mode: row.6,
        }
    }
}

/// Assignments for one SET statement, separated by commas. `timestamp` is the event
/// header's, in seconds.
pub(crate) fn assignments(context: &SessionContext, timestamp: u32, now: &Restricted) -> String {
    let mut set = String::with_capacity(512);
    // Writing to a String can't fail.
    let mut push = |name: &str, value: &dyn std::fmt::Display| {
        let separator = if set.is_empty() { "" } else { ", " };
        let _ = write!(set, "{separator}{name}={value}");
    };
    let micros = context.microseconds.unwrap_or(0);
    push("timestamp", &format!("{timestamp}.{micros:06}"));
    let flags = context.flags2.unwrap_or(0);
    push("foreign_key_checks", &u8::from(flags & NO_FOREIGN_KEY_CHECKS == 0));
    push("unique_checks", &u8::from(flags & RELAXED_UNIQUE_CHECKS == 0));
    push("sql_auto_is_null", &u8::from(flags & AUTO_IS_NULL != 0));
    push("sql_mode", &mode(context, now));
    if let Some(charset) = context.charset {
        push("character_set_client", &charset.client);
        push("collation_connection", &charset.connection);
        push("collation_server", &charset.server);
    }
    match &context.time_zone {
        Some(zone) => push("time_zone", &quote(zone)),
        None => push("time_zone", &"DEFAULT"),
    }
    push("lc_time_names", &context.lc_time_names.unwrap_or(0));
    match context.charset_database {
        Some(collation) => push("collation_database", &collation),
        None => push("collation_database", &"DEFAULT"),
    }
    restricted(context, now, &mut push);
    set
}

/// Returns the source's `sql_mode`, except for the bit that a replica keeps as its own.
fn mode(context: &SessionContext, now: &Restricted) -> u64 {
    let logged = context.sql_mode.unwrap_or(0) & !row_session::FORMER_MODES;
    (logged & !NO_DIR_IN_CREATE) | now.own_mode
}

fn restricted(
    context: &SessionContext,
    now: &Restricted,
    push: &mut dyn FnMut(&str, &dyn std::fmt::Display),
) {
    let (increment, offset) = context.auto_increment.unwrap_or((1, 1));
    let wanted = (u64::from(increment), u64::from(offset));
    if wanted != now.auto_increment {
        push("auto_increment_increment", &increment);
        push("auto_increment_offset", &offset);
    }
    let mut flag = |name: &str, wanted: Option<bool>, has: bool| {
        if let Some(wanted) = wanted
            && wanted != has
        {
            push(name, &u8::from(wanted));
        }
    };
    flag(
        "explicit_defaults_for_timestamp",
        context.explicit_defaults_for_timestamp,
        now.explicit_defaults_for_timestamp,
    );
    // If the event lacks it, a replica does not require keys: the source has already decided.
    let require = context.sql_require_primary_key.or(Some(false));
    flag("sql_require_primary_key", require, now.sql_require_primary_key);
    flag(
        "default_table_encryption",
        context.default_table_encryption,
        now.default_table_encryption,
    );
    // A source that does not send it is taken for one before 8.0, where it could not be set
    // (https://dev.mysql.com/doc/refman/en/server-system-variables.html#sysvar_default_collation_for_utf8mb4).
    let collation = context.default_collation_for_utf8mb4.unwrap_or(UTF8MB4_GENERAL_CI);
    if u64::from(collation) != now.default_collation_for_utf8mb4 {
        push("default_collation_for_utf8mb4", &collation);
    }
    for name in &now.switched_on {
        push(name, &0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Restricted = Restricted {
        explicit_defaults_for_timestamp: true,
        sql_require_primary_key: false,
        default_table_encryption: false,
        default_collation_for_utf8mb4: 255,
        switched_on: Vec::new(),
        auto_increment: (2, 1),
        own_mode: 0,
    };

    #[test]
    fn nothing_is_inherited_from_the_statement_before() {
        let set = assignments(&SessionContext::default(), 7, &NOW);
        for name in [
            "timestamp=7.000000",
            "foreign_key_checks=1",
            "sql_mode=0",
            "time_zone=DEFAULT",
            "auto_increment_increment=1",
        ] {
            assert!(set.contains(name), "{name} in {set}");
        }
        assert!(!set.contains("explicit_defaults_for_timestamp"), "{set}");
    }

    #[test]
    fn flags_and_restricted_variables_follow_the_source() {
        let context = SessionContext {
            flags2: Some(NO_FOREIGN_KEY_CHECKS | AUTO_IS_NULL),
            microseconds: Some(42),
            explicit_defaults_for_timestamp: Some(false),
            default_collation_for_utf8mb4: Some(45),
            ..SessionContext::default()
        };
        let set = assignments(&context, 7, &NOW);
        for name in [
            "timestamp=7.000042",
            "foreign_key_checks=0",
            "unique_checks=1",
            "sql_auto_is_null=1",
            "explicit_defaults_for_timestamp=0",
            "default_collation_for_utf8mb4=45",
        ] {
            assert!(set.contains(name), "{name} in {set}");
        }
    }

    #[test]
    fn directories_are_left_out_by_the_targets_own_mode() {
        for (own, logged, expected) in [(0, 132, 4), (0, 4, 4), (128, 132, 132), (128, 4, 132)] {
            let now = Restricted { own_mode: own, ..NOW };
            let context = SessionContext { sql_mode: Some(logged), ..SessionContext::default() };
            let set = assignments(&context, 7, &now);
            assert!(set.contains(&format!(", sql_mode={expected},")), "{own} {logged}: {set}");
        }
    }

    #[test]
    fn what_a_replica_ignores_is_switched_off_where_it_is_on() {
        let name = "sql_generate_invisible_primary_key";
        let on = NOW.with_switched_on(vec![name.to_owned()]);
        let set = assignments(&SessionContext::default(), 7, &on);
        assert!(set.ends_with(&format!(", {name}=0")), "{set}");
        assert!(!assignments(&SessionContext::default(), 7, &NOW).contains(name));
    }
}
