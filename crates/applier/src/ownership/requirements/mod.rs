//! The requirements for a target, as rules over the facts about a server. Pure.

mod any_vendor;
mod group;
mod mariadb;
mod privileges;

use csa_provider::server::{Finding, Place, ServerFacts, Vendor};
use csa_provider::source::gtid_steps;

use crate::options::{Executor, TargetGtids, TargetOptions};

use any_vendor::{fulfilled, function_creators, logged_format, packet, writable};
pub(crate) use privileges::GTID_PRIVILEGES;
pub use privileges::executor_for;

/// The source's properties by which a target is judged; a start does not wait for them.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfSource {
    /// Its `max_allowed_packet`, in bytes.
    pub packet: Option<u64>,
    /// It has executed tagged GTIDs.
    pub has_tags: bool,
}

/// Judges a target by what the channel needs of it. An error among the findings is a reason not to start.
#[must_use]
pub fn requirements(
    target: &ServerFacts,
    options: &TargetOptions,
    source: OfSource,
) -> Vec<Finding> {
    let vendor = target.version.vendor();
    let executor = executor_for(options, vendor, &target.grants);
    let mut found = match vendor {
        Vendor::MariaDb => mariadb::requirements(target, options),
        Vendor::MySql | Vendor::MySql57 => vec![
            writable(target),
            fulfilled(options, vendor),
            logged_format(target, options),
            privileges::writing(target, options),
            gtids(target, options, executor),
            executor_of(target, options, executor),
            privileges::definitions(target, source.has_tags),
        ],
    };
    if vendor == Vendor::MySql {
        found.extend(group::requirements(target, options));
    }
    found.push(function_creators(target));
    found.push(packet(target, source.packet, executor));
    found
}

fn gtids(target: &ServerFacts, options: &TargetOptions, executor: Executor) -> Finding {
    const CHECK: &str = "target.gtid_mode";
    let mode = target.text("gtid_mode");
    if matches!(mode, "ON" | "ON_PERMISSIVE") {
        return Finding::ok(CHECK, mode);
    }
    let finding = if executor == Executor::RowImage || options.gtids.hides_bookkeeping() {
        let why = "after a crash nothing would show whether a replicated DDL ran";
        Finding::error(CHECK, format!("{mode}: {why}"))
    } else {
        Finding::warning(
            CHECK,
            format!("{mode}: a crash in the middle of a replicated DDL stops the channel"),
        )
    };
    finding.fix(Place::Target, gtid_steps(target))
}

fn executor_of(target: &ServerFacts, options: &TargetOptions, executor: Executor) -> Finding {
    const CHECK: &str = "target.executor";
    let slower =
        "rows are written by INSERT, UPDATE and DELETE (executor \"sql\"), which is slower";
    match (executor, options.executor) {
        (Executor::RowImage, _) => Finding::ok(CHECK, "rows are written as row images"),
        (Executor::Sql, Some(_)) => {
            Finding::ok(CHECK, "rows are written by INSERT, UPDATE and DELETE, as configured")
        }
        (Executor::Sql, None) if target.version.vendor() == Vendor::MySql57 => Finding::warning(
            CHECK,
            format!("{slower}: MySQL 5.7 does not take the row images of later versions"),
        ),
        (Executor::Sql, None) => {
            Finding::warning(CHECK, format!("{slower}: the BINLOG statement is not permitted"))
                .fix(Place::Target, target.grant(&["REPLICATION_APPLIER"]))
                .fix(Place::Configuration, "[channel.applier] executor = \"sql\"")
        }
    }
}

/// Judges a change of `target_gtids` to "own". `was_source`: the channel last ran with "source", by which the schema
/// `csa` was kept out of the target's binary log. With "own" changes of its rows are there, and replicas of the target
/// have no such tables.
#[must_use]
pub fn logged_again(
    target: &ServerFacts,
    options: &TargetOptions,
    was_source: bool,
) -> Option<Finding> {
    let is_logged = target.is_on("log_bin") && options.gtids == TargetGtids::Own;
    (was_source && is_logged).then(|| {
        Finding::warning(
            "target.replicas",
            "the channel last ran with target_gtids = \"source\", and the target's binary log has nothing of its \
             schema csa; with \"own\" each replica of the target stops at the first row of it (1146)",
        )
        .fix(
            Place::Operator,
            "load the schema on each replica before the start (docs/replace-a-replica.md#change-the-choice-later)",
        )
    })
}

#[cfg(test)]
mod tests;
