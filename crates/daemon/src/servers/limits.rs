//! Limits of a server or of the account that no session can set for itself. Pure.

use csa_provider::server::{Finding, Place, ServerFacts, Vendor};

use super::server::CheckedServer;

/// Sessions of such an account are exempt from `init_connect` and from limits of memory.
const EXEMPT: [&str; 3] = ["CONNECTION_ADMIN", "CONNECTION ADMIN", "SUPER"];

/// The account's limits, on either side; `sessions`: as many as the channel opens there.
pub(super) fn account(place: Place, server: &CheckedServer, sessions: u64) -> Finding {
    let check = match place {
        Place::Source => "source.account_limits",
        _ => "target.account_limits",
    };
    let account = server.facts.grants.account();
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
pub(super) fn init_connect(place: Place, server: &ServerFacts) -> Finding {
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
pub(super) fn memory(server: &ServerFacts) -> Finding {
    const CHECK: &str = "target.connection_memory_limit";
    const ENOUGH: u64 = 256 << 20;
    let limit = server.number("connection_memory_limit").unwrap_or(u64::MAX);
    let counts = server.is_on("global_connection_memory_tracking");
    if limit >= ENOUGH || !counts || server.grants.has_any(&EXEMPT) {
        return Finding::ok(CHECK, "it ends no session of the channel");
    }
    Finding::warning(
        CHECK,
        format!("{limit}: the server ends a session whose rows take more (4082)"),
    )
    .fix(Place::Target, exempt(server))
    .fix(Place::Target, "SET PERSIST connection_memory_limit=18446744073709551615;")
}

fn exempt(server: &ServerFacts) -> String {
    server.grant(&[match server.version.vendor() {
        Vendor::MySql => "CONNECTION_ADMIN",
        Vendor::MySql57 => "SUPER",
        Vendor::MariaDb => "CONNECTION ADMIN",
    }])
}

#[cfg(test)]
mod tests {
    use csa_provider::server::Level;

    use super::*;
    use crate::servers::account_limits::AccountLimits;
    use crate::servers::test_util::{facts, server};

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
        let hooked = facts(&[("init_connect", "SET NAMES latin1")]);
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
            assert_eq!(memory(&facts(&one)).level, level, "{one:?}");
        }
    }
}
