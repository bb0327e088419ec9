//! A check that an account sees everything that is compared: `information_schema` silently lacks
//! tables on which it has no privilege.

use std::collections::BTreeSet;

use super::TableName;
use super::scope::Scope;

/// SELECT privileges from `SHOW GRANTS`, which includes active roles.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    everywhere: bool,
    schemas: BTreeSet<String>,
    tables: BTreeSet<TableName>,
    /// Schemas excluded from `everywhere` (`partial_revokes`).
    revoked: BTreeSet<String>,
}

/// Never compared.
const OWN: [&str; 5] = ["mysql", "sys", "performance_schema", "information_schema", "csa"];

impl Grants {
    pub(crate) fn parse(lines: &[String]) -> Self {
        let mut grants = Self::default();
        for line in lines {
            let (is_grant, rest) = match (line.strip_prefix("GRANT "), line.strip_prefix("REVOKE "))
            {
                (Some(rest), _) => (true, rest),
                (_, Some(rest)) => (false, rest),
                _ => continue,
            };
            let Some((privileges, level)) = rest.split_once(" ON ") else { continue };
            let reads = privileges.split(',').map(str::trim);
            if !reads.into_iter().any(|name| matches!(name, "SELECT" | "ALL PRIVILEGES")) {
                continue;
            }
            grants.take(is_grant, level);
        }
        grants
    }

    fn take(&mut self, is_grant: bool, level: &str) {
        if level.starts_with("*.*") {
            self.everywhere |= is_grant;
            return;
        }
        let Some((schema, rest)) = name(level) else { return };
        let Some(rest) = rest.strip_prefix('.') else { return };
        // In the name of a schema, and only there, a backslash makes a wildcard literal.
        let schema = schema.replace("\\_", "_").replace("\\%", "%");
        if rest.starts_with('*') {
            let set = if is_grant { &mut self.schemas } else { &mut self.revoked };
            set.insert(schema);
        } else if let (true, Some((table, _))) = (is_grant, name(rest)) {
            self.tables.insert(TableName { schema, table });
        }
    }

    /// The first level at which SELECT is missing, in GRANT's syntax; names that only a wildcard
    /// covers count as missing.
    pub(crate) fn missing(&self, scope: &Scope) -> Option<String> {
        let schema_is_read = |schema: &String| match self.everywhere {
            true => !self.revoked.contains(schema),
            false => self.schemas.contains(schema),
        };
        if scope.is_everything() {
            let hidden = self.revoked.iter().find(|schema| !OWN.contains(&schema.as_str()));
            return match (self.everywhere, hidden) {
                (false, _) => Some("*.*".to_owned()),
                (true, Some(schema)) => Some(format!("`{schema}`.*")),
                (true, None) => None,
            };
        }
        let schema = scope.schemas.iter().find(|&schema| !schema_is_read(schema));
        let table = scope
            .tables
            .iter()
            .find(|&table| !schema_is_read(&table.schema) && !self.tables.contains(table));
        match (schema, table) {
            (Some(schema), _) => Some(format!("`{schema}`.*")),
            (None, Some(table)) => Some(format!("`{}`.`{}`", table.schema, table.table)),
            (None, None) => None,
        }
    }
}

/// A name in backticks, and the text after it.
fn name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text.strip_prefix('`')?;
    loop {
        let (part, after) = rest.split_once('`')?;
        name.push_str(part);
        match after.strip_prefix('`') {
            Some(more) => {
                name.push('`');
                rest = more;
            }
            None => return Some((name, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(lines: &[&str], schemas: &[&str], tables: &[&str]) -> Option<String> {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        let scope = Scope {
            schemas: schemas.iter().map(|&schema| schema.to_owned()).collect(),
            tables: tables.iter().map(|table| table.parse().expect("a table")).collect(),
        };
        Grants::parse(&lines).missing(&scope)
    }

    #[test]
    fn everything_wants_a_global_select() {
        let all = |lines: &[&str]| missing(lines, &[], &[]);
        let wanted = Some("*.*".to_owned());
        assert_eq!(all(&["GRANT REPLICATION SLAVE ON *.* TO `repl`@`%`"]), wanted);
        assert_eq!(all(&["GRANT SELECT ON `d`.* TO `r`@`%`"]), wanted);
        assert_eq!(all(&["GRANT SHOW DATABASES, INSERT ON *.* TO `r`@`%`"]), wanted);
        assert_eq!(all(&["GRANT REPLICATION SLAVE, SELECT ON *.* TO `r`@`%`"]), None);
        assert_eq!(all(&["GRANT ALL PRIVILEGES ON *.* TO `r`@`%` WITH GRANT OPTION"]), None);
    }

    #[test]
    fn a_revoked_schema_hides_its_tables() {
        let lines = [
            "GRANT SELECT ON *.* TO `r`@`%`",
            "REVOKE SELECT ON `mysql`.* FROM `r`@`%`",
            "REVOKE INSERT ON `d`.* FROM `r`@`%`",
        ];
        assert_eq!(missing(&lines, &[], &[]), None);
        let more = [&lines[..], &["REVOKE SELECT ON `d`.* FROM `r`@`%`"]].concat();
        assert_eq!(missing(&more, &[], &[]).as_deref(), Some("`d`.*"));
        assert_eq!(missing(&more, &["d"], &[]).as_deref(), Some("`d`.*"));
        assert_eq!(missing(&more, &["e"], &["f.t"]), None);
    }

    #[test]
    fn a_part_wants_no_more_than_itself() {
        let lines = [
            "GRANT SELECT ON `my\\_d`.* TO `r`@`%`",
            "GRANT SELECT, INSERT ON `e`.`t``x` TO `r`@`%`",
            "GRANT SELECT (`c`) ON `e`.`u` TO `r`@`%`",
        ];
        assert_eq!(missing(&lines, &["my_d"], &["e.t`x"]), None);
        assert_eq!(missing(&lines, &["e"], &[]).as_deref(), Some("`e`.*"));
        assert_eq!(missing(&lines, &[], &["my_d.any"]), None);
        assert_eq!(missing(&lines, &[], &["e.u"]).as_deref(), Some("`e`.`u`"));
    }
}
