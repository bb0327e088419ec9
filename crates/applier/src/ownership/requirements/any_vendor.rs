//! Rules for a server of any vendor. Pure.

use csa_provider::server::group::Membership;
use csa_provider::server::{Finding, Place, ServerFacts, Vendor};

use crate::options::{Executor, TargetGtids, TargetOptions};

pub(super) fn writable(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.read_only";
    let vendor = target.version.vendor();
    let (exempt, privilege) = match vendor {
        Vendor::MySql => (&["CONNECTION_ADMIN", "SUPER"][..], "CONNECTION_ADMIN"),
        Vendor::MySql57 => (&["SUPER"][..], "SUPER"),
        Vendor::MariaDb => (&["READ_ONLY ADMIN"][..], "READ_ONLY ADMIN"),
    };
    if target.is_on("innodb_read_only") {
        return Finding::error(CHECK, "innodb_read_only=ON: nobody can write there").fix(
            Place::Configuration,
            "[channel.target] host of the server that takes writes, as Aurora's writer endpoint",
        );
    }
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

/// Judges what is configured for the target. MySQL 5.7 takes neither the row images of later versions nor statements
/// under other servers' GTIDs, and MariaDB has neither.
pub(super) fn fulfilled(options: &TargetOptions, vendor: Vendor) -> Finding {
    const CHECK: &str = "target.options";
    let (for_gtids, for_images, it) = match vendor {
        Vendor::MySql => return Finding::ok(CHECK, "it can fulfil them"),
        Vendor::MySql57 => ("MySQL 8.0 or newer", "MySQL 8.0 or newer", "MySQL 5.7"),
        Vendor::MariaDb => ("the GTIDs of MySQL", "the BINLOG statement of MySQL", "MariaDB"),
    };
    if options.gtids != TargetGtids::Own {
        let chosen = options.gtids.name();
        let text = format!("applier.target_gtids: \"{chosen}\" needs {for_gtids}, and it is {it}");
        return Finding::error(CHECK, text)
            .fix(Place::Configuration, "[channel.applier] target_gtids = \"own\"");
    }
    if options.executor == Some(Executor::RowImage) {
        let text = format!("applier.executor: \"row-image\" needs {for_images}, and it is {it}");
        return Finding::error(CHECK, text)
            .fix(Place::Configuration, "[channel.applier] executor = \"sql\" or \"auto\"");
    }
    Finding::ok(CHECK, "it can fulfil them")
}

/// Judges by what a channel writes to the log, which is nothing with mirrored GTIDs.
pub(super) fn logged_format(target: &ServerFacts, options: &TargetOptions) -> Finding {
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

pub(super) fn function_creators(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.log_bin_trust_function_creators";
    let trusts = target.is_on("log_bin_trust_function_creators");
    if trusts || !target.is_on("log_bin") {
        return Finding::ok(CHECK, "functions and triggers can be created");
    }
    let text = match target.grants.has_any(&["SUPER"]) {
        true => {
            "OFF: CREATE FUNCTION without DETERMINISTIC, NO SQL or READS SQL DATA will fail (1418), \
             also for an account with SUPER"
        }
        false => "OFF: CREATE FUNCTION and CREATE TRIGGER will fail (1419)",
    };
    Finding::warning(CHECK, text)
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
pub(super) fn packet(target: &ServerFacts, of_source: Option<u64>, executor: Executor) -> Finding {
    const CHECK: &str = "target.max_allowed_packet";
    let here = target.number("max_allowed_packet").unwrap_or(0);
    let there = of_source.unwrap_or(0);
    let as_text = |bytes: u64| match executor {
        Executor::RowImage => bytes.div_ceil(3) * 4,
        Executor::Sql => bytes * 2,
    };
    let wanted = as_text(there) + FRAME;
    let room = here.saturating_sub(FRAME);
    let row = match executor {
        Executor::RowImage => room / 4 * 3,
        Executor::Sql => room / 2,
    };
    let text = match (here < wanted.min(PACKET_MAX) && there > 0, here < PACKET_MIN) {
        (true, _) => format!(
            "{here} takes rows of {row} bytes at most, as text; the source's {there} permits larger ones, which \
             stop the channel (1153)"
        ),
        (false, false) if here < wanted && executor == Executor::RowImage => {
            let most = row >> 20;
            let text = format!(
                "{here}, the most there is: changes of a row of more than {most} MiB need executor = \"sql\""
            );
            return Finding::ok(CHECK, text);
        }
        (false, true) => format!("{here}: large rows need more"),
        (false, false) => return Finding::ok(CHECK, here.to_string()),
    };
    Finding::warning(CHECK, text)
        .fix(Place::Target, format!("SET PERSIST max_allowed_packet={PACKET_MAX};"))
}
