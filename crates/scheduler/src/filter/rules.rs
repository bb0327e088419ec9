use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The rules as the operator wrote them, with the names of MySQL's options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterRules {
    #[serde(rename = "replicate_do_db", skip_serializing_if = "Vec::is_empty")]
    pub do_db: Vec<String>,
    #[serde(rename = "replicate_ignore_db", skip_serializing_if = "Vec::is_empty")]
    pub ignore_db: Vec<String>,
    /// `schema.table`.
    #[serde(rename = "replicate_do_table", skip_serializing_if = "Vec::is_empty")]
    pub do_table: Vec<String>,
    #[serde(rename = "replicate_ignore_table", skip_serializing_if = "Vec::is_empty")]
    pub ignore_table: Vec<String>,
    /// `schema.table` with `%` for any characters and `_` for one; `\` escapes either.
    #[serde(rename = "replicate_wild_do_table", skip_serializing_if = "Vec::is_empty")]
    pub wild_do_table: Vec<String>,
    #[serde(rename = "replicate_wild_ignore_table", skip_serializing_if = "Vec::is_empty")]
    pub wild_ignore_table: Vec<String>,
    /// The source's schema and its name on the target.
    #[serde(rename = "replicate_rewrite_db", skip_serializing_if = "Vec::is_empty")]
    pub rewrite_db: Vec<(String, String)>,
    /// Account statements and changes of the grant tables are applied if the other rules let them
    /// pass. Otherwise they are left out: a source must not decide who may log in to the target.
    #[serde(rename = "replicate_accounts", skip_serializing_if = "std::ops::Not::not")]
    pub accounts: bool,
}

/// An invalid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct InvalidRule {
    /// The option: `replicate_do_table` and so on.
    pub key: &'static str,
    pub what: String,
}

/// The most characters a name may have in MySQL.
const NAME_LEN_MAX: usize = 64;
/// The schema on the target that holds the checkpoints.
pub(super) const OWN_SCHEMA: &str = "csa";

impl FilterRules {
    /// Returns true if no schema or table is left out or renamed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { accounts: self.accounts, ..Self::default() }
    }

    /// Checks every rule.
    ///
    /// # Errors
    /// The first invalid rule.
    pub fn check(&self) -> Result<(), InvalidRule> {
        for (key, list) in
            [("replicate_do_db", &self.do_db), ("replicate_ignore_db", &self.ignore_db)]
        {
            for name in list {
                check_name(key, name)?;
            }
        }
        for (key, list) in
            [("replicate_do_table", &self.do_table), ("replicate_ignore_table", &self.ignore_table)]
        {
            for name in list {
                check_table(key, name)?;
            }
        }
        for (key, list) in [
            ("replicate_wild_do_table", &self.wild_do_table),
            ("replicate_wild_ignore_table", &self.wild_ignore_table),
        ] {
            for pattern in list {
                check_pattern(key, pattern)?;
            }
        }
        self.check_rewrite()
    }

    fn check_rewrite(&self) -> Result<(), InvalidRule> {
        let key = "replicate_rewrite_db";
        for (from, to) in &self.rewrite_db {
            check_name(key, from)?;
            check_name(key, to)?;
            if from == to {
                return invalid(key, format!("{from:?} is renamed to itself"));
            }
            if [from, to].into_iter().any(|name| name.eq_ignore_ascii_case(OWN_SCHEMA)) {
                return invalid(key, format!("{OWN_SCHEMA:?} holds the checkpoints of channels"));
            }
        }
        Ok(())
    }

    /// The same rules with every name changed, except the new names of schemas.
    pub(super) fn map(self, change: impl Fn(&str) -> String) -> Self {
        let all = |list: Vec<String>| list.iter().map(|text| change(text)).collect();
        Self {
            do_db: all(self.do_db),
            ignore_db: all(self.ignore_db),
            do_table: all(self.do_table),
            ignore_table: all(self.ignore_table),
            wild_do_table: all(self.wild_do_table),
            wild_ignore_table: all(self.wild_ignore_table),
            // The new name of a schema is sent as it was written.
            rewrite_db: self.rewrite_db.into_iter().map(|(from, to)| (change(&from), to)).collect(),
            accounts: self.accounts,
        }
    }

    pub(super) fn has_db_rules(&self) -> bool {
        !self.do_db.is_empty() || !self.ignore_db.is_empty()
    }

    pub(super) fn has_table_rules(&self) -> bool {
        let lists =
            [&self.do_table, &self.ignore_table, &self.wild_do_table, &self.wild_ignore_table];
        lists.into_iter().any(|list| !list.is_empty())
    }

    /// Returns true if the database rules let a schema pass. With a list of databases to replicate,
    /// the list of those to ignore is not used.
    pub(super) fn db_ok(&self, schema: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|name| name == schema);
        match self.do_db.is_empty() {
            false => is_in(&self.do_db),
            true => !is_in(&self.ignore_db),
        }
    }

    /// Returns true if the table rules let a table pass.
    pub(super) fn table_ok(&self, schema: &str, table: &str) -> bool {
        self.tables_ok([(schema, table)])
    }

    /// Returns true if the table rules let a change of several tables pass: the first table that a
    /// rule names decides for all.
    pub(super) fn tables_ok<'a>(
        &self,
        tables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> bool {
        // In the order of the manual's chart: exact names before patterns, and lists to replicate
        // before lists to ignore.
        for (schema, table) in tables {
            let name = format!("{schema}.{table}");
            if self.do_table.contains(&name) {
                return true;
            }
            if self.ignore_table.contains(&name) {
                return false;
            }
            if let Some(verdict) = self.wild_rule(&name) {
                return verdict;
            }
        }
        self.do_table.is_empty() && self.wild_do_table.is_empty()
    }

    /// Returns true if the wild rules let a schema as a whole pass, when it is created or dropped.
    /// Like the server (`Rpl_filter::db_ok_with_wild_table`), it compares the name with a dot and
    /// no table.
    pub(super) fn schema_ok(&self, schema: &str) -> bool {
        self.wild_rule(&format!("{schema}.")).unwrap_or(self.wild_do_table.is_empty())
    }

    fn wild_rule(&self, name: &str) -> Option<bool> {
        let is_in = |patterns: &[String]| patterns.iter().any(|pattern| is_like(pattern, name));
        if is_in(&self.wild_do_table) {
            return Some(true);
        }
        is_in(&self.wild_ignore_table).then_some(false)
    }
}

