//! A router or a proxy between this host and a server, as far as sessions show it.

use std::collections::BTreeSet;

use csa_applier::TargetOptions;
use csa_provider::server::{Finding, Level, Place};

use super::check_session::{CheckSession, QueryError};
use crate::verify::Side;

/// Sessions whose servers are compared; a router that spreads them takes turns.
const SESSIONS: usize = 3;

/// The server that a session has reached, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reached {
    /// `server_uuid`; on MariaDB the host name.
    server: String,
    host: String,
    port: String,
}

/// Asks several sessions which server they have reached.
pub(super) async fn between(
    side: Side,
    options: &TargetOptions,
    first: &mut CheckSession,
) -> Finding {
    let check = name(side);
    let mut reached = BTreeSet::new();
    match Reached::ask(first).await {
        Ok(one) => reached.extend(one),
        Err(refusal) => return Finding::new(check, Level::Warning, refusal.text),
    }
    let is_renumbered = first.was_renumbered().await;
    for _ in 1..SESSIONS {
        // One that is refused for want of room says nothing about what is between.
        let Ok(mut session) = CheckSession::connect(side, options).await else { continue };
        if let Ok(one) = Reached::ask(&mut session).await {
            reached.extend(one);
        }
        session.close().await;
    }
    let port =
        options.socket.is_none().then_some(options.route.now().map_or(options.port, |now| now.1));
    judge(side, port, &reached, is_renumbered)
}

impl Reached {
    async fn ask(session: &mut CheckSession) -> Result<Option<Self>, QueryError> {
        let query =
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'hostname', 'port')";
        let rows = session.rows(query).await?;
        let value = |name: &str| {
            rows.iter().find_map(|row| match row.as_slice() {
                [Some(variable), Some(value)] if variable == name => Some(value.clone()),
                _ => None,
            })
        };
        let (host, port) = (value("hostname"), value("port"));
        let server = value("server_uuid").or_else(|| host.clone());
        Ok(server.zip(host).zip(port).map(|((server, host), port)| Self { server, host, port }))
    }
}

const fn name(side: Side) -> &'static str {
    match side {
        Side::Source => "source.router",
        Side::Target => "target.router",
    }
}

/// Judges by the servers that were reached at `port`, `None` for a socket, and by whether sessions were greeted with
/// other numbers than the server's.
fn judge(
    side: Side,
    port: Option<u16>,
    reached: &BTreeSet<Reached>,
    is_renumbered: bool,
) -> Finding {
    let check = name(side);
    let direct = format!("[channel.{side}] host and port of the server itself");
    let discover = format!("{direct}, and discover = \"group\" where it is a member of a group");
    if reached.len() > 1 {
        let servers: Vec<String> = reached
            .iter()
            .map(|Reached { server, host, port }| format!("{host}:{port} ({server})"))
            .collect();
        let text = format!(
            "a router or proxy spreads sessions over several servers: {}; the sessions of a channel belong on one",
            servers.join(", ")
        );
        let level = match side {
            Side::Source => Level::Warning,
            Side::Target => Level::Error,
        };
        return Finding::new(check, level, text)
            .fix(Place::Configuration, discover)
            .fix(Place::Operator, "a port of the router that leads to one server, the primary");
    }
    let other = |Reached { port: theirs, .. }: &&Reached| {
        port.is_some_and(|port| !theirs.is_empty() && *theirs != port.to_string())
    };
    match reached.iter().find(other) {
        Some(Reached { host, port: theirs, .. }) => Finding::warning(
            check,
            format!(
                "the server that answers says that it is {host}:{theirs}: a router, a proxy or a mapped port is \
                 between, and may lead to another server at any time"
            ),
        )
        .fix(Place::Configuration, discover)
        .fix(Place::Operator, "nothing, if it is a mapped port of one server"),
        None if is_renumbered => Finding::warning(
            check,
            "the server there numbers its connections differently from the greeting: a router or a proxy is \
             in between, and may lead to another server at any time",
        )
        .fix(Place::Configuration, discover)
        .fix(Place::Operator, "nothing, if it always leads to one server"),
        None => Finding::ok(check, "all sessions reach the same server, directly as far as it tells"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(servers: &[(&str, &str)]) -> BTreeSet<Reached> {
        let one = |(server, port): &(&str, &str)| Reached {
            server: (*server).to_owned(),
            host: format!("host-{server}"),
            port: (*port).to_owned(),
        };
        servers.iter().map(one).collect()
    }

    #[test]
    fn what_stands_between_is_told_by_what_sessions_reach() {
        let one = &[("a", "3306")][..];
        let two = &[("a", "3306"), ("b", "3306")][..];
        for (side, port, servers, is_renumbered, level, part) in [
            (Side::Target, Some(3306), one, false, Level::Ok, "directly"),
            (Side::Target, None, one, false, Level::Ok, "directly"),
            (Side::Target, Some(6446), one, false, Level::Warning, "host-a:3306"),
            (Side::Target, Some(6446), one, true, Level::Warning, "host-a:3306"),
            (Side::Target, Some(3306), one, true, Level::Warning, "numbers its connections"),
            (Side::Target, Some(6447), two, false, Level::Error, "host-b:3306 (b)"),
            (Side::Source, Some(6447), two, true, Level::Warning, "spreads"),
            (Side::Source, Some(3306), &[], false, Level::Ok, "directly"),
        ] {
            let found = judge(side, port, &reached(servers), is_renumbered);
            assert!(found.level == level && found.text.contains(part), "{found:?}");
        }
    }
}
