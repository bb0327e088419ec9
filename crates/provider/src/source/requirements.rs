//! The requirements for a source, as rules over the facts about a server. Pure.

use crate::server::facts::Upstream;
use crate::server::group::{MEMBERS_PRIVILEGE, Membership, Standing};
use crate::server::{Finding, Place, ServerFacts};

/// Judges a source by what replication needs of it; `server_id` is the channel's own, and with `discovers` the
/// members of its group may take over. An error among the findings is a reason not to start.
#[must_use]
pub fn requirements(source: &ServerFacts, server_id: u32, discovers: bool) -> Vec<Finding> {
    vec![
        privileges(source),
        binary_log(source),
        applied(source),
        format(source),
        row_image(source),
        gtids(source),
        identity(source, server_id),
        group(source, discovers),
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

/// Judges whether the binary log has what the source applies as a replica.
fn applied(source: &ServerFacts) -> Finding {
    const CHECK: &str = "source.log_replica_updates";
    if !source.leaves_out_applied() {
        return Finding::ok(CHECK, "what it applies as a replica is in its binary log");
    }
    let is_new = source.version.numbers() >= [8, 0, 26];
    let option = if is_new { "--log-replica-updates" } else { "--log-slave-updates" };
    let restart = format!("start it with {option}");
    if source.is_galera_node() {
        let text = "OFF, on a node of a Galera cluster: what other nodes write is not in its binary log, and never arrives";
        // One node may make all writes. Where another one may take over, its address is refused (`fitness.rs`).
        return Finding::warning(CHECK, text).fix(Place::Operator, restart);
    }
    // Transactions of other servers came over a channel, or with a backup.
    let own = source.gtid_executed.of_server(source.text("server_uuid"));
    match source.upstream {
        Upstream::Known => Finding::error(
            CHECK,
            "OFF, and it is a replica: what it applies is not in its binary log, and never arrives",
        )
        .fix(Place::Operator, restart)
        .fix(Place::Configuration, "[channel.source] host and port of the server that it follows")
        .fix(
            Place::Source,
            match is_new {
                true => "RESET REPLICA ALL; -- if it follows no server any more",
                false => "RESET SLAVE ALL; -- if it follows no server any more",
            },
        ),
        Upstream::Hidden if own != source.gtid_executed => Finding::warning(
            CHECK,
            "OFF, and the account may not see whether it is a replica: what a replica applies would never arrive",
        )
        .fix(Place::Operator, restart)
        .fix(Place::Source, source.grant(&["REPLICATION CLIENT"])),
        Upstream::Hidden | Upstream::None => {
            Finding::ok(CHECK, "OFF, and nothing shows that it is a replica")
        }
    }
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

/// Returns the next of the steps that turn GTIDs on, with what comes after it. Each changes what clients and other
/// replicas may do, so nobody should be able to paste them all at once
/// (<https://dev.mysql.com/doc/refman/en/replication-mode-change-online-enable-gtids.html>).
#[must_use]
pub fn gtid_steps(server: &ServerFacts) -> String {
    let next = match (server.text("enforce_gtid_consistency"), server.text("gtid_mode")) {
        ("OFF", _) => {
            "enforce_gtid_consistency=WARN; -- step 1 of 5; the next one after a time of usual load in which the \
             error log has no warning about it"
        }
        ("WARN", _) => "enforce_gtid_consistency=ON; -- step 2 of 5",
        (_, "OFF_PERMISSIVE") => {
            "gtid_mode=ON_PERMISSIVE; -- step 4 of 5, on all servers of the topology before the last one"
        }
        (_, "ON_PERMISSIVE") => {
            "gtid_mode=ON; -- step 5 of 5, once SHOW STATUS LIKE 'Ongoing_anonymous_transaction_count' is 0 on all \
             servers of the topology, and their replicas have applied what was logged until then"
        }
        _ => {
            "gtid_mode=OFF_PERMISSIVE; -- step 3 of 5, on all servers of the topology before the next one"
        }
    };
    format!("SET PERSIST {next}")
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

fn group(source: &ServerFacts, discovers: bool) -> Finding {
    const CHECK: &str = "source.group";
    let grant = format!("GRANT {MEMBERS_PRIVILEGE} TO {};", source.grants.account());
    let discover = "[channel.source] discover = \"group\"";
    let name = source.text("group_replication_group_name");
    match (&source.group, discovers) {
        (Membership::None, false) => Finding::ok(CHECK, "it is in no group"),
        (Membership::None, true) => {
            Finding::error(CHECK, "it is in no group, which source.discover asks for")
                .fix(Place::Configuration, "[channel.source] host and port of a member, or no discover")
        }
        (Membership::Hidden, true) => {
            Finding::error(CHECK, "the account can't read the members of its group, as source.discover does")
                .fix(Place::Source, grant)
        }
        (Membership::Hidden, false) => Finding::warning(
            CHECK,
            format!("it is a member of the group {name}: the channel falls behind if this member leaves it"),
        )
        .fix(Place::Configuration, format!("{discover}, after on the source: {grant}")),
        (Membership::Known(view), _) => match (view.standing(), discovers) {
            (Standing::Healthy { .. }, true) => Finding::ok(CHECK, view.line()),
            (Standing::Healthy { .. }, false) => Finding::warning(
                CHECK,
                "it is a member of a group: the channel falls behind if this member leaves it",
            )
            .fix(Place::Configuration, discover),
            (Standing::Unfit(why), true) => {
                Finding::warning(CHECK, format!("{why}; a member that serves is followed"))
            }
            (Standing::Unfit(why), false) => {
                Finding::warning(CHECK, format!("it belongs to the group {name}, and {why}"))
                    .fix(Place::Configuration, discover)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::by_hand::of_account;
    use crate::server::group::{GroupView, Member};
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
        requirements(source, 42, false)
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
                "source: SET PERSIST gtid_mode=ON_PERMISSIVE; -- step 4 of 5",
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
    fn a_replica_has_to_log_what_it_applies() {
        const OWN: &str = "05050505-0505-0505-0505-050505050505";
        const OTHER: &str = "06060606-0606-0606-0606-060606060606:1-9";
        let own = &format!("{OWN}:1-9");
        let (new, old) = ("log_replica_updates", "log_slave_updates");
        for (version, variable, value, upstream, executed, expected) in [
            ("9.7.4", new, "ON", Upstream::None, OTHER, None),
            ("9.7.4", new, "OFF", Upstream::None, OTHER, None),
            ("9.7.4", new, "OFF", Upstream::Hidden, own, None),
            (
                "9.7.4",
                new,
                "OFF",
                Upstream::Known,
                own,
                Some((Level::Error, "start it with --log-replica-updates")),
            ),
            (
                "5.7.44",
                old,
                "OFF",
                Upstream::Known,
                OTHER,
                Some((Level::Error, "on the source: RESET SLAVE ALL")),
            ),
            (
                "8.0.25",
                old,
                "OFF",
                Upstream::Hidden,
                OTHER,
                Some((Level::Warning, "GRANT REPLICATION CLIENT ON *.* TO 'csa'@'%'")),
            ),
        ] {
            let mut source = ServerFacts { upstream, ..good() };
            source.version = Version::parse(version);
            source.gtid_executed = executed.parse().unwrap();
            for (name, value) in [(variable, value), ("server_uuid", OWN)] {
                source.variables.insert(name.to_owned(), value.to_owned());
            }
            let found = found(&source);
            match (found.as_slice(), expected) {
                ([], None) => {}
                ([(check, level, line)], Some((wanted, part))) => {
                    assert_eq!((*check, *level), ("source.log_replica_updates", wanted));
                    assert!(line.contains(part), "{line}");
                }
                _ => panic!("{version} {upstream:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_galera_node_has_to_log_what_other_nodes_write() {
        for (logs, provider, is_named) in [
            ("OFF", "/usr/lib/galera4/libgalera_smm.so", true),
            ("ON", "/usr/lib/galera4/libgalera_smm.so", false),
            ("OFF", "none", false),
        ] {
            let mut source = good();
            for (name, value) in
                [("log_slave_updates", logs), ("wsrep_on", "ON"), ("wsrep_provider", provider)]
            {
                source.variables.insert(name.to_owned(), value.to_owned());
            }
            let found = found(&source);
            assert_eq!(!found.is_empty(), is_named, "{logs} {provider}: {found:?}");
            let said = |(_, level, line): &(_, Level, String)| {
                *level == Level::Warning
                    && line.contains("Galera")
                    && line.contains("start it with")
            };
            assert!(found.iter().all(said), "{found:?}");
        }
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
                format!(
                    "privileges: 'csa'@'%' may not replicate; on the source: {}",
                    of_account("GRANT REPLICATION SLAVE ON *.* TO 'csa'@'%'")
                )
            )]
        );
    }

    #[test]
    fn a_member_of_a_group_is_named_with_the_way_to_follow_the_group() {
        let group = |membership, discovers| {
            let mut source = good();
            source.group = membership;
            let found = requirements(&source, 42, discovers);
            let found = found.into_iter().find(|finding| finding.check == "source.group");
            let found = found.expect("always there");
            (found.level, found.line())
        };
        let member = |state: &str| {
            let address = ("db1".to_owned(), 3306);
            let state = state.to_owned();
            let member = Member { is_asked: true, address, state, is_primary: Some(true) };
            Membership::Known(GroupView { members: vec![member] })
        };
        for (membership, discovers, level, part) in [
            (Membership::None, false, Level::Ok, "in no group"),
            (Membership::None, true, Level::Error, "source.discover"),
            (Membership::Hidden, true, Level::Error, "GRANT SELECT ON performance_schema"),
            (Membership::Hidden, false, Level::Warning, "discover = \"group\", after"),
            (member("ONLINE"), true, Level::Ok, "db1:3306 ONLINE PRIMARY"),
            (member("ONLINE"), false, Level::Warning, "discover = \"group\""),
            (member("ERROR"), true, Level::Warning, "is ERROR"),
            (member("ERROR"), false, Level::Warning, "is ERROR"),
        ] {
            let (is, line) = group(membership, discovers);
            assert!(is == level && line.contains(part), "{is:?} {line}");
        }
    }

    #[test]
    fn gtids_are_turned_on_step_by_step() {
        let mut source = good();
        for (consistency, mode, next) in [
            ("OFF", "OFF", "enforce_gtid_consistency=WARN;"),
            ("WARN", "OFF", "enforce_gtid_consistency=ON;"),
            ("ON", "OFF", "gtid_mode=OFF_PERMISSIVE;"),
            ("ON", "OFF_PERMISSIVE", "gtid_mode=ON_PERMISSIVE;"),
            ("ON", "ON_PERMISSIVE", "gtid_mode=ON;"),
        ] {
            for (variable, value) in
                [("gtid_mode", mode), ("enforce_gtid_consistency", consistency)]
            {
                source.variables.insert(variable.to_owned(), value.to_owned());
            }
            let step = gtid_steps(&source);
            assert_eq!(step.split_once(" -- ").unwrap().0, format!("SET PERSIST {next}"));
        }
    }
}
