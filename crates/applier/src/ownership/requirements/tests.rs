use std::collections::BTreeMap;

use csa_provider::server::by_hand::of_account;
use csa_provider::server::group::{GroupView, Member, Membership};
use csa_provider::server::{Grants, Level, ServerFacts, Version};

use super::*;
use crate::options::Route;

fn options() -> TargetOptions {
    crate::server::scripted::options()
}

fn server(version: &str, variables: &[(&str, &str)], grants: &[&str]) -> ServerFacts {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ServerFacts {
        version: Version::parse(version),
        variables: variables.iter().map(own).collect::<BTreeMap<_, _>>(),
        grants: Grants::parse("csa@%", grants),
        ..ServerFacts::default()
    }
}

const GOOD: [(&str, &str); 6] = [
    ("read_only", "OFF"),
    ("super_read_only", "OFF"),
    ("gtid_mode", "ON"),
    ("log_bin", "ON"),
    ("log_bin_trust_function_creators", "ON"),
    ("max_allowed_packet", "1073741824"),
];
const ALL: &str = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, \
    CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT, SHOW VIEW, EXECUTE, REPLICATION_APPLIER, SYSTEM_USER, \
    SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER ON *.* TO `csa`@`%`";
const ROWS: &str = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `csa`@`%`";

fn good() -> ServerFacts {
    server("9.7.4", &GOOD, &[ALL])
}

fn found(target: &ServerFacts, options: &TargetOptions) -> Vec<Finding> {
    let found = requirements(target, options, OfSource::default());
    found.into_iter().filter(|finding| finding.level != Level::Ok).collect()
}

fn named(target: &ServerFacts, options: &TargetOptions, check: &str) -> Finding {
    let found = requirements(target, options, OfSource::default());
    let mut found = found.into_iter().find(|finding| finding.check == check).expect("judged");
    found.adapt(Place::Target, target.version.vendor());
    found
}

#[test]
fn each_setting_has_its_finding_and_its_fix() {
    assert_eq!(found(&good(), &options()), []);
    for (variable, value, check, level, fix) in [
        ("read_only", "ON", "target.read_only", Level::Error, "GRANT CONNECTION_ADMIN"),
        ("innodb_read_only", "ON", "target.read_only", Level::Error, "writer endpoint"),
        ("gtid_mode", "OFF", "target.gtid_mode", Level::Error, "gtid_mode=OFF_PERMISSIVE"),
        ("binlog_format", "STATEMENT", "target.binlog_format", Level::Error, "binlog_format=ROW"),
        (
            "log_bin_trust_function_creators",
            "OFF",
            "target.log_bin_trust_function_creators",
            Level::Warning,
            "log_bin_trust_function_creators=ON",
        ),
        (
            "max_allowed_packet",
            "1048576",
            "target.max_allowed_packet",
            Level::Warning,
            "max_allowed_packet=1073741824",
        ),
    ] {
        let mut target = good();
        target.variables.insert(variable.to_owned(), value.to_owned());
        let found = found(&target, &options());
        let [finding] = found.as_slice() else { panic!("{variable}: {found:?}") };
        assert_eq!((finding.check, finding.level), (check, level));
        assert!(finding.line().contains(fix), "{}", finding.line());
    }
}

#[test]
fn functions_need_trust_even_with_super() {
    let mut target = good();
    target.variables.insert("log_bin_trust_function_creators".to_owned(), "OFF".to_owned());
    for (version, grant, error) in [
        ("9.7.4", ALL, "1419"),
        ("9.7.4", "GRANT ALL PRIVILEGES ON *.* TO `csa`@`%`", "1418"),
        ("5.7.44-log", "GRANT SUPER ON *.* TO `csa`@`%`", "1418"),
        ("10.11.6-MariaDB", "GRANT ALL PRIVILEGES ON *.* TO `csa`@`%`", "1418"),
    ] {
        target.version = Version::parse(version);
        target.grants = Grants::parse("csa@%", &[grant]);
        let finding = named(&target, &options(), "target.log_bin_trust_function_creators");
        assert_eq!(finding.level, Level::Warning, "{version} {grant}");
        assert!(finding.line().contains(error), "{}", finding.line());
    }
    target.variables.insert("log_bin".to_owned(), "OFF".to_owned());
    let finding = named(&target, &options(), "target.log_bin_trust_function_creators");
    assert_eq!(finding.level, Level::Ok);
}