/// The target's rules for comparing names.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Names {
    pub(super) folds_case: bool,
}

impl Names {
    pub(super) fn fold<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match self.folds_case {
            true => lower_case_name(name).into(),
            false => name.into(),
        }
    }
}

/// Returns the name as a server with `lower_case_table_names` writes it, which goes from character to character:
/// [`str::to_lowercase`] makes another letter of a Σ at the end of a word, and two characters of İ.
#[must_use]
pub fn lower_case_name(name: &str) -> String {
    let lower = |c: char| {
        let mut all = c.to_lowercase();
        match (c, all.next(), all.next()) {
            ('İ', ..) => 'i',
            (_, Some(lower), None) => lower,
            _ => c,
        }
    };
    name.chars().map(lower).collect()
}

/// Returns true if all of `name` matches, as by MySQL's `LIKE`. In `schema.table`, `%` also matches the dot. Going back
/// to the last `%` only keeps the time quadratic for any pattern.
#[must_use]
pub fn is_like(pattern: &str, name: &str) -> bool {
    let pattern = parse(pattern);
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // The place of the last `%`, and the end of the text it has taken.
    let mut retry = None;
    while n < name.len() || p < pattern.len() {
        let fits = match (pattern.get(p), name.get(n)) {
            (Some(PatternPart::Any), _) => {
                retry = Some((p, n));
                p += 1;
                continue;
            }
            (Some(PatternPart::One), Some(_)) => true,
            (Some(PatternPart::Is(wanted)), Some(c)) => wanted == c,
            _ => false,
        };
        if fits {
            (p, n) = (p + 1, n + 1);
            continue;
        }
        match retry {
            Some((at, taken)) if taken < name.len() => {
                retry = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
            _ => return false,
        }
    }
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternPart {
    Is(char),
    One,
    Any,
}

fn parse(pattern: &str) -> Vec<PatternPart> {
    let mut parts = Vec::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        parts.push(match c {
            '%' => PatternPart::Any,
            '_' => PatternPart::One,
            '\\' => PatternPart::Is(chars.next().unwrap_or('\\')),
            other => PatternPart::Is(other),
        });
    }
    parts
}

fn invalid<T>(key: &'static str, what: String) -> Result<T, InvalidRule> {
    Err(InvalidRule { key, what })
}

fn check_name(key: &'static str, name: &str) -> Result<(), InvalidRule> {
    let len = name.chars().count();
    // MySQL stores names in utf8mb3, which has no characters beyond the basic plane.
    let is_possible = |c: char| c != '\0' && c <= '\u{ffff}';
    if len == 0 || len > NAME_LEN_MAX || !name.chars().all(is_possible) || name.ends_with(' ') {
        return invalid(key, format!("{name:?} can't be a name; names have 1 to 64 characters"));
    }
    Ok(())
}

fn check_table(key: &'static str, name: &str) -> Result<(), InvalidRule> {
    let Some((schema, table)) = name.split_once('.') else {
        return invalid(key, format!("{name:?} is not \"schema.table\""));
    };
    check_name(key, schema)?;
    check_name(key, table)
}

fn check_pattern(key: &'static str, pattern: &str) -> Result<(), InvalidRule> {
    if !pattern.contains('.') || pattern.starts_with('.') {
        return invalid(key, format!("{pattern:?} is not \"schema.table\" with % and _"));
    }
    if parse(pattern).last() == Some(&PatternPart::Is('\\')) && !pattern.ends_with("\\\\") {
        return invalid(key, format!("{pattern:?} ends with \\, which escapes nothing"));
    }
    Ok(())
}
