//! The privileges that a copy needs on its source. `information_schema` silently lacks programs on which an account
//! has none. Pure.

use std::collections::{BTreeMap, BTreeSet};

use csa_provider::server::{Finding, Grants, Place};
use csa_provider::sql_text::identifier;

/// Privileges without which triggers, events and the texts of views are hidden.
const ON_SCHEMA: [&str; 3] = ["EVENT", "SHOW VIEW", "TRIGGER"];

/// Returns the statements that grant what is missing, without the last semicolon; `None` if nothing is.
pub(crate) fn missing(grants: &Grants, schemas: &BTreeSet<&str>) -> Option<String> {
    // Either shows the text of routines that the account did not define; SHOW_ROUTINE is new in 8.0.20.
    let sees_routines = grants.has_any(&["SELECT", "SHOW_ROUTINE"]);
    let sees_log = grants.has_any(&["REPLICATION CLIENT", "SUPER"]);
    let on_all = [("SELECT", sees_routines), ("REPLICATION CLIENT", sees_log)];
    let mut on_all: Vec<&str> =
        on_all.into_iter().filter(|(_, has)| !has).map(|(name, _)| name).collect();
    let mut by_schema: BTreeMap<&str, Vec<&str>> = schemas
        .iter()
        .map(|schema| (*schema, lacking(grants, schema)))
        .filter(|(_, lacking)| !lacking.is_empty())
        .collect();
    // Without SELECT no schema may be seen, and an account that has none of its own is given all of them.
    if schemas.is_empty() || (by_schema.len() == schemas.len() && !grants.has_schemas()) {
        on_all.extend(ON_SCHEMA.into_iter().filter(|name| !grants.has_any(&[name])));
        by_schema = BTreeMap::new();
    }
    let account = grants.account();
    let on_all = (!on_all.is_empty()).then(|| (on_all, "*.*".to_owned()));
    let on_schemas = by_schema
        .into_iter()
        .map(|(schema, lacking)| (lacking, format!("{}.*", identifier(schema))));
    let statements: Vec<String> = on_all
        .into_iter()
        .chain(on_schemas)
        .map(|(names, level)| format!("GRANT {} ON {level} TO {account}", names.join(", ")))
        .collect();
    (!statements.is_empty()).then(|| statements.join("; "))
}

fn lacking(grants: &Grants, schema: &str) -> Vec<&'static str> {
    let lacks = |privilege: &&str| {
        let is_global = grants.has_any(&[privilege]) && !grants.is_revoked(schema, privilege);
        !is_global && !grants.is_on_schema(schema, privilege)
    };
    ON_SCHEMA.into_iter().filter(lacks).collect()
}

/// Judges whether a channel that begins with a copy can make it.
pub(super) fn judged(grants: &Grants, schemas: &BTreeSet<&str>) -> Finding {
    const CHECK: &str = "source.copy_privileges";
    match missing(grants, schemas) {
        None => Finding::ok(CHECK, format!("{} may copy", grants.account())),
        Some(statements) => Finding::error(
            CHECK,
            format!("{} may not see all that the first start copies", grants.account()),
        )
        .fix(Place::Source, format!("{statements};")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(lines: &[&str]) -> Option<String> {
        super::missing(&Grants::parse("r@%", lines), &BTreeSet::from(["a", "b"]))
    }

    fn wanted(statements: &str) -> Option<String> {
        Some(statements.replace("it", "'r'@'%'"))
    }

    #[test]
    fn everything_missing_is_granted_at_once() {
        let all = "GRANT SELECT, REPLICATION CLIENT, EVENT, SHOW VIEW, TRIGGER ON *.* TO it";
        assert_eq!(missing(&["GRANT REPLICATION SLAVE ON *.* TO `r`@`%`"]), wanted(all));
        let own = "GRANT EVENT, SHOW VIEW, TRIGGER ON `a`.* TO `r`@`%`";
        let both = "GRANT SELECT, REPLICATION CLIENT ON *.* TO it; \
                    GRANT EVENT, SHOW VIEW, TRIGGER ON `b`.* TO it";
        assert_eq!(missing(&["GRANT SELECT ON `a`.* TO `r`@`%`", own]), wanted(both));
        let global = "GRANT SELECT, SUPER, EVENT ON *.* TO `r`@`%`";
        assert_eq!(missing(&[global]), wanted("GRANT SHOW VIEW, TRIGGER ON *.* TO it"));
        assert_eq!(missing(&[global, own]), wanted("GRANT SHOW VIEW, TRIGGER ON `b`.* TO it"));
    }

    #[test]
    fn either_level_is_enough() {
        assert_eq!(missing(&["GRANT ALL PRIVILEGES ON *.* TO `r`@`%`"]), None);
        let (a, b) = (
            "GRANT ALL PRIVILEGES ON `a`.* TO `r`@`%`",
            "GRANT ALL PRIVILEGES ON `b`.* TO `r`@`%`",
        );
        assert_eq!(
            missing(&["GRANT SHOW_ROUTINE, REPLICATION CLIENT ON *.* TO `r`@`%`", a, b]),
            None
        );
    }

    #[test]
    fn a_revoked_privilege_does_not_count() {
        let all = "GRANT SELECT, REPLICATION CLIENT, EVENT, SHOW VIEW, TRIGGER ON *.* TO `r`@`%`";
        assert_eq!(missing(&[all]), None);
        assert!(missing(&[all, "REVOKE TRIGGER ON `b`.* FROM `r`@`%`"]).is_some());
    }
}
