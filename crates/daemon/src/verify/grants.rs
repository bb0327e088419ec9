//! A check that an account sees all the tables to compare: `information_schema` silently lacks
//! tables on which it has no privilege.

use csa_provider::server::Grants;

use super::scope::Scope;
use super::table_name::TableName;

const SELECT: &str = "SELECT";

/// Never compared.
const OWN: [&str; 5] = ["mysql", "sys", "performance_schema", "information_schema", "csa"];

/// The first level at which SELECT is missing, in GRANT's syntax; names that only a wildcard
/// covers count as missing.
pub(crate) fn missing(grants: &Grants, scope: &Scope) -> Option<String> {
    let is_everywhere = grants.has_any(&[SELECT]);
    let schema_is_read = |schema: &str| match is_everywhere {
        true => !grants.is_revoked(schema, SELECT),
        false => grants.is_on_schema(schema, SELECT),
    };
    if scope.is_everything() {
        let hidden = grants.revoked(SELECT).find(|schema| !OWN.contains(schema));
        return match (is_everywhere, hidden) {
            (false, _) => Some("*.*".to_owned()),
            (true, Some(schema)) => Some(format!("`{schema}`.*")),
            (true, None) => None,
        };
    }
    let schema = scope.schemas.iter().find(|&schema| !schema_is_read(schema));
    let reads_table = |table: &TableName| grants.is_on_table(&table.schema, &table.table, SELECT);
    let table =
        scope.tables.iter().find(|&table| !schema_is_read(&table.schema) && !reads_table(table));
    match (schema, table) {
        (Some(schema), _) => Some(format!("`{schema}`.*")),
        (None, Some(table)) => Some(format!("`{}`.`{}`", table.schema, table.table)),
        (None, None) => None,
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
            ..Scope::default()
        };
        super::missing(&Grants::parse("r@%", &lines), &scope)
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
