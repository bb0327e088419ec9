//! Settings of the target.

use csa_applier::{Executor, TargetGtids, TargetOptions, Vendor, executor_for};

use super::limits;
use super::report::{Finding, Place};
use super::server::Server;

/// Sessions other than the workers': control, definitions, locks, and inspection.
const SESSIONS_BESIDES: u64 = 5;

/// Checks the target's settings, with those of the `source` if it answered.
pub(super) fn settings(
    target: &Server,
    source: Option<&Server>,
    options: &TargetOptions,
    worker_count: u16,
) -> Vec<Finding> {
    let executor = executor_for(options, target.version.vendor(), &target.grants);
    let mut found = vec![
        limits::packet(target, source, executor),
        limits::account(Place::Target, target, u64::from(worker_count) + SESSIONS_BESIDES),
        limits::init_connect(Place::Target, target),
        limits::memory(target),
        connections(target, worker_count),
        durability(target, options.gtids),
    ];
    // MariaDB's counterparts are checked at the start.
    if !target.version.is_mariadb() {
        found.extend([
            writable(target),
            gtids(target, options),
            function_creators(target),
            primary_key(target, source),
        ]);
    }
    if let Some(source) = source {
        found.push(case(target, source));
        found.push(time_zones(target, source));
    }
    found
}

fn writable(target: &Server) -> Finding {
    const CHECK: &str = "target.read_only";
    if target.is_on("super_read_only") {
        return Finding::error(CHECK, "super_read_only=ON: nobody can write there")
            .fix(Place::Target, "SET PERSIST super_read_only=OFF;");
    }
    match target.is_on("read_only") {
        false => Finding::ok(CHECK, "OFF; ON would keep others from writing there"),
        true if target.grants.has_any(&["CONNECTION_ADMIN", "SUPER"]) => {
            Finding::ok(CHECK, "ON, but the account may write anyway")
        }
        true => Finding::error(CHECK, "ON: the account can't write there")
            .fix(
                Place::Target,
                match target.version.vendor() {
                    Vendor::MySql57 => grant(target, "SUPER"),
                    Vendor::MySql | Vendor::MariaDb => grant(target, "CONNECTION_ADMIN"),
                },
            )
            .fix(Place::Target, "SET PERSIST read_only=OFF;"),
    }
}

/// MariaDB has no SET PERSIST: its setting lasts until a restart.
fn lasting(target: &Server) -> &'static str {
    if target.version.is_mariadb() { "GLOBAL" } else { "PERSIST" }
}

fn grant(server: &Server, privilege: &str) -> String {
    format!("GRANT {privilege} ON *.* TO {};", server.grants.account())
}

fn gtids(target: &Server, options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.gtid_mode";
    let mode = target.text("gtid_mode");
    if matches!(mode, "ON" | "ON_PERMISSIVE") {
        return Finding::ok(CHECK, mode);
    }
    let by_rows =
        executor_for(options, target.version.vendor(), &target.grants) == Executor::RowImage;
    let finding = if by_rows || options.gtids != TargetGtids::Own {
        let why = "a replicated DDL could not be told from one that never ran";
        Finding::error(CHECK, format!("{mode}: {why}"))
    } else {
        Finding::warning(
            CHECK,
            format!("{mode}: a crash in the middle of a replicated DDL stops the channel"),
        )
    };
    finding.fix(
        Place::Target,
        "SET PERSIST enforce_gtid_consistency=ON; SET PERSIST gtid_mode=OFF_PERMISSIVE; \
         SET PERSIST gtid_mode=ON_PERMISSIVE; SET PERSIST gtid_mode=ON;",
    )
}

fn function_creators(target: &Server) -> Finding {
    const CHECK: &str = "target.log_bin_trust_function_creators";
    let trusts = target.is_on("log_bin_trust_function_creators");
    if trusts || !target.is_on("log_bin") || target.grants.has_any(&["SUPER"]) {
        return Finding::ok(CHECK, "functions and triggers can be created");
    }
    Finding::warning(CHECK, "OFF: CREATE FUNCTION and CREATE TRIGGER will fail (1419)")
        .fix(Place::Target, "SET PERSIST log_bin_trust_function_creators=ON;")
        .fix(Place::Target, grant(target, "SUPER"))
}

