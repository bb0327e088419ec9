//! Settings of the target, beside those that a start requires.

use csa_applier::{TargetGtids, TargetOptions};
use csa_provider::server::{Finding, Place, ServerFacts};

use super::check_session::{CheckSession, QueryError};
use super::limits;
use super::server::CheckedServer;

/// Sessions other than the workers': control, definitions, locks, and inspection.
const SESSIONS_BESIDES: u64 = 5;
/// ER_UNKNOWN_ERROR: the answer of Percona XtraDB Cluster to GET_LOCK.
const STRICT_MODE: u16 = 1105;

/// Checks the target's settings, with those of the `source` if it answered.
pub(super) fn settings(
    target: &CheckedServer,
    source: Option<&CheckedServer>,
    options: &TargetOptions,
    worker_count: u16,
) -> Vec<Finding> {
    let facts = &target.facts;
    let mut found = vec![
        limits::account(Place::Target, target, u64::from(worker_count) + SESSIONS_BESIDES),
        limits::init_connect(Place::Target, facts),
        limits::memory(facts),
        connections(facts, worker_count),
        durability(facts, options.gtids),
    ];
    if !facts.version.is_mariadb() {
        found.push(primary_key(facts, source.map(|source| &source.facts)));
    }
    if let Some(source) = source {
        found.push(case(facts, &source.facts));
        found.push(time_zones(target, source));
    }
    found
}

/// Takes a named lock as a channel does, and until the session ends.
pub(super) async fn named_locks(session: &mut CheckSession) -> Option<Finding> {
    no_locks(&session.value("SELECT GET_LOCK('csa-daemon check', 0)").await.err()?)
}

fn no_locks(refusal: &QueryError) -> Option<Finding> {
    let text = format!("no channel can start without named locks: {}", refusal.text);
    let finding = Finding::error("target.locks", text);
    Some(match refusal.code? {
        STRICT_MODE => {
            finding.fix(Place::Target, "SET GLOBAL pxc_strict_mode=MASTER; -- on every node")
        }
        _ => finding
            .fix(Place::Configuration, "[channel.target] a server that is in no Galera cluster"),
    })
}

/// The session sets its own value to the source's, which needs a privilege.
fn primary_key(target: &ServerFacts, source: Option<&ServerFacts>) -> Finding {
    const CHECK: &str = "target.sql_require_primary_key";
    let may_set = ["SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN", "SUPER"];
    let demanded = target.is_on("sql_require_primary_key");
    let also_there = source.is_some_and(|source| source.is_on("sql_require_primary_key"));
    if !demanded || also_there || target.grants.has_any(&may_set) {
        return Finding::ok(CHECK, "it is as on the source, for what is replicated");
    }
    Finding::warning(CHECK, "ON, but OFF on the source: a CREATE TABLE without a key will fail")
        .fix(Place::Target, target.grant(&["SESSION_VARIABLES_ADMIN"]))
        .fix(Place::Target, "SET PERSIST sql_require_primary_key=OFF;")
}

fn connections(target: &ServerFacts, worker_count: u16) -> Finding {
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
            .fix(Place::Target, format!("SET PERSIST {variable}={};", wanted * 2))
            .fix(Place::Configuration, "[channel.applier] worker_count");
        }
    }
    let limit = target.text("max_connections");
    Finding::ok(CHECK, format!("{limit}, the channel takes up to {wanted}"))
}

/// A note, not a warning: both are right, one is quicker.
fn durability(target: &ServerFacts, gtids: TargetGtids) -> Finding {
    const CHECK: &str = "target.durability";
    let flush = target.text("innodb_flush_log_at_trx_commit");
    let sync = target.text("sync_binlog");
    let is_full = flush == "1" && (sync == "1" || !target.is_on("log_bin"));
    let what = match is_full {
        true => {
            "each commit waits for the disk; a target that can be copied again may wait less often \
             (docs/tuning.md)"
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

fn case(target: &ServerFacts, source: &ServerFacts) -> Finding {
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

fn time_zones(target: &CheckedServer, source: &CheckedServer) -> Finding {
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
    use csa_provider::server::Level;

    use super::*;
    use crate::servers::test_util::{server, target_options};

    const GOOD: [(&str, &str); 6] = [
        ("log_bin", "ON"),
        ("max_connections", "151"),
        ("max_user_connections", "0"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("sync_binlog", "1"),
        ("lower_case_table_names", "0"),
    ];

    fn good() -> CheckedServer {
        server(&GOOD)
    }

    fn with(variable: &str, value: &str) -> CheckedServer {
        let mut server = good();
        server.facts.variables.insert(variable.to_owned(), value.to_owned());
        server
    }

    #[test]
    fn refused_named_locks_are_an_error_with_its_fix() {
        for (code, fix) in [(1105, "pxc_strict_mode=MASTER"), (1235, "no Galera cluster")] {
            let refusal = QueryError { code: Some(code), text: "refused".to_owned() };
            let finding = no_locks(&refusal).expect("an answer");
            assert_eq!(finding.level, Level::Error);
            assert!(finding.to_string().contains(fix), "{finding}");
        }
        let lost = QueryError { code: None, text: "lost".to_owned() };
        assert!(no_locks(&lost).is_none(), "another check says so");
    }

    fn found(target: &CheckedServer, source: &CheckedServer) -> Vec<Finding> {
        let found = settings(target, Some(source), &target_options(), 8);
        found.into_iter().filter(|finding| finding.level != Level::Ok).collect()
    }

    #[test]
    fn each_setting_has_its_finding_and_its_fix() {
        assert_eq!(found(&good(), &good()), []);
        for (variable, value, check, fix) in [
            (
                "sql_require_primary_key",
                "ON",
                "target.sql_require_primary_key",
                "GRANT SESSION_VARIABLES_ADMIN ON *.* TO",
            ),
            ("max_connections", "12", "target.max_connections", "SET PERSIST max_connections=26;"),
            (
                "max_user_connections",
                "12",
                "target.max_connections",
                "SET PERSIST max_user_connections=26;",
            ),
            ("lower_case_table_names", "1", "target.lower_case_table_names", "become one"),
        ] {
            let found = found(&with(variable, value), &good());
            let [finding] = found.as_slice() else { panic!("{variable}: {found:?}") };
            assert_eq!((finding.check, finding.level), (check, Level::Warning));
            assert!(finding.to_string().contains(fix), "{finding}");
        }
    }

    #[test]
    fn durability_is_a_choice_unless_the_targets_gtids_are_the_checkpoint() {
        let target = with("innodb_flush_log_at_trx_commit", "2");
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
        let on = with("sql_require_primary_key", "ON");
        assert_eq!(found(&on, &on), []);
    }
}