#[test]
fn a_format_matters_only_to_what_is_logged() {
    let mut target = good();
    target.variables.insert("binlog_format".to_owned(), "STATEMENT".to_owned());
    let mirror = TargetOptions { gtids: TargetGtids::Mirror, ..options() };
    assert_eq!(named(&target, &mirror, "target.binlog_format").level, Level::Ok);
    target.variables.insert("log_bin".to_owned(), "OFF".to_owned());
    assert_eq!(named(&target, &options(), "target.binlog_format").level, Level::Ok);
}

#[test]
fn the_fix_of_super_read_only_leaves_nothing_in_the_way() {
    let mut target = good();
    // The first forces the second.
    for variable in ["super_read_only", "read_only"] {
        target.variables.insert(variable.to_owned(), "ON".to_owned());
    }
    let run = |target: &ServerFacts| {
        let finding = named(target, &options(), "target.read_only");
        finding.fixes.first().expect("a fix").run.clone()
    };
    assert_eq!(run(&target), "SET PERSIST read_only=OFF;");
    target.grants = Grants::parse("csa@%", &["GRANT CONNECTION_ADMIN ON *.* TO `csa`@`%`"]);
    assert_eq!(run(&target), "SET PERSIST super_read_only=OFF;");
}

#[test]
fn rows_written_as_statements_need_no_gtid_mode() {
    let mut target = good();
    target.variables.insert("gtid_mode".to_owned(), "OFF".to_owned());
    let options = TargetOptions { executor: Some(Executor::Sql), ..options() };
    assert_eq!(named(&target, &options, "target.gtid_mode").level, Level::Warning);
}

#[test]
fn privileges_follow_the_settings() {
    for (executor, gtids, wanted) in [
        (Some(Executor::RowImage), TargetGtids::Own, "REPLICATION_APPLIER"),
        (Some(Executor::Sql), TargetGtids::Own, "TRIGGER"),
        (None, TargetGtids::Own, "TRIGGER"),
        (
            Some(Executor::RowImage),
            TargetGtids::Mirror,
            "REPLICATION_APPLIER, SYSTEM_VARIABLES_ADMIN",
        ),
    ] {
        let options = TargetOptions { executor, gtids, ..options() };
        let finding = named(&server("9.7.4", &GOOD, &[ROWS]), &options, "target.privileges");
        assert_eq!(finding.level, Level::Error);
        let run = &finding.fixes.first().expect("a fix").run;
        assert_eq!(*run, of_account(&format!("GRANT {wanted} ON *.* TO 'csa'@'%';")));
    }
    let some = server("db", &GOOD, &["GRANT SELECT, INSERT, UPDATE ON *.* TO `csa`@`%`"]);
    let some = ServerFacts { version: Version::parse("9.7.4"), ..some };
    let by_rows = TargetOptions { executor: Some(Executor::RowImage), ..options() };
    assert_eq!(
        named(&some, &by_rows, "target.privileges").line(),
        format!(
            "privileges: 'csa'@'%' lacks DELETE, CREATE, REPLICATION_APPLIER, for executor \"row-image\" and \
             target_gtids = \"own\"; on the target: {}, or in the configuration: [channel.applier] executor = \
             \"sql\"",
            of_account("GRANT DELETE, CREATE, REPLICATION_APPLIER ON *.* TO 'csa'@'%'")
        )
    );
}

