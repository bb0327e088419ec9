//! Privileges that the account on the target needs. Pure.

use csa_provider::server::Grants;

use crate::options::{Executor, TargetGtids, TargetOptions};
use crate::server::vendor::Vendor;

/// Global privileges without which replicated statements and rows fail.
const PRIVILEGES: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"];
/// Global privileges that replicated DDL may need.
pub const DDL_PRIVILEGES: [&str; 9] = [
    "DROP",
    "ALTER",
    "INDEX",
    "REFERENCES",
    "CREATE VIEW",
    "CREATE ROUTINE",
    "ALTER ROUTINE",
    "TRIGGER",
    "EVENT",
];
/// Any one of these permits the BINLOG statement.
const BINLOG_PRIVILEGES: [&str; 3] = ["REPLICATION_APPLIER", "BINLOG_ADMIN", "SUPER"];
/// Any one of these permits `SET gtid_next`.
pub(crate) const GTID_PRIVILEGES: [&str; 4] =
    ["REPLICATION_APPLIER", "SYSTEM_VARIABLES_ADMIN", "SESSION_VARIABLES_ADMIN", "SUPER"];

/// The way rows will be written: as configured, else by BINLOG where that is permitted.
#[must_use]
pub fn executor_for(target: &TargetOptions, vendor: Vendor, grants: &Grants) -> Executor {
    if vendor != Vendor::MySql {
        return Executor::Sql;
    }
    target.executor.unwrap_or(match grants.has_any(&BINLOG_PRIVILEGES) {
        true => Executor::RowImage,
        false => Executor::Sql,
    })
}

/// Returns the privileges that are missing for rows and the checkpoint.
#[must_use]
pub fn lacking_for_rows(grants: &Grants, executor: Executor) -> Vec<&'static str> {
    // Schemas with grants of their own may be all that is replicated.
    let mut missing = match grants.has_schemas() {
        true => Vec::new(),
        false => grants.missing(&PRIVILEGES),
    };
    match executor {
        Executor::RowImage => {
            if !grants.has_any(&BINLOG_PRIVILEGES) || !grants.has_any(&GTID_PRIVILEGES) {
                missing.push("REPLICATION_APPLIER");
            }
        }
        // A trigger that our account can't see would fire unnoticed.
        Executor::Sql => missing.extend(grants.missing(&["TRIGGER"])),
    }
    missing
}

/// Returns the privilege that is missing to set `sql_log_bin` and `gtid_purged`, for "mirror" and
/// "source".
#[must_use]
pub fn lacking_for_gtids(grants: &Grants, gtids: TargetGtids) -> Option<&'static str> {
    let is_permitted = grants.has_any(&["SYSTEM_VARIABLES_ADMIN", "SUPER"]);
    (gtids.hides_bookkeeping() && !is_permitted).then_some("SYSTEM_VARIABLES_ADMIN")
}
