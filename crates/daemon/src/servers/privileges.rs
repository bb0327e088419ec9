//! Privileges of the two accounts, and the GRANT for those that are missing. A starting channel checks its
//! target's again (crates/applier/src/ownership/preflight); both have the rules from there
//! (`target_privileges.rs`).

use csa_applier::{
    DDL_PRIVILEGES, Executor, TargetOptions, Vendor, executor_for, lacking_for_gtids,
    lacking_for_rows,
};
use csa_provider::server::Grants;

use super::report::{Finding, Place};
use super::version::Version;

/// With any of these on the schema `mysql`, an account can change the server's accounts: the server
/// accepts INSERT, UPDATE and DELETE there instead of CREATE USER
/// (<https://dev.mysql.com/doc/refman/en/create-user.html>).
const ON_GRANT_TABLES: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

/// Returns true if the tables of every schema are visible.
pub(super) fn sees_everything(grants: &Grants) -> bool {
    grants.has_any(&["SELECT"])
}

/// Returns the privileges by which the account can change the server's accounts.
fn over_accounts(grants: &Grants) -> Vec<&'static str> {
    let on_tables = |name: &&&'static str| {
        let is_global = grants.has_any(&[**name]) && !grants.is_revoked("mysql", name);
        is_global || grants.is_on_schema("mysql", name)
    };
    let on_tables = ON_GRANT_TABLES.iter().filter(on_tables).copied();
    let by_user = grants.has_any(&["CREATE USER"]).then_some("CREATE USER");
    by_user.into_iter().chain(on_tables).collect()
}

fn grant(grants: &Grants, names: &[&str]) -> String {
    format!("GRANT {} ON *.* TO {};", names.join(", "), grants.account())
}

pub(super) fn source(grants: &Grants) -> Finding {
    const CHECK: &str = "source.privileges";
    let missing = grants.missing(&["REPLICATION SLAVE"]);
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{} may replicate", grants.account()));
    }
    Finding::error(CHECK, format!("{} may not replicate", grants.account()))
        .fix(Place::Source, grant(grants, &missing))
}

/// `has_tags`: the source has executed tagged GTIDs. `is_managed`: nobody may write schema `mysql` there.
pub(super) fn target(
    grants: &Grants,
    options: &TargetOptions,
    version: &Version,
    has_tags: bool,
    replicate_accounts: bool,
    is_managed: bool,
) -> Vec<Finding> {
    vec![
        writing(grants, version, options),
        by_row_images(grants, version, options),
        definitions(grants, version, has_tags),
        match replicate_accounts {
            true => account_management(grants),
            false => grant_tables(grants, version, is_managed),
        },
    ]
}

/// Returns the privileges for rows, the checkpoint, and the settings.
fn writing(grants: &Grants, version: &Version, options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.privileges";
    let executor = executor_for(options, version.vendor(), grants);
    let mut missing = lacking_for_rows(grants, executor);
    missing.extend(lacking_for_gtids(grants, options.gtids));
    let what =
        format!("executor \"{}\" and target_gtids = \"{}\"", executor.name(), options.gtids.name());
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{} has what {what} need", grants.account()));
    }
    let lacks = missing.join(", ");
    Finding::error(CHECK, format!("{} lacks {lacks}, for {what}", grants.account()))
        .fix(Place::Target, grant(grants, &missing))
}

fn by_row_images(grants: &Grants, version: &Version, options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.executor";
    match (executor_for(options, version.vendor(), grants), options.executor) {
        (Executor::RowImage, _) => Finding::ok(CHECK, "rows are written as row images"),
        (Executor::Sql, Some(_)) => {
            Finding::ok(CHECK, "rows are written by INSERT, UPDATE and DELETE, as configured")
        }
        (Executor::Sql, None) if version.vendor() == Vendor::MySql57 => Finding::warning(
            CHECK,
            "rows are written by INSERT, UPDATE and DELETE, which is slower: MySQL 5.7 does not take \
             the row images of later versions",
        ),
        (Executor::Sql, None) => Finding::warning(
            CHECK,
            "rows are written by INSERT, UPDATE and DELETE, which is slower: the BINLOG statement \
             is not permitted",
        )
        .fix(Place::Target, grant(grants, &["REPLICATION_APPLIER"]))
        .fix(Place::Configuration, "[channel.applier] executor = \"sql\""),
    }
}

