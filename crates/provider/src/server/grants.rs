//! Privileges of an account, read from `SHOW GRANTS`.

use std::collections::{BTreeMap, BTreeSet};

use crate::sql_text::quoted_name;

type Names = BTreeSet<String>;

/// The privileges of an account, by the level at which they were granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// The account in GRANT's syntax.
    account: String,
    global: Names,
    schemas: BTreeMap<String, Names>,
    tables: BTreeMap<(String, String), Names>,
    /// Global privileges that do not count in these schemas (`partial_revokes`).
    revoked: BTreeMap<String, Names>,
}

const ALL: &str = "ALL PRIVILEGES";

impl Grants {
    /// Reads the grants of `account`, as `CURRENT_USER()` names it; `lines` are those of
    /// `SHOW GRANTS`, which includes active
    #[must_use]
    pub fn parse<L: AsRef<str>>(account: &str, lines: &[L]) -> Self {
        let mut found = Self { account: account_name(account), ..Self::default() };
        for line in lines {
            let line = line.as_ref();
            let (is_grant, rest) = match (line.strip_prefix("GRANT "), line.strip_prefix("REVOKE "))
            {
                (Some(rest), _) => (true, rest),
                (_, Some(rest)) => (false, rest),
                _ => continue,
            };
            // A role has no level.
            let Some((privileges, level)) = rest.split_once(" ON ") else { continue };
            // This cuts lists of columns apart too. Their pieces are no privileges, so one that was
            // granted on columns only does not count.
            let names = privileges.split(',').map(|name| name.trim().to_uppercase());
            found.take(is_grant, names, level);
        }
        found
    }

    fn take(&mut self, is_grant: bool, names: impl Iterator<Item = String>, level: &str) {
        if level.starts_with("*.*") {
            if is_grant {
                self.global.extend(names);
            }
            return;
        }
        let Some((schema, rest)) = quoted_name(level) else { return };
        let Some(rest) = rest.strip_prefix('.') else { return };
        // In the name of a schema, and only there, a backslash makes a wildcard literal.
        let schema = schema.replace("\\_", "_").replace("\\%", "%");
        if rest.starts_with('*') {
            let by_schema = if is_grant { &mut self.schemas } else { &mut self.revoked };
            by_schema.entry(schema).or_default().extend(names);
        } else if let (true, Some((table, _))) = (is_grant, quoted_name(rest)) {
            self.tables.entry((schema, table)).or_default().extend(names);
        }
    }

    /// Returns the account in GRANT's syntax.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Returns true if any of the privileges was granted on `*.*`.
    #[must_use]
    pub fn has_any(&self, names: &[&str]) -> bool {
        has(&self.global, names)
    }

    /// Returns those of the privileges that were not granted on `*.*`.
    #[must_use]
    pub fn missing<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        names.iter().copied().filter(|&name| !self.has_any(&[name])).collect()
    }

    /// Returns true if some schema has grants of its own, so that a missing global privilege proves
    /// nothing.
    #[must_use]
    pub fn has_schemas(&self) -> bool {
        !self.schemas.is_empty()
    }

    /// Returns true if the privilege was granted on the schema, in addition to global ones.
    #[must_use]
    pub fn is_on_schema(&self, schema: &str, privilege: &str) -> bool {
        self.schemas.get(schema).is_some_and(|names| has(names, &[privilege]))
    }

    /// Returns true if the privilege was granted on the whole table.
    #[must_use]
    pub fn is_on_table(&self, schema: &str, table: &str, privilege: &str) -> bool {
        let table = (schema.to_owned(), table.to_owned());
        self.tables.get(&table).is_some_and(|names| has(names, &[privilege]))
    }

    /// Returns true if the global privilege was revoked for the schema.
    #[must_use]
    pub fn is_revoked(&self, schema: &str, privilege: &str) -> bool {
        self.revoked.get(schema).is_some_and(|names| has(names, &[privilege]))
    }

    /// Returns the schemas for which the global privilege was revoked.
    pub fn revoked<'a>(&'a self, privilege: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.revoked.iter().filter(move |(_, names)| has(names, &[privilege]));
        found.map(|(schema, _)| schema.as_str())
    }
}

/// Returns the result of `CURRENT_USER()` in GRANT's syntax.
#[must_use]
pub fn account_name(current_user: &str) -> String {
    match current_user.rsplit_once('@') {
        Some((user, host)) => format!("'{user}'@'{host}'"),
        None => current_user.to_owned(),
    }
}

fn has(names: &Names, wanted: &[&str]) -> bool {
    names.contains(ALL) || wanted.iter().any(|&name| names.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_counts_for_itself() {
        let grants = Grants::parse(
            "csa@%",
            &[
                "GRANT SELECT, INSERT ON *.* TO `csa`@`%`",
                "GRANT REPLICATION_APPLIER ON *.* TO `csa`@`%`",
                "GRANT UPDATE ON `my\\_d`.* TO `csa`@`%`",
                "GRANT SELECT (`c`), DELETE ON `e`.`t``x` TO `csa`@`%`",
                "REVOKE SELECT ON `mysql`.* FROM `csa`@`%`",
                "GRANT `role`@`%` TO `csa`@`%`",
            ],
        );
        assert_eq!(grants.account(), "'csa'@'%'");
        assert_eq!(grants.missing(&["INSERT", "UPDATE", "REPLICATION_APPLIER"]), ["UPDATE"]);
        assert!(grants.is_on_schema("my_d", "UPDATE") && !grants.is_on_schema("e", "UPDATE"));
        assert!(grants.is_on_table("e", "t`x", "DELETE"));
        assert!(!grants.is_on_table("e", "t`x", "SELECT"), "a column is not the table");
        assert_eq!(grants.revoked("SELECT").collect::<Vec<_>>(), ["mysql"]);
        assert!(
            Grants::parse("root@%", &["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"])
                .has_any(&["SELECT"])
        );
    }
}
