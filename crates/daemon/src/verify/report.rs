//! Results of a comparison, for readers and for programs.

use std::fmt;

use csa_provider::server::visible::one_line;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::recheck::Different;
use super::scope::TablePair;
use super::table_name::TableName;

/// Why rows that differ in JSON stay so, and what helps. The rows are the subject.
pub(crate) const BEYOND_COPIES: &str = "can't be copied: the JSON has types that JSON text can't express \
     (such as DECIMAL); use a clone, or change the values on the source";

/// A whole run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    pub channel: String,
    /// The target is one on which no table can be copied again.
    #[serde(skip)]
    pub refuses_copies: bool,
    pub tables: Vec<TableReport>,
}

/// The result for a table, or for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Equal,
    /// No difference is certain, but something kept changing or was left out.
    Unstable,
    Different,
}

/// One table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TableReport {
    /// The table on the source.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub table: TableName,
    /// The table on the target.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub target: TableName,
    pub outcome: Outcome,
    /// The source's rows that were compared.
    pub rows: u64,
    /// Differences between the definitions.
    pub definition: Vec<String>,
    /// Rows that differ, and stayed so.
    pub differences: Vec<RowDifference>,
    /// The number of these rows that copies and statements don't make equal.
    #[serde(default)]
    pub beyond_copies: u64,
    /// Rows, ranges or definitions that kept changing.
    pub unstable: Vec<String>,
    /// The reason why not all rows were compared.
    pub left_out: Option<String>,
    /// True if an earlier run that was interrupted has compared it.
    #[serde(default)]
    pub compared_before: bool,
    /// The first column of the primary key by which rows are named, if it holds integers: a copy of a range goes by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_column: Option<String>,
    /// Statements for the rows that differ, on request.
    #[serde(skip)]
    pub repair: Repair,
    #[serde(skip)]
    pub(super) wanted: Vec<Different>,
}

/// The statements for a table, to be executed in order and as one transaction, and what they leave out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repair {
    pub statements: Vec<String>,
    pub notes: Vec<String>,
}

/// A row that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowDifference {
    /// `id=5`, or without a key `digest=…`.
    pub key: String,
    #[serde(flatten)]
    pub kind: DifferenceKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DifferenceKind {
    MissingOnTarget,
    OnlyOnTarget,
    /// The row differs in these columns.
    Differs {
        columns: Vec<String>,
    },
    /// Equal rows of a table without a key, in different numbers.
    Count {
        source: u64,
        target: u64,
    },
}

impl VerifyReport {
    /// Returns the worst result of all tables.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.tables.iter().map(|table| table.outcome).max().unwrap_or(Outcome::Equal)
    }
}

impl TableReport {
    pub(super) fn new(pair: &TablePair) -> Self {
        Self {
            table: pair.source.clone(),
            target: pair.target.clone(),
            outcome: Outcome::Equal,
            rows: 0,
            definition: Vec::new(),
            differences: Vec::new(),
            beyond_copies: 0,
            unstable: Vec::new(),
            left_out: None,
            compared_before: false,
            range_column: None,
            repair: Repair::default(),
            wanted: Vec::new(),
        }
    }

    /// Not all rows are compared, for this reason.
    pub(super) fn leave_out(&mut self, why: String) {
        match &mut self.left_out {
            Some(known) if *known == why || known.ends_with(&format!("; {why}")) => {}
            Some(known) => known.push_str(&format!("; {why}")),
            None => self.left_out = Some(why),
        }
    }

    /// Computes the result; to be called when everything is in.
    pub(super) fn conclude(mut self) -> Self {
        self.outcome = if !self.definition.is_empty() || !self.differences.is_empty() {
            Outcome::Different
        } else if !self.unstable.is_empty() || self.left_out.is_some() {
            Outcome::Unstable
        } else {
            Outcome::Equal
        };
        self
    }

    /// Returns true if a copy would make none of the rows that differ equal.
    pub(crate) fn is_beyond_copies(&self) -> bool {
        let has_more = self.left_out.is_some();
        !has_more && self.beyond_copies > 0 && self.beyond_copies == self.differences.len() as u64
    }

    /// Returns the command that copies the rows that differ again; `None` where a copy would not help. It names a range
    /// of the key where all of them are known. Where the target refuses copies, the command writes statements for them.
    pub(crate) fn copy_command(&self, channel: &str, refuses_copies: bool) -> Option<String> {
        let can_be_copied = self.outcome == Outcome::Different
            && self.definition.is_empty()
            && !self.is_beyond_copies()
            && self.differences.first().is_some_and(|row| !row.key.starts_with("digest="))
            && self.table == self.target;
        // Those that are left out may have any key.
        let range = self.integers().filter(|_| self.left_out.is_none());
        can_be_copied.then(|| {
            if refuses_copies {
                let table = self.table.argument();
                return format!(
                    "csa-daemon verify --channel {channel} --table {table} --repair FILE"
                );
            }
            let range = range.map(|(first, last)| format!(" --range {first}..{last}"));
            format!(
                "csa-daemon copy --channel {channel} --table {}{}",
                self.table.argument(),
                range.unwrap_or_default()
            )
        })
    }

