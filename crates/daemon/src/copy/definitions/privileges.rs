//! A check that an account sees all programs: `information_schema` silently lacks those on which it has no
//! privilege. Pure.

use std::collections::BTreeSet;

use csa_provider::server::Grants;
use csa_provider::sql_text::identifier;

/// Privileges without which triggers, events and the texts of views are hidden.
const ON_SCHEMA: [&str; 3] = ["EVENT", "SHOW VIEW", "TRIGGER"];

/// Returns an error's text that names the missing privileges; `None` if there is no such.
pub(super) fn missing(grants: &Grants, schemas: &BTreeSet<&str>) -> Option<String> {
    let account = grants.account();
    let refusal = |privileges: &str, level: &str| {
        format!(
            "{account} may not see all views, triggers, events and routines; run there: \
             GRANT {privileges} ON {level} TO {account}"
        )
    };
    // Either shows the text of routines that the account did not define; SHOW_ROUTINE is new in 8.0.20.
    if !grants.has_any(&["SELECT", "SHOW_ROUTINE"]) {
        return Some(refusal("SELECT", "*.*"));
    }
    schemas.iter().find_map(|schema| {
        let lacks = |privilege: &&str| {
            let is_global = grants.has_any(&[privilege]) && !grants.is_revoked(schema, privilege);
            !is_global && !grants.is_on_schema(schema, privilege)
        };
        let lacking: Vec<&str> = ON_SCHEMA.into_iter().filter(lacks).collect();
        let level = format!("{}.*", identifier(schema));
        (!lacking.is_empty()).then(|| refusal(&lacking.join(", "), &level))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(lines: &[&str]) -> Option<String> {
        super::missing(&Grants::parse("r@%", lines), &BTreeSet::from(["a", "b"]))
    }

    #[test]
    fn everything_hidden_is_named() {
        let wanted = |privileges: &str| {
            Some(format!(
                "'r'@'%' may not see all views, triggers, events and routines; run there: \
                 GRANT {privileges} TO 'r'@'%'"
            ))
        };
        let own = "GRANT EVENT, SHOW VIEW, TRIGGER ON `a`.* TO `r`@`%`";
        assert_eq!(missing(&["GRANT SELECT ON `a`.* TO `r`@`%`", own]), wanted("SELECT ON *.*"));
        let global = "GRANT SELECT, EVENT ON *.* TO `r`@`%`";
        assert_eq!(missing(&[global]), wanted("SHOW VIEW, TRIGGER ON `a`.*"));
        assert_eq!(missing(&[global, own]), wanted("SHOW VIEW, TRIGGER ON `b`.*"));
    }

    #[test]
    fn either_level_is_enough() {
        assert_eq!(missing(&["GRANT ALL PRIVILEGES ON *.* TO `r`@`%`"]), None);
        let (a, b) = (
            "GRANT ALL PRIVILEGES ON `a`.* TO `r`@`%`",
            "GRANT ALL PRIVILEGES ON `b`.* TO `r`@`%`",
        );
        assert_eq!(missing(&["GRANT SHOW_ROUTINE ON *.* TO `r`@`%`", a, b]), None);
    }

    #[test]
    fn a_revoked_privilege_does_not_count() {
        let all = "GRANT SELECT, EVENT, SHOW VIEW, TRIGGER ON *.* TO `r`@`%`";
        assert_eq!(missing(&[all]), None);
        assert!(missing(&[all, "REVOKE TRIGGER ON `b`.* FROM `r`@`%`"]).is_some());
    }
}
