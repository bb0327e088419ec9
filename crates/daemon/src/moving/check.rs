//! Everything that has to be so before a server is fenced. Nothing is touched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use csa_provider::server::by_hand::of_account;

use super::DaemonControl;
use super::decide::ServerAccess;
use super::fence::Fence;
use super::pair::{Pair, said};
use super::server::{Asked, Server};
use crate::config::{ChannelSettings, FenceMeans};
use crate::observe::view::{ChannelState, ChannelView};

/// The state of an applied channel that is good enough.
const FOLLOWS: [ChannelState; 1] = [ChannelState::Running];
/// The reverse channel may wait for a server that takes no writes.
const STANDS_BY: [ChannelState; 3] =
    [ChannelState::Running, ChannelState::WaitingForTarget, ChannelState::WaitingForLock];

/// The privilege to set `super_read_only` and `event_scheduler`.
const SETS: &str = "SYSTEM_VARIABLES_ADMIN";

/// The states that somebody has to end.
pub(super) const STAYS: [ChannelState; 3] =
    [ChannelState::Failed, ChannelState::Stopped, ChannelState::Paused];

/// Returns the reasons by the state of the servers against a move from one to the other, one line each.
pub(super) async fn server_problems(
    pair: &Pair<'_>,
    servers: [&mut Server; 2],
) -> Asked<Vec<String>> {
    let [from, to] = servers;
    let fence = pair.fence();
    let mut found = Vec::new();
    let access = [fence.access(from).await?, fence.access(to).await?];
    if access[0] != ServerAccess::Open || access[1] == ServerAccess::Open {
        let words =
            |server: &Server, access| format!("{} {}", server.address(), said(Some(access)));
        found.push(format!(
            "{} and {}; applications use the first alone",
            words(from, access[0]),
            words(to, access[1])
        ));
    }
    let has_events = from.is_on("event_scheduler").await?;
    for server in [&mut *from, &mut *to] {
        found.extend(missing_privileges(server, &fence, has_events).await?);
    }
    if let Ok(prepared) = from.prepared().await
        && !prepared.is_empty()
    {
        found.push(format!(
            "{}: distributed transactions are prepared ({}), which no fence keeps from being committed; \
             commit them or roll them back",
            from.address(),
            prepared.join(", ")
        ));
    }
    // Its own applier writes whatever the fence.
    let appliers = "SELECT COUNT(*) FROM performance_schema.replication_applier_status \
                    WHERE SERVICE_STATE = 'ON' AND CHANNEL_NAME NOT LIKE 'group_replication%'";
    if let Ok(rows) = from.ask(appliers).await
        && rows.into_iter().flatten().flatten().next().is_some_and(|count| count != "0")
    {
        let text =
            "it is a replica of another server, whose transactions pass every fence; STOP REPLICA";
        found.push(format!("{}: {text}", from.address()));
    }
    for (key, program) in programs(pair) {
        if let Some(why) = unusable(program) {
            found.push(format!("move.{key}: {program}: {why}"));
        }
    }
    Ok(found)
}

/// Returns the reasons by the state of the channels.
pub(super) fn channel_problems(
    daemon: &dyn DaemonControl,
    [forward, reverse]: [&ChannelSettings; 2],
    max_lag: f64,
) -> Vec<String> {
    let mut found = Vec::new();
    for (channel, states) in [(forward, &FOLLOWS[..]), (reverse, &STANDS_BY[..])] {
        match daemon.view(&channel.name) {
            Ok(view) => {
                found.extend(state_problem(&view, states));
                if channel.name == forward.name {
                    found.extend(lag_problem(&view, max_lag));
                }
            }
            Err(failure) => found.push(failure.to_string()),
        }
    }
    found
}

pub(super) fn state_problem(view: &ChannelView, states: &[ChannelState]) -> Option<String> {
    let ChannelView { channel_name, state, state_detail, .. } = view;
    let command = match state {
        // It outlives a restart, and so does an end.
        ChannelState::Paused => "resume",
        ChannelState::Stopped if view.is_at_end() => "until --clear",
        ChannelState::Stopped | ChannelState::Failed => "restart",
        _ => "status",
    };
    (!states.contains(state)).then(|| {
        format!(
            "channel {channel_name} is {}: {state_detail}; csa-daemon --channel {channel_name} {command}",
            state.name()
        )
    })
}

/// Returns the reason why the reverse channel could not take over.
pub(super) fn reverse_problem(
    daemon: &dyn DaemonControl,
    reverse: &ChannelSettings,
) -> Option<String> {
    match daemon.view(&reverse.name) {
        Ok(view) => state_problem(&view, &STANDS_BY),
        Err(failure) => Some(failure.to_string()),
    }
}