/// The session sets its own value to the source's, which needs a privilege.
fn primary_key(target: &Server, source: Option<&Server>) -> Finding {
    const CHECK: &str = "target.sql_require_primary_key";
    let may_set = ["SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN", "SUPER"];
    let demanded = target.is_on("sql_require_primary_key");
    let also_there = source.is_some_and(|source| source.is_on("sql_require_primary_key"));
    if !demanded || also_there || target.grants.has_any(&may_set) {
        return Finding::ok(CHECK, "as on the source, for what is replicated");
    }
    Finding::warning(CHECK, "ON, but OFF on the source: a CREATE TABLE without a key will fail")
        .fix(Place::Target, grant(target, "SESSION_VARIABLES_ADMIN"))
        .fix(Place::Target, "SET PERSIST sql_require_primary_key=OFF;")
}

fn connections(target: &Server, worker_count: u16) -> Finding {
    const CHECK: &str = "target.max_connections";
    let wanted = u64::from(worker_count) + SESSIONS_BESIDES;
    for variable in ["max_connections", "max_user_connections"] {
        // The value 0 means no limit for each user.
        let limit = target.number(variable).filter(|&limit| limit > 0);
        if let Some(limit) = limit.filter(|&limit| limit < wanted) {
            return Finding::warning(
                CHECK,
                format!("{variable}={limit}: {worker_count} workers want {wanted} sessions"),
            )
            .fix(Place::Target, format!("SET {} {variable}={};", lasting(target), wanted * 2))
            .fix(Place::Configuration, "[channel.applier] worker_count");
        }
    }
    let limit = target.text("max_connections");
    Finding::ok(CHECK, format!("{limit}, the channel takes up to {wanted}"))
}

/// A note, not a warning: both are right, one is quicker.
fn durability(target: &Server, gtids: TargetGtids) -> Finding {
    const CHECK: &str = "target.durability";
    let flush = target.text("innodb_flush_log_at_trx_commit");
    let sync = target.text("sync_binlog");
    let is_full = flush == "1" && (sync == "1" || !target.is_on("log_bin"));
    let what = match is_full {
        true => {
            "each commit waits for the disk; a target that can be copied again may wait less often \
             (docs/operating.md, Tuning)"
        }
        false => {
            "a crash of the target's host loses its last commits, checkpoint and data alike; the \
             channel applies them again as long as the source has the binary logs"
        }
    };
    if gtids == TargetGtids::Source && flush != "1" && target.is_on("log_bin") {
        return Finding::warning(
            CHECK,
            format!(
                "innodb_flush_log_at_trx_commit={flush}: after a crash gtid_executed, which is the \
                 checkpoint with target_gtids = \"source\", can name transactions that the tables lost"
            ),
        )
        .fix(Place::Target, "SET PERSIST innodb_flush_log_at_trx_commit=1;");
    }
    Finding::ok(
        CHECK,
        format!("innodb_flush_log_at_trx_commit={flush}, sync_binlog={sync}: {what}"),
    )
}

fn case(target: &Server, source: &Server) -> Finding {
    const CHECK: &str = "target.lower_case_table_names";
    let name = "lower_case_table_names";
    let (here, there) = (target.text(name), source.text(name));
    match (source.folds_case(), target.folds_case()) {
        (false, true) => Finding::warning(
            CHECK,
            format!(
                "{here} there, {there} on the source: tables whose names differ only in case \
                 become one; it can't be changed after the server was initialized"
            ),
        ),
        (true, false) => Finding::warning(
            CHECK,
            format!(
                "{here} there, {there} on the source: views and routines that write names in \
                 another case won't find their tables"
            ),
        ),
        _ => Finding::ok(CHECK, format!("{here} there, {there} on the source")),
    }
}

