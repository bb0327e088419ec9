//! The finding about cascades that the source does not log, and that the target would make with rows left out.

use std::collections::BTreeSet;

use csa_applier::Executor;
use csa_provider::server::{Finding, Place, ServerFacts};

use super::tables::Context;
use crate::verify::TableName;

/// Returns true if the server, and not its storage engine, cascades: it logs the rows, and misses some of them
/// where four tables follow each other (`missed_cascade` of the applier).
fn cascades_itself(server: &ServerFacts) -> bool {
    server.version.cascades_itself() && !server.is_on("innodb_native_foreign_keys")
}

/// Returns true if cascades of the source are left to a target that may miss rows.
pub(super) fn are_possible(source: &ServerFacts, target: &ServerFacts) -> bool {
    cascades_itself(target) && !cascades_itself(source)
}

impl Context<'_> {
    pub(super) fn missed_cascades(&self) -> Finding {
        const CHECK: &str = "tables.missed_cascades";
        if !self.target_misses_cascades {
            return Finding::ok(CHECK, "the target follows every cascade of the source");
        }
        if self.executor == Executor::RowImage {
            return Finding::ok(CHECK, "with row images, InnoDB follows every cascade");
        }
        let replicated: BTreeSet<&TableName> = self.pairs.iter().map(|pair| &pair.target).collect();
        let rules = &self.target.delete_rules;
        let below = |table: &TableName, only_cascades: bool| {
            let found = rules.iter().filter(|rule| rule.parent == *table);
            let found = found.filter(|rule| rule.deletes || !only_cascades);
            found.map(|rule| rule.child.clone()).collect::<BTreeSet<TableName>>()
        };
        let next = |tables: &BTreeSet<TableName>, only_cascades| {
            tables.iter().flat_map(|table| below(table, only_cascades)).collect::<BTreeSet<_>>()
        };
        let reaches = |table: &TableName| !next(&next(&below(table, true), true), false).is_empty();
        let parents: BTreeSet<&TableName> = rules.iter().map(|rule| &rule.parent).collect();
        let names: Vec<String> = parents
            .into_iter()
            .filter(|parent| replicated.contains(parent) && reaches(parent))
            .map(ToString::to_string)
            .collect();
        if names.is_empty() {
            return Finding::ok(CHECK, "no DELETE cascades through three tables");
        }
        Finding::warning(
            CHECK,
            "a DELETE cascades through three tables or more, which the source does not log, and the target's own \
             cascades may miss rows of them: it stops the channel",
        )
        .names(&names)
        .fix(Place::Configuration, "[channel.applier] executor = \"row-image\"")
        .fix(Place::Target, "innodb_native_foreign_keys=ON in its configuration, and a restart")
    }
}
