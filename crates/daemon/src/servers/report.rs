//! Results of the checks, for readers and for programs.

use std::fmt;

use csa_provider::server::{Finding, Level};
use serde::Serialize;

use crate::host::counted;

/// One channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CheckReport {
    pub(crate) channel: String,
    pub(crate) findings: Vec<Finding>,
}

impl CheckReport {
    #[must_use]
    pub(crate) fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Returns `21 ok, 2 warnings, 1 error`.
    #[must_use]
    pub(crate) fn summary(&self) -> String {
        let counted = |level, noun| counted(self.count(level) as u64, noun);
        format!(
            "{} ok, {}, {}",
            self.count(Level::Ok),
            counted(Level::Warning, "warning"),
            counted(Level::Error, "error")
        )
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "channel {}", self.channel)?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        write!(f, "channel {}: {}", self.channel, self.summary())
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::server::Place;

    use super::*;

    fn report() -> CheckReport {
        let tables: Vec<String> = (0..12).map(|n| format!("d.t{n}")).collect();
        CheckReport {
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
        let empty = CheckReport { channel: "e".to_owned(), findings: Vec::new() };
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
