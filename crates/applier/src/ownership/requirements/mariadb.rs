//! Rules that MariaDB alone needs. Pure.

use csa_provider::server::{Finding, Place, ServerFacts};

use super::any_vendor::{logged_format, writable};
use super::privileges::definitions;
use crate::options::{Executor, TargetGtids, TargetOptions};
use crate::server::mariadb::is_supported;

/// Privileges for writing rows and their checkpoint, and for reading triggers and locks.
const PRIVILEGES: [&str; 7] =
    ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "TRIGGER", "PROCESS"];

pub(super) fn requirements(target: &ServerFacts, options: &TargetOptions) -> Vec<Finding> {
    vec![
        release(target),
        fits(options),
        writable(target),
        logged_format(target, options),
        time(target),
        privileges(target),
        definitions(target, false),
    ]
}

fn release(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.version";
    let version = target.version.text();
    match is_supported(version) {
        true => Finding::warning(
            CHECK,
            format!(
                "it is MariaDB {version}: rows are written by executor \"sql\", and after a crash in the middle \
                 of a statement (DDL) the channel stops and asks whether it took effect"
            ),
        ),
        false => Finding::error(CHECK, format!("it is MariaDB {version}"))
            .fix(Place::Operator, "MariaDB 10.11 or newer is needed"),
    }
}

fn fits(options: &TargetOptions) -> Finding {
    const CHECK: &str = "target.options";
    if options.gtids != TargetGtids::Own {
        let text = format!(
            "applier.target_gtids: \"{}\" needs the GTIDs of MySQL, and it is MariaDB",
            options.gtids.name()
        );
        return Finding::error(CHECK, text)
            .fix(Place::Configuration, "[channel.applier] target_gtids = \"own\"");
    }
    if options.executor == Some(Executor::RowImage) {
        let text = "applier.executor: \"row-image\" needs the BINLOG statement of MySQL, and it is MariaDB";
        return Finding::error(CHECK, text)
            .fix(Place::Configuration, "[channel.applier] executor = \"sql\" or \"auto\"");
    }
    Finding::ok(CHECK, "it can fulfil them")
}

fn time(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.secure_timestamp";
    match target.text("secure_timestamp") {
        "NO" => Finding::ok(CHECK, "NO"),
        other => Finding::error(
            CHECK,
            format!(
                "secure_timestamp={other}, so statements can't run at the time they ran on the source"
            ),
        )
        .fix(Place::Operator, "start it with secure_timestamp=NO"),
    }
}

fn privileges(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.privileges";
    let grants = &target.grants;
    let needed = if grants.has_schemas() { &["TRIGGER", "PROCESS"][..] } else { &PRIVILEGES };
    let missing = grants.missing(needed);
    let account = grants.account();
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{account} has what executor \"sql\" needs"));
    }
    Finding::error(CHECK, format!("{account} lacks {}", missing.join(", ")))
        .fix(Place::Target, target.grant(&missing))
}
