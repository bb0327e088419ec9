//! Differences of a MariaDB target
//! (<https://mariadb.com/docs/release-notes/compatibility-and-differences/replication-compatibility-between-mariadb-and-mysql>).
//!
//! MariaDB takes no row images of MySQL 8 and has GTIDs of another kind. So rows go as SQL, statements
//! are recorded in `csa.statement`, and `csa.checkpoint` alone states which transactions were applied.

/// The oldest release that is supported: major, minor.
const OLDEST: (u32, u32) = (10, 11);

/// Returns the major and minor number of `@@version`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns true if a server of this `@@version` is supported.
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
