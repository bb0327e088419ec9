//! The requirements for a source, as rules over the facts about a server. Pure.

use crate::server::{Finding, Place, ServerFacts};

/// Judges a source by what replication needs of it; `server_id` is the channel's own. An error among the
/// findings is a reason not to start.
#[must_use]
pub fn requirements(source: &ServerFacts, server_id: u32) -> Vec<Finding> {
    vec![
        privileges(source),
        binary_log(source),
        format(source),
        row_image(source),
        gtids(source),
        identity(source, server_id),
    ]
}

/// The name of the only finding that concerns the account.
pub(crate) const PRIVILEGES: &str = "source.privileges";

fn privileges(source: &ServerFacts) -> Finding {
    let account = source.grants.account();
    let missing = source.grants.missing(&["REPLICATION SLAVE"]);
    if missing.is_empty() {
        return Finding::ok(PRIVILEGES, format!("{account} may replicate"));
    }
    Finding::error(PRIVILEGES, format!("{account} may not replicate"))
        .fix(Place::Source, source.grant(&missing))
}

fn binary_log(source: &ServerFacts) -> Finding {
    const CHECK: &str = "source.log_bin";
    if !source.is_on("log_bin") {
        return Finding::error(CHECK, "it writes no binary log")
            .fix(Place::Operator, "start it with --log-bin and a --server-id");
    }
    let compressed = match source.is_on("binlog_transaction_compression") {
        true => ", compressed: decompressing it costs this host CPU",
        false => "",
    };
    Finding::ok(CHECK, format!("it writes a binary log{compressed}"))
}

fn format(source: &ServerFacts) -> Finding {
    const CHECK: &str = "source.binlog_format";
    match source.text("binlog_format") {
        // A later server may have no other format.
        "ROW" | "" => Finding::ok(CHECK, "ROW"),
        other => Finding::error(
            CHECK,
            format!("{other}: a change logged as a statement stops the channel"),
        )
        .fix(Place::Source, "SET PERSIST binlog_format=ROW; -- open sessions keep theirs"),
    }
}

fn row_image(source: &ServerFacts) -> Finding {
    const CHECK: &str = "source.binlog_row_image";
    match source.text("binlog_row_image") {
        "FULL" => Finding::ok(CHECK, "FULL"),
        other => Finding::warning(
            CHECK,
            format!(
                "{other}: fewer changes can be told apart, so fewer run in parallel; FULL is faster"
            ),
        )
        .fix(Place::Source, "SET PERSIST binlog_row_image=FULL;"),
    }
}

fn gtids(source: &ServerFacts) -> Finding {
    const CHECK: &str = "source.gtid_mode";
    let mode = source.text("gtid_mode");
    if mode == "ON" {
        let consistency = source.text("enforce_gtid_consistency");
        return Finding::ok(CHECK, format!("ON, enforce_gtid_consistency={consistency}"));
    }
    Finding::error(CHECK, format!("{mode}: transactions have no GTID"))
        .fix(Place::Source, gtid_steps(source))
}

/// Returns the statements that turn GTIDs on, one step after the other, the last one once no anonymous
/// transaction is left
/// (<https://dev.mysql.com/doc/refman/en/replication-mode-change-online-enable-gtids.html>).
#[must_use]
pub fn gtid_steps(server: &ServerFacts) -> String {
    let steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"];
    let at = steps.iter().position(|&step| step == server.text("gtid_mode")).unwrap_or(0);
    let consistent = server.text("enforce_gtid_consistency") == "ON";
    let first = (!consistent).then(|| "SET PERSIST enforce_gtid_consistency=ON;".to_owned());
    let left = steps.iter().skip(at + 1).map(|step| format!("SET PERSIST gtid_mode={step};"));
    first.into_iter().chain(left).collect::<Vec<_>>().join(" ")
}

