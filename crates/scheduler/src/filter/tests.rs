mod rows;
mod rules;
mod statements;

use super::*;
use crate::test_util::now;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the rules from `key=name,name`, with the keys of the configuration without `replicate_`.
fn rules(text: &[&str]) -> FilterRules {
    let mut rules = FilterRules { accounts: true, ..FilterRules::default() };
    for rule in text {
        let (key, list) = rule.split_once('=').expect("key=names");
        let list: Vec<&str> = list.split(',').collect();
        match key {
            "do_db" => rules.do_db = names(&list),
            "ignore_db" => rules.ignore_db = names(&list),
            "do_table" => rules.do_table = names(&list),
            "ignore_table" => rules.ignore_table = names(&list),
            "wild_do_table" => rules.wild_do_table = names(&list),
            "wild_ignore_table" => rules.wild_ignore_table = names(&list),
            "rewrite_db" => {
                let pairs = list.iter().map(|pair| pair.split_once('>').expect("from>to"));
                rules.rewrite_db = pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            }
            other => panic!("{other}"),
        }
    }
    rules.check().expect("valid rules");
    rules
}

fn filters(text: &[&str]) -> Filters {
    Filters::new(rules(text), false)
}

fn parts(table: &str) -> (&str, &str) {
    table.split_once('.').expect("schema.table")
}
