//! Results of the checks, for readers and for programs.

use std::fmt;

use csa_provider::server::visible::one_line;
use serde::Serialize;

/// The most tables named in a finding.
const NAMES_MAX: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    Ok,
    /// The channel will run, but less well than it could, or not with every table.
    Warning,
    /// The channel can't begin, or would stop soon.
    Error,
}

/// The place of a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// A statement to run there.
    Source,
    /// A statement to run there.
    Target,
    /// A key to change.
    Configuration,
    /// Something else, in words.
    Operator,
}

/// A fix of a finding; several are alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fix {
    pub(crate) on: Place,
    pub(crate) run: String,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// A stable name, like `source.binlog_format`.
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) text: String,
    /// The first of the things it concerns, mostly tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) names: Vec<String>,
    /// The number of all of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) names_total: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fixes: Vec<Fix>,
}

/// One channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    pub(crate) channel: String,
    pub(crate) findings: Vec<Finding>,
}

impl Finding {
    #[must_use]
    pub(crate) fn new(check: &'static str, level: Level, text: impl Into<String>) -> Self {
        let (names, fixes) = (Vec::new(), Vec::new());
        Self { check, level, text: text.into(), names, names_total: 0, fixes }
    }

    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, text)
    }

    pub(super) fn warning(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Warning, text)
    }

    pub(super) fn error(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Error, text)
    }

    #[must_use]
    pub(crate) fn fix(mut self, on: Place, run: impl Into<String>) -> Self {
        self.fixes.push(Fix { on, run: run.into() });
        self
    }

    pub(super) fn names(mut self, names: &[String]) -> Self {
        self.names_total = names.len();
        self.names = names.iter().take(NAMES_MAX).cloned().collect();
        self
    }
}

impl Report {
    #[must_use]
    pub(crate) fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Returns `21 ok, 2 warnings, 1 error`.
    #[must_use]
    pub(crate) fn summary(&self) -> String {
        let counted = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        format!(
            "{} ok, {}, {}",
            self.count(Level::Ok),
            counted(self.count(Level::Warning), "warning"),
            counted(self.count(Level::Error), "error")
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "channel {}", self.channel)?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        write!(f, "channel {}: {}", self.channel, self.summary())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        write!(f, "  {level:<8} {}: {}", self.check, one_line(&self.text))?;
        if !self.names.is_empty() {
            write!(f, ": {}", one_line(&self.names.join(", ")))?;
            let more = self.names_total.saturating_sub(self.names.len());
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        for (index, fix) in self.fixes.iter().enumerate() {
            let or = if index == 0 { "" } else { "or " };
            write!(f, "\n             {or}{}{}", fix.on.preposition(), one_line(&fix.run))?;
        }
        Ok(())
    }
}

impl Place {
    const fn preposition(self) -> &'static str {
        match self {
            Self::Source => "on the source: ",
            Self::Target => "on the target: ",
            Self::Configuration => "in the configuration: ",
            Self::Operator => "",
        }
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let tables: Vec<String> = (0..12).map(|n| format!("d.t{n}")).collect();
        Report {
            channel: "shop".to_owned(),
            findings: vec![
                Finding::ok("source.version", "8.4.6"),
                Finding::warning("tables.primary_key", "12 tables have none").names(&tables),
                Finding::error("target.read_only", "ON")
                    .fix(Place::Target, "SET GLOBAL read_only=OFF")
                    .fix(Place::Configuration, "target.host"),
            ],
        }
    }

    #[test]
    fn a_line_for_each_check_and_what_to_do_below() {
        assert_eq!(
            report().to_string(),
            "channel shop\n\
             \x20 ok       source.version: 8.4.6\n\
             \x20 warning  tables.primary_key: 12 tables have none: d.t0, d.t1, d.t2, d.t3, d.t4, \
             d.t5, d.t6, d.t7, d.t8, d.t9 and 2 more\n\
             \x20 error    target.read_only: ON\n\
             \x20            on the target: SET GLOBAL read_only=OFF\n\
             \x20            or in the configuration: target.host\n\
             channel shop: 1 ok, 1 warning, 1 error"
        );
        let empty = Report { channel: "e".to_owned(), findings: Vec::new() };
        assert_eq!(empty.summary(), "0 ok, 0 warnings, 0 errors");
    }

    #[test]
    fn programs_get_levels_fixes_and_the_whole_count() {
        let json = serde_json::to_value(report()).expect("JSON");
        assert_eq!(json["findings"][0].as_object().map(serde_json::Map::len), Some(3), "{json}");
        assert_eq!(json["findings"][1]["level"], "warning");
        assert_eq!(json["findings"][1]["names_total"], 12);
        assert_eq!(json["findings"][1]["names"].as_array().map(Vec::len), Some(10));
        assert_eq!(json["findings"][2]["fixes"][0]["on"], "target");
        assert_eq!(json["findings"][2]["fixes"][0]["run"], "SET GLOBAL read_only=OFF");
    }
}
