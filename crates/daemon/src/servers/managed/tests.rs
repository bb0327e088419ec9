use csa_provider::server::Grants;

use super::*;
use crate::servers::test_util::facts;

const ACCOUNT: &str = "ON *.* TO 'csa'@'%';";

fn adapted(service: &str, version: [u32; 3], place: Place, mut finding: Finding) -> Finding {
    adapt(&mut finding, place, ManagedService::named(service).expect("known"), version);
    finding
}

fn grant(level: Level, names: &str) -> Finding {
    Finding::new("target.privileges", level, "lacks them")
        .fix(Place::Target, format!("GRANT {names} {ACCOUNT}"))
}

fn runs(finding: &Finding) -> Vec<&str> {
    finding.fixes.iter().map(|fix| fix.run.as_str()).collect()
}

#[test]
fn a_profile_is_for_both_servers_or_for_one() {
    let both = Profiles::parse(&["rds-mysql"]).expect("known");
    assert_eq!(both.source.map(|service| service.name), Some("rds-mysql"));
    assert_eq!(both.target.map(|service| service.name), Some("rds-mysql"));
    let two = Profiles::parse(&["source=aurora-mysql", "target=cloud-sql"]).expect("known");
    assert_eq!(two.source.map(|service| service.name), Some("aurora-mysql"));
    assert_eq!(two.target.map(|service| service.name), Some("cloud-sql"));
    let one = Profiles::parse(&["target=azure-mysql"]).expect("known");
    assert!(one.source.is_none() && one.target.is_some());
    for unknown in ["rds", "source=rds", "relay=rds-mysql", ""] {
        assert!(Profiles::parse(&[unknown]).is_err(), "{unknown:?}");
    }
}

#[test]
fn a_grant_that_the_service_refuses_becomes_the_key_that_does_without() {
    let error = |names| grant(Level::Error, names);
    let rds = |names| adapted("rds-mysql", [8, 0, 36], Place::Target, error(names));
    let all = rds("TRIGGER, REPLICATION_APPLIER, SYSTEM_VARIABLES_ADMIN");
    assert_eq!(
        runs(&all),
        [
            "GRANT TRIGGER ON *.* TO 'csa'@'%';",
            "[channel.applier] executor = \"sql\"",
            "[channel.applier] target_gtids = \"own\"",
        ]
    );
    assert_eq!(all.level, Level::Error);
    assert!(
        all.text.ends_with(
            "; Amazon RDS for MySQL grants REPLICATION_APPLIER, SYSTEM_VARIABLES_ADMIN to nobody"
        ),
        "{all}"
    );
    let kept = adapted("azure-mysql", [8, 0, 40], Place::Target, error("REPLICATION_APPLIER"));
    assert_eq!(runs(&kept), ["GRANT REPLICATION_APPLIER ON *.* TO 'csa'@'%';"]);
    // Fixes of the other server are its own business.
    let other = adapted("rds-mysql", [8, 0, 36], Place::Source, error("REPLICATION_APPLIER"));
    assert_eq!(runs(&other), ["GRANT REPLICATION_APPLIER ON *.* TO 'csa'@'%';"]);
}

#[test]
fn a_warning_about_which_nothing_can_be_done_is_a_note() {
    let warned = |names| {
        let finding = grant(Level::Warning, names);
        adapted("rds-mysql", [8, 4, 3], Place::Target, finding)
    };
    let slower = warned("REPLICATION_APPLIER");
    assert_eq!((slower.level, slower.fixes.len()), (Level::Ok, 0), "{slower}");
    assert!(slower.text.contains("grants REPLICATION_APPLIER to nobody"), "{slower}");
    let definers = warned("SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER, SYSTEM_USER");
    assert_eq!(definers.level, Level::Warning);
    assert_eq!(runs(&definers), ["GRANT SET_ANY_DEFINER ON *.* TO 'csa'@'%';"]);
}

