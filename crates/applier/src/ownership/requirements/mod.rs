//! The requirements for a target, as rules over the facts about a server. Pure.

mod group;
mod mariadb;
mod privileges;

use csa_provider::server::group::Membership;
use csa_provider::server::{Finding, Place, ServerFacts, Vendor};
use csa_provider::source::gtid_steps;

use crate::options::{Executor, TargetGtids, TargetOptions};

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
            options_of_57(options, vendor),
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

fn writable(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.read_only";
    let vendor = target.version.vendor();
    let (exempt, privilege) = match vendor {
        Vendor::MySql => (&["CONNECTION_ADMIN", "SUPER"][..], "CONNECTION_ADMIN"),
        Vendor::MySql57 => (&["SUPER"][..], "SUPER"),
        Vendor::MariaDb => (&["READ_ONLY ADMIN"][..], "READ_ONLY ADMIN"),
    };
    if target.is_on("super_read_only") && target.group != Membership::None {
        let why = "super_read_only=ON: a group sets it on members that must not be written to";
        return Finding::error(CHECK, why)
            .fix(Place::Configuration, "[channel.target] discover = \"group\"");
    }
    if target.is_on("super_read_only") {
        let finding = Finding::error(CHECK, "super_read_only=ON: nobody can write there");
        // `read_only` stays ON, which an account without the privilege would meet next; OFF clears both
        // (https://dev.mysql.com/doc/refman/en/server-system-variables.html#sysvar_read_only).
        return match target.grants.has_any(exempt) {
            true => finding.fix(Place::Target, "SET PERSIST super_read_only=OFF;"),
            false => finding.fix(Place::Target, "SET PERSIST read_only=OFF;").fix(
                Place::Target,
                format!("SET PERSIST super_read_only=OFF; {}", target.grant(&[privilege])),
            ),
        };
    }
    match target.text("read_only") {
        "OFF" => Finding::ok(CHECK, "OFF; ON would keep others from writing there"),
        _ if target.grants.has_any(exempt) => {
            Finding::ok(CHECK, "ON, but the account may write anyway")
        }
        _ => Finding::error(CHECK, "read_only=ON: the account can't write there")
            .fix(Place::Target, target.grant(&[privilege]))
            .fix(Place::Target, "SET PERSIST read_only=OFF;"),
    }
}

/// MySQL 5.7 takes neither the row images of later versions nor statements under other servers' GTIDs.
fn options_of_57(options: &TargetOptions, vendor: Vendor) -> Finding {
    const CHECK: &str = "target.options";
    if vendor == Vendor::MySql57 && options.gtids != TargetGtids::Own {
        let text = format!(
            "applier.target_gtids: \"{}\" needs MySQL 8.0 or newer, and it is MySQL 5.7",
            options.gtids.name()
        );
        return Finding::error(CHECK, text)
            .fix(Place::Configuration, "[channel.applier] target_gtids = \"own\"");
    }
    if vendor == Vendor::MySql57 && options.executor == Some(Executor::RowImage) {
        let text = "applier.executor: \"row-image\" needs MySQL 8.0 or newer, and it is MySQL 5.7";
        return Finding::error(CHECK, text)
            .fix(Place::Configuration, "[channel.applier] executor = \"sql\" or \"auto\"");
    }
    Finding::ok(CHECK, "it can fulfil them")
}

/// Judges by what a channel writes to the log, which is nothing with mirrored GTIDs.
fn logged_format(target: &ServerFacts, options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.binlog_format";
    let logs = target.is_on("log_bin") && options.gtids != TargetGtids::Mirror;
    match target.text("binlog_format") {
        "STATEMENT" if logs => {
            let format = match target.version.vendor() {
                Vendor::MariaDb => "MIXED",
                Vendor::MySql | Vendor::MySql57 => "ROW",
            };
            Finding::error(
                CHECK,
                "STATEMENT can't log rows, or what sessions in READ COMMITTED write",
            )
            .fix(Place::Target, format!("SET PERSIST binlog_format={format};"))
        }
        other => Finding::ok(CHECK, other),
    }
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

fn function_creators(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.log_bin_trust_function_creators";
    let trusts = target.is_on("log_bin_trust_function_creators");
    if trusts || !target.is_on("log_bin") || target.grants.has_any(&["SUPER"]) {
        return Finding::ok(CHECK, "functions and triggers can be created");
    }
    Finding::warning(CHECK, "OFF: CREATE FUNCTION and CREATE TRIGGER will fail (1419)")
        .fix(Place::Target, "SET PERSIST log_bin_trust_function_creators=ON;")
}

/// The largest `max_allowed_packet`.
const PACKET_MAX: u64 = 1 << 30;
/// The least that is recommended.
const PACKET_MIN: u64 = 64 << 20;
/// Bytes around a row in its packet: the opening of a group, which states a GTID set.
const FRAME: u64 = 1 << 20;

/// The source's largest row against the target's largest packet: row images go as BASE64, which takes 4/3 of
/// their bytes, and values in statements as hexadecimal digits. A native replica has a limit of its own for
/// it, `replica_max_allowed_packet`.
fn packet(target: &ServerFacts, of_source: Option<u64>, executor: Executor) -> Finding {
    const CHECK: &str = "target.max_allowed_packet";
    let here = target.number("max_allowed_packet").unwrap_or(0);
    let there = of_source.unwrap_or(0);
    let as_text = |bytes: u64| match executor {
        Executor::RowImage => bytes.div_ceil(3) * 4,
        Executor::Sql => bytes * 2,
    };
    let wanted = (as_text(there) + FRAME).min(PACKET_MAX);
    let text = match (here < wanted && there > 0, here < PACKET_MIN) {
        (true, _) => {
            let room = here.saturating_sub(FRAME);
            let row = match executor {
                Executor::RowImage => room / 4 * 3,
                Executor::Sql => room / 2,
            };
            format!(
                "{here} takes rows of {row} bytes at most, as text; the source's {there} permits larger ones, \
                 which stop the channel (1153)"
            )
        }
        (false, true) => format!("{here}: large rows need more"),
        (false, false) => return Finding::ok(CHECK, here.to_string()),
    };
    Finding::warning(CHECK, text)
        .fix(Place::Target, format!("SET PERSIST max_allowed_packet={PACKET_MAX};"))
}

#[cfg(test)]
mod tests;
