//! Channels chosen by a name, a pattern, or all of them. Pure.

use csa_scheduler::filter::is_like;

/// `*` stands for any characters, also none, and `?` for one; case counts. No channel's name has
/// either.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns true if all of `name` matches.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut like = String::new();
    for letter in pattern.chars() {
        match letter {
            '*' => like.push('%'),
            '?' => like.push('_'),
            // `LIKE` has special letters of its own.
            _ => like.extend(['\\', letter]),
        }
    }
    is_like(&like, name)
}

/// Returns the names that match, in their order.
///
/// # Errors
/// None does; the text names the channels that there are.
pub(super) fn chosen(pattern: &str, names: Vec<String>) -> Result<Vec<String>, String> {
    let known = names.join(", ");
    let chosen: Vec<String> = names.into_iter().filter(|name| matches(pattern, name)).collect();
    match chosen.is_empty() {
        false => Ok(chosen),
        true if is_pattern(pattern) => {
            Err(format!("no channel matches {pattern:?}; the channels are {known}"))
        }
        true => Err(format!("no channel {pattern:?}; the channels are {known}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name, is_match) in [
            ("shard-*", "shard-01", true),
            ("shard-*", "shard-", true),
            ("shard-*", "a-shard-1", false),
            ("*-01", "shard-01", true),
            ("*", "", true),
            ("*", "orders", true),
            ("shard-0?", "shard-07", true),
            ("shard-0?", "shard-0", false),
            ("shard-0?", "shard-070", false),
            ("s*d-*1", "shard-01-11", true),
            ("s*d-*1", "shard-01-12", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("**", "ab", true),
            ("?*?", "a", false),
            ("orders", "orders", true),
            ("orders", "Orders", false),
            ("", "orders", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn nothing_chosen_names_the_channels() {
        let names = || ["a-1", "b-1", "a-2"].map(str::to_owned).to_vec();
        assert_eq!(chosen("a-*", names()), Ok(vec!["a-1".to_owned(), "a-2".to_owned()]));
        assert_eq!(chosen("b-1", names()), Ok(vec!["b-1".to_owned()]));
        let refused = chosen("c*", names());
        assert_eq!(
            refused,
            Err("no channel matches \"c*\"; the channels are a-1, b-1, a-2".into())
        );
        assert_eq!(
            chosen("c", names()),
            Err("no channel \"c\"; the channels are a-1, b-1, a-2".into())
        );
    }
}