#[test]
fn privileges_are_on_lines_and_levels_of_their_own() {
    let applier = "GRANT REPLICATION_APPLIER ON *.* TO `csa`@`%`";
    let able = server("9.7.4", &GOOD, &[ROWS, applier]);
    assert_eq!(named(&able, &options(), "target.privileges").level, Level::Ok);
    assert_eq!(named(&able, &options(), "target.executor").level, Level::Ok);
    let by_sql = TargetOptions { executor: Some(Executor::Sql), ..options() };
    // A trigger that the account can't see would fire.
    assert!(named(&able, &by_sql, "target.privileges").line().contains("GRANT TRIGGER ON"));
    let rows = server("9.7.4", &GOOD, &[ROWS]);
    assert_eq!(named(&rows, &options(), "target.executor").level, Level::Warning);
    // Schemas with grants of their own may be all that is replicated.
    let part = ["GRANT ALL PRIVILEGES ON `d`.* TO `csa`@`%`", applier];
    let part = server("9.7.4", &GOOD, &part);
    assert_eq!(named(&part, &options(), "target.privileges").level, Level::Ok);
    let all = server("9.7.4", &GOOD, &["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"]);
    assert_eq!(found(&all, &options()), []);
    assert_eq!(found(&all, &by_sql), []);
}

#[test]
fn definers_are_permitted_by_the_privilege_of_the_version() {
    let of = |version: &str, has_tags| {
        privileges::definitions(&server(version, &GOOD, &[]), has_tags).text
    };
    let old = of("8.0.42", false);
    assert!(old.contains("SET_USER_ID") && !old.contains("SET_ANY_DEFINER"), "{old}");
    let new = of("9.7.4-Debian", true);
    assert!(new.contains("SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER"), "{new}");
    assert!(new.contains("TRANSACTION_GTID_TAG") && !old.contains("GTID_TAG"), "{new}");
}

#[test]
fn a_packet_has_to_hold_the_sources_largest_row_as_text() {
    let with = |bytes: u64| server("9.7.4", &[("max_allowed_packet", &bytes.to_string())], &[]);
    const MIB: u64 = 1 << 20;
    for (here, there, executor, level) in [
        (64, 64, Executor::RowImage, Level::Warning),
        (87, 64, Executor::RowImage, Level::Ok),
        (87, 64, Executor::Sql, Level::Warning),
        (129, 64, Executor::Sql, Level::Ok),
        (64, 16, Executor::RowImage, Level::Ok),
        (32, 16, Executor::RowImage, Level::Warning),
        // There is no larger packet.
        (1024, 1024, Executor::RowImage, Level::Ok),
    ] {
        let found = packet(&with(here * MIB), Some(there * MIB), executor);
        assert_eq!(found.level, level, "{here} {there} {executor:?}: {found}");
    }
    let text = packet(&with(64 * MIB), Some(64 * MIB), Executor::RowImage).to_string();
    assert!(text.contains("rows of 49545216 bytes") && text.contains("=1073741824"), "{text}");
    let most = |executor| packet(&with(1024 * MIB), Some(1024 * MIB), executor).text;
    let text = most(Executor::RowImage);
    assert!(text.contains("767 MiB") && text.contains("executor"), "{text}");
    assert_eq!(most(Executor::Sql), "1073741824");
}

#[test]
fn other_vendors_have_rules_and_statements_of_their_own() {
    let mirror = TargetOptions { gtids: TargetGtids::Mirror, ..options() };
    let by_rows = TargetOptions { executor: Some(Executor::RowImage), ..options() };
    for version in ["5.7.44-log", "10.11.6-MariaDB"] {
        let mut variables = GOOD.to_vec();
        variables.push(("secure_timestamp", "NO"));
        let mut target =
            server(version, &variables, &[ALL, "GRANT PROCESS, SUPER ON *.* TO `c`@`%`"]);
        for options in [&mirror, &by_rows] {
            assert_eq!(named(&target, options, "target.options").level, Level::Error, "{version}");
        }
        assert!(found(&target, &options()).iter().all(|finding| finding.level < Level::Error));
        target.grants = Grants::parse("csa@%", &[] as &[&str]);
        target.variables.insert("read_only".to_owned(), "ON".to_owned());
        let line = named(&target, &options(), "target.read_only").line();
        assert!(line.contains("SET GLOBAL read_only=OFF") && !line.contains("PERSIST"), "{line}");
    }
    let old = server("10.6.22-MariaDB", &GOOD, &[ALL]);
    assert_eq!(named(&old, &options(), "target.version").level, Level::Error);
    let mut strict = server("11.4.2-MariaDB", &GOOD, &[ALL]);
    for (variable, value, check) in [
        ("secure_timestamp", "YES", "target.secure_timestamp"),
        ("binlog_format", "STATEMENT", "target.binlog_format"),
    ] {
        strict.variables.insert(variable.to_owned(), value.to_owned());
        assert_eq!(named(&strict, &options(), check).level, Level::Error);
    }
}

