//! Findings: what a rule about a server says, and what to do about it.

use std::fmt;

use serde::Serialize;

use super::by_hand::{is_of_account, of_account};
use super::vendor::Vendor;
use super::visible::one_line;

/// The most tables named in a finding.
const NAMES_MAX: usize = 10;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// The channel will run, but less well than it could, or not with every table.
    Warning,
    /// The channel can't begin, or would stop soon.
    Error,
}

/// The place of a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
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
pub struct Fix {
    pub on: Place,
    pub run: String,
}

/// The result of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name, like `source.binlog_format`.
    pub check: &'static str,
    pub level: Level,
    pub text: String,
    /// The first of the things it concerns, mostly tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The number of all of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub names_total: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<Fix>,
}

impl Finding {
    #[must_use]
    pub fn new(check: &'static str, level: Level, text: impl Into<String>) -> Self {
        let (names, fixes) = (Vec::new(), Vec::new());
        Self { check, level, text: text.into(), names, names_total: 0, fixes }
    }

    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, text)
    }

    pub fn warning(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Warning, text)
    }

    pub fn error(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Error, text)
    }

    /// Adds a fix, an alternative to those before.
    #[must_use]
    pub fn fix(mut self, on: Place, run: impl Into<String>) -> Self {
        self.fixes.push(Fix { on, run: run.into() });
        self
    }

    /// Names the things that it concerns.
    #[must_use]
    pub fn names(mut self, names: &[String]) -> Self {
        self.names_total = names.len();
        self.names = names.iter().take(NAMES_MAX).cloned().collect();
        self
    }

    /// Writes the fixes on `place` as its vendor knows them: servers before 8.0 and MariaDB lack SET PERSIST. Those about
    /// accounts stay out of the binary log.
    pub fn adapt(&mut self, place: Place, vendor: Vendor) {
        for fix in self.fixes.iter_mut().filter(|fix| fix.on == place) {
            if is_of_account(&fix.run) {
                fix.run = of_account(&fix.run);
            }
            if vendor != Vendor::MySql && fix.run.contains("SET PERSIST ") {
                fix.run = fix.run.replace("SET PERSIST ", "SET GLOBAL ");
                fix.run.push_str(" -- and in its option file");
            }
        }
    }

    /// Returns the text and the fixes on one line, to follow the name of the server.
    #[must_use]
    pub fn line(&self) -> String {
        let (_, name) = self.check.split_once('.').unwrap_or(("", self.check));
        let mut line = format!("{name}: {}", one_line(&self.text));
        for (index, fix) in self.fixes.iter().enumerate() {
            let or = if index == 0 { "; " } else { ", or " };
            let run = fix.run.trim_end_matches(';');
            line.push_str(&format!("{or}{}{}", fix.on.preposition(), one_line(run)));
        }
        line
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

    #[test]
    fn fixes_are_written_as_the_vendor_knows_them() {
        for (vendor, expected) in [
            (
                Vendor::MySql,
                "read_only: ON; on the target: SET PERSIST read_only=OFF, or in the configuration: host",
            ),
            (
                Vendor::MySql57,
                "read_only: ON; on the target: SET GLOBAL read_only=OFF; -- and in its option file, \
                 or in the configuration: host",
            ),
        ] {
            let mut finding = Finding::error("target.read_only", "ON")
                .fix(Place::Target, "SET PERSIST read_only=OFF;")
                .fix(Place::Configuration, "host");
            finding.adapt(Place::Source, vendor);
            finding.adapt(Place::Target, vendor);
            assert_eq!(finding.line(), expected);
        }
    }
    #[test]
    fn statements_about_accounts_do_not_reach_replicas_without_them() {
        let unlogged =
            "SET sql_log_bin=0 /* not in a group, nor where replicas have the account */; ";
        for (run, is_of_account) in [
            ("GRANT SELECT ON *.* TO `a`;", true),
            ("ALTER USER `a` WITH MAX_USER_CONNECTIONS 0;", true),
            ("SET PERSIST super_read_only=OFF; GRANT CONNECTION_ADMIN ON *.* TO `a`;", true),
            ("SET PERSIST read_only=OFF;", false),
        ] {
            let mut finding = Finding::error("target.any", "ON").fix(Place::Target, run);
            finding.adapt(Place::Source, Vendor::MySql);
            finding.adapt(Place::Target, Vendor::MySql);
            let beginning = if is_of_account { unlogged } else { "" };
            assert_eq!(finding.fixes[0].run, format!("{beginning}{run}"));
        }
    }
}
