//! Limits of a server or of the account that no session can set for itself. Pure.

use csa_applier::{Executor, Vendor};

use super::report::{Finding, Place};
use super::server::Server;

/// The largest `max_allowed_packet`.
const PACKET_MAX: u64 = 1 << 30;
/// The least that is recommended.
const PACKET_MIN: u64 = 64 << 20;
/// Bytes around a row in its packet: the opening of a group, which states a GTID set.
const FRAME: u64 = 1 << 20;

/// Sessions of such an account are exempt from `init_connect` and from limits of memory.
const EXEMPT: [&str; 3] = ["CONNECTION_ADMIN", "CONNECTION ADMIN", "SUPER"];

/// The account's limits, on either side; `sessions`: as many as the channel opens there.
pub(super) fn account(place: Place, server: &Server, sessions: u64) -> Finding {
    let check = match place {
        Place::Source => "source.account_limits",
        _ => "target.account_limits",
    };
    let account = server.grants.account();
    let limits = &server.limits;
    let mut found: Vec<String> = limits
        .hourly
        .iter()
        .filter(|(_, limit)| *limit > 0)
        .map(|(name, limit)| format!("{name} {limit}"))
        .collect();
    if limits.sessions > 0 && limits.sessions < sessions {
        found.push(format!("MAX_USER_CONNECTIONS {} where {sessions} are wanted", limits.sessions));
    }
    if found.is_empty() {
        return Finding::ok(check, format!("{account} has none that the channel could reach"));
    }
    let lifted = "MAX_QUERIES_PER_HOUR 0 MAX_UPDATES_PER_HOUR 0 MAX_CONNECTIONS_PER_HOUR 0 MAX_USER_CONNECTIONS 0";
    Finding::warning(
        check,
        format!("{}: the server refuses what exceeds them (1226)", found.join(", ")),
    )
    .fix(place, format!("ALTER USER {account} WITH {lifted};"))
}

/// Returns the statements that the server runs in each new session of ours.
pub(super) fn init_connect(place: Place, server: &Server) -> Finding {
    let check = match place {
        Place::Source => "source.init_connect",
        _ => "target.init_connect",
    };
    let text = server.text("init_connect");
    if text.is_empty() {
        return Finding::ok(check, "none");
    }
    if server.grants.has_any(&EXEMPT) {
        return Finding::ok(check, "the account is exempt from it");
    }
    let finding = Finding::warning(
        check,
        "it runs in each session of the channel: if a statement of it fails, the server ends the session (1184)",
    );
    finding.fix(place, exempt(server)).fix(place, "SET PERSIST init_connect='';")
}

/// Returns a limit at which the server ends a session.
pub(super) fn memory(server: &Server) -> Finding {
    const CHECK: &str = "target.connection_memory_limit";
    let limit = server.number("connection_memory_limit").unwrap_or(u64::MAX);
    let counts = server.is_on("global_connection_memory_tracking");
    if limit >= PACKET_MIN * 4 || !counts || server.grants.has_any(&EXEMPT) {
        return Finding::ok(CHECK, "it ends no session of the channel");
    }
    Finding::warning(
        CHECK,
        format!("{limit}: the server ends a session whose rows take more (4082)"),
    )
    .fix(Place::Target, exempt(server))
    .fix(Place::Target, "SET PERSIST connection_memory_limit=18446744073709551615;")
}

fn exempt(server: &Server) -> String {
    let privilege = match server.version.vendor() {
        Vendor::MySql => "CONNECTION_ADMIN",
        Vendor::MySql57 => "SUPER",
        Vendor::MariaDb => "CONNECTION ADMIN",
    };
    format!("GRANT {privilege} ON *.* TO {};", server.grants.account())
}

/// The source's largest row against the target's largest packet: row images go as BASE64, which takes 4/3 of
/// their bytes, and values in statements as hexadecimal digits. A native replica has a limit of its own for
/// it, `replica_max_allowed_packet`.
pub(super) fn packet(target: &Server, source: Option<&Server>, executor: Executor) -> Finding {
    const CHECK: &str = "target.max_allowed_packet";
    let here = target.number("max_allowed_packet").unwrap_or(0);
    let there = source.and_then(|source| source.number("max_allowed_packet")).unwrap_or(0);
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
    let lasting = if target.version.is_mariadb() { "GLOBAL" } else { "PERSIST" };
    Finding::warning(CHECK, text)
        .fix(Place::Target, format!("SET {lasting} max_allowed_packet={PACKET_MAX};"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::account_limits::AccountLimits;
    use crate::servers::report::Level;
    use crate::servers::test_util::server;

    #[test]
    fn limits_are_warnings_with_their_fix() {
        let mut limited = server(&[]);
        limited.limits = AccountLimits { hourly: vec![("MAX_QUERIES_PER_HOUR", 9)], sessions: 4 };
        let few = account(Place::Target, &limited, 13);
        assert_eq!(few.level, Level::Warning);
        let text = few.to_string();
        for words in ["MAX_QUERIES_PER_HOUR 9", "MAX_USER_CONNECTIONS 4 where 13", "ALTER USER"] {
            assert!(text.contains(words), "{words:?} is missing in {text}");
        }
        limited.limits = AccountLimits { hourly: vec![("MAX_QUERIES_PER_HOUR", 0)], sessions: 4 };
        assert_eq!(account(Place::Source, &limited, 3).level, Level::Ok);
        let hooked = server(&[("init_connect", "SET NAMES latin1")]);
        let text = init_connect(Place::Source, &hooked).to_string();
        assert!(text.contains("source: SET PERSIST init_connect=''"), "{text}");
        for (tracking, limit, level) in [
            ("ON", "2097152", Level::Warning),
            ("OFF", "2097152", Level::Ok),
            ("ON", "18446744073709551615", Level::Ok),
        ] {
            let one = [
                ("global_connection_memory_tracking", tracking),
                ("connection_memory_limit", limit),
            ];
            assert_eq!(memory(&server(&one)).level, level, "{one:?}");
        }
    }

    #[test]
    fn a_packet_has_to_hold_the_sources_largest_row_as_text() {
        let with = |bytes: u64| server(&[("max_allowed_packet", &bytes.to_string())]);
        const MIB: u64 = 1 << 20;
        for (here, there, executor, level) in [
            (64, 64, Executor::RowImage, Level::Warning),
            (87, 64, Executor::RowImage, Level::Ok),
            (87, 64, Executor::Sql, Level::Warning),
            (129, 64, Executor::Sql, Level::Ok),
            (64, 16, Executor::RowImage, Level::Ok),
            (32, 16, Executor::RowImage, Level::Warning),
            // There is no larger packet.
            (1024, 1024, Executor::RowImage, Level::Ok),
        ] {
            let found = packet(&with(here * MIB), Some(&with(there * MIB)), executor);
            assert_eq!(found.level, level, "{here} {there} {executor:?}: {found}");
        }
        let text = packet(&with(64 * MIB), Some(&with(64 * MIB)), Executor::RowImage).to_string();
        assert!(text.contains("rows of 49545216 bytes") && text.contains("=1073741824"), "{text}");
    }
}