/// A member whose group has a primary, another secondary and it.
fn member(state: &str, is_primary: bool) -> ServerFacts {
    let member = |port, state: &str, is_primary| Member {
        is_asked: port == 1,
        address: (format!("db{port}"), port),
        state: state.to_owned(),
        is_primary: Some(is_primary),
    };
    let members = vec![
        member(1, state, is_primary),
        member(2, "ONLINE", !is_primary),
        member(3, "ONLINE", false),
    ];
    let read_only = if is_primary { "OFF" } else { "ON" };
    let settings = [
        ("super_read_only", read_only),
        ("group_replication_group_name", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"),
        ("group_replication_transaction_size_limit", "150000000"),
    ];
    let variables: Vec<_> = GOOD.into_iter().chain(settings).collect();
    ServerFacts {
        group: Membership::Known(GroupView { members }),
        ..server("9.7.4", &variables, &[ALL])
    }
}

#[test]
fn only_the_primary_of_a_group_is_a_target() {
    let alone = options();
    let discovers = TargetOptions { route: Route::new(Vec::new(), true), ..options() };
    let line = |target: &ServerFacts, options: &TargetOptions| {
        let finding = named(target, options, "target.group");
        (finding.level, finding.line())
    };
    for (target, options, level, part) in [
        (good(), &alone, Level::Ok, "in no group"),
        (good(), &discovers, Level::Error, "target.discover"),
        (member("ONLINE", true), &discovers, Level::Ok, "db1:1 ONLINE PRIMARY"),
        (member("ONLINE", true), &alone, Level::Warning, "discover = \"group\""),
        (member("ONLINE", false), &alone, Level::Error, "host = \"db2\", port = 2"),
        (member("RECOVERING", false), &alone, Level::Error, "RECOVERING"),
    ] {
        let (is, line) = line(&target, options);
        assert!(is == level && line.contains(part), "{is:?} {line}");
    }
    let hidden = ServerFacts { group: Membership::Hidden, ..good() };
    let (level, text) = line(&hidden, &discovers);
    assert!(level == Level::Error && text.contains("GRANT SELECT ON performance_schema"), "{text}");
    // No fix makes a secondary writable.
    let fix = named(&member("ONLINE", false), &alone, "target.read_only").line();
    assert!(fix.contains("discover") && !fix.contains("SET PERSIST"), "{fix}");
}

#[test]
fn a_group_gets_all_rows_and_takes_them() {
    for (gtids, level) in [
        (TargetGtids::Own, Level::Ok),
        (TargetGtids::Mirror, Level::Error),
        (TargetGtids::Source, Level::Warning),
    ] {
        let options = TargetOptions { gtids, ..options() };
        assert_eq!(named(&member("ONLINE", true), &options, "target.group_gtids").level, level);
    }
    for (limit, level) in [("0", Level::Ok), ("150000000", Level::Ok), ("1000", Level::Warning)] {
        let mut target = member("ONLINE", true);
        let name = "group_replication_transaction_size_limit";
        target.variables.insert(name.to_owned(), limit.to_owned());
        let finding = named(&target, &options(), "target.group_transaction_size");
        assert_eq!(finding.level, level, "{limit}");
    }
}

#[test]
fn the_schema_csa_is_logged_again_after_source() {
    let own = options();
    let source = TargetOptions { gtids: TargetGtids::Source, ..options() };
    let without_log = server("9.7.4", &[("log_bin", "OFF")], &[ALL]);
    for (target, options, was_source, expected) in [
        (&good(), &own, true, true),
        (&good(), &own, false, false),
        (&good(), &source, true, false),
        (&without_log, &own, true, false),
    ] {
        let found = logged_again(target, options, was_source);
        assert_eq!(found.is_some(), expected);
        assert!(found.is_none_or(|finding| finding.level == Level::Warning));
    }
}
