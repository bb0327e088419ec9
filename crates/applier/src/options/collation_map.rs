//! Collations of the source that have another name on the target. Pure.

use std::collections::BTreeMap;

/// Collations of the source, and those that take their place in definitions on the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollationMap {
    replaced: BTreeMap<String, String>,
}

impl CollationMap {
    /// Takes pairs of names: the source's, the target's.
    ///
    /// # Errors
    /// A name that is no collation's, or one of another character set: values would be converted.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let mut replaced = BTreeMap::new();
        for (from, to) in pairs {
            for name in [&from, &to] {
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                if name.is_empty() || !name.bytes().all(is_name) {
                    return Err(format!("{name:?} is not the name of a collation"));
                }
            }
            let (from, to) = (current_collation(&from), current_collation(&to));
            match (charset(&from), charset(&to)) {
                (Some(one), Some(other)) if one == other => {}
                // MariaDB's newer collations exist for every Unicode character set.
                (Some("utf8mb4" | "utf8mb3"), Some("uca1400")) => {}
                _ => {
                    return Err(format!(
                        "{from} and {to} are not of the same character set, so values would be \
                         converted"
                    ));
                }
            }
            replaced.insert(from, to);
        }
        if let Some(twice) = replaced.values().find(|to| replaced.contains_key(*to)) {
            return Err(format!("{twice} is replaced and takes the place of another"));
        }
        Ok(Self { replaced })
    }

    /// Returns the collation that takes the place of this one.
    #[must_use]
    pub fn get(&self, collation: &str) -> Option<&str> {
        if self.replaced.is_empty() {
            return None;
        }
        self.replaced.get(&current_collation(collation)).map(String::as_str)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }

    /// The target's names, with their character sets.
    pub(crate) fn on_target(&self) -> impl Iterator<Item = (&str, &str)> {
        self.replaced.iter().map(|(from, to)| (charset(from).unwrap_or_default(), to.as_str()))
    }
}

/// Returns a collation's name as the newest version writes it: utf8mb3 was called utf8 before 8.0.30.
#[must_use]
pub fn current_collation(collation: &str) -> String {
    let name = collation.to_ascii_lowercase();
    match name.strip_prefix("utf8_") {
        Some(rest) => format!("utf8mb3_{rest}"),
        None => name,
    }
}

/// Returns the character set, which begins the name of its collations.
fn charset(collation: &str) -> Option<&str> {
    collation.split_once('_').map(|(charset, _)| charset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(from: &str, to: &str) -> Result<CollationMap, String> {
        CollationMap::new([(from.to_owned(), to.to_owned())])
    }

    #[test]
    fn names_are_found_in_any_case_and_by_their_old_name() {
        let map = map("UTF8_general_ci", "utf8mb3_unicode_ci").expect("both are utf8mb3");
        for name in ["utf8_general_ci", "utf8mb3_General_CI"] {
            assert_eq!(map.get(name), Some("utf8mb3_unicode_ci"), "{name}");
        }
        assert_eq!(map.get("utf8mb4_general_ci"), None);
        assert_eq!(CollationMap::default().get("utf8mb4_general_ci"), None);
    }

    #[test]
    fn what_would_convert_values_or_name_nothing_is_refused() {
        for (from, to, accepted) in [
            ("utf8mb4_0900_ai_ci", "utf8mb4_unicode_520_ci", true),
            ("utf8mb4_0900_ai_ci", "uca1400_ai_ci", true),
            ("utf8mb4_0900_ai_ci", "utf8mb4_uca1400_ai_ci", true),
            ("utf8mb4_0900_ai_ci", "utf8mb3_general_ci", false),
            ("latin1_swedish_ci", "uca1400_ai_ci", false),
            ("utf8mb4_0900_ai_ci", "", false),
            ("utf8mb4 0900", "utf8mb4_bin", false),
            ("utf8mb4_0900_ai_ci", "utf8mb4_bin; DROP TABLE t", false),
            ("utf8mb4_bin", "utf8mb4_bin", false),
        ] {
            assert_eq!(map(from, to).is_ok(), accepted, "{from} {to}");
        }
    }
}
