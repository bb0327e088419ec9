//! The tables and schemas that the rules leave.

use proptest::prelude::*;

use super::*;
use crate::filter::rules::{is_like, lower_case_name};

#[test]
fn patterns_match_as_in_mysql() {
    for (pattern, name, expected) in [
        ("a.%", "a.t", true),
        ("a.%", "a.", true),
        ("a.%", "ab.t", false),
        ("a%.%", "ab.t", true),
        ("a_b.t", "axb.t", true),
        ("a_b.t", "ab.t", false),
        (r"a\_b.t", "a_b.t", true),
        (r"a\_b.t", "axb.t", false),
        (r"a\%.t", "a%.t", true),
        (r"a\%.t", "abc.t", false),
        (r"a.b\\", r"a.b\", true),
        // The whole name is one string.
        ("%", "a.t", true),
        ("a%t", "a.b.t", true),
        ("%.t%2", "a.t1x2", true),
        ("%.t%2", "a.t1x2y", false),
        ("ä_.t", "äö.t", true),
        ("A.t", "a.t", false),
        ("", "", true),
        ("", "a", false),
    ] {
        assert_eq!(is_like(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn names_are_folded_one_character_after_another() {
    for (name, expected) in [
        ("Orders_2", "orders_2"),
        ("ΠΙΝΑΚΑΣ", "πινακασ"),
        ("πινακας", "πινακας"),
        ("SİPARİŞ", "sipariş"),
        ("IŞIK", "işik"),
        ("表", "表"),
    ] {
        assert_eq!(lower_case_name(name), expected);
    }
}

/// Returns the obvious implementation, which may take exponential time.
fn matches_simply(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], name) => name.is_empty(),
        (['%', rest @ ..], name) => {
            (0..=name.len()).any(|taken| matches_simply(rest, &name[taken..]))
        }
        (['\\', c, pattern @ ..], [d, name @ ..]) => c == d && matches_simply(pattern, name),
        (['_', pattern @ ..], [_, name @ ..]) => matches_simply(pattern, name),
        ([c, pattern @ ..], [d, name @ ..]) => c == d && matches_simply(pattern, name),
        (_, []) => false,
    }
}

proptest! {
    #[test]
    fn patterns_match_as_the_obvious_way_says(
        pattern in r"([ab%_.]|\\[ab%_]){0,8}",
        name in "[ab%_.]{0,10}",
    ) {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(
            is_like(&pattern, &name),
            matches_simply(&chars(&pattern), &chars(&name))
        );
    }
}

/// The flow charts of the manual's "Evaluation of Database-Level Replication and Binary Logging
/// Options" and "Evaluation of Table-Level Replication Options", branch by branch.
#[test]
fn rules_have_the_manuals_precedence() {
    let cases: &[(&[&str], &str, bool)] = &[
        (&[], "a.t", true),
        (&["do_db=a"], "a.t", true),
        (&["do_db=a"], "b.t", false),
        (&["ignore_db=a"], "a.t", false),
        (&["ignore_db=a"], "b.t", true),
        // With databases to replicate, those to ignore are not used.
        (&["do_db=a", "ignore_db=a"], "a.t", true),
        (&["do_db=a", "ignore_db=b"], "c.t", false),
        (&["do_table=a.t"], "a.t", true),
        (&["do_table=a.t"], "a.u", false),
        (&["ignore_table=a.t"], "a.t", false),
        (&["ignore_table=a.t"], "a.u", true),
        (&["wild_do_table=a.%"], "a.t", true),
        (&["wild_do_table=a.%"], "b.t", false),
        (&["wild_ignore_table=a.%"], "a.t", false),
        (&["wild_ignore_table=a.%"], "b.t", true),
        // do_table, ignore_table, wild_do_table, wild_ignore_table, in this order.
        (&["do_table=a.t", "ignore_table=a.t"], "a.t", true),
        (&["do_table=a.t", "wild_ignore_table=a.%"], "a.t", true),
        (&["ignore_table=a.t", "wild_do_table=a.%"], "a.t", false),
        (&["ignore_table=a.t", "wild_do_table=a.%"], "a.u", true),
        (&["wild_do_table=a.%", "wild_ignore_table=a.t%"], "a.t1", true),
        // A table that no rule names is replicated, unless there is a list of tables to replicate.
        (&["do_table=a.t", "wild_ignore_table=b.%"], "c.t", false),
        (&["wild_do_table=a.%", "ignore_table=b.t"], "c.t", false),
        (&["ignore_table=b.t", "wild_ignore_table=a.%"], "c.t", true),
        // Databases first, then tables.
        (&["do_db=a", "ignore_table=a.t"], "a.t", false),
        (&["do_db=a", "do_table=b.t"], "b.t", false),
        (&["do_db=a", "do_table=a.t"], "a.u", false),
        (&["ignore_db=a", "do_table=a.t"], "a.t", false),
        (&["ignore_db=a", "wild_do_table=b.%"], "b.t", true),
    ];
    for (text, table, expected) in cases {
        let (schema, name) = parts(table);
        assert_eq!(filters(text).table(schema, name).is_some(), *expected, "{text:?} {table}");
    }
}

#[test]
fn rules_see_renamed_schemas_and_own_tables_are_always_left_out() {
    let renaming = filters(&["rewrite_db=a>b,b>c", "do_db=b"]);
    assert_eq!(renaming.table("a", "t").as_deref(), Some("b"));
    assert_eq!(renaming.table("b", "t"), None, "it is c on the target");
    assert_eq!(renaming.schema("b"), "c", "one step only");
    assert_eq!(renaming.schema("A"), "A");
    for filters in [filters(&[]), filters(&["wild_do_table=csa.%"])] {
        assert_eq!(filters.table("csa", "checkpoint"), None);
        assert_eq!(filters.table("csa", "other").as_deref(), Some("csa"));
    }
}

#[test]
fn names_are_folded_where_the_target_does() {
    let text =
        ["rewrite_db=Old>New", "do_db=new,Ä", "ignore_table=New.T", "wild_ignore_table=NEW.X%"];
    let folding = Filters::new(rules(&text), true);
    assert_eq!(folding.table("OLD", "u").as_deref(), Some("New"));
    assert_eq!(folding.table("old", "t"), None);
    assert_eq!(folding.table("old", "xY"), None);
    assert_eq!(folding.table("ä", "t").as_deref(), Some("ä"));
    let exact = Filters::new(rules(&text), false);
    assert_eq!(exact.table("OLD", "u"), None);
    assert_eq!(exact.table("Ä", "t").as_deref(), Some("Ä"));
}

#[test]
fn impossible_rules_are_refused_by_key() {
    let long = "x".repeat(65);
    let refused = |rules: FilterRules| rules.check().expect_err("refused").key;
    let default = FilterRules::default;
    let pair = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
    assert_eq!(refused(FilterRules { do_db: vec![long], ..default() }), "replicate_do_db");
    for name in ["t", ".t", "a."] {
        let rules = FilterRules { ignore_table: names(&[name]), ..default() };
        assert_eq!(refused(rules), "replicate_ignore_table", "{name}");
    }
    for pattern in ["a%", ".t", r"a.\"] {
        let rules = FilterRules { wild_do_table: names(&[pattern]), ..default() };
        assert_eq!(refused(rules), "replicate_wild_do_table", "{pattern}");
    }
    for (from, to) in [("a", "a"), ("a", ""), ("csa", "a"), ("a", "CSA")] {
        let rules = FilterRules { rewrite_db: pair(from, to), ..default() };
        assert_eq!(refused(rules), "replicate_rewrite_db", "{from} {to}");
    }
}

#[test]
fn a_table_of_the_target_is_written_under_whichever_name_the_source_has_it() {
    for (rules, table, expected) in [
        (&[][..], "a.t", true),
        (&["do_db=a"], "a.t", true),
        (&["do_db=a"], "b.t", false),
        (&["ignore_table=a.t"], "a.t", false),
        (&["rewrite_db=a>b"], "b.t", true),
        // Nothing is written to the schema that was renamed.
        (&["rewrite_db=a>b"], "a.t", false),
        (&["rewrite_db=a>b", "do_table=b.t"], "b.t", true),
        (&["rewrite_db=a>b", "do_table=b.t"], "b.u", false),
    ] {
        let (schema, name) = parts(table);
        assert_eq!(filters(rules).writes(schema, name), expected, "{rules:?} {table}");
    }
}
