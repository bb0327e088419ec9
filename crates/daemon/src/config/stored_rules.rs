//! A channel's `replicate_*` as its target keeps them, for whoever else writes there.

use csa_scheduler::filter::FilterRules;
use serde_json::{Map, Value, json};

/// Returns `replicate_*` as stored on the target, under the names of its keys.
pub(crate) fn written_rules(rules: &FilterRules) -> String {
    let mut all = Map::new();
    for (key, list) in lists(rules) {
        if !list.is_empty() {
            all.insert(key.to_owned(), json!(list));
        }
    }
    if rules.accounts {
        all.insert(ACCOUNTS.to_owned(), json!(true));
    }
    if !rules.rewrite_db.is_empty() {
        all.insert(REWRITE.to_owned(), json!(rules.rewrite_db));
    }
    Value::Object(all).to_string()
}

/// Returns the stored rules; `None` for rules that a later version may have stored.
pub(crate) fn read_rules(text: &str) -> Option<FilterRules> {
    let Value::Object(mut all) = serde_json::from_str(text).ok()? else { return None };
    let mut list = |key: &str| match all.remove(key) {
        None => Some(Vec::new()),
        Some(value) => serde_json::from_value(value).ok(),
    };
    let rules = FilterRules {
        do_db: list("replicate_do_db")?,
        ignore_db: list("replicate_ignore_db")?,
        do_table: list("replicate_do_table")?,
        ignore_table: list("replicate_ignore_table")?,
        wild_do_table: list("replicate_wild_do_table")?,
        wild_ignore_table: list("replicate_wild_ignore_table")?,
        rewrite_db: match all.remove(REWRITE) {
            None => Vec::new(),
            Some(value) => serde_json::from_value(value).ok()?,
        },
        accounts: match all.remove(ACCOUNTS) {
            None => false,
            Some(value) => value.as_bool()?,
        },
    };
    all.is_empty().then_some(rules)
}

const REWRITE: &str = "replicate_rewrite_db";
const ACCOUNTS: &str = "replicate_accounts";

fn lists(rules: &FilterRules) -> [(&'static str, &Vec<String>); 6] {
    [
        ("replicate_do_db", &rules.do_db),
        ("replicate_ignore_db", &rules.ignore_db),
        ("replicate_do_table", &rules.do_table),
        ("replicate_ignore_table", &rules.ignore_table),
        ("replicate_wild_do_table", &rules.wild_do_table),
        ("replicate_wild_ignore_table", &rules.wild_ignore_table),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_back_as_they_were_written() {
        let some = |text: &str| vec![text.to_owned()];
        let rules = FilterRules {
            do_db: some("a"),
            ignore_db: some("b"),
            do_table: some("a.\"t\u{e9}"),
            ignore_table: some("a.u"),
            wild_do_table: some("a\\_%.%"),
            wild_ignore_table: some("x.%"),
            rewrite_db: vec![("a".to_owned(), "b".to_owned())],
            accounts: true,
        };
        assert_eq!(read_rules(&written_rules(&rules)), Some(rules));
        let none = FilterRules::default();
        assert_eq!(written_rules(&none), "{}");
        assert_eq!(read_rules("{}"), Some(none));
        for unknown in ["", "[]", "{\"replicate_more\": []}", "{\"replicate_do_db\": 7}"] {
            assert_eq!(read_rules(unknown), None, "{unknown}");
        }
    }
}
