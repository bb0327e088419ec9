//! Privileges of the two accounts, and the GRANT for those that are missing.

use std::collections::BTreeSet;

use csa_applier::{
    BINLOG_PRIVILEGES, DDL_PRIVILEGES, Executor, GTID_PRIVILEGES, PRIVILEGES, TargetGtids,
    TargetOptions,
};

use super::report::{Finding, Place};
use super::version::Version;

/// Privileges that an account has everywhere.
#[derive(Debug, Default)]
pub(super) struct Privileges {
    /// In GRANT's syntax.
    pub(super) account: String,
    global: BTreeSet<String>,
    /// Some schema has grants of its own, so a missing global privilege proves nothing.
    by_schema: bool,
    /// Privileges on the schema `mysql` that were granted there, and those revoked there
    /// (`partial_revokes`).
    on_mysql: BTreeSet<String>,
    not_on_mysql: BTreeSet<String>,
}

/// With any of these on the schema `mysql`, an account can change the server's accounts: the server
/// accepts INSERT, UPDATE and DELETE there instead of CREATE USER
/// (<https://dev.mysql.com/doc/refman/en/create-user.html>).
const ON_GRANT_TABLES: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

impl Privileges {
    /// `account`: from `CURRENT_USER()`; `lines`: from `SHOW GRANTS`.
    pub(super) fn parse(account: &str, lines: &[String]) -> Self {
        let account = match account.rsplit_once('@') {
            Some((user, host)) => format!("'{user}'@'{host}'"),
            None => account.to_owned(),
        };
        let mut found = Self { account, ..Self::default() };
        let names = |privileges: &str| -> Vec<String> {
            privileges.split(',').map(|name| name.trim().to_uppercase()).collect()
        };
        for line in lines {
            if let Some(rest) = line.strip_prefix("REVOKE ")
                && let Some((privileges, _)) = rest.split_once(" ON `mysql`.* FROM ")
            {
                found.not_on_mysql.extend(names(privileges));
            }
            let Some(rest) = line.strip_prefix("GRANT ") else { continue };
            if let Some((privileges, _)) = rest.split_once(" ON *.* TO ") {
                found.global.extend(names(privileges));
            } else if let Some((privileges, _)) = rest.split_once(" ON `mysql`.* TO ") {
                found.on_mysql.extend(names(privileges));
                found.by_schema = true;
            } else if rest.contains(".* TO ") {
                found.by_schema = true;
            }
        }
        found
    }

    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        self.global.contains("ALL PRIVILEGES")
            || names.iter().any(|&name| self.global.contains(name))
    }

    /// True if the tables of every schema are visible.
    pub(super) fn sees_everything(&self) -> bool {
        self.has_any(&["SELECT"])
    }

    fn missing<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        names.iter().copied().filter(|&name| !self.has_any(&[name])).collect()
    }

    /// The privileges by which it can change the server's accounts.
    fn over_accounts(&self) -> Vec<&'static str> {
        let by_user = self.global.contains("ALL PRIVILEGES") || self.has_any(&["CREATE USER"]);
        let on_tables = |name: &&&'static str| {
            let here = ["ALL PRIVILEGES", **name].iter().any(|name| self.on_mysql.contains(*name));
            here || self.has_any(&[**name]) && !self.not_on_mysql.contains(**name)
        };
        let on_tables = ON_GRANT_TABLES.iter().filter(on_tables).copied();
        by_user.then_some("CREATE USER").into_iter().chain(on_tables).collect()
    }

    fn grant(&self, names: &[&str]) -> String {
        format!("GRANT {} ON *.* TO {};", names.join(", "), self.account)
    }

    /// The way rows will be written.
    pub(super) fn executor(&self, target: &TargetOptions) -> Executor {
        target.executor.unwrap_or(match self.has_any(&BINLOG_PRIVILEGES) {
            true => Executor::RowImage,
            false => Executor::Sql,
        })
    }
}

