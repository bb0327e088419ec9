//! Rules that MariaDB alone needs
//! (<https://mariadb.com/docs/release-notes/compatibility-and-differences/replication-compatibility-between-mariadb-and-mysql>).
//! Pure.
//!
//! MariaDB takes no row images of MySQL 8 and has GTIDs of another kind. So rows go as SQL, statements
//! are recorded in `csa.statement`, and `csa.checkpoint` alone states which transactions were applied.

use csa_provider::binlog::version_numbers;
use csa_provider::server::{Finding, Place, ServerFacts, Vendor};

use super::any_vendor::{fulfilled, logged_format, writable};
use super::privileges::definitions;
use crate::options::TargetOptions;

/// The oldest release that is supported.
const OLDEST: [u32; 3] = [10, 11, 0];

/// Privileges for writing rows and their checkpoint, and for reading triggers and locks.
const PRIVILEGES: [&str; 7] =
    ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "TRIGGER", "PROCESS"];

pub(super) fn requirements(target: &ServerFacts, options: &TargetOptions) -> Vec<Finding> {
    vec![
        release(target),
        fulfilled(options, Vendor::MariaDb),
        writable(target),
        logged_format(target, options),
        time(target),
        privileges(target),
        definitions(target, false),
    ]
}

fn release(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.version";
    let version = target.version.text();
    match version_numbers(version) >= OLDEST {
        true => Finding::warning(
            CHECK,
            format!(
                "it is MariaDB {version}: rows are written by executor \"sql\", and after a crash in the middle \
                 of a statement (DDL) the channel stops and asks whether it took effect"
            ),
        ),
        false => Finding::error(CHECK, format!("it is MariaDB {version}"))
            .fix(Place::Operator, "MariaDB 10.11 or newer is needed"),
    }
}

fn time(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.secure_timestamp";
    match target.text("secure_timestamp") {
        "NO" => Finding::ok(CHECK, "NO"),
        other => Finding::error(
            CHECK,
            format!(
                "secure_timestamp={other}, so statements can't run at the time they ran on the source"
            ),
        )
        .fix(Place::Operator, "start it with secure_timestamp=NO"),
    }
}

fn privileges(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.privileges";
    let grants = &target.grants;
    let needed = if grants.has_schemas() { &["TRIGGER", "PROCESS"][..] } else { &PRIVILEGES };
    let missing = grants.missing(needed);
    let account = grants.account();
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{account} has what executor \"sql\" needs"));
    }
    Finding::error(CHECK, format!("{account} lacks {}", missing.join(", ")))
        .fix(Place::Target, target.grant(&missing))
}

#[cfg(test)]
mod tests {
    use super::{OLDEST, version_numbers};

    #[test]
    fn releases_are_told_apart() {
        for (version, expected) in [
            ("10.11.19-MariaDB-0+deb12u1-log", true),
            ("11.4.5-MariaDB", true),
            ("10.6.22-MariaDB", false),
            ("5.5.68-MariaDB", false),
            ("MariaDB", false),
        ] {
            assert_eq!(version_numbers(version) >= OLDEST, expected, "{version}");
        }
    }
}