fn lag_problem(view: &ChannelView, max_lag: f64) -> Option<String> {
    let name = &view.channel_name;
    match view.lag_seconds {
        Some(lag) if lag <= max_lag => None,
        Some(lag) => Some(format!(
            "channel {name} lags by {lag:.1} s, more than move.max_lag ({max_lag} s); wait until it has caught \
             up: csa-daemon status --channel {name}"
        )),
        None => Some(format!(
            "the lag of channel {name} is not known; csa-daemon status --channel {name}"
        )),
    }
}

/// Returns the privileges that the account lacks for the fence, and for the event scheduler where that moves.
async fn missing_privileges(
    server: &mut Server,
    fence: &Fence,
    has_events: bool,
) -> Asked<Option<String>> {
    let grants = server.grants().await?;
    let mut wanted = match (&fence.means, server.identity.persists) {
        (FenceMeans::ReadOnly, true) => vec![SETS, "CONNECTION_ADMIN"],
        (FenceMeans::ReadOnly, false) => vec!["SUPER"],
        (FenceMeans::LockAccounts(_), true) => vec!["CREATE USER", "CONNECTION_ADMIN"],
        (FenceMeans::LockAccounts(_), false) => vec!["CREATE USER", "SUPER"],
        (FenceMeans::Command(_), true) => vec!["CONNECTION_ADMIN"],
        (FenceMeans::Command(_), false) => vec!["SUPER"],
    };
    wanted.push("PROCESS");
    if server.identity.persists {
        wanted.push("XA_RECOVER_ADMIN");
    }
    // Events pass the other fences, and would continue beside those of the new server.
    let only_for_events = has_events && server.identity.persists && !wanted.contains(&SETS);
    if only_for_events {
        wanted.push(SETS);
    }
    // SUPER has been what the first two of 8.0 are.
    let mut missing = grants.missing(&wanted);
    if grants.has_any(&["SUPER"]) {
        missing.retain(|name| ![SETS, "CONNECTION_ADMIN"].contains(name));
    }
    let way_out = match only_for_events && missing.contains(&SETS) {
        true => {
            "; or, where it can't have that, have event_scheduler set to OFF on both servers before the move, and to ON \
             on the new one after it"
        }
        false => "",
    };
    Ok((!missing.is_empty()).then(|| {
        let (missing, account) = (missing.join(", "), grants.account());
        format!(
            "{}: {account} lacks {missing}; run there: {}{way_out}",
            server.address(),
            of_account(&format!("GRANT {missing} ON *.* TO {account}"))
        )
    }))
}

/// Returns the programs of the configuration with their keys.
fn programs<'a>(pair: &'a Pair<'_>) -> Vec<(&'static str, &'a str)> {
    let mut programs = Vec::new();
    if let FenceMeans::Command(command) = &pair.settings.fence {
        programs.extend(command.first().map(|program| ("fence_command", program.as_str())));
    }
    programs.extend(pair.settings.hand_over.first().map(|program| ("hand_over", program.as_str())));
    programs
}

/// Returns the reason why a program can't be started.
fn unusable(program: &str) -> Option<String> {
    let found = match program.contains('/') {
        true => Some(PathBuf::from(program)),
        false => std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path)
                .map(|folder| folder.join(program))
                .find(|file| file.is_file())
        }),
    };
    let Some(file) = found else { return Some("it is in no folder of PATH".to_owned()) };
    is_executable(&file).err()
}

fn is_executable(file: &Path) -> Result<(), String> {
    let about = fs::metadata(file).map_err(|error| error.to_string())?;
    match about.is_file() && about.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err("it is not executable; chmod +x".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_does_not_follow_is_told_what_lets_it() {
        let told = |state, state_detail: &str| {
            let channel_name = "up".to_owned();
            let state_detail = state_detail.to_owned();
            let view = ChannelView { channel_name, state, state_detail, ..ChannelView::default() };
            state_problem(&view, &FOLLOWS).unwrap_or_default()
        };
        for (state, detail, command) in [
            (ChannelState::Paused, "paused", "resume"),
            (ChannelState::Stopped, "stopped on request", "restart"),
            (
                ChannelState::Stopped,
                "stopped: until sql_after_gtids = a:1 is reached",
                "until --clear",
            ),
            (ChannelState::Failed, "error 1062", "restart"),
            (ChannelState::WaitingForTarget, "target t:1 is away", "status"),
        ] {
            let told = told(state, detail);
            assert!(told.ends_with(&format!("; csa-daemon --channel up {command}")), "{told}");
        }
        assert_eq!(told(ChannelState::Running, ""), "");
    }
}