pub(super) fn source(privileges: &Privileges) -> Finding {
    const CHECK: &str = "source.privileges";
    let missing = privileges.missing(&["REPLICATION SLAVE"]);
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{} may replicate", privileges.account));
    }
    Finding::error(CHECK, format!("{} may not replicate", privileges.account))
        .fix(Place::Source, privileges.grant(&missing))
}

/// `has_tags`: the source has executed tagged GTIDs.
pub(super) fn target(
    privileges: &Privileges,
    options: &TargetOptions,
    version: &Version,
    has_tags: bool,
    replicate_accounts: bool,
) -> Vec<Finding> {
    vec![
        writing(privileges, options),
        by_row_images(privileges, options),
        definitions(privileges, version, has_tags),
        match replicate_accounts {
            true => account_management(privileges),
            false => grant_tables(privileges),
        },
    ]
}

/// Privileges for rows, the checkpoint, and the settings.
fn writing(privileges: &Privileges, options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.privileges";
    let executor = privileges.executor(options);
    let mut missing =
        if privileges.by_schema { Vec::new() } else { privileges.missing(&PRIVILEGES) };
    match executor {
        Executor::RowImage => {
            let enough = [&BINLOG_PRIVILEGES[..], &GTID_PRIVILEGES];
            if enough.iter().any(|names| !privileges.has_any(names)) {
                missing.push("REPLICATION_APPLIER");
            }
        }
        Executor::Sql => missing.extend(privileges.missing(&["TRIGGER"])),
    }
    let sets_gtids = options.gtids != TargetGtids::Own;
    if sets_gtids && !privileges.has_any(&["SYSTEM_VARIABLES_ADMIN", "SUPER"]) {
        missing.push("SYSTEM_VARIABLES_ADMIN");
    }
    let what =
        format!("executor \"{}\" and target_gtids = \"{}\"", executor.name(), options.gtids.name());
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{} has what {what} need", privileges.account));
    }
    let lacks = missing.join(", ");
    Finding::error(CHECK, format!("{} lacks {lacks}, for {what}", privileges.account))
        .fix(Place::Target, privileges.grant(&missing))
}

fn by_row_images(privileges: &Privileges, options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.executor";
    match (privileges.executor(options), options.executor) {
        (Executor::RowImage, _) => Finding::ok(CHECK, "rows are written as row images"),
        (Executor::Sql, Some(_)) => {
            Finding::ok(CHECK, "rows are written by INSERT, UPDATE and DELETE, as configured")
        }
        (Executor::Sql, None) => Finding::warning(
            CHECK,
            "rows are written by INSERT, UPDATE and DELETE, which is slower: the BINLOG statement \
             is not permitted",
        )
        .fix(Place::Target, privileges.grant(&["REPLICATION_APPLIER"]))
        .fix(Place::Configuration, "[channel.applier] executor = \"sql\""),
    }
}

/// Privileges for replicated DDL.
fn definitions(privileges: &Privileges, version: &Version, has_tags: bool) -> Finding {
    const CHECK: &str = "target.ddl_privileges";
    let mut missing = privileges.missing(&DDL_PRIVILEGES);
    missing.extend(privileges.missing(&["SHOW VIEW", "EXECUTE"]));
    if !privileges.has_any(&["SUPER"]) {
        match version.is_at_least(8, 2) {
            true => missing
                .extend(privileges.missing(&["SET_ANY_DEFINER", "ALLOW_NONEXISTENT_DEFINER"])),
            false => missing.extend(privileges.missing(&["SET_USER_ID"])),
        }
    }
    missing.extend(privileges.missing(&["SYSTEM_USER"]));
    if has_tags {
        missing.extend(privileges.missing(&["TRANSACTION_GTID_TAG"]));
    }
    if missing.is_empty() {
        return Finding::ok(CHECK, "replicated DDL is permitted");
    }
    let text = format!("replicated DDL may be refused: {} are missing", missing.join(", "));
    Finding::warning(CHECK, text).fix(Place::Target, privileges.grant(&missing))
}

