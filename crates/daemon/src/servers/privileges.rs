//! Privileges that a start does not require: those over accounts, and those to see every table.

use csa_provider::server::{Finding, Grants, Place, ServerFacts, Vendor};

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

/// Judges the power over accounts; `is_managed`: nobody may write schema `mysql` there.
pub(super) fn target(target: &ServerFacts, replicate_accounts: bool, is_managed: bool) -> Finding {
    match replicate_accounts {
        true => account_management(target),
        false => grant_tables(&target.grants, target.version.vendor(), is_managed),
    }
}

/// Returns the privileges for account management where it is replicated.
fn account_management(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.account_privileges";
    let mut missing = target.grants.missing(&["CREATE USER", "ROLE_ADMIN"]);
    // Either permits FLUSH PRIVILEGES; the second came with 8.4.
    if !target.grants.has_any(&["RELOAD", "FLUSH_PRIVILEGES"]) {
        missing.push("RELOAD");
    }
    if missing.is_empty() {
        return Finding::ok(CHECK, "replicated account management is permitted");
    }
    let text = format!(
        "{} are missing: with replicate_accounts = true, a CREATE USER, GRANT or FLUSH PRIVILEGES of the \
         source would stop the channel",
        missing.join(", ")
    );
    let with_option = target.grant(&missing);
    let with_option = format!("{} WITH GRANT OPTION;", with_option.trim_end_matches(';'));
    Finding::warning(CHECK, text)
        .fix(Place::Target, with_option)
        .fix(Place::Configuration, "[channel.applier] replicate_accounts = false")
}

/// Checks the power over the target's accounts, which the channel never uses.
fn grant_tables(grants: &Grants, vendor: Vendor, is_managed: bool) -> Finding {
    const CHECK: &str = "target.account_privileges";
    let mut able = over_accounts(grants);
    // MySQL 5.7 can't revoke anything for one schema only.
    if is_managed || vendor == Vendor::MySql57 {
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
    use csa_provider::server::Level;

    use super::*;

    fn privileges(lines: &[&str]) -> Grants {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        Grants::parse("csa@%", &lines)
    }

    #[test]
    fn account_management_takes_three_privileges() {
        let judged = |line: &str| {
            let grants = privileges(&[line]);
            account_management(&ServerFacts { grants, ..ServerFacts::default() })
        };
        for permitted in ["RELOAD", "FLUSH_PRIVILEGES"] {
            let line = format!("GRANT CREATE USER, ROLE_ADMIN, {permitted} ON *.* TO `csa`@`%`");
            assert_eq!(judged(&line).level, Level::Ok, "{permitted}");
        }
        let finding = judged("GRANT CREATE USER, ROLE_ADMIN ON *.* TO `csa`@`%`");
        assert_eq!(finding.level, Level::Warning);
        assert!(run(&finding).contains("GRANT RELOAD ON *.*"), "{finding}");
    }

    fn run(finding: &Finding) -> &str {
        &finding.fixes.first().expect("a fix").run
    }

    #[test]
    fn the_grant_tables_are_reached_in_three_ways() {
        let global = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `csa`@`%`";
        let finding = grant_tables(&privileges(&[global]), Vendor::MySql, false);
        assert_eq!(finding.level, Level::Warning);
        let fix = "SET PERSIST partial_revokes=ON; \
                   REVOKE INSERT, UPDATE, DELETE ON mysql.* FROM 'csa'@'%';";
        assert_eq!(run(&finding), fix);
        let revoked = "REVOKE INSERT, UPDATE, DELETE ON `mysql`.* FROM `csa`@`%`";
        assert_eq!(
            grant_tables(&privileges(&[global, revoked]), Vendor::MySql, false).level,
            Level::Ok
        );
        let partly = "REVOKE INSERT, UPDATE ON `mysql`.* FROM `csa`@`%`";
        assert!(
            run(&grant_tables(&privileges(&[global, partly]), Vendor::MySql, false))
                .contains("REVOKE DELETE ON")
        );
        let by_schema = ["GRANT INSERT ON `shop`.* TO `csa`@`%`"];
        assert_eq!(grant_tables(&privileges(&by_schema), Vendor::MySql, false).level, Level::Ok);
        let there = ["GRANT UPDATE ON `mysql`.* TO `csa`@`%`"];
        assert_eq!(grant_tables(&privileges(&there), Vendor::MySql, false).level, Level::Warning);
        let all = grant_tables(
            &privileges(&["GRANT ALL PRIVILEGES ON *.* TO `csa`@`%`"]),
            Vendor::MySql,
            false,
        );
        assert!(run(&all).starts_with("REVOKE CREATE USER ON *.* FROM 'csa'@'%'; SET"), "{all}");
    }
}
