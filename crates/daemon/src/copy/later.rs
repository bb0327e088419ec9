//! The work that tables in chunks leave for the time when they have converged.

use csa_applier::Converging;
use serde::{Deserialize, Serialize};

use super::definitions::{Program, qualified};
use super::error::{CopyError, Result};
use super::writer::TargetWriter;
use crate::verify::TableName;

/// Everything that tables in chunks get once they have converged. The target keeps it as text until then. Work that only
/// another version knows would be lost with the text, so a text with more is refused.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Later {
    /// Unique keys, then foreign keys.
    pub(super) statements: Vec<String>,
    /// Triggers of tables that are copied again.
    pub(super) triggers: Vec<Program>,
    /// The statements that make the tables which are copied again, as long as some of them may be dropped.
    #[serde(default)]
    pub(super) tables: Vec<String>,
    /// Tables that foreign keys connect with the copied ones. These keys are not checked until then.
    pub(super) related: Vec<(String, String)>,
    /// Tables that are copied again and that the target lacked.
    #[serde(default)]
    pub(super) absent: Vec<(String, String)>,
    /// The first and the last integer of the key, where only rows between them are copied again.
    pub(super) integers: Option<(i128, i128)>,
    /// The channel's `replicate_*` when its first copy began; none in the note of an earlier version.
    pub(super) rules: Option<String>,
}

impl Later {
    pub(super) fn of(channel: &str, converging: &Converging) -> Result<Self> {
        Self::read(channel, &converging.later)
    }

    pub(super) fn read(channel: &str, text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| {
            CopyError::Refused(format!(
                "channel {channel}: later in csa.copy_state can't be read: {error}; run the version of csa-daemon that wrote \
                 it until the tables have converged, and then this one"
            ))
        })
    }

    /// Returns true if a table has not all of its indexes before it has converged. One that is copied again may also lack those
    /// that come with its last row.
    pub(super) fn lacks_keys(&self, name: &TableName) -> bool {
        let unique = format!("ALTER TABLE {} ADD UNIQUE", qualified(name));
        let is_made_again = !self.related.is_empty() && self.integers.is_none();
        is_made_again || self.statements.iter().any(|statement| statement.starts_with(&unique))
    }

    pub(super) fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    pub(super) async fn finish(&self, writer: &mut TargetWriter) -> Result<()> {
        for statement in &self.statements {
            writer.add(statement).await?;
        }
        for trigger in &self.triggers {
            writer.make(trigger, true).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_any_integers_is_read_as_it_was_noted() {
        let integers = Some((i128::from(i64::MIN), i128::from(u64::MAX)));
        let noted = Later { integers, ..Later::default() }.text();
        assert_eq!(Later::read("shop", &noted).unwrap().integers, integers);
    }

    #[test]
    fn a_table_lacks_keys_that_it_gets_later() {
        let [t, u] = ["t", "u"].map(|table| TableName::from(("d".to_owned(), table.to_owned())));
        let statements = vec![
            "ALTER TABLE `d`.`t` ADD UNIQUE KEY `k` (`a`)".to_owned(),
            "ALTER TABLE `d`.`u` ADD CONSTRAINT `f` FOREIGN KEY (`t`) REFERENCES `d`.`t` (`id`)"
                .to_owned(),
        ];
        let first = Later { statements, ..Later::default() };
        assert!(first.lacks_keys(&t) && !first.lacks_keys(&u));
        let again = Later { related: vec![u.clone().into()], ..Later::default() };
        assert!(again.lacks_keys(&u));
        let range = Later { integers: Some((1, 2)), ..again };
        assert!(!range.lacks_keys(&u));
    }

    #[test]
    fn a_note_with_work_of_another_version_is_refused() {
        let mut note = serde_json::json!(Later::default());
        note["views"] = serde_json::json!(["CREATE VIEW d.v AS SELECT 1"]);
        for text in [note.to_string(), r#"["ALTER TABLE d.t ADD KEY (a)"]"#.to_owned()] {
            let refused = Later::read("shop", &text).unwrap_err().to_string();
            assert!(refused.contains("run the version of csa-daemon that wrote it"), "{refused}");
        }
    }
}