    /// Returns the first and the last integer with which keys of rows that differ begin, where a copy goes by them.
    fn integers(&self) -> Option<(i128, i128)> {
        let begin = format!("{}=", self.range_column.as_ref()?);
        let integer = |row: &RowDifference| -> Option<i128> {
            row.key.strip_prefix(&begin)?.split(',').next()?.parse().ok()
        };
        let found: Vec<i128> = self.differences.iter().map(integer).collect::<Option<_>>()?;
        Some((*found.iter().min()?, *found.iter().max()?))
    }
}

impl fmt::Display for TableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &dyn fmt::Display| one_line(&text.to_string()).into_owned();
        write!(f, "{}", shown(&self.table))?;
        if self.table != self.target {
            write!(f, " ({} on the target)", shown(&self.target))?;
        }
        let outcome = match self.outcome {
            Outcome::Equal => "equal",
            Outcome::Unstable => "unstable",
            Outcome::Different => "DIFFERENT",
        };
        write!(f, ": {outcome}, {} rows compared", self.rows)?;
        if self.compared_before {
            write!(f, " before the interruption")?;
        }
        for difference in &self.definition {
            write!(f, "\n  {}", shown(difference))?;
        }
        for difference in &self.differences {
            write!(f, "\n  {}", shown(difference))?;
        }
        if self.beyond_copies > 0 {
            write!(f, "\n  {} of these rows {BEYOND_COPIES}", self.beyond_copies)?;
        }
        for what in &self.unstable {
            let what = shown(what);
            write!(f, "\n  {what}: kept changing, not compared")?;
        }
        if let Some(why) = &self.left_out {
            write!(f, "\n  {}", shown(why))?;
        }
        Ok(())
    }
}

impl fmt::Display for RowDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        match &self.kind {
            DifferenceKind::MissingOnTarget => write!(f, "missing on the target"),
            DifferenceKind::OnlyOnTarget => write!(f, "only on the target"),
            DifferenceKind::Differs { columns } if columns.is_empty() => write!(f, "differs"),
            DifferenceKind::Differs { columns } => write!(f, "differs in {}", columns.join(", ")),
            DifferenceKind::Count { source, target } => {
                write!(f, "{source} such rows on the source, {target} on the target")
            }
        }
    }
}

fn as_text<S: serde::Serializer>(name: &TableName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TableName, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_copies_what_differs() {
        let table = |column: Option<&str>, keys: &[&str], left_out: Option<&str>| -> TableReport {
            let row = |key: &&str| serde_json::json!({ "key": key, "kind": "missing_on_target" });
            let report = serde_json::json!({
                "table": "d.t", "target": "d.t", "outcome": "different", "rows": 9, "definition": [],
                "differences": keys.iter().map(row).collect::<Vec<_>>(), "unstable": [], "left_out": left_out,
                "range_column": column,
            });
            serde_json::from_value(report).expect("a report")
        };
        let whole = "csa-daemon copy --channel c --table d.t";
        for (found, command) in [
            (table(Some("id"), &["id=-5", "id=7"], None), Some(format!("{whole} --range -5..7"))),
            (table(Some("a"), &["a=3, b='x'"], None), Some(format!("{whole} --range 3..3"))),
            (
                table(Some("id"), &["id=7", "id=18446744073709551615"], None),
                Some(format!("{whole} --range 7..18446744073709551615")),
            ),
            (table(Some("a=1,b"), &["a=1,b=7"], None), Some(format!("{whole} --range 7..7"))),
            // The column has decimals, or the key is not the primary one.
            (table(None, &["price=5"], None), Some(whole.to_owned())),
            (table(None, &["a=1,b=7"], None), Some(whole.to_owned())),
            (table(Some("id"), &["id=5"], Some("the rest")), Some(whole.to_owned())),
            (table(None, &["name='x'"], None), Some(whole.to_owned())),
            (table(None, &["digest=12"], None), None),
            (table(Some("id"), &[], None), None),
        ] {
            assert_eq!(found.copy_command("c", false), command, "{found:?}");
        }
        let statements = "csa-daemon verify --channel c --table d.t --repair FILE";
        let found = table(Some("id"), &["id=5"], None).copy_command("c", true);
        assert_eq!(found.as_deref(), Some(statements));
        // A copy helps some of the rows, or none.
        let mut json = table(Some("id"), &["id=5", "id=7"], None);
        json.beyond_copies = 1;
        assert_eq!(json.copy_command("c", false), Some(format!("{whole} --range 5..7")));
        json.beyond_copies = 2;
        json.left_out = Some("the rest".to_owned());
        assert_eq!(json.copy_command("c", false), Some(whole.to_owned()), "the rest may need it");
        json.left_out = None;
        assert_eq!(json.copy_command("c", false), None);
        assert_eq!(json.copy_command("c", true), None);
        assert!(json.to_string().contains("2 of these rows can't be copied: the JSON"), "{json}");
    }
}
