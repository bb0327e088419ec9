//! The settings of our sessions, set before anything else: whatever the operator of a server has set there
//! globally, or by `init_connect`, must neither end nor change a statement of ours.
//!
//! Only variables that need no privilege are here, and only those by which a statement of ours could fail,
//! end early or mean something else. Variables of definitions are set for each definition, to the source's
//! (`statement/context.rs`); those that nobody can set for a session are checked (`csa-daemon check`).

use std::fmt::Write as _;

use csa_provider::server::Vendor;

/// The purpose of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Writes rows, statements and the checkpoint.
    Apply,
    /// Reads and compares rows, for as long as it takes.
    Compare,
    /// Looks at settings and definitions, and gives up on what takes long.
    Inspect,
    /// Asks one question again and again.
    Ask,
}

/// The servers that have a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    All,
    /// MySQL since 5.7.
    MySql,
    /// MySQL since 8.0.
    MySql8,
    /// MySQL since this version, named as in version comments.
    Since(&'static str),
    MariaDb,
}

impl On {
    const fn has(self, vendor: Vendor) -> bool {
        match self {
            Self::All => true,
            Self::MySql => !matches!(vendor, Vendor::MariaDb),
            Self::MySql8 | Self::Since(_) => matches!(vendor, Vendor::MySql),
            Self::MariaDb => matches!(vendor, Vendor::MariaDb),
        }
    }
}

/// Stands in a query that comes before [`prelude`], so that the server's own `max_execution_time` does not end it. MariaDB
/// takes it for a comment.
pub const UNHURRIED: &str = "/*+ MAX_EXECUTION_TIME(60000) */";

/// Returns the statements that make a session ours, one for each round trip or all in one packet.
#[must_use]
pub fn prelude(vendor: Vendor, purpose: Purpose) -> Vec<String> {
    let mut assignments = String::new();
    let all = COMMON.iter().chain(settings_of(purpose));
    for (on, name, value) in all.filter(|(on, ..)| on.has(vendor)) {
        let separator = if assignments.is_empty() { "SET SESSION " } else { ", " };
        // Writing to a String can't fail.
        let _ = match on {
            // Older servers ignore the comment. One of all servers comes first, so no comment does.
            On::Since(version) => write!(assignments, "/*!{version} , {name}={value}*/"),
            _ => write!(assignments, "{separator}{name}={value}"),
        };
    }
    // First: until it has run, the server reads our texts in the character set that it was told to assume.
    let mut statements = vec!["SET NAMES utf8mb4".to_owned()];
    // The variables of these two have other names on MariaDB before 11.1.
    let access = if purpose == Purpose::Apply { "READ WRITE" } else { "READ ONLY" };
    if vendor == Vendor::MariaDb {
        let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
        statements.push(format!("{isolation}, {access}"));
    } else {
        let read_only = u8::from(purpose != Purpose::Apply);
        // READ COMMITTED: gap locks would make independent groups wait for each other.
        let isolation = "transaction_isolation='READ-COMMITTED'";
        let _ = write!(assignments, ", {isolation}, transaction_read_only={read_only}");
    }
    statements.push(assignments);
    statements
}

type Setting = (On, &'static str, &'static str);

/// Seconds that a statement of the applier waits for a lock on a row, and for one on a table or on the whole
/// server, as in [`APPLY`].
pub(crate) const LOCK_WAITS: [u32; 2] = [10, 60];
/// The seconds for which a definition waits for locks on its tables: a year, as on a replica. Its work until
/// then may have taken hours, and one that gives up lets all readers pass that queue for the table.
pub(crate) const DEFINITION_WAITS: u32 = 31_536_000;

