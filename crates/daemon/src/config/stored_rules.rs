//! A channel's `replicate_*` as its target keeps them, for whoever else writes there.

use csa_scheduler::filter::FilterRules;
use serde_json::json;

/// Returns `replicate_*` as stored on the target, under the names of its keys, which are in alphabetical order.
pub(crate) fn written_rules(rules: &FilterRules) -> String {
    json!(rules).to_string()
}

/// Returns the stored rules; `None` for rules that a later version may have stored.
pub(crate) fn read_rules(text: &str) -> Option<FilterRules> {
    // A list would be read as the values of the first keys.
    text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
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
        let written = written_rules(&rules);
        assert!(written.starts_with(r#"{"replicate_accounts":true,"replicate_do_db":["a"],"#));
        assert_eq!(read_rules(&written), Some(rules));
        let none = FilterRules::default();
        assert_eq!(written_rules(&none), "{}");
        assert_eq!(read_rules("{}"), Some(none));
        for unknown in ["", "[]", "{\"replicate_more\": []}", "{\"replicate_do_db\": 7}"] {
            assert_eq!(read_rules(unknown), None, "{unknown}");
        }
    }
}
