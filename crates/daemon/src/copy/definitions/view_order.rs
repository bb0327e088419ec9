//! An order of views in which each comes after those that it reads. Pure.

use std::collections::BTreeSet;

use csa_provider::sql_text::{Dialect, Lexer, Token, TokenKind};

use super::program::Program;

type ViewName = (String, String);

/// Returns the views in such an order. It looks at nothing but the names in their texts, since MySQL 5.7 lists
/// no dependencies. A column with the name of a view counts too, which may leave a few views in a poor order.
pub(super) fn ordered(views: Vec<Program>) -> Vec<Program> {
    let mut waiting_names: BTreeSet<ViewName> = views.iter().map(name_of).collect();
    let mut waiting: Vec<(Program, BTreeSet<ViewName>)> = Vec::with_capacity(views.len());
    for view in views {
        let read = names_in(&view).filter(|name| waiting_names.contains(name));
        let read = read.filter(|name| *name != name_of(&view)).collect();
        waiting.push((view, read));
    }
    let mut ordered = Vec::with_capacity(waiting.len());
    loop {
        let is_ready = |(_, read): &(Program, BTreeSet<ViewName>)| read.is_disjoint(&waiting_names);
        let (ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
        let ready: Vec<Program> = ready.into_iter().map(|(view, _)| view).collect();
        if ready.is_empty() {
            // They name each other.
            ordered.extend(rest.into_iter().map(|(view, _)| view));
            return ordered;
        }
        for view in &ready {
            waiting_names.remove(&name_of(view));
        }
        ordered.extend(ready);
        waiting = rest;
    }
}

fn name_of(view: &Program) -> ViewName {
    (view.schema.clone(), view.name.clone())
}

/// Returns all names that the text could mean by a pair of names, or by one in the view's own schema.
fn names_in(view: &Program) -> impl Iterator<Item = ViewName> {
    let tokens = Lexer::new(&view.text, Dialect::default()).map_while(Result::ok);
    let tokens: Vec<Token<'_>> = tokens.collect();
    let name = |token: &Token<'_>| match token.kind {
        TokenKind::QuotedName => Dialect::default().name(token),
        _ => None,
    };
    let pairs = tokens.windows(3).filter_map(|three| match three {
        [schema, dot, table] if dot.is_symbol(b'.') => name(schema).zip(name(table)),
        _ => None,
    });
    let alone = tokens.iter().filter_map(|token| Some((view.schema.clone(), name(token)?)));
    pairs.chain(alone).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::program::ProgramKind;
    use super::*;

    fn order(views: &[(&str, &str)]) -> Vec<String> {
        let views = views.iter().map(|(name, select)| {
            let text = format!("CREATE VIEW `s`.`{name}` AS {select}");
            Program { text: text.into_bytes(), ..Program::named(ProgramKind::View, "s", name) }
        });
        ordered(views.collect()).into_iter().map(|view| view.name).collect()
    }

    #[test]
    fn a_view_comes_after_those_that_it_reads() {
        let views = [
            ("a", "select `s`.`b`.`x` AS `x` from (`s`.`b` join `s`.`d`)"),
            ("b", "select `x` from `c`"),
            ("c", "select 1 AS `x`"),
            ("d", "select `other`.`c`.`x` from `other`.`e`"),
        ];
        assert_eq!(order(&views), ["c", "b", "d", "a"]);
    }

    #[test]
    fn views_that_name_each_other_stay_in_the_list() {
        let views = [
            ("a", "select `s`.`b`.`x` AS `x` from `s`.`b`"),
            ("b", "select 1 AS `a`"),
            ("c", "select 2"),
        ];
        assert_eq!(order(&views), ["c", "a", "b"]);
    }
}