/// The settings of all sessions.
const COMMON: &[Setting] = &[
    // Else each statement would open a transaction that only COMMIT ends.
    (On::All, "autocommit", "1"),
    // CHAIN would open the next transaction at each COMMIT, RELEASE would end the session there.
    (On::All, "completion_type", "'NO_CHAIN'"),
    // It cuts each answer without an error.
    (On::All, "sql_select_limit", "18446744073709551615"),
    // `max_join_size` refuses queries of information_schema (1104).
    (On::All, "sql_big_selects", "1"),
    // It refuses an UPDATE whose condition names no key (1175).
    (On::All, "sql_safe_updates", "0"),
    // `column IS NULL` would also find the last generated number.
    (On::All, "sql_auto_is_null", "0"),
    // For our own statements; row images mean the same under any, unless the table has the server compute
    // something (`row_session.rs`).
    (On::All, "time_zone", "'+00:00'"),
    // Messages are read for the name of a row's key, and shown without values (`error/server_text.rs`).
    (On::All, "lc_messages", "'en_US'"),
    (On::All, "lc_time_names", "'en_US'"),
    // A warning that is not counted, or not kept, hides a value that was cut (`rows/dml/warnings.rs`); on MySQL
    // it takes a privilege to set these variables.
    (On::All, "sql_notes", "1"),
    (On::MariaDb, "max_error_count", "65535"),
    // With less memory than its ranges need, the server reads the whole table for a few rows, and under READ
    // COMMITTED waits for the locks of each.
    (On::MySql, "range_optimizer_max_mem_size", "8388608"),
    // Off, definitions lack the primary key that the server generated, and rows have one value more.
    (On::Since("80030"), "show_gipk_in_create_table_and_information_schema", "1"),
    // A reader that stops reading for a while, as while a disk is slow, must not lose its session.
    (On::All, "net_read_timeout", "600"),
    (On::All, "net_write_timeout", "600"),
    // ON: DROP and ALTER of what is missing would succeed.
    (On::MariaDb, "sql_if_exists", "0"),
    // Others change what a date, `utf8` or a duplicate key means.
    (On::MariaDb, "old_mode", "'UTF8_IS_UTF8MB3'"),
    // It ends sessions in a transaction: a group waits for its turn in one.
    (On::MariaDb, "idle_transaction_timeout", "0"),
    (On::MariaDb, "idle_write_transaction_timeout", "0"),
    (On::MariaDb, "idle_readonly_transaction_timeout", "0"),
    // It cuts a recursive query without an error.
    (On::MariaDb, "max_recursive_iterations", "65536"),
];

const fn settings_of(purpose: Purpose) -> &'static [Setting] {
    match purpose {
        Purpose::Apply => APPLY,
        Purpose::Compare => COMPARE,
        Purpose::Inspect => INSPECT,
        Purpose::Ask => ASK,
    }
}

const APPLY: &[Setting] = &[
    (On::All, "sql_mode", "''"),
    // A session waits for its turn, or for the source's next transaction, as long as it takes.
    (On::All, "wait_timeout", "2147483"),
    (On::All, "interactive_timeout", "2147483"),
    // After such a wait the statement is repeated, as often as it takes while another session has the lock
    // (`lock_watch.rs`). The time is short enough to end a wait for a lock of our own, which the server can't see
    // where it lasts for a commit in turn. It also keeps a dead daemon's session, which the server ends only
    // after its statement, from holding the channel.
    (On::All, "innodb_lock_wait_timeout", "10"),
    (On::All, "lock_wait_timeout", "60"),
    // Rows that SQL inserts are those of the source, which has checked them.
    (On::All, "foreign_key_checks", "1"),
    (On::All, "unique_checks", "1"),
    (On::MariaDb, "check_constraint_checks", "1"),
    // INSTANT and NOCOPY make an ALTER fail that needs more.
    (On::MariaDb, "alter_algorithm", "'DEFAULT'"),
    // Facts about tables as they are, not as they were at the last ANALYZE.
    (On::MySql8, "information_schema_stats_expiry", "0"),
    // Where the source's cascades are not logged, InnoDB has made them, and fires no trigger.
    (On::Since("90700"), "enable_cascade_triggers", "0"),
    // MySQL's limit would also end functions that wait, as GET_LOCK and WAIT_FOR_EXECUTED_GTID_SET do, in a SELECT
    // (3024).
    (On::MySql, "max_execution_time", "0"),
    (On::MariaDb, "max_statement_time", "0"),
];

