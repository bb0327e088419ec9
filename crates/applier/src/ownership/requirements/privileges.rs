//! Privileges that the account on the target needs. Pure.

use csa_provider::server::{Finding, Grants, Place, ServerFacts, Vendor};

use crate::options::{Executor, TargetGtids, TargetOptions};

/// Global privileges without which replicated statements and rows fail.
const PRIVILEGES: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"];
/// Global privileges that replicated DDL may need.
const DDL_PRIVILEGES: [&str; 9] = [
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

/// Returns the privileges for rows, the checkpoint, and the settings.
pub(super) fn writing(target: &ServerFacts, options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.privileges";
    let grants = &target.grants;
    let executor = executor_for(options, target.version.vendor(), grants);
    let for_gtids = lacking_for_gtids(grants, options.gtids);
    let mut missing = lacking_for_rows(grants, executor);
    missing.extend(for_gtids);
    let what =
        format!("executor \"{}\" and target_gtids = \"{}\"", executor.name(), options.gtids.name());
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{} has what {what} need", grants.account()));
    }
    let lacks = missing.join(", ");
    let finding = Finding::error(CHECK, format!("{} lacks {lacks}, for {what}", grants.account()))
        .fix(Place::Target, target.grant(&missing));
    match (missing.contains(&"REPLICATION_APPLIER"), for_gtids) {
        (true, _) => finding.fix(Place::Configuration, "[channel.applier] executor = \"sql\""),
        (false, Some(_)) => {
            finding.fix(Place::Configuration, "[channel.applier] target_gtids = \"own\"")
        }
        (false, None) => finding,
    }
}

/// Returns the privileges that are missing for rows and the checkpoint.
fn lacking_for_rows(grants: &Grants, executor: Executor) -> Vec<&'static str> {
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
fn lacking_for_gtids(grants: &Grants, gtids: TargetGtids) -> Option<&'static str> {
    let is_permitted = grants.has_any(&["SYSTEM_VARIABLES_ADMIN", "SUPER"]);
    (gtids.hides_bookkeeping() && !is_permitted).then_some("SYSTEM_VARIABLES_ADMIN")
}

/// Returns the privileges for replicated DDL; `has_tags`: the source has executed tagged GTIDs.
pub(super) fn definitions(target: &ServerFacts, has_tags: bool) -> Finding {
    const CHECK: &str = "target.ddl_privileges";
    let (grants, version) = (&target.grants, &target.version);
    let mut missing = grants.missing(&DDL_PRIVILEGES);
    missing.extend(grants.missing(&["SHOW VIEW", "EXECUTE"]));
    if !grants.has_any(&["SUPER"]) && !version.is_mariadb() {
        match version.is_at_least(8, 2) {
            true => {
                missing.extend(grants.missing(&["SET_ANY_DEFINER", "ALLOW_NONEXISTENT_DEFINER"]));
            }
            false if version.is_at_least(8, 0) => missing.extend(grants.missing(&["SET_USER_ID"])),
            false => missing.push("SUPER"),
        }
    }
    if version.vendor() == Vendor::MySql {
        missing.extend(grants.missing(&["SYSTEM_USER"]));
    }
    if has_tags {
        missing.extend(grants.missing(&["TRANSACTION_GTID_TAG"]));
    }
    if missing.is_empty() {
        return Finding::ok(CHECK, "replicated DDL is permitted");
    }
    let text = format!("replicated DDL may be refused: {} are missing", missing.join(", "));
    Finding::warning(CHECK, text).fix(Place::Target, target.grant(&missing))
}