fn time_zones(target: &Server, source: &Server) -> Finding {
    const CHECK: &str = "target.time_zones";
    match (target.has_time_zones, source.has_time_zones) {
        (true, _) => Finding::ok(CHECK, "named time zones are known"),
        (false, false) => Finding::ok(CHECK, "neither server knows time zones by name"),
        (false, true) => Finding::warning(
            CHECK,
            "named time zones are known to the source alone: a statement run in one stops the \
             channel (1298)",
        )
        .fix(
            Place::Operator,
            "on the target's host: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql",
        ),
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::server::Grants;

    use super::*;
    use crate::servers::report::Level;
    use crate::servers::test_util::{server, target_options};

    const GOOD: [(&str, &str); 11] = [
        ("read_only", "OFF"),
        ("super_read_only", "OFF"),
        ("gtid_mode", "ON"),
        ("log_bin", "ON"),
        ("log_bin_trust_function_creators", "ON"),
        ("max_allowed_packet", "1073741824"),
        ("max_connections", "151"),
        ("max_user_connections", "0"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("sync_binlog", "1"),
        ("lower_case_table_names", "0"),
    ];

    fn good() -> Server {
        let grants = ["GRANT REPLICATION_APPLIER ON *.* TO `csa`@`%`".to_owned()];
        Server { grants: Grants::parse("csa@%", &grants), ..server(&GOOD) }
    }

    fn found(target: &Server, source: &Server) -> Vec<Finding> {
        let found = settings(target, Some(source), &target_options(), 8);
        found.into_iter().filter(|finding| finding.level != Level::Ok).collect()
    }

    #[test]
    fn each_setting_has_its_finding_and_its_fix() {
        assert_eq!(found(&good(), &good()), []);
        for (variable, value, check, level, fix) in [
            ("read_only", "ON", "target.read_only", Level::Error, "GRANT CONNECTION_ADMIN"),
            ("super_read_only", "ON", "target.read_only", Level::Error, "super_read_only=OFF"),
            ("gtid_mode", "OFF", "target.gtid_mode", Level::Error, "gtid_mode=ON_PERMISSIVE"),
            (
                "log_bin_trust_function_creators",
                "OFF",
                "target.log_bin_trust_function_creators",
                Level::Warning,
                "log_bin_trust_function_creators=ON",
            ),
            (
                "sql_require_primary_key",
                "ON",
                "target.sql_require_primary_key",
                Level::Warning,
                "GRANT SESSION_VARIABLES_ADMIN ON *.* TO 'csa'@'%';",
            ),
            (
                "max_allowed_packet",
                "67108864",
                "target.max_allowed_packet",
                Level::Warning,
                "max_allowed_packet=1073741824",
            ),
            (
                "max_connections",
                "12",
                "target.max_connections",
                Level::Warning,
                "SET PERSIST max_connections=26;",
            ),
            (
                "max_user_connections",
                "12",
                "target.max_connections",
                Level::Warning,
                "SET PERSIST max_user_connections=26;",
            ),
            (
                "lower_case_table_names",
                "1",
                "target.lower_case_table_names",
                Level::Warning,
                "become one",
            ),
        ] {
            let mut target = good();
            target.variables.insert(variable.to_owned(), value.to_owned());
            let found = found(&target, &good());
            let [finding] = found.as_slice() else { panic!("{variable}: {found:?}") };
            assert_eq!((finding.check, finding.level), (check, level));
            assert!(finding.to_string().contains(fix), "{finding}");
        }
    }

    #[test]
    fn durability_is_a_choice_unless_the_targets_gtids_are_the_checkpoint() {
        let mut target = good();
        target.variables.insert("innodb_flush_log_at_trx_commit".to_owned(), "2".to_owned());
        assert_eq!(found(&target, &good()), []);
        let options = TargetOptions { gtids: TargetGtids::Source, ..target_options() };
        let found = settings(&target, Some(&good()), &options, 8);
        let finding = found.iter().find(|finding| finding.check == "target.durability");
        let finding = finding.expect("looked at");
        assert_eq!(finding.level, Level::Warning, "{finding}");
        assert!(finding.to_string().contains("innodb_flush_log_at_trx_commit=1;"), "{finding}");
    }

    #[test]
    fn what_the_source_has_counts() {
        let mut source = good();
        source.has_time_zones = true;
        let missing = found(&good(), &source);
        assert_eq!(missing.first().map(|finding| finding.check), Some("target.time_zones"));
        let mut target = good();
        target.variables.insert("sql_require_primary_key".to_owned(), "ON".to_owned());
        source.has_time_zones = false;
        source.variables.insert("sql_require_primary_key".to_owned(), "ON".to_owned());
        assert_eq!(found(&target, &source), []);
        // Rows written as statements need no gtid_mode.
        let mut target = good();
        target.variables.insert("gtid_mode".to_owned(), "OFF".to_owned());
        let options = TargetOptions { executor: Some(Executor::Sql), ..target_options() };
        assert_eq!(gtids(&target, &options).level, Level::Warning);
    }
}