/// Returns the privileges for replicated DDL.
fn definitions(grants: &Grants, version: &Version, has_tags: bool) -> Finding {
    const CHECK: &str = "target.ddl_privileges";
    let mut missing = grants.missing(&DDL_PRIVILEGES);
    missing.extend(grants.missing(&["SHOW VIEW", "EXECUTE"]));
    if !grants.has_any(&["SUPER"]) {
        match version.is_at_least(8, 2) {
            true => {
                missing.extend(grants.missing(&["SET_ANY_DEFINER", "ALLOW_NONEXISTENT_DEFINER"]))
            }
            false if version.is_at_least(8, 0) => missing.extend(grants.missing(&["SET_USER_ID"])),
            false => missing.push("SUPER"),
        }
    }
    missing.extend(grants.missing(&["SYSTEM_USER"]));
    if has_tags {
        missing.extend(grants.missing(&["TRANSACTION_GTID_TAG"]));
    }
    if missing.is_empty() {
        return Finding::ok(CHECK, "replicated DDL is permitted");
    }
    let text = format!("replicated DDL may be refused: {} are missing", missing.join(", "));
    Finding::warning(CHECK, text).fix(Place::Target, grant(grants, &missing))
}

/// Returns the privileges for account management where it is replicated.
fn account_management(grants: &Grants) -> Finding {
    const CHECK: &str = "target.account_privileges";
    let missing = grants.missing(&["CREATE USER", "ROLE_ADMIN"]);
    if missing.is_empty() {
        return Finding::ok(CHECK, "replicated account management is permitted");
    }
    let text = format!(
        "{} are missing: with replicate_accounts = true, a CREATE USER or GRANT of the source would \
         stop the channel",
        missing.join(", ")
    );
    let with_option = grant(grants, &missing);
    let with_option = format!("{} WITH GRANT OPTION;", with_option.trim_end_matches(';'));
    Finding::warning(CHECK, text)
        .fix(Place::Target, with_option)
        .fix(Place::Configuration, "[channel.applier] replicate_accounts = false")
}

/// Checks the power over the target's accounts, which the channel never uses.
fn grant_tables(grants: &Grants, version: &Version, is_managed: bool) -> Finding {
    const CHECK: &str = "target.account_privileges";
    let mut able = over_accounts(grants);
    // MySQL 5.7 can't revoke anything for one schema only.
    if is_managed || version.vendor() == Vendor::MySql57 {
        able.retain(|&name| name == "CREATE USER");
    }
    if able.is_empty() {
        return Finding::ok(CHECK, "the account can't change the target's accounts");
    }
    let account = grants.account();
    let text = format!(
        "{account} can change the target's accounts ({} on mysql.*), which the channel does not need: \
         account statements are left out",
        able.join(", ")
    );
    let mut fixes = Vec::new();
    let (by_user, on_tables): (Vec<&str>, Vec<&str>) =
        able.iter().partition(|&&name| name == "CREATE USER");
    if !by_user.is_empty() {
        fixes.push(format!("REVOKE CREATE USER ON *.* FROM {account};"));
    }
    if !on_tables.is_empty() {
        fixes.push("SET PERSIST partial_revokes=ON;".to_owned());
        fixes.push(format!("REVOKE {} ON mysql.* FROM {account};", on_tables.join(", ")));
    }
    Finding::warning(CHECK, text).fix(Place::Target, fixes.join(" "))
}

#[cfg(test)]
mod tests {
    use csa_applier::TargetGtids;

    use super::*;
    use crate::servers::report::Level;
    use crate::servers::test_util::target_options;

    fn privileges(lines: &[&str]) -> Grants {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        Grants::parse("csa@%", &lines)
    }

    fn newest() -> Version {
        Version::parse("9.7.4")
    }

    fn run(finding: &Finding) -> &str {
        &finding.fixes.first().expect("a fix").run
    }