const COMPARE: &[Setting] = &[
    // Stored dates are shown, whatever a mode thinks of them; nothing else changes how values are written.
    (On::All, "sql_mode", "'ALLOW_INVALID_DATES'"),
    // A table without differences on one side may take hours on the other.
    (On::All, "wait_timeout", "86400"),
    (On::All, "lock_wait_timeout", "60"),
    // What SHOW CREATE prints is compared.
    (On::All, "sql_quote_show_create", "1"),
    // A value that is sorted by less than the whole of it is out of order.
    (On::All, "max_sort_length", "8388608"),
    (On::MySql, "max_execution_time", "0"),
    (On::MariaDb, "max_statement_time", "0"),
];

const INSPECT: &[Setting] = &[
    (On::All, "sql_mode", "''"),
    // While one server answers, the session on the other waits.
    (On::All, "wait_timeout", "3600"),
    (On::All, "lock_wait_timeout", "5"),
    // Numbers of rows may be old, and are cheaper so.
    (On::MySql8, "information_schema_stats_expiry", "86400"),
    // MySQL counts milliseconds, and MariaDB seconds.
    (On::MySql, "max_execution_time", "30000"),
    (On::MariaDb, "max_statement_time", "30"),
];

const ASK: &[Setting] = &[
    (On::All, "sql_mode", "''"),
    // Between two questions the session waits.
    (On::All, "wait_timeout", "3600"),
    (On::All, "lock_wait_timeout", "5"),
    // The server ends what nobody waits for any more.
    (On::MySql, "max_execution_time", "5000"),
    (On::MariaDb, "max_statement_time", "5"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PURPOSES: [Purpose; 4] =
        [Purpose::Apply, Purpose::Compare, Purpose::Inspect, Purpose::Ask];

    #[test]
    fn a_session_sets_what_it_needs_once() {
        for vendor in [Vendor::MySql, Vendor::MySql57, Vendor::MariaDb] {
            for purpose in PURPOSES {
                let statements = prelude(vendor, purpose);
                let set = statements.last().and_then(|last| last.strip_prefix("SET SESSION "));
                let set = set.expect("assignments come last");
                let names: Vec<&str> =
                    set.split(", ").map(|one| one.split('=').next().unwrap_or_default()).collect();
                let unique: BTreeSet<&str> = names.iter().copied().collect();
                assert_eq!(unique.len(), names.len(), "{vendor:?} {purpose:?}: {set}");
                assert!(unique.contains("wait_timeout"), "{vendor:?} {purpose:?}: {set}");
                let time = match vendor {
                    Vendor::MariaDb => "max_statement_time",
                    _ => "max_execution_time",
                };
                assert!(unique.contains(time), "{set}");
            }
        }
    }

    #[test]
    fn settings_of_newer_servers_are_in_version_comments() {
        for purpose in PURPOSES {
            let hidden = "/*!80030 , show_gipk_in_create_table_and_information_schema=1*/, ";
            let sets = |vendor| prelude(vendor, purpose).join(";").contains(hidden);
            let found = [Vendor::MySql, Vendor::MySql57, Vendor::MariaDb].map(sets);
            assert_eq!(found, [true, false, false], "{purpose:?}");
        }
    }

    #[test]
    fn waits_are_what_the_constants_say() {
        let set = prelude(Vendor::MySql, Purpose::Apply).join(";");
        let [rows, tables] = LOCK_WAITS;
        for name in
            [format!("innodb_lock_wait_timeout={rows}"), format!("lock_wait_timeout={tables}")]
        {
            assert!(set.contains(&format!(", {name}, ")), "{name} in {set}");
        }
    }

    #[test]
    fn only_the_applier_writes() {
        for purpose in PURPOSES {
            let writes = purpose == Purpose::Apply;
            let mysql = prelude(Vendor::MySql, purpose).join(";");
            assert_eq!(mysql.contains("transaction_read_only=0"), writes, "{mysql}");
            let mariadb = prelude(Vendor::MariaDb, purpose).join(";");
            assert_eq!(mariadb.contains("READ WRITE"), writes, "{mariadb}");
        }
    }
}