fn identity(source: &ServerFacts, server_id: u32) -> Finding {
    const CHECK: &str = "source.server_id";
    match source.number("server_id") {
        Some(0) => Finding::error(CHECK, "0: it refuses replicas").fix(
            Place::Source,
            "SET PERSIST server_id=1; -- or another number that is unique in the topology",
        ),
        Some(theirs) if theirs == u64::from(server_id) => {
            Finding::error(CHECK, format!("{theirs} is also the channel's own")).fix(
                Place::Configuration,
                "[channel.source] server_id = a number that is unique in the topology",
            )
        }
        Some(theirs) => Finding::ok(CHECK, format!("{theirs}; the channel's is {server_id}")),
        None => Finding::ok(CHECK, format!("the channel's is {server_id}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Grants, Level, Version};

    const GOOD: [(&str, &str); 6] = [
        ("log_bin", "ON"),
        ("binlog_format", "ROW"),
        ("binlog_row_image", "FULL"),
        ("gtid_mode", "ON"),
        ("enforce_gtid_consistency", "ON"),
        ("server_id", "7"),
    ];

    fn good() -> ServerFacts {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let grants = ["GRANT REPLICATION SLAVE ON *.* TO `csa`@`%`"];
        ServerFacts {
            version: Version::parse("9.7.4"),
            variables: GOOD.into_iter().map(own).collect(),
            grants: Grants::parse("csa@%", &grants),
            ..ServerFacts::default()
        }
    }

    fn found(source: &ServerFacts) -> Vec<(&'static str, Level, String)> {
        requirements(source, 42)
            .into_iter()
            .filter(|finding| finding.level != Level::Ok)
            .map(|mut finding| {
                finding.adapt(Place::Source, source.version.vendor());
                (finding.check, finding.level, finding.line())
            })
            .collect()
    }

    #[test]
    fn each_setting_has_its_finding_and_its_fix() {
        assert_eq!(found(&good()), []);
        for (variable, value, check, level, fix) in [
            ("log_bin", "OFF", "source.log_bin", Level::Error, "--log-bin"),
            (
                "binlog_format",
                "MIXED",
                "source.binlog_format",
                Level::Error,
                "SET PERSIST binlog_format=ROW",
            ),
            (
                "binlog_row_image",
                "MINIMAL",
                "source.binlog_row_image",
                Level::Warning,
                "SET PERSIST binlog_row_image=FULL",
            ),
            (
                "gtid_mode",
                "OFF_PERMISSIVE",
                "source.gtid_mode",
                Level::Error,
                "source: SET PERSIST gtid_mode=ON_PERMISSIVE; SET PERSIST gtid_mode=ON",
            ),
            ("server_id", "42", "source.server_id", Level::Error, "[channel.source] server_id"),
            ("server_id", "0", "source.server_id", Level::Error, "SET PERSIST server_id"),
        ] {
            let mut source = good();
            source.variables.insert(variable.to_owned(), value.to_owned());
            let found = found(&source);
            let [(name, is, text)] = found.as_slice() else { panic!("{variable}: {found:?}") };
            assert_eq!((*name, *is), (check, level));
            assert!(text.contains(fix), "{text}");
        }
        let mut old = good();
        old.version = Version::parse("5.7.44-log");
        old.variables.insert("binlog_format".to_owned(), "MIXED".to_owned());
        assert!(found(&old).iter().all(|(_, _, line)| line.contains("SET GLOBAL binlog_format")));
    }

    #[test]
    fn the_account_needs_one_privilege() {
        let mut source = good();
        source.grants = Grants::parse("csa@%", &["GRANT SELECT ON *.* TO `csa`@`%`"]);
        assert_eq!(
            found(&source),
            [(
                "source.privileges",
                Level::Error,
                "privileges: 'csa'@'%' may not replicate; on the source: GRANT REPLICATION SLAVE ON *.* \
                 TO 'csa'@'%'"
                    .to_owned()
            )]
        );
    }

    #[test]
    fn gtids_are_turned_on_step_by_step() {
        let mut source = good();
        for (variable, value) in [("gtid_mode", "OFF"), ("enforce_gtid_consistency", "WARN")] {
            source.variables.insert(variable.to_owned(), value.to_owned());
        }
        assert_eq!(
            gtid_steps(&source),
            "SET PERSIST enforce_gtid_consistency=ON; SET PERSIST gtid_mode=OFF_PERMISSIVE; \
             SET PERSIST gtid_mode=ON_PERMISSIVE; SET PERSIST gtid_mode=ON;"
        );
    }
}