    #[test]
    fn the_source_wants_one_privilege() {
        let able = privileges(&["GRANT REPLICATION SLAVE ON *.* TO `csa`@`%`"]);
        assert_eq!(source(&able).level, Level::Ok);
        let finding = source(&privileges(&["GRANT SELECT ON *.* TO `csa`@`%`"]));
        assert_eq!(finding.level, Level::Error);
        assert_eq!(run(&finding), "GRANT REPLICATION SLAVE ON *.* TO 'csa'@'%';");
    }

    #[test]
    fn what_the_target_needs_follows_the_settings() {
        let rows = privileges(&["GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `c`@`%`"]);
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
            let options = TargetOptions { executor, gtids, ..target_options() };
            let finding = writing(&rows, &newest(), &options);
            assert_eq!(finding.level, Level::Error, "{finding}");
            assert_eq!(run(&finding), format!("GRANT {wanted} ON *.* TO 'csa'@'%';"));
        }
        let able = privileges(&[
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `c`@`%`",
            "GRANT REPLICATION_APPLIER ON *.* TO `c`@`%`",
        ]);
        assert_eq!(writing(&able, &newest(), &target_options()).level, Level::Ok);
        assert_eq!(by_row_images(&able, &newest(), &target_options()).level, Level::Ok);
        assert_eq!(by_row_images(&rows, &newest(), &target_options()).level, Level::Warning);
        // Schemas with grants of their own may be all that is replicated.
        let part = privileges(&[
            "GRANT REPLICATION_APPLIER ON *.* TO `c`@`%`",
            "GRANT ALL PRIVILEGES ON `d`.* TO `c`@`%`",
        ]);
        assert_eq!(writing(&part, &newest(), &target_options()).level, Level::Ok);
    }

    #[test]
    fn the_grant_tables_are_reached_in_three_ways() {
        let global = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `csa`@`%`";
        let finding = grant_tables(&privileges(&[global]), &newest(), false);
        assert_eq!(finding.level, Level::Warning);
        let fix = "SET PERSIST partial_revokes=ON; \
                   REVOKE INSERT, UPDATE, DELETE ON mysql.* FROM 'csa'@'%';";
        assert_eq!(run(&finding), fix);
        let revoked = "REVOKE INSERT, UPDATE, DELETE ON `mysql`.* FROM `csa`@`%`";
        assert_eq!(
            grant_tables(&privileges(&[global, revoked]), &newest(), false).level,
            Level::Ok
        );
        let partly = "REVOKE INSERT, UPDATE ON `mysql`.* FROM `csa`@`%`";
        assert!(
            run(&grant_tables(&privileges(&[global, partly]), &newest(), false))
                .contains("REVOKE DELETE ON")
        );
        let by_schema = ["GRANT INSERT ON `shop`.* TO `csa`@`%`"];
        assert_eq!(grant_tables(&privileges(&by_schema), &newest(), false).level, Level::Ok);
        let there = ["GRANT UPDATE ON `mysql`.* TO `csa`@`%`"];
        assert_eq!(grant_tables(&privileges(&there), &newest(), false).level, Level::Warning);
        let all = grant_tables(
            &privileges(&["GRANT ALL PRIVILEGES ON *.* TO `csa`@`%`"]),
            &newest(),
            false,
        );
        assert!(run(&all).starts_with("REVOKE CREATE USER ON *.* FROM 'csa'@'%'; SET"), "{all}");
    }

    #[test]
    fn definers_are_permitted_by_the_privilege_of_the_version() {
        let none = privileges(&[]);
        let of = |version: &str, tags| definitions(&none, &Version::parse(version), tags).text;
        let old = of("8.0.42", false);
        assert!(old.contains("SET_USER_ID") && !old.contains("SET_ANY_DEFINER"), "{old}");
        let new = of("9.7.4-Debian", true);
        assert!(new.contains("SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER"), "{new}");
        assert!(new.contains("TRANSACTION_GTID_TAG") && !old.contains("GTID_TAG"), "{new}");
        let all = privileges(&["GRANT ALL PRIVILEGES ON *.* TO `c`@`%`"]);
        assert_eq!(definitions(&all, &Version::parse("9.7.4"), true).level, Level::Ok);
    }
}
