//! Tables that channels write, as far as `replicate_*` tell: two channels that write the same
//! table of a target undo each other's changes.

use csa_scheduler::filter::{FilterRules, Filters};

/// Names a table that two channels of a target both write; `tables` are those that exist.
pub(crate) fn overlap(
    ours: &FilterRules,
    theirs: &FilterRules,
    folds_case: bool,
    tables: &[(String, String)],
) -> Option<String> {
    if ours == theirs {
        return Some("the same tables (their replicate_* are the same)".to_owned());
    }
    // Tables that do not exist yet count too, as far as the rules name them.
    let named: Vec<_> = named_tables(ours).chain(named_tables(theirs)).collect();
    let filters = |rules: &FilterRules| Filters::new(rules.clone(), folds_case);
    let (ours, theirs) = (filters(ours), filters(theirs));
    let both = |(schema, table): &&(String, String)| {
        ours.writes(schema, table) && theirs.writes(schema, table)
    };
    let (schema, table) = tables.iter().chain(&named).find(both)?;
    Some(format!("{schema}.{table}"))
}

/// Returns the tables that the rules name, and "any table" of each schema that they name.
fn named_tables(rules: &FilterRules) -> impl Iterator<Item = (String, String)> {
    let any = |schema: &String| (schema.clone(), "\u{2026}".to_owned());
    let schemas = rules.do_db.iter().map(any);
    let renamed = rules.rewrite_db.iter().map(move |(_, to)| any(to));
    let tables = rules.do_table.iter().filter_map(|name| {
        name.split_once('.').map(|(schema, table)| (schema.to_owned(), table.to_owned()))
    });
    tables.chain(schemas).chain(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_write_is_named() {
        let of = |schemas: &[&str]| FilterRules {
            do_db: schemas.iter().map(|&schema| schema.to_owned()).collect(),
            ..FilterRules::default()
        };
        let tables = [("a", "t"), ("b", "u")].map(|(s, t)| (s.to_owned(), t.to_owned()));
        let both = |one: &[&str], other: &[&str]| overlap(&of(one), &of(other), false, &tables);
        assert!(both(&[], &[]).is_some_and(|what| what.contains("the same")));
        assert_eq!(both(&[], &["b"]).as_deref(), Some("b.u"));
        assert_eq!(both(&["a"], &["b"]), None);
        assert_eq!(both(&["a", "b"], &["c", "b"]).as_deref(), Some("b.u"));
        // Not there yet.
        assert_eq!(both(&["new", "a"], &["new"]).as_deref(), Some("new.\u{2026}"));
        assert_eq!(both(&[], &["new"]).as_deref(), Some("new.\u{2026}"));
    }
}