/// Privileges for account management where it is replicated.
fn account_management(privileges: &Privileges) -> Finding {
    const CHECK: &str = "target.account_privileges";
    let missing = privileges.missing(&["CREATE USER", "ROLE_ADMIN"]);
    if missing.is_empty() {
        return Finding::ok(CHECK, "replicated account management is permitted");
    }
    let text = format!(
        "{} are missing: with replicate_accounts = true, a CREATE USER or GRANT of the source would \
         stop the channel",
        missing.join(", ")
    );
    let grant = privileges.grant(&missing);
    let grant = format!("{} WITH GRANT OPTION;", grant.trim_end_matches(';'));
    Finding::warning(CHECK, text)
        .fix(Place::Target, grant)
        .fix(Place::Configuration, "[channel.applier] replicate_accounts = false")
}

/// Power over the target's accounts, which the channel never uses.
fn grant_tables(privileges: &Privileges) -> Finding {
    const CHECK: &str = "target.account_privileges";
    let able = privileges.over_accounts();
    if able.is_empty() {
        return Finding::ok(CHECK, "the account can't change the target's accounts");
    }
    let account = &privileges.account;
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
    use super::*;
    use crate::check::report::Level;
    use crate::check::test_util::target_options;

    fn privileges(lines: &[&str]) -> Privileges {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        Privileges::parse("csa@%", &lines)
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
            let finding = writing(&rows, &options);
            assert_eq!(finding.level, Level::Error, "{finding}");
            assert_eq!(run(&finding), format!("GRANT {wanted} ON *.* TO 'csa'@'%';"));
        }
        let able = privileges(&[
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `c`@`%`",
            "GRANT REPLICATION_APPLIER ON *.* TO `c`@`%`",
        ]);
        assert_eq!(writing(&able, &target_options()).level, Level::Ok);
        assert_eq!(by_row_images(&able, &target_options()).level, Level::Ok);
        assert_eq!(by_row_images(&rows, &target_options()).level, Level::Warning);
        // Schemas with grants of their own may be all that is replicated.
        let part = privileges(&[
            "GRANT REPLICATION_APPLIER ON *.* TO `c`@`%`",
            "GRANT ALL PRIVILEGES ON `d`.* TO `c`@`%`",
        ]);
        assert_eq!(writing(&part, &target_options()).level, Level::Ok);
    }

    #[test]
    fn the_grant_tables_are_reached_in_three_ways() {
        let global = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `csa`@`%`";
        let finding = grant_tables(&privileges(&[global]));
        assert_eq!(finding.level, Level::Warning);
        let fix = "SET PERSIST partial_revokes=ON; \
                   REVOKE INSERT, UPDATE, DELETE ON mysql.* FROM 'csa'@'%';";
        assert_eq!(run(&finding), fix);
        let revoked = "REVOKE INSERT, UPDATE, DELETE ON `mysql`.* FROM `csa`@`%`";
        assert_eq!(grant_tables(&privileges(&[global, revoked])).level, Level::Ok);
        let partly = "REVOKE INSERT, UPDATE ON `mysql`.* FROM `csa`@`%`";
        assert!(run(&grant_tables(&privileges(&[global, partly]))).contains("REVOKE DELETE ON"));
        let by_schema = ["GRANT INSERT ON `shop`.* TO `csa`@`%`"];
        assert_eq!(grant_tables(&privileges(&by_schema)).level, Level::Ok);
        let there = ["GRANT UPDATE ON `mysql`.* TO `csa`@`%`"];
        assert_eq!(grant_tables(&privileges(&there)).level, Level::Warning);
        let all = grant_tables(&privileges(&["GRANT ALL PRIVILEGES ON *.* TO `csa`@`%`"]));
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