#[test]
fn settings_are_changed_as_the_service_changes_them() {
    let run = "SET PERSIST enforce_gtid_consistency=ON; SET PERSIST gtid_mode=ON_PERMISSIVE; \
               SET PERSIST gtid_mode=ON;";
    for (service, expected) in [
        (
            "rds-mysql",
            "in the DB parameter group of the instance: enforce_gtid_consistency = ON, gtid-mode = ON",
        ),
        (
            "cloud-sql",
            "gcloud sql instances patch INSTANCE \
             --database-flags=enforce_gtid_consistency=ON,gtid_mode=ON",
        ),
        (
            "azure-mysql",
            "az mysql flexible-server parameter set -g GROUP -s SERVER -n enforce_gtid_consistency -v \
             ON && az mysql flexible-server parameter set -g GROUP -s SERVER -n gtid_mode -v ON",
        ),
    ] {
        let finding = Finding::error("source.gtid_mode", "OFF").fix(Place::Source, run);
        let finding = adapted(service, [8, 0, 40], Place::Source, finding);
        assert_eq!(runs(&finding), [expected]);
        assert_eq!(finding.fixes.first().map(|fix| fix.on), Some(Place::Operator));
    }
    assert!(settings("REVOKE CREATE USER ON *.* FROM 'csa'@'%';").is_empty());
    assert!(settings("SET PERSIST a=1; CREATE TABLE t (a INT)").is_empty());
    let commented = settings("SET PERSIST binlog_format=ROW; -- open sessions keep theirs");
    assert_eq!(commented, [("binlog_format", "ROW")]);
}

#[test]
fn some_fixes_are_the_services_own() {
    let finding = Finding::error("source.log_bin", "none").fix(Place::Operator, "--log-bin");
    let aurora = adapted("aurora-mysql", [8, 0, 39], Place::Source, finding);
    assert!(runs(&aurora).concat().contains("binlog_format = ROW"), "{aurora}");
    let tls = "[channel.source] tls = \"verify-ca\" and tls_ca, a copy of the server's ca.pem";
    let finding = Finding::warning("source.login", "not verified").fix(Place::Configuration, tls);
    let rds = adapted("rds-mysql", [8, 0, 39], Place::Source, finding);
    assert!(runs(&rds).concat().contains("global-bundle.pem"), "{rds}");
}

#[test]
fn an_account_that_the_service_can_not_have_gives_the_server_away() {
    let rds = ManagedService::named("rds-mysql").expect("known");
    let of = |line: &str| {
        let grants = Grants::parse("csa@%", &[line.to_owned()]);
        let version = Version::parse("8.0.42");
        service("target.service", rds, &ServerFacts { version, grants, ..ServerFacts::default() })
    };
    assert_eq!(of("GRANT SELECT, SET_USER_ID ON *.* TO `csa`@`%`").level, Level::Ok);
    let strange = of("GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO `csa`@`%`");
    assert_eq!(strange.level, Level::Warning);
    assert!(strange.text.contains("has SYSTEM_VARIABLES_ADMIN, which Amazon RDS"), "{strange}");
}

#[test]
fn the_services_own_tables_are_left_out_by_a_rule() {
    let rds = ManagedService::named("rds-mysql").expect("known");
    let all = |table: &TableName| Some(table.clone());
    assert_eq!(own_tables(rds, &all).level, Level::Warning);
    let some = |table: &TableName| (table.schema != "mysql").then(|| table.clone());
    assert_eq!(own_tables(rds, &some).level, Level::Ok);
}

#[test]
fn binary_logs_are_kept_for_hours() {
    for (hours, level) in
        [(None, Level::Warning), (Some("12"), Level::Warning), (Some("24"), Level::Ok)]
    {
        assert_eq!(kept_for("source.binlog_retention", hours).level, level, "{hours:?}");
    }
}

#[test]
fn a_service_is_recognised_without_its_profile() {
    for (variables, profile) in [
        (vec![("version", "8.0.35-google")], "source=cloud-sql"),
        (vec![("version", "8.4.3-azure")], "source=azure-mysql"),
        (
            vec![("version", "8.0.40"), ("basedir", "/rdsdbbin/mysql-8.0.40.R2/")],
            "source=rds-mysql",
        ),
        (
            vec![("basedir", "/rdsdbbin/oscar-8.0/"), ("aurora_version", "3.08.0")],
            "source=aurora-mysql",
        ),
    ] {
        let found = recognised(Side::Source, &facts(&variables)).expect("a hint").to_string();
        assert!(found.contains(profile), "{found}");
    }
    assert_eq!(recognised(Side::Target, &facts(&[("basedir", "/usr/")])), None);
}
