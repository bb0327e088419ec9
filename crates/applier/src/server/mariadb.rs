//! Differences of a MariaDB target
//! (<https://mariadb.com/docs/release-notes/compatibility-and-differences/replication-compatibility-between-mariadb-and-mysql>).
//!
//! MariaDB takes no row images of MySQL 8 and has GTIDs of another kind. So rows go as SQL, statements
//! are recorded in `csa.statement`, and `csa.checkpoint` alone states which transactions were applied.

/// The oldest release that is supported: major, minor.
const OLDEST: (u32, u32) = (10, 11);

/// As the prelude of [`super::session`], with settings by which MariaDB alone may end or change statements:
/// time limits, and the depth at which it cuts a recursive query without an error.
pub(crate) const PRELUDE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
     SET SESSION autocommit=1, completion_type='NO_CHAIN', sql_safe_updates=0, \
     sql_select_limit=18446744073709551615, sql_mode='', time_zone='+00:00', wait_timeout=2147483, \
     interactive_timeout=2147483, net_read_timeout=600, net_write_timeout=600, \
     innodb_lock_wait_timeout=10, lock_wait_timeout=60, max_statement_time=0, \
     idle_transaction_timeout=0, idle_write_transaction_timeout=0, idle_readonly_transaction_timeout=0, \
     check_constraint_checks=1, max_recursive_iterations=65536";

/// Major and minor number of `@@version`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// True if a server of this `@@version` is supported.
pub(crate) fn is_supported(version: &str) -> bool {
    release(version).is_some_and(|release| release >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::is_supported;

    #[test]
    fn releases_are_told_apart() {
        for (version, expected) in [
            ("10.11.19-MariaDB-0+deb12u1-log", true),
            ("11.4.5-MariaDB", true),
            ("10.6.22-MariaDB", false),
            ("5.5.68-MariaDB", false),
            ("MariaDB", false),
        ] {
            assert_eq!(is_supported(version), expected, "{version}");
        }
    }
}
